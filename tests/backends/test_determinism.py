"""The order of every sum depends on the plan and the sizes of vectors alone: the same bits however the work is cut up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from anyrnn.backends.llvm import extent, pools, run, split, target
from tests.budget import assert_relative
from tests.networks import NO_PAIRS, Problem, Results, fitting, on_llvm
from tests.zoo import EVERY as CELLS


@pytest.fixture(autouse=True)
def as_many_threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def assert_same_bits(found: Results, expected: Results, what: str) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        different = np.count_nonzero(found[name].view(np.uint32) != value.view(np.uint32))
        assert not different, f"{what}: {name} has {different} of {value.size} numbers with other bits"


def solve(p: Problem, numbers: str | None = None) -> Results:
    return on_llvm(p, np.float32, numbers=numbers)


# (6, 80, ...) gives each of three threads its samples; (6, 2, ...) gives them columns; the others fit no number of threads
@pytest.mark.parametrize(
    "sizes",
    [(6, 80, 33, 24), (4, 1, 1, 1), (6, 2, 33, 150), (3, 13, 5, 70), (2, 37, 40, 17), (35, 150, 3, 5)],
    ids=str,
)
@pytest.mark.parametrize("cell", CELLS)
def test_any_number_of_threads_gives_the_same_bits(cell: str, sizes: tuple[int, ...]) -> None:
    p = fitting(cell, *sizes, 2, True)
    torch.set_num_threads(1)
    expected = solve(p)
    for threads in (1, 2, 3, 4):
        torch.set_num_threads(threads)
        assert_same_bits(solve(p), expected, f"{threads} threads")
        assert_same_bits(solve(p), expected, f"{threads} threads, again")
        assert_same_bits(on_llvm(p, np.float32, padding=1), expected, f"{threads} threads, rows apart")


@NO_PAIRS
@pytest.mark.parametrize("sizes", [(6, 80, 33, 24), (4, 1, 1, 1), (6, 2, 33, 150), (3, 13, 5, 300)], ids=str)
@pytest.mark.parametrize("cell", ["gru", "lstm_heads", "rnn_tanh"])
def test_products_of_pairs_give_the_same_bits(cell: str, sizes: tuple[int, ...]) -> None:
    p = fitting(cell, *sizes, 2, True)
    torch.set_num_threads(1)
    expected = solve(p, numbers=run.IN_PAIRS)
    assert not np.array_equal(expected["output"], solve(p)["output"])
    for threads in (2, 3, 4):
        torch.set_num_threads(threads)
        assert_same_bits(solve(p, numbers=run.IN_PAIRS), expected, f"{threads} threads")
        assert_same_bits(on_llvm(p, np.float32, padding=1, numbers=run.IN_PAIRS), expected, f"{threads} threads, rows apart")


def test_both_ways_of_splitting_are_among_them() -> None:
    register_bytes = target.machine().vector_bytes
    assert not split.splits_columns(80, 2**16, 1, 3, register_bytes)
    assert split.splits_columns(2, 2**16, 1, 2, register_bytes)


def gradients_by_chunks(p: Problem) -> set[str]:
    """The gradients that have several terms, each of which is added for a chunk before the next: their bits depend on chunks,
    which the number of samples alone fixes.
    """
    plan, units = p.network.plan, p.network.units
    terms = Counter(product.weight for product in plan.backward.products)
    sources = {weight.source for weight in plan.phase.weights if terms[weight.name] > 1}
    return {f"d {name}{p.network.suffix(*unit)}" for name in sources for unit in units}


@pytest.mark.parametrize("cell", CELLS)
def test_chunks_leave_no_trace(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extent, "BLOCK_ROWS", 4)
    for sizes, stack in [((21, 2, 3, 5), (2, True)), ((9, 3, 40, 33), (1, False)), ((5, 1, 2, 3), (1, True))]:
        p = fitting(cell, *sizes, *stack)
        expected = solve(p)
        by_chunks = gradients_by_chunks(p)
        for rows in (4, 8, 16, 32):
            with monkeypatch.context() as patch:
                patch.setattr(extent, "CHUNK_ROWS", rows)
                run.POOLS.known.clear()
                for threads in (1, 2):
                    torch.set_num_threads(threads)
                    found, what = solve(p), f"{sizes}: chunks of {rows} rows, {threads} threads"
                    for name in by_chunks:
                        assert_relative(found.pop(name), expected[name], "sums of float32 in another order", f"{what}: {name}")
                    assert_same_bits(found, {k: v for k, v in expected.items() if k not in by_chunks}, what)
        run.POOLS.known.clear()


@pytest.mark.parametrize("cell", CELLS)
def test_a_sample_does_not_depend_on_its_batch(cell: str) -> None:
    for threads in (1, 2):
        torch.set_num_threads(threads)
        p = fitting(cell, 5, 40, 33, 37, 2, True)
        together = solve(p)
        for rows in (slice(0, 1), slice(17, 18), slice(39, 40), slice(5, 12), slice(8, 34)):
            alone = solve(p.of_samples(rows))
            for name, value in alone.items():
                if name == "output" or name.startswith("last"):
                    expected = together[name][..., rows, :]
                    assert np.array_equal(value, expected), f"{threads} threads, samples {rows}: {name}"


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "lstm_layernorm"])
def test_nor_on_the_tile_in_which_it_is_computed(cell: str) -> None:
    """Samples that are left behind the last high tile are done in lower ones, some together with the sample before them."""
    torch.set_num_threads(1)
    p = fitting(cell, 2, 29, 3, 20)
    together = solve(p)
    for samples in range(1, 29):
        for name, value in solve(p.of_samples(slice(0, samples))).items():
            if name in ("output", "d x") or name.startswith(("last", "d first")):
                assert np.array_equal(value, together[name][..., :samples, :]), f"{samples} samples: {name}"


@pytest.mark.parametrize("cell", CELLS)
def test_the_gradient_of_a_samples_input_does_not_depend_on_its_batch(cell: str) -> None:
    p = fitting(cell, 5, 40, 33, 37, 2, True)
    together = solve(p)
    of_inputs = {f"d {name}" for name, _ in p.network.graph.inputs}
    for rows in (slice(0, 1), slice(17, 18), slice(8, 34)):
        for name, value in solve(p.of_samples(rows)).items():
            if name in of_inputs or name.startswith("d first"):
                assert np.array_equal(value, together[name][..., rows, :]), f"samples {rows}: {name}"


@pytest.mark.parametrize("cell", CELLS)
def test_the_length_of_a_sequence_does_not_change_its_beginning(cell: str) -> None:
    p = fitting(cell, 30, 3, 35, 20)
    whole = on_llvm(p, np.float32, training=False)["output"]
    for steps in (1, 7, 29):
        part = on_llvm(p.of_steps(slice(0, steps), p.first), np.float32, training=False)["output"]
        assert np.array_equal(part, whole[:steps]), f"{steps} steps"


@pytest.mark.parametrize("cell", CELLS)
def test_a_stream_is_a_whole_call(cell: str) -> None:
    p = fitting(cell, 23, 3, 35, 20, 2)
    for training in (False, True):
        whole = on_llvm(p, np.float32, training)
        first, outputs = p.first, []
        for begin, end in ((0, 1), (1, 9), (9, 23)):
            part = on_llvm(p.of_steps(slice(begin, end), first), np.float32, training)
            outputs.append(part["output"])
            first = [
                [part[f"last {s.name}{p.network.suffix(*unit)}"] for s in p.network.graph.states] for unit in p.network.units
            ]
        assert np.array_equal(np.concatenate(outputs), whole["output"])
        for unit, states in zip(p.network.units, first, strict=True):
            for spec, value in zip(p.network.graph.states, states, strict=True):
                assert np.array_equal(value, whole[f"last {spec.name}{p.network.suffix(*unit)}"])


@pytest.mark.parametrize("cell", CELLS)
def test_memory_used_before_leaves_no_trace(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MOST_RESTING", 1)
    p, other = fitting(cell, 6, 5, 3, 9), fitting(cell, 6, 5, 3, 9, seed=1)
    expected = solve(p)
    solve(other)
    assert len(pools.RESTING) == 1, "one call after the other works in the same memory"
    assert_same_bits(solve(p), expected, "after another call")


# Some results without others


@pytest.mark.parametrize("stack", [(1, False), (2, True)], ids=str)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("steps", [1, 5])
def test_what_is_not_asked_for_changes_nothing_else(steps: int, cell: str, stack: tuple[int, bool]) -> None:
    p = fitting(cell, steps, 3, 4, 7, *stack)
    expected = solve(p)
    for without in (
        ["d_inputs"],
        ["d_first"],
        ["d_sources"],
        ["last"],
        ["d_inputs", "d_first", "last"],
        ["d_inputs", "d_sources"],
    ):
        found = on_llvm(p, np.float32, without=without)
        kept = {name: value for name, value in expected.items() if name in found}
        assert len(kept) < len(expected)
        assert_same_bits(found, kept, f"without {', '.join(without)}")


@pytest.mark.parametrize("stack", [(1, False), (2, True)], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_what_is_not_given_is_zero_or_as_the_cell_says(cell: str, stack: tuple[int, bool]) -> None:
    p = fitting(cell, 5, 3, 4, 7, *stack)
    zeros = [[np.zeros_like(a) for a in unit] for unit in p.d_last]
    no_last = replace(p, d_last=zeros)
    no_output = replace(p, d_output=np.zeros_like(p.d_output))
    begun = [[np.full_like(a, s.init) for a, s in zip(unit, p.network.graph.states, strict=True)] for unit in p.first]
    at_rest = replace(p, first=begun)
    assert_same_bits(on_llvm(p, np.float32, without=["d_last"]), solve(no_last), "no cotangents of the last states")
    assert_same_bits(on_llvm(p, np.float32, without=["d_output"]), solve(no_output), "no cotangent of the output")
    assert_same_bits(on_llvm(p, np.float32, without=["first"]), solve(at_rest), "no first states")


@pytest.mark.parametrize("steps", [(4, 5), (0, 1), (1, 4), (2, 2)], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_a_cotangent_of_some_steps_needs_no_zeros_for_the_others(cell: str, steps: tuple[int, int]) -> None:
    for stack in [(1, False), (2, True)]:
        p = fitting(cell, 5, 3, 4, 7, *stack)
        d_output = np.zeros_like(p.d_output)
        d_output[slice(*steps)] = p.d_output[slice(*steps)]
        expected = solve(replace(p, d_output=d_output))
        assert_same_bits(on_llvm(p, np.float32, cotangent_steps=steps), expected, str(stack))
