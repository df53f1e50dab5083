"""Kernels of the triton backend run in Triton's interpreter, in memory that reads as NaN before."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from anyrnn.backends import quick


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread; no warnings of what lanes that are not there compute."""
    pytest.importorskip("triton", reason="needs Triton, which is for Linux")
    from tests.backends.triton.quicker import make_quicker

    make_quicker(monkeypatch)
    monkeypatch.setitem(quick.EMPTY, "cpu", quick._empty_on("cpu"))  # torch's own, which is filled
    threads, filling = torch.get_num_threads(), torch.utils.deterministic.fill_uninitialized_memory
    torch.set_num_threads(1)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    with np.errstate(all="ignore"):
        yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = filling
    torch.set_num_threads(threads)
