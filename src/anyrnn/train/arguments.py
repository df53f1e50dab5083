"""Numbers on a command line, as argparse takes them."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> int:
    """A count of features, steps, sequences."""
    return integer(text, at_least=1, below=2**31)


def threads(text: str) -> int:
    """A count of threads."""
    return integer(text, at_least=1, below=1025)


def seed(text: str) -> int:
    """A seed."""
    return integer(text, at_least=0, below=2**63)


def integer(text: str, at_least: int, below: int) -> int:
    """Raises: ArgumentTypeError that says what is expected."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
    if not at_least <= value < below:
        raise argparse.ArgumentTypeError(f"expected a whole number from {at_least} to {below - 1}, got {text}")
    return value


def rate(text: str) -> float:
    """A finite number above 0. Raises: ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"expected a finite number above 0, got {text}")
    return value
