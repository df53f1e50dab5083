"""What tests of exports share: models are checked, and run by onnxruntime against the layers that they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

import anyrnn
import anyrnn.onnx
from tests.budget import assert_within_budget

Array = np.ndarray[Any, np.dtype[Any]]


def session(model: onnx.ModelProto) -> Any:
    """Of a model that the checker of ONNX accepts."""
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if any(port.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE for port in model.graph.input):
        # the further ones put numbers that products are multiplied by into attributes, which are float32
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, given: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name."""
    made = session(model)
    names = [output.name for output in made.get_outputs()]
    return dict(zip(names, made.run(names, dict(given)), strict=True))


def ops(model: onnx.ModelProto) -> list[str]:
    """Of the graph, without those in bodies."""
    return [node.op_type for node in model.graph.node]


def recurrent(model: onnx.ModelProto) -> list[str]:
    """The operators that do the steps."""
    return [op for op in ops(model) if op in ("RNN", "GRU", "LSTM", "Scan")]


def inputs_of(layer: anyrnn.Recurrent, T: int, N: int, seed: int = 0) -> dict[str, Array]:
    """Sequences for all per-step inputs."""
    random, network = np.random.default_rng([seed, T, N]), layer.network
    sides = (N, T) if layer.batch_first else (T, N)
    sizes = {name: shape[0].evaluate(dict(network.sizes)) for name, shape in network.graph.inputs}
    return {name: random.normal(size=(*sides, size)).astype(layer.dtype) for name, size in sizes.items()}


def states_of(layer: anyrnn.Recurrent, N: int) -> list[Array]:
    random, units = np.random.default_rng(1), len(layer.network.units)
    return [random.normal(size=(units, N, size)).astype(layer.dtype) / 2 for size in layer.network.state_sizes]


def results(layer: anyrnn.Recurrent, given: Mapping[str, Array], first: Sequence[Array] | None, lengths: Any) -> list[Array]:
    """Of a call: the output or outputs, then the last states."""
    x, *_ = given.values()
    names = list(given)[1:]
    arrays = [a.astype(layer.dtype) for a in first] if first is not None else None
    call = {name: given[name].astype(layer.dtype) for name in names} | ({} if lengths is None else {"lengths": lengths})
    y, last = layer(x.astype(layer.dtype), arrays, **call)
    return [*(y if isinstance(y, tuple) else (y,)), *(last if isinstance(last, tuple) else (last,))]


def twin(layer: anyrnn.Recurrent, dtype: str) -> anyrnn.Recurrent:
    """The same layer in another dtype, run by the interpreter."""
    parameters = {name: array.astype(dtype) for name, array in layer.parameters.items()}
    return anyrnn.Recurrent.of_network(layer.network, parameters, batch_first=layer.batch_first, backend="reference")


def check(
    layer: anyrnn.Recurrent, T: int = 5, N: int = 3, *, states: bool = False, lengths: Any = None, **options: Any
) -> onnx.ModelProto:
    """Export a layer and compare with it: in float32 within the error budget, in float64 to a few units in the last place."""
    model = anyrnn.onnx.export(layer, states=states, lengths=lengths is not None, **options)
    given, first = inputs_of(layer, T, N), states_of(layer, N) if states else None
    more = dict(zip([f"{name}0" for name in layer.network.graph.state_names], first, strict=True)) if first else {}
    feed = {**given, **more} | ({} if lengths is None else {"lengths": np.asarray(lengths, np.int32)})
    found = list(run(model, feed).values())
    reference = results(twin(layer, "float64"), given, first, lengths)
    assert [a.shape for a in found] == [a.shape for a in reference]
    assert {a.dtype for a in found} == {layer.dtype}
    if layer.dtype == np.float64:
        for array, expected in zip(found, reference, strict=True):
            np.testing.assert_allclose(array, expected, rtol=0, atol=1e-13 * max(1.0, np.abs(expected).max()))
    else:
        assert_within_budget(found, results(twin(layer, "float32"), given, first, lengths), reference, layer.network.graph.name)
    return model
