"""First values of parameters, for cells to name and for `weights.initialise`: functions of a shape and a random generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.errors import CellError
from anyrnn.ir.graph import NUMBERS

Array = npt.NDArray[Any]
Maker = Callable[[tuple[int, ...], "np.random.Generator"], Any]  # NumPy imports its generators when they are asked for
"""Gives values of a shape."""


def check_number(value: Any, who: str) -> None:
    """Raises: CellError for what is none."""
    if not isinstance(value, NUMBERS) or isinstance(value, bool) or math.isnan(value):
        raise CellError(f"{who} should be a number, got {value!r}")


def check_init(value: Any, who: str) -> None:
    """Raises: CellError for what no parameter can begin as."""
    if value is None or callable(value):
        return
    if isinstance(value, str) and value in MAKERS:
        raise CellError(f"{who} should be a number or a function, got {value!r}: anyrnn.weights.{value} is one")
    if not isinstance(value, NUMBERS):
        raise CellError(f"{who} should be a number, or a function of a shape and a random generator, got {value!r}")
    check_number(value, who)


MAKERS = ("orthogonal", "identity", "xavier", "uniform", "normal", "chrono")


def orthogonal(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """A matrix whose rows (or columns, if there are more rows) are orthonormal: Saxe et al. 2014, arXiv 1312.6120."""
    rows, columns = shape
    q, r = np.linalg.qr(random.normal(size=(max(shape), min(shape))))
    turned: Array = q * np.sign(np.diagonal(r))
    return turned if rows >= columns else turned.T


def identity(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Ones on the diagonal: Le, Jaitly & Hinton 2015, arXiv 1504.00941."""
    rows, columns = shape
    return np.eye(rows, columns)


def xavier(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Uniform within sqrt(6 / (rows + columns)): Glorot & Bengio 2010."""
    bound = np.sqrt(6 / sum(shape))
    return random.uniform(-bound, bound, shape)


def uniform(low: float, high: float) -> Maker:
    """Uniform between two numbers."""
    return lambda shape, random: random.uniform(low, high, shape)


def normal(deviation: float, mean: float = 0.0) -> Maker:
    """Normally distributed."""
    return lambda shape, random: random.normal(mean, deviation, shape)


def chrono(longest: float) -> Maker:
    """Biases of forget gates for dependencies of up to so many steps, log(uniform(1, longest - 1)): Tallec & Ollivier 2018, arXiv
    1804.11188.
    """
    return lambda shape, random: np.log(random.uniform(1, longest - 1, shape))
