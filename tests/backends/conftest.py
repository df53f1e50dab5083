"""Scratch memory of the llvm backend reads as NaN before every call, and small calls use all threads, which help each other."""

import pytest

from anyrnn.backends.llvm import memory, pools, run, split
from tests.networks import poisoned


@pytest.fixture(autouse=True)
def poisoned_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "aligned", poisoned)
    monkeypatch.setattr(pools, "MOST_RESTING", 0)
    pools.RESTING.clear()
    monkeypatch.setattr(split, "START", 0.0)
    monkeypatch.setattr(split, "WAIT", 0.0)
    monkeypatch.setattr(split, "SHARED", 0.0)
    run.POOLS.known.clear()
