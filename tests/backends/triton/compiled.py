"""Compiles kernels for a device that is not there: `python -m tests.backends.triton.compiled CELL DTYPE COLUMNS PRECISION [HOW]`,
where HOW is `one` for sizes of one feature, or how many features there are, for programs that hold their weights; or with
`measured` alone those that a device is measured with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from anyrnn import cells
from anyrnn.backends.triton import functions, split
from anyrnn.backends.triton.device import READ, Device
from anyrnn.backends.triton.launch import kernels, lowered
from anyrnn.backends.triton.names import Argument
from anyrnn.backends.triton.split import Blocks, held_bytes, holding, step_weights
from anyrnn.passes.compile import plan

NAMES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
CALLS = {"counter": "*i32", "seed": "*i64"}
TABLES = ("counts", "given", "segments", "sample_table", "step_table")


def type_of(argument: Argument, dtype: str) -> str:
    if argument.kind in ("buffer", "weight", "scale", "probability"):
        return f"*{NAMES[dtype]}"
    if argument.of in TABLES:
        return "*i64"
    return "i64" if argument.kind == "threshold" else CALLS.get(argument.of, "i32")


def main(cell: str, dtype: str, columns: str, precision: str, sizes: str = "any") -> None:
    graph, of = cells.load(cell).trace(), getattr(torch, dtype)
    made, size = plan(graph), int(sizes) if sizes.isdigit() else 0
    features = {"input": size, "hidden": size, **graph.other_sizes(size)}
    split.precision_of = lambda dtype: precision
    for which in ("inference", "training", "backward"):
        blocks = replace(Blocks(), columns=int(columns))
        if size:
            weights = step_weights(lowered(made, which), made.phase.weights, features, of)
            blocks = next(b for b in holding(weights, size, split.ROWS, Device(132)) if b.columns == int(columns))
        found = kernels(made, which, holds=blocks.holds)
        for name, arguments in found.code.arguments.items():
            constants: dict[str, Any] = blocks.constants(of, precision, False)
            constants |= {a.name: True for a in arguments if a.kind == "adds"}
            constants |= {a.name: 1 for a in arguments if a.kind == "size" and sizes == "one"}  # as Triton specialises them
            types = {a.name: type_of(a, dtype) for a in arguments} | dict.fromkeys(constants, "constexpr")
            plain = [a for a in arguments if a.name not in constants]
            aligned = [a.name for a in plain if a.kind in ("buffer", "weight", "row", "step", "columns", "size")]
            compiled = compile(found.functions[name], types, constants, aligned, blocks.warps)
            shared = compiled.metadata.shared
            if blocks.holds:
                assert shared <= held_bytes(blocks, weights), f"{name} takes {shared} bytes of shared memory"
            print(which, name, len(compiled.asm["cubin"]), shared)


def compile(function: Any, types: dict[str, str], constants: dict[str, Any], aligned: Iterable[str], warps: int) -> Any:
    order = list(function.arg_names)
    source = ASTSource(
        function,
        {n: types[n] for n in order},
        {(order.index(n),): value for n, value in constants.items()},
        {(order.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


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
