"""Memory that is used again, and memory that comes in large pages."""

import mmap
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anyrnn
from anyrnn import _memory
from anyrnn._memory import ALIGNMENT, LARGE, SMALL, Recycler, in_large_pages

of_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")


def test_a_block_is_used_again_when_its_array_is_gone() -> None:
    recycler = Recycler()
    first = recycler.array(LARGE)
    address = first.ctypes.data
    second = recycler.array(LARGE)
    assert second.ctypes.data != address
    del first
    assert len(recycler.lent) == 1
    assert recycler.array(LARGE - 5).ctypes.data == address


def test_what_rests_is_bounded() -> None:
    recycler = Recycler(bytes=3 * LARGE)
    arrays = [recycler.array(LARGE) for _ in range(4)]
    arrays.clear()
    assert sum(map(len, recycler.rest)) == 3 * LARGE


def test_an_eighth_of_the_machines_memory_may_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_memory_of_machine", lambda: 8 * 2 * LARGE)
    recycler = Recycler()
    arrays = [recycler.array(LARGE) for _ in range(4)]
    arrays.clear()
    assert sum(map(len, recycler.rest)) == 2 * LARGE


SMAPS = Path("/proc/self/smaps")


def may_be_taken(address: int) -> int:
    """Bytes of the mapping around an address that the system may take without asking."""
    inside = False
    for line in SMAPS.read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            first, end = (int(x, 16) for x in name.split("-"))
            inside = first <= address < end
        elif inside and name == "LazyFree:":
            return int(rest[0]) * 1024
    return 0


