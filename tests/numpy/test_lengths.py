"""Batches whose sequences end at different steps, on NumPy arrays: each sample as if it were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import Recurrent
from tests.budget import assert_relative
from tests.counting import counting

D, H = 5, 11
LENGTHS = [3, 0, 7, 7, 1, 4]
STEPS, SAMPLES = 8, 6


NETWORKS = [
    ("rnn_tanh", 2, True),
    ("lstm", 2, True),
    ("gru_before", 1, False),
    ("lstm_layernorm", 2, False),
    (counting, 1, False),
]
networks = pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n[0] if isinstance(n[0], str) else "counting")
backends = pytest.mark.parametrize("backend", ["llvm", "reference"])
batch_firsts = pytest.mark.parametrize("batch_first", [False, True])


def make(network: Any, **options: Any) -> Recurrent:
    which, layers, bidirectional = network
    return Recurrent(which, D, H, layers, bidirectional=bidirectional, dtype="float64", seed=1, **options)


class Numbers:
    """Inputs, first states and cotangents of a layer."""

    def __init__(self, layer: Recurrent) -> None:
        self.random, self.layer, net = np.random.default_rng(3), layer, layer.network
        self.x = self.draw(STEPS, SAMPLES, D)
        self.more = {name: self.draw(STEPS, SAMPLES, size) for name, size in net.further_inputs}
        self.first, self.d_last = ([self.draw(len(net.units), SAMPLES, n) for n in net.state_sizes] for _ in range(2))
        self.d_y = self.draw(STEPS, SAMPLES, net.directions * net.output_size)

    def draw(self, *shape: int) -> Any:
        return self.random.standard_normal(shape)

    def given(self, array: Any) -> Any:
        """In the layer's layout."""
        return array.swapaxes(0, 1) if self.layer.batch_first else array

    def alone(self, n: int, d_rows: Any) -> tuple[Any, list[Any], Any, list[Any], Any]:
        """Output, last states and gradients (of the inputs, the first states, the parameters) of one sample."""
        length, own = LENGTHS[n], slice(n, n + 1)
        first, d_last = ([s[:, own] for s in some] for some in (self.first, self.d_last))
        if not length:
            zeros = {name: np.zeros_like(p) for name, p in self.layer.parameters.items()}
            return np.zeros((0, self.d_y.shape[-1])), first, [np.zeros((0, a.shape[-1])) for a in self.inputs], d_last, zeros
        x, *further = (self.given(a[:length, own]) for a in self.inputs)
        y, last, reserve = self.layer.forward_training(x, first, **dict(zip(self.more, further, strict=True)))
        d_x, d_first, gradients = self.layer.backward(reserve, self.given(d_rows), d_last)
        d_inputs = [self.given(d)[:, 0] for d in (d_x if isinstance(d_x, tuple) else (d_x,))]
        return self.given(y)[:, 0], listed(last), d_inputs, listed(d_first), gradients

    @property
    def inputs(self) -> list[Any]:
        return [self.x, *self.more.values()]


def listed(states: Any) -> list[Any]:
    return list(states) if isinstance(states, tuple) else [states]


def check(found: Any, expected: Any, what: str) -> None:
    assert_relative(found, expected, "llvm float64 against the reference backend", what)


@backends
@batch_firsts
@pytest.mark.parametrize("padding", [0.0, -2.5, "last"])
@networks
def test_each_sample_is_as_if_it_were_alone(network: Any, padding: Any, batch_first: bool, backend: str) -> None:
    layer = make(network, batch_first=batch_first, backend=backend)
    n = Numbers(layer)
    steps = {name: n.given(a) for name, a in n.more.items()}
    options = {"lengths": LENGTHS, "padding": padding, **steps}
    output, last, reserve = layer.forward_training(n.given(n.x), n.first, **options)
    inferred, inferred_last = layer(n.given(n.x), n.first, **options)
    assert np.array_equal(inferred, output)
    assert all(np.array_equal(a, b) for a, b in zip(listed(inferred_last), listed(last), strict=True))
    d_x, d_first, gradients = layer.backward(reserve, n.given(n.d_y), n.d_last)
    total = {name: np.zeros_like(p) for name, p in layer.parameters.items()}
    for k, length in enumerate(LENGTHS):
        d_rows = n.d_y[:length, k : k + 1].copy()
        if padding == "last" and length:
            d_rows[-1, 0] += n.d_y[length:, k].sum(0)
        y, ends, d_inputs, d_begins, some = n.alone(k, d_rows)
        mine = n.given(output)[:, k]
        check(mine[:length], y, f"output {k}")
        if padding == "last":
            assert np.array_equal(mine[length:], np.broadcast_to(mine[length - 1] if length else 0.0, mine[length:].shape))
        else:
            assert (mine[length:] == padding).all()
        for d, expected in zip([n.given(a) for a in (d_x if isinstance(d_x, tuple) else (d_x,))], d_inputs, strict=True):
            check(d[:length, k], expected, f"d_inputs {k}")
            assert not d[length:, k].any()
        for found, alone in (*zip(listed(last), ends, strict=True), *zip(listed(d_first), d_begins, strict=True)):
            check(found[:, k : k + 1], alone, f"states {k}")
        for name, value in some.items():
            total[name] += value
    for name, value in total.items():
        check(gradients[name], value, name)


