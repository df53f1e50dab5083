"""The steps that samples have: as masks of the steps that are there, and what outputs hold elsewhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anyrnn.sequence.packing import LAST, StepsGiven, checked_lengths


def steps_of(given: StepsGiven, x: Array, batched: bool, batch_first: bool) -> tuple[Array | None, Array | None]:
    """The steps that are there and those before which states begin anew, of the first two sizes of x; None for all, and for none.

    Raises: TypeError and ValueError for what cannot be.
    """
    largest = float(jnp.finfo(x.dtype).max)
    given.check(x.dtype, largest)
    sides = x.shape[:2]
    there = []
    if given.lengths is not None:
        steps, samples = sides[::-1] if batch_first else sides
        lengths = given.lengths
        if not batched and not isinstance(lengths, (list, tuple)) and np.ndim(lengths) == 0:
            lengths = lengths[None] if isinstance(lengths, jax.Array) else [lengths]
        if not isinstance(lengths, jax.core.Tracer):
            lengths = checked_lengths(lengths if isinstance(lengths, (list, tuple)) else np.asarray(lengths), steps, samples)
        elif lengths.shape != (samples,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
            sides_of = f"{lengths.dtype} of shape {lengths.shape}"
            raise ValueError(f"lengths should be {samples} integers, one for each sample, got {sides_of}")
        lengths, each = jnp.clip(jnp.asarray(lengths), 0, steps).astype(jnp.int32), jnp.arange(steps, dtype=jnp.int32)
        there.append(each[None] < lengths[:, None] if batch_first else each[:, None] < lengths[None])
    if given.mask is not None:
        there.append(_checked_mask(given.mask, "mask", sides, batched))
    if given.mask_value is not None:
        there.append((x != given.mask_value).any(-1))
    reset = None if given.reset is None else _checked_mask(given.reset, "reset", sides, batched)
    if not there:
        return None, reset
    found = there[0]
    for one in there[1:]:
        found = found & one
    return found, reset


def _checked_mask(mask: Any, who: str, sides: tuple[int, ...], batched: bool) -> Array:
    mask, expected = jnp.asarray(mask), sides if batched else sides[1:]
    if mask.dtype != jnp.bool_:
        raise TypeError(f"{who} should be an array of bool, got {mask.dtype}: {who}.astype(bool)")
    if mask.shape != expected:
        raise ValueError(f"{who} should have shape {expected}, one for each step of the input, got {mask.shape}")
    checked: Array = mask if batched else mask[None]
    return checked


def padded(sequence: Array, there: Array, batch_first: bool, padding: Any, ends: bool) -> Array:
    """With what it holds where a sample has no step. Of `ends` [N, features], else [.., T, N, features] laid out as `there`."""
    if ends:
        has = there.any(1 if batch_first else 0)[:, None]
        return jnp.where(has, sequence, 0.0 if padding == LAST else padding)
    if padding != LAST:
        return jnp.where(there[..., None], sequence, padding)
    axis = 1 if batch_first else 0
    steps = jnp.arange(there.shape[axis], dtype=jnp.int32)
    latest = jax.lax.cummax(jnp.where(there, steps[None] if batch_first else steps[:, None], -1), axis)
    place = jnp.broadcast_to(jnp.maximum(latest, 0)[..., None], sequence.shape)
    held = jnp.take_along_axis(sequence, place, sequence.ndim - 3 + axis)
    return jnp.where((latest >= 0)[..., None], held, 0.0)