@pytest.mark.skipif(not SMAPS.exists() or "LazyFree" not in SMAPS.read_text(), reason="a system that does not say")
@pytest.mark.parametrize("crowded", [False, True])
def test_the_system_may_take_what_rests_beside_a_gigabyte(crowded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "SURELY_KEPT", LARGE - 1 if crowded else LARGE)
    recycler = Recycler()
    array = recycler.array(LARGE)
    array[:] = 1
    address = array.ctypes.data
    before = may_be_taken(address)
    del array
    assert (may_be_taken(address) - before > LARGE // 2) == crowded


def test_a_new_block_comes_in_place_of_resting_ones() -> None:
    recycler = Recycler()
    arrays = [recycler.array(LARGE) for _ in range(4)]
    arrays.clear()
    held = recycler.array(3 * LARGE)
    assert list(map(len, recycler.rest)) == [LARGE]
    assert len(held) == 3 * LARGE


def test_a_block_that_a_finalizer_lets_go_meanwhile_is_not_given_out() -> None:
    class LetsGo(list[mmap.mmap]):
        def remove(self, block: mmap.mmap) -> None:
            self.clear()
            super().remove(block)

    recycler = Recycler()
    first = recycler.array(LARGE)
    address = first.ctypes.data
    del first
    recycler.rest = kept = LetsGo(recycler.rest)
    block = kept[0]
    assert recycler.array(LARGE).ctypes.data != address
    assert len(block) == LARGE


@pytest.mark.parametrize("offset", [0, 1, 4095, 4096])
@pytest.mark.parametrize("bytes", [1, 4096, 4097, 3 * 4096, 5 * 4096 + 17])
def test_only_whole_pages_inside_an_array_are_asked_for(monkeypatch: pytest.MonkeyPatch, offset: int, bytes: int) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(_memory, "_madvise", lambda start, size, advice: asked.append((start, size)))
    monkeypatch.setattr(mmap, "PAGESIZE", 4096)
    begin = 1 << 20
    in_large_pages(begin + offset, bytes)
    for start, size in asked:
        assert start % 4096 == size % 4096 == 0
        assert begin + offset <= start
        assert start + size <= begin + offset + bytes
        assert size > bytes - 2 * 4096
    assert asked or bytes < 2 * 4096


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system has no large pages")
def test_large_outputs_and_gradients_come_in_large_pages() -> None:
    import torch

    from anyrnn.torch import GRU

    layer = GRU(8, 1024)
    output, _ = layer(torch.randn(40, 32, 8))
    output.sum().backward()
    for tensor in (output, layer.weight_hh_l0.grad):
        assert tensor is not None
        assert "hg" in flags(tensor.data_ptr() + tensor.nbytes // 2)


@of_glibc
def test_outputs_that_are_gone_leave_their_memory_to_the_next_ones() -> None:
    program = """
from resource import RUSAGE_SELF, getrusage
import torch
from anyrnn.torch import RNN

torch.set_grad_enabled(False)
layer, x = RNN(2, 256), torch.randn(28, 200, 2)
for held in (1, 2, 3, 4, 2, 3):
    faults = []
    for _ in range(8):
        before = getrusage(RUSAGE_SELF).ru_minflt
        outputs = [layer(x)[0] for _ in range(held)]
        del outputs
        faults.append(getrusage(RUSAGE_SELF).ru_minflt - before)
    print(min(faults[4:]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert max(map(int, done.stdout.split())) < 100  # each is 1400 pages


@of_glibc
def test_gradients_that_are_gone_leave_their_memory_to_the_next_ones() -> None:
    """Blocks as those of two matrices of 768 pages, each less than is asked for in large pages, after a training call."""
    program = """
import ctypes
from resource import RUSAGE_SELF, getrusage
import torch
from anyrnn.torch import GRU

GRU(512, 512)(torch.randn(1, 32, 512))[0].sum().backward()
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for _ in range(6):
    before = getrusage(RUSAGE_SELF).ru_minflt
    blocks = [c.malloc(3 * 2**20) for _ in range(6)]
    for block in blocks:
        ctypes.memset(block, 1, 3 * 2**20)
    for block in blocks:
        c.free(block)
    print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert all(int(faults) < 768 for faults in done.stdout.split()[1:])


@pytest.mark.parametrize("hidden", [8, 256])
def test_outputs_and_gradients_are_tensors_as_any(hidden: int) -> None:
    """Small or large: no views, whose change in place autograd refuses; and they can be resized."""
    import torch

    from anyrnn.torch import GRU

    layer, x = GRU(8, hidden), torch.randn(16, 256, 8, requires_grad=True)
    output = layer(x)[0]
    assert (output.nbytes >= LARGE) == (hidden > 8)
    assert not output._is_view()
    output.mul_(2).sum().backward()
    for tensor in (output.detach(), x.grad, *(p.grad for p in layer.parameters())):
        assert tensor is not None
        assert tensor.untyped_storage().resizable()


def test_outputs_and_gradients_in_numpy_begin_with_a_line_of_cache() -> None:
    """Of many sizes: one that is not asked to may do so by chance."""
    for hidden in (100, 131, 260):
        layer = anyrnn.Recurrent("lstm", 90, hidden, seed=0)
        x = np.ones((9, 33, 90), np.float32)
        y, _, reserve = layer.forward_training(x)
        d_x, _, gradients = layer.backward(reserve, np.ones_like(y))
        for array in (y, d_x, gradients["weight_ih_l0"], gradients["weight_hh_l0"]):
            assert array.nbytes >= SMALL
            assert array.ctypes.data % ALIGNMENT == 0


def test_what_lives_when_python_ends_is_not_given_out() -> None:
    program = """
import atexit
from anyrnn._memory import LARGE, RECYCLER

@atexit.register
def late():  # runs after all that is registered later, as finalizers are
    RECYCLER.array(LARGE)[:] = 8
    print(array[0])

array = RECYCLER.array(LARGE)
array[:] = 7
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7"]


def test_without_memory_it_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="the system has no 4611686018427387904 bytes"):
        Recycler().array(2**62)


def flags(address: int) -> list[str]:
    """The kernel's words about the mapping that an address is in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *_ = line.split()
        if "-" in first and not first.endswith(":"):
            low, high = (int(x, 16) for x in first.split("-"))
            inside = low <= address < high
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError("no such address")
