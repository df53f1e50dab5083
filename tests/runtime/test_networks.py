"""Networks at run time: sequences, steps, streams, and the layers around the recurrent ones."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import State, Step, Vec, affine, cell, runtime, tanh, vector
from anyrnn.runtime.formulas import ELEMENTWISE
from anyrnn.runtime.functions import FUNCTIONS
from anyrnn.runtime.recurrent import elementwise
from tests.budget import assert_within_budget
from tests.zoo import EVERY, further, input_size, sizes_of


def draw(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def recurrent(name, size=5, hidden=7, given="x", **options):
    backend = options.pop("runs", "auto")
    layer = anyrnn.Recurrent(name, input_size(name, size, hidden), hidden, seed=0, **sizes_of(name), **options)
    return runtime.Recurrent.of("rnn", [given, *dict(layer.network.further_inputs)], layer, backend=backend)


def small(name, backend="auto", dtype=np.float32):
    """An embedding, two layers of a cell, and a softmax over a product of both."""
    rnn = recurrent(name, num_layers=2, given="embedding", dtype=dtype, runs=backend)
    size, width = rnn.network.input_size, rnn.network.width
    return runtime.Network(
        [runtime.Input("x", None), *(runtime.Input(*more) for more in rnn.network.further_inputs)],
        [
            runtime.Embedding("embedding", ["x"], draw(11, size, dtype=dtype)),
            rnn,
            runtime.Concatenate("both", ["embedding", "rnn"]),
            runtime.Dense("scores", ["both"], draw(9, size + width, dtype=dtype), draw(9, dtype=dtype), backend=backend),
            runtime.LayerNorm("normed", ["scores"], draw(9, dtype=dtype), draw(9, dtype=dtype)),
            runtime.Activation("shares", ["normed"], "softmax"),
        ],
    )


def given(network, *sides):
    """Inputs of a small one, by name."""
    classes = np.random.default_rng(1).integers(0, 11, sides)
    return {"x": classes, **further(network.layers[1].network, *sides, dtype=network.dtype)}


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("name", EVERY)
def test_steps_and_streams_have_the_bits_of_one_call(name, backend):
    network = small(name, backend)
    x = given(network, 37, 3)
    output, after = network.run(x)
    stream, state, steps = network.stream(3), None, []
    rows = [{name: array[t] for name, array in x.items()} for t in range(37)]
    assert np.array_equal([stream.step(row) for row in rows], output)
    for row in rows:
        step, state = network.step(row, state)
        steps.append(step)
    assert np.array_equal(steps, output)
    for mine, streamed in zip(after["rnn"], stream.states["rnn"].values(), strict=True):
        assert np.array_equal(mine, streamed)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_network_computes_what_torch_does(backend):
    network = small("lstm", backend)
    weights = {name: torch.tensor(array) for name, array in network.parameters.items()}
    x = np.random.default_rng(1).integers(0, 11, (13, 3))

    def theirs(dtype):
        w = {name: array.to(dtype) for name, array in weights.items()}
        lstm = torch.nn.LSTM(5, 7, 2).to(dtype)
        lstm.load_state_dict({name.removeprefix("rnn."): array for name, array in w.items() if name.startswith("rnn.")})
        embedded = w["embedding.weight"][torch.tensor(x)]
        scores = torch.cat([embedded, lstm(embedded)[0]], -1) @ w["scores.weight"].T + w["scores.bias"]
        normed = torch.nn.functional.layer_norm(scores, (9,), w["normed.weight"], w["normed.bias"])
        return normed.softmax(-1).detach().numpy()

    assert_within_budget(network.run(x)[0], theirs(torch.float32), theirs(torch.float64), "softmax of an LSTM")


@pytest.mark.parametrize("name", EVERY)
def test_modules_of_torch_become_layers(name):
    size = input_size(name, 5, 14)
    module = anyrnn.torch.Recurrent(name, size, 7, 2, bidirectional=True, zoneout=0.1, **sizes_of(name)).eval()
    inputs = [("x", size), *module.network.further_inputs]
    layer = runtime.Recurrent.of("rnn", list(dict(inputs)), module)
    network = runtime.Network([runtime.Input(*each) for each in inputs], [layer])
    x, more = draw(9, 3, size), further(module.network, 9, 3)
    with torch.no_grad():
        expected = module(torch.tensor(x), **{name: torch.tensor(array) for name, array in more.items()})[0].numpy()
        for parameter in module.parameters():
            parameter.zero_()
    found = network.run({"x": x, **more})[0]
    if module.network.plan.phase.computed:  # by NumPy's functions and by torch's, which differ in the last bits
        assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
    else:
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("make", [anyrnn.Recurrent, anyrnn.torch.Recurrent], ids=["numpy", "torch"])
def test_a_network_has_the_batch_where_its_layers_have_it(make):
    first, second = make("gru", 5, 7, batch_first=True), make("gru", 7, 7)
    x = draw(3, 9, 5)
    network = runtime.Network(5, [runtime.Recurrent.of("rnn", "x", first)])
    assert network.batch_first
    expected = first(x) if make is anyrnn.Recurrent else first(torch.tensor(x))
    assert np.array_equal(network.run(x)[0], np.asarray(expected[0].detach() if hasattr(expected[0], "detach") else expected[0]))
    assert "x [N, T, 5]" in repr(network)
    both = [runtime.Recurrent.of("a", "x", first), runtime.Recurrent.of("b", "a", second)]
    with pytest.raises(ValueError, match="some of the layers were made with batch_first and some without; say batch_first for"):
        runtime.Network(5, both)
    assert not runtime.Network(5, both, batch_first=False).batch_first


def test_parameters_are_the_networks_own():
    """Kernels, packed weights and tables are made of them, so nobody may write to them."""
    layer, weight = anyrnn.Recurrent("gru", 5, 7, seed=0), draw(11, 5)
    rnn = runtime.Recurrent("rnn", "embedding", layer.network, layer.parameters)
    network = runtime.Network(None, [runtime.Embedding("embedding", "x", weight), rnn])
    x = np.random.default_rng(1).integers(0, 11, (9, 3))
    before = network.run(x)[0]
    weight[...] = 0
    for array in layer.parameters.values():
        array[...] = 0
    assert np.array_equal(network.run(x)[0], before)
    assert np.array_equal(network.stream(3).step(x[0]), before[0])
    for array in network.parameters.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_layers_take_tensors_of_torch():
    linear, embedding = torch.nn.Linear(4, 3), torch.nn.Embedding(11, 4)
    layers = [runtime.Embedding("e", "x", embedding.weight), runtime.Dense("d", "e", linear.weight, linear.bias)]
    x = np.random.default_rng(1).integers(0, 11, (9, 3))
    expected = linear(embedding(torch.tensor(x))).detach().numpy()
    assert np.abs(runtime.Network(None, layers).run(x)[0] - expected).max() < 1e-6


@pytest.mark.parametrize("kind", [np.uint8, np.int16, list])
def test_lengths_may_be_integers_of_any_kind(kind):
    network, x = runtime.Network(4, [runtime.Last("end", "x")]), draw(5, 3, 4)
    lengths = [5, 0, 2] if kind is list else np.array([5, 0, 2], kind)
    assert np.array_equal(network.run(x, lengths=lengths)[0], [x[4, 0], np.zeros(4), x[1, 2]])


def test_networks_are_pickled_with_their_bits():
    network, x = small("lstm"), np.random.default_rng(1).integers(0, 11, (9, 3))
    expected = network.run(x)[0]
    assert np.array_equal(pickle.loads(pickle.dumps(network)).run(x)[0], expected)
    assert np.array_equal(copy.deepcopy(network).run(x)[0], expected)


def test_bits_do_not_depend_on_how_arrays_lie_in_memory():
    layers = [runtime.LayerNorm("normed", "x"), runtime.Activation("shares", "normed", "softmax")]
    network, x = runtime.Network(32, layers), draw(9, 3, 32)
    expected = network.run(x)[0]
    assert np.array_equal(network.run(np.asfortranarray(x))[0], expected)
    assert np.array_equal(network.run(np.repeat(x, 2, 1)[:, ::2])[0], expected)
    assert np.array_equal(network.step(np.asfortranarray(x[0]))[0], expected[0])
    assert np.array_equal(network.stream(3).step(np.asfortranarray(x[0])), expected[0])


def test_steps_that_are_not_there_have_no_weight_whatever_stands_there():
    weight = draw(4, 3)
    weight[0] = np.nan  # the class that steps beyond a length have
    layers = [runtime.Embedding("e", "x", weight), runtime.AttentionAverage("a", "e", draw(3, seed=1))]
    x = np.random.default_rng(1).integers(1, 4, (9, 2))
    found = runtime.Network(None, layers).run(x, lengths=[9, 4])[0]
    assert np.isfinite(found).all()
    assert np.allclose(found[1], runtime.Network(None, layers).run(x[:4, 1:])[0][0], rtol=1e-6)


@cell
def beside(x, h):
    v = vector("v", "hidden")
    h = tanh(affine("n", x, h, v, heads=2))
    return h, State(h=h)


def test_a_product_of_parameters_alone_runs_where_it_can():
    layer = anyrnn.Recurrent(beside, 6, 8, seed=0)
    exact = anyrnn.Recurrent(beside, 6, 8, seed=0, backend="reference")
    x = draw(4, 2, 6)
    assert np.abs(layer(x)[0] - exact(x)[0]).max() < 1e-6
    with pytest.raises(anyrnn.UnsupportedError, match="a product in blocks, of parameters alone, beside others"):
        anyrnn.Recurrent(beside, 6, 8, backend="llvm")


def test_classes_go_into_a_cell_whose_input_is_a_state():
    @cell
    def remembers(x, past: Vec("input"), h):
        h = tanh(affine("n", x, past, h))
        return h, State(past=x, h=h)

    layer, weight = anyrnn.Recurrent(remembers, 5, 7, seed=0), draw(11, 5)
    rnn = runtime.Recurrent("rnn", "embedding", layer.network, layer.parameters)
    network = runtime.Network(None, [runtime.Embedding("embedding", "x", weight), rnn])
    x = np.random.default_rng(1).integers(0, 11, (6, 3))
    assert np.abs(network.run(x)[0] - layer(weight[x])[0]).max() < 1e-6


def test_what_is_no_layer_of_ours_is_refused():
    for other in (torch.nn.GRU(5, 7), anyrnn.torch.GRUCell, None):
        with pytest.raises(TypeError, match=r"layer should be an anyrnn.Recurrent or a layer of anyrnn.torch, got a "):
            runtime.Recurrent.of("rnn", ["x"], other)
    with pytest.raises(TypeError, match=r"parameters should be float32 or float64, weight_ih_l0 is torch.bfloat16"):
        runtime.Recurrent.of("rnn", ["x"], anyrnn.torch.GRU(5, 7).bfloat16())


def test_calls_go_on_where_others_ended():
    network = small("gru")
    x = np.random.default_rng(1).integers(0, 11, (20, 2))
    whole, after = network.run(x)
    first, state = network.run(x[:8])
    second, state = network.run(x[8:], state)
    assert np.array_equal(np.concatenate([first, second]), whole)
    assert np.array_equal(state["rnn"].h, after["rnn"].h)


def test_nothing_beyond_a_samples_length_is_looked_at():
    network = small("lstm")
    x = np.random.default_rng(1).integers(0, 11, (9, 4))
    lengths = [9, 4, 0, 1]
    beyond = np.arange(9)[:, None] >= np.array(lengths)
    output, after = network.run(np.where(beyond, 1000, x), lengths=lengths)
    assert not output[beyond].any()
    for n, length in enumerate(lengths):
        if length:
            alone, ends = network.run(x[:length, n : n + 1])
            assert np.array_equal(output[:length, n], alone[:, 0])
            assert np.array_equal(after["rnn"].c[:, n], ends["rnn"].c[:, 0])
    assert np.array_equal(after["rnn"].c[:, 2], network.initial_state()["rnn"].c[:, 0])


def test_a_network_without_outputs_gives_its_states():
    layers, x = small("lstm").layers[:2], np.random.default_rng(1).integers(0, 11, (9, 4))
    network = runtime.Network([runtime.Input("x", None)], layers, [])
    expected = runtime.Network([runtime.Input("x", None)], layers).run(x, lengths=[9, 4, 1, 2])[1]["rnn"]
    output, after = network.run(x, lengths=[9, 4, 1, 2])
    assert output is None
    assert np.array_equal(after["rnn"].c, expected.c)
    assert network.step(x[0])[0] is None
    assert network.stream(4).step(x[0]) is None


def test_the_batch_may_come_first():
    layers = [recurrent("gru"), runtime.Last("end", ["rnn"])]
    ours, theirs = (runtime.Network(5, layers, ["rnn", "end"], batch_first=first) for first in (False, True))
    x = draw(6, 2, 5)
    a, b = ours.run(x)[0], theirs.run(x.swapaxes(0, 1))[0]
    assert np.array_equal(a["rnn"], b["rnn"].swapaxes(0, 1))
    assert np.array_equal(a["end"], b["end"])
    theirs = runtime.Network(5, layers[:1], batch_first=True)
    assert np.array_equal(theirs.step(x[0])[0], a["rnn"][0])


@cell
def timed(x, h, dt: Step(2)):
    h = tanh(affine("a", x, h) + affine("b", dt))
    return h, State(h=h)


def test_further_inputs_of_cells_come_from_further_layers():
    layer = anyrnn.Recurrent(timed, 5, 7, seed=0)
    rnn = runtime.Recurrent("rnn", ["x", "dt"], layer.network, layer.parameters)
    network = runtime.Network([runtime.Input("x", 5), runtime.Input("dt", 2)], [rnn])
    x, dt = draw(6, 3, 5), draw(6, 3, 2, seed=1)
    output, _ = network.run({"x": x, "dt": dt})
    assert np.array_equal(output, layer(x, dt=dt)[0])
    stream = network.stream(3)
    assert np.array_equal([stream.step({"x": a, "dt": b}) for a, b in zip(x, dt, strict=True)], output)


def test_further_inputs_stand_beside_looked_up_products():
    layer, weight = anyrnn.Recurrent(timed, 5, 7, seed=0), draw(11, 5)
    rnn = runtime.Recurrent.of("rnn", ["words", "dt"], layer)
    given = [runtime.Input("x", None), runtime.Input("dt", 2)]
    network = runtime.Network(given, [runtime.Embedding("words", "x", weight), rnn])
    x, dt = np.random.default_rng(1).integers(0, 11, (6, 3)), draw(6, 3, 2)
    output, _ = network.run({"x": x, "dt": dt})
    assert np.abs(output - layer(weight[x], dt=dt)[0]).max() < 1e-6
    stream = network.stream(3)
    assert np.array_equal([stream.step({"x": a, "dt": b}) for a, b in zip(x, dt, strict=True)], output)
    lengths = [6, 2, 0]
    ragged, _ = network.run({"x": x, "dt": dt}, lengths=lengths)
    assert np.array_equal(ragged[:2, 1], output[:2, 1])
    assert not ragged[2:, 1].any()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_are_those_of_torch(name):
    theirs = {
        "exp": torch.exp, "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "hard_sigmoid": torch.nn.functional.hardsigmoid, "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1), "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    }.get(name) or getattr(torch.nn.functional, name)  # fmt: skip
    x = 4 * draw(50, 3, 8)
    network = runtime.Network(8, [runtime.Activation("f", ["x"], name)])
    ours = network.run(x)[0]
    assert ours.dtype == np.float32
    assert_within_budget(ours, theirs(torch.tensor(x)).numpy(), theirs(torch.tensor(x.astype(np.float64))).numpy(), name)


@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_functions_as_equations_are_the_same(name):
    numbers = [1e-6, 1e-3, 1, 100] if name != "exp" else [1e-6, 1e-3, 1, 80]
    x = np.array([[[sign * number for number in numbers for sign in (1, -1)]]], np.float32)
    for backend in ("llvm", "reference"):
        made = [runtime.Activation("f", ["x"], name), elementwise("f", "x", x.size, ELEMENTWISE[name], backend=backend)]
        expected, found = (runtime.Network(x.size, [layer]).run(x)[0] for layer in made)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=10 * np.finfo(np.float32).tiny)  # less is zero in kernels


def test_functions_keep_what_is_beyond_numbers():
    x = np.array([[[np.nan, np.inf, -np.inf, 0.0]]], np.float32)
    with np.errstate(invalid="ignore"):
        for name in ("sigmoid", "tanh", "relu", "softplus", "hard_sigmoid"):
            found = runtime.Network(4, [runtime.Activation("f", ["x"], name)]).run(x)[0][0, 0]
            assert np.isnan(found[0]), name
            assert not np.isnan(found[1:]).any(), name


def test_an_average_weighted_with_attention():
    weight, x, lengths = draw(4, seed=2), draw(9, 3, 4), np.array([9, 5, 0])
    network = runtime.Network(4, [runtime.AttentionAverage("a", ["x"], weight, epsilon=1e-7)])
    ours = network.run(x, lengths=lengths)[0]
    assert not ours[2].any()
    for n, length in enumerate(lengths[:2]):
        e = np.exp(x[:length, n].astype(np.float64) @ weight)
        assert np.abs(ours[n] - (x[:length, n] * (e / e.sum())[:, None]).sum(0)).max() < 1e-6
    assert np.array_equal(network.run(x)[0][0], ours[0])


def test_the_last_step_of_each_sample():
    network = runtime.Network(4, [runtime.Last("end", ["x"])])
    x = draw(5, 3, 4)
    assert np.array_equal(network.run(x)[0], x[-1])
    ends = network.run(x, lengths=[5, 2, 0])[0]
    assert np.array_equal(ends, [x[4, 0], x[1, 1], np.zeros(4)])


def test_sums_and_products_of_layers():
    layers = [runtime.Add("sum", ["x", "x"]), runtime.Multiply("product", ["sum", "x"])]
    x = draw(5, 3, 4)
    assert np.array_equal(runtime.Network(4, layers).run(x)[0], (x + x) * x)


def test_both_directions_give_their_own_last_step():
    layer = anyrnn.Recurrent("gru", 5, 7, bidirectional=True, seed=0)
    rnn = runtime.Recurrent("rnn", ["x"], layer.network, layer.parameters, last=True)
    network = runtime.Network(5, [rnn, runtime.Dense("d", ["rnn"], draw(2, 14))])
    x = draw(6, 3, 5)
    ends = runtime.Network(5, [rnn]).run(x, lengths=[6, 3, 1])[0]
    assert np.array_equal(ends, layer(x, lengths=[6, 3, 1], return_outputs="last")[0])
    assert network.run(x)[0].shape == (3, 2)
    with pytest.raises(ValueError, match="rnn needs whole sequences, as it reads backwards"):
        network.stream()


@pytest.mark.parametrize(("layers", "message"), [
    ([runtime.Last("a", ["y"])], "a: its input 'y' is no input of the network and no layer before it"),
    ([runtime.Last("x", ["x"])], "two layers or inputs have the name 'x'"),
    ([runtime.Last("a", ["x"]), runtime.Last("b", ["a"])], r"b: expected a sequence, got \[N, 5\]"),
    ([runtime.Dense("a", ["x"], draw(2, 4))], r"a: expected inputs of \[4\] features, got \[T, N, 5\]"),
    ([runtime.Embedding("a", ["x"], draw(2, 4))], r"a: expected integers, got \[T, N, 5\]"),
    ([runtime.LayerNorm("a", ["x"], draw(4))], "a: expected 4 features, got 5"),
    ([runtime.Add("a", ["x", "x"]), runtime.Concatenate("b", ["a", "x"]), runtime.Add("c", ["b", "x"])], r"got \[10, 5\]"),
    ([runtime.Add("a", [])], "a: expected sequences alone or vectors alone, got "),
    ([runtime.Last("a", ["x"]), runtime.Add("b", ["a", "x"])], "b: expected sequences alone or vectors alone"),
    ([runtime.Dense("a", ["x", "x"], draw(2, 5))], r"a: expected inputs of \[5\] features, got \[T, N, 5\], \[T, N, 5\]"),
    ([runtime.AttentionAverage("a", ["x"], draw(4))], "a: expected 4 features, got 5"),
    ([recurrent("gru", size=4)], r"rnn: expected inputs of \[4\] features, got \[5\]"),
    ([runtime.Dense("a", ["x"], draw(2, 5)), runtime.Dense("b", ["x"], draw(2, 5, dtype=np.float64))], "float32, float64"),
    ([], "at least one layer"),
])  # fmt: skip
def test_networks_that_cannot_be(layers, message):
    with pytest.raises(ValueError, match=message):
        runtime.Network(5, layers)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: runtime.Dense("a", ["x"], draw(2, 4), draw(3)), r"a: expected a weight \[out, in\] and a bias \[out\], got weight"),
    (lambda: runtime.Embedding("a", ["x"], draw(3)), r"a: expected a weight \[classes, features\], got \(3,\)"),
    (lambda: runtime.Activation("a", ["x"], "cube"), "a: the function should be one of elu, .*, got 'cube'"),
    (lambda: runtime.LayerNorm("a", ["x"], draw(3, 3)), r"a: expected a weight and a bias \[features\], got \(3, 3\)"),
    (lambda: runtime.AttentionAverage("a", ["x"], draw(3, 1)), r"a: expected a weight \[features\], got \(3, 1\)"),
    (lambda: recurrent("gru", bidirectional=True, merge="separate"), "rnn: merge='separate' gives a pair"),
    (lambda: runtime.Recurrent.of("rnn", "x", anyrnn.Recurrent("gru", 5, 7, 2, bidirectional=True, merge="sum", residual=True),
                                  last=True), "rnn: return_outputs='last': the input that residual layers add"),
    (lambda: runtime.Input("x", 0), "input 'x': size must be greater than zero"),
])  # fmt: skip
def test_layers_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda n: n.run(draw(3, 2, 5)), TypeError, "x should be a NumPy array of integers, got float32"),
    (lambda n: n.run([[1]]), TypeError, "x should be a NumPy array of integers, got list"),
    (lambda n: n.run(np.zeros((3, 2, 5), int)), ValueError, r"x should have shape \[T, N\], got \(3, 2, 5\)"),
    (lambda n: n.run(np.zeros((0, 2), int)), ValueError, "the inputs have no steps"),
    (lambda n: n.run(np.full((3, 2), 11)), ValueError, "embedding: expected classes from 0 to 10, got 11 to 11"),
    (lambda n: n.run(np.full((3, 2), -1)), ValueError, "embedding: expected classes from 0 to 10, got -1 to -1"),
    (lambda n: n.run({"y": np.zeros((3, 2), int)}), ValueError, "expected the inputs x, got y"),
    (lambda n: n.run(np.zeros((3, 2), int), lengths=[1.0, 2.0]), TypeError, "lengths should be integers"),
    (lambda n: n.run(np.zeros((3, 2), int), lengths=[1]), ValueError, "one length for each of the 2 samples"),
    (lambda n: n.run(np.zeros((3, 2), int), lengths=[1, 4]), ValueError, "lengths should be from 0 to the 3 steps"),
    (lambda n: n.run(np.zeros((3, 2), int), {"gru": 1}), ValueError, "state: 'gru' is no recurrent layer; these are rnn"),
    (lambda n: n.run(np.zeros((3, 2), int), {"rnn": 1}), TypeError, "rnn: its state should be a RecurrentState, as .* gives"),
    (lambda n: n.run(np.zeros((3, 2), int), n.initial_state(3)), ValueError, r"rnn: its state h should have shape \(2, 2, 7\)"),
    (lambda n: n.run(np.zeros((3, 2), int), 1), TypeError, r"state should be {.rnn.: ..}, states by layer"),
    (lambda n: n.step(np.zeros((3, 2), int)), ValueError, r"x should have shape \[N\], got \(3, 2\)"),
    (lambda n: n.stream(2).step(np.zeros(3, int)), ValueError, r"the inputs should have 2 samples, got \[3\]: stream"),
    (lambda n: n.stream(0), ValueError, "batch_size must be greater than zero"),
])  # fmt: skip
def test_what_calls_refuse(call, error, message):
    with pytest.raises(error, match=message):
        call(small("lstm"))


def test_what_cannot_go_step_after_step_is_named():
    backwards = runtime.Network(5, [recurrent("gru", bidirectional=True)])
    for call in (backwards.stream, lambda: backwards.step(draw(2, 5))):
        with pytest.raises(ValueError, match="rnn needs whole sequences, as it reads backwards: it cannot be called step after"):
            call()
    with pytest.raises(ValueError, match="end needs whole sequences, as it looks at all steps"):
        runtime.Network(5, [recurrent("gru"), runtime.Mean("end", ["rnn"])]).stream()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("outputs", [["d"], ["d", "rnn"]])
@pytest.mark.parametrize("last", [False, True])
def test_step_after_step_the_last_one_is_the_last_so_far(last, outputs, batch_first):
    rnn = recurrent("gru")
    rnn = runtime.Recurrent("rnn", ["x"], rnn.network, rnn.arrays, last=last)
    ends = [] if last else [runtime.Last("end", ["rnn"])]
    dense = runtime.Dense("d", ["rnn" if last else "end"], draw(2, 7))
    network = runtime.Network(5, [rnn, *ends, dense], outputs, batch_first=batch_first)
    x, stream, state = draw(6, 3, 5), network.stream(3), None
    for t in range(6):
        so_far = x[: t + 1].swapaxes(0, 1) if batch_first else x[: t + 1]
        whole, by_step = network.run(so_far)[0], stream.step(x[t])
        single, state = network.step(x[t], state)
        if len(outputs) == 1:
            whole, by_step, single = {"d": whole}, {"d": by_step}, {"d": single}
        elif not last:
            whole["rnn"] = whole["rnn"][:, -1] if batch_first else whole["rnn"][-1]
        for name in outputs:
            assert np.array_equal(by_step[name], whole[name])
            assert np.array_equal(single[name], whole[name])


def test_a_network_is_written_as_its_layers():
    lines = repr(small("gru")).splitlines()
    assert lines[0] == "Network: x [T, N] -> shares"
    assert "  shares = activation, function softmax(normed)  [T, N, 9]" in lines


@pytest.mark.parametrize("lengths", [None, []])
def test_a_batch_without_samples(lengths):
    network = runtime.Network(5, [recurrent("lstm")])
    output, states = network.run(np.zeros((4, 0, 5), np.float32), lengths=lengths)
    assert output.shape == (4, 0, 7)
    assert states["rnn"].h.shape == (1, 0, 7)


def test_a_view_that_is_only_read_is_copied():
    weight = np.eye(3, dtype=np.float32)
    view = weight.view()
    view.flags.writeable = False
    network, x = runtime.Network(3, [runtime.Dense("d", ["x"], view)]), draw(2, 1, 3)
    before = network.run(x)[0]
    weight[:] = 0
    assert np.array_equal(network.run(x)[0], before)


@pytest.mark.parametrize("name", ["mingru", "minlstm"])
def test_float64_behind_an_embedding_without_other_parameters(name):
    layer = anyrnn.Recurrent(name, 8, 4, bias=False, dtype=np.float64, seed=0)
    weight, classes = draw(10, 8, dtype=np.float64), np.array([[3], [0], [9]])
    network = runtime.Network(None, [runtime.Embedding("e", ["x"], weight), runtime.Recurrent.of("r", ["e"], layer)])
    expected = layer(weight[classes])[0]
    np.testing.assert_allclose(network.run(classes)[0], expected, rtol=1e-12)
    stream = network.stream()
    np.testing.assert_allclose([stream.step(c) for c in classes], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [runtime.Add, runtime.Multiply])
def test_results_are_no_views_of_the_input(kind):
    network, x = runtime.Network(3, [kind("a", ["x"])]), draw(2, 1, 3)
    assert not np.shares_memory(network.run(x)[0], x)
    assert not np.shares_memory(network.stream(1).step(x[0]), x)


@pytest.mark.parametrize("layer", [runtime.Last("a", ["x"]), runtime.Flatten("a", ["x"], 2)], ids=["last", "flatten"])
def test_results_of_whole_sequences_are_no_views_either(layer):
    x = draw(2, 1, 3)
    assert not np.shares_memory(runtime.Network(3, [layer]).run(x)[0], x)


def test_streams_are_not_copied():
    network = runtime.Network(5, [recurrent("lstm")])
    for stream in (network.stream(), anyrnn.Recurrent("lstm", 3, 4).stream()):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied"):
                make(stream)


def test_all_steps_side_by_side(tmp_path):
    network = runtime.Network(3, [runtime.Flatten("flat", "x", 4)], batch_first=True)
    x = draw(2, 4, 3)
    network.save(tmp_path / "n.safetensors")
    for one in (network, runtime.load(tmp_path / "n.safetensors")):
        assert np.array_equal(one.run(x)[0], x.reshape(2, 12))
        with pytest.raises(ValueError, match="flat: samples should have 4 steps"):
            one.run(draw(2, 5, 3))
        with pytest.raises(ValueError, match="flat: samples should have 4 steps"):
            one.run(x, lengths=[4, 3])


@pytest.mark.parametrize("name", ["lstm", "antisymmetric_rnn", "indrnn", "lstm_heads"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "merge": "sum", "residual": True}])
def test_calls_of_any_shape_share_packed_weights(name, options):
    """Whatever calls were before, a call has the bits of a fresh network's first."""
    made = partial(recurrent, name, size=20, hidden=40, num_layers=2, **options)
    shared = runtime.Network(20, [made()])
    for steps, rows in [(1, 1), (3, 1), (9, 2), (2, 30), (1, 3), (3, 1), (1, 1), (40, 9), (9, 2)]:
        x = draw(steps, rows, 20)
        assert np.array_equal(shared.run(x)[0], runtime.Network(20, [made()]).run(x)[0]), (steps, rows)
        lengths = np.arange(rows) % (steps + 1)
        assert np.array_equal(shared.run(x, lengths=lengths)[0], runtime.Network(20, [made()]).run(x, lengths=lengths)[0])


