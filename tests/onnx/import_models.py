"""ONNX models made by hand, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TYPES = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}

Node = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]


def model(
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[str, Sequence[int | str | None] | None]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] = {},
    opset: int = 17,
    dtype: str = "float32",
) -> Any:
    """Nodes as (operator, inputs, outputs, attributes); inputs by name as (dtype, shape)."""
    graph = helper.make_graph(
        [
            helper.make_node(op, given, made, name=f"the_{op.lower()}_{k}", **more)
            for k, (op, given, made, more) in enumerate(nodes)
        ],
        "model",
        [helper.make_tensor_value_info(name, TYPES[kind], shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, TYPES[dtype], None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def onnxruntime_gives(made: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, dict(given)), strict=True))


def weights(
    op: str, directions: int, inputs: int, hidden: int, seed: int = 0, dtype: str = "float32", bias: bool = True
) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rows = GATES[op] * hidden
    shapes = {"W": (rows, inputs), "R": (rows, hidden), **({"B": (2 * rows,)} if bias else {})}
    return {name: (0.4 * random.normal(size=(directions, *shape))).astype(dtype) for name, shape in shapes.items()}


def one_node(op: str, given: Mapping[str, Any], constants: Mapping[str, Any], opset: int = 14, **attributes: Any) -> Any:
    """A model of a recurrent node with some inputs given in calls, all outputs, and steps and samples that are not fixed."""
    places = {name: name if name in given or name in constants else "" for name in (INPUTS if op == "LSTM" else INPUTS[:6])}
    while not places[(last := list(places)[-1])]:
        del places[last]
    outputs = ["Y", "Y_h", "Y_c"] if op == "LSTM" else ["Y", "Y_h"]
    batch_first = attributes.get("layout", 0)
    free = {"X": 2, "sequence_lens": 1}

    def shape(name: str, array: Any) -> list[Any]:
        if name in free:
            return [None] * free[name] + list(array.shape[free[name] :])
        samples = 0 if batch_first else 1
        return [None if k == samples else n for k, n in enumerate(array.shape)]

    node = (op, list(places.values()), outputs, {"hidden_size": constants["R"].shape[-1], **attributes})
    inputs = {name: (str(array.dtype), shape(name, array)) for name, array in given.items()}
    return model([node], inputs, outputs, constants, opset, str(constants["W"].dtype))


def checked(made: Any) -> bytes:
    onnx.checker.check_model(made)
    content: bytes = made.SerializeToString()
    return content
