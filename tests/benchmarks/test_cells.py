import pytest
import torch

from benchmarks import cells, side_by_side
from benchmarks.measure import Blocks


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SIZES", "INFERENCE_SIZES"):
        monkeypatch.setattr(cells, name, ((3, 2, 5), (1, 1, 4)))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(side_by_side, "Blocks", lambda rounds: Blocks(rounds, pause=0.0, calls=2, seconds=0.0))


@pytest.mark.parametrize("options", [[], ["--inference"]])
def test_each_cell_and_size_has_its_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cells.main(["--rounds", "1", *options]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [name for name in cells.CELLS for _ in cells.SIZES]
    assert all(float(number) > 0 for line in lines for number in line.split()[2:])
    assert first.startswith("cell")
    assert last.startswith("geometric mean")


def test_other_gradients_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backward, scales = torch.Tensor.backward, iter([*[1.0] * cells.AT_FIRST, 1.0, 1.001])
    monkeypatch.setattr(torch.Tensor, "backward", lambda self, d: backward(self, d * next(scales)))
    with pytest.raises(ValueError, match=r"RNNCell 3x2x5: results of anyrnn differ from those of torch\.nn"):
        cells.main(["--rounds", "1"])
