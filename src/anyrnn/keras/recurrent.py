"""A layer of any cell."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, MutableMapping
from typing import Any
from weakref import WeakValueDictionary

import keras
import numpy as np
from keras import ops

import anyrnn
from anyrnn import cells
from anyrnn.errors import UnsupportedError
from anyrnn.ir.graph import Parameter
from anyrnn.keras.kernels import Kernels
from anyrnn.keras.running import Runner, why_not
from anyrnn.numpy.parameters import own_initial_values
from anyrnn.sequence.network import check_size, traced
from anyrnn.sequence.options import OPTIONS, copied
from anyrnn.trace import Cell

OF_CELLS = ("activations", "clip_state", "clip_preactivation", "clip_gradient", "cut_gradient", "skip_input")
"""Options of layers that are for a single one, and draw nothing."""
OF_KERAS = ("name", "dtype", "trainable", "activity_regularizer", "autocast")
OF_LAYERS = ("dropout", "num_layers", "bidirectional", "batch_first", "backend", "memory_budget")
"""Those of our other layers."""
OF_LOOPS = ("return_sequences", "return_state", "go_backwards", "stateful", "unroll", "zero_output_for_mask")


@keras.saving.register_keras_serializable(package="anyrnn")
class RecurrentCell(keras.layers.Layer):
    """One step of any cell, as the cells of Keras's layers are: `RecurrentCell(cell, units)(inputs, states)` gives the output
    [N, H] and the new states [N, size].

    Args:
        cell: a cell, the name of a built-in one, or `my_file.py:my_cell`.
        units: features of the hidden state, H.
        bias: as of `anyrnn.Recurrent`.
        options: the cell's hyper-parameters and named sizes, and of `anyrnn.LayerOptions` those for a single layer that draw
            nothing: activations, clip_state, clip_preactivation, clip_gradient, cut_gradient, skip_input.

    Weights have the names that `anyrnn.Recurrent` has for them, and begin as there. A config names the cell, and has a digest of
    its equations, so that no other is taken for it. To load one of your own in another process, if it is not in a file
    (`my_file.py:my_cell`, from the folder that you are in), put it among Keras's custom objects first,
    `keras.saving.get_custom_objects()["mine"] = mine`.

    Raises: UnsupportedError for backends of Keras other than JAX and torch, and for cells that need more than an input [N, D] and
    states of known sizes; ValueError for options that are of Keras's own layers; TypeError, ValueError as `anyrnn.Recurrent`.
    """

    def __init__(
        self, cell: Cell | str, units: int, *, bias: bool | str = True, equations: str | None = None, **options: Any
    ) -> None:
        super().__init__(**{name: options.pop(name) for name in OF_KERAS if name in options})
        check_size("units", units)
        if reason := why_not():
            raise UnsupportedError(f"cells other than Keras's: {reason}")
        if others := [name for name in options if name in (*OPTIONS, *OF_LAYERS) and name not in OF_CELLS]:
            raise ValueError(f"{others[0]} is an option of layers of anyrnn.torch and anyrnn.jax; Keras's layers have their own")
        self.spelled, self.units, self.bias, self.options = cell, units, bias, copied(options)
        self.cell = _cell(cell, equations)
        of_some_input = traced(self.cell, units, units, 1, bias, False, self.options)
        network = of_some_input.with_dropout(0.0).evaluation
        graph = network.graph
        self.equations = hashlib.sha256(graph.identity.encode()).hexdigest()[:16]
        if equations not in (None, self.equations):
            raise ValueError(f"cell {cell!r} has other equations here than when this was written; {_HINT.format(cell)}")
        _SEEN[self.cell.name, self.equations] = self.cell
        if graph.inputs[1:]:
            raise UnsupportedError(f"cell {self.cell.name!r} has per-step inputs beside the first, which Keras's layers have not")
        shapes = [s.shape for s in graph.states] + [graph.nodes[graph.output("y")].shape]
        if any("input" in dim.names for shape in shapes for dim in shape):
            raise UnsupportedError(f"cell {self.cell.name!r} has states of the input's size, which Keras has to know beforehand")
        self.output_size: int = network.output_size
        self.state_size: Any = network.state_sizes[0] if len(graph.states) == 1 else list(network.state_sizes)
        self._first = [(size, s.init) for size, s in zip(network.state_sizes, graph.states, strict=True)]
        self.runner: Runner | None = None

    @property
    def of_runner(self) -> dict[str, Any]:
        """Its options."""
        return {"bias": self.bias, **self.options}

    def build(self, input_shape: Any) -> None:
        self.runner = Runner(self.cell, input_shape[-1], self.units, **self.of_runner)
        network = self.runner.network
        self.held = {
            parameter.name: self.add_weight(
                shape=shape, name=parameter.name, initializer=self._initializer(parameter, network.layer_sizes(0))
            )
            for parameter, shape in network.parameters(0)
        }

    def _initializer(self, parameter: Parameter, sizes: Mapping[str, int]) -> Any:
        def made(shape: Any, dtype: Any = None, **more: Any) -> Any:
            random = np.random.default_rng(np.random.randint(2**31, size=4))  # noqa: NPY002 - what keras.utils.set_random_seed sets
            bound = 1 / math.sqrt(self.units)
            value = np.array(random.uniform(-bound, bound, shape))
            for part, first in own_initial_values(parameter, value, sizes, lambda: random):
                part[...] = first
            return ops.convert_to_tensor(value, dtype=dtype)

        return made

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        return [ops.full((batch_size, size), init, dtype=self.compute_dtype) for size, init in self._first]

    def parameters(self) -> Mapping[str, Any]:
        """By the names that our cell has for them."""
        return {name: ops.cast(ops.convert_to_tensor(variable), self.compute_dtype) for name, variable in self.held.items()}

    def call(self, inputs: Any, states: Any, training: bool = False) -> tuple[Any, list[Any]]:
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        assert self.runner is not None
        y, after = self.runner(self.parameters(), ops.expand_dims(inputs, 1), states, None, last=True, padding=0.0)
        return y, after

    def get_config(self) -> dict[str, Any]:
        """Raises: ValueError for functions in the place of others that have no name here."""
        return {**super().get_config(), **self.own_config()}

    def own_config(self) -> dict[str, Any]:
        """Without what any layer of Keras has."""
        options = copied(self.options)
        for op, function in (options.get("activations") or {}).items():
            name = getattr(function, "__name__", function)
            if callable(function) and getattr(anyrnn, name, None) is not function:
                raise ValueError(f"activations: {name!r}, in the place of {op}, is not a function of anyrnn, and has no config")
            options["activations"][op] = name
        cell = self.spelled if isinstance(self.spelled, str) else self.cell.name
        return {"cell": cell, "equations": self.equations, "units": self.units, "bias": self.bias, **options}


_SEEN: MutableMapping[tuple[str, str], Cell] = WeakValueDictionary()
"""Cells of this process by name and equations, for layers that are made again of a config, as wrappers and copies are."""
_HINT = "the one that is meant is found where it was put: keras.saving.get_custom_objects()[{!r}] = the cell"


def _cell(spelled: Cell | str, equations: str | None) -> Cell:
    if isinstance(spelled, Cell):
        return spelled
    found = keras.saving.get_registered_object(spelled) or _SEEN.get((spelled, equations or ""))
    if isinstance(found, Cell):
        return found
    try:
        return cells.load(spelled)
    except ValueError as error:
        raise ValueError(f"{error}; {_HINT.format(spelled)}") from None


@keras.saving.register_keras_serializable(package="anyrnn")
class Recurrent(Kernels):
    """A layer of any cell, as Keras's recurrent layers are: of inputs [N, T, D] it gives the last output [N, H], or with
    `return_sequences` all outputs [N, T, H]; masks, `stateful`, `keras.layers.Bidirectional` and the rest are Keras's own.

    Args:
        cell, units, bias, options: as of `RecurrentCell`.
        return_sequences, return_state, go_backwards, stateful, unroll, zero_output_for_mask, name, dtype: as of
            `keras.layers.RNN`.

    Example:
        >>> import keras, numpy as np, anyrnn.keras
        >>> model = keras.Sequential([anyrnn.keras.Recurrent("lstm_layernorm", 8), keras.layers.Dense(1)])
        >>> tuple(model(np.zeros((2, 7, 3), "float32")).shape)
        (2, 1)
    """

    def __init__(self, cell: Cell | str, units: int, *, bias: bool | str = True, **options: Any) -> None:
        of_loop = {name: options.pop(name) for name in (*OF_LOOPS, *OF_KERAS) if name in options}
        of_cell = {name: of_loop[name] for name in ("dtype", "trainable") if name in of_loop}
        made = RecurrentCell(cell, units, bias=bias, **options, **of_cell, name="cell")
        super().__init__(made, **of_loop)

    @property
    def units(self) -> int:
        """Features of the hidden state."""
        units: int = self.cell.units
        return units

    def reset_state(self) -> None:
        """States begin anew, as the cell's do."""
        if self.states is not None:
            first = self.get_initial_state(self.states[0].shape[0])
            for variable, value in zip(self.states, first, strict=True):
                variable.assign(value)

    def made_of(self, features: int) -> Any:
        return features

    def make_runner(self, features: int) -> Runner:
        cell: RecurrentCell = self.cell
        return Runner(cell.cell, features, cell.units, **cell.of_runner)

    def parameters(self) -> Mapping[str, Any]:
        """By the names that our cell has for them."""
        found: Mapping[str, Any] = self.cell.parameters()
        return found

    def get_config(self) -> dict[str, Any]:
        of_loop = {name: getattr(self, name) for name in OF_LOOPS}
        return {**keras.layers.Layer.get_config(self), **of_loop, **self.cell.own_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Recurrent:
        if custom_objects is None:
            return cls(**config)
        with keras.saving.custom_object_scope(custom_objects):
            return cls(**config)