def test_parameters_are_looked_at_once(monkeypatch):
    network, x = runtime.Network(5, [recurrent("antisymmetric_rnn")]), draw(4, 2, 5)
    output = network.run(x)[0]
    monkeypatch.setattr("anyrnn.numpy.recurrent.sources", lambda *_: pytest.fail("the parameter phase was run again"))
    assert np.array_equal(network.run(x)[0], output)
    (packed,) = network.layers[0].runner._kept._packed.values()
    packed.memory[:] = 0
    assert not np.array_equal(network.run(x)[0], output), "the weights were packed again"


def test_a_network_is_called_by_several_threads_at_once():
    network = small("lstm")
    inputs = [given(network, 5 + k, 1 + k) for k in range(8)]
    expected = [small("lstm").run(x)[0] for x in inputs]
    with ThreadPoolExecutor(4) as threads:
        for outputs in [list(threads.map(lambda x: network.run(x)[0], inputs)) for _ in range(20)]:
            assert all(map(np.array_equal, outputs, expected))


def test_all_steps_side_by_side_of_no_samples():
    assert runtime.Network(3, [runtime.Flatten("flat", "x", 4)]).run(draw(4, 0, 3))[0].shape == (0, 12)


def test_layers_may_come_one_by_one():
    layers = [runtime.Recurrent.of("rnn", "x", anyrnn.Recurrent("gru", 3, 4, batch_first=True, seed=0))]
    assert runtime.Network(3, iter(layers)).batch_first


def test_a_layer_without_parameters_in_networks_of_two_dtypes():
    shared = runtime.elementwise("f", "x", 3, anyrnn.tanh)
    networks = [
        runtime.Network(3, [shared, runtime.Dense("d", "f", draw(2, 3, dtype=dtype))]) for dtype in (np.float32, np.float64)
    ]
    for network, dtype in (*zip(networks, (np.float32, np.float64), strict=True), (networks[0], np.float32)):
        x = draw(4, 1, 3, dtype=dtype)
        assert network.run(x)[0].dtype == dtype
        assert network.stream(1).step(x[0]).dtype == dtype
