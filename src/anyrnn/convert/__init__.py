"""Networks and weights from file to file, through the networks of `anyrnn.runtime`.

A file has a container (its suffix tells it) and what stands in it is laid out as some system has it: that of the container
(`.onnx`, `.keras`, `.params`), or one of `anyrnn.weights.systems()` in a container that any system may use (`.npz`,
`.safetensors`, `.pt`).
"""

from __future__ import annotations

from anyrnn.convert.checking import int8_error as int8_error
from anyrnn.convert.checking import object_error as object_error
from anyrnn.convert.checking import parity as parity
from anyrnn.convert.checking import parity_of_written as parity_of_written
from anyrnn.convert.inspecting import inspect as inspect
from anyrnn.convert.reading import load as load
from anyrnn.convert.report import Parity as Parity
from anyrnn.convert.writing import save as save

__all__ = ["Parity", "inspect", "int8_error", "load", "object_error", "parity", "parity_of_written", "save"]
