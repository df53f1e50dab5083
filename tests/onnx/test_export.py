"""Layers as ONNX models: what onnxruntime makes of them is what the layers make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import anyrnn
import anyrnn.onnx
import anyrnn.torch
from anyrnn import (
    Scalar,
    State,
    Step,
    affine,
    cell,
    concat,
    exp,
    matrix,
    mean,
    norm,
    scalar,
    sigmoid,
    split,
    tanh,
    vector,
    where,
)
from anyrnn.sequence.options import MERGES
from tests.onnx.exported import check, ops, recurrent, run
from tests.options import VALUES, options_of, shape_of
from tests.zoo import EVERY, input_size, sizes_of

STANDARD = {
    "gru": "GRU", "gru_before": "GRU", "lstm": "LSTM", "lstm_coupled": "LSTM", "lstm_heads": "LSTM", "lstm_peephole": "LSTM",
    "rnn_identity": "RNN", "rnn_relu": "RNN", "rnn_tanh": "RNN",
}  # fmt: skip
LENGTHS = [3, 0, 5]
"""Of which one has no steps."""


@cell
def timed(x, h, t: Scalar(init=0.5), dt: Step(1), hint: Step("hints"), *, rate=0.25):
    """Further per-step inputs, a scalar state, a hyper-parameter, parameters that are computed of others."""
    decay = exp(-exp(vector("speed")) * dt)
    g = sigmoid(affine("g", x, h, hint))
    h = decay * h + rate * g * tanh(matrix("W").T @ h + t)
    t = t + mean(dt) * sigmoid(t)
    return concat(h, g), State(h=h, t=t)


@cell
def in_blocks(x, h):
    """Block-diagonal products before and in the loop, parts of vectors, products of parameters, choices by tests of them."""
    a, b = split(norm(affine("a b", x, h)), 2)
    q = affine("q", turned=h, heads=2) + affine("q", level=exp(x), constant=vector("constant"))
    first, second = split(tanh(a + q), 2)
    h = where(mean(a) > 0, concat(second, first), h * sigmoid(b))
    h = where(scalar("switch") < 0.5, h, 0.5 * h)
    return concat(h, vector("constant")), State(h=h)


@cell
def without_input(x, h):
    h = tanh(affine("h", h))
    return h, State(h=h)


@cell
def output_before_the_loop(x, h):
    """Products of the input in blocks, an output that no state is in, and a state that none changes."""
    y = affine("y", x, heads=2)
    return y, State(h=where(y > 0, h, h))


def layer_of(name: str, D: int = 3, H: int = 5, **options: Any) -> anyrnn.Recurrent:
    inputs = D if options.get("num_layers", 1) == 1 else input_size(name, D, 2 * H)
    return anyrnn.Recurrent(name, inputs, H, seed=0, **{**sizes_of(name), **options})


@pytest.mark.parametrize("nodes", ["auto", "scan"])
@pytest.mark.parametrize("name", EVERY)
def test_every_cell_runs_in_onnxruntime(name: str, nodes: Any) -> None:
    model = check(layer_of(name), T=11, N=3, nodes=nodes)
    assert recurrent(model) == [STANDARD.get(name, "Scan") if nodes == "auto" else "Scan"]
    two = layer_of(name, 7, 9, num_layers=3, bidirectional=True, batch_first=True)
    check(two, T=5, N=3, states=True, lengths=LENGTHS, nodes=nodes)
    # rounding errors of one number say little; but only Scan runs in float64
    exact = "float64" if recurrent(model) == ["Scan"] else "float32"
    check(layer_of(name, 1, 1, reverse=True, dtype=exact, **sizes_of(name, 1)), T=1, N=1, nodes=nodes)


@pytest.mark.parametrize("name", EVERY)
def test_every_cell_runs_in_float64(name: str) -> None:
    model = check(layer_of(name, num_layers=2, bidirectional=True, dtype="float64"), lengths=LENGTHS)
    assert set(recurrent(model)) == {"Scan"}, "onnxruntime has no float64 for the others"


@pytest.mark.parametrize("option", sorted(VALUES))
@pytest.mark.parametrize("name", ["gru", pytest.param("lstm_projected", marks=pytest.mark.slow), "mgu"])
def test_every_option_runs_in_onnxruntime(name: str, option: str) -> None:
    options = options_of(name, [option])
    if not options:
        return
    sizes = shape_of(name, options, 7, 3)
    check(anyrnn.Recurrent(name, **sizes, seed=0, **options), states=option != "learned_state", lengths=LENGTHS)


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("nodes", ["auto", "scan"])
def test_directions_are_merged_and_inputs_added(merge: str, nodes: Any) -> None:
    layer = layer_of("gru", 8, 4, num_layers=2, bidirectional=True, merge=merge, residual=True, learned_state=True)
    layer.parameters |= {n: a + np.float32(0.25) for n, a in layer.parameters.items() if n.startswith("h0")}
    model = check(layer, lengths=LENGTHS, nodes=nodes)
    assert [o.name for o in model.graph.output] == ["output", *(["output_reverse"] if merge == "separate" else []), "h_n"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("of", [timed, in_blocks, without_input, output_before_the_loop], ids=lambda of: of.name)
def test_cells_of_ones_own_run_in_onnxruntime(of: Any, dtype: str) -> None:
    options = {"hints": 2, "rate": 0.75} if of is timed else {}
    layer = anyrnn.Recurrent(of, 4, 6, 2, bidirectional=True, seed=0, dtype=dtype, **options)
    model = check(layer, states=True, lengths=LENGTHS)
    assert recurrent(model) == ["Scan"] * 4
    check(layer)


@pytest.mark.parametrize("bias", ["both", "input", "recurrent", "none"])
@pytest.mark.parametrize("name", ["gru", "gru_before", "lstm_peephole", "rnn_tanh"])
def test_biases_that_are_left_out_are_zero(name: str, bias: str) -> None:
    assert recurrent(check(layer_of(name, bias=bias))) == [STANDARD[name]]


def test_one_model_takes_any_number_of_steps_and_samples() -> None:
    layer = layer_of("mgu", bidirectional=True)
    for of in (layer, layer_of("lstm", num_layers=2)):
        model = anyrnn.onnx.export(of)
        for T, N in ((1, 1), (2, 9), (33, 2)):
            x = np.random.default_rng(0).normal(size=(T, N, 3)).astype(np.float32)
            np.testing.assert_allclose(run(model, {"x": x})["output"], of(x)[0], atol=2e-6)
        assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == ["time", "batch", 3]


def test_what_stands_beyond_the_lengths_has_no_effect() -> None:
    for nodes in ("standard", "scan"):
        layer = layer_of("gru", bidirectional=True)
        model = anyrnn.onnx.export(layer, lengths=True, nodes=nodes)  # type: ignore[arg-type]
        x = np.random.default_rng(0).normal(size=(5, 3, 3)).astype(np.float32)
        beyond = x.copy()
        for sample, length in enumerate(LENGTHS):
            beyond[length:, sample] = np.nan
        lengths = np.array(LENGTHS, np.int32)
        found, expected = run(model, {"x": beyond, "lengths": lengths}), run(model, {"x": x, "lengths": lengths})
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


def test_no_runtime_is_trusted_with_outputs_beyond_the_lengths() -> None:
    """ONNX does not say what they are; onnxruntime's are zero."""
    model = anyrnn.onnx.export(layer_of("gru"), lengths=True)
    (made,) = [node for node in model.graph.node if "output" in node.output]
    assert made.op_type == "Where"


