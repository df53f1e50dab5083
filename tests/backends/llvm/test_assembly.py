"""What the machine code of the hot loops looks like."""

import platform
import re
from dataclasses import replace

import pytest

from anyrnn import cells
from anyrnn.backends.llvm import run, target
from anyrnn.backends.llvm.shapes import tile_heights
from anyrnn.passes.compile import plan
from tests.networks import on_processor

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not target.machine().fused, reason="reads x86-64 assembly with FMA"
)


def inner_loops(assembly: str) -> list[tuple[str, set[str]]]:
    """The blocks that jump back to their own beginning, up to that jump, each with the registers that point to the stack."""
    found = []
    for function in re.split(r"^(?=\w+:)", assembly, flags=re.MULTILINE):
        stack = {"rsp", *re.findall(r"movq\s+%rsp, %(rb[px])", function)}
        parts = re.split(r"^(\.?\w+):", function, flags=re.MULTILINE)
        for label, body in zip(parts[1::2], parts[2::2], strict=True):
            match = re.match(rf"(.*?\bj\w+\s+{re.escape(label)}\b)", body, flags=re.DOTALL)
            found += [(match[1], stack)] if match else []
    return found


FMA = r"\bvfn?madd"
MOVE = r"\bv(unpck|shuf|perm)"
"""In loops that transpose weights."""


def straight_pieces(assembly: str) -> list[tuple[str, set[str]]]:
    """What stands between labels and jumps, each with the registers that point to the stack."""
    found = []
    for function in re.split(r"^(?=\w+:)", assembly, flags=re.MULTILINE):
        stack = {"rsp", *re.findall(r"movq\s+%rsp, %(rb[px])", function)}
        found += [(piece, stack) for piece in re.split(r"^\.?\w+:|^\s+j\w+\s", function, flags=re.MULTILINE)]
    return found


def code(name: str, which: str) -> str:
    return target.assembly(run.write_code(plan(cells.load(name).trace()), which, "float32").text)


def product_loops(name: str, which: str) -> list[tuple[str, set[str]]]:
    """The innermost loops that do little but multiply and add: over the features of an operand, or the rows of a gradient."""
    loops = inner_loops(code(name, which))
    loops = [(loop, stack) for loop, stack in loops if not re.search(MOVE, loop)]
    return [(loop, stack) for loop, stack in loops if 3 * len(re.findall(FMA, loop)) >= len(loop.strip().splitlines())]


def uses_stack(loop: str, stack: set[str]) -> bool:
    return any(f"(%{register}" in loop for register in stack)


@pytest.mark.parametrize("which", ["inference", "training", "backward"])
@pytest.mark.parametrize("name", ["lstm", "lstm_layernorm", "gru"])
def test_no_stack_access_in_the_product_loops(name, which):
    loops = product_loops(name, which)
    heights = tile_heights(target.machine(), 3 if name == "gru" else 4)
    assert len(loops) >= len(heights), "the loops over the features of an operand, one for each height of the tile"
    for loop, stack in loops:
        assert not uses_stack(loop, stack), loop


@pytest.mark.parametrize(("name", "rows"), [("lstm", {32: 6, 16: 3}), ("gru", {32: 8, 16: 4}), ("nas", {32: 6, 16: 3})])
def test_the_highest_tile_fills_the_registers(name, rows):
    """A GRU's products go to three of its four sums, and those of NAS to eight, in two parts."""
    gates = {"lstm": 4, "gru": 3, "nas": 4}[name]
    counts = [len(re.findall(FMA, loop)) for loop, _ in product_loops(name, "inference")]
    assert max(counts) == rows[target.machine().registers] * gates


