"""An object file called from this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from anyrnn._memory import aligned
from anyrnn.aot.writing import named
from anyrnn.backends.llvm import target
from anyrnn.runtime.layer import Array
from anyrnn.runtime.network import Network


class Running:
    """One of this processor or a lesser one, with sequences that go on from step to step."""

    def __init__(self, file: Path, network: Network, batch_size: int, name: str | None) -> None:
        """`network`, `batch_size` and `name` are what `export` was told."""
        functions = [f"{named(file, name)}_{function}" for function in ("begin", "step", "stream_bytes")]
        begin, step, size = target.link(file.read_bytes(), *functions)
        self.network, self.stream = network, aligned(ctypes.CFUNCTYPE(ctypes.c_int)(size)())
        self.outputs = {n: np.empty((batch_size, network.specs[n].size or 1), network.dtype) for n in network.outputs}
        addresses = [ctypes.c_void_p] * (1 + len(network.inputs) + len(self.outputs))
        self._step = ctypes.CFUNCTYPE(ctypes.c_int, *addresses)(step)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(begin)(self.stream.ctypes.data)

    def step(self, given: Mapping[str, Array]) -> list[Array]:
        """The outputs of the next step, in order."""
        arrays = [np.asarray(given[i.name], np.int32 if i.size is None else self.network.dtype) for i in self.network.inputs]
        contiguous = [self.stream, *map(np.ascontiguousarray, arrays), *self.outputs.values()]
        refused = self._step(*(array.ctypes.data for array in contiguous))
        assert not refused, "classes that a network has are taken"
        return [array.copy() for array in self.outputs.values()]