@pytest.mark.parametrize("name", ["gru", "mgu"])
def test_modules_of_torch_are_layers_too(name: str) -> None:
    module = anyrnn.torch.Recurrent(name, 3, 5, 2, bidirectional=True, dropout=0.5).train()
    x = torch.randn(4, 2, 3)
    found = run(anyrnn.onnx.export(module), {"x": x.numpy()})
    output, h = module.eval()(x)
    np.testing.assert_allclose(found["output"], output.detach(), atol=2e-6)
    np.testing.assert_allclose(found["h_n"], h.detach(), atol=2e-6)


def test_computed_parameters_of_torch_are_taken_as_they_are_now() -> None:
    module = torch.nn.utils.parametrizations.weight_norm(anyrnn.torch.LSTM(3, 5), "weight_hh_l0")
    x = torch.randn(4, 2, 3)
    model = anyrnn.onnx.export(module)
    assert recurrent(model) == ["LSTM"]
    np.testing.assert_allclose(run(model, {"x": x.numpy()})["output"], module(x)[0].detach(), atol=2e-6)


def test_inputs_and_outputs_have_the_names_that_are_asked_for(tmp_path: Path) -> None:
    layer = layer_of("lstm", num_layers=2)
    path = tmp_path / "folder" / "model.onnx"
    names = {"input_names": ["speech", "start_h", "start_c", "frames"], "output_names": ["features", "end_h", "end_c"]}
    model = anyrnn.onnx.export(layer, path, states=True, lengths=True, **names)
    assert [i.name for i in model.graph.input] == names["input_names"]
    assert [o.name for o in model.graph.output] == names["output_names"]
    assert onnx.load(path) == model


@pytest.mark.parametrize("opset", [15, 17, 18, 21, onnx.defs.onnx_opset_version()])
def test_opsets_are_those_that_are_asked_for(opset: int) -> None:
    for name in ("lstm", "lstm_layernorm"):
        model = anyrnn.onnx.export(layer_of(name, bidirectional=True), lengths=True, opset=opset)
        onnx.checker.check_model(model, full_check=True)
        assert [o.version for o in model.opset_import] == [opset]


def test_products_with_the_input_are_made_before_the_loop() -> None:
    model = anyrnn.onnx.export(layer_of("lstm"), nodes="scan")
    (scan,) = [node for node in model.graph.node if node.op_type == "Scan"]
    (body,) = [attribute.g for attribute in scan.attribute if attribute.name == "body"]
    assert ops(model).count("MatMul") == 1
    assert [node.op_type for node in body.node].count("MatMul") == 1, "one product for all gates"


def test_a_model_holds_no_array_that_nothing_reads() -> None:
    for nodes in ("auto", "scan"):
        layer = layer_of("lstm", 30, 40)
        model = anyrnn.onnx.export(layer, nodes=nodes)  # type: ignore[arg-type]
        held = sum(onnx.numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
        assert held < 1.05 * sum(a.nbytes for a in layer.parameters.values())
