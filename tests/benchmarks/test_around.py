import pytest
import torch

from benchmarks import around
from benchmarks.measure import Blocks


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("WORDS", 11), ("FEATURES", 12), ("STEPS", 4), ("SAMPLES", 3)):
        monkeypatch.setattr(around, name, size)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(around, "Blocks", lambda rounds: Blocks(rounds, pause=0.0, calls=2, seconds=0.0))


@pytest.mark.parametrize(
    ("ours", "status"),
    [((1.9, 1.0), 0), ((2.1, 1.0), 1), ((0.5, 1.04), 0), ((0.5, 1.06), 1)],
    ids=["quicker", "slower", "the rest as quick", "the rest slower"],
)
def test_a_slower_step_or_rest_makes_the_status_1(
    monkeypatch: pytest.MonkeyPatch, ours: tuple[float, float], status: int
) -> None:
    def step(model: around.Model) -> float:
        model.parts.append(ours if type(model.recurrent).__module__.startswith("anyrnn") else (2.0, 1.0))
        return 0.0

    monkeypatch.setattr(around.Model, "step", step)
    assert around.main(["--rounds", "1"]) == status


def test_the_parts_of_a_step_add_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    losses: dict[str, list[float]] = {}
    step = around.Model.step

    def noted(model: around.Model) -> float:
        loss = step(model)
        losses.setdefault(type(model.recurrent).__module__, []).append(loss)
        layers, rest = model.parts[-1]
        assert layers > 0 < rest
        return loss

    monkeypatch.setattr(around.Model, "step", noted)
    around.main(["--rounds", "1"])
    ours, theirs = (found for _, found in sorted(losses.items()))
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours[0] != ours[3]
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["layers", "torch.nn.LSTM", "anyrnn.torch.LSTM", "torch.nn.GRU", "anyrnn.torch.GRU"]
