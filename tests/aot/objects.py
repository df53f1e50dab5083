"""Object files called from this process, and read."""

from __future__ import annotations

import ctypes
import struct

import numpy as np

from anyrnn import aot
from anyrnn.backends.llvm import target

STREAM_BYTES = 1 << 20


class Loaded:
    """An object file's functions. `stream` is memory that begins anywhere, as C's structures do."""

    def __init__(self, file, name, inputs, outputs, begin=4):
        self.step_, self.begin_ = target.load(file.read_bytes(), f"{name}_step", f"{name}_begin")
        self.memory = np.full(STREAM_BYTES, 255, np.uint8)  # of which nothing is zero
        self.stream = self.memory[-self.memory.ctypes.data % 64 + begin :]
        self.inputs, self.outputs = inputs, outputs
        self.begin()

    def begin(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.begin_)(self.stream.ctypes.data)

    def step(self, *given):
        """Its outputs; None where it was refused."""
        addresses = [self.stream.ctypes.data, *(array.ctypes.data for array in (*given, *self.outputs))]
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(addresses))(self.step_)
        return None if function(*addresses) else [array.copy() for array in self.outputs]


def loaded(network, folder, rows=1, **options):
    """A network's object for so many samples."""
    file = folder / "net.o"
    aot.export(network, file, batch_size=rows, **options)
    outputs = [np.empty((rows, network.specs[name].size), network.dtype) for name in network.outputs]
    return Loaded(file, "net", [given.name for given in network.inputs], outputs)


def unresolved(code: bytes) -> set[str]:
    """The names that an ELF file asks of others."""
    wide = code[4] == 2
    sections, size, count = (
        struct.unpack_from("<Q" if wide else "<I", code, 40 if wide else 32)[0],
        *struct.unpack_from("<HH", code, 58 if wide else 46),
    )
    found = set()
    header = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    tables = [struct.unpack_from(header, code, sections + k * size) for k in range(count)]
    for _, kind, _, _, begin, length, link, _, _, each in tables:
        if kind != 2:  # of symbols
            continue
        names = tables[link][4]
        for k in range(1, length // each):
            if wide:
                name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", code, begin + k * each)
            else:
                name, _, _, info, _, section = struct.unpack_from("<IIIBBH", code, begin + k * each)
            if not section and info >> 4 == 1:
                found.add(code[names + name : code.index(0, names + name)].decode())
    return found
