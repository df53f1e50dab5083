"""Launches of the functions of a program: their text made into kernels, and their arguments found by name."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from anyrnn.backends.triton.lower import Lowered
from anyrnn.backends.triton.names import Argument
from anyrnn.backends.triton.tape_watching import Launch, launched, unwatched
from anyrnn.backends.triton.text import Code, write
from anyrnn.passes.compile import Plan, with_scans
from anyrnn.passes.plan import Program


@dataclass(frozen=True)
class Kernels:
    """A program's text with its functions, by name."""

    code: Code
    lowered: Lowered
    functions: Mapping[str, Any]

    def launch(
        self, name: str, grid: Sequence[int], values: Mapping[tuple[str, str], Any], constants: dict[str, Any], **how: Any
    ) -> None:
        """`values` by kind and what they are of."""
        arguments = [values.get((a.kind, a.of)) if a.kind == "buffer" else values[a.kind, a.of] for a in self._positional(name)]
        constant = {a.name: values[a.kind, a.of] for a in self.code.arguments[name] if a.kind == "adds"}
        function, rest = self.functions[name], constant | constants
        with unwatched():
            compiled = function[tuple(grid)](*arguments, **rest, **how)
        launched(Launch(function, compiled, grid, arguments, rest))

    def _positional(self, name: str) -> list[Argument]:
        return [a for a in self.code.arguments[name] if a.kind != "adds"]


@lru_cache(maxsize=512)
def program_of(plan: Plan, which: str, scans: bool = False) -> Program | None:
    """`inference`, `training` or `backward` of a plan; with scans in the place of the loop, None where there can be none."""
    program: Program = getattr(plan, which)
    return with_scans(plan, which) if scans else program


def code_of(
    plan: Plan, which: str, name: str, scans: bool = False, holds: int = 0, scatters: bool = False, late: bool = False
) -> Code:
    """The text of a program of a plan."""
    program = program_of(plan, which, scans)
    assert program is not None
    return write(program, plan.phase.weights, f"{name}_{which}", holds, scatters, late)


@lru_cache(maxsize=256)
def lowered(plan: Plan, which: str, scans: bool = False, late: bool = False) -> Lowered:
    """A program of a plan, its affines taken apart."""
    program = program_of(plan, which, scans)
    assert program is not None
    return Lowered(program, late)


@lru_cache(maxsize=256)
def kernels(plan: Plan, which: str, scans: bool = False, holds: int = 0, scatters: bool = False, late: bool = False) -> Kernels:
    """Those of a program. Triton compiles each when it is first launched."""
    import triton
    import triton.language as tl

    from anyrnn.backends.triton import functions

    code = code_of(plan, which, plan.graph.name, scans, holds, scatters, late)
    file = f"<anyrnn {plan.graph.name} {which} {abs(hash(code.text)):x}>"
    lines = code.text.splitlines(keepends=True)
    linecache.cache[file] = (len(code.text), None, lines, file)  # Triton reads a function's text from its file
    space: dict[str, Any] = {"triton": triton, "tl": tl, "functions": functions, "__name__": "anyrnn.backends.triton.generated"}
    exec(compile(code.text, file, "exec"), space)
    return Kernels(code, lowered(plan, which, scans, late), {name: space[name] for name in code.arguments})
