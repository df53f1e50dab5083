"""The runtime where nothing is installed but NumPy, or NumPy and llvmlite."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite
import numpy as np
import pytest

import anyrnn
from tests.runtime.test_networks import small

PROGRAM = """
import sys, time
sys.path[:0] = {paths!r}
start = time.perf_counter()
import numpy
of_numpy = time.perf_counter() - start
import anyrnn.runtime
seconds = time.perf_counter() - start
import pathlib, numpy as np
x = np.load("x.npy")
network = anyrnn.runtime.load("network.safetensors", backend={backend!r})
output, after = network.run(x)
stream = network.stream(x.shape[1])
assert np.array_equal([stream.step(step) for step in x], output)
np.save("output.npy", output)
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
ours = pathlib.Path({paths!r}[0])
foreign = {{pathlib.Path(f).relative_to(ours).parts[0] for f in files if f.startswith(str(ours))}}
foreign -= {{"anyrnn", "numpy", *{allowed!r}}}
foreign |= {{f for f in files if "site-packages" in f}}
print(seconds, seconds - of_numpy, *sorted(foreign))
"""


def packages(folder: Path, *names: str) -> list[str]:
    """A folder in which these packages are, and nothing else."""
    site = Path(np.__file__).parent.parent
    for name in names:
        for found in (site / name, site / f"{name}.libs"):
            if found.exists():
                (folder / found.name).symlink_to(found)
    (folder / "anyrnn").symlink_to(Path(anyrnn.__file__).parent)
    return [str(folder)]


def ran(folder: Path, backend: str, allowed: list[str]) -> list[str]:
    alone = folder / "packages"
    alone.mkdir()
    code = PROGRAM.format(paths=packages(alone, "numpy", *allowed), backend=backend, allowed=allowed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(("allowed", "backend"), [([], "auto"), ([], "reference"), (["llvmlite"], "llvm")])
def test_numpy_is_enough(allowed, backend, tmp_path):
    network, x = small("lstm"), np.random.default_rng(0).integers(0, 11, (9, 2))
    network.save(tmp_path / "network.safetensors")
    np.save(tmp_path / "x.npy", x)
    _, _, *foreign = ran(tmp_path, backend, allowed)
    assert not foreign
    native = "llvmlite" in allowed
    expected = network.run(x)[0] if native else small("lstm", "reference").run(x)[0]
    assert np.array_equal(np.load(tmp_path / "output.npy"), expected)


def test_what_is_missing_is_named(tmp_path):
    small("lstm").save(tmp_path / "network.safetensors")
    np.save(tmp_path / "x.npy", np.zeros((2, 1), int))
    with pytest.raises(AssertionError, match=r"llvmlite cannot be imported .*pip install llvmlite"):
        ran(tmp_path, "llvm", [])
    assert llvmlite.__version__  # which is there, where the tests run


@pytest.mark.timing
def test_the_first_import_is_quick(tmp_path):
    """Other processes can only make it longer, so one quick import of some shows it; or, beside loud ones, one of less than three
    times what NumPy's takes in the same process, which without them is 0.05 s.
    """
    small("lstm").save(tmp_path / "network.safetensors")
    np.save(tmp_path / "x.npy", np.zeros((2, 1), int))
    found: list[tuple[float, float]] = []
    for number in range(25):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("network.safetensors", "x.npy"):
            (folder / name).symlink_to(tmp_path / name)
        seconds, ours = map(float, ran(folder, "auto", ["llvmlite"])[:2])
        if seconds < 0.15:
            return
        found.append((seconds, seconds / (seconds - ours)))
    assert min(times for _, times in found) < 3, found
