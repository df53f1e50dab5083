"""What a layer is given, checked: parameters, sequences and states, as arrays of JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from anyrnn.errors import UnsupportedError
from anyrnn.sequence.network import Network, counted_to
from anyrnn.trace.signature import no_such_input

Parameters = Mapping[str, Array]
States = ArrayLike | Sequence[ArrayLike]


ELSEWHERE = dict.fromkeys(("rng", "rngs"), "key=, one key of random numbers")
ELSEWHERE |= dict.fromkeys(("deterministic", "is_training", "training", "inference"), "train=")
ELSEWHERE |= dict.fromkeys(("carry", "initial_carry", "initial_state", "init_carry"), "state, the third argument")
ELSEWHERE |= {"seq_lengths": "lengths="}
"""What other libraries call it."""


def is_floating(dtype: Any) -> bool:
    """Whether a layer can be of it."""
    return dtype.name in ("float32", "float64") or counted_to(dtype.name) is not None


def wide(array: Array) -> Array:
    """In the dtype that is computed in."""
    return array.astype(jnp.float32) if counted_to(array.dtype.name) else array


def as_array(value: Any, who: str) -> Array:
    """Raises: TypeError for what is none."""
    try:
        return jnp.asarray(value)
    except TypeError:
        raise TypeError(f"{who} should be an array, got {type(value).__name__}") from None


def checked_parameters(network: Network, parameters: Parameters) -> dict[str, Array]:
    """In the network's order. Raises: TypeError, ValueError."""
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters should be a dict of arrays by name, got {type(parameters).__name__}")
    names = network.parameter_names
    if parameters.keys() != set(names):
        both = {"missing": set(names) - parameters.keys(), "unknown": parameters.keys() - set(names)}
        told = "; ".join(f"{kind}: {', '.join(sorted(map(str, some)))}" for kind, some in both.items() if some)
        hint = " (give what is under 'params')" if set(parameters) == {"params"} else ""
        raise ValueError(f"parameters should be {', '.join(names)}; {told}{hint}")
    arrays = {name: as_array(parameters[name], f"parameter {name}") for name in names}
    shapes = [shape for layer, _ in network.units for _, shape in network.parameters(layer)]
    for (name, array), shape in zip(arrays.items(), shapes, strict=True):
        if array.shape != shape:
            raise ValueError(f"parameter {name} should have shape {shape}, got {array.shape}")
    dtypes = {array.dtype for array in arrays.values()}
    if len(dtypes) > 1:
        raise TypeError(f"parameters should have one dtype, got {', '.join(sorted(d.name for d in dtypes))}")
    return arrays


def checked_inputs(network: Network, x: Array, steps: Mapping[str, ArrayLike], dtype: Any) -> list[Array]:
    """The input and the further per-step ones, of the same steps and samples; [1, T, features] without a batch.

    Raises: TypeError, ValueError, UnsupportedError.
    """
    sizes, cell = dict(network.further_inputs), network.graph.name
    if "cu_seqlens" in steps:
        raise UnsupportedError("cu_seqlens: programs of JAX have fixed sizes; give x as [T, N, D] with lengths")
    unknown = sorted(steps.keys() - sizes.keys())
    if unknown and unknown[0] in ELSEWHERE:
        raise TypeError(f"{unknown[0]}: here it is {ELSEWHERE[unknown[0]]}")
    if unknown:
        raise no_such_input(f"cell {cell!r}", unknown, [*sizes], "state")
    missing = [name for name in sizes if name not in steps]
    if missing:
        raise TypeError(f"cell {cell!r} needs the per-step input {missing[0]} as keyword argument")
    found = []
    given = [("x", x, network.input_size), *((name, as_array(steps[name], name), size) for name, size in sizes.items())]
    for name, array, features in given:
        if array.dtype != dtype or not is_floating(array.dtype):
            kind = (
                f"{name}.astype({dtype}) makes it so" if is_floating(array.dtype) else "integers are for an embedding before it"
            )
            raise TypeError(f"{name} should be of the parameters' dtype, {dtype}, got {array.dtype}: {kind}")
        if array.ndim not in (2, 3):
            raise ValueError(f"{name} should be 2-D [T, {features}] or 3-D, got {array.ndim}-D")
        if array.shape[-1] != features:
            raise ValueError(f"{name} should have {features} features, got {array.shape[-1]}")
        if array.shape[:-1] != x.shape[:-1]:
            raise ValueError(f"{name} should have as many steps and samples as x, got shape {array.shape}")
        found.append(array if x.ndim == 3 else array[None])
    return found


def checked_states(network: Network, state: States | None, rows: int, batched: bool, dtype: Any) -> list[Array]:
    """One [units, N, size] array for each state; none where none are given. Raises: TypeError, ValueError."""
    if state is None:
        return []
    specs, units = network.graph.states, len(network.units)
    if isinstance(state, Mapping):
        raise TypeError(f"state should be arrays ({', '.join(s.name for s in specs)}) in this order, got a dict")
    if isinstance(state, jax.Array) and jnp.issubdtype(state.dtype, jax.dtypes.prng_key):
        raise TypeError("state should be arrays, got a key of random numbers: give it as key=")
    given = list(state) if isinstance(state, (list, tuple)) else [state]
    if len(given) != len(specs):
        names = ", ".join(s.name for s in specs)
        raise ValueError(f"state should be {len(specs)} arrays ({names}), got {len(given)}")
    arrays = [as_array(a, f"state {s.name}") for s, a in zip(specs, given, strict=True)]
    for spec, size, array in zip(specs, network.state_sizes, arrays, strict=True):
        shape = (units, rows, size) if batched else (units, size)
        if array.shape != shape:
            raise ValueError(f"state {spec.name} should have shape {shape}, got {array.shape}")
        if array.dtype != dtype:
            raise TypeError(f"state {spec.name} should be {dtype}, got {array.dtype}")
    return [a if batched else a[:, None] for a in arrays]
