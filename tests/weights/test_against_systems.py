"""The table against the systems: those that are installed, and the equations of the others as their documentation has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn import weights
from anyrnn.weights.table import SYSTEMS

T, N, D, H, PROJ = 6, 2, 3, 5, 2
X = np.random.default_rng(2).normal(size=(T, N, D)).astype(np.float32)


def network(cell: str) -> tuple[dict[str, Any], Any]:
    """Parameters of a layer, and what it gives for X."""
    sizes = {"proj": PROJ} if cell == "lstm_projected" else {}
    layer = anyrnn.Recurrent(cell, D, H, seed=0, backend="reference", **sizes)
    random = np.random.default_rng(1)
    layer.parameters = {name: 0.5 * random.normal(size=a.shape).astype(np.float32) for name, a in layer.parameters.items()}
    return {name.removesuffix("_l0"): a for name, a in layer.parameters.items()}, layer(X)[0]


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


TORCH: dict[str, Callable[[], Any]] = {
    "lstm": lambda: torch.nn.LSTM(D, H),
    "lstm_projected": lambda: torch.nn.LSTM(D, H, proj_size=PROJ),
    "gru": lambda: torch.nn.GRU(D, H),
    "rnn_tanh": lambda: torch.nn.RNN(D, H),
    "rnn_relu": lambda: torch.nn.RNN(D, H, nonlinearity="relu"),
}


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's, that oneDNN has none
def test_torch(cell: str) -> None:
    parameters, expected = network(cell)
    module = TORCH[cell]()
    arrays = weights.convert(parameters, cell, source="anyrnn", target="torch")
    module.load_state_dict({f"{name}_l0": torch.from_numpy(array) for name, array in arrays.items()})
    agree(module(torch.from_numpy(X))[0].detach(), expected)


KERAS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "gru": ("GRU", {"reset_after": True}),
    "gru_before": ("GRU", {"reset_after": False}),
    "rnn_tanh": ("SimpleRNN", {}),
    "rnn_relu": ("SimpleRNN", {"activation": "relu"}),
}


@pytest.mark.parametrize("cell", KERAS)
def test_keras(cell: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        keras = pytest.importorskip("keras")
    parameters, expected = network(cell)
    kind, options = KERAS[cell]
    layer = getattr(keras.layers, kind)(H, return_sequences=True, **options)
    layer.build((N, T, D))
    arrays = weights.convert(parameters, cell, source="anyrnn", target="keras")
    assert [w.name for w in layer.weights] == list(arrays)
    layer.set_weights(list(arrays.values()))
    agree(np.asarray(layer(X.transpose(1, 0, 2)).detach()).transpose(1, 0, 2), expected)


ONNX: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm_peephole": ("LSTM", {}),
    "gru": ("GRU", {"linear_before_reset": 1}),
    "gru_before": ("GRU", {"linear_before_reset": 0}),
    "rnn_tanh": ("RNN", {}),
    "rnn_relu": ("RNN", {"activations": ["Relu"]}),
}


@pytest.mark.parametrize("cell", ONNX)
def test_onnxruntime(cell: str) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    parameters, expected = network(cell)
    kind, attributes = ONNX[cell]
    arrays = weights.convert(parameters, cell, source="anyrnn", target="onnx")
    tensors = [numpy_helper.from_array(array[None], name) for name, array in arrays.items()]
    inputs = ["x", "W", "R", "B", "", "", *([""] * (kind == "LSTM")), *(["P"] if "P" in arrays else [])]
    node = helper.make_node(kind, inputs, ["y"], hidden_size=H, **attributes)
    of_x, of_y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * sides) for name, sides in (("x", 3), ("y", 4)))
    graph = helper.make_graph([node], "layer", [of_x], [of_y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    agree(session.run(None, {"x": X})[0][:, 0], expected)


def sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def tf1_lstm(x: Any, h: Any, c: Any, kernel: Any, bias: Any) -> tuple[Any, ...]:
    """tf.nn.rnn_cell.LSTMCell with forget_bias=1."""
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, axis=1)
    c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
    return sigmoid(o) * np.tanh(c), c


def tf1_gru(x: Any, h: Any, **arrays: Any) -> tuple[Any, ...]:
    """tf.nn.rnn_cell.GRUCell."""
    gates = sigmoid(np.concatenate([x, h], 1) @ arrays["gates/kernel"] + arrays["gates/bias"])
    r, u = np.split(gates, 2, axis=1)
    c = np.tanh(np.concatenate([x, r * h], 1) @ arrays["candidate/kernel"] + arrays["candidate/bias"])
    return (u * h + (1 - u) * c,)


def tf1_rnn(x: Any, h: Any, kernel: Any, bias: Any) -> tuple[Any, ...]:
    """tf.nn.rnn_cell.BasicRNNCell."""
    return (np.tanh(np.concatenate([x, h], 1) @ kernel + bias),)


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


def flux_rnn(x: Any, h: Any, Wi: Any, Wh: Any, bias: Any, act: Any = np.tanh) -> tuple[Any, ...]:
    """Flux.RNNCell."""
    return (act(Wi @ x.T + Wh @ h.T + bias[:, None]).T,)


def mxnet_rnn(x: Any, h: Any, act: Any = np.tanh, **p: Any) -> tuple[Any, ...]:
    """gluon.rnn.RNNCell."""
    return (act(x @ p["i2h_weight"].T + p["i2h_bias"] + h @ p["h2h_weight"].T + p["h2h_bias"]),)


def onednn_rnn(x: Any, h: Any, act: Any = np.tanh, **p: Any) -> tuple[Any, ...]:
    """vanilla_rnn."""
    of_x, of_h = onednn_products(x, h, p)
    return (act(of_x[0] + of_h[0] + p["bias"][0]),)


def rectified(a: Any) -> Any:
    return np.maximum(a, 0)


def flax_dense(name: str, a: Any, p: Any) -> Any:
    """flax.linen.Dense."""
    return a @ p[f"{name}/kernel"] + p.get(f"{name}/bias", 0)


def flax_lstm(x: Any, h: Any, c: Any, **p: Any) -> tuple[Any, ...]:
    """flax.linen.LSTMCell: the modules of the state have the biases."""
    i, f, o = (sigmoid(flax_dense(f"i{k}", x, p) + flax_dense(f"h{k}", h, p)) for k in "ifo")
    c = f * c + i * np.tanh(flax_dense("ig", x, p) + flax_dense("hg", h, p))
    return o * np.tanh(c), c


def flax_gru(x: Any, h: Any, **p: Any) -> tuple[Any, ...]:
    """flax.linen.GRUCell: the modules of the input have the biases, and hn."""
    r, z = (sigmoid(flax_dense(f"i{k}", x, p) + flax_dense(f"h{k}", h, p)) for k in "rz")
    n = np.tanh(flax_dense("in", x, p) + r * flax_dense("hn", h, p))
    return ((1 - z) * n + z * h,)


def flax_rnn(x: Any, h: Any, **p: Any) -> tuple[Any, ...]:
    """flax.linen.SimpleCell."""
    return (np.tanh(flax_dense("i", x, p) + flax_dense("h", h, p)),)


def equinox_lstm(x: Any, h: Any, c: Any, **p: Any) -> tuple[Any, ...]:
    """equinox.nn.LSTMCell."""
    i, f, g, o = np.split(x @ p["weight_ih"].T + h @ p["weight_hh"].T + p["bias"], 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def equinox_gru(x: Any, h: Any, **p: Any) -> tuple[Any, ...]:
    """equinox.nn.GRUCell."""
    igates, hgates = np.split(x @ p["weight_ih"].T + p["bias"], 3, axis=1), np.split(h @ p["weight_hh"].T, 3, axis=1)
    reset, inp = sigmoid(igates[0] + hgates[0]), sigmoid(igates[1] + hgates[1])
    new = np.tanh(igates[2] + reset * (hgates[2] + p["bias_n"]))
    return (new + inp * (h - new),)


def mxnet_lstm(x: Any, h: Any, c: Any, **p: Any) -> tuple[Any, ...]:
    """gluon.rnn.LSTMCell."""
    i2h, h2h = x @ p["i2h_weight"].T + p["i2h_bias"], h @ p["h2h_weight"].T + p["h2h_bias"]
    i, f, c2, o = np.split(i2h + h2h, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(c2)
    return sigmoid(o) * np.tanh(c), c


def mxnet_gru(x: Any, h: Any, **p: Any) -> tuple[Any, ...]:
    """gluon.rnn.GRUCell."""
    i2h_r, i2h_z, i2h = np.split(x @ p["i2h_weight"].T + p["i2h_bias"], 3, axis=1)
    h2h_r, h2h_z, h2h = np.split(h @ p["h2h_weight"].T + p["h2h_bias"], 3, axis=1)
    r, z = sigmoid(i2h_r + h2h_r), sigmoid(i2h_z + h2h_z)
    return ((1 - z) * np.tanh(i2h + r * h2h) + z * h,)


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
    ("tf1", "lstm"): tf1_lstm,
    ("tf1", "gru_before"): tf1_gru,
    ("tf1", "rnn_tanh"): tf1_rnn,
    ("flux", "lstm"): flux_lstm,
    ("flux", "gru"): flux_gru,
    ("flux", "rnn_tanh"): flux_rnn,
    ("mxnet", "lstm"): mxnet_lstm,
    ("mxnet", "gru"): mxnet_gru,
    ("haste", "lstm"): haste_lstm,
    ("haste", "gru"): haste_gru,
    ("onednn", "lstm"): onednn_lstm,
    ("onednn", "lstm_peephole"): onednn_lstm,
    ("onednn", "gru_before"): onednn_gru,
    ("onednn", "gru"): onednn_lbr_gru,
    ("flax", "lstm"): flax_lstm,
    ("flax", "gru"): flax_gru,
    ("flax", "rnn_tanh"): flax_rnn,
    ("equinox", "lstm"): equinox_lstm,
    ("equinox", "gru"): equinox_gru,
    ("mxnet", "rnn_tanh"): mxnet_rnn,
    ("onednn", "rnn_tanh"): onednn_rnn,
    ("flux", "rnn_relu"): partial(flux_rnn, act=rectified),
    ("mxnet", "rnn_relu"): partial(mxnet_rnn, act=rectified),
    ("onednn", "rnn_relu"): partial(onednn_rnn, act=rectified),
}


def test_every_row_of_the_table_is_checked() -> None:
    peers = {"torch": TORCH, "keras": KERAS, "onnx": ONNX}
    checked = {*STEPS, *((system, cell) for system, of_cells in peers.items() for cell in of_cells)}
    assert checked == {(system, cell) for system, of_cells in SYSTEMS.items() for cell in of_cells}


@pytest.mark.parametrize(("system", "cell"), STEPS)
def test_equations(system: str, cell: str) -> None:
    parameters, expected = network(cell)
    if (system, cell) == ("flux", "gru"):
        parameters["bias_hh"][2 * H :] = 0
        layer = anyrnn.Recurrent(cell, D, H, backend="reference")
        layer.parameters = {f"{name}_l0": array for name, array in parameters.items()}
        expected = layer(X)[0]
    arrays = weights.convert(parameters, cell, source="anyrnn", target=system)
    states: tuple[Any, ...] = (np.zeros((N, H)),) * (2 if cell.startswith("lstm") else 1)
    for x, y in zip(X, expected, strict=True):
        states = STEPS[system, cell](x, *states, **arrays)
        agree(states[0], y)