@pytest.mark.parametrize("which", ["inference", "training", "backward"])
@pytest.mark.parametrize("name", ["lstm", "lstm_layernorm", "gru"])
def test_products_of_a_whole_panel_are_written_out_without_vectors_on_the_stack(name, which, monkeypatch):
    """As for AVX2; a machine with more registers has some to spare. An address may be on the stack, as it is read once.

    Tiles of four rows multiply half of four vectors at a time. A GRU's tiles have three, and four rows anyway.
    """
    low = replace(target.machine(), vector_bytes=32, registers=16)
    monkeypatch.setattr(target, "machine", lambda: low)
    lanes, pieces = low.lanes(4), straight_pieces(code(name, which))
    long = [(piece, stack) for piece, stack in pieces if len(re.findall(FMA, piece)) >= 8 * lanes]
    counts = {len(re.findall(FMA, piece)) // lanes for piece, _ in long}
    assert counts == ({12} if name == "gru" and which != "backward" else {12, 8})
    for piece, stack in long:
        vectors = "".join(re.findall(r"^\s+v.*\n", piece, flags=re.MULTILINE))
        assert not uses_stack(vectors, stack), piece


@pytest.mark.parametrize("which", ["inference", "backward"])
def test_product_loops_begin_with_a_line(which):
    """Where they begin in one decided over up to a tenth of their time."""
    assembly = code("lstm", which)
    labels = re.findall(r"^(\.LBB\w+):", assembly, flags=re.MULTILINE)
    begin_a_line = {label for label in labels if re.search(rf"\.p2align\s+6.*\n{label}:", assembly)}
    found = 0
    for label in labels:
        body = re.search(rf"^{label}:((?:(?!^\.?\w+:).*\n)*?\s+j\w+\s+{label}\n)", assembly, flags=re.MULTILINE)
        if body and re.search(FMA, body[1]):
            found += 1
            assert label in begin_a_line
    assert found >= 5


def test_each_line_of_weights_is_fetched_once(monkeypatch):
    """Where vectors are shorter than lines. Tiles of one, two and three rows fetch weights that come from memory, feature by
    feature; those of four rows all weights, half of four vectors at a time.
    """
    low = replace(target.machine(), vector_bytes=32, registers=16)
    monkeypatch.setattr(target, "machine", lambda: low)
    on_processor(monkeypatch, fetching=target.Fetching(4096))
    loops = [loop for loop, _ in product_loops("lstm", "inference") if "prefetch" in loop]
    assert sorted((len(re.findall(FMA, loop)), loop.count("prefetch")) for loop in loops) == [(4, 2), (8, 1), (8, 2), (12, 2)]
    assert "is_whole_and_near" in run.write_code(plan(cells.load("lstm").trace()), "inference", "float32").text


@pytest.mark.parametrize(("vector_bytes", "registers", "fetches"), [(32, 16, {4: 6, 2: 8, 1: 4}), (64, 32, {4: 16, 2: 8, 1: 4})])
def test_few_samples_fetch_what_products_are_added_to(vector_bytes, registers, fetches, monkeypatch):
    """Each line of it: of four vectors, but those of a tile of four rows and 16 registers of half of them at a time. A highest
    tile (of three rows, or six) fetches none.
    """
    machine = replace(target.machine(), vector_bytes=vector_bytes, registers=registers)
    monkeypatch.setattr(target, "machine", lambda: machine)
    text = run.write_code(plan(cells.load("lstm").trace()), "inference", "float32").text
    (tiles,) = re.findall(r"(?ms)^define internal void @products_\w+(?<!_few_rows)\(.*?^}", text)
    heights = tile_heights(machine, 4)
    assert {*fetches} == {*heights[1:], 4}
    assert len(re.findall(r"@llvm.prefetch.p0\(ptr %before", tiles)) == sum(fetches.values())


@pytest.mark.parametrize("place", ["64(%rsp)", "-64(%rbp)"])
def test_a_loop_with_stack_access_is_found(place):
    """The test above can fail."""
    loop = f".LBB0_1:\n  vfmadd231ps (%rax), %zmm0, %zmm1\n  vmovups %zmm1, {place}\n  jl .LBB0_1\n  retq\n"
    ((found, stack),) = inner_loops(f"f:\n  movq %rsp, %rbp\n{loop}")
    assert uses_stack(found, stack)
    ((found, stack),) = inner_loops(f"f:\n  movq %rdi, %rbp\n{loop}")
    assert uses_stack(found, stack) is ("rsp" in place)


def test_packed_weights_are_told_of_when_they_are_there() -> None:
    """Another call may read what tells of them, and then reads them."""
    text = run.write_code(plan(cells.load("lstm").trace()), "inference", "float32").text
    body = text[text.index("define internal void @pack_matrix(") :].partition("\n}\n")[0]
    assert body.rindex("store atomic") > body.rindex("store <")


@pytest.mark.parametrize("which", ["inference", "training", "backward"])
def test_only_what_calls_kernels_is_compiled_the_quick_way(which):
    text = run.write_code(plan(cells.load("lstm").trace()), which, "float32").text
    quick = re.findall(r"^define .*@(\w+)\(.*\boptnone\b", text, flags=re.MULTILINE)
    assert sorted(quick) == ["run", "work"]
