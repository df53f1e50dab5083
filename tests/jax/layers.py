"""A call of a layer with all its gradients, by JAX and by NumPy's layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import anyrnn
import anyrnn.jax
from anyrnn import cells
from tests.zoo import further, occurring

Array = np.ndarray[Any, np.dtype[Any]]
Results = dict[str, Array]


class Given:
    """What a call of a layer gets: numbers for all its arrays, and cotangents for what it gives."""

    def __init__(self, layer: anyrnn.Recurrent, steps: int, rows: int, call: Mapping[str, Any], with_state: bool = True) -> None:
        self.layer, self.call, network = layer, dict(call), layer.network
        self.random = np.random.default_rng([steps, rows])
        sides = (rows, steps) if layer.batch_first else (steps, rows)
        self.x = self.numbers(*sides, network.input_size)
        self.steps = further(network, *sides, dtype=layer.dtype)
        self.state: tuple[Array, ...] | None = None
        if with_state:
            drawn = [0.5 * self.numbers(len(network.units), rows, size) for size in network.state_sizes]
            named = dict(zip(network.graph.state_names, drawn, strict=True))
            fitting = occurring(layer.cell, named).values() if layer.cell else drawn
            self.state = tuple(a.astype(layer.dtype) for a in fitting)

    def numbers(self, *shape: int) -> Array:
        return self.random.normal(size=shape).astype(self.layer.dtype)

    def cotangents(self, results: Any) -> Any:
        """The same for the same results."""
        self.random = np.random.default_rng(len(self.x))
        return [None if a is None else self.numbers(*a.shape) for a in results]


def several(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


def on_numpy(given: Given, seed: int | None = None) -> Results:
    """By NumPy's layer; with a seed as it trains."""
    layer, trains = given.layer, seed is not None
    if not trains:  # the evaluation network's gradients
        layer = anyrnn.Recurrent.of_network(layer.network, layer.parameters, batch_first=layer.batch_first, backend=layer.backend)
    y, states, reserve = layer.forward_training(given.x, given.state, seed=seed or 0, **given.steps, **given.call)
    shown, states = several(y), several(states)
    d_y, d_states = given.cotangents(shown), given.cotangents(states)
    joined = tuple(d_y) if len(d_y) > 1 else d_y[0]
    d_x, d_first, gradients = layer.backward(reserve, joined, tuple(d_states))
    return _named(shown, states, several(d_x), several(d_first) if given.state else (), gradients)


def on_jax(layer: anyrnn.jax.Recurrent, given: Given, key: Any = None) -> Results:
    def results(parameters: Any, x: Any, steps: Any, state: Any) -> Any:
        y, states = layer.apply(parameters, x, state, key=key, train=key is not None, **steps, **given.call)
        return several(y), several(states)

    arguments = (given.layer.parameters, given.x, given.steps, given.state)
    shapes = jax.eval_shape(results, *arguments)
    d_y, d_states = given.cotangents(shapes[0]), given.cotangents(shapes[1])

    def both(*arguments: Any) -> Any:
        (y, states), pull = jax.vjp(results, *arguments)
        return y, states, pull((tuple(d_y), tuple(d_states)))

    y, states, (gradients, d_x, d_steps, d_first) = jax.jit(both)(*arguments)
    names = [name for name, _ in given.layer.network.further_inputs]
    return _named(y, states, [d_x, *(d_steps[n] for n in names)], d_first or (), gradients)


def _named(y: Any, states: Any, d_inputs: Any, d_first: Any, gradients: Mapping[str, Any]) -> Results:
    lists = {"output": y, "state": states, "d input": d_inputs, "d first": d_first}
    found = {f"{kind} {k}": np.asarray(a) for kind, arrays in lists.items() for k, a in enumerate(arrays) if a is not None}
    return found | {f"d {name}": np.asarray(a) for name, a in gradients.items()}


def seed_of(key: Any) -> int:
    """The seed that calls of NumPy's layers have for the same choices as those with a key."""
    low, high = jax.random.bits(key, (2,), np.uint32).tolist()
    return int(low | high << 32)


def assert_same(one: Results, other: Results) -> None:
    assert one.keys() == other.keys()
    for name, a in one.items():
        np.testing.assert_array_equal(a, other[name], name)


def assert_close(one: Results, other: Results, of_largest: float) -> None:
    """To a part of the largest number of each array."""
    assert one.keys() == other.keys()
    for name, a in one.items():
        b = other[name]
        assert a.shape == b.shape, name
        np.testing.assert_allclose(a, b, rtol=0, atol=of_largest * max(1e-3, np.abs(b).max(initial=0)), err_msg=name)


def pair(
    cell: Any, *sizes: int, backend: str = "auto", dtype: Any = np.float32, **options: Any
) -> tuple[anyrnn.jax.Recurrent, anyrnn.Recurrent]:
    """A layer for JAX and one for NumPy that has parameters."""
    layer = anyrnn.jax.Recurrent(cells.load(cell), *sizes, backend=backend, **options)
    return layer, anyrnn.Recurrent(cells.load(cell), *sizes, dtype=dtype, backend=backend, seed=1, **options)
