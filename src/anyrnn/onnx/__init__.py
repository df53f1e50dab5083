"""ONNX: recurrent networks of any cell as models, and models with recurrent nodes as networks. Needs the extra `anyrnn[onnx]`."""

from anyrnn.onnx.exporting import export
from anyrnn.onnx.exporting_torch import translations
from anyrnn.onnx.reading import Imported, read, weight_inputs

__all__ = ["Imported", "export", "read", "translations", "weight_inputs"]
