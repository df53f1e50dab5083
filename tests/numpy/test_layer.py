"""The NumPy front-end: calls, primitives of training, and what it refuses."""

import copy
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import State, Step, affine, cell, cells, exp, mean, runtime, softplus, tanh, vector, weights, where
from anyrnn._memory import aligned
from anyrnn.errors import UnsupportedError
from tests.budget import assert_relative
from tests.zoo import EVERY, further, input_size, occurring, sizes_of


def make(name, backend="auto", **options):
    inputs = input_size(name, 4, 14 if options.get("bidirectional") else 7)
    return anyrnn.Recurrent(
        name, inputs, 7, backend=backend, **{"dtype": "float64", "seed": 3, **sizes_of(name, 3, 7), **options}
    )


def states(layer, rows, random, first=False):
    """Of the size of states, and first ones as they can occur."""
    made = [random.normal(size=(len(layer.network.units), rows, size)) for size in layer.network.state_sizes]
    if not first:
        return tuple(made)
    graph = layer.network.graph
    return tuple(occurring(cells.load(graph.name), {s.name: a for s, a in zip(graph.states, made, strict=True)}).values())


def flat(*results):
    found = []
    for r in results:
        found += list(r.values()) if isinstance(r, dict) else list(r) if isinstance(r, tuple) else [r]
    return found


def close(a, b):
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        assert_relative(x, y, "llvm float64 against the reference backend", f"result {k}")


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}])
@pytest.mark.parametrize("name", EVERY)
def test_both_backends_agree(name, options):
    results = []
    for backend in ("llvm", "reference"):
        layer = make(name, backend, **options)
        assert layer.backend_name == backend
        again = np.random.default_rng(1)
        x, more = again.normal(size=(5, 6, layer.network.input_size)), further(layer.network, 5, 6, dtype=float)
        state = states(layer, 5 if layer.batch_first else 6, again, first=True)
        y, last, reserve = layer.forward_training(x, state, **more)
        close(flat(y, last), flat(*layer(x, state, **more)))
        d_last = states(layer, 5 if layer.batch_first else 6, again)
        results.append(flat(y, last, *layer.backward(reserve, np.sin(y), d_last)))
    close(*results)


@pytest.mark.parametrize("name", EVERY)
def test_backward_in_two_calls_equals_one(name, random):
    layer = make(name, num_layers=2)
    x = random.normal(size=(9, 3, layer.network.input_size))
    y, _, reserve = layer.forward_training(x, **further(layer.network, 9, 3, dtype=float))
    d_x, d_first, gradients = layer.backward(reserve, y)
    d_x2, d_first2, workspace = layer.backward_data(reserve, y)
    for a, b in zip(flat(d_x, d_first, gradients), flat(d_x2, d_first2, layer.backward_weights(workspace)), strict=True):
        assert (a == b).all()


def test_gradients_are_set_or_added(random):
    layer = make("gru")
    y, _, reserve = layer.forward_training(random.normal(size=(4, 2, 4)))
    fresh = layer.backward(reserve, y)[2]
    given = {name: np.ones_like(a) for name, a in fresh.items()}
    assert layer.backward(reserve, y, gradients=given)[2] is given
    close(flat(given), flat(fresh))
    layer.backward(reserve, y, gradients=given, add=True)
    with pytest.raises(ValueError, match=r"add=True is for gradients="):
        layer.backward(reserve, y, add=True)
    close(flat(given), [2 * a for a in fresh.values()])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_cotangent_of_the_last_step_alone(backend, bidirectional, random):
    layer = make("lstm", backend, bidirectional=bidirectional)
    y, _, reserve = layer.forward_training(random.normal(size=(6, 3, 4)))
    d_last = random.normal(size=y.shape[1:])
    d_output = np.zeros_like(y)
    d_output[-1] = d_last
    close(flat(*layer.backward(reserve, d_last_output=d_last)), flat(*layer.backward(reserve, d_output)))


def test_a_cotangent_of_the_last_state_alone(random):
    layer = make("gru")
    y, h, reserve = layer.forward_training(random.normal(size=(6, 3, 4)))
    d_h = random.normal(size=h.shape)
    close(flat(*layer.backward(reserve, d_state=d_h)), flat(*layer.backward(reserve, np.zeros_like(y), d_h)))


def test_a_stream_equals_a_sequence_bit_for_bit(random):
    layer = make("lstm", dtype="float32", num_layers=2)
    x = random.normal(size=(30, 5, 4)).astype(np.float32)
    whole, last = layer(x)
    state, parts = None, []
    for step in x:
        y, state = layer(step[None], state)
        parts.append(y[0])
    assert (np.stack(parts) == whole).all()
    assert all((a == b).all() for a, b in zip(state, last, strict=True))


