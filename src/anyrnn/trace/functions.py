"""Functions that networks of other systems have, in the language of cells."""

from __future__ import annotations

from typing import Any

from anyrnn.ir.symbol import Symbol
from anyrnn.trace.language import maximum, minimum, tanh, where


def bounded(v: Symbol, low: float, high: float) -> Symbol:
    """Not below the one, and not above the other."""
    return minimum(maximum(v, low), high)


def elu(v: Symbol, alpha: Any = 1.0) -> Symbol:
    """v, and below zero alpha * (exp(v) - 1): by a hyperbolic tangent, as the difference has few digits near zero.

    Source: Clevert, Unterthiner & Hochreiter 2016, arXiv 1511.07289.
    """
    half = tanh(0.5 * minimum(v, 0))
    return where(v > 0, v, alpha * (2 * half / (1 - half)))
