"""Loops done by scans over time, against the interpreter on torch and its autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import State, Vec, where
from anyrnn.backends.triton import split
from anyrnn.backends.triton.split import Blocks, Device, worth_scans
from anyrnn.backends.triton.unit import Unit
from tests.backends.triton.twins import make, run, shape_for
from tests.budget import assert_agree, assert_within_budget
from tests.passes.test_scan import AFFINE, BY_FEATURE, passes_its_cotangent_on, passes_its_input_on

KIND = "random cells, float64"
QUICK = ("lru", "indrnn")
BLOCK = 8
slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passes that scans were made for, which is whenever there can be any."""
    found: list[str] = []
    scans = Unit.scans

    def counted(self: Unit, chunk: Any) -> None:
        found.append(self.which)
        scans(self, chunk)

    monkeypatch.setattr("anyrnn.backends.triton.choosing.worth_scans", lambda *_: True)
    monkeypatch.setattr(split, "SCAN_STEPS", BLOCK)
    monkeypatch.setattr(Unit, "scans", counted)
    return found


def compare(cell: str, T: int, N: int, *, call: dict[str, Any] | None = None, **options: Any) -> None:
    shape = shape_for(cell, 5, 7)
    modules = [make(cell, backend, **shape, **options) for backend in ("triton", "reference")]
    found, expected = (run(module, T, N, with_state=True, **(call or {})) for module in modules)
    assert_agree(found, expected, KIND, cell, 1.0, None)


@pytest.mark.parametrize("cell", [pytest.param(c, marks=() if c in QUICK else slow) for c in (*AFFINE, *BY_FEATURE)])
def test_float64(cell: str, made: list[str]) -> None:
    """More steps than a block has."""
    compare(cell, BLOCK + 3, 3)
    assert set(made) == ({"inference", "training", "backward"} if cell in AFFINE else {"backward"})


def test_states_that_stand_anywhere() -> None:
    """As first states: alike for all samples, and in columns."""
    found = {}
    for backend in ("triton", "reference"):
        torch.manual_seed(1)
        module, x = make("lru", backend, 3, 4), torch.randn(BLOCK + 3, 5, 3, dtype=torch.float64)
        rows = [torch.randn(1, 1, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        given = rows[0].expand(1, 5, 4), rows[1].expand(1, 5, 4).transpose(1, 2).contiguous().transpose(1, 2)
        output, last = module(x, given)
        gradients = torch.autograd.grad(output.sum() + last[0].sum() + last[1].square().sum(), [*rows, *module.parameters()])
        found[backend] = {str(k): g for k, g in enumerate([output, *last, *gradients])}
    assert_agree(found["triton"], found["reference"], KIND, "lru", 1.0, None)


@pytest.mark.parametrize(
    "options",
    [
        {"bidirectional": True},
        {"num_layers": 2},
        {"zoneout": 0.3},
        {"input_dropout": 0.3, "output_dropout": 0.3},
        {"clip_state": 0.2},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    compare("mingru", 5, 3, **options)


@pytest.mark.parametrize("T", [1, 2, BLOCK, BLOCK + 1])
def test_steps(T: int, made: list[str]) -> None:
    compare("mingru", T, 2)
    assert made


@pytest.mark.parametrize("call", [{"return_outputs": "last"}, {"return_states": "all"}], ids=str)
def test_calls(call: dict[str, Any], made: list[str]) -> None:
    compare("mingru", 6, 3, call=call)
    assert made


def test_samples_that_have_different_steps_take_the_loop(made: list[str]) -> None:
    compare("mingru", 5, 3, call={"lengths": [5, 2, 0]})
    assert not made


def test_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a chunk ends with is what the next begins with."""
    monkeypatch.setattr("anyrnn.backends.triton.memory.CHUNK_ROWS", 6)
    compare("lru", 11, 2)


def test_float32_is_within_the_budget() -> None:
    fast, peer, exact = (
        run(make("mingru", backend, 6, 9, dtype=dtype), 60, 3)
        for backend, dtype in (("triton", torch.float32), ("reference", torch.float32), ("reference", torch.float64))
    )
    for name, reference in exact.items():
        assert_within_budget(fast[name], peer[name], reference, f"mingru: {name}")


def test_16_bits_are_as_exact_as_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients are not rounded, though the input is: decays near one would be."""
    module = make("ema", "triton", 9, 9, dtype=torch.bfloat16)
    x = torch.randn(60, 3, 9, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    found = {}
    for scans in (True, False):
        monkeypatch.setattr("anyrnn.backends.triton.choosing.worth_scans", lambda *_, scans=scans: scans)
        leaf = x.clone().requires_grad_()
        y = module(leaf)[0]
        y.sum().backward()
        found[scans] = {"y": y.detach(), "d x": leaf.grad}
    exact, leaf = make("ema", "reference", 9, 9), x.double().requires_grad_()
    exact.load_state_dict({name: p.double() for name, p in module.state_dict().items()})
    y = exact(leaf)[0]
    y.sum().backward()
    for name, reference in {"y": y.detach(), "d x": leaf.grad}.items():
        assert_within_budget(found[True][name].double(), found[False][name].double(), reference, name)


def test_explained() -> None:
    told = str(anyrnn.explain(anyrnn.torch.Recurrent("mingru", 4, 8, backend="triton"), torch.zeros(9, 3, 4)))
    assert "backward  all steps at once: states by a parallel scan over time" in told


@pytest.mark.parametrize(("steps", "columns", "worth"), [(1000, 4, True), (1000, 66, True), (5, 4, False), (1000, 132, False)])
def test_where_it_pays(steps: int, columns: int, worth: bool) -> None:
    assert worth_scans(Blocks(columns=columns), steps, 64, Device(132)) == worth


@pytest.mark.parametrize("body", [passes_its_input_on, passes_its_cotangent_on])
def test_results_that_stand_in_memory_already(body: Any) -> None:
    modules = [make(anyrnn.cell(body), backend, 7, 7) for backend in ("triton", "reference")]
    found, expected = (run(module, BLOCK + 3, 3, with_state=True) for module in modules)
    assert_agree(found, expected, KIND, body.__name__, 1.0, None)


def leaks_by_a_number(x: Vec("hidden"), h):  # type: ignore[no-untyped-def,valid-type]
    h = where(x > 0, 0.9 * (0.7 * h), 0.9 * h) + x
    return h, State(h=h)


def test_numbers_of_a_cell_have_all_their_bits() -> None:
    modules = [make(anyrnn.cell(leaks_by_a_number), backend, 7, 7) for backend in ("triton", "reference")]
    found, expected = (run(module, BLOCK + 3, 3, with_state=True) for module in modules)
    assert_agree(found, expected, KIND, "leaks_by_a_number", 1.0, None)
