import pytest
import torch

from benchmarks import options
from benchmarks.measure import Blocks, Timing
from benchmarks.options import Shape

SMALL = Shape(4, 3, 5, 8)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "OPTIONS_AT", (SMALL,))
    monkeypatch.setattr(options, "RAGGED_AT", SMALL)
    monkeypatch.setattr(options, "MEMORY_AT", Shape(10_000, 3, 5, 8))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compile")
def test_every_comparison_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(options, "Blocks", lambda rounds: Blocks(rounds, pause=0.0, calls=1, seconds=0.0))
    options.main(["--rounds", "1", "--rows", "gru"])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert len(rows) == len(options.LAYERS) + 1 + 2 + 1


@pytest.mark.parametrize(("ours", "status"), [(1.09, 0), (1.11, 1)])
def test_an_option_that_costs_too_much_makes_the_status_1(monkeypatch: pytest.MonkeyPatch, ours: float, status: int) -> None:
    times = {"ours": Timing(((ours,),)), "other": Timing(((1.0,),))}
    monkeypatch.setattr(options, "measure", lambda calls, blocks: times)
    assert options.main(["--rows", "zoneout"]) == status


def test_a_ragged_batch_is_held_against_its_share() -> None:
    share, peer = options.of_ragged("lstm", SMALL)
    assert 0 < share.of < 1
    assert (share.most, peer.most, peer.of) == (1.25, 0.5, 1.0)
