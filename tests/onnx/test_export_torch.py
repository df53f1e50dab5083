"""Models with modules of anyrnn.torch, by torch's own exporter."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from torch import Tensor

import anyrnn.onnx
import anyrnn.torch
from anyrnn import State, affine, cell, maximum, minimum, tanh
from tests.onnx.exported import ops, recurrent, session

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]
TIME, BATCH = torch.export.Dim("time"), torch.export.Dim("batch")


class Tagger(torch.nn.Module):
    """An embedding, layers and a dense layer."""

    def __init__(self, layers: torch.nn.Module, width: int) -> None:
        super().__init__()
        self.embedding, self.layers, self.dense = torch.nn.Embedding(9, 3), layers, torch.nn.Linear(width, 4)

    def forward(self, tokens: Tensor) -> Any:
        output, last = self.layers(self.embedding(tokens))
        return self.dense(output), *(last if isinstance(last, tuple) else (last,))


def exported(model: torch.nn.Module, given: tuple[Tensor, ...], dynamic: Any = None, opset: int | None = None) -> onnx.ModelProto:
    table = anyrnn.onnx.translations()
    made = torch.onnx.export(
        model.eval(),
        given,
        dynamo=True,
        dynamic_shapes=dynamic,
        custom_translation_table=table,
        verbose=False,
        opset_version=opset,
    )
    assert made is not None
    proto: onnx.ModelProto = made.model_proto
    return proto


def check(proto: onnx.ModelProto, model: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
    made = session(proto)
    feed = {port.name: tensor.numpy() for port, tensor in zip(made.get_inputs(), given, strict=True)}
    with torch.no_grad():
        expected = model(*given)
    for found, tensor in zip(made.run(None, feed), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(found), tensor, atol=3e-6, rtol=0)


LAYERS = {
    "lstm": (lambda: anyrnn.torch.LSTM(3, 5, 2, batch_first=True, bidirectional=True), 10, "LSTM"),
    "gru": (lambda: anyrnn.torch.GRU(3, 5, bias=False, reverse=True), 5, "GRU"),
    "relu": (lambda: anyrnn.torch.RNN(3, 5, nonlinearity="relu", learned_state=True), 5, "RNN"),
    "projected": (lambda: anyrnn.torch.LSTM(3, 5, proj_size=2), 2, "Scan"),
    "normalised": (lambda: anyrnn.torch.Recurrent("lstm_layernorm", 3, 5, bidirectional=True, merge="sum"), 5, "Scan"),
    "minimal": (lambda: anyrnn.torch.Recurrent("mgu", 3, 5, 2, residual=True, zoneout=0.2), 5, "Scan"),
}
QUICK = ("lstm", "normalised")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LAYERS])
def test_models_run_in_onnxruntime_for_any_steps_and_samples(name: str) -> None:
    made, width, op = LAYERS[name]
    torch.manual_seed(0)
    model = Tagger(made(), width)
    proto = exported(model, (torch.randint(9, (6, 4)),), ({0: TIME, 1: BATCH},))
    assert set(recurrent(proto)) == {op}
    for sides in ((6, 4), (1, 1), (13, 2)):
        check(proto, model, (torch.randint(9, sides),))


def test_two_layers_of_a_model_have_names_of_their_own() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = anyrnn.torch.Recurrent("mgu", 3, 5), anyrnn.torch.Recurrent("mgu", 5, 5, bidirectional=True)

        def forward(self, x: Tensor, h: Tensor) -> Any:
            y, h = self.one(x, h)
            output, _ = self.two(y, torch.cat([h, 2 * h]), return_outputs="last")
            _, states = self.two(y, return_states="all")
            return output, states

    model = Twice()
    proto = exported(model, (torch.randn(4, 2, 3), torch.randn(1, 2, 5)))
    check(proto, model, (torch.randn(4, 2, 3), torch.randn(1, 2, 5)))


@pytest.mark.slow
def test_a_loop_of_ones_own_over_a_cell_runs_in_onnxruntime() -> None:
    class Loop(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = anyrnn.torch.LSTMCell(3, 5)

        def forward(self, x: Tensor) -> Any:
            state = self.cell(x[0])
            return self.cell(x[1], state)

    model = Loop()
    proto = exported(model, (torch.randn(2, 4, 3),))
    assert ops(proto).count("LSTM") == 2
    check(proto, model, (torch.randn(2, 4, 3),))


class Ragged(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = anyrnn.torch.GRU(3, 5, output_dropout=0.5)

    def forward(self, x: Tensor, lengths: Any = None) -> Any:
        return self.layers(x, lengths=lengths)


@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode")
def test_lengths_and_random_choices_are_refused() -> None:
    x, table = torch.randn(4, 2, 3), anyrnn.onnx.translations()
    with pytest.raises(Exception, match=r"anyrnn.onnx.export\(layer, lengths=True\) takes lengths"):
        torch.onnx.export(Ragged().eval(), (x, [1, 4]), dynamo=True, custom_translation_table=table, verbose=False)
    with pytest.raises(Exception, match=r"random choices cannot be exported; call eval\(\) on the model first"):
        torch.onnx.export(Ragged().train(), (x,), dynamo=True, custom_translation_table=table, verbose=False)


@cell
def hard(x, h, *, slope=0.3):  # type: ignore[no-untyped-def]
    """A GRU with other gates, whose slope is an attribute of its node."""
    r = maximum(minimum(slope * affine("r", x, h) + 0.5, 1.0), 0.0)
    z = maximum(minimum(slope * affine("z", x, h) + 0.5, 1.0), 0.0)
    h = (1 - z) * tanh(affine("n", x, h=r * h)) + z * h
    return h, State(h=h)


def test_layers_that_differ_in_a_number_alone_are_written_with_their_own() -> None:
    x = torch.randn(4, 2, 3)
    for slope in (0.3, 0.05):
        torch.manual_seed(0)
        layer = anyrnn.torch.Recurrent(hard, 3, 5, slope=slope)
        proto = exported(layer, (x,))
        assert recurrent(proto) == ["GRU"]
        check(proto, layer, (x,))