@pytest.mark.parametrize(("sizes", "error", "message"), [
    ((8, 1.5), TypeError, r"^batch_size should be of type int, got: float$"),
    ((0, 3), ValueError, r"^steps must be greater than zero$"),
])  # fmt: skip
def test_what_is_no_size_has_no_reserve(sizes, error, message):
    with pytest.raises(error, match=message):
        make("gru").reserve_size(*sizes)


def test_a_product_in_blocks_of_trained_parameters_is_refused_with_a_way_out():
    @anyrnn.cell
    def constant(x, h):
        p = anyrnn.vector("p")
        h = anyrnn.tanh(anyrnn.affine("n", x, h) + anyrnn.tanh(anyrnn.affine("g", p, heads=2)))
        return h, anyrnn.State(h=h)

    message = r"test_layer.py:\d+: a product in blocks, of parameters alone, has no gradient: declare .* with trained=False"
    layer = anyrnn.Recurrent(constant, 3, 4)
    with pytest.raises(UnsupportedError, match=message):
        layer(np.zeros((2, 1, 3), np.float32))


def test_out_and_memory_are_used(random):
    layer = make("gru", batch_first=True)
    x = random.normal(size=(3, 8, 4))
    out, memory = np.full((3, 8, 7), np.nan), aligned(layer.reserve_size(8, 3))
    y, _, reserve = layer.forward_training(x, out=out, memory=memory)
    assert y is out
    assert reserve.memory is memory
    close([out], [layer(x)[0]])


def test_without_a_batch(random):
    layer = make("lstm")
    x = random.normal(size=(6, 4))
    y, (h, c) = layer(x)
    assert (y.shape, h.shape, c.shape) == ((6, 7), (1, 7), (1, 7))
    full, (h3, _) = layer(x[:, None])
    close([y, h], [full[:, 0], h3[:, 0]])


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("cell", ["lstm_heads", "slstm"])
def test_an_empty_batch_in_blocks(cell, backend):
    layer = anyrnn.Recurrent(cell, 3, 4, heads=2, backend=backend, seed=0)
    y, _, reserve = layer.forward_training(np.zeros((5, 0, 3), np.float32))
    assert not any(gradient.any() for gradient in layer.backward(reserve, y)[2].values())


def test_an_empty_batch_works():
    layer = make("gru")
    y, h, reserve = layer.forward_training(np.zeros((3, 0, 4)))
    assert (y.shape, h.shape) == ((3, 0, 7), (1, 0, 7))
    assert all((g == 0).all() for g in layer.backward(reserve, y)[2].values())


def test_nan_passes_through(random):
    layer = make("lstm")
    x = random.normal(size=(4, 3, 4))
    x[2, 1, 0] = np.nan
    y, _ = layer(x)
    assert np.isnan(y[2:, 1]).all()
    assert np.isfinite(y[:, [0, 2]]).all()
    assert np.isfinite(y[:2]).all()


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.zeros((3, 2, 5)), ValueError, "x should have 4 features, got 5"),
        (np.zeros((3, 2, 4), np.float32), TypeError, "x should be a NumPy array of float64, got float32"),
        ([[0.0] * 4], TypeError, "x should be a NumPy array of float64, got list"),
        (np.zeros(4), ValueError, "x should be 2-D .* or 3-D, got 1-D"),
        (np.zeros((0, 2, 4)), ValueError, "x has no steps"),
    ],
)
def test_bad_input(x, error, words):
    with pytest.raises(error, match=words):
        make("gru")(x)


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        (np.zeros((1, 2, 7)), ValueError, r"state should be 2 arrays \(h, c\), got 1"),
        ((np.zeros((1, 2, 7)), np.zeros((1, 3, 7))), ValueError, r"state c should have shape \(1, 2, 7\), got \(1, 3, 7\)"),
        ((np.zeros((1, 2, 7)), np.zeros((1, 2, 7), "f")), TypeError, "state c should be float64, got float32"),
    ],
)
def test_bad_states(state, error, words):
    with pytest.raises(error, match=words):
        make("lstm")(np.zeros((3, 2, 4)), state)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_matrix_is_a_sequence(backend):
    layer, x = anyrnn.Recurrent("gru", 4, 7, seed=0, backend=backend), np.arange(12, dtype=np.float32).reshape(3, 4)
    found, expected = layer(np.matrix(x)), layer(x)
    assert type(found[0]) is np.ndarray
    assert all(map(np.array_equal, found, expected))


def with_parameter(layer, name, value):
    changed = copy.deepcopy(layer)
    changed.parameters[name] = value
    return changed


