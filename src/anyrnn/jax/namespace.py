"""JAX as the interpreter's namespace: what its table of ops has under other names, or with other gradients, than jax.numpy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


@jax.custom_vjp
def _clip_gradient(x: Array, low: Array, high: Array) -> Array:
    return x


def _forward(x: Array, low: Array, high: Array) -> tuple[Array, tuple[Array, Array]]:
    return x, (low, high)


def _backward(bounds: tuple[Array, Array], gradient: Array) -> tuple[Array, None, None]:
    return _clipped(gradient, *bounds), None, None


@jax.custom_jvp
def _clipped(gradient: Array, low: Array, high: Array) -> Array:
    """It belongs to no function of the values, so there is no second derivative."""
    return jnp.clip(gradient, low, high)


@_clipped.defjvp
def _refused(primals: Any, tangents: Any) -> Any:
    raise TypeError("a clipped gradient has no derivative: clip_gradient is for first derivatives")


_clip_gradient.defvjp(_forward, _backward)


class Namespace:
    """What jax.numpy has, and more. Integers are of 32 bits without a sign, which is what random choices are made of."""

    clip_gradient = staticmethod(_clip_gradient)
    relu = staticmethod(jax.nn.relu)
    sigmoid = staticmethod(jax.nn.sigmoid)
    softplus = staticmethod(jax.nn.softplus)
    stop_gradient = staticmethod(jax.lax.stop_gradient)

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    def arange(self, count: int, **place: Any) -> Array:
        return jnp.arange(count, dtype=jnp.uint32)


NAMESPACE = Namespace()
