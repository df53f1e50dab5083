"""A layer for JAX: functions of its parameters, with no state of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from jax.typing import ArrayLike, DTypeLike

import anyrnn.numpy
from anyrnn import backends, cells
from anyrnn.explanation import Seen
from anyrnn.ir.graph import Parameter
from anyrnn.jax import parts
from anyrnn.jax.arguments import (
    Parameters,
    States,
    as_array,
    checked_inputs,
    checked_parameters,
    checked_states,
    is_floating,
    wide,
)
from anyrnn.jax.call import Call, Operands
from anyrnn.jax.primitives import why_interpreted
from anyrnn.jax.steps import padded, steps_of
from anyrnn.numpy.parameters import own_initial_values, own_states
from anyrnn.sequence.layer import described
from anyrnn.sequence.network import (
    Network,
    check_arguments,
    check_budget,
    check_counters,
    check_size,
    check_wanted,
    traced,
)
from anyrnn.sequence.options import copied
from anyrnn.sequence.packing import StepsGiven
from anyrnn.trace import Cell


@jax.tree_util.register_static
class Recurrent:
    """A recurrent network of any cell, as pure functions: `init` makes parameters, `apply` runs over a sequence. Both go through
    `jax.jit`, `grad`, `vmap`, `checkpoint` and the rest, as often as asked.

    On CPUs native kernels run a call, forward and backward, in JAX's own memory. Second derivatives, forward mode, and devices
    other than CPUs have the same equations by JAX's operators, in a scan.

    Args:
        cell: a cell, the name of a built-in one, or `my_file.py:my_cell`.
        input_size: features of the input, D.
        hidden_size: features of the hidden state, H.
        num_layers, batch_first, bidirectional: as in torch.nn's modules.
        bias: False (or `none`) leaves out every bias of the cell's products; `input` keeps those of the input alone, `recurrent`
            all others.
        dropout: probability of zeroing each output between layers, in calls that train.
        backend: `auto`, `llvm` (native kernels) or `reference` (JAX's operators). An explicit one that cannot run raises
            UnsupportedError.
        memory_budget: bytes that kernels may keep of a call that is differentiated, see `anyrnn.Recurrent`.
        options: the cell's hyper-parameters and named sizes other than input and hidden, and what `anyrnn.LayerOptions` tells of.

    A layer has no arrays and cannot be changed. It may be an argument of a jitted function or a field of a module: to JAX it is a
    tree without leaves, and layers that were made alike are equal and have one hash.

    Example:
        >>> import jax, jax.numpy as jnp, anyrnn.jax
        >>> layer = anyrnn.jax.Recurrent("gru", 3, 5)
        >>> parameters = layer.init(jax.random.key(0))
        >>> output, h = layer.apply(parameters, jnp.zeros((7, 2, 3)))
        >>> output.shape, h.shape
        ((7, 2, 5), (1, 2, 5))
    """

    def __init__(
        self,
        cell: Cell | str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool | str = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        backend: str = "auto",
        memory_budget: int | None = None,
        **options: Any,
    ) -> None:
        self.cell = cells.load(cell)
        check_arguments(bias, batch_first, input_size, hidden_size, num_layers, dropout)
        check_budget(memory_budget)
        options = copied(options)
        given = (input_size, hidden_size, num_layers, bias, bidirectional, options)
        self.hidden_size, self.batch_first = hidden_size, batch_first
        self.backend, self.memory_budget = backend, memory_budget
        self.networks = traced(self.cell, *given).with_dropout(float(dropout))
        if backend not in backends.NAMES:
            raise ValueError(f"backend should be one of {', '.join(backends.NAMES)}, got {backend!r}")
        self._of_numpy: dict[str, Any] = {
            "num_layers": num_layers,
            "bias": bias,
            "batch_first": batch_first,
            "dropout": float(dropout),
        }
        self._of_numpy |= {"bidirectional": bidirectional, "backend": backend, "memory_budget": memory_budget, **options}
        self._made = True

    @property
    def network(self) -> Network:
        """The network of calls that do not train."""
        return self.networks.evaluation

    @property
    def _identity(self) -> tuple[Any, ...]:
        first = tuple(parameter.pieces for parameter in self.network.graph.parameters)  # which networks do not look at
        return self.networks, first, self.batch_first, self.backend, self.memory_budget

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recurrent) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Recurrent({described((self.cell.name, self.network.input_size, self.hidden_size), self._of_numpy)})"

    # parameters

    def init(self, key: Array, *, dtype: DTypeLike = jnp.float32) -> dict[str, Array]:
        """Parameters by name (`weight_ih_l0`, ... as in torch.nn), uniform within 1 / sqrt(H) unless the cell says otherwise.

        Args:
            key: of JAX's random numbers.
            dtype: float32, bfloat16 or float16, or float64 where JAX has it (`jax_enable_x64`).

        Raises: TypeError for another dtype.
        """
        dtype = np.dtype(dtype)
        if not is_floating(dtype) or jax.dtypes.canonicalize_dtype(dtype) != dtype:
            more = ", or float64 with jax.config.update('jax_enable_x64', True)"
            raise TypeError(f"dtype should be float32, bfloat16 or float16{more}, got {dtype}")
        found: dict[str, Array] = {}
        bound = 1 / math.sqrt(self.hidden_size)
        for unit, of_unit in zip(self.network.units, jax.random.split(key, len(self.network.units)), strict=True):
            parameters, sizes = self.network.parameters(unit[0]), self.network.layer_sizes(unit[0])
            for (parameter, shape), own in zip(parameters, jax.random.split(of_unit, max(1, len(parameters))), strict=False):
                uniform, of_cell = jax.random.split(own)
                value = jax.random.uniform(uniform, shape, dtype, -bound, bound)
                found[parameter.name + self.network.suffix(*unit)] = _with_own_values(parameter, value, sizes, of_cell)
        return found

    def initial_state(self, parameters: Parameters, batch_size: int | None = None) -> Any:
        """The states that sequences begin with, [layers * directions, N, H]: learned ones if the layer has them, else the cell's
        own first values; a tuple of them for a cell with several.

        Args: batch_size: N; without it the states of one sequence without a batch.

        Raises: TypeError, ValueError for what is no size, and for parameters that do not fit.
        """
        arrays = checked_parameters(self.network, parameters)
        own = own_states(self.network, arrays, _dtype(arrays, jnp.dtype(jnp.float32)), jnp)
        if batch_size is None:
            return _given_back([a[:, 0] for a in own])
        check_size("batch_size", batch_size)
        return _given_back([jnp.repeat(a, batch_size, 1) for a in own])

    def on_numpy(self, parameters: Parameters) -> anyrnn.numpy.Recurrent:
        """The same layer on NumPy arrays, with copies of these parameters (of 16 bits in float32): to be saved, exported to ONNX
        or an object file, or called step after step (`stream`).

        Raises: ValueError, TypeError for parameters that do not fit.
        """
        arrays = {name: np.array(wide(array)) for name, array in checked_parameters(self.network, parameters).items()}
        dtype = next((a.dtype for a in arrays.values()), np.dtype(np.float32))
        layer = anyrnn.numpy.Recurrent(self.cell, self.network.input_size, self.hidden_size, **self._of_numpy, dtype=dtype)
        layer.parameters = arrays
        return layer

    # calls

    def apply(
        self,
        parameters: Parameters,
        x: ArrayLike,
        state: States | None = None,
        *,
        key: Array | None = None,
        train: bool | None = None,
        lengths: Any = None,
        mask: ArrayLike | None = None,
        mask_value: float | None = None,
        reset: ArrayLike | None = None,
        padding: float | Literal["last"] = 0.0,
        return_outputs: Literal["all", "last", "none"] = "all",
        return_states: Literal["last", "all"] = "last",
        **steps: ArrayLike,
    ) -> tuple[Any, Any]:
        """Run over a sequence.

        Args:
            parameters: as `init` gives them.
            x: [T, N, D], [N, T, D] with batch_first, or [T, D] without a batch; of the parameters' dtype. 16 bits are computed in
                float32.
            state: initial state [layers * directions, N, H], or a sequence of them for a cell with several; the cell's own by
                default.
            key: of JAX's random numbers, for a layer with dropout or zoneout that trains: the same key makes the same choices.
            train: whether it does; by default where there is a key. A layer that would draw has to be told: with a key, or by
                `train=False`.
            lengths: how many steps each sample has, N integers from 0 to T in any order; a number without a batch. In a function
                that is being traced nobody can look whether they are, and those beyond are taken for 0 and T.
            mask: bool, [T, N] in x's layout ([T] without a batch): False for steps that a sample does not have. They are as if
                they were cut out.
            mask_value: steps that a sample does not have are those where all features of the input have this value.
            reset: bool, of the shape of a mask: True for steps that begin a new sequence, from the cell's own first values.
            padding: what outputs hold where a sample has no step: a number, or `last` for the output of the latest step that it
                had, or zero. Like `mask_value`, `train` and what is returned it is no array: static where `apply` is jitted.
            return_outputs: `all`; or `last` for the output [N, directions * H] of the last step that each direction takes of a
                sample; or `none`, which gives None.
            return_states: `last`, or `all` for the states after every step, [layers * directions, T, N, H] in x's layout.
            steps: the cell's further per-step inputs, by name, [T, N, size] in x's layout; every layer gets them.

        Returns: the output [T, N, directions * H] in x's layout, and the state [layers * directions, N, H] after each sample's
        last step; a tuple of states for a cell with several.

        Raises: ValueError for wrong shapes, and where nothing says whether a layer draws; TypeError for wrong dtypes and unknown
        arguments; UnsupportedError where the backend that was asked for cannot run.
        """
        trains = self._trains(key, train)
        network = self.networks.training if trains else self.network
        check_wanted(network, "", return_outputs, return_states)
        arrays = checked_parameters(network, parameters)
        x = as_array(x, "x")
        dtype, batched = _dtype(arrays, x.dtype), x.ndim == 3
        inputs, batch_first = checked_inputs(network, x, steps, dtype), self.batch_first or not batched
        count, rows = inputs[0].shape[:2] if not batch_first else inputs[0].shape[1::-1]
        if not count:
            raise ValueError("x has no steps; a sequence needs at least one")
        there, reset_at = steps_of(StepsGiven(lengths, None, mask, mask_value, reset, padding), inputs[0], batched, batch_first)
        first = checked_states(network, state, rows, batched, dtype)
        check_counters(network, dtype.name)
        inputs, first = [wide(a) for a in inputs], [wide(a) for a in first]
        arrays = {name: wide(array) for name, array in arrays.items()}
        if not first and network.learned_state:
            first = [jnp.repeat(a, rows, 1) for a in own_states(network, arrays, inputs[0].dtype, jnp)]
        ends, all_states = return_outputs != "all", return_states == "all"
        seed = jax.random.bits(key, (2,), jnp.uint32) if trains and key is not None else None
        call = Call(
            network,
            batch_first,
            ends=ends,
            all_states=all_states,
            given=bool(first),
            draws=seed is not None,
            masked=there is not None,
            resets=reset_at is not None,
            backend=self.backend,
            budget=self.memory_budget,
        )
        y, states = parts.run(call, Operands(inputs, first, list(arrays.values()), seed, there, reset_at))
        if there is not None:
            y = padded(y, there, batch_first, padding, ends)
            states = [padded(a, there, batch_first, padding, False) for a in states] if all_states else states
        shown = (y if batched else y[0]).astype(dtype)
        output = None if return_outputs == "none" else tuple(jnp.split(shown, 2, -1)) if network.merge == "separate" else shown
        return output, _given_back([(a if batched else a[:, 0]).astype(dtype) for a in states])

    def _trains(self, key: Array | None, train: bool | None) -> bool:
        """Whether a call does."""
        if train not in (None, True, False):
            raise TypeError(f"train should be a bool, got {train!r}")
        draws = bool(self.networks.training.probabilities)
        if draws and key is None and train is not False:
            example = "apply(..., key=key) to train, apply(..., train=False) to evaluate"
            raise ValueError(f"this layer draws random numbers when it trains: {example}")
        return key is not None if train is None else train

    def _seen(
        self, parameters: Parameters, x: ArrayLike, state: Any = None, /, *, key: Any = None, train: Any = None, **call: Any
    ) -> Seen:
        """For `explain`."""
        if any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves((parameters, x, state, call))):
            raise TypeError("explain is for arrays, and these are being traced: call it outside of the function")
        jax.eval_shape(partial(self.apply, key=key, train=train, **call), parameters, x, state)  # which checks everything
        layer = self.on_numpy(parameters)
        state = tuple(state) if isinstance(state, list) else state
        state, call = jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, (state, call))
        seen = layer._seen(np.asarray(wide(as_array(x, "x"))), state, **call)
        why = why_interpreted(Call(self.network, backend=self.backend), seen.dtype)
        return replace(seen, layer=repr(self), why_not_native=why, interpreter="the interpreter on JAX, in a scan")

    def __setattr__(self, name: str, value: Any) -> None:
        if "_made" in self.__dict__:
            raise AttributeError(f"{name}: a layer cannot be changed once it is made; make another one")
        super().__setattr__(name, value)


def _given_back(states: list[Array]) -> Any:
    return states[0] if len(states) == 1 else tuple(states)


def _dtype(arrays: Mapping[str, Array], otherwise: Any) -> Any:
    """Of parameters; of a layer that has none, another."""
    return next((a.dtype for a in arrays.values()), otherwise)


def _with_own_values(parameter: Parameter, value: Array, sizes: Mapping[str, int], key: Array) -> Array:
    """With the first values that the cell says; functions of NumPy's random numbers are called by the host."""
    start = 0
    for rows, init in parameter.pieces:
        count = rows.evaluate(sizes)
        if init is not None and not callable(init):
            value = value.at[start : start + count].set(init) if value.shape else jnp.full_like(value, init)
        start += count
    if any(callable(init) for _, init in parameter.pieces):
        made = jax.ShapeDtypeStruct(value.shape, value.dtype)
        seed = jax.random.bits(key, (4,), jnp.uint32)
        value = jax.pure_callback(_filler(parameter, sizes), made, value, seed, vmap_method="sequential")
    return value


def _filler(parameter: Parameter, sizes: Mapping[str, int]) -> Callable[[Any, Any], npt.NDArray[Any]]:
    def filled(value: Any, seed: Any) -> npt.NDArray[Any]:
        made, random = np.array(value), np.random.default_rng(np.asarray(seed))
        for part, first in own_initial_values(parameter, made, sizes, lambda: random):
            part[...] = first
        return made

    return filled
