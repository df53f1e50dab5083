"""`python -m benchmarks.jax_layers`: anyrnn's layers in programs of JAX, and the same cells as `lax.scan` under `jit`, in one
process, block by block: inference, and training with a cotangent for every output.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import anyrnn.jax
from benchmarks.jax_scan import CELLS
from benchmarks.measure import Blocks, measure
from benchmarks.report import aligned

SHAPES = ((1, 1, 256, 256), (100, 1, 256, 256), (28, 200, 28, 256), (100, 32, 256, 256), (50, 64, 512, 512))
"""Steps, samples, features, hidden features"""
NAMES = ("rnn_tanh", "gru", "lstm", "gru_before", "lstm_layernorm")
APART = 1e-3
"""How far results may be apart, of the largest number of an array."""

Function = Callable[[Any, Any], Any]


def scan(cell: str, hidden: int) -> Function:
    """A cell over a sequence, [T, N, H], without the last states."""
    found = CELLS[cell]

    def run(parameters: Any, x: Any) -> Any:
        named = {name.removesuffix("_l0"): array for name, array in parameters.items()}

        def step(states: Any, product: Any) -> Any:
            states = found.step(named, product, states)
            return states, states[0]

        first = (jax.numpy.zeros((x.shape[1], hidden), x.dtype),) * found.states
        return jax.lax.scan(step, first, found.products(named, x))[1]

    return run


def trained(function: Function, cotangent: Any) -> Function:
    def run(parameters: Any, x: Any) -> Any:
        output, pull = jax.vjp(function, parameters, x)
        return output, pull(cotangent)

    return run


def check(one: Any, other: Any, who: str) -> None:
    """Raises: ValueError where results are apart."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if not np.abs(a - b).max() <= APART * np.abs(b).max():  # nor for NaN
            raise ValueError(f"{who}: results differ by {np.abs(a - b).max()}, of {np.abs(b).max()}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jax_layers", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each (default: 7)")
    parser.add_argument("--cells", default=",".join(NAMES), help="(default: %(default)s)")
    chosen = parser.parse_args(arguments)
    lines = [["cell", "T x N x D x H", "", "anyrnn ms", "lax.scan ms", "ratio"]]
    ratios: dict[str, list[float]] = {"inference": [], "training": []}
    for steps, samples, features, hidden in SHAPES:
        for cell in chosen.cells.split(","):
            layer = anyrnn.jax.Recurrent(cell, features, hidden)
            parameters = layer.init(jax.random.key(0))
            x, cotangent = (jax.random.normal(jax.random.key(k), (steps, samples, n)) for k, n in ((1, features), (2, hidden)))
            functions: dict[str, Function] = {
                "anyrnn": lambda p, x, layer=layer: layer.apply(p, x)[0],
                "scan": scan(cell, hidden),
            }
            for mode, of_mode in ratios.items():
                run = {n: jax.jit(f if mode == "inference" else trained(f, cotangent)) for n, f in functions.items()}
                check(run["anyrnn"](parameters, x), run["scan"](parameters, x), f"{cell}, {mode}")
                calls = {n: lambda f=f: jax.block_until_ready(f(parameters, x)) for n, f in run.items()}  # noqa: B023
                found = measure(calls, Blocks(rounds=chosen.rounds))
                ours, theirs = (found[name].median * 1e3 for name in ("anyrnn", "scan"))
                of_mode.append(theirs / ours)
                shape = f"{steps}x{samples}x{features}x{hidden}"
                lines.append([cell, shape, mode, f"{ours:.3g}", f"{theirs:.3g}", f"{theirs / ours:.2f}"])
    print(aligned(lines))
    for mode, of_mode in ratios.items():
        print(f"{mode}: geometric mean {math.exp(sum(map(math.log, of_mode)) / len(of_mode)):.2f}, least {min(of_mode):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