def test_masked_arrays_are_refused():
    """Wherever numbers are given: their masks would be ignored."""
    layer = make("gru")
    x, state = np.zeros((3, 2, 4)), np.zeros((1, 2, 7))
    y, _, reserve = layer.forward_training(x)
    for given, call in [
        (x, layer), (state, lambda s: layer(x, s)), (y, lambda d: layer.backward(reserve, d)),
        (state, lambda d: layer.backward(reserve, None, d)),
        (y[-1], lambda d: layer.backward(reserve, d_last_output=d)), (x[0], layer.stream(2)),
        (np.array([3, 2]), lambda lengths: layer(x, lengths=lengths)), (np.ones((3, 2), bool), lambda mask: layer(x, mask=mask)),
        (np.ones((3, 2), bool), lambda reset: layer(x, reset=reset)),
        (layer.parameters["weight_hh_l0"], lambda weight: with_parameter(layer, "weight_hh_l0", weight)(x)),
        (np.zeros((21, 7)), lambda d: layer.backward(reserve, y, gradients={**dict(layer.parameters), "weight_hh_l0": d})),
        (x, runtime.Network([runtime.Input("x", 4)], [runtime.Recurrent.of("rnn", ["x"], layer)]).run),
        (np.zeros((5, 4)), lambda weight: runtime.Dense("d", ["x"], weight)),
        (layer.parameters["weight_ih_l0"], lambda w: weights.write("torch", {**layer.parameters, "weight_ih_l0": w}, "gru", 1)),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match="is a masked array, and its mask would be ignored"):
            call(np.ma.masked_array(given, True))


def test_bad_cotangents_and_memory(random):
    layer = make("gru")
    y, _, reserve = layer.forward_training(random.normal(size=(3, 2, 4)))
    with pytest.raises(ValueError, match="d_output or d_last_output, not both"):
        layer.backward(reserve, y, d_last_output=y[-1])
    with pytest.raises(ValueError, match="d_output should have the output's shape"):
        layer.backward(reserve, y[:2])
    with pytest.raises(ValueError, match=r"d_last_output should be float64 \(2, 7\)"):
        layer.backward(reserve, d_last_output=y[-1, :1])
    with pytest.raises(ValueError, match=r"memory should be at least .* bytes"):
        layer.forward_training(np.zeros((3, 2, 4)), memory=np.zeros(8, np.uint8))
    with pytest.raises(ValueError, match=r"out should have shape \(3, 2, 7\)"):
        layer(np.zeros((3, 2, 4)), out=np.zeros((3, 1, 7)))


@pytest.mark.parametrize("name", ["weight_hh", "weight_hh_l1"])
def test_a_parameter_of_an_unknown_name_is_refused(name):
    layer, x = anyrnn.Recurrent("gru", 3, 5), np.ones((4, 2, 3), np.float32)
    layer.parameters[name] = layer.parameters["weight_hh_l0"]
    with pytest.raises(ValueError, match=rf"parameters should be weight_ih_l0, .*; unknown or missing: {name}$"):
        layer(x)
    del layer.parameters[name], layer.parameters["weight_hh_l0"]
    with pytest.raises(ValueError, match=r"unknown or missing: weight_hh_l0$"):
        layer(x)


def test_a_changed_parameter_is_used_and_a_wrong_one_refused():
    layer = make("gru")
    x = np.ones((2, 1, 4))
    before = layer(x)[0]
    layer.parameters["weight_hh_l0"][...] *= 2
    assert (layer(x)[0] != before).any()
    layer.parameters["weight_hh_l0"] = np.zeros((3, 3))
    with pytest.raises(ValueError, match=r"parameter weight_hh_l0 should be float64 \(21, 7\), got float64 \(3, 3\)"):
        layer(x)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dtype": "float16"}, TypeError, "dtype should be float32 or float64"),
        ({"backend": "cuda"}, ValueError, "backend should be one of auto, llvm, reference, got 'cuda'"),
        ({"num_layers": 0}, ValueError, "num_layers must be greater than zero"),
        ({"bias": 1}, TypeError, "bias should be of type bool, got: int"),
        ({"rank": 3}, TypeError, "unexpected keyword argument 'rank'; options of cell 'gru'"),
        ({"dropout": 2.0}, ValueError, "dropout should be a number in range"),
    ],
)
def test_bad_arguments(options, error, words):
    with pytest.raises(error, match=words):
        make("gru", **options)


def test_a_missing_size_is_named():
    with pytest.raises(TypeError, match="cell 'lstm_projected' needs the size proj"):
        anyrnn.Recurrent("lstm_projected", 4, 7)


