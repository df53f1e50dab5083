"""Every cell, forward and backward: the generated kernels against the interpreter on torch and its autograd."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

import anyrnn.torch
from anyrnn import Scalar, State, affine, cell, cells, floor, sigmoid, sqrt, tanh, vector, where
from anyrnn.backends.triton import choosing, functions, memory
from anyrnn.backends.triton.launch import code_of, lowered
from anyrnn.backends.triton.lower import Lowered
from anyrnn.backends.triton.split import Blocks
from anyrnn.passes import compile
from anyrnn.passes.compile import plan
from anyrnn.torch import calls, gpu
from tests.backends.triton.together import run_together
from tests.backends.triton.twins import hold_weights, make, run, shape_for
from tests.budget import assert_agree, assert_within_budget
from tests.moving_cells import CELLS

KIND = "random cells, float64"
QUICK = ("rnn_tanh", "gru_before", "lru", "cfc")
"""With a product, several stages, a product after the steps, and further inputs."""
slow = pytest.mark.slow


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("cell", [pytest.param(c, marks=() if c in QUICK else slow) for c in cells.names()])
def test_float64(cell: str, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd sizes: neither rows nor features fill their blocks, and there are more than one of either. `holds`: programs that load
    their weights before the steps, of all features, and scatter sums that can be.
    """
    chosen = hold_weights(monkeypatch) if holds else []
    shape = shape_for(cell, 5, 34 if cell == "lstm_heads" else 7)
    modules = [make(cell, backend, **shape) for backend in ("triton", "reference")]
    found, expected = (run(module, 4, 18, with_state=True) for module in modules)
    assert_agree(found, expected, KIND, cell, 1.0, None)
    made = modules[0].network.plan
    held = {which: may_be_held(lowered(made, which)) and holds for which in ("training", "backward")}
    assert any(b.holds for b in chosen) == any(held.values())
    assert any(b.scatters for b in chosen) == (held["backward"] and bool(lowered(made, "backward").scatters))


def may_be_held(program: Lowered) -> bool:
    terms = [term for kernel in program._kernels for i in kernel.affines for term in program.sum_of(kernel, i).terms]
    return bool(terms) and all(term.heads == 1 for term in terms)


@cell
def three_forward(x, h):  # type: ignore[no-untyped-def]
    """Of its sums one has three operands that the same step has made."""
    a, b, c = sigmoid(affine("a", x, h)), tanh(affine("b", x, h)), sigmoid(affine("c", x, h))
    h = tanh(affine("n", x, a=a, b=b, c=c))
    return h, State(h=h)


@cell
def three_states(x, h, a, b, c):  # type: ignore[no-untyped-def]
    """Whose gradient has a sum of products of states, which come from outside of the steps."""
    y = tanh(h) * a + b * c
    a, b, c = (affine(name, x, h) for name in "abc")
    return y, State(h=y, a=a, b=b, c=c)


@cell
def not_a_number(x, h):  # type: ignore[no-untyped-def]
    """For features that are not there, which are loaded as zeros."""
    gates = [tanh(affine(gate, x, h)) for gate in "abcd"]
    h = gates[0] * gates[1] * sqrt(h * h + vector("v", init=1.0)) / vector("w", init=1.0) + gates[2] * gates[3]
    return h, State(h=h)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is not there
