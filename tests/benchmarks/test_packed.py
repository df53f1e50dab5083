import pytest
import torch

from benchmarks import packed, side_by_side
from benchmarks.measure import Blocks


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SIZES", (("LSTM", 5, 4, 3, 6, 1, False), ("GRU", 4, 3, 5, 4, 2, True)))
    monkeypatch.setattr(packed, "BATCHES", 3)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(side_by_side, "Blocks", lambda rounds: Blocks(rounds, pause=0.0, calls=2, seconds=0.0))


def test_each_layer_has_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert packed.main(["--rounds", "1"]) == 0
    first, *lines, inference, training = capsys.readouterr().out.splitlines()
    assert first.startswith("layer")
    assert [line.split()[0] for line in lines] == ["LSTM", "LSTM", "GRU", "GRU"]
    assert ["inference" in line for line in lines] == [True, False] * 2
    assert all(float(number) > 0 for line in lines for number in line.split()[-3:])
    assert inference.startswith("geometric mean of inference")
    assert training.startswith("geometric mean of training")


def test_batches_have_lengths_of_their_own() -> None:
    torch.manual_seed(0)
    found = packed.batches(9, 4, 2)
    assert len({tuple(given.batch_sizes.tolist()) for given in found}) > 1
    assert all(len(given.batch_sizes) <= 9 for given in found)


def test_other_results_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    step_of, scales = packed.step_of, iter([1.0, 1.001])

    def scaled(*given):
        scale, step = next(scales), step_of(*given)
        return lambda: [scale * t for t in step()]

    monkeypatch.setattr(packed, "step_of", scaled)
    with pytest.raises(ValueError, match=r"LSTM 5x4x3x6: results of anyrnn differ from those of torch\.nn"):
        packed.main(["--rounds", "1"])