def test_an_explicit_backend_fails_where_an_automatic_one_falls_back():
    @anyrnn.cell
    def beside(x, h):
        h = anyrnn.tanh(anyrnn.affine("h", x, h, v=anyrnn.vector("v"), heads=2))
        return h, anyrnn.State(h=h)

    assert anyrnn.Recurrent(beside, 4, 6).backend_name == "reference"
    with pytest.raises(
        UnsupportedError, match="backend 'llvm' cannot run this: the cell uses a product in blocks, of parameters"
    ):
        anyrnn.Recurrent(beside, 4, 6, backend="llvm")


def decaying(x, dt: Step(1), h):
    h = exp(-softplus(vector("k")) * mean(dt)) * h
    h = tanh(affine("a", x, h))
    return h, State(h=h)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("stack", [{}, {"num_layers": 3, "bidirectional": True, "batch_first": True}, {"reverse": True}], ids=str)
def test_further_inputs_are_given_by_name(stack, backend, random):
    layer = anyrnn.Recurrent(cell(decaying), 3, 5, dtype=np.float64, seed=0, backend=backend, **stack)
    x, dt = random.normal(size=(4, 2, 3)), random.uniform(size=(4, 2, 1))
    output, _, reserve = layer.forward_training(x, dt=dt)
    (d_x, d_dt), _, _ = layer.backward(reserve, np.ones_like(output))
    step = 1e-6
    for array, gradient in ((x, d_x), (dt, d_dt)):
        place = (1, 1, 0)
        array[place] += step
        above = layer(x, dt=dt)[0].sum()
        array[place] -= 2 * step
        below = layer(x, dt=dt)[0].sum()
        array[place] += step
        assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_vector_of_one_feature_is_a_number_beside_longer_ones(backend, random):
    @anyrnn.cell
    def leaky(x, h, dt: Step(1)):
        h = h + dt * (tanh(affine("n", x, h)) - h) / np.float32(2) + np.float64(0.5) * vector("b", 1)
        h = where(dt > 0.5, h, where(np.float32(0.2) < dt, -h, 0.0))
        return h, anyrnn.State(h=h)

    @anyrnn.cell
    def spelled_out(x, h, dt: Step(1)):
        h = h + mean(dt) * (tanh(affine("n", x, h)) - h) / 2 + 0.5 * mean(vector("b", 1))
        h = where(mean(dt) > 0.5, h, where(mean(dt) > 0.2, -h, 0.0))
        return h, anyrnn.State(h=h)

    x, dt = random.normal(size=(4, 2, 3)).astype(np.float32), random.uniform(size=(4, 2, 1)).astype(np.float32)
    outputs = [anyrnn.Recurrent(each, 3, 5, seed=0, backend=backend)(x, dt=dt)[0] for each in (leaky, spelled_out)]
    np.testing.assert_array_equal(*outputs)
    assert not np.array_equal(*[anyrnn.Recurrent(leaky, 3, 5, seed=0)(x, dt=k * dt)[0] for k in (1, 2)])


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("stack", [{"num_layers": 3, "bidirectional": True}, {"num_layers": 2, "reverse": True}], ids=str)
def test_kernels_add_the_gradients_of_further_inputs(stack, uneven, random):
    @anyrnn.cell
    def timed(x, h, dt: Step(2), e: Step("hidden")):
        h = tanh(affine("a", x, h, dt) + e) * mean(dt)
        return h, anyrnn.State(h=h)

    layers = [anyrnn.Recurrent(timed, 3, 5, dtype=np.float64, seed=0, backend=b, **stack) for b in ("llvm", "reference")]
    for steps, rows in ((7, 3), (300, 2), (5, 70)):
        x, dt, e = (random.normal(size=(steps, rows, n)) for n in (3, 2, 5))
        call = {"lengths": random.integers(0, steps + 1, rows).tolist()} if uneven else {}
        results = []
        for layer in layers:
            y, _, reserve = layer.forward_training(x, dt=dt, e=e, **call)
            results.append([y, *layer.backward(reserve, np.cos(y))[0]])
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_further_inputs_of_a_size_that_layers_do_not_share():
    @anyrnn.cell
    def odd(x, h, e: Step("input")):
        h = tanh(affine("a", x, h) + affine("b", e))
        return h, anyrnn.State(h=h)

    with pytest.raises(ValueError, match="per-step input 'e' has 4 features in the first layer and would have 6 in those above"):
        anyrnn.Recurrent(odd, 4, 6, 2)
    assert anyrnn.Recurrent(odd, 6, 6, 2).backend_name == "llvm"


