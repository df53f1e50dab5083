"""Batches whose sequences end at different steps, through torch: PackedSequence against torch.nn; lengths and offsets against
each sample alone.
"""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import anyrnn.torch
from anyrnn.backends.llvm import split
from anyrnn.torch import Recurrent, calls
from tests.budget import assert_relative
from tests.counting import counting
from tests.torch.layers import KINDS, pair, products_of_bfloat16, state_for, tensors_of

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

D, H = 5, 11
LENGTHS = [3, 0, 7, 7, 1, 4]
STEPS = 8


CELLS = ["rnn_tanh", "lstm", "gru_before", "lstm_layernorm", counting]
cells = pytest.mark.parametrize("which", CELLS, ids=lambda c: c if isinstance(c, str) else "counting")
backends = pytest.mark.parametrize("backend", ["llvm", "reference"])
batch_firsts = pytest.mark.parametrize("batch_first", [False, True])


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def make(which: Any, *arguments: Any, backend: str = "llvm", dtype: torch.dtype = torch.float64, **options: Any) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(which, D, H, *arguments, backend=backend, dtype=dtype, **options)


def states(layer: Recurrent, samples: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    return tuple(draw(len(layer.network.units), samples, size, dtype=dtype) for size in layer.network.state_sizes)


def further(layer: Recurrent, *sides: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    return {name: draw(*sides, size, dtype=dtype) for name, size in layer.network.further_inputs}


def as_given(some: tuple[Tensor, ...]) -> Any:
    return some[0] if len(some) == 1 else some


# PackedSequence against torch.nn


@backends
@pytest.mark.parametrize("sorted_first", [False, True], ids=["unsorted", "sorted"])
@pytest.mark.parametrize("stack", [(1, False), (2, True)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@batch_firsts
def test_packed_sequences_equal_torch(
    kind: str, stack: tuple[int, bool], sorted_first: bool, batch_first: bool, backend: str
) -> None:
    options = {"bidirectional": stack[1], "batch_first": batch_first, "dtype": torch.float64}
    _, theirs = pair(kind, D, H, stack[0], **options)
    ours = KINDS[kind][0](D, H, stack[0], **options, backend=backend)
    ours.load_state_dict(theirs.state_dict())
    lengths = [9, 5, 5, 2, 1] if sorted_first else [2, 9, 1, 5, 5]
    x = draw(5, 9, D) if batch_first else draw(9, 5, D)
    first = state_for(theirs, 5, torch.float64, torch.Generator().manual_seed(1))
    results = []
    for layer in (theirs, ours):
        leaves = [t.clone().requires_grad_() for t in (x, *tensors_of(first))]
        packed = pack_padded_sequence(leaves[0], lengths, batch_first, enforce_sorted=sorted_first)
        output, last = layer(packed, as_given(tuple(leaves[1:])))
        found = [output.data, *tensors_of(last)]
        loss = sum(torch.cos(f + k).sum() for k, f in enumerate(found))
        results.append([*found, *torch.autograd.grad(loss, [*leaves, *layer.parameters()])])
        assert output.batch_sizes.equal(packed.batch_sizes)
        for index in ("sorted_indices", "unsorted_indices"):
            assert getattr(output, index) is getattr(packed, index)
    for k, (expected, found) in enumerate(zip(*results, strict=True)):
        assert_relative(found, expected, "float64 against torch.nn", f"result {k}")


def test_a_packed_sequence_without_a_first_state() -> None:
    ours, theirs = pair("lstm", D, H, dtype=torch.float64)
    packed = pack_padded_sequence(draw(4, 3, D), [1, 4, 2], enforce_sorted=False)
    for found, expected in zip(tensors_of(ours(packed)[1]), tensors_of(theirs(packed)[1]), strict=True):
        assert_relative(found, expected, "float64 against torch.nn", "last state")


def test_samples_of_equal_lengths_in_any_order() -> None:
    ours, theirs = pair("gru", D, H, dtype=torch.float64)
    order = torch.tensor([2, 1, 0])
    packed = PackedSequence(draw(7, D), torch.tensor([3, 3, 1]), order, order.argsort())
    first = draw(1, 3, H)
    for found, expected in zip(ours(packed, first), theirs(packed, first), strict=True):
        values = (t.data if isinstance(t, PackedSequence) else t for t in (found, expected))
        assert_relative(*values, "float64 against torch.nn", "output or last state")


# lengths against each sample alone


@pytest.mark.parametrize(
    ("which", "layers", "bidirectional"),
    [(counting, 1, False), *((c, layers, two) for c in CELLS[:-1] for layers in (1, 2) for two in (False, True))],
    ids=str,
)
def test_the_bits_of_each_sample_alone(which: Any, layers: int, bidirectional: bool) -> None:
    layer = make(which, layers, bidirectional=bidirectional, dtype=torch.float32)
    x, first = draw(STEPS, 6, D, dtype=torch.float32), states(layer, 6, torch.float32)
    more = further(layer, STEPS, 6, dtype=torch.float32)
    with torch.no_grad():
        output, last = layer(x, as_given(first), lengths=LENGTHS, **more)
        for n, length in enumerate(LENGTHS):
            assert not output[length:, n].any()
            own = [s[:, n : n + 1] for s in first]
            if length:
                expected, own = layer(
                    x[:length, n : n + 1], as_given(tuple(own)), **{k: v[:length, n : n + 1] for k, v in more.items()}
                )
                assert output[:length, n : n + 1].equal(expected)
            for found, alone in zip(tensors_of(last), tensors_of(as_given(tuple(own)) if not length else own), strict=True):
                assert found[:, n : n + 1].equal(alone)


@backends
@batch_firsts
@pytest.mark.parametrize("padding", [0.0, -2.5, "last"])
@cells
def test_gradients_are_the_sum_of_each_sample_alone(which: Any, padding: Any, batch_first: bool, backend: str) -> None:
    layers = 1 if which is counting else 2
    layer = make(which, layers, bidirectional=layers > 1, batch_first=batch_first, backend=backend)
    sides = (6, STEPS) if batch_first else (STEPS, 6)
    x, first, more = draw(*sides, D), states(layer, 6), further(layer, *sides)

    def cut(tensor: Tensor, n: int, length: int) -> Tensor:
        return tensor[n : n + 1, :length] if batch_first else tensor[:length, n : n + 1]

    def of_batch(x: Tensor, first: Any, more: Any) -> list[Tensor]:
        output, last = layer(x, as_given(first), lengths=torch.tensor(LENGTHS), padding=padding, **more)
        return [output, *tensors_of(last)]

    def of_each(x: Tensor, first: Any, more: Any) -> list[Tensor]:
        outputs, lasts = [], []
        for n, length in enumerate(LENGTHS):
            own = tuple(s[:, n : n + 1] for s in first)
            output = x.new_zeros(1, H * (2 if layers > 1 else 1))
            if length:
                y, last = layer(cut(x, n, length), as_given(own), **{k: cut(v, n, length) for k, v in more.items()})
                output, own = (y[0] if batch_first else y[:, 0]), tuple(tensors_of(last))
            beyond = output[-1] if padding == "last" else torch.full_like(output[-1], padding)
            outputs.append(torch.cat([output[:length], beyond.expand(STEPS - length, -1)]))
            lasts.append(own)
        return [torch.stack(outputs, 0 if batch_first else 1), *(torch.cat(some, 1) for some in zip(*lasts, strict=True))]

    results = []
    for run in (of_batch, of_each):
        leaves = [t.clone().requires_grad_() for t in (x, *first, *more.values())]
        own = dict(zip(more, leaves[1 + len(first) :], strict=True))
        found = run(leaves[0], tuple(leaves[1 : 1 + len(first)]), own)
        loss = sum(torch.cos(f + k).sum() for k, f in enumerate(found))
        results.append([*found, *torch.autograd.grad(loss, [*leaves, *layer.parameters()])])
    for k, (found, expected) in enumerate(zip(*results, strict=True)):
        assert_relative(found, expected, "llvm float64 against the reference backend", f"result {k}")


@backends
def test_what_is_beyond_the_lengths_is_never_read(backend: str) -> None:
    layer = make("lstm", 2, bidirectional=True, backend=backend, dtype=torch.float32)
    clean = draw(STEPS, 6, D, dtype=torch.float32)
    poisoned = clean.clone()
    for n, length in enumerate(LENGTHS):
        poisoned[length:, n] = torch.nan
    results = []
    for x in (clean.requires_grad_(), poisoned.requires_grad_()):
        output, last = layer(x, lengths=LENGTHS)
        loss = output.square().sum() + sum(s.sum() for s in last)
        results.append([output, *last, *torch.autograd.grad(loss, [x, *layer.parameters()])])
    assert all(a.equal(b) for a, b in zip(*results, strict=True))
    d_x = results[0][3]
    assert all(not d_x[length:, n].any() for n, length in enumerate(LENGTHS))


@backends
@pytest.mark.parametrize("padding", [0.0, 1.5, "last"])
def test_a_batch_without_steps(padding: Any, backend: str) -> None:
    layer = make("lstm", 2, backend=backend)
    x, first = draw(STEPS, 3, D).requires_grad_(), tuple(s.requires_grad_() for s in states(layer, 3))
    output, last = layer(x, first, lengths=[0, 0, 0], padding=padding)
    assert output.eq(0.0 if padding == "last" else padding).all()
    assert all(a.equal(b) for a, b in zip(last, first, strict=True))
    d_x, d_h, d_c, *rest = torch.autograd.grad(output.sum() + sum(s.sum() for s in last), [x, *first, *layer.parameters()])
    assert d_h.eq(1).all()
    assert d_c.eq(1).all()
    assert not any(d.any() for d in (d_x, *rest))
    own = layer(x, lengths=[0, 0, 0])[1]
    assert not any(s.any() for s in own)


def test_samples_without_steps_keep_the_cells_own_first_values() -> None:
    layer = make(counting)
    _, (h, seen, m) = layer(draw(4, 3, D), lengths=[0, 4, 0], dt=draw(4, 3, 2))
    for state, value in ((h, 0.0), (seen, 1.0), (m, 0.5)):
        assert state[:, [0, 2]].eq(value).all()
        assert not state[:, 1].eq(value).any()


def test_full_lengths_are_a_plain_call() -> None:
    layer = make("gru", 2, dtype=torch.float32)
    x = draw(4, 3, D, dtype=torch.float32)
    assert layer(x, lengths=[4, 4, 4])[0].equal(layer(x)[0])


def test_one_sequence_without_a_batch() -> None:
    layer = make("lstm")
    x, first = draw(6, D), tuple(s[:, 0] for s in states(layer, 1))
    output, last = layer(x, first, lengths=[4], padding="last")
    expected, expected_last = layer(x[:4], first)
    assert output[:4].equal(expected)
    assert output[4:].equal(expected[3:].expand(2, -1))
    assert all(a.equal(b) for a, b in zip(last, expected_last, strict=True))


@pytest.mark.parametrize("kind", ["list", "tuple", "int32 tensor", "int64 array", "uint8 array"])
def test_lengths_of_any_kind(kind: str) -> None:
    layer, x = make("gru"), draw(STEPS, 6, D)
    tensor = torch.tensor(LENGTHS)
    given = {
        "list": LENGTHS,
        "tuple": tuple(LENGTHS),
        "int32 tensor": tensor.int(),
        "int64 array": tensor.numpy(),
        "uint8 array": tensor.numpy().astype("uint8"),
    }
    assert layer(x, lengths=given[kind])[0].equal(layer(x, lengths=tensor)[0])


@backends
@cells
def test_rows_one_after_the_other(which: Any, backend: str) -> None:
    layer = make(which, backend=backend)
    x, first, more = draw(STEPS, 6, D), states(layer, 6), further(layer, STEPS, 6)

    def joined(tensor: Tensor) -> Tensor:
        return torch.cat([tensor[:length, n] for n, length in enumerate(LENGTHS)])

    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    rows = {name: joined(v) for name, v in more.items()}
    output, last = layer(joined(x), as_given(first), cu_seqlens=offsets, **rows)
    expected, expected_last = layer(x, as_given(first), lengths=LENGTHS, **more)
    assert output.equal(joined(expected))
    assert all(a.equal(b) for a, b in zip(tensors_of(last), tensors_of(expected_last), strict=True))


def test_further_inputs_are_packed_like_the_input() -> None:
    layer, lengths = make(counting), [2, 4, 1]
    x, dt = draw(4, 3, D), draw(4, 3, 2)
    packed, times = (pack_padded_sequence(t, lengths, enforce_sorted=False) for t in (x, dt))
    expected = pack_padded_sequence(layer(x, lengths=lengths, dt=dt)[0], lengths, enforce_sorted=False)
    assert layer(packed, dt=times)[0].data.equal(expected.data)
    with pytest.raises(TypeError, match=r"^Recurrent: dt should be a PackedSequence as the input is, got Tensor$"):
        layer(packed, dt=dt)
    with pytest.raises(ValueError, match=r"^Recurrent: dt should have the batch_sizes and sorted_indices of the input$"):
        layer(packed, dt=pack_padded_sequence(dt, [4, 2, 1]))


@pytest.mark.parametrize("form", ["lengths", "packed", "offsets"])
@backends
def test_each_sample_drops_what_it_drops_in_a_whole_batch(backend: str, form: str) -> None:
    """Random choices go by the caller's samples and steps, whatever the order of the rows."""
    layer = make("rnn_relu", 2, dropout=0.5, backend=backend)
    x = draw(STEPS, 6, D)
    lengths = [max(1, length) for length in LENGTHS]
    torch.manual_seed(3)
    whole = layer(x)[0]
    torch.manual_seed(3)
    if form == "lengths":
        found = layer(x, lengths=lengths)[0]
    elif form == "packed":
        output = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))[0]
        found = torch.nn.utils.rnn.pad_packed_sequence(output, total_length=STEPS)[0]
    else:
        joined = torch.cat([x[:length, n] for n, length in enumerate(lengths)])
        rows = layer(joined, cu_seqlens=torch.tensor([0, *lengths]).cumsum(0))[0]
        found = torch.nn.utils.rnn.pad_sequence(list(rows.split(lengths)))
    for n, length in enumerate(lengths):
        assert_relative(found[:length, n], whole[:length, n], "llvm float64 against the reference backend", f"sample {n}")


@pytest.mark.parametrize("form", ["lengths", "mask and reset"])
def test_dropped_features_have_the_right_gradients(form: str) -> None:
    options = {"lengths": LENGTHS} if form == "lengths" else {"mask": some_mask(STEPS, 6), "reset": some_resets(STEPS, 6)}
    native, reference = (make("lstm", 3, dropout=0.4, bidirectional=True, backend=b) for b in ("llvm", "reference"))
    x, results = draw(STEPS, 6, D), []
    for layer in (native, reference):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(5)
        output, _ = layer(leaf, **options)
        results.append([output, *torch.autograd.grad(output.cos().sum(), [leaf, *layer.parameters()])])
    for k, (found, expected) in enumerate(zip(*results, strict=True)):
        assert_relative(found, expected, "llvm float64 against the reference backend", f"result {k}")


# masks and resets, against each segment alone


def some_mask(*sides: int) -> Tensor:
    """Three of four steps are there; one sample has none, one all."""
    mask = torch.rand(sides) < 0.75
    mask[:, 1], mask[:, 2] = False, True
    return mask


def some_resets(*sides: int) -> Tensor:
    """Also before the first step, at steps that are not there, where nothing follows, and of a sample without steps."""
    resets = torch.rand(sides) < 0.25
    resets[0, 2], resets[-1, 3], resets[-1, 1] = True, True, True
    return resets


def by_segments(
    layer: Recurrent, x: Tensor, first: Any, more: dict[str, Tensor], there: Tensor, resets: Tensor, padding: Any
) -> list[Tensor]:
    """Every segment of every sample alone: its steps cut out, its first state given or the cell's own. A reset at a step that is
    not there is for the next one. [T, N]
    """
    net = layer.network
    own = [torch.full_like(s[:, :1], spec.init) for s, spec in zip(first, net.graph.states, strict=True)]
    directions = [direction for _, direction in net.units]
    outputs, lasts = [], []
    for n in range(x.shape[1]):
        kept = there[:, n].nonzero()[:, 0].tolist()
        resets_before = resets[:, n].cumsum(0)[kept].tolist()
        parts = [[t for t, k in zip(kept, resets_before, strict=True) if k == part] for part in dict.fromkeys(resets_before)]
        given = [s[:, n : n + 1] for s in first]
        beyond = torch.full((1, net.directions * net.output_size), 0.0 if padding == "last" else padding, dtype=x.dtype)
        output, ends = [beyond] * len(x), []
        for number, steps in enumerate(parts):
            is_end = (number == 0 and resets_before[0] == 0, number == len(parts) - 1)
            enters = torch.tensor([is_end[direction] for direction in directions])[:, None, None]
            state = [torch.where(enters, a, b) for a, b in zip(given, own, strict=True)]
            cut = {name: v[steps, n : n + 1] for name, v in more.items()}
            y, last = layer(x[steps, n : n + 1], as_given(tuple(state)), **cut)
            ends.append(tensors_of(last))
            for k, t in enumerate(steps):
                output[t : len(x) if padding == "last" else t + 1] = [y[k]] * (len(x) - t if padding == "last" else 1)
        final = [(ends or [given])[0 if direction else -1] for direction in directions]
        outputs.append(torch.stack(output))
        lasts.append([torch.stack([state[k][u] for u, state in enumerate(final)]) for k in range(len(first))])
    return [torch.cat(outputs, 1), *(torch.cat(some, 1) for some in zip(*lasts, strict=True))]


@pytest.mark.parametrize("padding", [0.0, 1.5, "last"])
@pytest.mark.parametrize("form", ["mask", "reset", "both", "all", "joined"])
@backends
@pytest.mark.parametrize("network", [("lstm", 2, True), ("gru_before", 1, False), (counting, 1, False)], ids=str)
def test_segments_are_as_if_they_were_alone(network: Any, backend: str, form: str, padding: Any) -> None:
    which, layers, bidirectional = network
    batch_first = form == "both"
    layer = make(which, layers, bidirectional=bidirectional, backend=backend, batch_first=batch_first)
    plain = make(which, layers, bidirectional=bidirectional, backend="reference")
    plain.load_state_dict(layer.state_dict())
    lengths = torch.tensor([8, 5, 8, 0, 3, 8]) if form in ("all", "joined") else torch.full((6,), STEPS)
    within = torch.arange(STEPS)[:, None] < lengths
    nothing = torch.zeros(STEPS, 6, dtype=torch.bool)
    mask = some_mask(STEPS, 6) if form != "reset" else ~nothing
    resets = some_resets(STEPS, 6) if form != "mask" else nothing
    x, first, more = draw(STEPS, 6, D), states(layer, 6), further(layer, STEPS, 6)

    def turned(tensor: Tensor) -> Tensor:
        return tensor.transpose(0, 1) if batch_first else tensor

    def joined(tensor: Tensor) -> Tensor:
        return torch.cat([tensor[:length, n] for n, length in enumerate(lengths.tolist())])

    def together(x: Tensor, first: Any, more: dict[str, Tensor]) -> list[Tensor]:
        layout = joined if form == "joined" else turned
        options: dict[str, Any] = {name: layout(v) for name, v in more.items()}
        if form != "reset":
            options |= {"mask": layout(mask), "padding": padding}
        if form != "mask":
            options["reset"] = layout(resets).numpy()
        if form == "all":
            options["lengths"] = lengths
        if form == "joined":
            options["cu_seqlens"] = torch.tensor([0, *lengths]).cumsum(0)
        output, last = layer(layout(x), as_given(first), **options)
        return [turned(output), *tensors_of(last)]

    def apart(x: Tensor, first: Any, more: dict[str, Tensor]) -> list[Tensor]:
        output, *last = by_segments(plain, x, first, more, mask & within, resets & within, padding)
        return [joined(output) if form == "joined" else output, *last]

    results = []
    for run, parameters in ((together, layer.parameters()), (apart, plain.parameters())):
        leaves = [t.clone().requires_grad_() for t in (x, *first, *more.values())]
        found = run(leaves[0], tuple(leaves[1 : 1 + len(first)]), dict(zip(more, leaves[1 + len(first) :], strict=True)))
        loss = sum(torch.cos(f + k).sum() for k, f in enumerate(found))
        results.append([*found, *torch.autograd.grad(loss, [*leaves, *parameters])])
    for k, (found, expected) in enumerate(zip(*results, strict=True)):
        assert_relative(found, expected, "llvm float64 against the reference backend", f"result {k}")


@backends
def test_steps_of_one_value_are_masked(backend: str) -> None:
    layer = make("gru", backend=backend)
    x = draw(STEPS, 6, D)
    mask = some_mask(STEPS, 6)
    x[~mask] = -1.0
    x[0, 0, 0] = -1.0  # not all of its features
    output, last = layer(x, mask_value=-1, padding="last")
    expected, expected_last = layer(x, mask=mask, padding="last")
    assert output.equal(expected)
    assert last.equal(expected_last)
    assert layer(x, mask_value=7.0)[0].equal(layer(x)[0])


def test_a_mask_of_one_sequence_without_a_batch() -> None:
    layer = make("gru")
    x, mask = draw(6, D), torch.tensor([True, False, True, True, False, True])
    assert layer(x, mask=mask)[0][mask].equal(layer(x[mask])[0])


# derivatives, transforms, compiling


def test_second_derivatives_and_forward_mode() -> None:
    layer = make("gru")
    x, first = draw(4, 3, D).requires_grad_(), draw(1, 3, H).requires_grad_()

    def run(x: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        output, last = layer(x, first, lengths=[2, 0, 4])
        return output, last

    assert torch.autograd.gradgradcheck(run, (x, first))
    assert torch.autograd.gradcheck(run, (x, first), check_forward_ad=True)


def test_transforms_of_functions() -> None:
    layer, lengths = make("lstm"), [2, 4]
    weights = {name: p.detach() for name, p in layer.named_parameters()}
    several = draw(3, 4, 2, D)

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(layer, weights, (x,), {"lengths": lengths})[0]
        return output.square().sum()

    found = torch.vmap(torch.func.grad(loss), (None, 0))(weights, several)
    for k, x in enumerate(several):
        expected = torch.func.grad(loss)(weights, x)
        for name, value in expected.items():
            assert_relative(found[name][k], value, "llvm float64 against the reference backend", name)


@pytest.mark.parametrize("name", ["lengths", "mask", "mask_value"])
def test_tensors_under_transforms(name: str) -> None:
    layer, x = make("gru"), draw(STEPS, 6, D)
    options: dict[str, Any] = {
        "lengths": torch.tensor(LENGTHS), "mask": some_mask(STEPS, 6), "mask_value": float(x[0, 0, 0]),
    }  # fmt: skip
    x[0, 0] = x[0, 0, 0]

    def run(x: Tensor) -> Tensor:
        return layer(x, **{name: options[name]})[0].square().sum()

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(run(leaf), leaf)
    assert_relative(torch.func.grad(run)(x), expected, "llvm float64 against the reference backend", name)
    tangent = torch.func.jvp(run, (x,), (torch.ones_like(x),))[1]
    assert_relative(tangent, expected.sum(), "llvm float64 against the reference backend", name)


@pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented the batching rule")
@pytest.mark.parametrize("padding", [0.0, "last"])
def test_many_cotangents_at_once(padding: Any) -> None:
    layer = make("gru")
    x = draw(STEPS, 6, D).requires_grad_()
    output, _ = layer(x, lengths=LENGTHS, padding=padding)
    several = draw(3, *output.shape)
    (found,) = torch.autograd.grad(output, x, several, is_grads_batched=True, retain_graph=True)
    for k, cotangent in enumerate(several):
        (expected,) = torch.autograd.grad(output, x, cotangent, retain_graph=True)
        assert_relative(found[k], expected, "llvm float64 against the reference backend", f"cotangent {k}")


@anyrnn.cell
def shown(x, h):  # type: ignore[no-untyped-def]
    """The cotangent of its output is multiplied as it stands."""
    h = anyrnn.tanh(anyrnn.affine("h", x, h))
    return anyrnn.affine("o", x, h=h), anyrnn.State(h=h)


@anyrnn.cell
def named(x, h):  # type: ignore[no-untyped-def]
    """A value that products read has the output's name."""
    y = -h
    h = anyrnn.tanh(anyrnn.affine("g", x, h, y))
    return h * h, anyrnn.State(h=h)


@pytest.mark.parametrize(
    ("which", "anywhere"), [("lstm", True), ("lstm_layernorm", True), (shown, False), (named, True)], ids=str
)
@pytest.mark.parametrize("batch_first", [False, True])
def test_outputs_that_kernels_put_where_they_are_wanted(
    which: Any, anywhere: bool, batch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as of outputs that are packed and copied from there."""
    layer = make(which, 2, bidirectional=True, batch_first=batch_first)
    assert calls.Call(layer.network, batch_first).scatters == anywhere
    x, cotangent = draw(6, 7, D), draw(6, 7, 2 * H)
    mask = torch.rand(6, 7) < 0.7
    results = []
    for by_kernels in (True, False):
        if not by_kernels:
            for call in calls.CALLS.values():
                monkeypatch.setitem(vars(call), "scatters", False)  # which is remembered there
        leaf = x.clone().requires_grad_()
        output, _ = layer(leaf, mask=mask, padding=0.5)
        gradients = torch.autograd.grad(output, [leaf, *layer.parameters()], cotangent)
        with torch.no_grad():
            assert torch.equal(layer(x, mask=mask, padding=0.5)[0], output)
        results.append([output, *gradients])
    assert all(map(torch.equal, *results))


def test_no_rows_at_all() -> None:
    layer, first = make("gru"), draw(1, 2, H)
    output, last = layer(draw(0, D), first, cu_seqlens=[0, 0, 0])
    assert output.shape == (0, H)
    assert last.equal(first)


def test_under_another_default_device() -> None:
    layer, x = make("gru"), draw(STEPS, 6, D)
    expected, plain = layer(x, lengths=LENGTHS)[0], layer(x)[0]
    with torch.device("meta"):
        assert layer(x)[0].equal(plain)
        assert layer(x, lengths=LENGTHS)[0].equal(expected)


def test_a_compiled_function_calls_it_as_it_is() -> None:
    layer, x = make("gru", dtype=torch.float32), draw(5, 3, D, dtype=torch.float32)
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, example: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op not in ("placeholder", "output"))
        return graph.forward

    compiled = torch.compile(lambda x: 2 * layer(x + 1, lengths=[2, 5, 1])[0], backend=backend)
    with torch.no_grad():
        assert compiled(x).equal(2 * layer(x + 1, lengths=[2, 5, 1])[0])
    assert seen == [str(operator.add), str(operator.mul)]


def test_under_autocast() -> None:
    layer, x = make("gru", dtype=torch.float32), draw(5, 3, D, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        output, last = layer(x, lengths=[2, 5, 1])
    with products_of_bfloat16():
        expected, expected_last = layer(x.float(), lengths=[2, 5, 1])
    assert output.equal(expected.bfloat16())
    assert last.equal(expected_last.bfloat16())


@pytest.mark.parametrize("threads", [2, 3])
def test_the_same_bits_for_any_number_of_threads(threads: int) -> None:
    layer = make("lstm", 2, bidirectional=True, dtype=torch.float32)
    lengths = torch.randint(0, 60, (40,))
    x = draw(60, 40, D, dtype=torch.float32).requires_grad_()

    def run() -> list[Tensor]:
        output, last = layer(x, lengths=lengths)
        loss = output.square().sum() + sum(s.sum() for s in last)
        return [output, *last, *torch.autograd.grad(loss, [x, *layer.parameters()])]

    one = run()
    torch.set_num_threads(threads)
    assert all(a.equal(b) for a, b in zip(one, run(), strict=True))


# errors


def raises(kind: type[Exception], words: str, *arguments: Any, **options: Any) -> None:
    with pytest.raises(kind, match=words):
        make("gru", dtype=torch.float32)(*arguments, **options)


def test_what_cannot_be_asked_for() -> None:
    x = draw(4, 3, D, dtype=torch.float32)
    rows = draw(7, D, dtype=torch.float32)
    packed = pack_padded_sequence(x, [4, 2, 1])
    raises(ValueError, r"^Recurrent: lengths should have one length for each of the 3 samples, got 2$", x, lengths=[1, 2])
    raises(ValueError, r"^Recurrent: lengths should be from 0 to the 4 steps of the input, got 5$", x, lengths=[1, 5, 2])
    raises(ValueError, r"^Recurrent: lengths should be from 0 to the 4 steps of the input, got -1$", x, lengths=[1, -1, 2])
    raises(
        TypeError, r"^Recurrent: lengths should be a vector of integers, got float32 of shape \(3,\)$", x, lengths=torch.ones(3)
    )
    raises(
        TypeError,
        r"^Recurrent: lengths should be a vector of integers, got bool of shape \(3,\)$",
        x,
        lengths=torch.ones(3).bool(),
    )
    raises(TypeError, r"^Recurrent: padding should be a number or 'last', got None$", x, lengths=[1, 2, 3], padding=None)
    raises(TypeError, r"^Recurrent: padding should be a number or 'last', got 'first'$", x, lengths=[1, 2, 3], padding="first")
    raises(ValueError, r"^Recurrent: padding=1.0 is for outputs where there is no step", x, padding=1.0)
    raises(ValueError, r"^Recurrent: a PackedSequence says which steps there are; give no lengths", packed, padding="last")
    raises(ValueError, r"^Recurrent: a PackedSequence says which steps there are; give no lengths", packed, lengths=[4, 2, 1])
    raises(ValueError, r"^Recurrent: give lengths or cu_seqlens, not both$", x, lengths=[4, 2, 1], cu_seqlens=[0, 4])
    raises(ValueError, r"^Recurrent: Expected input with cu_seqlens to be 2D \[rows, 5\], got 3D instead$", x, cu_seqlens=[0, 4])
    raises(
        ValueError,
        r"^Recurrent: cu_seqlens should go from 0 to the 7 rows of the input, got from 0 to 6$",
        rows,
        cu_seqlens=[0, 6],
    )
    raises(ValueError, r"^Recurrent: cu_seqlens should go from 0 to the 7 rows of the input, got nothing$", rows, cu_seqlens=[])
    raises(ValueError, r"^Recurrent: cu_seqlens should never go back, got 2 after a larger one$", rows, cu_seqlens=[0, 4, 2, 7])
    raises(RuntimeError, r"Expected hidden size \(1, 3, 11\) for state h of hx", packed, draw(1, 2, H, dtype=torch.float32))
    raises(TypeError, r"^Recurrent: input should be a Tensor or a PackedSequence, got list$", [x], lengths=[1])
    wrong = PackedSequence(packed.data.double(), packed.batch_sizes)
    raises(ValueError, r"Recurrent input dtype \(torch.float64\) does not match weight dtype", wrong)


@pytest.mark.parametrize("counts", [[2, 3, 2], [4, 4], [3, 4], [7, 0], []], ids=str)
def test_packed_sequences_that_torch_would_not_have_made(counts: list[int]) -> None:
    data = draw(7, D, dtype=torch.float32)
    words = r"^Recurrent: batch_sizes of a PackedSequence should never grow, be at least 1 and add up to its 7 rows, got \["
    raises(ValueError, words, PackedSequence(data, torch.tensor(counts, dtype=torch.int64)))


def test_sorted_indices_that_name_a_sample_twice() -> None:
    data = draw(7, D, dtype=torch.float32)
    twice = PackedSequence(data, torch.tensor([4, 3]), torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 2, 3]))
    raises(ValueError, r"^Recurrent: sorted_indices of a PackedSequence should name each of its 4 samples once$", twice)


def test_subclasses_see_the_same_arguments() -> None:
    layer = anyrnn.torch.LSTM(D, H)
    assert layer(draw(4, 3, D, dtype=torch.float32), lengths=[4, 1, 0])[0].shape == (4, 3, H)


@pytest.mark.parametrize("cell", ["lstm", "gru_before", "lstm_layernorm", "indrnn"])
def test_threads_share_the_samples_of_a_batch_that_ends_about_together(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks of steps, whose places threads use again and again: the same bits for any number of threads, and alone."""
    columns, shared = split.Work.columns, []

    def noting(work: Any, unit: Any, threads: int) -> bool:
        shared.append(not columns(work, unit, threads))
        return not shared[-1]

    monkeypatch.setattr(split.Work, "columns", noting)
    monkeypatch.setattr(split, "ROWS_WITHOUT_STAGES", 0)
    monkeypatch.setattr(split, "ROWS_PER_THREAD", ((None, 0),))
    layer = anyrnn.torch.Recurrent(cell, 40, 32, 2, bidirectional=True)
    x = torch.randn(150, 64, 40)
    mask = torch.rand(150, 64) > 0.01
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            given = x.clone().requires_grad_()
            y = layer(given, mask=mask)[0]
            found.append([y, *torch.autograd.grad(y.square().sum(), [given, *layer.parameters()])])
    finally:
        torch.set_num_threads(before)
    assert all(shared)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    alone = x[:, 5:6].clone().requires_grad_()
    y = layer(alone, mask=mask[:, 5:6])[0]
    assert torch.equal(y, found[0][0][:, 5:6])
    assert torch.equal(torch.autograd.grad(y.square().sum(), alone)[0], found[0][1][:, 5:6])
