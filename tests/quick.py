"""What `make test` leaves to `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

LONG = (
    *("backends/test_corners.py::test_all_agree_whatever_is_asked_for", "test_options.py::test_each_option_is_what_a_loop_says"),
    *("torch/test_loss_curves.py", "test_all_states.py::test_front_ends_and_backends_agree", "torch/test_held.py::test_cells"),
    *("train/test_resume.py::test_a_run_that_was_interrupted", "files/test_fuzz.py::test_hostile_files"),
    *("backends/llvm/test_threads.py::test_own_team", "torch/test_compile.py::test_results", "benchmarks/test_child.py"),
    *("benchmarks/test_main.py::test_a_run_that_was_stopped", "test_options.py::test_gradcheck", "backends/triton/test_scans.py"),
    *("torch/test_derivatives.py::test_gradcheck", "test_memory_budget.py::test_every_cell"),
)
"""Tests that are slow as a whole: how their names begin, in this folder."""


def every_second(values: Iterable[Any]) -> list[Any]:
    """Of the values of a parameter, all, of which every second one is slow."""
    return [value if number % 2 == 0 else pytest.param(value, marks=pytest.mark.slow) for number, value in enumerate(values)]