def test_further_inputs_that_do_not_fit():
    layer, x = anyrnn.Recurrent(cell(decaying), 3, 5), np.zeros((4, 2, 3), np.float32)
    with pytest.raises(TypeError, match="cell 'decaying' needs the per-step input dt as keyword argument"):
        layer(x)
    with pytest.raises(TypeError, match="cell 'decaying' has no per-step input 'g'; it has: dt"):
        layer(x, g=x)
    with pytest.raises(ValueError, match=r"dt should have as many steps and samples as x, got shape \(3, 2, 1\)"):
        layer(x, dt=np.zeros((3, 2, 1), np.float32))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            {"weight_hh_l0": None},
            TypeError,
            "gradients should hold a NumPy array .* got nothing for weight_hh_l0",
        ),
        ({"weight_hh_l0": [0.0]}, TypeError, "got a list for weight_hh_l0"),
        (
            {"bias_ih_l0": np.zeros(1, np.float32)},
            ValueError,
            r"bias_ih_l0 should be float32 \(15,\), got float32 \(1,\)",
        ),
        (
            {"bias_ih_l0": np.zeros(15, np.int64)},
            ValueError,
            r"bias_ih_l0 should be float32 \(15,\), got int64 \(15,\)",
        ),
    ],
)
def test_arrays_for_gradients_are_checked_before_any_work(change, error, words):
    layer = anyrnn.Recurrent("gru", 3, 5)
    output, _, reserve = layer.forward_training(np.ones((4, 2, 3), np.float32))
    gradients = {name: np.zeros_like(p) for name, p in layer.parameters.items()} | change
    with pytest.raises(error, match=words):
        layer.backward(reserve, output, gradients=gradients, add=True)
    assert all(not np.any(g) for name, g in gradients.items() if name not in change)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda g, layer, x: g["weight_ih_l0"], "weight_.h_l0 and weight_.h_l0 should be two arrays, they share memory"),
        (lambda g, layer, x: overlapping(g, "weight_ih_l0"), "weight_.h_l0 and weight_.h_l0 should be two arrays"),
        (
            lambda g, layer, x: np.lib.stride_tricks.as_strided(np.zeros(5, "f"), (5, 5), (0, 4)),
            "weight_hh_l0 has several numbers",
        ),
        (lambda g, layer, x: layer.parameters["weight_ih_l0"], "weight_hh_l0 and parameter weight_ih_l0 should be two arrays"),
        (lambda g, layer, x: x[0], "weight_hh_l0 and the input should be two arrays"),
    ],
)
@pytest.mark.parametrize("in_two", [False, True])
def test_arrays_for_gradients_have_memory_of_their_own(make, words, in_two):
    layer, x = anyrnn.Recurrent("rnn_tanh", 5, 5), np.ones((4, 5, 5), np.float32)
    output, _, reserve = layer.forward_training(x)
    gradients = {name: np.zeros_like(p) for name, p in layer.parameters.items()}
    gradients["weight_hh_l0"] = make(gradients, layer, x)
    made = (
        partial(layer.backward_weights, layer.backward_data(reserve, output)[2])
        if in_two
        else partial(layer.backward, reserve, output)
    )
    with pytest.raises(ValueError, match=f"gradients: {words}"):
        made(gradients=gradients)


def test_gradients_may_stand_side_by_side():
    """In one array, where their bounds overlap and their numbers do not."""
    layer, x = anyrnn.Recurrent("rnn_tanh", 5, 5, seed=0), np.ones((4, 2, 5), np.float32)
    output, _, reserve = layer.forward_training(x)
    gradients = {name: np.zeros_like(p) for name, p in layer.parameters.items()}
    both = np.zeros((5, 10), np.float32)
    gradients["weight_ih_l0"], gradients["weight_hh_l0"] = both[:, ::2], both[:, 1::2]
    expected = layer.backward(reserve, output)[2]
    layer.backward(reserve, output, gradients=gradients)
    assert all(np.array_equal(gradients[name], d) for name, d in expected.items())


def overlapping(gradients, name):
    """An array of 5 by 5 numbers that begins within another, which takes that one's place."""
    both = np.zeros(40, np.float32)
    gradients[name] = both[:25].reshape(5, 5)
    return both[15:].reshape(5, 5)


def test_a_parameter_of_another_type_is_refused():
    layer = anyrnn.Recurrent("gru", 3, 5)
    layer.parameters["bias_hh_l0"] = [0.0] * 15
    with pytest.raises(TypeError, match="parameter bias_hh_l0 should be a NumPy array, got list"):
        layer(np.ones((4, 2, 3), np.float32))


def test_what_it_is_called():
    assert repr(anyrnn.Recurrent("gru", 3, 5)) == "Recurrent(gru, 3, 5)"
    layer = anyrnn.Recurrent("lstm", 3, 5, 2, bias="input", zoneout=0.1, memory_budget=10**6, dtype="float64")
    expected = "num_layers=2, bias='input', zoneout=0.1, memory_budget=1000000, dtype='float64'"
    assert repr(layer) == f"Recurrent(lstm, 3, 5, {expected})"


