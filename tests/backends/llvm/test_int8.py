"""Products of integers of eight bits, against float64 with products of numbers that are rounded so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from anyrnn import cells
from anyrnn.backends.llvm import int8_rows, run, target
from anyrnn.backends.llvm.target import Machine
from anyrnn.ir import int8
from anyrnn.ir.interpret import Interpreter
from anyrnn.passes.compile import plan
from tests.budget import ROUNDED, TURNED
from tests.networks import Problem, Results, fitting, on_llvm, on_processor, on_torch
from tests.zoo import EVERY

# of 1100 features two blocks are whole, of 520 one; odd ones leave part of a word; rows of few and of several tiles
SIZES = [(3, 1, 1100, 130), (2, 3, 130, 520), (2, 2, 5, 7), (4, 50, 41, 33), (1, 11, 2, 1)]
CELLS = ["lstm", "gru", "gru_before", "lstm_heads", "indrnn", "lstm_layernorm", "rnn_relu"]


def as_int8(numbers: torch.Tensor) -> torch.Tensor:
    """What the integers of the last dimension's blocks stand for."""
    return torch.from_numpy(int8.numbers_of(*int8.rounded(numbers.detach().numpy()), np.float64))


def of_rounded(exact: Any, self: Interpreter, matrix: torch.Tensor, vector: torch.Tensor, transposed: bool, heads: int) -> Any:
    """In the place of the interpreter's products. Rows of blocks side by side have zeros between them, which change no scale but
    count as features.
    """
    if heads > 1:
        blocks = [b.T if transposed else b for b in matrix.reshape(heads, -1, matrix.shape[-1])]
        matrix, transposed = torch.block_diag(*blocks), False
    rows = as_int8(matrix.T if transposed else matrix)
    return exact(self, rows, as_int8(vector), False, 1)


def on_torch_rounded(p: Problem, monkeypatch: pytest.MonkeyPatch) -> Results:
    exact = Interpreter._product
    with monkeypatch.context() as patched, torch.no_grad():
        patched.setattr(Interpreter, "_product", lambda *given: of_rounded(exact, *given))
        patched.setattr(torch.autograd, "backward", lambda *_: None)
        return {name: value for name, value in on_torch(p).items() if not name.startswith("d ")}


def in_int8(p: Problem, **options: Any) -> Results:
    return on_llvm(p, np.float32, training=False, numbers=run.IN_INT8, **options)


def distance(a: Any, b: Any) -> float:
    return float(np.linalg.norm(np.asarray(a, np.float64) - b))


