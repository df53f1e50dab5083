"""Compiles kernels for a device that is not there, of compute capability 9.0 or another:

    CAPABILITY=80 python -m tests.backends.triton.compiled CELL DTYPE COLUMNS PRECISION [HOW]

where HOW is `one` for sizes of one feature, `packed` for sequences that end at different steps, `scans` for loops that are
scans, or 64x16 for programs that hold weights of 64 features, and have 16 rows; or with `measured` alone those that a device is
measured with.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from anyrnn import cells
from anyrnn.backends.triton import functions
from anyrnn.backends.triton.device import READ, Device
from anyrnn.backends.triton.launch import kernels, lowered, program_of
from anyrnn.backends.triton.lower import Lowered
from anyrnn.backends.triton.names import Argument
from anyrnn.backends.triton.split import Blocks, held_bytes, holding, step_weights
from anyrnn.passes.compile import Plan, plan

TARGET = GPUTarget("cuda", int(os.environ.get("CAPABILITY", "90")), 32)
NAMES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
CALLS = {"counter": "*i32", "seed": "*i64"}
BORDERS = {"first_slot", "last_slot"}
"""A number for all rows, or a table of rows."""
ALIGNED = ("buffer", "scatter", "weight", "row", "step", "columns", "size")
TABLES = ("counts", "given", "segments", "sample_table", "step_table")


def type_of(argument: Argument, dtype: str, roles: dict[str, str]) -> str:
    """As launches give them: what stands between steps of 16 bits is float32."""
    between = argument.kind == "buffer" and roles.get(argument.of) in ("state", "cross", "sum")
    if argument.kind in ("scale", "probability", "scatter") or between:
        return f"*{'fp64' if dtype == 'float64' else 'fp32'}"
    if argument.kind in ("buffer", "weight", "first", "last"):
        return f"*{NAMES[dtype]}"
    if argument.of in TABLES:
        return "*i64"
    return "i64" if argument.kind == "threshold" else CALLS.get(argument.of, "i32")


def main(cell: str, dtype: str, columns: str, precision: str, sizes: str = "any") -> None:
    graph, of = cells.load(cell).trace(), getattr(torch, dtype)
    made, (size, rows) = plan(graph), map(int, sizes.split("x")) if "x" in sizes else (0, 0)
    features = {"input": size, "hidden": size, **graph.other_sizes(size)}
    for which, late in (("inference", False), ("inference", True), ("training", False), ("backward", False)):
        scans = sizes == "scans" and program_of(made, which, scans=True) is not None
        if not size:
            compile_program(made, which, Blocks(columns=int(columns), late=late), of, precision, scans, sizes)
            continue
        if late:  # and holds nothing
            continue
        weights = step_weights(lowered(made, which), made.phase.weights, features, of, precision)
        all_blocks = holding(weights, size, rows, Device(132))
        fitting = [b for b in all_blocks if (b.columns, b.rows) == (int(columns), rows)]
        for blocks in {(b.scatters, b.warps): b for b in reversed(fitting)}.values():
            compiled = compile_program(made, which, blocks, of, precision)
            shared = max(one.metadata.shared for one in compiled)
            if TARGET.arch >= 80:  # others take more, and read weights where there is no room
                assert shared <= held_bytes(blocks, weights), f"{which} takes {shared} bytes of shared memory"
            moved = [name for one in compiled for name in moved_loads(one.asm["ttgir"])]
            if of is torch.float32:  # a load of 16 bits may be wider than others beside it
                assert len(moved) <= may_move(lowered(made, which), blocks.scatters), f"{which}: threads pass on {moved}"
            print("scattered" if blocks.scatters else "held")


def compile_program(
    made: Plan, which: str, blocks: Blocks, dtype: torch.dtype, precision: str, scans: bool = False, sizes: str = "any"
) -> list[Any]:
    """All functions of a program. Sizes of one feature are as Triton specialises them."""
    found = kernels(made, which, scans, blocks.holds, blocks.scatters, blocks.late and not scans)
    all_compiled = []
    packed = sizes == "packed"
    roles = {buffer.name: buffer.role for buffer in found.lowered.program.buffers}
    for name, arguments in found.code.arguments.items():
        of_scan = name in found.code.scans
        constants: dict[str, Any] = blocks.of_scans(dtype) if of_scan else blocks.constants(dtype, precision, packed)
        constants |= {a.name: True for a in arguments if a.kind == "adds"}
        constants |= {a.name: 1 for a in arguments if a.kind == "size" and sizes == "one"}
        types = {a.name: type_of(a, str(dtype).removeprefix("torch."), roles) for a in arguments}
        types |= dict.fromkeys(BORDERS & types.keys(), "*i64" if packed else "i32")
        plain = [a for a in arguments if a.name not in constants]
        aligned = [a.name for a in plain if a.kind in ALIGNED]
        types |= dict.fromkeys(constants, "constexpr")
        compiled = compile(found.functions[name], types, constants, aligned, blocks.warps, blocks.stages)
        print(which, name, len(compiled.asm["cubin"]), compiled.metadata.shared)
        all_compiled.append(compiled)
    return all_compiled


def moved_loads(text: str) -> list[str]:
    """Of a function as Triton lays it out, the loads of rows and features in its steps that go to other threads, right behind
    each load. What is copied before and after them may stand in any order.
    """
    loads = {name for name in re.findall(r"(%\S+) = tt\.load ", text) if not name.startswith("%copied")}
    loads |= {wider for wider, load in re.findall(r"(%\S+) = arith\.extf (%\S+) ", text) if load in loads}
    return [name for name in re.findall(r"ttg\.convert_layout (%\S+) : tensor<\d+x\d+xb?f", text) if name in loads]


def may_move(program: Lowered, scatters: bool) -> int:
    """Operands of sums that are scattered, made by kernels before."""
    kernels = [kernel for stage in program.loop for kernel in stage.kernels]
    return sum(
        all(buffer != term.operand for _, buffer, _ in kernel.stores)
        for scatter in (set(program.scatters.values()) if scatters else ())
        for kernel in {id(kernel): kernel for kernel in kernels if id(kernel) in scatter.kernels}.values()
        for term in scatter.terms
    )


def compile(
    function: Any, types: dict[str, str], constants: dict[str, Any], aligned: Iterable[str], warps: int, stages: int = 3
) -> Any:
    order = list(function.arg_names)
    source = ASTSource(
        function,
        {n: types[n] for n in order},
        {(order.index(n),): value for n, value in constants.items()},
        {(order.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    return triton.compile(source, target=TARGET, options={"num_warps": warps, "num_stages": stages})


def measured() -> None:
    """What is measured of a device: how often each kernel has its instruction."""
    types = {"counter": "*i32", "times": "i32", "numbers": "*fp32", "sums": "*fp32"}
    for function, constants, instruction in (
        (functions.wait_often, {"COLUMN_PROGRAMS": 132}, "atom."),
        (functions.read_often, {"BLOCK": READ}, "ld.global.cg"),
    ):
        kinds = types | dict.fromkeys(constants, "constexpr")
        aligned = [name for name in function.arg_names if name in ("counter", "numbers", "sums")]
        text = compile(function, kinds, constants, aligned, 8).asm["ptx"]
        loop = text[text.index("$L__BB") :]
        print(function.__name__, instruction, loop.count(instruction))


if __name__ == "__main__":
    measured() if sys.argv[1:] == ["measured"] else main(*sys.argv[1:])
