"""The peer onnxruntime: a row's network as an ONNX model, for inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyrnn import weights
from benchmarks.job import Job
from benchmarks.suite import STREAMS
from benchmarks.systems import STREAM, named

Array = NDArray[Any]
OPSET = 14
IR_VERSION = 8


@dataclass(frozen=True)
class Operator:
    """An ONNX operator that is a cell."""

    kind: str
    states: tuple[str, ...] = ("h",)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    activations: tuple[str, ...] = ()


OPERATORS = {
    "rnn_tanh": Operator("RNN"),
    "rnn_relu": Operator("RNN", activations=("Relu",)),
    "lstm": Operator("LSTM", ("h", "c")),
    "lstm_peephole": Operator("LSTM", ("h", "c")),
    "gru": Operator("GRU", attributes={"linear_before_reset": 1}),
    "gru_before": Operator("GRU"),
}
"""By the name of the cell."""


def build(job: Job) -> Session | None:
    """None for what ONNX has no operator for, and for training."""
    operator = OPERATORS.get(job.row.cell)
    return Session(job, operator) if operator and job.row.mode != "training" and job.packed is None else None


class Session:
    """onnxruntime's session on a model of the job's network; NumPy arrays in and out."""

    def __init__(self, job: Job, operator: Operator, int8: bool = False) -> None:
        import onnxruntime

        self.x = {"x": job.data.numpy().copy()}
        self.streams = job.row.mode in STREAMS
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
        options.log_severity_level = 4  # errors are raised as well
        model = make_model(job, operator, self.streams)
        model = _in_int8(model) if int8 else model
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.state_names = [f"{state}_0" for state in operator.states] if self.streams else []
        self.first = {name: np.zeros((1, job.row.samples, job.row.hidden), self.x["x"].dtype) for name in self.state_names}
        self.states: dict[str, Array] = dict(self.first)

    def call(self) -> Sequence[Array]:
        outputs: Sequence[Array] = self.session.run(None, {**self.x, **self.states})
        if self.streams:
            self.states = dict(zip(self.state_names, outputs, strict=True))
        return outputs

    def results(self) -> dict[str, Tensor]:
        self.states = dict(self.first)
        if self.streams:
            runs = [self.call() for _ in range(STREAM)]
            steps = [torch.from_numpy(states[0]) for states in runs]
            return named(torch.cat(steps), [torch.from_numpy(state).clone() for state in runs[-1]])
        output, *last = map(torch.from_numpy, self.call())
        return named(output.squeeze(1) if output.dim() > 3 else output, [state.clone() for state in last])


def make_model(job: Job, operator: Operator, streams: bool) -> bytes:
    """Layers one above the other: x [T, N, D] to the output and the last states [L*S, N, H].

    With no node that a network can do without: the output of one direction stays [T, 1, N, H], as the last operator gives it, and
    states of one layer are that operator's own. One that streams takes the first states too, and gives states alone, as the
    output of its single step is one of them.
    """
    from onnx import TensorProto, helper, numpy_helper

    row, network = job.row, job.network
    element = TensorProto.DOUBLE if job.dtype == torch.float64 else TensorProto.FLOAT
    parameters = {name: tensor.numpy() for name, tensor in job.parameters().items()}
    constants = [numpy_helper.from_array(np.array([0, row.samples, -1], np.int64), "flat")]
    nodes, below, last = [], "x", []
    for layer in range(row.layers):
        suffixes = [network.suffix(layer, direction) for direction in range(network.directions)]
        arrays = _arrays(row.cell, parameters, suffixes)
        constants += [numpy_helper.from_array(array, f"{name}{layer}") for name, array in arrays.items()]
        first = [f"{state}_0" if streams else "" for state in operator.states]
        ends = [f"{state}_{layer}_last" for state in operator.states]
        inputs = [below, f"W{layer}", f"R{layer}", f"B{layer}", "", *first]
        inputs += [*[""] * (2 - len(first)), f"P{layer}"] if "P" in arrays else []
        attributes = {**operator.attributes, "direction": "bidirectional" if network.directions > 1 else "forward"}
        if operator.activations:
            attributes["activations"] = list(operator.activations) * network.directions
        given = ["" if streams else f"y{layer}", *ends]
        nodes.append(helper.make_node(operator.kind, inputs, given, hidden_size=row.hidden, **attributes))
        below = f"y{layer}"
        if network.directions > 1:  # y comes as [T, S, N, H]
            nodes.append(helper.make_node("Transpose", [below], [f"turned{layer}"], perm=[0, 2, 1, 3]))
            below = f"turned{layer}"
        if network.directions > 1 or layer < row.layers - 1:
            nodes.append(helper.make_node("Reshape", [below, "flat"], [f"output{layer}"]))
            below = f"output{layer}"
        last.append(ends)
    stacked = [*last[0]]
    if row.layers > 1:
        stacked = [f"{state}_last" for state in operator.states]
        nodes += [helper.make_node("Concat", [ends[k] for ends in last], [name], axis=0) for k, name in enumerate(stacked)]
    states = [f"{state}_0" for state in operator.states] if streams else []
    sizes = (len(network.units), row.samples, row.hidden)
    output = (row.steps, row.samples, 2 * row.hidden) if network.directions > 1 else (row.steps, 1, row.samples, row.hidden)
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info("x", element, (row.steps, row.samples, row.features)),
            *(helper.make_tensor_value_info(name, element, sizes) for name in states),
        ],
        [
            *([] if streams else [helper.make_tensor_value_info(below, element, output)]),
            *(helper.make_tensor_value_info(name, element, sizes) for name in stacked),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString())


def _in_int8(model: bytes) -> bytes:
    """Of an LSTM: onnxruntime has no other recurrent operator of int8."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory() as folder:
        file, how = f"{folder}/model.onnx", {"weight_type": QuantType.QInt8, "per_channel": True}
        quantize_dynamic(onnx.load_from_string(model), file, op_types_to_quantize=["LSTM"], **how)
        return Path(file).read_bytes()


def _arrays(cell: str, parameters: Mapping[str, Array], suffixes: Sequence[str]) -> dict[str, Array]:
    """A layer's weights as ONNX has them, with a first axis for its directions."""
    found = []
    for suffix in suffixes:
        own = {name.removesuffix(suffix): array for name, array in parameters.items() if name.endswith(suffix)}
        found.append(weights.convert(own, cell, source="anyrnn", target="onnx"))
    return {name: np.stack([arrays[name] for arrays in found]) for name in found[0]}
