from dataclasses import replace

import pytest

from benchmarks.child import ChildError, time_alone, time_cold_compile
from benchmarks.measure import Timing
from benchmarks.prove import prove
from benchmarks.result import Result
from benchmarks.run import Settings, run_row
from benchmarks.suite import Row


def test_a_system_is_timed_in_a_process_of_its_own(settings: Settings) -> None:
    assert time_alone(Row("lstm", 5, 3, 4, 6, "training"), "torch", settings) > 0


def test_a_cold_compile_is_timed_in_a_process_of_its_own(settings: Settings) -> None:
    assert time_cold_compile("rnn_tanh", settings) > 0


def test_a_process_that_breaks_says_why(settings: Settings) -> None:
    with pytest.raises(ChildError, match="ValueError: unknown cell 'no_such_cell'"):
        time_cold_compile("no_such_cell", settings)


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


def test_every_system_of_a_row_is_proved(settings: Settings) -> None:
    row = Row("lstm", 5, 3, 4, 6)
    result = run_row(row, settings)
    asked: list[str] = []
    proofs = prove(row, settings, result, times=1, alone=lambda row, system, settings: asked.append(system) or 1e9)
    assert asked == [proof.system for proof in proofs] == ["anyrnn", "torch"]
    assert not any(proof.holds for proof in proofs)
