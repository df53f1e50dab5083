"""Compiles kernels for a device that is not there: `python -m tests.backends.triton.compiled CELL DTYPE COLUMNS PRECISION [one]`,
where the last is for sizes of one feature.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from anyrnn import cells
from anyrnn.backends.triton.launch import kernels
from anyrnn.backends.triton.names import Argument
from anyrnn.backends.triton.split import Blocks
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
    made = plan(cells.load(cell).trace())
    for which in ("inference", "training", "backward"):
        found = kernels(made, which)
        blocks = replace(Blocks(), columns=int(columns))
        for name, arguments in found.code.arguments.items():
            constants: dict[str, Any] = blocks.constants(getattr(torch, dtype), precision, False)
            constants |= {a.name: True for a in arguments if a.kind == "adds"}
            constants |= {a.name: 1 for a in arguments if a.kind == "size" and sizes == "one"}  # as Triton specialises them
            types = {a.name: type_of(a, dtype) for a in arguments} | dict.fromkeys(constants, "constexpr")
            function = found.functions[name]
            order = list(function.arg_names)
            plain = [a for a in arguments if a.name not in constants]
            aligned = [a for a in plain if a.kind in ("buffer", "weight", "row", "step", "columns", "size")]
            source = ASTSource(
                function,
                {n: types[n] for n in order},
                {(order.index(n),): value for n, value in constants.items()},
                {(order.index(a.name),): [["tt.divisibility", 16]] for a in aligned},
            )
            compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
            print(which, name, len(compiled.asm["cubin"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
