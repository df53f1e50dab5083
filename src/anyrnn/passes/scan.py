"""Loops that need no loop: where every new state is affine in the states, feature by feature, with coefficients that no state is
part of, the states of all steps can be found at once, by a parallel scan over time.

A step is then done in three parts: its coefficients, for all steps; the scan; and all that reads states, for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyrnn.ir.dims import Shape
from anyrnn.ir.graph import Builder, Node
from anyrnn.ir.symbol import Symbol
from anyrnn.passes.plan import Buffer, Scan
from anyrnn.passes.step import Step

TIED = 2
"""How many states may depend on each other, at the most: as many as a complex one is made of."""

Part = Symbol | None
"""A coefficient, or what is added; None: zero."""
Form = tuple[dict[str, Symbol], Part]
"""A value as a sum: the coefficients of the states that it depends on, and the rest."""


def scanned(step: Step, known: Sequence[Buffer]) -> tuple[Step, list[Buffer]] | None:
    """The step with scans in the place of its states, and the buffers that its loads name. None where its states are not affine,
    or more than a few depend on each other.
    """
    builder = Builder(step.nodes)
    forms = _forms(step, builder)
    if forms is None:
        return None
    shapes = {name: step.nodes[i].shape for name, i in step.states}
    groups = _tied({name: set(coefficients) for name, (coefficients, _) in forms.items()})
    if any(len(tied) > TIED or len({shapes[name] for name in tied}) > 1 for tied in groups):
        return None
    made: list[tuple[str, str, int]] = []

    def keep(name: str, value: Symbol | None, shape: Shape) -> str | None:
        """The buffer of a coefficient; None where it is zero."""
        if value is None:
            return None
        made.append((name, "chunk", _of_samples(builder, value, shape)))
        return name

    scans = []
    for tied in groups:
        factors = tuple(tuple(keep(f"{name}.factor.{by}", forms[name][0].get(by), shapes[name]) for by in tied) for name in tied)
        scans.append(Scan(tied, factors, tuple(keep(f"{name}.term", forms[name][1], shapes[name]) for name in tied)))
    count = len(step.nodes)
    nodes = (n if k < count or not n.inputs else replace(n, per_sample=True) for k, n in enumerate(builder.nodes))
    whole = replace(step, nodes=tuple(nodes), outputs=(*step.outputs, *made), scans=tuple(scans))
    carried = {i: name for name, i in step.states if forms[name][0] and step.nodes[i].op != "load"}
    return _from_history(whole, carried), [replace(b, role="history") if b.name in shapes else b for b in known]


def _of_samples(builder: Builder, value: Symbol, shape: Shape) -> int:
    """A coefficient as a value of its own for each sample, which kernels store."""
    return builder.add(Node("fill", (value.index,), shape, shape))


def _tied(reads: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """The states in groups of those that depend on each other."""
    groups: list[set[str]] = []
    for name, others in reads.items():
        joined = {name, *others}
        apart = [group for group in groups if not group & joined]
        groups = [*apart, joined.union(*(group for group in groups if group & joined))]
    return [tuple(name for name in reads if name in group) for group in groups]


def _forms(step: Step, builder: Builder) -> dict[str, Form] | None:
    """What each new state is, in nodes of the builder, which has those of the step; None where one is not affine."""
    names = {name for name, _ in step.states}
    forms: dict[int, Form | None] = {}
    for i, node in enumerate(step.nodes):
        if node.op == "load" and node.attributes[0] in names:
            forms[i] = {node.attributes[0]: builder.constant(1.0)}, None
        elif any(s in forms for s in node.inputs):
            of = [forms[s] if s in forms else ({}, builder.symbol(s)) for s in node.inputs]
            forms[i] = None if None in of else _form(builder, node, [form for form in of if form is not None])
    found = {name: forms[i] if i in forms else ({}, builder.symbol(i)) for name, i in step.states}
    return None if None in found.values() else {name: form for name, form in found.items() if form is not None}


def _form(builder: Builder, node: Node, of: Sequence[Form]) -> Form | None:
    """What an op makes of affine values; None where that is not affine."""
    if node.op in ("fill", "stop_gradient"):
        return _each(of[:1], lambda a: None if a is None else builder.stretch(a, node.shape))
    if node.op == "neg":
        return _each(of, lambda a: None if a is None else -a)
    if node.op in ("add", "sub"):
        return _each(of, lambda a, b: _sum(a, b if node.op == "add" or b is None else -b))
    if node.op == "mul" and any(not coefficients for coefficients, _ in of):
        (_, factor), other = of if not of[0][0] else of[::-1]
        return _each([other], lambda a: _product(a, factor))
    if node.op == "div" and not of[1][0]:
        by = of[1][1]
        return _each(of[:1], lambda a: None if a is None else a / by)
    if node.op == "where" and not of[0][0]:
        test = of[0][1]
        return _each(of[1:], lambda a, b: _either(a, b, lambda x, y: builder.apply("where", test, x, y)))
    if node.op == "choose":

        def choose(a: Any, b: Any) -> Symbol:
            return builder.make("choose", [builder.lift(a), builder.lift(b)], node.shape, node.attributes)

        return _each(of, lambda a, b: _either(a, b, choose))
    return None


def _each(of: Sequence[Form], combine: Callable[..., Part]) -> Form:
    """The same for the coefficients of each state and for the rest."""
    names = dict.fromkeys(name for coefficients, _ in of for name in coefficients)
    parts = {name: combine(*(coefficients.get(name) for coefficients, _ in of)) for name in names}
    return {name: part for name, part in parts.items() if part is not None}, combine(*(rest for _, rest in of))


def _sum(a: Part, b: Part) -> Part:
    return b if a is None else a if b is None else a + b


def _product(a: Part, factor: Part) -> Part:
    if a is None or factor is None:
        return None
    return factor if _is_one(a) else a * factor


def _is_one(a: Symbol) -> bool:
    node = a.builder.nodes[a.index]
    return node.op == "constant" and node.attributes[0] == 1.0


def _either(a: Part, b: Part, choice: Callable[[Any, Any], Symbol]) -> Part:
    return None if a is None and b is None else choice(0.0 if a is None else a, 0.0 if b is None else b)


def _from_history(step: Step, new: Mapping[int, str]) -> Step:
    """The step with each new state (by node) read from memory by whatever reads it."""
    builder, mapped = Builder(), list[int]()
    for i, node in enumerate(step.nodes):
        if i in new:
            mapped.append(builder.leaf_load(new[i], 0 if step.reverse else 1, node))
        else:
            mapped.append(builder.add(replace(node, inputs=tuple(mapped[s] for s in node.inputs))))
    return replace(
        step,
        nodes=tuple(builder.nodes),
        states=(),
        outputs=tuple((name, role, mapped[i]) for name, role, i in step.outputs),
        products=tuple((weight, mapped[left], mapped[right], heads) for weight, left, right, heads in step.products),
        sums=tuple((weight, mapped[i]) for weight, i in step.sums),
    )
