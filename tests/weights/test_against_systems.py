"""The table against the systems, cell by cell: those that are installed, and where there are no golden files either (see
test_golden.py) the equations as the system's documentation has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn import weights
from anyrnn.weights.table import SYSTEMS

T, N, D, H, PROJ = 6, 2, 3, 5, 2
X = np.random.default_rng(2).normal(size=(T, N, D)).astype(np.float32)
NETWORKS = pytest.mark.parametrize(("layers", "both"), [(1, False), (2, False), (2, True)])


def layer_of(cell: str, layers: int = 1, both: bool = False) -> Any:
    sizes = {"proj": PROJ} if cell == "lstm_projected" else {}
    layer = anyrnn.Recurrent(cell, D, H, layers, bidirectional=both, seed=0, backend="reference", **sizes)
    random = np.random.default_rng(1)
    layer.parameters = {name: 0.5 * random.normal(size=a.shape).astype(np.float32) for name, a in layer.parameters.items()}
    return layer


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


TORCH: dict[str, Callable[..., Any]] = {
    "lstm": torch.nn.LSTM,
    "lstm_projected": partial(torch.nn.LSTM, proj_size=PROJ),
    "gru": torch.nn.GRU,
    "rnn_tanh": torch.nn.RNN,
    "rnn_relu": partial(torch.nn.RNN, nonlinearity="relu"),
}


@NETWORKS
@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's, that oneDNN has none
def test_torch(cell: str, layers: int, both: bool) -> None:
    layer = layer_of(cell, layers, both)
    module = TORCH[cell](D, H, layers, bidirectional=both)
    arrays = weights.write("torch", layer.parameters, cell, layers, both)
    assert list(arrays) == list(module.state_dict())
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    agree(module(torch.from_numpy(X))[0].detach(), layer(X)[0])


KERAS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "gru": ("GRU", {"reset_after": True}),
    "gru_before": ("GRU", {"reset_after": False}),
    "rnn_tanh": ("SimpleRNN", {}),
    "rnn_relu": ("SimpleRNN", {"activation": "relu"}),
}


@NETWORKS
@pytest.mark.parametrize("cell", KERAS)
def test_keras(cell: str, layers: int, both: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        keras = pytest.importorskip("keras")
    layer, (kind, options) = layer_of(cell, layers, both), KERAS[cell]
    arrays, y = weights.write("keras", layer.parameters, cell, layers, both), X.transpose(1, 0, 2)
    for k in range(layers):
        of_keras = getattr(keras.layers, kind)(H, return_sequences=True, **options)
        of_keras = keras.layers.Bidirectional(of_keras) if both else of_keras
        of_keras.build(y.shape)
        prefix = f"{k}/" if layers > 1 else ""
        for way in ("forward_layer", "backward_layer") if both else ("",):
            one = getattr(of_keras, way) if way else of_keras
            one.set_weights([arrays[prefix + (f"{way}/" if way else "") + weight.name] for weight in one.weights])
        y = np.asarray(of_keras(y).detach())
    assert len(arrays) == layers * (1 + both) * 3
    agree(y.transpose(1, 0, 2), layer(X)[0])


ONNX: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm_peephole": ("LSTM", {}),
    "gru": ("GRU", {"linear_before_reset": 1}),
    "gru_before": ("GRU", {"linear_before_reset": 0}),
    "rnn_tanh": ("RNN", {}),
    "rnn_relu": ("RNN", {"activations": ["Relu"]}),
}


@NETWORKS
@pytest.mark.parametrize("cell", ONNX)
def test_onnxruntime(cell: str, layers: int, both: bool) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    layer, (kind, attributes) = layer_of(cell, layers, both), ONNX[cell]
    arrays, y = weights.write("onnx", layer.parameters, cell, layers, both), X
    attributes = {name: value * (1 + both) if name == "activations" else value for name, value in attributes.items()}
    for k in range(layers):
        own = {
            name: arrays[f"{k}/{name}" if layers > 1 else name] for name in ("W", "R", "B", *["P"] * (cell == "lstm_peephole"))
        }
        tensors = [numpy_helper.from_array(array, name) for name, array in own.items()]
        inputs = ["x", "W", "R", "B", "", "", *([""] * (kind == "LSTM")), *(["P"] if "P" in own else [])]
        way = "bidirectional" if both else "forward"
        node = helper.make_node(kind, inputs, ["y"], hidden_size=H, direction=way, **attributes)
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * sides) for name, sides in (("x", 3), ("y", 4))]
        graph = helper.make_graph([node], "layer", ends[:1], ends[1:], tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        onnx.checker.check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        y = session.run(None, {"x": y})[0].transpose(0, 2, 1, 3).reshape(T, N, -1)
    agree(y, layer(X)[0])


@pytest.mark.parametrize("both", [False, True])
def test_jax(both: bool) -> None:
    layers = 2
    rnn = pytest.importorskip("jax.experimental.rnn")
    layer = layer_of("lstm", layers, both)
    vector = weights.write("jax", layer.parameters, "lstm", layers, both)["weights"]
    assert vector.shape == (rnn.get_num_params_in_lstm(D, H, layers, both),)
    first = np.zeros((layers * (1 + both), N, H), np.float32)
    parts = rnn.unpack_lstm_weights(vector, D, H, layers, both)
    steps = np.full(N, T, np.int32)
    y, *_ = rnn.lstm_ref(X.transpose(1, 0, 2), first, first, *parts, steps, D, H, layers, 0.0, both)
    agree(np.asarray(y).transpose(1, 0, 2), layer(X)[0])


FLAT = [(system, cell) for system in ("cudnn", "mxnet_fused") for cell in SYSTEMS[system]]


@NETWORKS
@pytest.mark.parametrize(("system", "cell"), FLAT)
def test_flat_vectors_are_the_packed_ones(system: str, cell: str, layers: int, both: bool) -> None:
    layer = layer_of(cell, layers, both)
    (vector,) = weights.write(system, layer.parameters, cell, layers, both).values()
    np.testing.assert_array_equal(vector, weights.pack(layer))


def sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def flux_lstm(x: Any, h: Any, c: Any, Wi: Any, Wh: Any, bias: Any) -> tuple[Any, ...]:
    """Flux.LSTMCell, of columns."""
    input, forget, cell, output = np.split(Wi @ x.T + Wh @ h.T + bias[:, None], 4)
    c = sigmoid(forget) * c.T + sigmoid(input) * np.tanh(cell)
    return (sigmoid(output) * np.tanh(c)).T, c.T


def flux_gru(x: Any, h: Any, Wi: Any, Wh: Any, b: Any) -> tuple[Any, ...]:
    """Flux.GRUCell: the bias of the candidate is not multiplied by the reset gate."""
    gxs, ghs, bs = np.split(Wi @ x.T, 3), np.split(Wh @ h.T, 3), np.split(b[:, None], 3)
    r, z = sigmoid(gxs[0] + ghs[0] + bs[0]), sigmoid(gxs[1] + ghs[1] + bs[1])
    candidate = np.tanh(gxs[2] + r * ghs[2] + bs[2])
    return (((1 - z) * candidate + z * h.T).T,)


def flux_gru3(x: Any, h: Any, Wi: Any, Wh: Any, b: Any, **more: Any) -> tuple[Any, ...]:
    """Flux.GRUv3Cell: the last third of Wh is read by nothing."""
    gxs, ghs, bs = np.split(Wi @ x.T, 3), np.split(Wh @ h.T, 3), np.split(b[:, None], 3)
    r, z = sigmoid(gxs[0] + ghs[0] + bs[0]), sigmoid(gxs[1] + ghs[1] + bs[1])
    candidate = np.tanh(gxs[2] + more["Wh_h̃"] @ (r * h.T) + bs[2])
    return (((1 - z) * candidate + z * h.T).T,)


def flux_rnn(x: Any, h: Any, Wi: Any, Wh: Any, bias: Any, act: Any = np.tanh) -> tuple[Any, ...]:
    """Flux.RNNCell."""
    return (act(Wi @ x.T + Wh @ h.T + bias[:, None]).T,)


def onednn_rnn(x: Any, h: Any, act: Any = np.tanh, **p: Any) -> tuple[Any, ...]:
    """vanilla_rnn."""
    of_x, of_h = onednn_products(x, h, p)
    return (act(of_x[0] + of_h[0] + p["bias"][0]),)


def rectified(a: Any) -> Any:
    return np.maximum(a, 0)


def haste_lstm(x: Any, h: Any, c: Any, kernel: Any, recurrent_kernel: Any, bias: Any) -> tuple[Any, ...]:
    """haste_pytorch.LSTM: i, g, f, o."""
    i, g, f, o = np.split(x @ kernel + h @ recurrent_kernel + bias, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def haste_gru(x: Any, h: Any, kernel: Any, recurrent_kernel: Any, bias: Any, recurrent_bias: Any) -> tuple[Any, ...]:
    """haste_pytorch.GRU: z, r, h."""
    vx, vh = np.split(x @ kernel + bias, 3, axis=1), np.split(h @ recurrent_kernel + recurrent_bias, 3, axis=1)
    z, r = sigmoid(vx[0] + vh[0]), sigmoid(vx[1] + vh[1])
    return (z * h + (1 - z) * np.tanh(vx[2] + r * vh[2]),)


def onednn_products(x: Any, h: Any, p: Any) -> tuple[Any, Any]:
    """Of the input and the state, [gate, N, H]: weights are [feature, gate, H]."""
    return np.einsum("nd,dgh->gnh", x, p["weights_layer"]), np.einsum("nd,dgh->gnh", h, p["weights_iter"])


def onednn_lstm(x: Any, h: Any, c: Any, **p: Any) -> tuple[Any, ...]:
    """vanilla_lstm: i, f, c, o; peepholes i, f, o."""
    of_x, of_h = onednn_products(x, h, p)
    i, f, g, o = of_x + of_h + p["bias"][:, None]
    peepholes = p.get("weights_peephole", np.zeros((3, 1)))
    i, f = sigmoid(i + peepholes[0] * c), sigmoid(f + peepholes[1] * c)
    c = f * c + i * np.tanh(g)
    return sigmoid(o + peepholes[2] * c) * np.tanh(c), c


def onednn_lstmp(x: Any, h: Any, c: Any, **p: Any) -> tuple[Any, ...]:
    """vanilla_lstm with a projection: its weights are [H, features of the projection]."""
    h, c = onednn_lstm(x, h, c, **p)
    return h @ p["weights_projection"], c


def onednn_gru(x: Any, h: Any, **p: Any) -> tuple[Any, ...]:
    """vanilla_gru: u, r, o."""
    of_x, of_h = onednn_products(x, h, p)
    u, r = sigmoid(of_x[0] + of_h[0] + p["bias"][0]), sigmoid(of_x[1] + of_h[1] + p["bias"][1])
    o = np.tanh(of_x[2] + (r * h) @ p["weights_iter"][:, 2] + p["bias"][2])
    return (u * h + (1 - u) * o,)


def onednn_lbr_gru(x: Any, h: Any, **p: Any) -> tuple[Any, ...]:
    """lbr_gru: biases u, r, o, u'."""
    of_x, of_h = onednn_products(x, h, p)
    u, r = sigmoid(of_x[0] + of_h[0] + p["bias"][0]), sigmoid(of_x[1] + of_h[1] + p["bias"][1])
    o = np.tanh(of_x[2] + r * (of_h[2] + p["bias"][3]) + p["bias"][2])
    return (u * h + (1 - u) * o,)


