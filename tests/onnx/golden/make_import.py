"""Writes the models that the tests of the import read, as torch's two exporters make them: `python make_import.py`, with torch,
onnx and onnxscript.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

HERE = Path(__file__).parent


class Classifier(nn.Module):
    """Both directions' last states of the upper of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 3)
        self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(8, 5)

    def forward(self, words: Any) -> Any:
        _, (h, _) = self.lstm(self.embedding(words))
        return torch.log_softmax(self.linear(torch.cat([h[-2], h[-1]], 1)), -1)


class Tagger(nn.Module):
    """States in and out, and something for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.below = nn.Linear(3, 6)
        self.lstm = nn.LSTM(6, 4, num_layers=2, dropout=0.5)
        self.norm = nn.LayerNorm(4)
        self.above = nn.Linear(4, 2)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (h, c) = self.lstm(torch.tanh(self.below(x)), (h, c))
        return torch.sigmoid(self.above(torch.relu(self.norm(y)))), h, c


class Forecaster(nn.Module):
    """The last step of a GRU, of shapes that are numbers in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 5, batch_first=True)
        self.linear = nn.Linear(5, 1)

    def forward(self, x: Any) -> Any:
        y, _ = self.gru(x)
        return self.linear(y[:, -1])


class Summary(nn.Module):
    """Averages over steps, and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 2, bidirectional=True)
        self.linear = nn.Linear(4, 3, bias=False)

    def forward(self, x: Any) -> Any:
        y, _ = self.gru(x)
        return nn.functional.gelu(self.linear((x + y).mean(0)))


def models() -> dict[str, tuple[nn.Module, dict[str, Any], dict[str, dict[int, str]], list[str]]]:
    """By name: the module, what it is given, which axes are not fixed, and the names of its outputs."""
    words, x = torch.randint(0, 11, (2, 7)), torch.randn(7, 2, 3)
    steps = {0: "steps", 1: "batch"}
    states = {"h": torch.randn(2, 2, 4), "c": torch.randn(2, 2, 4)}
    return {
        "classifier": (Classifier(), {"words": words}, {"words": {0: "batch", 1: "steps"}}, ["classes"]),
        "tagger": (Tagger(), {"x": x, **states}, {"x": steps, "h": {1: "batch"}, "c": {1: "batch"}}, ["y", "h_n", "c_n"]),
        "forecaster": (Forecaster(), {"x": torch.randn(2, 7, 3)}, {}, ["next"]),
        "summary": (Summary(), {"x": torch.randn(7, 2, 4)}, {"x": steps}, ["summary"]),
    }


def main() -> None:
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    for name, (module, given, dynamic, outputs) in models().items():
        module.eval()
        place = HERE / f"import_{name}.onnx"
        torch.onnx.export(
            module, tuple(given.values()), str(place), dynamo=False, input_names=list(given), output_names=outputs,
            dynamic_axes=dynamic, opset_version=17,
        )  # fmt: skip
        shapes = {key: {axis: torch.export.Dim(label, min=1) for axis, label in axes.items()} for key, axes in dynamic.items()}
        program = torch.onnx.export(
            module, tuple(given.values()), dynamo=True, input_names=list(given), output_names=outputs,
            dynamic_shapes=shapes or None, verbose=False,
        )  # fmt: skip
        onnx.save(bare(program.model_proto), HERE / f"import_{name}_dynamo.onnx")


def bare(model: Any) -> Any:
    """Without what tells people where its nodes come from, which is most of the file."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    graph.ClearField("value_info")
    return model


if __name__ == "__main__":
    main()
