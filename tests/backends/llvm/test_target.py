"""What kernels are shaped for, on machines that are not this one."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import anyrnn
from anyrnn.backends.llvm import run, target
from anyrnn.backends.llvm.extent import BLOCK_ROWS, Extent
from anyrnn.backends.llvm.outer import group_of, left_heights
from anyrnn.backends.llvm.shapes import tile_heights
from tests.moving_cells import halves
from tests.networks import Results, fitting, on_llvm, on_processor


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Forgets what was compiled, as afterwards."""

    def forget() -> None:
        run.compiled.cache_clear()
        run.reserve_rate.cache_clear()
        run.POOLS.known.clear()
        run.UNEVEN.known.clear()

    forget()
    yield forget
    forget()


@pytest.mark.parametrize(
    ("triple", "features", "vector_bytes", "registers", "fused"),
    [
        ("x86_64-unknown-linux-gnu", {"sse2", "avx2", "fma", "avx512f", "avx512vl"}, 64, 32, True),
        ("x86_64-unknown-linux-gnu", {"sse2", "avx2", "fma"}, 32, 16, True),
        ("x86_64-unknown-linux-gnu", {"sse2"}, 16, 16, False),
        ("aarch64-unknown-linux-gnu", {"neon", "sve"}, 16, 32, True),
        ("arm64-apple-darwin24.0.0", set(), 16, 32, True),
    ],
)
def test_machines(
    monkeypatch: pytest.MonkeyPatch, triple: str, features: set[str], vector_bytes: int, registers: int, fused: bool
) -> None:
    monkeypatch.setattr(llvm, "get_default_triple", lambda: triple)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    found = target.machine.__wrapped__()
    assert (found.vector_bytes, found.registers, found.fused) == (vector_bytes, registers, fused)
    assert ("neon" in found.features) == (not triple.startswith("x86"))


def test_without_fused_multiply_add_a_register_is_left_for_the_product() -> None:
    with_it, without = (replace(target.machine(), registers=16, fused=fused) for fused in (True, False))
    assert [tile_heights(each, 4)[0] for each in (with_it, without)] == [3, 2]


@pytest.mark.parametrize(("vector_bytes", "registers"), [(64, 32), (32, 16), (16, 32)])
@pytest.mark.parametrize("bytes", [4, 8])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_tiles_of_a_gradient_have_as_many_sums_as_multipliers_wait_for(
    vector_bytes: int, registers: int, bytes: int, vectors: int
) -> None:
    """Of a whole panel: two multipliers, of four cycles; with few lanes there are no more than a panel has."""
    machine = replace(target.machine(), vector_bytes=vector_bytes, registers=registers, fused=True)
    lanes = machine.lanes(bytes)
    highest, *others = left_heights(machine, lanes, vectors)
    tiles = [highest] * (lanes // highest) + ([others[0]] if lanes % highest else [])
    assert sum(tiles) == lanes
    assert highest <= tile_heights(machine, vectors)[0]
    assert min(tiles) * vectors >= min(8, lanes * vectors)


WIDE = [(64, "emeraldrapids", True), (64, "znver4", False), (32, "znver3", False)]


@pytest.mark.parametrize(("vector_bytes", "cpu", "wide"), [*WIDE, (16, "", False)])
def test_a_block_of_what_outer_products_multiply_stays_in_the_first_cache(vector_bytes: int, cpu: str, wide: bool) -> None:
    """A group of the right side, and a panel of the left one."""
    panels = group_of(replace(target.machine(), vector_bytes=vector_bytes, cpu=cpu)) + 1
    assert BLOCK_ROWS * panels * vector_bytes < (48 if wide else 32) * 2**10


@pytest.mark.parametrize(("vector_bytes", "cpu", "wide"), WIDE)
def test_wide_machines_have_strips_of_their_own(monkeypatch: pytest.MonkeyPatch, vector_bytes: int, cpu: str, wide: bool) -> None:
    here = replace(target.machine(), vector_bytes=vector_bytes, registers=32, cpu=cpu)
    assert here.wide == wide
    monkeypatch.setattr(target, "machine", lambda: here)
    plan = anyrnn.Recurrent("lstm", 20, 70).network.plan
    text = run.write_code(plan, "inference", "float32").text
    monkeypatch.setitem(target.PROCESSORS, cpu, replace(here.processor, halved=True))
    assert (run.write_code(plan, "inference", "float32").text != text) == wide


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "nas", "indrnn", "mingru"])
def test_what_kernels_are_shaped_for_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None], cell: str, dtype: type
) -> None:
    """Text for any machine runs on this one, whose compiler cuts vectors or leaves registers unused."""
    here = target.machine()
    sizes = [(3, 17, 33, 70), (4, 6, 16, 130), (2, 4, 9, 40), (2, 3, 9, 40), (2, 1, 5, 7), (2, 1, 20, 200)]

    def results() -> list[Results]:
        forget()
        return [on_llvm(fitting(cell, *each, 1, True), dtype) for each in sizes]

    expected = results()
    for vector_bytes, registers, fused in [(64, 32, True), (32, 16, True), (16, 32, True), (16, 16, False)]:
        other = replace(here, vector_bytes=vector_bytes, registers=registers, fused=fused)
        monkeypatch.setattr(target, "machine", lambda other=other: other)
        assert run.element("float32").lanes == vector_bytes // 4
        for size, found, right in zip(sizes, results(), expected, strict=True):
            for name, value in right.items():
                assert np.array_equal(found[name], value), f"{other.vector_bytes} bytes, {size}: {name}"


