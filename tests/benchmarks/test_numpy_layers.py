import pytest

from benchmarks import numpy_layers, peers, side_by_side
from benchmarks.measure import Blocks

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_layers, "SHAPES", ((1, 1, 1, 5), (3, 2, 4, 6)))
    monkeypatch.setattr(peers, "set_threads", lambda threads: None)
    monkeypatch.setattr(side_by_side, "Blocks", lambda rounds: Blocks(rounds, pause=0.0, calls=2, seconds=0.0))


def test_each_cell_and_shape_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert numpy_layers.main(["--rounds", "1"]) == 0
    first, *lines, layer, network = capsys.readouterr().out.splitlines()
    assert first.startswith("cell")
    assert [line.split()[0] for line in lines] == [name for _ in numpy_layers.SHAPES for name in numpy_layers.CELLS]
    assert all(float(number) > 0 for line in lines for number in line.split()[2:])
    assert layer.startswith("geometric mean of the layer's")
    assert network.startswith("geometric mean of the network's")


@pytest.mark.parametrize("name", ["layer", "network"])
def test_other_results_end_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls_of = numpy_layers.calls_of

    def scaled(*given):
        calls = calls_of(*given)
        call = calls[name]
        return {**calls, name: lambda: [1.001 * call()[0]]}

    monkeypatch.setattr(numpy_layers, "calls_of", scaled)
    with pytest.raises(ValueError, match=f"rnn_tanh 1x1x1x5: results of {name} differ from those of onnxruntime"):
        numpy_layers.main(["--rounds", "1"])
