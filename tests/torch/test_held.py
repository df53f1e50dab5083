"""Batches with nearly all steps, in which states are held where there is none: against the same batches packed."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, note, seed, settings
from hypothesis import strategies as st
from torch import Tensor

import anyrnn
from anyrnn import Vec
from anyrnn.passes.check import check_program
from anyrnn.torch import Recurrent, uneven
from tests.backends.test_all_options import networks
from tests.backends.test_random_cells import DRAWING, KINDS, SEED, SIZES
from tests.budget import assert_relative
from tests.random_cells import cell_of, sources
from tests.torch.layers import tensors_of
from tests.zoo import EVERY, input_size, sizes_of

EXAMPLES = 400 if settings.get_current_profile_name() == "thorough" else 5


def results(layer: Recurrent, x: Tensor, first: tuple[Tensor, ...], held: bool, **call: Any) -> dict[str, Tensor]:
    """What a call gives and all gradients, with states held or samples packed."""
    leaves = {"x": x, **{f"first {k}": s for k, s in enumerate(first)}}
    leaves = {name: t.detach().clone().requires_grad_() for name, t in leaves.items()}
    hx = tuple(leaves[name] for name in leaves if name != "x")
    packs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uneven, "HELD_FROM", 0.0 if held else 2.0)
        patch.setattr(uneven, "InTensor", lambda *given: packs.append(1) or InTensor(*given))
        torch.manual_seed(1)
        output, last = layer(leaves["x"], (hx if len(hx) > 1 else hx[0]) if hx else None, **call)
    assert len(packs) == (0 if held and layer.network.held_has_its_bits else 1)
    found = {f"output {k}": o for k, o in enumerate(output if isinstance(output, tuple) else (output,))}
    found |= {f"last {k}": s for k, s in enumerate(tensors_of(last))}
    leaves |= {name: parameter for name, parameter in layer.named_parameters() if parameter.requires_grad}
    loss = sum(torch.cos(value + k).sum() for k, value in enumerate(found.values()))
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    zero = {f"d {name}": torch.zeros_like(leaf) for name, leaf in leaves.items()}
    return found | {name: zero[name] if g is None else g for name, g in zip(zero, gradients, strict=True)}


InTensor = uneven.InTensor


def check(layer: Recurrent, x: Tensor, first: tuple[Tensor, ...], bound: float, **call: Any) -> None:
    """The same bits of outputs and states; gradients are rounded elsewhere, and summed in another order."""
    held, packed = (results(layer, x, first, way, **call) for way in (True, False))
    for name, expected in packed.items():
        if name.startswith("d "):
            assert_relative(held[name], expected, "float64 against torch.nn", name, bound)
        else:
            np.testing.assert_array_equal(held[name].detach(), expected.detach(), name)


def some_mask(steps: int, rows: int, generator: torch.Generator) -> Tensor:
    """Of samples that have a step each, not all of them."""
    mask = torch.rand(steps, rows, generator=generator) < 0.7
    mask[0, 0] = False
    mask[torch.randint(1, steps, (rows,), generator=generator), torch.arange(rows)] = True
    return mask


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.filterwarnings("ignore:dropout acts between layers")
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_cells_under_any_options(data: st.DataObject) -> None:
    options = data.draw(networks())
    steps, rows = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 7))
    torch.manual_seed(0)
    layer = Recurrent(**options, dtype=torch.float64).train(data.draw(st.booleans()))
    x, network = torch.randn(steps, rows, options["input_size"], dtype=torch.float64), layer.network
    first = tuple(torch.randn(len(network.units), rows, size, dtype=torch.float64) for size in network.state_sizes)
    mask = some_mask(steps, rows, torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    states = data.draw(st.sampled_from(["last", "all"]))
    assume(not network.further_inputs)  # their samples are always packed
    check(layer, x, first if data.draw(st.booleans()) else (), 1e3, mask=mask, return_states=states)


@pytest.mark.usefixtures("quick_compile")
def test_cells_drawn_at_random() -> None:
    @seed(SEED)
    @settings(DRAWING, max_examples=EXAMPLES)
    @given(st.sampled_from(KINDS).flatmap(lambda kind: sources(*kind)), st.sampled_from(SIZES))
    def each(source: str, sizes: tuple[int, ...]) -> None:
        note(source)
        T, N, D, H, other = sizes
        torch.manual_seed(0)
        layer = Recurrent(cell_of(source), D, H, dtype=torch.float64, **({"other": other} if '"other"' in source else {}))
        for which in ("inference", "training", "backward"):
            check_program(getattr(layer.network.held.plan, which))
        check(layer, torch.randn(T, N, D, dtype=torch.float64), (), 1e5, mask=some_mask(T, N, torch.Generator().manual_seed(0)))

    each()


@anyrnn.cell
def shared_operand(x, h):  # type: ignore[no-untyped-def]
    """A sum whose last operand is also that of another sum before it."""
    y = -x
    first = anyrnn.tanh(anyrnn.affine("f", y))
    h = anyrnn.tanh(anyrnn.affine("g", x, h, y))
    return first, anyrnn.State(h=h)


@anyrnn.cell
def other_order(x, h):  # type: ignore[no-untyped-def]
    """Two sums that have the same operands in different orders."""
    y, z = -x, x * x
    first = anyrnn.tanh(anyrnn.affine("f", y, z, x))
    h = anyrnn.tanh(anyrnn.affine("g", x, h, y))
    return first, anyrnn.State(h=h)


@pytest.mark.parametrize("which", [shared_operand, other_order], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_sum_has_its_bits_whatever_sums_are_beside_it(which: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = Recurrent(which, 3, 5, dtype=dtype)
    x, mask = torch.randn(60, 4, 3, dtype=dtype), torch.ones(60, 4, dtype=torch.bool)
    mask[2, 1] = False
    with torch.no_grad():
        assert torch.equal(layer(x, mask=mask)[0][:, 0], layer(x)[0][:, 0]), "another sample has a step less"
    if dtype is torch.float32:
        return
    for k in range(8):
        mask = some_mask(6, 4, torch.Generator().manual_seed(k))
        check(layer, torch.randn(6, 4, 3, dtype=torch.float64), (), 1e3, mask=mask)


@anyrnn.cell
def singular(x, h: Vec("hidden", init=0.5)):  # type: ignore[no-untyped-def]
    """Of an input of zeros its values are no numbers, wherever they go: into products, gates, parameters, a mean."""
    size = anyrnn.total(x * x)
    n = x / size
    r = anyrnn.sigmoid(anyrnn.log(size) + anyrnn.affine("r", n, h))
    p = anyrnn.vector("p") * h / size + anyrnn.scalar("s") / size
    new = anyrnn.tanh(anyrnn.affine("h", n, h=r * h) + p + anyrnn.vector("b") * anyrnn.mean(n))
    return r * new, anyrnn.State(h=new)


@pytest.mark.parametrize("nothing", [0.0, 3e200])
@pytest.mark.parametrize("which", ["gru", singular], ids=str)
def test_what_steps_make_that_are_not_there_is_in_nothing(which: Any, nothing: float) -> None:
    torch.manual_seed(0)
    layer = Recurrent(which, 5, 7, dtype=torch.float64)
    x, mask = torch.rand(9, 4, 5, dtype=torch.float64) + 0.5, some_mask(9, 4, torch.Generator().manual_seed(0))
    x[~mask] = nothing
    check(layer, x, (), 1e3, mask=mask)
    found = results(layer, x, (), True, mask=mask)
    assert all(value.isfinite().all() for value in found.values())
    assert found["d x"][mask].all()
    assert not found["d x"][~mask].any()


# which calls hold states


def nearly_full(batch_first: bool = False) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x, mask = torch.randn(40, 5, 3, dtype=torch.float64), torch.ones(40, 5, dtype=torch.bool)
    for place in ((0, 1), (17, 2), (39, 2)):
        mask[place] = False
    return (x.transpose(0, 1).contiguous(), mask.T.contiguous()) if batch_first else (x, mask)


def packs(monkeypatch: pytest.MonkeyPatch, layer: Recurrent, x: Tensor, **call: Any) -> bool:
    """Whether a call packs its samples."""
    count = []
    monkeypatch.setattr(uneven, "InTensor", lambda *given: count.append(1) or InTensor(*given))
    layer(x, **call)
    return bool(count)


@pytest.mark.parametrize("batch_first", [False, True])
def test_batches_with_nearly_all_steps_are_not_packed(batch_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Recurrent("gru", 3, 4, dtype=torch.float64, batch_first=batch_first)
    x, mask = nearly_full(batch_first)
    assert not packs(monkeypatch, layer, x, mask=mask)
    assert not packs(monkeypatch, layer, x, lengths=[40, 39, 40, 40, 38], return_states="all")
    by_value = x.masked_fill(~mask[..., None], -1.5)
    assert not packs(monkeypatch, layer, by_value, mask_value=-1.5)
    assert layer(by_value, mask_value=-1.5)[0].equal(layer(x, mask=mask)[0])
    assert packs(monkeypatch, layer, x, lengths=[40, 39, 40, 40, 30])
    assert packs(monkeypatch, layer, x, mask=mask, padding="last")
    assert packs(monkeypatch, layer, x, mask=mask, return_outputs="last")
    assert packs(monkeypatch, layer, x, mask=mask, reset=~mask)
    big = torch.randn(40, 50, 3, dtype=torch.float64)
    big = big.transpose(0, 1).contiguous() if batch_first else big
    assert not packs(monkeypatch, layer, big, lengths=[40] * 49 + [1])
    assert packs(monkeypatch, layer, big, lengths=[40] * 49 + [0])


def test_a_state_that_is_no_number_of_a_sample_without_steps() -> None:
    layer, x, first = Recurrent("gru", 3, 4), torch.randn(10, 40, 3), torch.zeros(1, 40, 4)
    first[:, -1] = float("nan")
    layer(x, first, lengths=[10] * 39 + [0])[0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_inputs_without_plain_memory_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, (x, mask) = Recurrent("gru", 3, 4, dtype=torch.float64), nearly_full()
    negative = torch.complex(x, -x).conj().imag
    assert negative.is_neg()
    assert packs(monkeypatch, layer, negative, mask=mask)
    assert layer(negative, mask=mask)[0].equal(layer(x, mask=mask)[0])
    exported = torch.export.export(Masked(layer), (x,), strict=False)
    assert exported.module()(x).equal(layer(x, mask=mask)[0])


class Masked(torch.nn.Module):
    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layer = layer
        self.mask = nearly_full()[1]

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x, mask=self.mask)[0]
        return output


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nothing", ["nan", "inf", "infinities", "1.7e308"])
def test_what_is_no_number_is_never_read(nothing: str) -> None:
    layer, (x, mask) = Recurrent("lstm", 3, 4, dtype=torch.float64), nearly_full()
    gone = torch.full_like(x, float(nothing.replace("infinities", "inf")))
    gone[17] *= -1 if nothing == "infinities" else 1
    poisoned = torch.where(mask[..., None], x, gone).requires_grad_()
    expected = layer(x, mask=mask)[0]
    output = layer(poisoned, mask=mask)[0]
    assert output.equal(expected)
    gradients = torch.autograd.grad(output.sum(), [poisoned, *layer.parameters()])
    assert all(map(torch.equal, gradients[1:], torch.autograd.grad(expected.sum(), list(layer.parameters()))))
    assert gradients[0].isfinite().all()
    np.testing.assert_array_equal(poisoned.detach()[~mask], gone[~mask])


@pytest.mark.parametrize("layers", [1, 2])
def test_the_bits_of_each_sample_alone(layers: int) -> None:
    layer, (x, mask) = Recurrent("lstm", 3, 70, layers, bidirectional=True), nearly_full()
    x = x.float()
    with torch.no_grad():
        output, last = layer(x, mask=mask)
        for n in range(x.size(1)):
            there = mask[:, n]
            expected, states = layer(x[there, n])
            assert output[there, n].equal(expected)
            assert not output[~there, n].any()
            assert all(map(torch.equal, [s[:, n] for s in last], states))


@anyrnn.cell
def read_often(x, h):  # type: ignore[no-untyped-def]
    """A state that other ops read before the only product does."""
    spread = anyrnn.mean((h - anyrnn.mean(h)) * (h - anyrnn.mean(h)))
    h = anyrnn.tanh(anyrnn.affine("n", x, h) - spread) * (1 + anyrnn.mean(h))
    return h, anyrnn.State(h=h)


@anyrnn.cell
def old_output(x: anyrnn.Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
    """The state of the step before, which other ops read as well."""
    return h, anyrnn.State(h=anyrnn.tanh(0.5 * h + h * x))


@anyrnn.cell
def moving(x: anyrnn.Vec("hidden"), c):  # type: ignore[no-untyped-def, valid-type]
    """Features that are read in other places."""
    v = anyrnn.tanh(anyrnn.norm(anyrnn.tanh(anyrnn.matrix("W") @ c)))
    a, b = anyrnn.split(c, 2)
    return v, anyrnn.State(c=anyrnn.tanh(0.5 * c + anyrnn.concat(b, a) + x))


@pytest.mark.parametrize("cell", [read_often, old_output, moving, "sgu", "gru_before", "mgu", "sru"], ids=str)
def test_the_bits_of_each_samples_gradients_alone(cell: Any) -> None:
    torch.manual_seed(0)
    layer, x, lengths = Recurrent(cell, 12, 12), torch.randn(12, 40, 12), [12] * 3 + [11] + [12] * 36
    assert layer.network.held_has_its_bits is (cell in ("mgu", "sru"))

    def gradient(x: torch.Tensor, **call: Any) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(layer(leaf, **call)[0].cos().sum(), leaf)[0]

    together = gradient(x, lengths=lengths)
    for n, length in enumerate(lengths[:6]):
        assert torch.equal(together[:length, n], gradient(x[:length, n : n + 1])[:, 0])


def test_second_derivatives() -> None:
    layer, (x, mask) = Recurrent("gru", 3, 4, dtype=torch.float64), nearly_full()
    found = []
    for from_share in (0.97, 2.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(uneven, "HELD_FROM", from_share)
            leaf = x.clone().requires_grad_()
            (d_x,) = torch.autograd.grad(layer(leaf, mask=mask)[0].sin().sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(d_x.square().sum(), [leaf, *layer.parameters()]))
    for ours, expected in zip(*found, strict=True):
        assert_relative(ours, expected, "float64 against torch.nn", "second derivative")


def test_a_budget_of_memory_changes_no_bit() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(1000, 5, 3), torch.rand(1000, 5) < 0.99
    found = []
    for budget in (None, anyrnn.Recurrent("lstm", 3, 8).reserve_size(1000, 5) // 2):
        torch.manual_seed(1)
        layer = Recurrent("lstm", 3, 8, memory_budget=budget)
        leaf = x.clone().requires_grad_()
        output, last = layer(leaf, mask=mask)
        found.append([output, *torch.autograd.grad(output.sin().sum() + last[1].sum(), [leaf, *layer.parameters()])])
    assert all(map(torch.equal, *found))


def test_a_layer_after_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probabilities of dropout that are set later, and copies."""
    layer, (x, mask) = Recurrent("gru", 3, 4, 2, dtype=torch.float64), nearly_full()
    before = layer(x, mask=mask)[0]
    layer.dropout = 0.5
    assert not layer(x, mask=mask)[0].equal(before)
    assert layer.eval()(x, mask=mask)[0].equal(before)
    assert copy.deepcopy(layer)(x, mask=mask)[0].equal(before)
    assert not packs(monkeypatch, layer, x, mask=mask)


@pytest.mark.parametrize("name", EVERY)
def test_what_steps_read_stands_in_one_order_whatever_they_give(name: str) -> None:
    """Modules collect it for one network, and hand it to calls of the one that gives all states."""
    network = anyrnn.Recurrent(name, input_size(name, 4, 6), 6, **sizes_of(name, 4, 6)).network  # type: ignore[arg-type]
    for one in (network, network.held) if network.held_has_its_bits else (network,):
        names, others = (  # but for the numbers of nodes
            [re.sub(r"_\d+$", "", source) for source in each.sources] for each in (one, one.with_all_states)
        )
        assert names == others
