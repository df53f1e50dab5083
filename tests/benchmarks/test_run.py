from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from anyrnn.errors import UnsupportedError
from benchmarks import peers
from benchmarks.job import Job
from benchmarks.loops import LOOPS
from benchmarks.peers import PEERS, TORCH_LAYERS, Peer
from benchmarks.run import Settings, run_row
from benchmarks.suite import Mode, Row
from benchmarks.systems import ModuleSystem

MODES: tuple[Mode, ...] = ("inference", "training", "streaming", "paced")


QUICK = {("lstm", "inference"), ("lstm", "paced"), ("mgu", "training"), ("mgu", "streaming")}
CASES = [
    pytest.param(cell, mode, marks=[] if (cell, mode) in QUICK else pytest.mark.slow)
    for cell in [*TORCH_LAYERS, *LOOPS]
    for mode in MODES
]


@pytest.mark.parametrize(("cell", "mode"), CASES)
def test_every_cell_agrees_with_its_peer_and_is_timed(cell: str, mode: Mode, settings: Settings) -> None:
    settings = replace(settings, blocks=replace(settings.blocks, calls=1))
    steps = 5 if mode in ("inference", "training") else 1
    result = run_row(Row(cell, steps, 3, 4, 6, mode), settings)
    assert (result.status, result.reason, result.notes) == ("ok", "", ())
    assert set(result.timings) == {"anyrnn", *(["torch"] if cell in TORCH_LAYERS else ["equations", "eager"])}
    assert result.ratio_to_best == min(result.ratios.values())
    assert (not result.lstm_rates) == (cell in TORCH_LAYERS), "cells of one's own are timed in turn with an LSTM"
    assert (not result.input_rates) == (cell in TORCH_LAYERS)


@pytest.mark.parametrize("cell", ["lstm", pytest.param("lstm_layernorm", marks=pytest.mark.slow)])
def test_the_gradient_of_the_last_step(cell: str, settings: Settings) -> None:
    result = run_row(Row(cell, 5, 3, 4, 6, "training", "last"), settings)
    assert (result.status, result.reason) == ("ok", "")


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_layers_and_directions(mode: Mode, settings: Settings) -> None:
    result = run_row(Row("gru", 5, 3, 4, 6, mode, layers=2, bidirectional=True), settings)
    assert (result.status, set(result.timings)) == ("ok", {"anyrnn", "torch"})


@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=pytest.mark.slow), "bfloat16"])
def test_other_dtypes(dtype: str, settings: Settings) -> None:
    result = run_row(Row("gru", 5, 3, 4, 6, "training"), replace(settings, dtype=dtype))
    assert (result.status, result.reason) == ("ok", "")
    assert {"anyrnn", "torch"} <= set(result.timings)
    streamed = run_row(Row("gru", 1, 1, 4, 6, "streaming"), replace(settings, dtype=dtype))
    assert streamed.status == ("ok" if dtype == "float64" else "declined")


