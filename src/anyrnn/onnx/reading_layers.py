"""Layers of imported models, as formulas in the language of cells: what they compute can be saved, and called step after step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from anyrnn.ir.dims import Dim
from anyrnn.ir.symbol import Symbol
from anyrnn.runtime.formulas import pairwise
from anyrnn.runtime.layers import Formula, Layer, Recurrent, elementwise
from anyrnn.sequence.network import Network
from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import apply, concat, exp, where
from anyrnn.trace.tracer import current

Array = npt.NDArray[Any]
Arithmetic = Callable[..., Symbol]
L = TypeVar("L", Formula, Recurrent)
TERMS = 30
"""Of the series for the error function, with which it is right to 2e-14."""


def of_one(name: str, source: str, size: int, function: Arithmetic, dtype: str, **parameters: Array) -> Formula:
    """A function of the features of one layer, and of vectors of as many."""
    return _typed(elementwise(name, source, size, function, backend="auto", **parameters), dtype)


def of_two(name: str, sources: Sequence[str], size: int, function: Arithmetic, dtype: str, single: bool = False) -> Formula:
    """A function of the features of two layers, of which the second has as many as the first, or a single one."""
    return _typed(pairwise(name, tuple(sources), size, function, single), dtype)


def chosen(name: str, source: str, size: int, runs: Sequence[tuple[int, int]], dtype: str) -> Formula:
    """Some features of a layer: of each run, those from a first one up to another."""

    def taken(x: Symbol) -> Symbol:
        tracer = current("slice")
        return concat(*[tracer.slice(x, Dim.of(start), Dim.of(stop - start)) for start, stop in runs])

    return of_one(name, source, size, taken, dtype)


def sum_of_steps(name: str, source: str, size: int, dtype: str) -> Recurrent:
    """As a cell that adds one step after the other."""
    return _typed(Recurrent(name, [source], _network(_steps_sum(), size), {}, last=True), dtype)


def is_sum(layer: Layer | None) -> TypeGuard[Recurrent]:
    """Whether a layer is the sum of steps."""
    return isinstance(layer, Recurrent) and layer.network.graph == _steps_sum().trace()


@cache
def _steps_sum() -> Any:
    @cell
    def steps_sum(x, total: Vec("input")):  # type: ignore[no-untyped-def, valid-type]
        total = total + x
        return total, State(total=total)

    return steps_sum


def _network(of_cell: Any, size: int) -> Network:
    return Network(of_cell.trace(), (("hidden", size), ("input", size)))


def _typed(layer: L, dtype: str) -> L:
    """A layer's dtype is that of its parameters, and this one may have none."""
    layer.runner.dtype = np.dtype(dtype)
    return layer


# the error function


def erf(v: Symbol) -> Symbol:
    """1 - erfc(v), or below 0 the negative; erfc(z) exp(z^2) is a Chebyshev series in 2 / (2 + z), by Clenshaw's recurrence."""
    a = apply("abs", v)
    y = 4 / (2 + a) - 1
    first, *rest = [float(c) for c in _series()]
    above: Any = 0.0
    value: Any = rest[-1] + 0 * y
    for coefficient in reversed(rest[:-1]):
        above, value = value, 2 * y * value - above + coefficient
    series = y * value - above + first
    result = 1 - series * exp(-a * a)
    return where(v < 0, -result, result)


@cache
def _series() -> Array:
    """Of erfc(z) exp(z^2), where y = 4 / (2 + z) - 1 goes from -1 for infinite z to 1 for z = 0."""
    series: Array = np.polynomial.chebyshev.chebinterpolate(np.vectorize(_scaled), TERMS)
    return series


def _scaled(y: float) -> float:
    z = 4 / (y + 1) - 2
    if z < 10:
        return math.erfc(z) * math.exp(z * z)
    term, total = 1.0, 1.0  # the asymptotic series
    for k in range(1, 20):
        term *= -(2 * k - 1) / (2 * z * z)
        total += term
    return total / (z * math.sqrt(math.pi))
