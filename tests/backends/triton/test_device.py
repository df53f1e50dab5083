"""What is measured of a device: the kernels in Triton's interpreter, with a clock of our own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

import anyrnn.torch
from anyrnn.backends.triton import device, functions, memory, run
from anyrnn.backends.triton.device import Device


def test_a_barrier_and_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Milliseconds of a launch, 0.001 for each time: 1 us. What cannot be is refused."""
    monkeypatch.setattr(device, "TIMES", (2, 5))
    runs: list[partial[object]] = []

    def clock(run: partial[object]) -> float:
        run()
        runs.append(run)
        return 7.0 + run.args[0] * 1e-3

    monkeypatch.setattr(device, "milliseconds", clock)
    barrier, rate = device.measure(1, "cpu")
    assert len(runs) == 4
    assert barrier == pytest.approx(1e-6)
    assert rate == pytest.approx(4 * device.READ / 1e-6)
    monkeypatch.setattr(device, "milliseconds", lambda run: 7.0)
    with pytest.raises(device.ImplausibleError, match=r"^0.0 seconds$"):
        device.measure(1, "cpu")


def test_what_is_measured_does_what_it_says() -> None:
    counter = torch.zeros(1, dtype=torch.int32)
    functions.wait_often[(1,)](counter, 3, COLUMN_PROGRAMS=1)
    numbers, sums = torch.arange(12.0).view(3, 4), torch.zeros(3, 4)
    functions.read_often[(3,)](numbers, sums, 2, BLOCK=4)
    torch.testing.assert_close(sums, numbers + numbers.roll(-1, 0))


def test_a_device_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not while a graph of launches is captured: then what was measured is known."""
    asked: list[int] = []
    captures = [True, False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captures.pop(0))
    monkeypatch.setattr(device, "_told", lambda index: Device(8))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"of no other test, {os.getpid()}")
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(device, "measure", lambda programs: [asked.append(programs), (2e-6, 3e10)][1])
    monkeypatch.setattr(device, "MEASURED", {})
    found = [device.device_of(torch.device("cuda:0")) for _ in range(4)]
    assert asked == [8]
    assert found == [Device(8), *[Device(8, barrier=2e-6, bytes_a_second=3e10)] * 3]


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(programs: int) -> tuple[float, float]:
        raise device.ImplausibleError("0.0 seconds")

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(device, "_told", lambda index: Device(8))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"of no other test, {os.getpid()}, busy")
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(device, "measure", never)
    monkeypatch.setattr(device, "MEASURED", {})
    assert device.device_of(torch.device("cuda:0")) == Device(8)


@pytest.mark.slow
def test_it_compiles_for_a_device() -> None:
    """As it is launched; what is measured stays in its loop: 8192 numbers by 256 threads, four at a time."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.backends.triton.compiled", "measured"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "wait_often atom. 1\nread_often ld.global.cg 8\n"


def test_devices_that_are_called_cuda_and_have_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    network, device = anyrnn.torch.LSTM(2, 3).network, torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for capability, told in (((7, 0), "compute capability 7.0 has no Triton kernels (7.5 and later have)"), ((9, 0), None)):
        run._known_why_not_device.cache_clear()
        found = SimpleNamespace(major=capability[0], minor=capability[1])
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index, found=found: found)
        for compiles in (False, True):
            monkeypatch.setattr(torch.compiler, "is_compiling", lambda compiles=compiles: compiles)
            assert run.why_not(network, torch.float32, device) == told
    run._known_why_not_device.cache_clear()
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert run.why_not(network, torch.float32, device) == "ROCm 6.2 has no Triton kernels (CUDA has)"
    run._known_why_not_device.cache_clear()


def test_a_default_device_does_not_decide_where_tables_are_made() -> None:
    extent = memory.Extent(3, 2, (2, 2, 1))
    with torch.device("meta"):
        run_ = memory.Run(extent, False, torch.device("cpu"))
        assert [t.tolist() for t in run_.place_of_rows] == [[0, 0, 1, 1, 2], [0, 1, 0, 1, 0]]
        assert not run_.tables[0].is_meta