def compare(p: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number in the middle of two others may be rounded to either: most of what rounding does has to be there. More numbers are
    where float32 itself is far from float64.
    """
    found, wanted, exact = in_int8(p, padding=1), on_torch_rounded(p, monkeypatch), on_torch(p)
    plain = on_llvm(p, np.float32, training=False)
    for name, value in wanted.items():
        moved, own = distance(exact[name], value), distance(exact[name], plain[name])
        assert distance(found[name], value) <= ROUNDED * moved + TURNED * np.linalg.norm(value) + 10 * own + 1e-9, name


def forget() -> None:
    run.compiled.cache_clear()
    run.POOLS.known.clear()


@pytest.fixture
def other_code() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_products_are_of_rounded_numbers(cell: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    compare(fitting(cell, *sizes), monkeypatch)


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("cell", EVERY)
def test_every_cell(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(fitting(cell, 3, 5, 21, 18, bidirectional=True), monkeypatch)


def machines() -> list[Machine]:
    """With vectors of different lengths, with and without instructions for integers of eight bits."""
    here = target.machine()
    lengths = [bytes for bytes in (64, 32, 16) if bytes <= here.vector_bytes]
    shaped = [replace(here, vector_bytes=bytes, registers=32 if bytes == 64 else 16) for bytes in lengths]
    others = [replace(m, features=m.features - {"avx512vnni", "avxvnni", "dotprod"}) for m in shaped]
    return [*shaped, *others, *(replace(m, single=True) for m in others)]


@pytest.mark.usefixtures("quick_compile", "other_code")
@pytest.mark.parametrize("cell", ["gru", "gru_before", "lstm_heads"])
def test_other_instructions_give_the_same_bits(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of integers are exact, whatever makes them, and in whatever vectors."""
    problems = [fitting(cell, *sizes) for sizes in SIZES]
    expected = [in_int8(p) for p in problems]
    for machine in machines():
        monkeypatch.setattr(target, "machine", lambda machine=machine: machine)
        forget()
        for p, right in zip(problems, expected, strict=True):
            found = in_int8(p)
            assert all(np.array_equal(found[name], value) for name, value in right.items()), machine


@pytest.mark.skipif("avx2" not in target.machine().features, reason="reads assembly of x86")
def test_instructions() -> None:
    """Each is there wherever its like is not."""
    for machine in (m for m in machines() if not m.single):
        text = target.assembly(run.write_code(plan(cells.load("gru").trace()), "inference", run.IN_INT8, machine).text)
        pairs = any(name in text for name in ("pmaddwd", "pdpwssd"))
        assert (machine.unsigned_fours, pairs) == ("vpdpbusd" in text, not machine.unsigned_fours), machine


def test_products_of_signed_numbers_are_of_16_bytes() -> None:
    for bytes in (16, 32, 64):
        machine = Machine(frozenset({"neon", "dotprod"}), bytes, 32, True)
        text = run.write_code(plan(cells.load("gru").trace()), "inference", run.IN_INT8, machine).text
        assert ("sdot" in text) == (bytes == 16)


@pytest.mark.usefixtures("quick_compile", "other_code")
@pytest.mark.parametrize("cell", ["lstm", "gru_before", "lstm_heads"])
def test_rows_that_are_rounded_one_after_the_other(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = fitting(cell, 3, 21, 70, 600)
    expected = in_int8(p)
    for machine in machines():
        monkeypatch.setattr(target, "machine", lambda machine=machine: machine)
        for room in (1, 3000, 9000):
            monkeypatch.setattr(int8_rows, "ROOM_BYTES", room)
            forget()
            assert all(np.array_equal(found, expected[name]) for name, found in in_int8(p).items()), (machine, room)


@pytest.mark.usefixtures("quick_compile", "other_code")
def test_weights_fetched_ahead_are_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [fitting("lstm", 3, rows, 70, 100) for rows in (1, 7, 20)]
    expected, prefetches = [], []
    for fetching in (None, target.Fetching(4096, 0, 0)):
        on_processor(monkeypatch, fetching=fetching)
        forget()
        expected = expected or [in_int8(p) for p in networks]
        prefetches.append(
            run.write_code(networks[0].network.plan, "inference", run.IN_INT8).text.count("call void @llvm.prefetch")
        )
    assert prefetches[1] > prefetches[0]
    for p, right in zip(networks, expected, strict=True):
        assert all(np.array_equal(found, right[name]) for name, found in in_int8(p).items())


@pytest.fixture
def as_many_threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("quick_compile", "as_many_threads_as_before")
@pytest.mark.parametrize("sizes", [(6, 80, 33, 24), (4, 1, 1, 1), (6, 2, 33, 150), (3, 13, 5, 700), (2, 300, 64, 64)], ids=str)
@pytest.mark.parametrize("cell", ["gru", "lstm_heads", "lstm_layernorm"])
def test_bits_depend_on_neither_threads_nor_batch(cell: str, sizes: tuple[int, ...]) -> None:
    p = fitting(cell, *sizes, 2, True)
    torch.set_num_threads(1)
    expected = in_int8(p)
    if sizes[-1] > 1:  # a norm of one feature is zero
        assert not np.array_equal(expected["output"], on_llvm(p, np.float32, training=False)["output"])
    for threads in (2, 3, 4):
        torch.set_num_threads(threads)
        for found in (in_int8(p), in_int8(p, padding=1)):
            assert all(np.array_equal(found[name], value) for name, value in expected.items())
    rows = slice(p.rows // 3, p.rows // 3 + 1)
    alone = in_int8(p.of_samples(rows))
    assert np.array_equal(alone["output"], expected["output"][:, rows])


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["x", "weight_ih", "weight_hh"])
def test_what_is_not_finite_is_not_lost(place: str, number: float) -> None:
    """All products of its block are NaN: in the sample, or in the feature, whose sums it is in; and nowhere else."""
    p = fitting("rnn_tanh", 1, 5, 40, 33)
    clean = in_int8(p)["output"]
    if place == "x":
        p.inputs[0][0, 2, 39] = number
    else:
        p.parameters[0][place][7, 3] = number
    found = in_int8(p)["output"]
    there = np.zeros(found.shape, bool)
    there[(0, 2) if place == "x" else (..., 7)] = True
    assert np.isnan(found[there]).all()
    assert np.array_equal(found[~there], clean[~there])


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("scale", [2.0**-120, 2.0**-80, 2.0**80])
def test_large_and_small_numbers(scale: float) -> None:
    """Blocks have their own scales; of magnitudes below 2 ** -100 they are zero. A power of two rounds nothing."""
    p = fitting("rnn_relu", 1, 3, 40, 33)
    for name in ("bias_ih", "bias_hh", "weight_hh"):
        p.parameters[0][name][:] = 0
    usual = in_int8(p)["output"]
    p.inputs[0] *= scale
    assert np.array_equal(in_int8(p)["output"], np.zeros_like(usual) if scale < 2.0**-100 else usual * np.float32(scale))
    p.inputs[0][:] = 0
    assert not in_int8(p)["output"].any()
