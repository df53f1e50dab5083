"""Memory that is used again, and memory that comes in large pages."""

import mmap
from pathlib import Path

import pytest

from anyrnn import _memory
from anyrnn._memory import LARGE, Recycler, in_large_pages


def test_a_block_is_used_again_when_its_array_is_gone() -> None:
    recycler = Recycler()
    first = recycler.array(LARGE)
    address = first.ctypes.data
    second = recycler.array(LARGE)
    assert second.ctypes.data != address
    del first
    assert recycler.array(LARGE - 5).ctypes.data == address


def test_what_rests_is_bounded() -> None:
    recycler = Recycler(blocks=2, bytes=3 * LARGE)
    arrays = [recycler.array(LARGE) for _ in range(3)]
    arrays.clear()
    assert len(recycler.rest) == 2
    arrays = [recycler.array(2 * LARGE + k) for k in range(2)]
    arrays.clear()
    assert sum(map(len, recycler.rest)) <= 3 * LARGE


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
