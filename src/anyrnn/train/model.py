"""The reader: recurrent layers over a sequence, such as the rows of an image, then one linear layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from anyrnn.datasets import Dataset
from anyrnn.errors import CellError, UnsupportedError
from anyrnn.train.errors import UsageError
from anyrnn.train.options import Head, Options


class Reader(nn.Module):
    """Recurrent layers, then a linear layer from their outputs to one number for each class.

    `head` says what the linear layer sees. Let y [T, N, S*H] be the outputs of the last recurrent layer:

    * "last": each direction's output after its last step, [N, S*H]: y[T-1] of the one that reads downwards (T of the sequence at
      hand), y[0] of the one that reads upwards.
    * "all": the outputs of all steps side by side, [N, T*S*H], so that every step has weights of its own in the linear layer
      and there is one decision and one loss for an image; for sequences of one length. This is the network of the MNIST
      experiment on NVIDIA's cuDNN forum ("Use of cudnn rnn forwardtraining and backwardtraining", 2018).
    * "each": each step's output by itself, with the same weights; an answer for every step.
    """

    def __init__(
        self, recurrent: nn.Module, steps: int, features: int, classes: int, head: Head | Literal["each"], directions: int
    ) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.head = head
        self.directions = directions
        width = _output_width(recurrent, steps, features)
        self.linear = nn.Linear(width * steps if head == "all" else width, classes)

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[N, T, D], and the steps of each [N] where they differ -> logits [N, classes]; of each step, [N, T, classes]."""
        x = inputs.transpose(0, 1).contiguous()
        outputs = self.recurrent(x)[0] if lengths is None else _outputs_of(self.recurrent, x, lengths)  # [T, N, S*H]
        if self.head == "last":
            seen = self._last(outputs, lengths)
        else:
            seen = outputs.transpose(0, 1).flatten(1) if self.head == "all" else outputs.transpose(0, 1)
        logits: Tensor = self.linear(seen)
        return logits

    def _last(self, outputs: Tensor, lengths: Tensor | None) -> Tensor:
        downwards, upwards = outputs.tensor_split([outputs.shape[-1] // self.directions], dim=-1)
        last = downwards[-1] if lengths is None else downwards[lengths - 1, torch.arange(len(lengths))]
        return torch.cat([last, upwards[0]], dim=-1)


def _outputs_of(recurrent: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
    """Of sequences that end at different steps, [T, N, S*H]."""
    if not isinstance(recurrent, nn.RNNBase):
        ours: Tensor = recurrent(x, lengths=lengths)[0]
        return ours
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    return pad_packed_sequence(recurrent(packed)[0], total_length=len(x))[0]


def build(layers: Callable[[int], nn.Module], dataset: Dataset, options: Options) -> Reader:
    """The model with its initial weights, which depend on the seed and on the sizes alone.

    Raises: UsageError when the cell cannot be made into layers.
    """
    torch.manual_seed(options.seed)
    try:
        recurrent = layers(dataset.features)
        return Reader(recurrent, dataset.steps, dataset.features, dataset.classes, options.head, options.directions)
    except (CellError, UnsupportedError) as error:
        raise UsageError(f"--cell {options.cell}: {error}") from error


def _output_width(recurrent: nn.Module, steps: int, features: int) -> int:
    """S*H, seen rather than computed: a cell's output may be narrower than its hidden state. Errors in the cell come up here."""
    recurrent.eval()
    with torch.no_grad():
        outputs, _ = recurrent(torch.zeros(steps, 1, features))
    recurrent.train()
    return int(outputs.shape[-1])
