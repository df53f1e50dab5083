"""What the machine code of the hot loops looks like."""

import platform
import re

import pytest

from anyrnn import cells
from anyrnn.backends.llvm import run, target
from anyrnn.passes.compile import plan

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not target.machine().fused, reason="reads x86-64 assembly with FMA"
)


def inner_loops(assembly: str) -> list[str]:
    """The blocks that jump back to their own beginning, up to that jump."""
    parts = re.split(r"^(\.?\w+):", assembly, flags=re.MULTILINE)
    found = [
        re.match(rf"(.*?\bj\w+\s+{re.escape(label)}\b)", body, flags=re.DOTALL)
        for label, body in zip(parts[1::2], parts[2::2], strict=True)
    ]
    return [match[1] for match in found if match]


FMA = r"\bvfn?madd"


def product_loops(name: str, which: str) -> list[str]:
    """The innermost loops that do little but multiply and add: over the features of an operand, or the rows of a gradient."""
    code = run.write_code(plan(cells.load(name).trace()), which, "float32")
    loops = inner_loops(target.assembly(code.text))
    return [loop for loop in loops if 3 * len(re.findall(FMA, loop)) >= len(loop.strip().splitlines())]


@pytest.mark.parametrize("which", ["inference", "training", "backward"])
@pytest.mark.parametrize("name", ["lstm", "lstm_layernorm"])
def test_no_stack_access_in_the_product_loops(name, which):
    loops = product_loops(name, which)
    assert len(loops) >= 4, "the loops over the features of an operand, one for each height of the tile"
    for loop in loops:
        assert not re.search(r"\(%r[sb]p", loop), loop


def test_the_highest_tile_fills_the_registers():
    machine = target.machine()
    if machine.registers != 32 or machine.vector_bytes != 64:
        pytest.skip("the machine has no AVX-512")
    counts = [len(re.findall(FMA, loop)) for loop in product_loops("lstm", "inference")]
    assert max(counts) == 24, "6 rows times 4 gates"


def test_a_loop_with_stack_access_is_found():
    """The test above can fail."""
    assembly = "f:\n.LBB0_1:\n  vfmadd231ps (%rax), %zmm0, %zmm1\n  vmovups %zmm1, 64(%rsp)\n  jl .LBB0_1\n  retq\n"
    (loop,) = inner_loops(assembly)
    assert re.search(r"\(%r[sb]p", loop)
