"""Cells that compute what ONNX's recurrent operators do become their nodes, whatever they are called; others do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import anyrnn
from anyrnn import State, affine, cell, maximum, minimum, relu, sigmoid, tanh, vector, where
from tests.onnx.exported import check, recurrent, run


@cell
def gru_by_other_names(x, s):
    update = sigmoid(affine("u", s, x))
    reset = sigmoid(affine("r", s, x))
    candidate = tanh(reset * affine("k", s) + affine("k", x, bias=False))
    s = update * s + candidate * (1 - update)
    return s, State(s=s)


@cell
def lstm_in_another_order(x, memory, out):
    o = sigmoid(affine("o", x, out))
    i = sigmoid(affine("i", out) + affine("i", x))
    f = sigmoid(affine("f", x, out))
    memory = tanh(affine("new", x, out)) * i + memory * f
    out = tanh(memory) * o
    return out, State(memory=memory, out=out)


@cell
def gru_with_hard_gates(x, h, *, slope=0.3):
    r = maximum(minimum(slope * affine("r", x, h) + 0.5, 1.0), 0.0)
    z = maximum(minimum(slope * affine("z", x, h) + 0.5, 1.0), 0.0)
    n = affine("n", x, h=r * h)
    n = where(n < 0, 0.125 * n, n)
    h = (1 - z) * n + z * h
    return h, State(h=h)


@cell
def lstm_of_computed_weights(x, h, c):
    gain = vector("gain", init=0.5)
    i, f = (sigmoid(affine(g, x, h) + gain * gain * c) for g in "if")
    g = affine("g", x, h) + vector("shift")
    c = f * c + i * (g / (1 + abs(g)))
    h = sigmoid(affine("o", x, h) + vector("see_o") * vector("twice") * c) * relu(c)
    return h, State(h=h, c=c)


@cell
def clipped_lstm(x, h, c, *, bound=0.25):
    def within(v: Any) -> Any:
        return maximum(minimum(v, bound), -bound)

    i, f, o = (sigmoid(within(affine(g, x, h))) for g in "ifo")
    c = f * c + i * tanh(within(affine("g", x, h)))
    h = o * tanh(c)
    return h, State(h=h, c=c)


ARE = {
    gru_by_other_names: ("GRU", {"linear_before_reset": 1}),
    lstm_in_another_order: ("LSTM", {}),
    gru_with_hard_gates: (
        "GRU",
        {"activations": [b"HardSigmoid", b"LeakyRelu"], "activation_alpha": [0.3, 0.125], "activation_beta": [0.5]},
    ),
    lstm_of_computed_weights: ("LSTM", {"activations": [b"Sigmoid", b"Softsign", b"Relu"]}),
    clipped_lstm: ("LSTM", {"clip": 0.25}),
}


@pytest.mark.parametrize("of", list(ARE), ids=lambda of: of.name)
def test_a_cell_that_computes_the_same_is_a_node(of: Any) -> None:
    op, expected = ARE[of]
    model = check(anyrnn.Recurrent(of, 3, 5, seed=0), states=True)
    assert recurrent(model) == [op]
    (node,) = [n for n in model.graph.node if n.op_type == op]
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name not in ("direction", "hidden_size")}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (pytest.approx(value) if name in ("activation_alpha", "activation_beta", "clip") else value)
    check(anyrnn.Recurrent(of, 3, 5, 2, bidirectional=True, seed=0), lengths=[5, 0, 2])


@cell
def last_gate_reads_the_old_memory(x, h, c):
    i, f, o = (sigmoid(affine(g, x, h) + vector(f"see_{g}") * c) for g in "ifo")
    c = f * c + i * tanh(affine("g", x, h))
    h = o * tanh(c)
    return h, State(h=h, c=c)


@cell
def lstm_of_two_gains(x, h, c):
    i, f = (sigmoid(affine(g, x, h) + vector(f"see_{g}") * c) for g in "if")
    c = f * c + i * tanh(vector("gain") * affine("g", x, h))
    h = sigmoid(affine("o", x, h) + vector("see_o") * c) * tanh(c)
    return h, State(h=h, c=c)


@cell
def gives_its_memory(x, h, c):
    i, f, o = (sigmoid(affine(g, x, h)) for g in "ifo")
    c = f * c + i * tanh(affine("g", x, h))
    return c, State(h=o * tanh(c), c=c)


@cell
def one_gate_is_clipped(x, h):
    r = sigmoid(maximum(minimum(affine("r", x, h), 1.0), -1.0))
    z = sigmoid(affine("z", x, h))
    h = (1 - z) * tanh(affine("n", x, h=r * h)) + z * h
    return h, State(h=h)


@cell
def candidate_is_not_clipped(x, h):
    r = sigmoid(maximum(minimum(affine("r", x, h), 0.25), -0.25))
    z = sigmoid(maximum(minimum(affine("z", x, h), 0.25), -0.25))
    h = (1 - z) * tanh(affine("n", x, h=r * h)) + z * h
    return h, State(h=h)


@cell
def memory_is_clipped(x, h, c):
    i, f, o = (sigmoid(affine(g, x, h)) for g in "ifo")
    c = f * c + i * tanh(affine("g", x, h))
    h = o * tanh(maximum(minimum(c, 0.0625), -0.0625))
    return h, State(h=h, c=c)


@cell
def keeps_half_of_its_memory(x, h, c):
    i, f, o = (sigmoid(affine(g, x, h)) for g in "ifo")
    c = f * c + i * tanh(affine("g", x, h))
    h = o * tanh(c)
    return h, State(h=h, c=0.5 * c)


@cell
def bounds_that_differ(x, h):
    h = tanh(maximum(minimum(affine("h", x, h), 0.5), -0.25))
    return h, State(h=h)


@cell
def gates_of_two_functions(x, h):
    r = sigmoid(affine("r", x, h))
    z = tanh(affine("z", x, h))
    h = (1 - z) * tanh(affine("n", x, h=r * h)) + z * h
    return h, State(h=h)


@cell
def learned_slope(x, h):
    v = affine("h", x, h)
    h = where(v < 0, anyrnn.scalar("slope") * v, v)
    return h, State(h=h)


@cell
def the_wrong_way_round(x, h):
    z = sigmoid(affine("z", x, h))
    h = z * tanh(affine("n", x, h)) + z * h
    return h, State(h=h)


ARE_NOT = [
    last_gate_reads_the_old_memory, gives_its_memory, keeps_half_of_its_memory, one_gate_is_clipped, candidate_is_not_clipped,
    memory_is_clipped, bounds_that_differ, gates_of_two_functions, learned_slope, the_wrong_way_round, lstm_of_two_gains,
]  # fmt: skip


@pytest.mark.parametrize("of", ARE_NOT, ids=lambda of: of.name)
def test_a_cell_that_computes_something_else_is_a_loop(of: Any) -> None:
    assert recurrent(check(anyrnn.Recurrent(of, 5, 5, seed=0))) == ["Scan"]


@pytest.mark.parametrize(("option", "op"), [
    ({"clip_preactivation": 0.25}, "LSTM"),
    ({"activations": {"tanh": "softplus"}}, "Scan"),
    ({"activations": {"tanh": "relu", "sigmoid": "tanh"}, "clip_preactivation": 0.25}, "LSTM"),
    ({"clip_state": 0.25}, "Scan"),
    ({"zoneout": 0.25}, "Scan"),
    ({"skip_input": True}, "Scan"),
])  # fmt: skip
def test_options_change_what_a_cell_computes(option: dict[str, Any], op: str) -> None:
    assert recurrent(check(anyrnn.Recurrent("lstm", 5, 5, seed=0, **option))) == [op]


def test_a_softplus_of_large_numbers_is_finite() -> None:
    """onnxruntime's nodes compute it as log(1 + exp(v))."""
    layer = anyrnn.Recurrent("rnn_tanh", 1, 1, activations={"tanh": "softplus"}, seed=0)
    layer.parameters = {n: np.ones_like(a) if n == "weight_ih_l0" else 0 * a for n, a in layer.parameters.items()}
    x = np.full((1, 1, 1), 100, np.float32)
    (found,) = list(run(anyrnn.onnx.export(layer), {"x": x}).values())[:1]
    assert found.ravel() == layer(x)[0].ravel() == 100
    assert recurrent(anyrnn.onnx.export(layer, nodes="standard")) == ["RNN"]
