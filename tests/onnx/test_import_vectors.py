"""The test vectors that the package onnx has for recurrent nodes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx.backend.test.case import node as cases

from anyrnn.onnx.reading_backend import Backend

RECURRENT = ("RNN", "GRU", "LSTM")
with np.errstate(invalid="ignore"):  # on some processors NumPy's products of a few numbers look at memory beside them
    for module in RECURRENT:
        importlib.import_module(f"onnx.backend.test.case.node.{module.lower()}")  # which puts its cases into the list
VECTORS = {case.name: case for case in cases._NodeTestCases if case.model.graph.node[0].op_type in RECURRENT}


def operators(graph: Any) -> set[str]:
    inside = [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
    return {n.op_type for n in graph.node}.union(*map(operators, inside))


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_of_onnx_passes(name: str) -> None:
    case = VECTORS[name]
    prepared = Backend.prepare(case.model)
    for inputs, wanted in case.data_sets:
        found = prepared.run(inputs)
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_there_are_no_other_vectors() -> None:
    """Of the whole models that come with data none has a recurrent node; the others are made by the modules above."""
    assert len(VECTORS) == 18
    data = Path(onnx.backend.test.__file__).parent / "data"
    models = [onnx.load(path, load_external_data=False) for path in data.glob("**/*.onnx")]
    assert len(models) > 100
    assert not [m for m in models if operators(m.graph) & set(RECURRENT)]
    files = Path(cases.__file__).parent.glob("*.py")
    assert {f.stem for f in files if any(f'"{op}"' in f.read_text() for op in RECURRENT)} == {op.lower() for op in RECURRENT}


def test_a_backend_takes_weights_by_name_and_knows_the_cpu_alone() -> None:
    case = VECTORS["test_lstm_defaults"]
    names = [value.name for value in case.model.graph.input]
    inputs, wanted = case.data_sets[0]
    np.testing.assert_allclose(Backend.run_model(case.model, dict(zip(names, inputs, strict=True)))[0], wanted[0], rtol=1e-5)
    np.testing.assert_allclose(Backend.run_node(case.model.graph.node[0], inputs)[0], wanted[0], rtol=1e-5)
    assert Backend.supports_device("CPU:0")
    with pytest.raises(ValueError, match="device should be CPU, got 'CUDA'"):
        Backend.prepare(case.model, "CUDA")


def test_a_backend_says_which_models_it_can_read() -> None:
    assert Backend.is_compatible(VECTORS["test_gru_defaults"].model)
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,2,2,2] x) => (float[N] y) {y = MaxPool(x)}'
    )
    assert not Backend.is_compatible(made)