def test_options_are_fixed():
    for layer in (anyrnn.Recurrent("gru", 3, 5, zoneout=0.1), anyrnn.torch.GRU(3, 5, zoneout=0.1)):
        with pytest.raises(AttributeError, match="zoneout is fixed when a layer is made"):
            layer.zoneout = 0.0


def test_the_dtype_may_be_another_later():
    """With the parameters."""
    layer, x = anyrnn.Recurrent("gru", 3, 5, seed=0), np.ones((4, 2, 3))
    layer.dtype = np.float64
    with pytest.raises(ValueError, match=r"parameter weight_ih_l0 should be float64 \(15, 3\), got float32 \(15, 3\)"):
        layer(x)
    layer.parameters = {name: array.astype(np.float64) for name, array in layer.parameters.items()}
    assert layer(x)[0].dtype == np.float64
    with pytest.raises(TypeError, match="dtype should be float32 or float64, got float16"):
        layer.dtype = np.float16


def test_the_batch_may_come_first_later():
    layer, x = anyrnn.Recurrent("gru", 3, 5, seed=0), np.ones((4, 2, 3), np.float32)
    output, _ = layer(x)
    layer.batch_first = True
    assert np.array_equal(layer(x.swapaxes(0, 1))[0].swapaxes(0, 1), output)
    with pytest.raises(TypeError, match="batch_first should be a bool, got 3"):
        layer.batch_first = 3


def test_calls_choose_anew():
    x = np.ones((5, 2, 3), np.float32)
    first, again = (anyrnn.Recurrent("gru", 3, 5, zoneout=0.5, seed=1) for _ in range(2))
    calls = [layer.forward_training(x)[0] for layer in (first, first, again, again)]
    assert (calls[0] != calls[1]).any()
    assert (calls[0] == calls[2]).all()
    assert (calls[1] == calls[3]).all()
    assert (first.forward_training(x, seed=7)[0] == again.forward_training(x, seed=np.int64(7))[0]).all()
    for seed in ("a", 1.5, True):
        with pytest.raises(TypeError, match="seed should be an integer, got"):
            first.forward_training(x, seed=seed)


def test_slips_are_named():
    x = np.ones((5, 2, 3), np.float32)
    for layer, given in ((anyrnn.Recurrent("gru", 3, 5), x), (anyrnn.torch.GRU(3, 5), torch.from_numpy(x))):
        with pytest.raises(TypeError, match=r"no per-step input 'length' \(did you mean 'lengths'\?\)"):
            layer(given, length=[5, 2])


