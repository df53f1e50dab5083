"""A layer for JAX: functions of its parameters, with no state of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from jax.typing import ArrayLike, DTypeLike

import anyrnn.numpy
from anyrnn import backends, cells
from anyrnn.errors import UnsupportedError, meant
from anyrnn.explanation import Seen
from anyrnn.jax import parts
from anyrnn.jax.call import Call, Operands, own_states
from anyrnn.jax.steps import Steps, padded, steps_of
from anyrnn.numpy.parameters import own_initial_values
from anyrnn.sequence.layer import described
from anyrnn.sequence.network import (
    Network,
    check_arguments,
    check_budget,
    check_size,
    check_wanted,
    make_networks,
)
from anyrnn.sequence.options import copied
from anyrnn.trace import Cell
from anyrnn.trace.signature import CALL_KEYWORDS

Parameters = Mapping[str, Array]
States = ArrayLike | Sequence[ArrayLike]
COUNTED = {"bfloat16": 2**8, "float16": 2**11}


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
        dropout: probability of zeroing each output between layers, in calls with a key.
        backend: `auto`, `llvm` (native kernels) or `reference` (JAX's operators). An explicit one that cannot run raises
            UnsupportedError.
        memory_budget: bytes that kernels may keep of a call that is differentiated, see `anyrnn.Recurrent`.
        options: the cell's hyper-parameters and named sizes other than input and hidden, and what `anyrnn.LayerOptions` tells of.

    A layer has no arrays and cannot be changed; layers that were made alike are equal and have one hash, so that they may be
    static arguments and fields.

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
        given = (input_size, hidden_size, num_layers, bias, bidirectional, options, float(dropout))
        self.hidden_size, self.batch_first = hidden_size, batch_first
        self.backend, self.memory_budget = backend, memory_budget
        self.networks = make_networks(self.cell, *given)
        if backend not in backends.NAMES:
            raise ValueError(f"backend should be one of {', '.join(backends.NAMES)}, got {backend!r}")
        of_numpy: dict[str, Any] = {"num_layers": num_layers, "bias": bias, "batch_first": batch_first, "dropout": float(dropout)}
        of_numpy |= {"bidirectional": bidirectional, "backend": backend, "memory_budget": memory_budget, **options}
        self._of_numpy = of_numpy

    @property
    def network(self) -> Network:
        """The network of calls without a key."""
        return self.networks.evaluation

    @property
    def _identity(self) -> tuple[Any, ...]:
        return self.networks, self.batch_first, self.backend, self.memory_budget

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recurrent) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Recurrent({described((self.cell.name, self.network.input_size, self.hidden_size), self._of_numpy)})"

    # parameters

    def init(self, key: Array, dtype: DTypeLike = jnp.float32) -> dict[str, Array]:
        """Parameters by name (`weight_ih_l0`, ... as in torch.nn), uniform within 1 / sqrt(H) unless the cell says otherwise.

        Args:
            key: of JAX's random numbers.
            dtype: float32, float64, bfloat16 or float16.

        Raises: TypeError for another dtype.
        """
        dtype = jnp.dtype(dtype)
        if dtype.name not in ("float32", "float64", *COUNTED):
            raise TypeError(f"dtype should be float32, float64, bfloat16 or float16, got {dtype}")
        bound = 1 / math.sqrt(self.hidden_size)
        named = [
            (parameter, shape, parameter.name + self.network.suffix(layer, direction), self.network.layer_sizes(layer))
            for layer, direction in self.network.units
            for parameter, shape in self.network.parameters(layer)
        ]
        found: dict[str, Array] = {}
        for own, (parameter, shape, name, sizes) in zip(jax.random.split(key, max(len(named), 1)), named, strict=False):
            value = jax.random.uniform(own, shape, dtype, -bound, bound)
            if any(init is not None for _, init in parameter.pieces):

                def filled(value: Any, seed: Any, parameter: Any = parameter, sizes: Any = sizes) -> npt.NDArray[Any]:
                    made = np.array(value)
                    random = np.random.default_rng(np.asarray(seed))
                    for part, first in own_initial_values(parameter, made, sizes, lambda: random):
                        part[...] = first
                    return made

                seed = jax.random.bits(own, (4,), jnp.uint32)
                value = jax.pure_callback(filled, jax.ShapeDtypeStruct(shape, value.dtype), value, seed, vmap_method="sequential")
            found[name] = value
        return found

    def initial_state(self, parameters: Parameters, batch_size: int | None = None) -> Any:
        """The states that sequences begin with, [layers * directions, N, H]: learned ones if the layer has them, else the cell's
        own first values; a tuple of them for a cell with several.

        Args: batch_size: N; without it the states of one sequence without a batch.

        Raises: TypeError, ValueError for what is no size, and for parameters that do not fit.
        """
        arrays = self._checked_parameters(parameters)
        dtype = next((a.dtype for a in arrays.values()), jnp.dtype(jnp.float32))
        own = own_states(self.network, arrays, dtype)
        if batch_size is None:
            return _given_back([a[:, 0] for a in own])
        check_size("batch_size", batch_size)
        return _given_back([jnp.repeat(a, batch_size, 1) for a in own])

    def on_numpy(self, parameters: Parameters) -> anyrnn.numpy.Recurrent:
        """The same layer on NumPy arrays, with copies of these parameters (of 16 bits in float32): to be saved, exported to ONNX
        or an object file, or called step after step (`stream`).

        Raises: ValueError, TypeError for parameters that do not fit.
        """
        arrays = {name: np.array(_wide(array)) for name, array in self._checked_parameters(parameters).items()}
        dtype = next((a.dtype for a in arrays.values()), np.dtype(np.float32))
        sizes = self.network.input_size, self.hidden_size
        layer = anyrnn.numpy.Recurrent(self.cell, *sizes, **self._of_numpy, dtype=dtype)
        layer.parameters = arrays
        return layer

    def _checked_parameters(self, parameters: Parameters) -> dict[str, Array]:
        """In the network's order. Raises: TypeError, ValueError."""
        if not isinstance(parameters, Mapping):
            raise TypeError(f"parameters should be a dict of arrays by name, got {type(parameters).__name__}")
        names = self.network.parameter_names
        if parameters.keys() != set(names):
            wrong = ", ".join(map(str, sorted(parameters.keys() ^ set(names), key=str)))
            raise ValueError(f"parameters should be {', '.join(names)}; unknown or missing: {wrong}")
        shapes = [shape for layer, _ in self.network.units for _, shape in self.network.parameters(layer)]
        arrays = {name: jnp.asarray(parameters[name]) for name in names}
        dtypes = {array.dtype for array in arrays.values()}
        for (name, array), shape in zip(arrays.items(), shapes, strict=True):
            if array.shape != shape:
                raise ValueError(f"parameter {name} should have shape {shape}, got {array.shape}")
        if len(dtypes) > 1:
            raise TypeError(f"parameters should have one dtype, got {', '.join(sorted(d.name for d in dtypes))}")
        return arrays

    # calls

    def apply(
        self,
        parameters: Parameters,
        x: ArrayLike,
        state: States | None = None,
        *,
        key: Array | None = None,
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
            key: of JAX's random numbers. With one the call trains: dropout and zoneout draw by it, so that the same key makes
                the same choices. Without one it does not.
            lengths: how many steps each sample has, N integers from 0 to T in any order. In a function that is being traced
                nobody can look whether they are.
            mask: bool, [T, N] in x's layout ([T] without a batch): False for steps that a sample does not have. They are as if
                they were cut out.
            mask_value: steps that a sample does not have are those where all features of the input have this value.
            reset: bool, of the shape of a mask: True for steps that begin a new sequence, from the cell's own first values.
            padding: what outputs hold where a sample has no step: a number, or `last` for the output of the latest step that it
                had, or zero.
            return_outputs: `all`; or `last` for the output [N, directions * H] of the last step that each direction takes of a
                sample; or `none`, which gives None.
            return_states: `last`, or `all` for the states after every step, [layers * directions, T, N, H] in x's layout.
            steps: the cell's further per-step inputs, by name, [T, N, size] in x's layout; every layer gets them.

        Returns: the output [T, N, directions * H] in x's layout, and the state [layers * directions, N, H] after each sample's
        last step; a tuple of states for a cell with several.

        Raises: ValueError for wrong shapes; TypeError for wrong dtypes and unknown arguments; UnsupportedError where the backend
        that was asked for cannot run.
        """
        network = self.network if key is None else self.networks.training
        check_wanted(network, "", return_outputs, return_states)
        arrays = self._checked_parameters(parameters)
        x = jnp.asarray(x)
        dtype = next((a.dtype for a in arrays.values()), x.dtype)
        inputs, batched = self._inputs(x, steps, dtype)
        batch_first = self.batch_first or not batched
        count, rows = inputs[0].shape[:2] if not batch_first else inputs[0].shape[1::-1]
        if not count:
            raise ValueError("x has no steps; a sequence needs at least one")
        there, reset_at = steps_of(Steps(lengths, mask, mask_value, reset, padding), inputs[0], batched, batch_first)
        first = self._states(state, rows, batched, dtype)
        _check_counters(network, dtype)
        inputs, first = [_wide(a) for a in inputs], [_wide(a) for a in first]
        arrays = {name: _wide(array) for name, array in arrays.items()}
        if not first and network.learned_state:
            first = [jnp.repeat(a, rows, 1) for a in own_states(network, arrays, inputs[0].dtype)]
        ends, all_states = return_outputs != "all", return_states == "all"
        call = Call(
            network,
            batch_first,
            ends=ends,
            all_states=all_states,
            given=bool(first),
            draws=key is not None,
            masked=there is not None,
            resets=reset_at is not None,
            backend=self.backend,
            budget=self.memory_budget,
        )
        seed = None if key is None else jax.random.bits(key, (2,), jnp.uint32)
        y, states = parts.run(call, Operands(inputs, first, list(arrays.values()), seed, there, reset_at))
        if there is not None:
            y = padded(y, there, batch_first, padding, ends)
            states = [padded(a, there, batch_first, padding, False) for a in states] if all_states else states
        return self._shown(network, y, return_outputs, batched, dtype), self._shown_states(states, all_states, batched, dtype)

    __call__ = apply

    def _inputs(self, x: Array, steps: Mapping[str, ArrayLike], dtype: Any) -> tuple[list[Array], bool]:
        """Sequences of the same steps and samples, [1, T, features] without a batch, and whether there is one."""
        names = dict(self.network.further_inputs)
        if "cu_seqlens" in steps:
            raise TypeError("cu_seqlens: a program of JAX has fixed sizes; give x as [T, N, D] with lengths")
        unknown = sorted(steps.keys() - names.keys())
        if unknown:
            slip, known = meant(unknown[0], (*names, *CALL_KEYWORDS)), ", ".join(names) or "none"
            raise TypeError(f"cell {self.cell.name!r} has no per-step input {unknown[0]!r}{slip}; it has: {known}")
        missing = [name for name in names if name not in steps]
        if missing:
            raise TypeError(f"cell {self.cell.name!r} needs the per-step input {missing[0]} as keyword argument")
        found = []
        for name, array, features in [
            ("x", x, self.network.input_size),
            *((name, jnp.asarray(steps[name]), size) for name, size in names.items()),
        ]:
            if array.dtype != dtype or array.dtype.name not in ("float32", "float64", *COUNTED):
                raise TypeError(f"{name} should be floating-point numbers of the parameters' dtype, {dtype}, got {array.dtype}")
            if array.ndim not in (2, 3):
                raise ValueError(f"{name} should be 2-D [T, {features}] or 3-D, got {array.ndim}-D")
            if array.shape[-1] != features:
                raise ValueError(f"{name} should have {features} features, got {array.shape[-1]}")
            if array.shape[:-1] != x.shape[:-1]:
                raise ValueError(f"{name} should have as many steps and samples as x, got shape {array.shape}")
            found.append(array if x.ndim == 3 else array[None])
        return found, x.ndim == 3

    def _states(self, state: States | None, rows: int, batched: bool, dtype: Any) -> list[Array]:
        """One [units, N, size] array for each state; none where none are given."""
        if state is None:
            return []
        specs, units = self.network.graph.states, len(self.network.units)
        arrays = [jnp.asarray(a) for a in (state if isinstance(state, (list, tuple)) else [state])]
        if len(arrays) != len(specs):
            names = ", ".join(s.name for s in specs)
            raise ValueError(f"state should be {len(specs)} arrays ({names}), got {len(arrays)}")
        for spec, size, array in zip(specs, self.network.state_sizes, arrays, strict=True):
            shape = (units, rows, size) if batched else (units, size)
            if array.shape != shape:
                raise ValueError(f"state {spec.name} should have shape {shape}, got {array.shape}")
            if array.dtype != dtype:
                raise TypeError(f"state {spec.name} should be {dtype}, got {array.dtype}")
        return [a if batched else a[:, None] for a in arrays]

    def _shown(self, network: Network, y: Array, return_outputs: str, batched: bool, dtype: Any) -> Any:
        if return_outputs == "none":
            return None
        y = (y if batched else y[0]).astype(dtype)
        return tuple(jnp.split(y, 2, -1)) if network.merge == "separate" else y

    def _shown_states(self, states: list[Array], all_states: bool, batched: bool, dtype: Any) -> Any:
        return _given_back([(a if batched else a[:, 0]).astype(dtype) for a in states])

    def _seen(self, parameters: Parameters, x: ArrayLike, state: Any = None, *, key: Any = None, **call: Any) -> Seen:
        """For `explain`."""
        layer = self.on_numpy(parameters)
        given = None if state is None else tuple(np.asarray(a) for a in state) if isinstance(state, tuple) else np.asarray(state)
        call = {name: np.asarray(a) if isinstance(a, jax.Array) else a for name, a in call.items()}
        seen = layer._seen(np.asarray(_wide(jnp.asarray(x))), given, **call)
        why = seen.why_not_native or parts.why_elsewhere()
        return replace(seen, layer=repr(self), why_not_native=why, interpreter="the interpreter on JAX, in a scan")

    def __setattr__(self, name: str, value: Any) -> None:
        if "_of_numpy" in self.__dict__:
            raise AttributeError(f"{name}: a layer cannot be changed once it is made; make another one")
        super().__setattr__(name, value)


def _given_back(states: list[Array]) -> Any:
    return states[0] if len(states) == 1 else tuple(states)


def _wide(array: Array) -> Array:
    """In the dtype that is computed in."""
    return array.astype(jnp.float32) if array.dtype.name in COUNTED else array


def _check_counters(network: Network, dtype: Any) -> None:
    """Raises: UnsupportedError where a state would stop counting, since adding 1 to a large number gives the same number."""
    limit = COUNTED.get(dtype.name)
    state = next((state for state, end in network.graph.counters.items() if limit and end > limit), None)
    if state is not None:
        sides = f"state {state!r} counts steps, in {dtype} to {limit} only; use float32"
        raise UnsupportedError(f"cell {network.graph.name!r}: {sides}")
