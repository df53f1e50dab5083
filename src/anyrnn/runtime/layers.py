"""All layers of which a network at run time is made."""

from __future__ import annotations

from anyrnn.runtime.layer import Call, Layer, Spec
from anyrnn.runtime.recurrent import Dense, Formula, Recurrent, elementwise
from anyrnn.runtime.steps import Activation, Add, Concatenate, Embedding, LayerNorm, Masked, Multiply
from anyrnn.runtime.whole import AttentionAverage, Flatten, Last, Max, Mean

__all__ = [
    "Activation",
    "Add",
    "AttentionAverage",
    "Call",
    "Concatenate",
    "Dense",
    "Embedding",
    "Flatten",
    "Formula",
    "Last",
    "Layer",
    "LayerNorm",
    "Masked",
    "Max",
    "Mean",
    "Multiply",
    "Recurrent",
    "Spec",
    "elementwise",
]

_KINDS: tuple[type[Layer], ...] = (
    Recurrent, Dense, Embedding, LayerNorm, Activation, Masked, Formula, Concatenate, Add, Multiply, Last, Mean, Max, Flatten,
    AttentionAverage,
)  # fmt: skip
LAYERS = {layer.kind: layer for layer in _KINDS}
"""By what files call them."""
