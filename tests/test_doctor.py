from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

import llvmlite
import numpy as np
import pytest

import anyrnn
from anyrnn import doctor


def told() -> dict[str, str]:
    """The report's values by their labels; torch is a library and a front-end, so the sections' names come before."""
    found: dict[str, str] = {}
    for block in doctor.report().split("\n\n")[1:]:
        section, *lines = block.splitlines()
        found |= {f"{section}: {line[2:].split('  ')[0]}": line[2:].split("  ", 1)[1].strip() for line in lines}
    return found


def test_versions() -> None:
    versions = told()
    assert doctor.report().startswith(f"anyrnn {anyrnn.__version__}\n\nversions\n")
    assert versions["versions: numpy"] == np.__version__
    assert versions["versions: llvmlite"] == llvmlite.__version__
    assert versions["versions: torch"] == metadata.version("torch")
    assert versions["versions: python"].startswith(".".join(map(str, sys.version_info[:3])))


def test_the_machine_and_what_runs_on_it() -> None:
    from anyrnn.backends.llvm import target, threads

    here, machine = told(), target.machine()
    assert here["machine: vectors"].startswith(
        f"{machine.vector_bytes} bytes ({machine.lanes(4)} float32 or {machine.lanes(8)} float64)"
    )
    assert set(here["machine: features"].split()) <= machine.features or here["machine: features"].startswith("none")
    assert here["machine: threads"].startswith(threads.describe())
    assert here["backends: llvm"] == "usable: native CPU kernels, float32 and float64, forward and backward"
    assert here["backends: reference"].startswith("usable")


def test_the_values_are_aligned() -> None:
    lines = [line for line in doctor.report().splitlines() if line.startswith("  ")]
    starts = {len(line) - len(line[2:].split("  ", 1)[1].lstrip()) for line in lines}
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("missing", "label", "expected"),
    [
        (["llvmlite"], "llvm", "not usable: llvmlite cannot be imported ("),
        (["llvmlite"], "vectors", "unknown: "),
        (["torch"], "torch", 'not usable: torch not installed: pip install "anyrnn[torch]"'),
        (["torch"], "command line", 'train, compare not usable: torch not installed: pip install "anyrnn[torch]"'),
        (["matplotlib"], "command line", 'train, compare not usable: matplotlib not installed: pip install "anyrnn[plot]"'),
        (
            ["sklearn", "torch"],
            "command line",
            'train, compare not usable: torch, scikit-learn not installed: pip install "anyrnn[all]"',
        ),
    ],
)
def test_what_is_missing_is_told_and_stops_nothing(missing: list[str], label: str, expected: str) -> None:
    """In a process of its own, in which the libraries cannot be imported."""
    program = f"import sys; sys.modules.update(dict.fromkeys({missing})); from anyrnn import doctor; print(doctor.report())"
    report = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  {label} +{re.escape(expected)}", report, re.MULTILINE), report


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(doctor.metadata, "version", nothing)
    versions = told()
    assert versions["versions: llvmlite"] == "not installed: pip install llvmlite"
    assert versions["versions: tqdm"] == 'not installed: pip install "anyrnn[all]"'
    assert "versions: onnxruntime" not in versions


def test_an_llvm_that_makes_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> str:
        raise RuntimeError("no target for this triple")

    monkeypatch.setattr("anyrnn.backends.llvm.target.assembly", fail)
    assert told()["backends: llvm"] == "not usable: LLVM makes no code for this machine (no target for this triple)"


def test_devices() -> None:
    import torch

    told_of = told()["machine: devices"]
    if torch.cuda.is_available():
        assert torch.cuda.get_device_name(0) in told_of
    else:
        assert told_of == f"no CUDA device that torch {torch.__version__} finds"


@pytest.mark.parametrize(
    ("program", "expected"),
    [("raise ValueError('no driver')", "not known: ValueError: no driver"), ("", "not known: torch ended without a word")],
)
def test_a_torch_that_is_broken(monkeypatch: pytest.MonkeyPatch, program: str, expected: str) -> None:
    monkeypatch.setattr(doctor, "DEVICES", program)
    assert told()["machine: devices"] == expected


def test_torch_is_looked_for_and_not_imported() -> None:
    program = "import sys; from anyrnn import doctor; doctor.report(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