def test_a_row_without_peers_is_checked_against_the_interpreter(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    interpreted = peers.interpreted
    monkeypatch.setattr(peers, "interpreted", lambda job: checked.append(job.row.name) or interpreted(job))
    row = Row("mgu", 5, 3, 4, 6, "training")
    result = run_row(row, replace(settings, peers=("torch",)))
    assert (result.status, set(result.timings), checked) == ("ok", {"anyrnn"}, [row.name])
    assert result.ratio_to_best is None


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_what_rounding_explains_is_no_difference(mode: Mode, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def strict(ours: Any, theirs: Any, peer: str, *how: Any) -> str:
        judged.append(peer)
        return f"something differs from {peer}'s"

    monkeypatch.setattr("benchmarks.run.difference", strict)
    assert run_row(Row("lstm_layernorm_stacked", 5, 3, 4, 6, mode), replace(settings, peers=())).status == "ok"
    assert judged == ["the interpreter"]


class Slip(torch.nn.Module):
    """torch.nn's layer with something wrong."""

    def __init__(self, layer: torch.nn.Module, slip: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.slip = layer, slip

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        output, last = self.layer(x, state)
        return self.slip(output), last


def wrong(slip: Callable[[Tensor], Tensor]) -> Peer:
    def build(job: Job) -> ModuleSystem:
        system = peers.build("torch", job)
        assert isinstance(system, ModuleSystem)
        return ModuleSystem(job, Slip(system.module, slip), system.gradients)

    return Peer(lambda: None, build)


class DoubledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        return 2 * d


@pytest.mark.parametrize(
    ("slip", "words"),
    [(lambda y: y + 0.1, "output differs from wrong's by "), (DoubledGradient.apply, "d_")],
)
def test_a_row_that_differs_is_refused(
    slip: Callable[[Tensor], Tensor], words: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, "wrong", wrong(slip))
    result = run_row(Row("lstm", 5, 3, 4, 6, "training"), replace(settings, peers=("torch", "wrong")))
    assert result.status == "wrong"
    assert result.reason.startswith(words)
    assert " differs from wrong's by " in result.reason
    assert not result.timings
    assert result.seconds is None
    assert not result.ratios


def test_results_that_change_while_they_are_timed_are_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def drifting(job: Job) -> ModuleSystem:
        calls = iter(range(1000))
        return ModuleSystem(job, Slip(job.module, lambda y: y + 1e-6 * (next(calls) > 3)))

    monkeypatch.setattr(peers, "ours", drifting)
    result = run_row(Row("lstm", 5, 3, 4, 6), settings)
    assert result.status == "wrong"
    assert result.reason.startswith("after the timed calls output")


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("cell", "peer"), [("lstm", "torch"), pytest.param("indrnn", "equations", marks=pytest.mark.slow)])
def test_sequences_that_end_at_different_steps(cell: str, peer: str, mode: Mode, settings: Settings) -> None:
    result = run_row(Row(cell, 5, 3, 4, 6, mode, lengths=(2, 5)), settings)
    assert (result.status, result.reason, set(result.timings)) == ("ok", "", {"anyrnn", peer})


def test_what_we_decline_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def declines(job: Job) -> ModuleSystem:
        raise UnsupportedError("not yet")

    monkeypatch.setattr(peers, "ours", declines)
    result = run_row(Row("indrnn", 5, 3, 4, 6), settings)
    assert (result.status, result.reason) == ("declined", "not yet")


def test_a_row_that_breaks_is_told(settings: Settings) -> None:
    result = run_row(Row("no_such_cell", 5, 3, 4, 6), settings)
    assert result.status == "failed"
    assert result.reason.startswith("ValueError: unknown cell 'no_such_cell'")


def test_a_peer_that_breaks_is_named_and_the_row_goes_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(job: Job) -> ModuleSystem:
        raise RuntimeError("out of luck\nand more")

    monkeypatch.setitem(PEERS, "broken", Peer(lambda: None, build))
    result = run_row(Row("lstm", 5, 3, 4, 6), replace(settings, peers=("broken", "torch")))
    assert (result.status, set(result.timings)) == ("ok", {"anyrnn", "torch"})
    assert result.notes == ("broken could not run it: RuntimeError: out of luck",)


@pytest.mark.parametrize("change", ["leaves out a gradient", "has another shape", "has no output"])
def test_rounding_explains_nothing_that_is_missing(change: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    class Less(ModuleSystem):
        def results(self) -> dict[str, Tensor]:
            found = super().results()
            if change == "has another shape":
                found["last state 0"] = found["last state 0"][..., :1]
            else:
                del found["d_weight_hh_l0" if change == "leaves out a gradient" else "output"]
            return found

    def build(job: Job) -> ModuleSystem:
        return Less(job, TORCH_LAYERS["lstm"](4, 6))

    monkeypatch.setitem(PEERS, "torch", replace(PEERS["torch"], build=build))
    result = run_row(Row("lstm", 5, 3, 4, 6, "training"), replace(settings, peers=("torch",)))
    assert result.status == "wrong"


def test_a_peer_that_breaks_while_it_is_timed_breaks_its_row_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*of: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr("benchmarks.run.measure", broken)
    result = run_row(Row("lstm", 5, 3, 4, 6), settings)
    assert (result.status, result.reason) == ("failed", "MemoryError: no room")
