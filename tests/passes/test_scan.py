"""Which loops can be done by scans over time, and what the scans read. What they compute is tested where kernels run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anyrnn import State, Vec, affine, cell, cells, sigmoid, stop_gradient, tanh, vector, where
from anyrnn.passes.check import check_program
from anyrnn.passes.compile import plan, with_scans
from anyrnn.passes.options import with_zoneout
from anyrnn.passes.plan import Program, Scan

# New states that are affine in the states, with coefficients that the states have no part in, as the papers' equations have them.
AFFINE = ("ema", "gateloop", "hgrn", "lru", "mingru", "minlstm", "rg_lru", "trnn")
# Not so, but each feature by itself: the gradient's loop is affine, as all gradients are, and needs no product.
BY_FEATURE = ("brc", "elstm", "indrnn", "sru", "unicornn")


def scanned(body: Any, which: str = "inference") -> Program | None:
    return with_scans(plan((body if isinstance(body, type(cells.lstm)) else cell(body)).trace()), which)


@pytest.mark.parametrize("name", cells.names())
def test_which_cells(name: str) -> None:
    made = plan(cells.load(name).trace())
    programs = {which: with_scans(made, which) for which in ("inference", "training", "backward")}
    for which, program in programs.items():
        if program is not None:
            check_program(program, which)
    found = {which: program is not None for which, program in programs.items()}
    if name in AFFINE:
        assert all(found.values())
    if name in BY_FEATURE:
        assert found == {"inference": False, "training": False, "backward": True}
    if made.inference.stages:
        assert not any(found.values())


def test_what_is_made_when() -> None:
    """Coefficients before the scan, all else after it, in no loop."""
    program = with_scans(plan(cells.load("mingru").trace()), "training")
    assert program is not None
    assert program.scans == (Scan(("h",), (("h.factor.h",),), ("h.term",)),)
    assert not program.body
    assert program.entry is program.exit is None
    before = {b for stage in program.before for k in stage.kernels for _, b, _ in k.stores}
    after = {b for stage in program.after for k in stage.kernels for _, b, _ in k.stores}
    assert {"h.factor.h", "h.term"} <= before
    assert {"y"} <= after
    assert {b.role for b in program.buffers if b.name == "h"} == {"history"}


def test_a_complex_state_is_two_that_depend_on_each_other() -> None:
    program = with_scans(plan(cells.load("lru").trace()), "inference")
    assert program is not None
    (scan,) = program.scans
    assert len(scan.states) == 2
    assert all(factor is not None for row in scan.factors for factor in row)


def test_states_by_themselves_have_scans_of_their_own() -> None:
    def two(x, a, b):  # type: ignore[no-untyped-def]
        a = vector("decay") * a + affine("a", x)
        b = 0.5 * b - affine("b", x)
        return tanh(a) * b, State(a=a, b=b)

    program = scanned(two)
    assert program is not None
    assert [scan.states for scan in program.scans] == [("a",), ("b",)]


def test_a_state_that_is_kept_or_chosen() -> None:
    def chosen(x, h, held):  # type: ignore[no-untyped-def]
        z = affine("z", x)
        h = where(z > 0, h, z) / (1 + z * z) + where(z > 1, -h, 0.0)
        return h, State(h=h, held=held)

    program = scanned(chosen)
    assert program is not None
    held = next(scan for scan in program.scans if scan.states == ("held",))
    assert held.terms == (None,)


def test_a_state_that_is_not_read_is_its_term() -> None:
    def last_input(x, h):  # type: ignore[no-untyped-def]
        return h, State(h=affine("h", x))

    program = scanned(last_input)
    assert program is not None
    assert program.scans == (Scan(("h",), ((None,),), ("h.term",)),)


def test_zoneout_keeps_a_loop_affine() -> None:
    graph = with_zoneout(cells.load("mingru").trace(), {"h": "zoneout.0"}, at_random=True)
    assert all(with_scans(plan(graph), which) is not None for which in ("inference", "training", "backward"))


def test_what_is_not_affine() -> None:
    def with_product(x, h):  # type: ignore[no-untyped-def]
        h = affine("h", x, h)
        return h, State(h=h)

    def squared(x, h):  # type: ignore[no-untyped-def]
        h = affine("h", x) + h * h
        return h, State(h=h)

    def gated_by_itself(x, h):  # type: ignore[no-untyped-def]
        h = sigmoid(vector("v") * h) * h + affine("h", x)
        return h, State(h=h)

    def divided(x, h):  # type: ignore[no-untyped-def]
        h = affine("h", x) / (2 + h)
        return h, State(h=h)

    def tested(x, h):  # type: ignore[no-untyped-def]
        h = where(h > 0, 0.5 * h, affine("h", x))
        return h, State(h=h)

    def three_together(x, a, b, c):  # type: ignore[no-untyped-def]
        z = affine("z", x)
        return a, State(a=b + z, b=c - z, c=0.5 * a)

    def of_two_sizes(x, a: Vec("hidden"), s: Vec(1)):  # type: ignore[no-untyped-def]
        z = affine("z", x)
        return a, State(a=0.5 * a + s + z, s=0.5 * s)

    for body in (with_product, squared, gated_by_itself, divided, tested, three_together, of_two_sizes):
        assert scanned(body) is None, body.__name__


def test_what_the_checker_sees() -> None:
    """A coefficient that is made too late, a state that is read before it is scanned, a loop beside scans."""
    program = scanned(cells.load("mingru"))
    assert program is not None
    check_program(program)
    with pytest.raises(AssertionError, match=r"scan reads 'h\.term' at 0, which nothing has written"):
        check_program(replace(program, before=(), after=(*program.before, *program.after)))
    with pytest.raises(AssertionError, match="reads 'h' at 1, which nothing has written"):
        check_program(replace(program, before=(*program.before, *program.after), after=()))
    with pytest.raises(AssertionError, match="has a loop beside scans"):
        check_program(replace(program, body=program.after))
    with pytest.raises(AssertionError, match=r"has histories \['h'\] of no scan"):
        check_program(replace(program, scans=()))


def passes_its_input_on(x: Vec("hidden"), h, *, rate=0.5):  # type: ignore[no-untyped-def,valid-type]
    return x, State(h=rate * h + x)


def passes_its_cotangent_on(x: Vec("hidden"), h, *, rate=0.5):  # type: ignore[no-untyped-def,valid-type]
    return x + h, State(h=rate * h + stop_gradient(x))


@pytest.mark.parametrize("which", ["inference", "training", "backward"])
@pytest.mark.parametrize("body", [passes_its_input_on, passes_its_cotangent_on])
def test_results_that_stand_in_memory_already_are_put_where_they_belong(body: Any, which: str) -> None:
    program = scanned(body, which)
    assert program is not None
    check_program(program)
