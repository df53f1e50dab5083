"""What kernels are shaped for, on machines that are not this one."""

import llvmlite.binding as llvm
import numpy as np
import pytest

import anyrnn
from anyrnn.backends.llvm import run, target, unit


@pytest.mark.parametrize(
    ("triple", "features", "vector_bytes", "registers", "fused"),
    [
        ("x86_64-unknown-linux-gnu", {"sse2", "avx2", "fma", "avx512f", "avx512vl"}, 64, 32, True),
        ("x86_64-unknown-linux-gnu", {"sse2", "avx2", "fma"}, 32, 16, True),
        ("x86_64-unknown-linux-gnu", {"sse2"}, 16, 16, False),
        ("aarch64-unknown-linux-gnu", {"neon", "sve"}, 16, 32, True),
        ("arm64-apple-darwin24.0.0", set(), 16, 32, True),
    ],
)
def test_machines(
    monkeypatch: pytest.MonkeyPatch, triple: str, features: set[str], vector_bytes: int, registers: int, fused: bool
) -> None:
    monkeypatch.setattr(llvm, "get_default_triple", lambda: triple)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    found = target.machine.__wrapped__()
    assert (found.vector_bytes, found.registers, found.fused) == (vector_bytes, registers, fused)
    assert ("neon" in found.features) == (not triple.startswith("x86"))


def test_weights_fetched_ahead_are_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor for which that pays."""
    x = np.random.default_rng(0).standard_normal((4, 9, 20), np.float32)

    def results() -> list[np.ndarray]:
        run.compiled.cache_clear()
        run.POOLS.known.clear()
        layer = anyrnn.Recurrent("lstm", 20, 70, seed=0, backend="llvm")
        output, _, reserve = layer.forward_training(x)
        return [output, layer(x[:, :1].copy())[0], *layer.backward(reserve, output)[2].values()]

    expected = results()
    monkeypatch.setitem(target.BYTES_AHEAD, target.machine().cpu, 12288)
    monkeypatch.setattr(unit, "FAR_BYTES", 0)
    assert "coming" in run.write_code(anyrnn.Recurrent("lstm", 20, 70).network.plan, "inference", "float32").text
    assert all(np.array_equal(a, b) for a, b in zip(results(), expected, strict=True))
    monkeypatch.undo()
    run.compiled.cache_clear()
    run.POOLS.known.clear()
