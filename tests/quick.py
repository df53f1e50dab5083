"""What `make test` leaves to `make test-all`: tests, and the code generator's full work for those of other parts."""

from __future__ import annotations

from random import Random

LONG = (
    "backends/llvm/test_threads.py::test_openmp_grants",
    "backends/llvm/test_threads.py::test_own_team",
    "backends/llvm/test_threads.py::test_torch_imported_after_own_team",
    "backends/llvm/test_threads.py::test_torch_keeps_its_own_mode",
    "backends/llvm/test_threads.py::test_torch_pool_is_torchs_own",
    "backends/test_all_options.py::test_the_kernels_equal_the_reference",
    "backends/test_corners.py::test_all_agree_whatever_is_asked_for",
    "backends/test_random_cells.py::test_all_agree_under_zoneout",
    "backends/triton/test_cells.py::test_float32_is_within_the_budget",
    "backends/triton/test_explain.py::test_what_does_not_fit",
    "backends/triton/test_memory_budget.py::test_scans",
    "backends/triton/test_memory_budget.py::test_the_bits",
    "backends/triton/test_options.py::test_batch_first",
    "backends/triton/test_options.py::test_calls",
    "backends/triton/test_options.py::test_options",
    "backends/triton/test_scans.py",
    "backends/triton/test_text.py::test_a_seed",
    "benchmarks/test_around.py",
    "benchmarks/test_child.py",
    "benchmarks/test_gpu_checks.py::test_they_can_fail",
    "benchmarks/test_gpu.py::test_why_an_item_did_not_come_to_an_end",
    "benchmarks/test_main.py::test_a_run_that_was_stopped",
    "benchmarks/test_optional_peers.py::test_jax_agrees",
    "convert/test_keras_configs.py::test_changed_configs",
    "files/test_fuzz.py::test_hostile_files",
    "jax/test_options.py::test_steps_that_are_not_there_may_hold_anything",
    "jax/test_transforms.py::test_transforms[grad of grad]",
    "onnx/test_export_torch.py::test_models_run_in_onnxruntime",
    "runtime/test_alone.py::test_the_first_import_is_quick",
    "runtime/test_g2p.py::test_it_is_quicker",
    "test_against_keras.py::test_masks",
    "test_all_states.py::test_front_ends_and_backends_agree",
    "test_cache.py::test_many_processes_start_at_once",
    "test_cli.py::test_the_defaults_read_digits_well",
    "test_memory.py::test_outputs_that_are_gone",
    "test_memory_budget.py::test_every_cell",
    "test_options.py::test_each_option_is_what_a_loop_says",
    "test_options.py::test_gradcheck",
    "torch/test_compile.py::test_any_batch_size",
    "torch/test_compile.py::test_results",
    "torch/test_compile.py::test_weights_that_are_dropped",
    "torch/test_derivatives.py::test_gradcheck",
    "torch/test_freeze.py::test_python_ends",
    "torch/test_held.py::test_a_sum_has_its_bits",
    "torch/test_held.py::test_cells",
    "torch/test_lengths.py::test_second_derivatives_and_forward_mode",
    "torch/test_loss_curves.py",
    "torch/test_weights.py::test_a_pickle",
    "train/test_resume.py::test_a_cell_that_has_changed",
    "train/test_resume.py::test_a_run_that_has_ended",
    "train/test_resume.py::test_a_run_that_was_interrupted",
    "train/test_resume.py::test_another_run_is_not_resumed",
    "weights/test_against_systems.py::test_jax",
    "workbench/test_checking.py::test_flops",
)
"""Tests that are slow as a whole: how their names begin, in this folder."""
PARTS = {
    "aot/test_objects.py": 0.5,
    "backends/cudnn/test_triton_or_cudnn.py::test_calls_give_the_same": 0.5,
    "backends/llvm/test_claims.py": 0.5,
    "backends/llvm/test_few_rows.py": 0.5,
    "backends/llvm/test_heads.py": 0.5,
    "backends/llvm/test_int8.py": 0.5,
    "backends/llvm/test_strips.py": 0.5,
    "backends/llvm/test_strips.py::test_pieces_change_no_bit": 0.25,
    "backends/llvm/test_target.py": 0.5,
    "backends/test_accuracy.py": 0.25,
    "backends/test_corners.py": 0.25,
    "backends/test_determinism.py": 0.25,
    "backends/test_lengths.py": 0.5,
    "backends/test_moves.py": 0.34,
    "backends/test_moves.py::test_in_layers_and_over_samples_of_different_lengths": 0.17,
    "backends/test_options.py": 0.25,
    "backends/test_random_cells.py": 0.5,
    "backends/test_tf32.py": 0.5,
    "backends/test_tf32.py::test_cudnn_has_it_only_where_products_have": 0.3,
    "backends/triton/test_any_sizes.py": 0.5,
    "backends/triton/test_cells.py": 0.34,
    "backends/triton/test_tape.py": 0.34,
    "benchmarks/test_gpu.py": 0.5,
    "benchmarks/test_gpu_checks.py": 0.5,
    "cells/test_probes.py::test_llvm_runs_it": 0.5,
    "cells/test_zoo.py": 0.34,
    "convert/test_keras.py": 0.5,
    "convert/test_onnx.py": 0.5,
    "files/test_fuzz.py::test_the_fuzzer_sees": 0.25,
    "jax/test_cells.py": 0.5,
    "jax/test_layer.py": 0.5,
    "jax/test_options.py": 0.5,
    "jax/test_transforms.py": 0.5,
    "keras/test_layers.py": 0.5,
    "numpy/test_layer.py::test_both_backends_agree": 0.5,
    "numpy/test_lengths.py": 0.5,
    "test_doctor.py::test_what_is_missing": 0.5,
    "test_dropout.py::test_the_kernels_equal_the_reference": 0.5,
    "test_options.py": 0.5,
    "test_outputs.py": 0.5,
    "torch/test_lengths.py": 0.25,
    "torch/test_operators.py::test_torch_checks": 0.25,
    "torch/test_phase.py": 0.5,
    "torch/test_repeated.py": 0.5,
    "train/test_results.py::test_the_network_runs_without_torch": 0.25,
    "weights/test_convert.py": 0.5,
    "weights/test_convert.py::test_round_trips_through_every_pair_are_equal_to_the_bit": 0.25,
    "workbench/test_checking.py": 0.5,
}
"""Of tests of many values, which part is not slow; the least part that is said of a test."""

COMPILED_QUICKLY = (
    "compare", "convert", "files", "jax", "keras", "numpy", "onnx", "runtime", "torch", "trace", "train", "weights", "workbench",
)  # fmt: skip
"""Folders whose tests are not of machine code: there it may be what LLVM makes in two fifths of the time, with the same bits."""


def is_left_out(name: str) -> bool:
    """Of a test's name in this folder; which part of its values it is of does not depend on what other tests there are."""
    if "[" not in name or name.startswith(LONG):
        return name.startswith(LONG)
    return any(name.startswith(beginning) and Random(name).random() >= part for beginning, part in PARTS.items())


def is_compiled_quickly(name: str) -> bool:
    """Of a test's name in this folder."""
    return name.startswith(tuple(f"{folder}/" for folder in COMPILED_QUICKLY))
