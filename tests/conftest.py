"""What all tests share: threads, hypothesis profiles, golden text, real data."""

from __future__ import annotations

import difflib
import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from tests.quick import is_compiled_quickly, is_left_out

collect_ignore_glob = ["*/golden/*.py"]
"""Scripts that made golden files, with libraries that are not installed where tests run."""
TESTS = Path(__file__).parent


def _share_the_cores() -> None:
    """Give each of several test processes its part of the cores; must run before NumPy and torch are loaded."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes == 1:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, str(max(1, cores // processes)))
    # A test may still ask for more threads; those that wait must not spin on the cores of the other processes.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


_share_the_cores()
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, as torch may do
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["ANYRNN_CACHE"] = ""  # a test may change what is compiled in ways that no key knows

# `make test` draws the same examples every time. No deadline: the first example of a kind compiles.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """What torch draws in a test does not depend on which tests the process has done before."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture
def quick_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of many cells, each run once on few numbers."""
    monkeypatch.setattr("anyrnn.backends.llvm.target.OPTIMISATION", 0)


@pytest.fixture(autouse=True)
def _compile_quickly(request: pytest.FixtureRequest) -> None:
    """Where slow tests are left out, in tests of other parts than machine code."""
    name, timed = request.node.nodeid.removeprefix("tests/"), request.node.get_closest_marker("timing")
    if "not slow" in request.config.option.markexpr and not timed and is_compiled_quickly(name):
        request.getfixturevalue("quick_compile")


def pytest_collection_finish() -> None:
    """Thousands of tests are millions of objects, which every collection of garbage would look at: up to a second."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden instead of comparing with it")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: text is what `tests/golden/<path of the test file>/<name>.txt` holds."""
    folder = TESTS / "golden" / request.path.relative_to(TESTS).with_suffix("")
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = folder / f"{name}.txt"
        text = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        shown = path.relative_to(TESTS.parent)
        how = f"If the new text is right: pytest {request.path.relative_to(TESTS.parent)} --update-golden"
        if not path.exists():
            pytest.fail(f"{shown} does not exist. {how}", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(shown), "this run", lineterm="")
            pytest.fail("\n".join([*lines, "", how]), pytrace=False)

    return compare


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """`shared("data/mnist")`: where real data lies, in $ANYRNN_SHARED or in a folder `shared` beside the checkout.

    Skips the test where there is none.
    """
    named = os.environ.get("ANYRNN_SHARED")
    root = Path(named) if named else TESTS.parent.parent / "shared"
    if named and not root.is_dir():
        raise pytest.UsageError(f"ANYRNN_SHARED is {named}, which is not a folder")

    def find(relative: str) -> Path:
        path = root / relative
        if not path.exists():
            pytest.skip(f"needs real data: no {relative} in {root} (set ANYRNN_SHARED)")
        return path

    return find


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before tests are chosen by their marks."""
    for item in items:
        if is_left_out(item.nodeid.removeprefix("tests/")):
            item.add_marker(pytest.mark.slow)