STEPS: dict[tuple[str, str], Callable[..., tuple[Any, ...]]] = {
    ("flux", "lstm"): flux_lstm,
    ("flux", "gru"): flux_gru,
    ("flux", "gru_before"): flux_gru3,
    ("flux", "rnn_tanh"): flux_rnn,
    ("haste", "lstm"): haste_lstm,
    ("haste", "gru"): haste_gru,
    ("onednn", "lstm"): onednn_lstm,
    ("onednn", "lstm_peephole"): onednn_lstm,
    ("onednn", "lstm_projected"): onednn_lstmp,
    ("onednn", "gru_before"): onednn_gru,
    ("onednn", "gru"): onednn_lbr_gru,
    ("onednn", "rnn_tanh"): onednn_rnn,
    ("flux", "rnn_relu"): partial(flux_rnn, act=rectified),
    ("onednn", "rnn_relu"): partial(onednn_rnn, act=rectified),
}


GOLDEN = {tuple(file.stem.split(".")[:2]) for file in (Path(__file__).parent / "golden").glob("*.npz")}


def test_every_row_of_the_table_is_checked() -> None:
    peers = {(system, cell) for system, of_cells in (("torch", TORCH), ("keras", KERAS), ("onnx", ONNX)) for cell in of_cells}
    of_mxnet = {("gluon", "lstm_projected")}  # its arrays, under other names
    checked = {*STEPS, *GOLDEN, *peers, *FLAT, ("jax", "lstm"), *of_mxnet}
    assert checked == {(system, cell) for system, of_cells in SYSTEMS.items() for cell in of_cells}


@pytest.mark.parametrize(("system", "cell"), STEPS)
def test_equations(system: str, cell: str) -> None:
    layer = layer_of(cell)
    if (system, cell) == ("flux", "gru"):
        layer.parameters["bias_hh_l0"][2 * H :] = 0
    parameters = {name.removesuffix("_l0"): array for name, array in layer.parameters.items()}
    arrays = weights.convert(parameters, cell, source="anyrnn", target=system)
    states: tuple[Any, ...] = (np.zeros((N, PROJ if cell == "lstm_projected" else H)),)
    states += (np.zeros((N, H)),) * cell.startswith("lstm")
    for x, y in zip(X, layer(X)[0], strict=True):
        states = STEPS[system, cell](x, *states, **arrays)
        agree(states[0], y)
