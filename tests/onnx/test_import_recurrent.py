"""RNN, GRU and LSTM nodes with every attribute, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyrnn.backends
from anyrnn.onnx import reading
from tests.onnx.import_models import one_node, onnxruntime_gives, weights

T, N, D, H = 6, 3, 2, 5
OPS = ("RNN", "GRU", "LSTM")
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
KINDS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softsign", "Softplus")
WITHOUT = ("Affine", "ScaledTanh", "ThresholdedRelu")
"""Those whose numbers are not the same in ONNX's text and in onnxruntime unless they are given."""


@pytest.fixture(params=["interpreted", "native"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most combinations run interpreted; a kernel for each would take minutes."""
    if request.param == "interpreted":
        monkeypatch.setattr(anyrnn.backends, "why_not_native", lambda *_: "a test")
    else:
        monkeypatch.setattr("anyrnn.backends.llvm.target.OPTIMISATION", 0)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyrnn.backends, "why_not_native", lambda *_: "a test")


def given(op: str, direction: str, *more: str, seed: int = 1) -> dict[str, Any]:
    """Inputs of calls: X, and what is named."""
    random, s = np.random.default_rng(seed), DIRECTIONS[direction]
    arrays = {
        "X": random.normal(size=(T, N, D)).astype(np.float32),
        "sequence_lens": np.array([4, T, 1], np.int32),
        "initial_h": random.normal(size=(s, N, H)).astype(np.float32),
        "initial_c": random.normal(size=(s, N, H)).astype(np.float32),
    }
    return {name: arrays[name] for name in ("X", *more) if name != "initial_c" or op == "LSTM"}


def assert_same(op: str, inputs: dict[str, Any], constants: dict[str, Any], opset: int = 14, **attributes: Any) -> None:
    made = one_node(op, inputs, constants, opset, **attributes)
    wanted = onnxruntime_gives(made, inputs)
    found = reading.read(made.SerializeToString()).run(inputs)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", OPS)
def test_directions_lengths_and_states(op: str, direction: str) -> None:
    inputs = given(op, direction, "sequence_lens", "initial_h", "initial_c")
    assert_same(op, inputs, weights(op, DIRECTIONS[direction], D, H), direction=direction)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "more", [(), ("initial_h",), ("initial_c",), ("sequence_lens",)], ids=lambda more: "".join(more) or "none"
)
@pytest.mark.parametrize("bias", [True, False])
def test_optional_inputs_may_be_missing(op: str, more: tuple[str, ...], bias: bool) -> None:
    assert_same(op, given(op, "bidirectional", *more), weights(op, 2, D, H, bias=bias), direction="bidirectional")


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("op", OPS)
def test_a_clip_is_of_what_functions_of_gates_get(op: str) -> None:
    inputs = given(op, "forward", "initial_h", "initial_c")
    if op == "LSTM":
        inputs["initial_c"] *= 5  # beyond the clip, which is not for it
    assert_same(op, inputs, weights(op, 1, D, H), clip=0.4)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("clip", [None, 0.4])
def test_the_reset_of_a_gru_is_before_or_after_the_product(direction: str, after: int, clip: float | None) -> None:
    more = {} if clip is None else {"clip": clip}
    constants = weights("GRU", DIRECTIONS[direction], D, H)
    assert_same("GRU", given("GRU", direction), constants, direction=direction, linear_before_reset=after, **more)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("coupled", [0, 1])
@pytest.mark.parametrize("functions", [None, ["Sigmoid", "Softsign", "LeakyRelu"]])
def test_peepholes_coupled_gates_and_functions_combine(peepholes: bool, coupled: int, functions: list[str] | None) -> None:
    constants = weights("LSTM", 2, D, H)
    if peepholes:
        constants["P"] = np.random.default_rng(5).normal(size=(2, 3 * H)).astype(np.float32)
    more: dict[str, Any] = {"clip": 0.7, "activations": functions * 2} if functions else {}
    inputs = given("LSTM", "bidirectional", "initial_c")
    assert_same("LSTM", inputs, constants, direction="bidirectional", input_forget=coupled, **more)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", KINDS + WITHOUT)
def test_every_function_can_be_everywhere(op: str, kind: str) -> None:
    inputs, constants = given(op, "forward"), weights(op, 1, D, H)
    for place in range(FUNCTIONS[op]):
        names = ["Sigmoid", "Tanh", "Tanh"][: FUNCTIONS[op]] if op != "RNN" else ["Tanh"]
        names[place] = kind
        assert_same(op, inputs, constants, activations=names, activation_alpha=[0.7], activation_beta=[0.3])


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("kind", KINDS)
def test_functions_have_their_usual_numbers(kind: str) -> None:
    assert_same("RNN", given("RNN", "forward"), weights("RNN", 1, D, H), activations=[kind])


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_function_without_usual_numbers_needs_them(kind: str) -> None:
    made = one_node("RNN", given("RNN", "forward"), weights("RNN", 1, D, H), activations=[kind])
    with pytest.raises(ValueError, match=rf"RNN node 'the_rnn_0': activation '{kind}' .* activation_alpha should be given"):
        reading.read(made)


@pytest.mark.usefixtures("interpreted")
def test_numbers_go_to_the_functions_that_have_some() -> None:
    inputs, constants = given("GRU", "bidirectional"), weights("GRU", 2, D, H)
    names = ["Sigmoid", "LeakyRelu", "HardSigmoid", "ScaledTanh"]
    more = {"activation_alpha": [0.3, 0.4, 0.9], "activation_beta": [0.2, 0.6]}
    assert_same("GRU", inputs, constants, direction="bidirectional", activations=names, **more)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
def test_directions_may_have_functions_of_their_own(op: str) -> None:
    names = ["Sigmoid", "Tanh", "Tanh"][-FUNCTIONS[op] :] + ["HardSigmoid", "Relu", "Softsign"][-FUNCTIONS[op] :]
    inputs = given(op, "bidirectional", "sequence_lens", "initial_h", "initial_c")
    assert_same(op, inputs, weights(op, 2, D, H), direction="bidirectional", activations=names)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_layout_of_one_has_samples_first(op: str, direction: str) -> None:
    """onnxruntime has none; the same numbers with steps first are what it should give."""
    inputs = given(op, direction, "sequence_lens", "initial_h", "initial_c")
    constants = weights(op, DIRECTIONS[direction], D, H)
    wanted = onnxruntime_gives(one_node(op, inputs, constants, direction=direction), inputs)
    turned = {name: np.ascontiguousarray(a.swapaxes(0, 1)) if a.ndim == 3 else a for name, a in inputs.items()}
    found = reading.read(one_node(op, turned, constants, direction=direction, layout=1)).run(turned)
    np.testing.assert_allclose(found["Y"], wanted["Y"].transpose(2, 0, 1, 3), rtol=2e-5, atol=2e-6)
    for state in ("Y_h", "Y_c")[: len(found) - 1]:
        np.testing.assert_allclose(found[state], wanted[state].swapaxes(0, 1), rtol=2e-5, atol=2e-6)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("opset", [7, 11, 14, 22])
def test_versions_of_the_operators_mean_the_same(op: str, opset: int) -> None:
    assert_same(op, given(op, "reverse", "initial_h"), weights(op, 1, D, H), opset, direction="reverse")


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("op", "direction"), [("GRU", "foward"), ("LSTM", "forward")])
def test_the_first_version_of_the_operators_is_read(op: str, direction: str) -> None:
    """Its GRU spells its default as it does, and an attribute says what is read of a node."""
    inputs, constants = given(op, "forward"), weights(op, 1, D, H)
    wanted = onnxruntime_gives(one_node(op, inputs, constants), inputs)
    found = reading.read(one_node(op, inputs, constants, 1, direction=direction, output_sequence=1)).run(inputs)
    np.testing.assert_allclose(found["Y"], wanted["Y"], rtol=2e-5, atol=2e-6)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("op", OPS)
def test_float64_is_computed_in_float64(op: str) -> None:
    constants = weights(op, 2, D, H, dtype="float64")
    inputs = {"X": np.random.default_rng(0).normal(size=(T, N, D))}
    made = reading.read(one_node(op, inputs, constants, direction="bidirectional"))
    found = made.run(inputs)
    small = {name: array.astype(np.float32) for name, array in (constants | inputs).items()}
    x = {"X": small.pop("X")}
    wanted = onnxruntime_gives(one_node(op, x, small, direction="bidirectional"), x)
    assert found["Y"].dtype == np.float64
    np.testing.assert_allclose(found["Y"], wanted["Y"], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
def test_states_that_all_samples_share_may_be_constant(op: str) -> None:
    random, inputs = np.random.default_rng(3), given(op, "bidirectional")
    first = np.repeat(random.normal(size=(2, 1, H)).astype(np.float32), N, 1)
    constants = weights(op, 2, D, H) | {"initial_h": first}
    assert_same(op, inputs, constants, direction="bidirectional")
    constants["initial_h"] = first + np.arange(N, dtype=np.float32)[:, None]
    with pytest.raises(ValueError, match="initial_h is constant, and not the same for all samples"):
        reading.read(one_node(op, inputs, constants, direction="bidirectional"))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
def test_lengths_may_be_constant(op: str) -> None:
    constants = weights(op, 1, D, H) | {"sequence_lens": np.array([4, T, 1], np.int32)}
    assert_same(op, given(op, "reverse"), constants, direction="reverse")


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_samples_without_steps_have_states_of_zero(op: str, direction: str) -> None:
    inputs = given(op, direction, "sequence_lens", "initial_h", "initial_c") | {"sequence_lens": np.array([0, T, 1], np.int32)}
    assert_same(op, inputs, weights(op, DIRECTIONS[direction], D, H), direction=direction)


def test_lengths_beyond_the_steps_are_refused() -> None:
    inputs = given("GRU", "forward", "sequence_lens")
    made = reading.read(one_node("GRU", inputs, weights("GRU", 1, D, H)))
    inputs["sequence_lens"] = np.array([4, T + 1, 1], np.int32)
    with pytest.raises(ValueError, match=r"sequence_lens should be 3 lengths from 0 to 6, got \[4, 7, 1\]"):
        made.run(inputs)


@pytest.mark.usefixtures("interpreted")
def test_weights_may_be_given_with_the_call_that_reads() -> None:
    inputs, constants = given("LSTM", "forward"), weights("LSTM", 1, D, H)
    made = one_node("LSTM", inputs | constants, constants)
    for name in list(constants):
        made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == name))
    assert reading.weight_inputs(made) == ["W", "R", "B"]
    with pytest.raises(ValueError, match="inputs W, R, B are weights of recurrent nodes: give them as `weights`"):
        reading.read(made)
    wanted = onnxruntime_gives(one_node("LSTM", inputs, constants), inputs)
    np.testing.assert_allclose(reading.read(made, constants).run(inputs)["Y"], wanted["Y"], rtol=2e-5, atol=2e-6)
    with pytest.raises(ValueError, match="weights: the model has no input 'V'"):
        reading.read(made, {"V": constants["W"]})


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"direction": "sideways"}, "direction should be forward, reverse or bidirectional, got 'sideways'"),
        ({"layout": 2}, "layout should be 0 or 1, got 2"),
        ({"activations": ["Tanh"]}, "expected 3 activations, got 1"),
        ({"activations": ["Tanh", "Swish", "Tanh"]}, "activations should be among affine, .*, got 'Swish'"),
        ({"clip": -1.0}, "clip should be above 0, got -1.0"),
        ({"clip": float("nan")}, "attribute 'clip' should be finite"),
        ({"input_forget": 7}, "input_forget should be 0 or 1, got 7"),
        ({"hidden_size": 4}, "its weights have 2 inputs and 5 hidden features, hidden_size is 4"),
        ({"hidden_size": "5"}, "attribute 'hidden_size' should be of type INT, got STRING"),
        ({"linear_before_reset": 1}, "it has no attribute 'linear_before_reset'; it has activation_alpha, .*"),
        ({"direction": "bidirectional"}, r"W should have shape \(2, 20, 2\), got \(1, 20, 2\)"),
    ],
)
def test_a_node_that_cannot_be_is_named(attributes: dict[str, Any], message: str) -> None:
    made = one_node("LSTM", given("LSTM", "forward"), weights("LSTM", 1, D, H), **attributes)
    with pytest.raises(ValueError, match=rf"LSTM node 'the_lstm_0': .*{message}"):
        reading.read(made)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("W", np.ones((1, 15, D), np.float16), "weights should be float32 or float64, got float16"),
        ("R", np.ones((1, 15, H)), "weights should be float32, as those of the nodes before, got float64"),
        ("B", np.ones((1, 7), np.float32), r"B should have shape \(1, 30\), got \(1, 7\)"),
        ("W", np.ones((15, D), np.float32), "W and R should have 3 axes"),
        ("initial_h", np.ones((1, N), np.float32), "initial_h should have 3 axes"),
        ("initial_h", np.ones((1, N, H + 1), np.float32), "initial_h should be of 1 directions and 5 features"),
        ("sequence_lens", np.ones((N, 1), np.int32), "sequence_lens should have one axis"),
        ("sequence_lens", np.ones((N,), np.float32), "sequence_lens should be integers"),
    ],
)
def test_arrays_that_do_not_fit_are_named(name: str, array: Any, message: str) -> None:
    made = one_node("GRU", given("GRU", "forward"), weights("GRU", 1, D, H) | {name: array})
    with pytest.raises(ValueError, match=rf"GRU node 'the_gru_0': {message}"):
        reading.read(made)