@backends
def test_a_backward_call_in_two_parts(backend: str) -> None:
    layer = make(("lstm", 2, True), backend=backend)
    n = Numbers(layer)
    _, _, reserve = layer.forward_training(n.x, n.first, lengths=LENGTHS)
    d_x, d_first, gradients = layer.backward(reserve, n.d_y, n.d_last)
    d_x_again, d_first_again, work = layer.backward_data(reserve, n.d_y, n.d_last)
    again = layer.backward_weights(work)
    pairs = [(d_x, d_x_again), *zip(d_first, d_first_again, strict=True), *((gradients[k], again[k]) for k in gradients)]
    assert all(np.array_equal(a, b) for a, b in pairs)


@backends
@networks
def test_the_cotangent_of_the_last_output_alone(network: Any, backend: str) -> None:
    layer = make(network, backend=backend)
    n = Numbers(layer)
    _, _, reserve = layer.forward_training(n.x, n.first, lengths=LENGTHS, **n.more)
    whole = np.zeros_like(n.d_y)
    for k, length in enumerate(LENGTHS):
        if length:
            whole[length - 1, k] = n.d_y[0, k]
    expected = layer.backward(reserve, whole)
    found = layer.backward(reserve, d_last_output=n.d_y[0])
    for name, value in expected[2].items():
        assert np.array_equal(found[2][name], value)


@backends
@networks
def test_rows_one_after_the_other(network: Any, backend: str) -> None:
    layer = make(network, backend=backend)
    n = Numbers(layer)

    def joined(array: Any) -> Any:
        return np.concatenate([array[:length, k] for k, length in enumerate(LENGTHS)])

    offsets = np.cumsum([0, *LENGTHS])
    rows = {name: joined(a) for name, a in n.more.items()}
    output, last, reserve = layer.forward_training(joined(n.x), n.first, cu_seqlens=offsets, **rows)
    expected, expected_last, whole = layer.forward_training(n.x, n.first, lengths=LENGTHS, **n.more)
    assert np.array_equal(output, joined(expected))
    assert all(np.array_equal(a, b) for a, b in zip(listed(last), listed(expected_last), strict=True))
    d_x, d_first, gradients = layer.backward(reserve, joined(n.d_y), n.d_last)
    d_whole, d_first_whole, gradients_whole = layer.backward(whole, n.d_y, n.d_last)
    for d, d_expected in zip(listed(d_x), listed(d_whole), strict=True):
        assert np.array_equal(d, joined(d_expected))
    assert all(np.array_equal(a, b) for a, b in zip(listed(d_first), listed(d_first_whole), strict=True))
    assert all(np.array_equal(gradients[name], value) for name, value in gradients_whole.items())


@backends
def test_what_is_beyond_the_lengths_is_never_read(backend: str) -> None:
    layer = make(("lstm", 2, True), backend=backend)
    n = Numbers(layer)
    results = []
    for poison in (0.0, np.nan):
        x, d_y = n.x.copy(), n.d_y.copy()
        for k, length in enumerate(LENGTHS):
            x[length:, k] = d_y[length:, k] = poison
        output, last, reserve = layer.forward_training(x, n.first, lengths=LENGTHS)
        d_x, d_first, gradients = layer.backward(reserve, d_y)
        results.append([output, *last, d_x, *d_first, *gradients.values()])
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@backends
def test_a_batch_without_steps(backend: str) -> None:
    layer = make((counting, 1, False), backend=backend)
    n = Numbers(layer)
    nothing = [0] * SAMPLES
    output, last, reserve = layer.forward_training(n.x, n.first, lengths=nothing, padding=1.5, **n.more)
    assert (output == 1.5).all()
    assert all(np.array_equal(a, b) for a, b in zip(last, n.first, strict=True))
    (d_x, d_dt), d_first, gradients = layer.backward(reserve, n.d_y, n.d_last)
    assert all(np.array_equal(a, b) for a, b in zip(d_first, n.d_last, strict=True))
    assert not any(d.any() for d in (d_x, d_dt, *gradients.values()))
    assert not any(d.any() for d in layer.backward_weights(layer.backward_data(reserve, n.d_y)[2]).values())
    h, seen, m = layer(n.x, lengths=nothing, **n.more)[1]
    assert (h == 0).all()
    assert (seen == 1).all()
    assert (m == 0.5).all()


