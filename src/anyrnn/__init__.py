"""Recurrent networks in which any cell, written as a few lines of equations, runs at fused-kernel speed.

`cell` makes a cell of a function; its equations are written with `affine`, `vector`, `tanh` and the other functions; `Vec`,
`Scalar`, `Several` and `Step` annotate its arguments. `Recurrent` makes a layer of a cell for NumPy arrays,
`anyrnn.torch.Recurrent` a module for torch, `anyrnn.jax.Recurrent` functions for JAX. `cells` holds the built-in ones. Every name
has a docstring: `help(anyrnn.affine)`.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from anyrnn.errors import CellError, MissingExtraError, UnsupportedError
from anyrnn.explanation import Explanation, explain
from anyrnn.numpy import Recurrent, RecurrentState, Stream
from anyrnn.sequence.options import LayerOptions
from anyrnn.trace import Cell, Scalar, Several, State, Step, Vec, cell
from anyrnn.trace.language import (
    affine,
    apply,
    clip_gradient,
    concat,
    cos,
    equal,
    exp,
    floor,
    log,
    matrix,
    maximum,
    mean,
    minimum,
    norm,
    relu,
    rms_norm,
    scalar,
    scope,
    sigmoid,
    sin,
    softmax,
    softplus,
    split,
    sqrt,
    stop_gradient,
    tanh,
    total,
    vector,
    where,
)

__version__ = "0.1.0"


_LATER = ("aot", "cells", "convert", "files", "jax", "keras", "onnx", "runtime", "torch", "weights", "workbench")
"""Modules that a program may do without: without them the import is quick."""
_OF_THREADS = ("get_num_threads", "set_num_threads")


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return _import_module(f"anyrnn.{name}")
    if name in _OF_THREADS:
        return getattr(_import_module("anyrnn.backends.llvm.threads"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Cell",
    "CellError",
    "Explanation",
    "LayerOptions",
    "MissingExtraError",
    "Recurrent",
    "RecurrentState",
    "Scalar",
    "Several",
    "State",
    "Step",
    "Stream",
    "UnsupportedError",
    "Vec",
    "affine",
    "apply",
    "cell",
    "cells",
    "clip_gradient",
    "concat",
    "cos",
    "equal",
    "exp",
    "explain",
    "floor",
    "get_num_threads",
    "log",
    "matrix",
    "maximum",
    "mean",
    "minimum",
    "norm",
    "relu",
    "rms_norm",
    "scalar",
    "scope",
    "set_num_threads",
    "sigmoid",
    "sin",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "stop_gradient",
    "tanh",
    "total",
    "vector",
    "where",
]
