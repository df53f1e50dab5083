import pytest

from benchmarks import reading
from benchmarks.reading import Reading


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