@pytest.mark.parametrize("padding", [0.0, 1.5, "last"])
@pytest.mark.parametrize("form", ["mask", "reset", "all", "joined"])
@backends
@networks
def test_masks_and_resets_are_those_of_torch(network: Any, backend: str, form: str, padding: Any) -> None:
    layer = make(network, backend=backend, batch_first=form == "all")
    theirs = anyrnn.torch.Recurrent(
        network[0], D, H, network[1], bidirectional=network[2], batch_first=form == "all", backend="llvm", dtype=torch.float64
    )
    theirs.load_state_dict({name: torch.from_numpy(p) for name, p in layer.parameters.items()})
    n = Numbers(layer)
    inputs, d_y = [n.given(a) for a in n.inputs], n.given(n.d_y)
    mask, reset = (n.given(n.random.random((STEPS, SAMPLES)) < p) for p in (0.7, 0.3))
    if form == "joined":
        rows = [np.concatenate([a[:length, k] for k, length in enumerate(LENGTHS)]) for a in (mask, reset, d_y, *inputs)]
        mask, reset, d_y, *inputs = rows
    options: dict[str, Any] = {"mask": mask, "padding": padding} if form != "reset" else {}
    options |= {"reset": reset} if form != "mask" else {}
    options |= {"lengths": LENGTHS} if form == "all" else {}
    options |= {"cu_seqlens": np.cumsum([0, *LENGTHS])} if form == "joined" else {}
    x, *more = inputs
    output, last, reserve = layer.forward_training(x, n.first, **options, **dict(zip(n.more, more, strict=True)))
    d_inputs, d_first, gradients = layer.backward(reserve, d_y, n.d_last)
    leaves = [torch.tensor(a, requires_grad=True) for a in (*inputs, *n.first)]
    t_x, *t_more = leaves[: len(inputs)]
    begin = tuple(leaves[len(inputs) :]) if len(n.first) > 1 else leaves[-1]
    t_output, t_last = theirs(t_x, begin, **options, **dict(zip(n.more, t_more, strict=True)))
    results = [t_output, *listed(t_last)]
    cotangents = [torch.from_numpy(np.ascontiguousarray(a)) for a in (d_y, *n.d_last)]
    expected = torch.autograd.grad(results, [*leaves, *theirs.parameters()], cotangents)
    found = [output, *listed(last), *listed(d_inputs), *listed(d_first), *gradients.values()]
    for k, (mine, other) in enumerate(zip(found, [*results, *expected], strict=True)):
        check(mine, other.detach().numpy(), f"result {k}")


@backends
@pytest.mark.parametrize("batch_first", [False, True])
def test_steps_of_one_value_are_masked(backend: str, batch_first: bool) -> None:
    layer = make(("gru", 1, False), backend=backend, batch_first=batch_first)
    n = Numbers(layer)
    x, mask = n.given(n.x), n.given(n.random.random((STEPS, SAMPLES)) < 0.7)
    x[~mask] = -1.0
    assert np.array_equal(layer(x, mask_value=-1)[0], layer(x, mask=mask)[0])


@pytest.mark.parametrize("padding", [2, np.float32(2), np.int64(2)])
def test_padding_by_any_number(padding: Any) -> None:
    layer = make(("gru", 1, False))
    assert (layer(Numbers(layer).x, lengths=LENGTHS, padding=padding)[0][:, 1] == 2).all()


def test_a_value_is_compared_in_the_layers_dtype() -> None:
    layer = Recurrent("gru", D, H, seed=0)
    x = np.random.default_rng(0).standard_normal((4, 1, D), np.float32)
    x[2:] = 0.1
    assert not layer(x, mask_value=np.float64(0.1))[0][2:].any()


@backends
def test_no_rows_at_all(backend: str) -> None:
    layer = make(("lstm", 1, False), backend=backend)
    first = [np.ones((1, 2, H))] * 2
    output, last = layer(np.zeros((0, D)), first, cu_seqlens=[0, 0, 0])
    assert output.shape == (0, H)
    assert all((s == 1).all() for s in last)


