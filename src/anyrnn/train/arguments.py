"""Numbers on a command line, as argparse takes them."""

from __future__ import annotations

import argparse

HIGHEST_RATE = 1e30


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
    """A number above 0 that optimisers take. Raises: ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not 0 < value <= HIGHEST_RATE:
        raise argparse.ArgumentTypeError(f"expected a number above 0, up to {HIGHEST_RATE:g}, got {text}")
    return value
