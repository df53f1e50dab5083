"""What is between a layer of Keras and its loop over the steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from anyrnn.explanation import Seen
from anyrnn.keras.running import Runner, why_not


class Kernels(keras.layers.RNN):
    """A layer of Keras whose loop is a call of ours. What is around the loop is Keras's own: masks, states that go from batch to
    batch, wrappers, configs.
    """

    _runner: Runner | None = None

    def why_not_kernels(self, training: bool = False) -> str | None:
        """Why a call runs by Keras's own loop, or None where it is a call of ours."""
        return why_not()

    @abstractmethod
    def made_of(self, features: int) -> Any:
        """What a runner for inputs of so many features depends on."""

    @abstractmethod
    def make_runner(self, features: int) -> Runner: ...

    @abstractmethod
    def parameters(self) -> Mapping[str, Any]:
        """By the names that our cell has for them."""

    def runner(self, features: int) -> Runner:
        """Made anew where something has been changed."""
        made_of = self.made_of(features)
        if self._runner is None or self._runner.made_of != made_of:
            self._runner = self.make_runner(features)
            self._runner.made_of = made_of  # there, as Keras would take layers among it for parts of this one
        return self._runner

    def inner_loop(self, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> tuple[Any, Any, list[Any]]:
        """As of Keras's layers: the last output, all outputs, the last states."""
        if self.why_not_kernels(training):
            found: tuple[Any, Any, list[Any]] = super().inner_loop(sequences, initial_state, mask=mask, training=training)
            return found
        states = list(initial_state) if isinstance(initial_state, (list, tuple)) else [initial_state]
        if self.stateful:  # whose variables are assigned to before the backward pass
            states = [ops.copy(state) for state in states]
        sequences = ops.cast(sequences, self.compute_dtype)
        if training and getattr(self.cell, "dropout", False):
            sequences = sequences * ops.expand_dims(self.cell.get_dropout_mask(sequences[:, 0, :]), 1)
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        if mask is not None:
            mask = ops.cast(mask, "bool")
            mask = ops.any(mask, -1) if len(mask.shape) == 3 else mask
        if self.go_backwards:
            sequences, mask = ops.flip(sequences, 1), None if mask is None else ops.flip(mask, 1)
        padding = 0.0 if self.zero_output_for_mask else "last"
        last = not self.return_sequences and (mask is None or padding == "last")
        runner = self.runner(sequences.shape[-1])
        y, after = runner(self.parameters(), sequences, states, mask, last=last, padding=padding)
        return (y, ops.expand_dims(y, 1), after) if last else (y[:, -1], y, after)

    def _seen(self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False) -> Seen:
        x = ops.convert_to_tensor(sequences)
        if len(x.shape) != 3:
            raise ValueError(f"{self.name}: expected sequences [N, T, D], got shape {tuple(x.shape)}")
        if not self.built:
            self.build(x.shape)
        who = f"{type(self).__name__}({self.name})"
        if reason := self.why_not_kernels(training):
            programs: Any = {"inference": None}  # Keras's own
            return Seen(
                layer=who,
                programs=programs,
                dtype=str(self.compute_dtype),
                steps=x.shape[1],
                rows=x.shape[0],
                counts=None,
                memory_budget=None,
                why_not_native=reason,
                interpreter="Keras's loop",
                beside="",
            )
        return self.runner(x.shape[-1]).seen(self.parameters(), ops.cast(x, self.compute_dtype), who)
