"""Numbers too small for a full mantissa count as zero in kernels, and nowhere else."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import anyrnn
from anyrnn import State, Vec, cell


@cell
def fading(x: Vec("hidden"), h, *, kept=0.5):  # type: ignore[valid-type, no-untyped-def]
    h = kept * h + x
    return h, State(h=h)


Output = npt.NDArray[np.floating]


def decaying(
    steps: int, dtype: npt.DTypeLike, value: float, hidden: int = 40, rows: int = 3, kept: float = 0.5
) -> Callable[[], Output]:
    layer = anyrnn.Recurrent(fading, hidden, hidden, backend="llvm", dtype=dtype, kept=kept)
    x, state = np.zeros((steps, rows, hidden), dtype), np.full((1, rows, hidden), value, dtype)
    return lambda: layer(x, state)[0]


@pytest.mark.parametrize(("dtype", "smallest"), [(kind, np.finfo(kind).tiny) for kind in (np.float32, np.float64)])
def test_a_state_that_decays_ends_at_zero(dtype: npt.DTypeLike, smallest: float) -> None:
    output = decaying(3, dtype, 2 * float(smallest))()
    assert (output[0] == smallest).all(), "what has a full mantissa is kept"
    assert (output[1:] == 0).all()


@pytest.mark.parametrize("rows", [3, 100])
def test_the_callers_mode_comes_back(rows: int) -> None:
    tiny = np.full(1000, np.finfo(np.float32).tiny, np.float32)
    decaying(3, np.float32, 1e-38, rows=rows)()
    assert (tiny * np.float32(0.5) > 0).all()


@pytest.mark.timing
def test_a_state_that_decays_is_not_slow() -> None:
    """No number has a full mantissa in 500 steps: 5e-39 times .999 to the 500th is 3e-39, and the least that there is 1e-45."""

    def seconds(call: Callable[[], object]) -> float:
        times = []
        for _ in range(15):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    zero, small = (decaying(500, np.float32, value, 256, 32, 0.999) for value in (0.0, 5e-39))
    assert min(seconds(small) for _ in range(3)) <= 1.5 * min(seconds(zero) for _ in range(3))
