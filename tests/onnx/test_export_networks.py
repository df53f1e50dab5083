"""Networks of the runtime as ONNX models: onnxruntime gives what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.onnx
import anyrnn.torch
from anyrnn import State, Vec, apply, cell, exp, runtime, softplus
from anyrnn.onnx.writing_layers import FUNCTIONS, LAYERS
from anyrnn.runtime.functions import FUNCTIONS as RUNTIME_FUNCTIONS
from anyrnn.runtime.layers import LAYERS as RUNTIME_LAYERS
from tests.onnx.exported import recurrent, run, session

RANDOM = np.random.default_rng(0)
LENGTHS = [6, 0, 3]


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, np.dtype[Any]]:
    return RANDOM.normal(size=shape).astype(dtype)


def check(network: runtime.Network, given: dict[str, Any], lengths: Any = None, states: bool = False, **options: Any) -> Any:
    model = anyrnn.onnx.export(network, lengths=lengths is not None, states=states, **options)
    feed, before = dict(given), None
    if states:
        before = network.initial_state(3)
        for state in before.values():
            for array in state.arrays:
                array += normal(*array.shape, dtype=array.dtype) / 2
        feed |= {f"{of}_{n}0": a for of, s in before.items() for n, a in zip(s.names, s.arrays, strict=True)}
    if lengths is not None:
        feed["lengths"] = np.array(lengths, np.int32)
    found = run(model, feed)
    output, after = network.run(given, before, lengths=lengths)
    expected = output if isinstance(output, dict) else dict.fromkeys(network.outputs, output)
    expected = expected | {f"{of}_{n}_n": a for of, s in after.items() for n, a in zip(s.names, s.arrays, strict=True)}
    assert found.keys() == expected.keys()
    tolerance = 2e-6 if network.dtype == np.float32 else 1e-13
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
        assert found[name].dtype == array.dtype
    return model


def whole(dtype: Any, batch_first: bool) -> runtime.Network:
    """One with a layer of every kind."""

    def layer(cell: str, inputs: int, hidden: int, **options: Any) -> anyrnn.Recurrent:
        return anyrnn.Recurrent(cell, inputs, hidden, seed=0, dtype=dtype, **options)

    layers = [
        runtime.Embedding("words", ["tokens"], normal(9, 4, dtype=dtype)),
        runtime.Concatenate("both", ["words", "x"]),
        runtime.Recurrent.of("lstm", ["both"], layer("lstm", 7, 5, num_layers=2, bidirectional=True)),
        runtime.LayerNorm("norm", ["lstm"], normal(10, dtype=dtype), normal(10, dtype=dtype), epsilon=1e-3),
        runtime.Recurrent.of("mgu", ["norm"], layer("mgu", 10, 5, bidirectional=True)),
        runtime.Add("sum", ["norm", "mgu"]),
        runtime.Multiply("product", ["sum", "mgu", "lstm"]),
        runtime.elementwise("scaled", "product", 10, lambda v, a: exp(-abs(v)) * a, a=normal(10, dtype=dtype)),
        runtime.AttentionAverage("average", ["scaled"], normal(10, dtype=dtype), epsilon=1e-3),
        runtime.Last("last", ["sum"]),
        runtime.Mean("mean", ["product"]),
        runtime.Max("max", ["product"]),
        runtime.Recurrent.of("ends", ["norm"], layer("gru", 10, 3, bidirectional=True), last=True),
        runtime.Recurrent.of("end", ["norm"], layer("indrnn", 10, 3), last=True),
        runtime.Masked("there", ["sum"]),
        runtime.Concatenate("all", ["average", "last", "mean", "max", "ends", "end"]),
        runtime.elementwise("of_samples", "all", 49, lambda v: v * v),
        runtime.Dense("dense", ["of_samples"], normal(6, 49, dtype=dtype) / 7, normal(6, dtype=dtype)),
        runtime.Activation("probabilities", ["dense"], "softmax"),
        runtime.Dense("steps", ["product"], normal(2, 10, dtype=dtype), normal(2, dtype=dtype)),
    ]
    inputs = [runtime.Input("tokens", None), runtime.Input("x", 3)]
    return runtime.Network(inputs, layers, ["probabilities", "steps", "lstm"], batch_first=batch_first)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_network_of_all_kinds_of_layers_runs_in_onnxruntime(dtype: Any, batch_first: bool) -> None:
    network = whole(dtype, batch_first)
    assert {layer.kind for layer in network.layers} == set(LAYERS) - {"flatten"}  # whose samples have no lengths
    assert set(LAYERS) == set(RUNTIME_LAYERS)
    sides = (3, 6) if batch_first else (6, 3)
    given = {"tokens": RANDOM.integers(9, size=sides), "x": normal(*sides, 3, dtype=dtype)}
    check(network, given)
    model = check(network, given, LENGTHS, states=True)
    standard = {"LSTM", "GRU"} if dtype == np.float32 else set()
    assert set(recurrent(model)) == {*standard, "Scan"}


@pytest.mark.parametrize("opset", [15, 18, 21])
def test_networks_are_written_in_the_opset_that_is_asked_for(opset: int) -> None:
    given = {"tokens": RANDOM.integers(9, size=(6, 3)), "x": normal(6, 3, 3)}
    check(whole(np.float32, False), given, LENGTHS, opset=opset)


@pytest.mark.parametrize(("dtype", "opset"), [(np.float32, 18), (np.float64, 15), (np.float64, 18), (np.float64, 22)])
@pytest.mark.parametrize("function", sorted(RUNTIME_FUNCTIONS))
def test_every_activation_runs_in_onnxruntime(function: str, dtype: Any, opset: int) -> None:
    assert sorted(FUNCTIONS) == sorted(RUNTIME_FUNCTIONS)
    weight = np.eye(4, dtype=dtype)
    network = runtime.Network(4, [runtime.Dense("d", ["x"], weight), runtime.Activation("y", ["d"], function)])
    check(network, {"x": 3 * normal(6, 3, 4, dtype=dtype)}, opset=opset)


@pytest.mark.parametrize("opset", [15, 18, 22])
def test_the_softplus_of_a_cell_is_exact_in_float64(opset: int) -> None:
    @cell
    def plus(x: Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
        h = softplus(x)
        return h, State(h=h)

    x = np.array([-800.0, -40.0, -1e-9, 0.0, 1e-9, 30.0, 800.0]).reshape(-1, 1, 1)
    found = session(anyrnn.onnx.export(anyrnn.Recurrent(plus, 1, 1, dtype="float64"), opset=opset)).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, np.logaddexp(0, x), rtol=1e-14, atol=0)


def test_what_stands_beyond_the_lengths_has_no_effect() -> None:
    tokens, x = RANDOM.integers(9, size=(6, 3)), normal(6, 3, 3)
    for sample, length in enumerate(LENGTHS):
        tokens[length:, sample], x[length:, sample] = 1000, np.nan
    check(whole(np.float32, False), {"tokens": tokens, "x": x}, LENGTHS)


def test_the_average_of_no_steps_is_zero() -> None:
    network = runtime.Network(4, [runtime.AttentionAverage("y", ["x"], normal(4))])
    check(network, {"x": normal(6, 3, 4)}, LENGTHS)


def test_an_input_may_be_an_output_and_a_value_two_of_them() -> None:
    layers = [runtime.Concatenate("twice", ["x"]), runtime.Concatenate("again", ["twice"])]
    network, x = runtime.Network(4, layers, ["x", "twice", "again"]), normal(6, 3, 4)
    found = run(anyrnn.onnx.export(network, output_names=["same", "twice", "again"]), {"x": x})
    for array in found.values():
        np.testing.assert_array_equal(array, x)


def test_a_value_that_is_read_again_may_be_an_output() -> None:
    dense = runtime.Dense("dense", ["x"], normal(3, 4))
    layers = [dense, runtime.Concatenate("same", ["dense"]), runtime.Activation("y", ["dense"], "tanh")]
    check(runtime.Network(4, layers, ["dense", "same", "y"]), {"x": normal(6, 3, 4)})


def test_a_layer_whose_name_has_braces() -> None:
    layer = runtime.Recurrent.of("a{b}", "x", anyrnn.Recurrent("gru", 3, 4, seed=0))
    model = anyrnn.onnx.export(runtime.Network(3, [layer]), states=True)
    assert {"a{b}_h0"} < {i.name for i in model.graph.input}
    assert "a{b}_h_n" in {o.name for o in model.graph.output}


def test_last_steps_of_merged_directions_are_refused() -> None:
    layer = anyrnn.Recurrent("gru", 3, 4, bidirectional=True, merge="mean")
    network = runtime.Network(3, [runtime.Recurrent.of("rnn", "x", layer, last=True)])
    with pytest.raises(anyrnn.UnsupportedError, match=r"export: rnn gives the last steps of two directions that are made one"):
        anyrnn.onnx.export(network)


def test_what_reads_all_steps_at_once_is_written_for_so_many() -> None:
    network = runtime.Network(
        3, [runtime.Flatten("flat", "x", 4), runtime.Dense("dense", "flat", normal(2, 12))], batch_first=True
    )
    model = check(network, {"x": normal(5, 4, 3)})
    with pytest.raises(Exception, match="invalid dimensions for input"):
        session(model).run(None, {"x": normal(1, 8, 3)})
    with pytest.raises(anyrnn.UnsupportedError, match="flat reads all steps at once, so there are no lengths"):
        anyrnn.onnx.export(network, lengths=True)


def test_a_layer_without_parameters() -> None:
    @cell
    def adds(x, h: Vec("input")):  # type: ignore[no-untyped-def, valid-type]
        return h + x, State(h=h + x)

    for dtype in (torch.float32, torch.float64):
        model = anyrnn.onnx.export(anyrnn.torch.Recurrent(adds, 3, 3, dtype=dtype))
        x = normal(4, 2, 3).astype(str(dtype).removeprefix("torch."))
        np.testing.assert_allclose(session(model).run(None, {"x": x})[0], np.cumsum(x, 0), rtol=1e-6)


def test_an_average_does_not_look_at_what_was_made_of_padding() -> None:
    log = runtime.elementwise("log", "x", 4, lambda v: apply("log", v))
    network = runtime.Network(4, [log, runtime.AttentionAverage("y", ["log"], np.ones(4, np.float32))])
    x, lengths = np.random.default_rng(0).uniform(0.5, 2, (6, 3, 4)).astype(np.float32), np.array([2, 0, 6], np.int32)
    (found,) = run(anyrnn.onnx.export(network, lengths=True), {"x": x, "lengths": lengths}).values()
    np.testing.assert_allclose(found, network.run(x, lengths=lengths)[0], rtol=1e-5)
