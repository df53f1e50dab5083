"""Memory that is used again, and memory that comes in large pages."""

import io
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anyrnn._memory import LARGE, Recycler


def test_a_block_is_used_again_when_its_array_is_gone() -> None:
    recycler = Recycler()
    first = recycler.array(LARGE)
    address = first.ctypes.data
    second = recycler.array(LARGE)
    assert second.ctypes.data != address
    del first
    assert recycler.array(LARGE - 5).ctypes.data == address


def test_what_rests_is_bounded() -> None:
    recycler = Recycler(bytes=3 * LARGE)
    arrays = [recycler.array(LARGE) for _ in range(4)]
    arrays.clear()
    assert sum(map(len, recycler.rest)) == 3 * LARGE


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


def test_what_a_layer_gives_is_used_again() -> None:
    import torch

    from anyrnn.torch import GRU

    layer, x = GRU(8, 256), torch.randn(16, 256, 8)
    output = layer(x)[0]
    assert output.nbytes >= LARGE
    address, values = output.data_ptr(), output.detach().clone()
    other = layer(x)[0]
    assert other.data_ptr() != address
    torch.testing.assert_close(output, values, rtol=0, atol=0)
    del output
    assert layer(x)[0].data_ptr() == address


def test_a_large_output_is_a_tensor_as_any() -> None:
    """Not a view, whose change in place autograd refuses; it can be saved, shared and looked at."""
    import torch

    from anyrnn.torch import GRU

    layer, x = GRU(8, 256), torch.randn(16, 256, 8)
    output = layer(x)[0]
    values = output.detach().clone()
    assert not output._is_view()
    output.mul_(2).sum().backward()
    buffer = io.BytesIO()
    torch.save(output.detach(), buffer)
    buffer.seek(0)
    for same in (torch.load(buffer), output.detach().clone().share_memory_(), output.detach().share_memory_()):
        torch.testing.assert_close(same, values * 2, rtol=0, atol=0)


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


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_large_output_of_numpy_is_used_again(batch_first: bool) -> None:
    from anyrnn import Recurrent

    layer = Recurrent("gru", 8, 256, batch_first=batch_first)
    x = np.random.default_rng(0).standard_normal((256, 16, 8) if batch_first else (16, 256, 8), np.float32)
    output, _ = layer(x)
    assert output.nbytes >= LARGE
    address, values = output.ctypes.data, output.copy()
    other, _ = layer(x)
    assert other.ctypes.data != address
    np.testing.assert_array_equal(output, values)
    del output
    assert layer(x)[0].ctypes.data == address


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