CHANCES = {"zoneout": 0.2, "input_dropout": 0.1, "recurrent_dropout": 0.3, "weight_dropout": 0.2, "output_dropout": 0.1}


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("cell", "options", "bits"),
    [("gru", CHANCES, True), ("lstm_heads", {"heads": 2}, True), (halves, {}, True), ("lstm_layernorm", {"zoneout": 0.1}, False)],
    ids=["chances", "heads", "moves", "sums"],
)
def test_options_and_rarer_ops_are_the_same_whatever_vectors_are_long(
    monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None], cell: Any, options: dict[str, Any], bits: bool, dtype: type
) -> None:
    """Sums over features are added up in another order."""
    here, x = target.machine(), np.random.default_rng(0).standard_normal((5, 6, 22)).astype(dtype)

    def results() -> list[np.ndarray]:
        forget()
        layer = anyrnn.Recurrent(cell, 22, 22, seed=0, backend="llvm", bidirectional=True, dtype=dtype, **options)
        output, _, reserve = layer.forward_training(x, lengths=[5, 0, 3, 5, 1, 4], seed=3)
        d_x, _, gradients = layer.backward(reserve, output)
        return [output, layer(x)[0], d_x, *gradients.values()]

    expected = results()
    for vector_bytes, registers in [(64, 32), (32, 16), (16, 32)]:
        other = replace(here, vector_bytes=vector_bytes, registers=registers)
        monkeypatch.setattr(target, "machine", lambda other=other: other)
        for found, right in zip(results(), expected, strict=True):
            if bits:
                assert np.array_equal(found, right), vector_bytes
            else:
                np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * np.abs(right).max())


@pytest.mark.parametrize(("features", "flags"), [({"neon": True}, "+neon"), ({"sse2": True}, "+sse2,-prefer-256-bit"), ({}, "")])
def test_long_vectors_are_asked_for_where_there_is_a_choice(
    monkeypatch: pytest.MonkeyPatch, features: dict[str, bool], flags: str
) -> None:
    class Described:
        def create_target_machine(self, **how: Any) -> Any:
            return how

    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: llvm.FeatureMap(features))
    monkeypatch.setattr(llvm.Target, "from_default_triple", Described)
    assert target._target_machine()["features"] == flags


def test_weights_fetched_ahead_are_the_same_weights(monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None]) -> None:
    """As on a processor for which that pays."""
    x = np.random.default_rng(0).standard_normal((4, 9, 20), np.float32)

    def results() -> list[np.ndarray]:
        forget()
        layer = anyrnn.Recurrent("lstm", 20, 70, seed=0, backend="llvm")
        output, _, reserve = layer.forward_training(x)
        fewer = [layer(x[:, :samples].copy())[0] for samples in (1, 2, 4)]
        return [output, *fewer, *layer.backward(reserve, output)[2].values()]

    expected = results()
    on_processor(monkeypatch, fetching=target.Fetching(12288, 0, 0))
    assert "is_far" in run.write_code(anyrnn.Recurrent("lstm", 20, 70).network.plan, "inference", "float32").text
    assert all(np.array_equal(a, b) for a, b in zip(results(), expected, strict=True))


