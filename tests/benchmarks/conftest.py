import gc
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks import machine, pointwise, reading
from benchmarks.measure import Blocks
from benchmarks.run import Settings
from benchmarks.suite import SUITES, Row

QUICKLY = Blocks(rounds=2, pause=0.0, warm_up=1, calls=2, seconds=0.0, most=2)


@pytest.fixture(autouse=True)
def _small_collections() -> None:
    """Each block of timed calls begins with a collection of garbage, of which the tests before have left much to look at."""
    gc.freeze()


@pytest.fixture
def settings() -> Settings:
    return Settings(threads=1, blocks=QUICKLY)


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`suite(row, ...)`: what `--suite quick` has, timed in a moment."""

    def replace_quick(*rows: Row) -> None:
        monkeypatch.setitem(SUITES, "quick", list(rows))

    monkeypatch.setattr(machine, "PRODUCT_SIZES", (64, 32))
    monkeypatch.setattr(machine, "MEMORY_BYTES", 2**16)
    monkeypatch.setattr(machine, "cache_bytes", lambda level: 2**12)
    monkeypatch.setattr(reading, "LEAST_SECONDS", 1e-4)
    monkeypatch.setattr(pointwise, "ROUNDS", 10)
    monkeypatch.setattr(Settings, "blocks_for", lambda self, row: replace(QUICKLY, between=1e-4 if row.mode == "paced" else 0.0))
    return replace_quick