def test_memory_that_cannot_be_written_is_refused():
    layer, x = anyrnn.Recurrent("gru", 3, 5), np.ones((4, 2, 3), np.float32)
    size = layer.reserve_size(4, 2)
    out = np.zeros((4, 2, 5), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out should be writable"):
        layer(x, out=out)
    repeated = np.lib.stride_tricks.as_strided(np.zeros(5, np.float32), (4, 2, 5), (0, 0, 4))
    for refused in (repeated, np.zeros((5, 2, 4), np.float32).T, np.zeros((4, 2, 10), np.float32)[:, :, ::2]):
        with pytest.raises(ValueError, match="out should have its features next to each other and nothing twice"):
            layer(x, out=refused)
    for memory in (np.zeros(2 * size, np.uint8)[::2], np.zeros(size, np.uint8)[::-1], bytearray(size)):
        for one in (layer, anyrnn.Recurrent("gru", 3, 5, backend="reference")):
            with pytest.raises(ValueError, match="memory should be a contiguous and writable NumPy array"):
                one.forward_training(x, memory=memory)


def test_an_output_in_the_place_of_the_input_is_refused():
    layer, x = anyrnn.Recurrent("gru", 5, 5), np.ones((4, 2, 5), np.float32)
    with pytest.raises(ValueError, match="out should not share memory with x, the initial states"):
        layer(x, out=x)
    both = np.zeros((4, 2, 10), np.float32)
    both[..., :5] = x
    layer(both[..., :5], out=both[..., 5:])
    assert (both[..., :5] == x).all()
    assert (both[..., 5:] == layer(x)[0]).all()
    with pytest.raises(ValueError, match="out should not share memory"):
        layer(both[..., :5], out=both[..., 4:9])


def test_an_output_in_the_place_of_anything_that_is_read_is_refused():
    layer, x = anyrnn.Recurrent("rnn_tanh", 10, 5, bidirectional=True), np.ones((5, 1, 10), np.float32)
    memory = aligned(layer.reserve_size(5, 1))
    for out in (layer.parameters["weight_ih_l0_reverse"], memory[: 4 * 50].view(np.float32)):
        with pytest.raises(ValueError, match="out should not share memory with x, the initial states, the parameters or memory"):
            layer.forward_training(x, out=out.reshape(5, 1, 10), memory=memory)


def test_a_memory_that_holds_what_is_read_is_refused():
    layer = anyrnn.Recurrent("rnn_tanh", 10, 5)
    memory = aligned(layer.reserve_size(5, 1))
    for of_what, shape in (("x", (5, 1, 10)), ("state", (1, 1, 5))):
        given = {"x": np.ones((5, 1, 10), np.float32), of_what: memory.view(np.float32)[: np.prod(shape)].reshape(shape)}
        with pytest.raises(ValueError, match="memory should not share memory with x, the initial states or the parameters"):
            layer.forward_training(**given, memory=memory)


@pytest.mark.parametrize(
    ("strides", "overlaps"),
    [((8, 8, 4), True), ((16, 40, 4), True), ((20, 20, 4), True), ((-20, -80, 4), False), ((40, 20, 4), False)],
)
def test_an_output_that_overlaps_itself_is_refused(strides, overlaps):
    layer, x = anyrnn.Recurrent("rnn_tanh", 5, 5, seed=0), np.ones((4, 2, 5), np.float32)
    expected = layer(x)[0]
    out = np.lib.stride_tricks.as_strided(np.zeros(200, np.float32)[100:], (4, 2, 5), strides)
    if overlaps:
        with pytest.raises(ValueError, match="nothing twice"):
            layer(x, out=out)
    else:
        assert (layer(x, out=out)[0] == expected).all()


@pytest.mark.parametrize("batch_first", [False, True])
def test_out_of_one_step_or_without_a_batch(batch_first):
    layer, x = anyrnn.Recurrent("gru", 3, 5, batch_first=batch_first), np.ones((4, 3), np.float32)
    out = np.zeros((4, 5), np.float32)
    assert layer(x, out=out)[0] is out
    assert (out == layer(x)[0]).all()
    one = out[None, None, 3]
    layer(x[None, :1] if batch_first else x[:1, None], out=one)
    assert (one == layer(x[:1])[0]).all()
    for wrong in (out[:, None], out[None], out[:3]):
        with pytest.raises(ValueError, match=r"out should have shape \(4, 5\), got"):
            layer(x, out=wrong)


def test_a_reserve_from_elsewhere_is_refused():
    layer, x = anyrnn.Recurrent("gru", 3, 5), np.ones((4, 2, 3), np.float32)
    output, _, reserve = layer.forward_training(x)
    others = [anyrnn.Recurrent("lstm", 3, 5), anyrnn.Recurrent("gru", 3, 5, dtype=np.float64)]
    for other in others:
        with pytest.raises(ValueError, match="reserve should be what forward_training of this layer"):
            other.backward(reserve, output.astype(other.dtype))
    _, _, empty = anyrnn.Recurrent("gru", 3, 5, backend="reference").forward_training(x)
    with pytest.raises(ValueError, match="reserve should be what forward_training of this layer"):
        layer.backward(empty, output)
    with pytest.raises(TypeError, match="reserve should be what forward_training gave, got NoneType"):
        layer.backward(None, output)
    with pytest.raises(TypeError, match="workspace should be what backward_data gave, got Reserve"):
        layer.backward_weights(reserve)
    _, _, workspace = layer.backward_data(reserve, output)
    with pytest.raises(ValueError, match="reserve should be what forward_training of this layer"):
        others[0].backward_weights(workspace)


@pytest.mark.parametrize("state", [3, {"h": 1, "c": 2}])
def test_states_that_are_no_arrays(state: Any) -> None:
    with pytest.raises(TypeError, match="state should be an array, a tuple of them or a RecurrentState"):
        anyrnn.Recurrent("lstm", 3, 4)(np.zeros((2, 1, 3), np.float32), state)


def test_gradients_of_numbers_are_numbers() -> None:
    layer = anyrnn.Recurrent("fastrnn", 3, 4)
    y, _, reserve = layer.forward_training(np.ones((5, 2, 3), np.float32))
    gradients = layer.backward(reserve, y)[2]
    assert {name: d.shape for name, d in gradients.items()} == {name: p.shape for name, p in layer.parameters.items()}
    assert gradients["alpha_l0"].shape == ()


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "residual": True}], ids=["one call", "layer after layer"])
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_backward_call_is_of_the_parameters_that_the_forward_call_had(backend, options, random):
    @cell
    def exponential(x, h):
        h = tanh(affine("n", x, h) * exp(vector("p")))
        return h, State(h=h)

    layer = anyrnn.Recurrent(exponential, 5, 5, backend=backend, dtype="float64", seed=1, **options)
    x = random.normal(size=(4, 2, 5))
    y, _, reserve = layer.forward_training(x)
    expected = layer.backward(reserve, y)
    layer.parameters = {name: np.zeros_like(array) for name, array in layer.parameters.items()}
    found = layer.backward(reserve, y)
    assert np.array_equal(found[0], expected[0])
    assert all(np.array_equal(found[2][name], array) for name, array in expected[2].items())
    weights_ = layer.backward_weights(layer.backward_data(reserve, y)[2])
    assert all(np.array_equal(weights_[name], array) for name, array in expected[2].items())
    with pytest.raises(ValueError, match=r"gradients: .* and the layer's .* should be two arrays, they share memory"):
        layer.backward(reserve, y, gradients=layer.parameters)


