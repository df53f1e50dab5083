"""What users can import, pinned: a new name is a decision."""

import types

import anyrnn
import anyrnn.torch

NAMES = [
    *(
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
    ),
    *("Stream", "UnsupportedError", "Vec", "clip_gradient", "stop_gradient"),
    *(
        "affine",
        "apply",
        "cell",
        "cells",
        "concat",
        "cos",
        "equal",
        "exp",
        "explain",
        "floor",
        "log",
        "matrix",
        "maximum",
        "mean",
    ),
    *(
        "minimum",
        "norm",
        "relu",
        "rms_norm",
        "scalar",
        "scope",
        "sigmoid",
        "sin",
        "softmax",
        "softplus",
        "split",
        "sqrt",
        "tanh",
        "total",
        "vector",
    ),
    "where",
]
LATER = ["get_num_threads", "set_num_threads"]
"""Which are imported when they are asked for, as some modules are."""


def public(module):
    values = vars(module).items()
    return sorted(n for n, v in values if not n.startswith("_") and (n == "cells" or not isinstance(v, types.ModuleType)))


def test_anyrnn():
    assert public(anyrnn) == sorted(NAMES)
    assert {*NAMES, *LATER} <= set(anyrnn.__all__)


def test_importing_all_takes_no_other_package_its_name():
    assert [n for n in anyrnn.__all__ if isinstance(getattr(anyrnn, n), types.ModuleType)] == ["cells"]


def test_anyrnn_torch():
    standard = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"]
    assert public(anyrnn.torch) == [*standard, "Recurrent", "RecurrentCell", "RecurrentState", "freeze", "swap", "swap_back"]


def test_every_public_name_is_documented():
    assert [n for n in (*NAMES, *LATER) if not getattr(anyrnn, n).__doc__] == []
