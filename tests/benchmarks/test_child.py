from dataclasses import replace
from typing import Any

import pytest

from benchmarks.child import ChildError, measure_memory, time_alone, time_compiles
from benchmarks.measure import Timing
from benchmarks.prove import prove
from benchmarks.result import Result
from benchmarks.run import Settings, run_row
from benchmarks.suite import Row


def test_a_system_is_timed_in_a_process_of_its_own(settings: Settings) -> None:
    assert time_alone(Row("lstm", 5, 3, 4, 6, "training"), "torch", settings) > 0


@pytest.mark.slow
def test_compiles_are_timed_in_processes_of_their_own(settings: Settings) -> None:
    cold, cached = time_compiles("rnn_tanh", settings)
    assert 0 < cached < cold / 2


@pytest.mark.slow
@pytest.mark.parametrize("system", ["anyrnn", "torch"])
def test_memory_is_that_of_one_call(system: str, settings: Settings) -> None:
    """What is kept for the backward pass grows with the steps: here 300 more of 400 features, 8 samples, at least 4 vectors."""
    few, many = (measure_memory(Row("lstm", steps, 8, 40, 400, "training"), system, settings) for steps in (100, 400))
    if few is None or many is None:
        pytest.skip("this system does not tell a process's memory")
    assert many - few > 300 * 8 * 400 * 4 * 4


def test_a_process_that_breaks_says_why(settings: Settings) -> None:
    with pytest.raises(ChildError, match="ValueError: unknown cell 'no_such_cell'"):
        time_compiles("no_such_cell", settings)


def test_the_proof_holds_figures_in_blocks_against_figures_alone(settings: Settings) -> None:
    row = Row("lstm", 5, 3, 4, 6)
    figures = {"anyrnn": iter([1.0, 9.0, 1.0]), "torch": iter([2.0, 3.0, 2.2])}
    result = Result(row, "ok", "", {"anyrnn": Timing(((1.0,),)), "torch": Timing(((5.0,),))})
    ours, torch = prove(
        row, replace(settings, peers=("torch",)), result, alone=lambda row, system, settings: next(figures[system])
    )
    assert (ours.alone, torch.alone) == (1.0, 2.2)
    assert not torch.holds
    assert torch.ratio < 1


def test_proofs_are_timed_with_the_references_of_the_row(settings: Settings) -> None:
    row, given = Row("lstm", 5, 3, 4, 6), []
    result = run_row(row, settings)
    prove(row, settings, result, lambda found, job: given.append(found.row) or {}, times=2, alone=lambda *asked: 1e9)
    assert given == [row], "the first of the times is the row's own"


def test_every_system_of_a_row_is_proved(settings: Settings) -> None:
    row = Row("lstm", 5, 3, 4, 6)
    result = run_row(row, settings)
    asked: list[str] = []
    proofs = prove(row, settings, result, times=1, alone=lambda row, system, settings: asked.append(system) or 1e9)
    assert asked == [proof.system for proof in proofs] == ["anyrnn", "torch"]
    assert not any(proof.holds for proof in proofs)


@pytest.mark.parametrize("mode", ["streaming", "paced"])
def test_memory_of_single_steps(mode: Any, settings: Settings) -> None:
    assert measure_memory(Row("lstm", 1, 1, 4, 6, mode), "anyrnn", settings) is not None


def test_a_proof_of_a_row_that_comes_out_wrong_does_not_hold(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("lstm", 5, 3, 4, 6)
    result = run_row(row, settings)
    monkeypatch.setattr("benchmarks.prove.run_row", lambda *of: Result(row, "wrong", "output differs"))
    with pytest.raises(ChildError, match="measured once more it was wrong: output differs"):
        prove(row, settings, result, alone=lambda *of: 1.0)
