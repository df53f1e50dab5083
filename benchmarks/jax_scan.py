"""The peer JAX: a row's cell as `lax.scan` under `jit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.job import Job
from benchmarks.suite import STREAMS
from benchmarks.systems import STREAM, named

Parameters = dict[str, Any]
States = tuple[Any, ...]


@dataclass(frozen=True)
class ScanCell:
    """`products` is made for all steps at once; `step` takes one step's part of it."""

    products: Callable[[Parameters, Any], Any]
    step: Callable[[Parameters, Any, States], States]
    states: int = 1


def build(job: Job) -> Scan | None:
    """None for a cell that is not written here, several layers or directions, and packed batches."""
    cell, parameters = CELLS.get(job.row.cell), job.layer_parameters()
    return Scan(job, cell, parameters) if cell and parameters and job.packed is None else None


def _products(p: Parameters, x: Any) -> Any:
    return x @ p["weight_ih"].T + (p["bias_ih"] + p["bias_hh"])


def _rnn(activation: str) -> ScanCell:
    def step(p: Parameters, product: Any, states: States) -> States:
        import jax

        functions = {"tanh": jax.numpy.tanh, "relu": jax.nn.relu}
        return (functions[activation](product + states[0] @ p["weight_hh"].T),)

    return ScanCell(_products, step)


def _lstm(p: Parameters, product: Any, states: States) -> States:
    import jax

    h, c = states
    i, f, g, o = jax.numpy.split(product + h @ p["weight_hh"].T, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
    return jax.nn.sigmoid(o) * jax.numpy.tanh(c), c


def _normal(value: Any) -> Any:
    import jax.numpy as jnp

    centred = value - value.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def _lstm_layernorm(p: Parameters, product: Any, states: States) -> States:
    import jax

    h, c = states
    parts = jax.numpy.split(product + h @ p["weight_hh"].T, 4, axis=-1)
    i, f, g, o = (p[f"gain_{gate}"] * _normal(part) + p[f"shift_{gate}"] for gate, part in zip("ifgo", parts, strict=True))
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
    return jax.nn.sigmoid(o) * jax.numpy.tanh(p["gain_c"] * _normal(c) + p["shift_c"]), c


def _gru_products(p: Parameters, x: Any) -> Any:
    return x @ p["weight_ih"].T + p["bias_ih"]


def _gru(p: Parameters, product: Any, states: States) -> States:
    import jax

    (h,) = states
    of_r, of_z, of_n = jax.numpy.split(product, 3, axis=-1)
    r, z, n = jax.numpy.split(h @ p["weight_hh"].T + p["bias_hh"], 3, axis=-1)
    z = jax.nn.sigmoid(of_z + z)
    n = jax.numpy.tanh(of_n + jax.nn.sigmoid(of_r + r) * n)
    return ((1 - z) * n + z * h,)


def _gru_before(p: Parameters, product: Any, states: States) -> States:
    import jax

    (h,) = states
    rows = 2 * h.shape[-1]
    r, z = jax.numpy.split(jax.nn.sigmoid(product[..., :rows] + h @ p["weight_hh"][:rows].T), 2, axis=-1)
    n = jax.numpy.tanh(product[..., rows:] + (r * h) @ p["weight_hh"][rows:].T)
    return ((1 - z) * n + z * h,)


CELLS = {
    "rnn_tanh": _rnn("tanh"),
    "rnn_relu": _rnn("relu"),
    "lstm": ScanCell(_products, _lstm, 2),
    "lstm_layernorm": ScanCell(lambda p, x: x @ p["weight_ih"].T, _lstm_layernorm, 2),
    "gru": ScanCell(_gru_products, _gru),
    "gru_before": ScanCell(_products, _gru_before),
}
"""By the name of the cell."""


class Scan:
    """The jitted forward pass, or forward and backward."""

    def __init__(self, job: Job, cell: ScanCell, parameters: dict[str, Tensor]) -> None:
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", job.dtype == torch.float64)
        self.mode = job.row.mode
        self.parameters = {name: jax.numpy.asarray(t.numpy()) for name, t in parameters.items()}
        self.x = jax.numpy.asarray(job.data.numpy())
        self.first: States = (jax.numpy.zeros((job.row.samples, job.row.hidden), self.x.dtype),) * cell.states
        self.states = self.first
        d_output = jax.numpy.asarray(job.d_output.numpy())
        last_step = job.row.loss == "last"

        def forward(parameters: Parameters, x: Any, states: States) -> tuple[Any, States]:
            def step(states: States, product: Any) -> tuple[States, Any]:
                states = cell.step(parameters, product, states)
                return states, states[0]

            last, output = jax.lax.scan(step, states, cell.products(parameters, x))
            return output, last

        def train(parameters: Parameters, x: Any, states: States) -> Any:
            def graded(parameters: Parameters, x: Any) -> Any:
                output, last = forward(parameters, x, states)
                return output[-1] if last_step else output, (output, last)

            _, backward, (output, last) = jax.vjp(graded, parameters, x, has_aux=True)
            return output, last, backward(d_output)

        self.run = jax.jit(train if self.mode == "training" else forward)

    def call(self) -> Any:
        import jax

        found = jax.block_until_ready(self.run(self.parameters, self.x, self.states))
        if self.mode in STREAMS:
            self.states = found[1]
        return found

    def results(self) -> dict[str, Tensor]:
        self.states = self.first
        runs = [self.call() for _ in range(STREAM if self.mode in STREAMS else 1)]
        output, last = torch.cat([_tensor(run[0]) for run in runs]), runs[-1][1]
        found = named(output, [_tensor(state)[None] for state in last])
        if self.mode == "training":
            d_parameters, d_x = runs[-1][2]
            found |= {"d_input": _tensor(d_x), **{f"d_{name}_l0": _tensor(grad) for name, grad in d_parameters.items()}}
        return found


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array))
