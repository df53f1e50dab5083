"""Trained networks where no framework is: whole sequences, and step after step. NumPy alone is enough; with llvmlite the same
networks run on native kernels.

`load` reads a network that `Network.save` wrote: a safetensors file with the equations of its cells in the metadata. `Network`
and the layers make one by hand.

>>> import numpy as np, tempfile, pathlib, anyrnn
>>> from anyrnn import runtime
>>> layer = anyrnn.Recurrent("lstm", 3, 5, seed=0)
>>> network = runtime.Network(3, [runtime.Recurrent("lstm", ["x"], layer.network, layer.parameters)])
>>> path = pathlib.Path(tempfile.mkdtemp()) / "lstm.safetensors"
>>> network.save(path)
>>> stream = runtime.load(path).stream()
>>> stream.step(np.ones((1, 3), np.float32)).shape
(1, 5)
"""

from anyrnn.runtime.layers import (
    Activation,
    Add,
    AttentionAverage,
    Concatenate,
    Dense,
    Embedding,
    Flatten,
    Formula,
    Last,
    Layer,
    LayerNorm,
    Masked,
    Max,
    Mean,
    Multiply,
    Recurrent,
    elementwise,
)
from anyrnn.runtime.network import Input, Network
from anyrnn.runtime.saved import load
from anyrnn.runtime.stream import Stream

__all__ = [
    "Activation",
    "Add",
    "AttentionAverage",
    "Concatenate",
    "Dense",
    "Embedding",
    "Flatten",
    "Formula",
    "Input",
    "Last",
    "Layer",
    "LayerNorm",
    "Masked",
    "Max",
    "Mean",
    "Multiply",
    "Network",
    "Recurrent",
    "Stream",
    "elementwise",
    "load",
]
