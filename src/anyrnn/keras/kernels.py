"""What is between a layer of Keras and its loop over the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from anyrnn.explanation import Seen
from anyrnn.keras.running import Runner, why_not


class Kernels(keras.layers.RNN):
    """A layer of Keras whose loop is a call of kernels. What is around the loop is Keras's own: masks, states that go from batch
    to batch, wrappers, configs.
    """

    _runner: Runner | None = None

    def why_not_kernels(self, training: bool = False) -> str | None:
        """Why a call runs by Keras's own loop, or None."""
        return why_not()

    def make_runner(self, features: int) -> Runner:
        """For inputs of so many features."""
        raise NotImplementedError

    def parameters(self) -> Mapping[str, Any]:
        """By the names that our cell has for them."""
        raise NotImplementedError

    def runner(self, features: int) -> Runner:
        if self._runner is None:
            self._runner = self.make_runner(features)
        return self._runner

    def inner_loop(self, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> tuple[Any, Any, list[Any]]:
        """As of Keras's layers: the last output, all outputs, the last states."""
        if self.why_not_kernels(training):
            found: tuple[Any, Any, list[Any]] = super().inner_loop(sequences, initial_state, mask=mask, training=training)
            return found
        states = list(initial_state) if isinstance(initial_state, (list, tuple)) else [initial_state]
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        if training and getattr(self.cell, "dropout", False):
            sequences = sequences * ops.expand_dims(self.cell.get_dropout_mask(sequences[:, 0, :]), 1)
        if self.go_backwards:
            sequences, mask = ops.flip(sequences, 1), None if mask is None else ops.flip(mask, 1)
        padding = 0.0 if self.zero_output_for_mask else "last"
        last = not self.return_sequences and (mask is None or padding == "last")
        runner = self.runner(sequences.shape[-1])
        y, after = runner(self.parameters(), sequences, states, mask, last=last, padding=padding)
        return (y, y, after) if last else (y[:, -1], y, after)

    def _seen(self, sequences: Any, *given: Any, training: bool = False, **call: Any) -> Seen:
        x = ops.convert_to_tensor(sequences)
        if not self.built:
            self.build(x.shape)
        who = f"{type(self).__name__}({self.name})"
        if reason := self.why_not_kernels(training):
            steps, rows = x.shape[1], x.shape[0]
            programs: Any = {"inference": None}  # of Keras
            return Seen(
                who, programs, keras.backend.standardize_dtype(x.dtype), steps, rows, None, None, reason, "Keras's loop", ""
            )
        return self.runner(x.shape[-1]).seen(self.parameters(), x, who)
