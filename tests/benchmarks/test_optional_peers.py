"""The peers that are not always installed. Each test skips where its peer is missing."""

from dataclasses import replace

import pytest

from benchmarks.jax_scan import CELLS
from benchmarks.onnx_model import OPERATORS
from benchmarks.peers import PEERS
from benchmarks.run import Settings, run_row
from benchmarks.suite import Mode, Row


def need(peer: str) -> None:
    reason = PEERS[peer].why_missing()
    if reason:
        pytest.skip(f"{peer}: {reason}")


@pytest.mark.parametrize("mode", ["inference", "streaming"])
@pytest.mark.parametrize("cell", OPERATORS)
def test_onnxruntime_agrees(cell: str, mode: Mode, settings: Settings) -> None:
    need("onnxruntime")
    result = run_row(Row(cell, 1 if mode == "streaming" else 5, 3, 4, 6, mode), replace(settings, peers=("onnxruntime",)))
    assert (result.status, result.reason, set(result.timings)) == ("ok", "", {"anyrnn", "onnxruntime"})


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["rnn_relu", "lstm"])
def test_onnxruntime_agrees_on_layers_and_directions(cell: str, bidirectional: bool, settings: Settings) -> None:
    need("onnxruntime")
    result = run_row(Row(cell, 5, 3, 4, 6, layers=2, bidirectional=bidirectional), replace(settings, peers=("onnxruntime",)))
    assert (result.status, result.reason, set(result.timings)) == ("ok", "", {"anyrnn", "onnxruntime"})


@pytest.mark.parametrize("mode", ["inference", "training", "streaming"])
@pytest.mark.parametrize("cell", [c if c == "lstm" else pytest.param(c, marks=pytest.mark.slow) for c in CELLS])
def test_jax_agrees(cell: str, mode: Mode, settings: Settings) -> None:
    need("jax")
    result = run_row(Row(cell, 1 if mode == "streaming" else 5, 3, 4, 6, mode), replace(settings, peers=("jax",)))
    assert (result.status, result.reason, set(result.timings)) == ("ok", "", {"anyrnn", "jax"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_torch_compile_agrees(settings: Settings) -> None:
    need("torch.compile")
    result = run_row(Row("indrnn", 3, 3, 4, 6, "training"), replace(settings, peers=("torch.compile",)))
    assert (result.status, result.reason, set(result.timings)) == ("ok", "", {"anyrnn", "torch.compile"})
