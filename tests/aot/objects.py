"""Object files called from this process, and read."""

from __future__ import annotations

import ctypes
import struct

import numpy as np

from anyrnn import aot
from anyrnn.backends.llvm import target

BEHIND = 256


class Loaded:
    """An object file's functions. `stream` is memory that begins where C's structures may, and of which nothing is zero at first;
    what is behind it is looked at after each step.
    """

    def __init__(self, file, name, outputs):
        entries = target.link(file.read_bytes(), *[f"{name}_{function}" for function in ("step", "begin", "stream_bytes")])
        self.outputs, item = outputs, outputs[0].itemsize if outputs else 4
        self._step, begin, size = entries
        self._begin, self.bytes = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(begin), ctypes.CFUNCTYPE(ctypes.c_int)(size)()
        self.memory = np.full(self.bytes + BEHIND + 64, 255, np.uint8)
        self.put(self.memory[-self.memory.ctypes.data % 64 + item :])
        self.begin()

    def put(self, memory):
        """The stream's place."""
        self.stream, self.behind = memory[: self.bytes], memory[self.bytes : self.bytes + BEHIND]

    def begin(self):
        self._begin(self.stream.ctypes.data)

    def step(self, *given):
        """Its outputs; None where it was refused."""
        addresses = [self.stream.ctypes.data, *(array.ctypes.data for array in (*given, *self.outputs))]
        refused = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(addresses))(self._step)(*addresses)
        assert (self.behind == 255).all(), "a step writes behind its stream"
        return None if refused else [array.copy() for array in self.outputs]


def loaded(network, folder, rows=1, **options):
    """A network's object for so many samples."""
    file = folder / "net.o"
    aot.export(network, file, batch_size=rows, **options)
    return Loaded(file, "net", [np.empty((rows, network.specs[name].size), network.dtype) for name in network.outputs])


def symbols(code: bytes) -> tuple[set[str], set[str]]:
    """The names that an ELF file asks of others, and those that it gives to others."""
    wide = code[4] == 2
    (sections,) = struct.unpack_from("<Q" if wide else "<I", code, 40 if wide else 32)
    size, count = struct.unpack_from("<HH", code, 58 if wide else 46)
    header = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    tables = [struct.unpack_from(header, code, sections + k * size) for k in range(count)]
    asked, given = set(), set()
    for _, kind, _, _, begin, length, link, _, _, each in tables:
        if kind != 2:  # of symbols
            continue
        names = tables[link][4]
        for k in range(1, length // each):
            entry = struct.unpack_from("<IBBHQQ" if wide else "<IIIBBH", code, begin + k * each)
            name, info, section = (entry[0], entry[1], entry[3]) if wide else (entry[0], entry[3], entry[5])
            if info >> 4 == 1:
                (given if section else asked).add(code[names + name : code.index(0, names + name)].decode())
    return asked, given