def test_an_output_that_the_caller_gives() -> None:
    layer = make(("gru", 1, False))
    n = Numbers(layer)
    out = np.full((STEPS, SAMPLES, H), np.nan)
    assert layer(n.x, out=out, lengths=LENGTHS)[0] is out
    assert np.array_equal(out, layer(n.x, lengths=LENGTHS)[0])


def test_one_sequence_without_a_batch() -> None:
    layer = make(("lstm", 1, False))
    x = Numbers(layer).x[:, 0]
    output, last = layer(x, lengths=[5])
    expected, expected_last = layer(x[:5])
    assert np.array_equal(output[:5], expected)
    assert not output[5:].any()
    assert all(np.array_equal(a, b) for a, b in zip(last, expected_last, strict=True))


@backends
def test_each_sample_drops_what_it_drops_in_a_whole_batch(backend: str) -> None:
    layer = make(("rnn_relu", 2, False), dropout=0.5, backend=backend)
    x = Numbers(layer).x
    whole = layer.forward_training(x, seed=9)[0]
    found = layer.forward_training(x, lengths=LENGTHS, seed=9)[0]
    for k, length in enumerate(LENGTHS):
        check(found[:length, k], whole[:length, k], f"sample {k}")


def test_memory_of_the_caller() -> None:
    layer = make(("lstm", 2, True))
    n = Numbers(layer)
    memory = np.empty(layer.reserve_size(STEPS, SAMPLES) + 64, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :]
    _, _, reserve = layer.forward_training(n.x, lengths=LENGTHS, memory=memory)
    assert reserve.memory is memory
    _, _, other = layer.forward_training(n.x, lengths=LENGTHS)
    assert np.array_equal(layer.backward(reserve, n.d_y)[0], layer.backward(other, n.d_y)[0])


def raises(kind: type[Exception], words: str, x: Any, **options: Any) -> None:
    with pytest.raises(kind, match=words):
        make(("gru", 1, False))(x, **options)


def test_what_cannot_be_asked_for() -> None:
    x, rows = np.zeros((4, 3, D)), np.zeros((7, D))
    raises(ValueError, r"^lengths should have one length for each of the 3 samples, got 2$", x, lengths=[1, 2])
    raises(ValueError, r"^lengths should be from 0 to the 4 steps of the input, got 5$", x, lengths=[1, 5, 2])
    raises(TypeError, r"^lengths should be integers: 'float' object cannot be", x, lengths=[1, 5.0, 2])
    raises(TypeError, r"^padding should be a number or 'last', got None$", x, lengths=[1, 2, 3], padding=None)
    raises(ValueError, r"^padding=1.0 is for outputs where there is no step", x, padding=1.0)
    raises(ValueError, r"^give lengths or cu_seqlens, not both$", x, lengths=[1, 2, 3], cu_seqlens=[0, 7])
    raises(ValueError, r"^with cu_seqlens, x should be 2-D \[rows, 5\], got 3-D$", x, cu_seqlens=[0, 7])
    raises(ValueError, r"^cu_seqlens should go from 0 to the 7 rows of the input, got from 0 to 6$", rows, cu_seqlens=[0, 6])
    raises(ValueError, r"^state h should have shape \(1, 2, 11\)", rows, cu_seqlens=[0, 3, 7], state=np.zeros((1, 3, H)))


def test_cotangents_that_do_not_fit() -> None:
    layer = make(("gru", 1, False))
    n = Numbers(layer)
    _, _, reserve = layer.forward_training(n.x, lengths=LENGTHS)
    with pytest.raises(ValueError, match=r"^d_output should have the output's shape"):
        layer.backward(reserve, n.d_y[:7])
    with pytest.raises(ValueError, match=r"^d_last_output should be float64 \(6, 11\)"):
        layer.backward(reserve, d_last_output=n.d_y[0, :5])
    with pytest.raises(ValueError, match=r"^d_state h should have shape \(1, 6, 11\)"):
        layer.backward(reserve, None, np.zeros((1, 5, H)))


def test_padding_beside_rows_that_say_where_samples_begin():
    layer = anyrnn.Recurrent("gru", 3, 4, seed=0)
    module = anyrnn.torch.GRU(3, 4)
    rows = np.ones((3, 3), np.float32)
    for output in (
        layer(rows, cu_seqlens=[0, 0, 3], return_outputs="last", padding=-1.0)[0],
        module(torch.from_numpy(rows), cu_seqlens=[0, 0, 3], return_outputs="last", padding=-1.0)[0].detach().numpy(),
    ):
        assert (output[0] == -1).all()
        assert (output[1] != -1).any()
