import pytest
import torch

from benchmarks import around
from benchmarks.measure import Blocks


def test_the_parts_of_a_step_add_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, size in (("WORDS", 11), ("FEATURES", 12), ("STEPS", 4), ("SAMPLES", 3)):
        monkeypatch.setattr(around, name, size)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(around, "Blocks", lambda rounds: Blocks(rounds, pause=0.0, calls=2, seconds=0.0))
    losses: dict[str, list[float]] = {}
    step = around.Model.step

    def noted(model: around.Model) -> float:
        loss = step(model)
        losses.setdefault(type(model.recurrent).__module__, []).append(loss)
        layers, rest = model.parts[-1]
        assert layers > 0 < rest
        return loss

    monkeypatch.setattr(around.Model, "step", noted)
    assert around.main(["--rounds", "1"]) in (0, 1)
    ours, theirs = (found for _, found in sorted(losses.items()))
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours[0] != ours[3]
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["layers", "torch.nn.LSTM", "anyrnn.torch.LSTM", "torch.nn.GRU", "anyrnn.torch.GRU"]
