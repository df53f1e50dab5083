"""What `make test` leaves to `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every_second(values: Iterable[Any]) -> list[Any]:
    """Of the values of a parameter, all, of which every second one is slow."""
    return [value if number % 2 == 0 else pytest.param(value, marks=pytest.mark.slow) for number, value in enumerate(values)]
