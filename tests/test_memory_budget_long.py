"""A long sequence within a tenth of the memory: what it keeps, and how long it takes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest
import torch

import anyrnn.torch
from anyrnn.backends.llvm import run as llvm

FULL = llvm.reserve_bytes(anyrnn.torch.LSTM(256, 256).network, "float32", 80_000, 8)
"""Bytes that 10,000 steps of 8 samples keep."""

PEAK = """
import pathlib, sys, torch, anyrnn.torch
def peak():  # what `resource` tells begins with the peak of the process that has started this one
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
layer = anyrnn.torch.Recurrent("lstm", 256, 256, memory_budget=int(sys.argv[1]) or None)
x = torch.randn(10_000, 8, 256)
layer(x[:64])[0].sum().backward()
before = peak()
layer(x)[0].sum().backward()
print((peak() - before) * 1024)
"""


@pytest.mark.slow
def test_memory_of_a_long_sequence() -> None:
    peaks = []
    for budget in ("0", str(FULL // 10)):
        done = subprocess.run([sys.executable, "-c", PEAK, budget], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[0] - peaks[1] > 0.8 * FULL


@pytest.mark.slow
@pytest.mark.timing
def test_time_of_a_long_sequence() -> None:
    plain = anyrnn.torch.Recurrent("lstm", 256, 256)
    bounded = anyrnn.torch.Recurrent("lstm", 256, 256, memory_budget=FULL // 10)
    bounded.load_state_dict(plain.state_dict())
    x, times = torch.randn(10_000, 8, 256), ([], [])
    for _ in range(5):
        for layer, seconds in zip((plain, bounded), times, strict=True):
            for _ in range(2):
                layer.zero_grad()
                begin = time.perf_counter()
                layer(x)[0].sum().backward()
                seconds.append(time.perf_counter() - begin)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), bounded.parameters(), strict=True))
    assert statistics.median(times[1]) <= 1.4 * statistics.median(times[0])
