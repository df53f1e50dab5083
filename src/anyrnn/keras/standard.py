"""Keras's own recurrent layers, whose loops are kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from itertools import chain
from typing import Any

import keras
from keras import ops

from anyrnn import cells
from anyrnn.convert.keras.functions import function
from anyrnn.keras.kernels import Kernels
from anyrnn.keras.running import Runner
from anyrnn.weights.table import SYSTEMS
from anyrnn.weights.tree import Concat, Part, Stack, Sum, Transposed, Tree

OF_SIMPLE = {"tanh": "activation"}
OF_GATED = {**OF_SIMPLE, "sigmoid": "recurrent_activation"}
"""Settings of cells, by the function in the place of which an activation is."""


class Standard(Kernels):
    """A layer whose cell is one of Keras's."""

    settings: Mapping[str, str]
    of: type
    """The class of the cell."""

    @property
    @abstractmethod
    def ours(self) -> str:
        """The name of our cell."""

    def why_not_kernels(self, training: bool = False) -> str | None:
        """Why a call runs by Keras's own loop, or None where it is a call of ours."""
        if reason := super().why_not_kernels(training):
            return reason
        kind = type(self.cell)
        if kind is not self.of:
            return f"the cell is a {kind.__name__}, and not Keras's {self.of.__name__}"
        if getattr(self, "use_cudnn", "auto") is True:
            return "use_cudnn=True asks for cuDNN"
        if training and self.cell.recurrent_dropout:
            return "recurrent_dropout in training is by Keras's cells"
        if training and self.cell.dropout and getattr(self.cell, "dropout_mask_count", None):
            return "with implementation=1 each gate has a dropout of its own"
        try:
            self._activations()
        except ValueError as error:
            return str(error)
        return None

    def _activations(self) -> dict[str, Any]:
        """Functions in the place of our cell's. Raises: ValueError for what the language of cells does not have."""
        found = {}
        for op, setting in self.settings.items():
            made = function(_described(getattr(self.cell, setting)), False, setting)
            if made.formula is None:
                raise ValueError(f"{setting} {made.name} is not of each feature by itself")
            if made.name != op:
                found[op] = made.formula
        return found

    def made_of(self, features: int) -> Any:
        cell = self.cell
        functions = [getattr(cell, setting) for setting in self.settings.values()]
        return features, cell.units, cell.use_bias, getattr(cell, "reset_after", False), functions

    def make_runner(self, features: int) -> Runner:
        bias = False if not self.cell.use_bias else True if getattr(self.cell, "reset_after", False) else "input"
        return Runner(cells.load(self.ours), features, self.cell.units, bias=bias, activations=self._activations() or None)

    def parameters(self) -> Mapping[str, Any]:
        """Keras's columns of gates as rows, in our order: see `weights.table`."""
        assert self._runner is not None
        units, gates = self.cell.units, dict[Part, Any]()
        for name, tree in SYSTEMS["keras"][self.ours].arrays.items():
            variable = getattr(self.cell, name, None)
            if variable is None:  # there are no biases
                continue
            array = ops.convert_to_tensor(variable)
            array = array if isinstance(tree, Transposed) else ops.reshape(array, (-1,))
            gates |= {part: array[..., k * units : (k + 1) * units] for k, part in enumerate(_parts(tree))}
        found = {}
        for parameter in self._runner.network.graph.parameters:
            rows = ops.concatenate([gates[Part(parameter.name, gate)] for gate, _ in parameter.gates], -1)
            found[parameter.name] = ops.transpose(rows) if len(rows.shape) == 2 else rows
        return found


def _described(activation: Any) -> Any:
    """As a config has it: the name of a function of Keras, or the description of a layer that is one."""
    if isinstance(activation, keras.layers.Layer) and type(activation) is getattr(keras.layers, type(activation).__name__, None):
        return {"class_name": type(activation).__name__, "config": activation.get_config()}
    name = getattr(activation, "__name__", type(activation).__name__)
    return name if getattr(keras.activations, name, None) is activation else f"{name} (of your own)"


def _parts(tree: Tree) -> list[Part]:
    """In the order of an array; where both biases are one, that of the input."""
    match tree:
        case Part():
            return [tree]
        case Sum(first):
            return [first]
        case Concat(of) | Stack(of):
            return list(chain.from_iterable(map(_parts, of)))
        case Transposed(of):
            return _parts(of)
    raise TypeError(f"of no array of Keras: {tree}")


@keras.saving.register_keras_serializable(package="anyrnn")
class LSTM(Standard, keras.layers.LSTM):
    """`keras.layers.LSTM`, of the same arguments, weights and configs, run by kernels.

    Keras's backend has to be JAX or torch; in others, in training with recurrent dropout, and with activations that are not in
    the language of cells it is Keras's own layer (`anyrnn.explain(layer, x)` says why). Before the first step that a mask leaves
    the output is zero, as in Keras on torch; on JAX it is the first state there, if one is given.
    """

    settings, of = OF_GATED, keras.layers.LSTMCell
    ours = "lstm"


@keras.saving.register_keras_serializable(package="anyrnn")
class GRU(Standard, keras.layers.GRU):
    """`keras.layers.GRU`, of the same arguments, weights and configs, run by kernels. See `LSTM`."""

    settings, of = OF_GATED, keras.layers.GRUCell

    @property
    def ours(self) -> str:
        """The name of our cell."""
        return "gru" if self.cell.reset_after else "gru_before"


@keras.saving.register_keras_serializable(package="anyrnn")
class SimpleRNN(Standard, keras.layers.SimpleRNN):
    """`keras.layers.SimpleRNN`, of the same arguments, weights and configs, run by kernels. See `LSTM`."""

    settings, of = OF_SIMPLE, keras.layers.SimpleRNNCell
    ours = "rnn_tanh"