@pytest.mark.parametrize(
    ("cell", "scatters", "order"),
    [
        *(("lstm", True, "random"), ("gru_before", False, "random"), (three_states, False, "random")),
        (three_forward, True, "first"),
        (not_a_number, True, "last"),
        *(pytest.param("lstm", True, order, marks=slow) for order in ("first", "last")),
        *(pytest.param(c, False, "last", marks=slow) for c in ("lstm", "lstm_layernorm", "gru_layernorm", "lstm_phased", "nas")),
        *(
            pytest.param(c, True, "random", marks=slow)
            for c in ("lstm_layernorm", "gru_layernorm", "lstm_projected", "lem", "nas")
        ),
        pytest.param("fast_slow(lstm, gru)", True, "random", marks=slow),
    ],
)
def test_programs_that_share_the_features(cell: Any, scatters: bool, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its part of the weights, all of them at the same time, for more than one block of rows."""
    run_together(monkeypatch, order)
    chosen = hold_weights(monkeypatch, features=16, scatters=scatters)
    shape = shape_for(cell, 5, 37)
    found, expected = (run(make(cell, backend, **shape), 3, 18, with_state=True) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, str(cell), 1.0, None)
    assert {(b.columns, bool(b.holds)) for b in chosen} == {(3, True)}
    assert any(b.scatters for b in chosen) == scatters


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("cell", [pytest.param(c, marks=slow if k > 1 else ()) for k, c in enumerate(CELLS)], ids=str)
def test_cells_that_move_features(cell: Any, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other programs, too."""
    run_together(monkeypatch, "random")
    chosen = hold_weights(monkeypatch, features=16) if holds else []
    shape = shape_for(cell, 5, 42)
    found, expected = (run(make(cell, backend, **shape), 4, 18, with_state=True) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, str(cell), 1.0, None)
    assert any(b.columns > 1 for b in chosen) is holds


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("cell", [pytest.param(c, marks=() if c in (*QUICK, "lstm") else slow) for c in cells.names()])
def test_few_steps(cell: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose inputs are multiplied in the steps, without gradients: nothing is multiplied before."""
    monkeypatch.setattr(choosing, "MOST_LATER", math.inf)
    monkeypatch.setattr(choosing, "_chosen", choosing._chosen.__wrapped__)
    shape = shape_for(cell, 5, 34 if cell == "lstm_heads" else 7)
    modules = [make(cell, backend, **shape) for backend in ("triton", "reference")]
    found, expected = (run(module, steps, 18, with_state=True) for module in modules)
    assert_agree(found, expected, KIND, cell, 1.0, None)
    late = lowered(modules[0].network.plan, "inference", late=True)
    assert not late.of_stages(late.loop)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("cell", ["lstm", *(pytest.param(c, marks=slow) for c in ("gru_before", "lstm_layernorm", "gru"))])
def test_products_of_one_slice(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As programs of many columns make them, with more warps."""
    run_together(monkeypatch, "random")
    chosen = hold_weights(monkeypatch, features=32, scatters=False, slices=False)
    found, expected = (
        run(make(cell, backend, **shape_for(cell, 5, 150)), 3, 18, with_state=True) for backend in ("triton", "reference")
    )
    assert_agree(found, expected, KIND, cell, 1.0, None)
    assert {(b.warps, b.slices, b.holds) for b in chosen} >= {(8, 1, 2)}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("blocks", [Blocks(features=16, depth=64, columns=5), Blocks(depth=128)], ids=["shared", "one"])
@pytest.mark.parametrize("cell", ["lstm", pytest.param("gru_before", marks=slow), pytest.param("lstm_heads", marks=slow)])
def test_programs_that_read_many_features_at_a_time(cell: str, blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operands and weights that have more, or fewer, and no multiple of them."""
    run_together(monkeypatch, "random")
    hold_weights(monkeypatch)
    monkeypatch.setattr(choosing, "choose", lambda *_, **__: blocks)
    shape = shape_for(cell, 5, 76)
    found, expected = (run(make(cell, backend, **shape), 3, 18, with_state=True) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, cell, 1.0, None)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kept", [1.0, pytest.param(0.85, marks=slow)])
@pytest.mark.parametrize("cell", ["lstm", pytest.param("lstm_layernorm", marks=slow)])
def test_programs_that_share_the_features_in_several_launches(cell: str, kept: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chunks of two steps, of sequences that end at different steps, within a budget or without."""
    run_together(monkeypatch, "random")
    hold_weights(monkeypatch, features=16)
    monkeypatch.setattr(memory, "CHUNK_ROWS", 36)
    bytes = list[int]()
    new = gpu.new_reserve
    monkeypatch.setattr(gpu, "new_reserve", lambda size, device: [bytes.append(size), new(size, device)][1])
    shape, lengths = shape_for(cell, 3, 19), [5, 1, 5, 3, 0, 5, 1, 4, 4, 5, 3, 2, 2, 1, 5, 5, 1, 3]

    def of(backend: str, **options: Any) -> Any:
        return run(make(cell, backend, **shape, **options), 5, 18, with_state=True, lengths=lengths)

    found = of("triton")
    assert_agree(found, of("reference"), KIND, cell, 1.0, None)
    if kept < 1:
        again = of("triton", memory_budget=int(kept * bytes[0]))
        assert bytes[-1] < bytes[0]
        assert all(torch.equal(again[name], value) for name, value in found.items())


def test_sums_of_carried_states_or_of_few_products_are_not_scattered() -> None:
    assert lowered(plan(three_forward.trace()), "inference").scatters
    for one in (three_states, cells.load("gru_before")):
        assert not any(lowered(plan(one.trace()), which).scatters for which in ("inference", "training", "backward"))


@slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_many_programs_that_share_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are added up at once, and with more features of a sum than are made at once."""
    run_together(monkeypatch, "random")
    chosen = hold_weights(monkeypatch, features=8)
    found, expected = (run(make("lstm", backend, 5, 300), 2, 3) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, "lstm", 1.0, None)
    [backward] = {b for b in chosen if b.scatters}
    assert (backward.columns, backward.holds) == (38, 3)
    assert backward.columns * backward.rows * backward.features > functions.LOADED.value


@pytest.mark.parametrize(
    "cell", ["lstm", *(pytest.param(c, marks=slow) for c in ("rnn_tanh", "lstm_layernorm", "mingru", "lstm_heads"))]
)
@pytest.mark.parametrize(("T", "N", "D", "H"), [(1, 1, 1, 2), (2, 1, 3, 70), pytest.param(9, 33, 2, 4, marks=slow)])
def test_sizes(cell: str, T: int, N: int, D: int, H: int) -> None:
    shape = shape_for(cell, D, H)
    found, expected = (run(make(cell, backend, **shape), T, N) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, cell, 1.0, None)


@pytest.mark.parametrize("given", ["lstm_heads", "slstm"])
def test_an_empty_batch_in_blocks(given: str) -> None:
    layer = anyrnn.torch.Recurrent(given, 4, 8, heads=2, backend="triton")
    output = layer(torch.zeros(3, 0, 4))[0]
    assert output.shape == (3, 0, 8)
    output.sum().backward()
    assert not any(p.grad.any() for p in layer.parameters())


def test_an_output_that_is_what_the_steps_begin_from() -> None:
    @cell
    def partly(x, h):  # type: ignore[no-untyped-def]
        p = affine("a", x)
        h = tanh(affine("a", x, h)) * affine("b", p=p)
        return p, State(h=h)

    found = []
    for backend in ("triton", "reference"):
        torch.manual_seed(0)
        layer = anyrnn.torch.Recurrent(partly, 3, 5, bias=False, backend=backend, dtype=torch.float64)
        x = torch.ones(4, 2, 3, dtype=torch.float64, requires_grad=True)
        output, h = layer(x)
        found.append((output, h, torch.autograd.grad(output.sin().sum() + h.sum(), [x, *layer.parameters()])))
    torch.testing.assert_close(*found)


def test_a_quotient_that_a_step_depends_on() -> None:
    """Devices divide float32 to the last bit if asked."""

    @cell
    def clocked(x, h, t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
        open_now = t - floor(t / 41) * 41 < 1
        h = where(open_now, tanh(affine("n", x, h)) / (1 + t), h)
        return h, State(h=h, t=t + 1)

    layer = anyrnn.torch.Recurrent(clocked, 3, 5, backend="triton")
    other = anyrnn.torch.Recurrent(clocked, 3, 5, backend="llvm")
    other.load_state_dict(layer.state_dict())
    x = torch.ones(43, 2, 3)
    torch.testing.assert_close(layer(x)[0], other(x)[0])
    text = code_of(layer.network.plan, "inference", "clocked").text
    assert len(re.findall(r"functions\.divided\(t, 41\.0, COMPUTE\)", text)) == 1
    assert len(re.findall("divided", text)) == 1

    @cell
    def tested_elsewhere(x, h, t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
        h = where(t / 41 < 1, tanh(affine("n", x, h)), h)
        return h, State(h=h, t=t + 1)

    assert "functions.divided(t, 41.0, COMPUTE)" in code_of(plan(tested_elsewhere.trace()), "inference", "tested").text

    @cell
    def tested_later(x, h, q: Scalar(), t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
        h = where(q < 1, tanh(affine("n", x, h)), h)
        return h, State(h=h, q=t / 41, t=t + 1)

    assert "functions.divided(t, 41.0, COMPUTE)" in code_of(plan(tested_later.trace()), "inference", "tested").text


def test_a_choice_between_numbers_has_the_precision_of_its_operands() -> None:
    @cell
    def leaky(x, h):  # type: ignore[no-untyped-def]
        v = affine("a", x, h)
        h = v * where(v > 0, 1.0, 0.1)
        return h, State(h=h)

    found, expected = (run(make(leaky, backend, 3, 4), 3, 2) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, "leaky", 1.0, None)


def test_states_that_stand_anywhere() -> None:
    """First states, and the cotangents of the last ones, that are alike for all samples, or stand in columns."""
    found = {}
    for backend in ("triton", "reference"):
        torch.manual_seed(1)
        module, x = make("lstm", backend, 3, 4, num_layers=2), torch.randn(3, 5, 3, dtype=torch.float64)
        rows = [torch.randn(2, 1, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        given = rows[0].expand(2, 5, 4), rows[1].expand(2, 5, 4).transpose(1, 2).contiguous().transpose(1, 2)
        output, last = module(x, given)
        weight = torch.randn(4, 2, 5, dtype=torch.float64).permute(1, 2, 0)
        gradients = torch.autograd.grad(output.sum() + last[0].sum() + (last[1] * weight).sum(), [*rows, *module.parameters()])
        found[backend] = {str(k): g for k, g in enumerate([output, *last, *gradients])}
    assert_agree(found["triton"], found["reference"], KIND, "lstm", 1.0, None)


def test_gradients_of_many_layers() -> None:
    found, expected = (run(make("rnn_tanh", backend, 3, 4, num_layers=7), 3, 2) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, "seven layers", 1.0, None)


def test_equal_plans_share_their_kernels() -> None:
    """Though their parts are other objects, as of a cell that was traced anew when the first plan was forgotten."""
    made = []
    for _ in range(2):
        compile._plan.cache_clear()
        made.append(run(make("gru_before", "triton", 3, 4), 3, 2))
    assert all(torch.equal(value, made[1][name]) for name, value in made[0].items())


@pytest.mark.parametrize("cell", ["gru", *(pytest.param(c, marks=slow) for c in ("rnn_tanh", "lstm", "lstm_layernorm", "lem"))])
def test_float32_is_within_the_budget(cell: str) -> None:
    shape, calls = shape_for(cell, 9, 33), (12, 17)
    fast = run(make(cell, "triton", dtype=torch.float32, **shape), *calls)
    peer = run(make(cell, "reference", dtype=torch.float32, **shape), *calls)
    exact = run(make(cell, "reference", **shape), *calls)
    for name, reference in exact.items():
        assert_within_budget(fast[name], peer[name], reference, f"{cell}: {name}")


@pytest.mark.parametrize("kind", ["tanh", pytest.param("gru", marks=slow), pytest.param("lstm", marks=slow)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bits_are_within_the_budget_of_torch(kind: str, dtype: torch.dtype) -> None:
    ours, theirs = {"tanh": "RNN", "gru": "GRU", "lstm": "LSTM"}[kind], {}
    torch.manual_seed(0)
    exact = getattr(torch.nn, ours)(6, 40).double()
    fast = getattr(anyrnn.torch, ours)(6, 40, backend="triton")
    peer = getattr(torch.nn, ours)(6, 40)
    rounded = {name: p.detach().to(dtype) for name, p in exact.named_parameters()}
    x = torch.randn(9, 5, 6).to(dtype)
    for name, module in (("fast", fast.to(dtype)), ("peer", peer.to(dtype)), ("exact", exact)):
        module.load_state_dict({n: p.to(next(module.parameters()).dtype) for n, p in rounded.items()})
        given = x.to(next(module.parameters()).dtype).detach().clone().requires_grad_()
        y = module(given)[0]
        y.square().sum().backward()
        theirs[name] = {"y": y.detach(), "d x": given.grad, **{n: p.grad for n, p in module.named_parameters()}}
    for name, reference in theirs["exact"].items():
        error = {who: (theirs[who][name].double() - reference).square().mean().sqrt() for who in ("fast", "peer")}
        last = torch.finfo(dtype).eps * reference.abs().max()
        assert error["fast"] <= 1.5 * error["peer"] + 2 * last, name


@pytest.mark.parametrize("again", ["a", "b", "c"])
def test_a_weight_with_several_operands(again: str) -> None:
    """A gate's rows of the gradient have parts of two products; those of all gates are one part besides."""

    @cell
    def twice(x, h):  # type: ignore[no-untyped-def]
        a, b, c = (sigmoid(affine(gate, x, h)) for gate in "abc")
        h = tanh(affine(again, h=a * b * c * h))
        return h, State(h=h)

    found, expected = (run(make(twice, backend, 3, 4), 3, 2) for backend in ("triton", "reference"))
    assert_agree(found, expected, KIND, "twice", 1.0, None)


@pytest.mark.parametrize("wanted", ["output", "states"])
def test_states_of_all_steps_that_nobody_reads_have_no_cotangent(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read as the zero that stands for them, whatever stands behind it."""
    behind = torch.full((4096,), float("nan"), dtype=torch.float64)
    behind[0] = 0.0

    def cotangents(self: calls.Call, x: torch.Tensor, given: Any) -> list[torch.Tensor]:
        shapes = [(self.units, *x.shape[:-1], size) for size in self.more_sizes]
        return [behind[0].expand(shape) if d is None else d for d, shape in zip(given, shapes, strict=True)]

    monkeypatch.setattr(calls.Call, "more_cotangents", cotangents)
    found = []
    for backend in ("triton", "reference"):
        layer = make("lstm", backend, 3, 40)
        torch.manual_seed(0)
        x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
        y, (h, _) = layer(x, return_states="all")
        (y if wanted == "output" else h).sum().backward()
        found.append([x.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
