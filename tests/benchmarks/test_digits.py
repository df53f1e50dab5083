import pytest

from benchmarks import digits


def test_both_sides_learn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "PAUSE", 0.0)
    ours, theirs = digits.compare("gru", 30, batch=8, hidden=12)
    assert len(ours.losses) == len(theirs.losses) == 30
    assert ours.losses == pytest.approx(theirs.losses, abs=1e-5)
    assert ours.losses[-1] != ours.losses[0]
    assert ours.seconds > 0 < theirs.seconds
    assert "anyrnn" in type(ours.model.recurrent).__module__
    assert "torch.nn" in type(theirs.model.recurrent).__module__


def test_a_share_above_the_limit_makes_the_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(digits.torch, "set_num_threads", lambda threads: None)
    for share, status in ((0.5, 0), (0.8, 1)):
        sides = (digits.Side(None, None, share, (1.0,)), digits.Side(None, None, 1.0, (1.0005,)))  # type: ignore[arg-type]
        monkeypatch.setattr(digits, "compare", lambda cell, steps, sides=sides: sides)
        assert digits.main(["--cells", "lstm"]) == status
        assert capsys.readouterr().out.splitlines()[1].split() == ["lstm", f"{share}", "1.0", f"{share:.2f}", "0.65", "5.0e-04"]


def test_losses_that_differ_are_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = (digits.Side(None, None, 0.5, (1.0,)), digits.Side(None, None, 1.0, (1.5,)))  # type: ignore[arg-type]
    monkeypatch.setattr(digits.torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(digits, "compare", lambda cell, steps: sides)
    with pytest.raises(ValueError, match="lstm: the losses of the first 25 steps differ by up to 5"):
        digits.main(["--cells", "lstm"])
