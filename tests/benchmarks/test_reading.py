import numpy as np
import pytest
import torch

import anyrnn.torch as at
from benchmarks import reading
from benchmarks.reading import Reading, packed_weights


@pytest.mark.parametrize(("once", "again", "steps"), [(2**16, 0, 0), (2**16, 2**14, 0), (2**16, 2**14, 3), (0, 2**14, 3)])
def test_as_many_bytes_are_read_as_are_counted(once: int, again: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LEAST_SECONDS", 0.0)
    loop = Reading(threads=2)
    read: list[int] = []

    def note(place: int, rounds: int, times: int, out: int) -> None:
        assert rounds > 0
        assert times > 0, "the loop makes one round at least"
        read.append(rounds * times * loop.bytes)

    monkeypatch.setattr(loop, "function", note)
    reference = loop.reference(once, again, steps)
    reference.call()
    assert sum(read) == reference.amount == once + again * steps


def test_what_is_read_again_is_the_end_of_some_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LEAST_SECONDS", 0.0)
    loop, memory = Reading(threads=1), np.zeros(2**17 + 64, np.uint8)
    read: list[tuple[int, int, int]] = []
    monkeypatch.setattr(loop, "function", lambda place, rounds, times, out: read.append((place, rounds * loop.bytes, times)))
    loop.reference(2**16, 2**14, 3, memory).call()
    begin = memory.ctypes.data
    assert read == [(begin, 2**16, 1), (begin + 2**17 + 64 - 2**14, 2**14, 3)]


def test_the_packed_weights_of_a_module_are_found() -> None:
    module, other = at.LSTM(64, 64).eval(), at.LSTM(64, 64)
    with torch.no_grad():
        module(torch.randn(20, 1, 64))
    found = packed_weights(module)
    assert found is not None
    assert len(found) >= 4 * sum(w.numel() for w in module.parameters() if w.ndim > 1)
    numbers = found[: len(found) // 4 * 4].view(np.float32)
    (weight,) = (w for name, w in module.named_parameters() if "weight_hh" in name)
    assert np.isin(weight.detach().numpy().ravel()[:50], numbers[-len(numbers) // 2 :]).all(), "those of the states stand last"
    assert packed_weights(other) is None