@pytest.mark.parametrize(("backend", "budget"), [("llvm", None), ("llvm", 300_000), ("reference", None)])
def test_first_states_may_be_written_after_a_forward_call(backend, budget, random):
    layer = anyrnn.Recurrent("rnn_tanh", 3, 8, backend=backend, memory_budget=budget, seed=1)
    x, state = random.normal(size=(1200, 2, 3)).astype(np.float32), random.normal(size=(1, 2, 8)).astype(np.float32)
    y, last, reserve = layer.forward_training(x, state)
    expected = layer.backward(reserve, y)
    state[...] = last
    found = layer.backward(reserve, y)
    assert np.array_equal(found[2]["weight_hh_l0"], expected[2]["weight_hh_l0"])
    assert np.array_equal(found[0], expected[0])


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_gradients_of_weights_are_new_arrays_each_time(backend, random):
    layer = make("gru", backend)
    x = random.normal(size=(5, 2, 4))
    y, _, reserve = layer.forward_training(x)
    work = layer.backward_data(reserve, y)[2]
    first = layer.backward_weights(work)
    expected = {name: array.copy() for name, array in first.items()}
    for array in first.values():
        array[...] = 0
    assert all(np.array_equal(array, expected[name]) for name, array in layer.backward_weights(work).items())


def test_threads_may_ask_for_the_gradients_of_one_workspace():
    layer = anyrnn.Recurrent("lstm", 64, 128, seed=0, backend="llvm")
    x = np.random.default_rng(0).standard_normal((50, 32, 64), np.float32)
    y, _, reserve = layer.forward_training(x)
    work = layer.backward_data(reserve, y)[2]
    expected = layer.backward_weights(work)
    wrong: list[int] = []

    def ask() -> None:
        for k in range(40):
            found = layer.backward_weights(work)
            wrong.extend(k for name in expected if not np.array_equal(found[name], expected[name]))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def test_matrices_as_parameters_are_arrays(random):
    layer, x = make("gru", "reference"), random.normal(size=(4, 7, 4))
    y, _, reserve = layer.forward_training(x)
    expected = layer.backward(reserve, y)[2]
    layer.parameters = {n: p.view(np.matrix) if p.ndim == 2 else p for n, p in layer.parameters.items()}
    found = layer.backward(layer.forward_training(x)[2], y)[2]
    assert all(np.array_equal(found[name], array) and type(found[name]) is np.ndarray for name, array in expected.items())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_what_overflows_in_the_parameter_phase_warns_no_more_than_the_steps(backend):
    @cell
    def large(x, h):
        h = tanh(affine("n", x, h) * exp(vector("p", init=100.0)))
        return h, State(h=h)

    layer = anyrnn.Recurrent(large, 3, 4, backend=backend, seed=0)
    y, _, reserve = layer.forward_training(np.ones((2, 1, 3), np.float32))
    layer.backward(reserve, y)


@pytest.mark.parametrize("options", [{"residual": True}, {"bidirectional": True, "merge": "sum"}], ids=str)
def test_copies_of_a_reserve_in_parts_are_refused(options):
    """However the top one of its blocks happens to stand."""
    layer = anyrnn.Recurrent("gru", 5, 5, 2, seed=0, **options)
    y, _, reserve = layer.forward_training(np.ones((3, 2, 5), np.float32))
    layer.backward(reserve, y)
    own = reserve.parts[0].memory
    moved = np.empty(own.nbytes + 65, np.uint8)
    begin = -moved.ctypes.data % 64 + 16
    reserve.parts[0].memory = moved[begin : begin + own.nbytes]
    with pytest.raises(ValueError, match="not a copy of it"):
        layer.backward(reserve, y)


def test_cotangents_of_all_states_by_name():
    layer = anyrnn.Recurrent("lstm", 3, 4, seed=0)
    x = np.ones((5, 2, 3), np.float32)
    d = tuple(np.full((1, 5, 2, 4), k, np.float32) for k in (1, 2))
    found = []
    for given in (d, anyrnn.RecurrentState(("h", "c"), d)):
        reserve = layer.forward_training(x, return_states="all")[2]
        found.append(layer.backward(reserve, None, given)[0])
    assert np.array_equal(*found)
