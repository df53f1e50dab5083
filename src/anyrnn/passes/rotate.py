"""Rotates a backward loop: the last stage of one step and the first of the next become one, so that products open stages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anyrnn.ir.graph import Builder
from anyrnn.passes.plan import Kernel, Stage, Store
from anyrnn.passes.simplify import live


def rotate(body: list[Stage], states: Collection[str]) -> tuple[Stage, Stage, list[Stage]]:
    """Join the last stage of one step with the first stage of the next: (entry, exit, body). `states` are carried."""
    first, last = body[0], body[-1]
    made_last = {buffer: kernel.dim for kernel in last.kernels for _, buffer, _ in kernel.stores}
    passed = made_last.keys() & set(states)
    read = {buffer for stage in body[1:] for kernel in stage.kernels for _, buffer, _ in kernel.loads}
    for kernel in first.kernels:  # of another size than the kernel that makes it, as a number of the sample is for columns
        read |= {buffer for _, buffer, _ in kernel.loads if made_last.get(buffer, kernel.dim) != kernel.dim}
    shifted = [_one_step_later(kernel) for kernel in last.kernels]
    joined = _join(shifted, list(first.kernels), passed, passed - read)
    return first, Stage(tuple(shifted)), [Stage(tuple(joined)), *body[1:-1]]


def _one_step_later(kernel: Kernel) -> Kernel:
    """The same kernel for the next step."""
    nodes = tuple(
        replace(n, attributes=(n.attributes[0], n.attributes[1] + 1)) if n.op in ("load", "choose") else n for n in kernel.nodes
    )
    return replace(kernel, nodes=nodes, stores=tuple((i, b, later + 1) for i, b, later in kernel.stores))


def _join(last: list[Kernel], first: list[Kernel], passed_on: set[str], unstored: set[str]) -> list[Kernel]:
    """Kernels of both stages, those of one size made one; states pass from the one to the other in registers."""
    dims = sorted({k.dim for k in last + first}, key=lambda d: (d is not None, str(d)))
    joined = []
    for dim in dims:
        builder = Builder()
        stores: list[Store] = []
        passed: dict[tuple[str, int], int] = {}
        for kernel in [k for k in last if k.dim == dim] + [k for k in first if k.dim == dim]:
            mapped: dict[int, int] = {}
            for i, node in enumerate(kernel.nodes):
                key = node.attributes if node.op == "load" else None
                mapped[i] = (
                    passed[key] if key in passed else builder.add(replace(node, inputs=tuple(mapped[s] for s in node.inputs)))
                )
            for i, buffer, later in kernel.stores:
                if buffer in passed_on:
                    passed[(buffer, later)] = mapped[i]
                if buffer not in unstored:
                    stores.append((mapped[i], buffer, later))
        nodes, stored = live(builder.nodes, [(buffer, i) for i, buffer, _ in stores])
        name = "turn" if dim is not None else "turn_scalars"
        joined.append(Kernel(name, dim, nodes, tuple((i, b, s) for (b, i), (_, _, s) in zip(stored, stores, strict=True))))
    return joined