@pytest.mark.parametrize(("hidden", "words"), [(16, (0, 0)), (32, (4096, 0)), (64, (4096, 4096))])
def test_weights_that_arrive_soon_enough_are_not_fetched(
    hidden: int, words: tuple[int, int], monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None]
) -> None:
    """For few rows more arrive so. An LSTM's recurrent ones have 16 H * H bytes."""
    forget()
    on_processor(monkeypatch, fetching=target.Fetching(4096, near=16 * 16 * 16, near_few=16 * 32 * 32))
    frame = run._frame_of(anyrnn.Recurrent("lstm", 500, hidden).network, "inference", "float32", Extent(2, 5))
    (unit,) = frame.units
    assert tuple(unit.words[unit.layout.header(name)] for name in ("ahead", "ahead_few")) == words


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("cpu", [name for name, processor in target.PROCESSORS.items() if processor.fetching])
def test_tiles_of_all_heights_fetch_weights(cpu: str, registers: int) -> None:
    """Or few rows multiply two blocks of them at once, which they do not with few registers."""
    machine = target.Machine(frozenset(), 2 * registers, registers, True, cpu)
    text = run.write_code(anyrnn.Recurrent("lstm", 20, 70).network.plan, "inference", "float32", machine).text
    heights = [h for h in tile_heights(machine, 4) if h != 4 or registers == 32]  # tall tiles of four always do
    in_two = "_of_few_rows" in text
    assert in_two == machine.far_in_two
    (tiles,) = re.findall(r"(?ms)^define internal void @products_\w+(?<!_few_rows)\(.*?^}", text)
    assert len(re.findall(r"icmp ne i64 %ahead\S*, 0", tiles)) == len([h for h in heights if h > 3 or not in_two])


def test_the_code_generators_choice_is_given_back() -> None:
    """Another user of LLVM in this process finds loop strength reduction on, whatever was compiled here before."""
    loop = """
    define void @f(ptr %a, i64 %n, i64 %s) {
    entry:
      br label %loop
    loop:
      %i = phi i64 [0, %entry], [%j, %loop]
      %m = mul i64 %i, %s
      %p = getelementptr float, ptr %a, i64 %m
      store float 1.0, ptr %p
      %j = add i64 %i, 1
      %again = icmp slt i64 %j, %n
      br i1 %again, label %loop, label %done
    done:
      ret void
    }"""
    target.machine()
    machine = target._target_machine()

    def multiplies(text: str) -> bool:
        return "mul" in text

    assert multiplies(target.assembly(loop))
    assert not multiplies(str(machine.emit_assembly(target.parse(loop))))


FORKS = """
import os, signal, threading, warnings
from anyrnn.backends.llvm import target

warnings.simplefilter("ignore")  # that such forks may hang
ends = threading.Event()

def compile():
    target.load(target.object_code("define void @f() { ret void }"), "f")

def again_and_again():
    while not ends.is_set():
        compile()

def fork():
    child = os.fork()
    if not child:
        signal.alarm(20)
        compile()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

compile()
thread = threading.Thread(target=again_and_again)
thread.start()
try:
    for _ in range(10):
        fork()
    with target.LOCK.now:
        fork()
finally:
    ends.set()
"""


INTERRUPTED_FORK = """
import os, signal, threading, time
from anyrnn.backends.llvm import target

held, done = threading.Event(), []

def hold():
    with target.LOCK.now:
        held.set()
        time.sleep(0.5)
        done.append(True)

def interrupt(*_):
    raise KeyboardInterrupt  # which Python shows and drops

signal.signal(signal.SIGALRM, interrupt)
threading.Thread(target=hold).start()
held.wait()
signal.setitimer(signal.ITIMER_REAL, 0.1)
child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert done
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("program", [FORKS, INTERRUPTED_FORK], ids=["compiling", "interrupted"])
def test_a_fork_waits_for_llvm(program: str) -> None:
    """So that the child can compile, which was forked while another thread did."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
