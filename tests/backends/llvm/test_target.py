"""What kernels are shaped for, on machines that are not this one."""

import pytest

from anyrnn.backends.llvm import target


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
    monkeypatch.setattr(target.llvm, "get_default_triple", lambda: triple)
    monkeypatch.setattr(target.llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    found = target.machine.__wrapped__()
    assert (found.vector_bytes, found.registers, found.fused) == (vector_bytes, registers, fused)
    assert ("neon" in found.features) == (not triple.startswith("x86"))
