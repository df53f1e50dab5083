"""What `make test` leaves to `make test-all`."""

from __future__ import annotations

from random import Random

LONG = (
    *("backends/test_corners.py::test_all_agree_whatever_is_asked_for", "test_options.py::test_each_option_is_what_a_loop_says"),
    *("torch/test_loss_curves.py", "test_all_states.py::test_front_ends_and_backends_agree", "torch/test_held.py::test_cells"),
    *("train/test_resume.py::test_a_run_that_was_interrupted", "files/test_fuzz.py::test_hostile_files"),
    *("backends/llvm/test_threads.py::test_own_team", "torch/test_compile.py::test_results", "benchmarks/test_child.py"),
    *("benchmarks/test_main.py::test_a_run_that_was_stopped", "test_options.py::test_gradcheck", "backends/triton/test_scans.py"),
    *("torch/test_derivatives.py::test_gradcheck", "test_memory_budget.py::test_every_cell"),
    *("backends/triton/test_options.py::test_options", "backends/triton/test_memory_budget.py::test_scans"),
    *("backends/triton/test_explain.py::test_what_does_not_fit", "backends/triton/test_text.py::test_a_seed"),
    *("backends/llvm/test_threads.py::test_openmp_grants_one", "backends/test_random_cells.py::test_all_agree_under_zoneout"),
    *("test_cli.py::test_the_defaults_read_digits_well", "torch/test_lengths.py::test_second_derivatives_and_forward_mode"),
    *("torch/test_freeze.py::test_python_ends", "test_memory.py::test_outputs_that_are_gone"),
    *(
        "runtime/test_alone.py::test_the_first_import_is_quick",
        "runtime/test_g2p.py::test_it_is_quicker",
        "torch/test_compile.py::test_weights_that_are_dropped",
    ),
)
"""Tests that are slow as a whole: how their names begin, in this folder."""
HALVED = (
    *("backends/test_options.py::test_the_kernels_equal_the_reference", "backends/test_corners.py::test_all_agree["),
    *("backends/test_accuracy.py::", "backends/test_determinism.py::", "backends/triton/test_cells.py::test_float64"),
    *("backends/triton/test_cells.py::test_programs_that_share", "backends/cudnn/test_choice.py::test_calls_give_the_same"),
    *(
        "torch/test_lengths.py::",
        "torch/test_operators.py::test_torch_checks",
        "test_outputs.py::test_numpy_gives_what_torch_gives",
    ),
    *("test_layer.py::test_both_backends_agree", "train/test_results.py::test_the_network_runs_without_torch"),
    *(
        "benchmarks/test_gpu.py::",
        "benchmarks/test_gpu_checks.py::",
        "files/test_fuzz.py::test_the_fuzzer_sees",
        "test_lengths.py::",
        "backends/test_lengths.py::",
    ),
)
"""Tests of many values, of which a half is slow."""


def is_left_out(name: str) -> bool:
    """Of a test's name in this folder; which half it is of does not depend on what other tests there are."""
    return name.startswith(LONG) or (name.startswith(HALVED) and "[" in name and Random(name).random() < 0.5)
