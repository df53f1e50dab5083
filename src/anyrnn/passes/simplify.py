"""Rebuilds a graph by local rules: fold constants, drop what changes nothing, sum products in one affine, undo stacking.

Stacked vectors (several gates in one, so that one norm can span them) are taken apart: what is sliced is made slice by slice
where it can be, down to rows of the parameters, and a sum over it is the sum of its slices' sums.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from anyrnn.ir.dims import Dim, cover_once
from anyrnn.ir.graph import Builder, Graph, Node, affine_parts, exact_for_steps, reachable, users
from anyrnn.ir.symbol import Symbol
from anyrnn.passes.plan import joined_at


def simplify(graph: Graph) -> Graph:
    """The same function of fewer nodes."""
    nodes, outputs = _unstack(graph.nodes, graph.outputs)
    for rewrite in (_rewrite_locally, _alone, _merging()):
        nodes, outputs = _rebuild(nodes, outputs, rewrite)
    return replace(graph, nodes=nodes, outputs=outputs)


def simplify_roots(
    nodes: Sequence[Node], roots: Sequence[int], in_steps: bool = False
) -> tuple[tuple[Node, ...], dict[int, int]]:
    """The local rules for a graph whose outputs are `roots`: the nodes, and where each root now is. `in_steps`: what is made of
    parameters alone has been made before.
    """
    outputs = tuple((str(root), root) for root in dict.fromkeys(roots))
    kept = tuple(nodes)
    for rewrite in (_rewrite_in_steps if in_steps else _rewrite_locally, _merging()):
        kept, outputs = _rebuild(kept, outputs, rewrite)
    return kept, {int(name): index for name, index in outputs}


SMALLEST = 2.0**-126
"""The smallest number of float32 with a full mantissa: a reciprocal below it counts as zero in kernels."""

Rewrite = Callable[[Builder, Node, list[Symbol], Mapping[int, int], bool], Symbol | None]
"""Of the new graph, a node, its operands there, how often their new nodes are read, and whether the node is `exact_for_steps`."""


def _rebuild(
    nodes: Sequence[Node], outputs: Sequence[tuple[str, int]], rewrite: Rewrite
) -> tuple[tuple[Node, ...], tuple[tuple[str, int], ...]]:
    """Copy what the outputs need, each node as `rewrite` says (None: as it is)."""
    uses = [len(u) for u in users(nodes)]
    for _, i in outputs:
        uses[i] += 1
    exact = _exact(nodes, dict(outputs))
    builder = Builder()
    mapped: dict[int, int] = {}
    new_uses: dict[int, int] = {}
    for i in sorted(reachable(nodes, (o for _, o in outputs))):
        node = nodes[i]
        inputs = [builder.symbol(mapped[s]) for s in node.inputs]
        builder.source = node.source
        new = rewrite(builder, node, inputs, new_uses, i in exact)
        mapped[i] = new.index if new is not None else builder.add(replace(node, inputs=tuple(s.index for s in inputs)))
        new_uses[mapped[i]] = new_uses.get(mapped[i], 0) + uses[i]
        if node.name:
            builder.rename(mapped[i], node.name)
    return live(builder.nodes, [(name, mapped[o]) for name, o in outputs])


def _exact(nodes: Sequence[Node], outputs: Mapping[str, int]) -> set[int]:
    """Those that are `exact_for_steps`, of this step or, as a state is made of them, of a later one."""
    found = exact_for_steps(nodes)
    while True:
        states = [nodes[i].attributes[0] for i in found if nodes[i].op == "state"]
        more = {outputs[name] for name in states if name in outputs} - found
        if not more:
            return found
        found = exact_for_steps(nodes, [*found, *more])


def live(nodes: Sequence[Node], outputs: Sequence[tuple[str, int]]) -> tuple[tuple[Node, ...], tuple[tuple[str, int], ...]]:
    """The nodes that the outputs need, numbered anew."""
    needed = sorted(reachable(nodes, (o for _, o in outputs)))
    position = {old: new for new, old in enumerate(needed)}
    kept = tuple(replace(nodes[i], inputs=tuple(position[s] for s in nodes[i].inputs)) for i in needed)
    return kept, tuple((name, position[o]) for name, o in outputs)


def _number(symbol: Symbol) -> float | None:
    node = symbol.builder.nodes[symbol.index]
    return float(node.attributes[0]) if node.op == "constant" else None


FOLDS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "exp": math.exp,
    "sqrt": math.sqrt,
}


def _rewrite_locally(builder: Builder, node: Node, inputs: list[Symbol], uses: Mapping[int, int], exact: bool) -> Symbol | None:
    numbers = [_number(s) for s in inputs]
    if node.op in FOLDS and inputs and None not in numbers:
        with contextlib.suppress(ArithmeticError, ValueError):  # infinities and NaN are left to the array library
            return builder.constant(FOLDS[node.op](*numbers))
    for position, neutral in NEUTRAL.get(node.op, ()):
        if numbers[position] == neutral and inputs[1 - position].shape == node.shape:
            return inputs[1 - position]
    first = builder.nodes[inputs[0].index] if inputs else None
    if node.op == "neg" and first is not None and first.op == "neg":
        return builder.symbol(first.inputs[0])
    if node.op == "add" and builder.nodes[inputs[1].index].op == "neg":
        return inputs[0] - builder.symbol(builder.nodes[inputs[1].index].inputs[0])
    by_number = node.op == "div" and node.shape and not inputs[1].shape and inputs[0].shape
    if by_number and not exact and _has_reciprocal(builder.nodes, inputs[1].index):
        return inputs[0] * (1.0 / (inputs[1] if numbers[1] is None else numbers[1]))
    return None


def _has_reciprocal(nodes: Sequence[Node], i: int) -> bool:
    """Whether a number's reciprocal has a full mantissa: a root's has, for it is far from both ends of float32."""
    node = nodes[i]
    if node.op == "constant":
        return SMALLEST <= abs(float(node.attributes[0])) <= 1 / SMALLEST
    if node.op == "add":  # a root and a small number, that it be not 0
        return any(nodes[s].op == "sqrt" for s in node.inputs) and any(nodes[s].op == "constant" for s in node.inputs)
    return node.op in ("sqrt", "size")


def _rewrite_in_steps(builder: Builder, node: Node, inputs: list[Symbol], uses: Mapping[int, int], exact: bool) -> Symbol | None:
    """The same, but nothing new is made of parameters."""
    by_parameter = node.op == "div" and not inputs[1].per_sample and _number(inputs[1]) is None
    return _rewrite_locally(builder, node, inputs, uses, exact or by_parameter)


NEUTRAL = {"add": ((0, 0.0), (1, 0.0)), "sub": ((1, 0.0),), "mul": ((0, 1.0), (1, 1.0)), "div": ((1, 1.0),)}


def _alone(builder: Builder, node: Node, inputs: list[Symbol], uses: Mapping[int, int], exact: bool) -> Symbol | None:
    """What a sum of products multiplies of parameters alone is a vector, made before the steps, and added to it. In blocks it has
    no gradient there, and stays.
    """
    if node.op != "affine" or not node.per_sample:
        return None
    count = len(node.attributes)
    terms = [(inputs[2 * k], inputs[2 * k + 1], *node.attributes[k]) for k in range(count)]
    alone: list[tuple[Symbol, Symbol, bool, int]] = []
    others: list[tuple[Symbol, Symbol, bool, int]] = []
    for term in terms:
        _, operand, _, heads = term
        (others if operand.per_sample or heads > 1 else alone).append(term)
    return builder.affine(others, [*inputs[2 * count :], builder.affine(alone)], node.name) if alone else None


def _merging() -> Rewrite:
    """`_merge_affines`, of sums alone that may have something to be merged: of a long one it would look at every beginning."""
    counted: dict[int, tuple[int, int]] = {}

    def parts(builder: Builder, i: int) -> tuple[int, int]:
        """How many products and how many parameters a sum adds up, at the most."""
        node = builder.nodes[i]
        if node.op != "add":
            return int(node.op == "affine"), int(not node.per_sample)
        if i not in counted:
            counted[i] = _both(*(parts(builder, s) for s in node.inputs))
        return counted[i]

    def rewrite(builder: Builder, node: Node, inputs: list[Symbol], uses: Mapping[int, int], exact: bool) -> Symbol | None:
        if node.op != "add":
            return None
        affines, vectors = _both(*(parts(builder, symbol.index) for symbol in inputs))
        return _merge_affines(builder, node, inputs, uses) if affines and affines + vectors > 1 else None

    return rewrite


def _both(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def _merge_affines(builder: Builder, node: Node, inputs: list[Symbol], uses: Mapping[int, int]) -> Symbol | None:
    """A sum of products and parameter vectors is one affine, when nothing else reads its parts; the rest is added to it."""
    addends = _addends(builder, inputs, uses)
    indices = [a.index for a in addends]
    affines = [
        a
        for a in addends
        if a.per_sample and builder.nodes[a.index].op == "affine" and uses.get(a.index, 1) == 1 and indices.count(a.index) == 1
    ]
    vectors = [a for a in addends if not a.per_sample and a.shape == node.shape] if affines else []
    if len(affines) + len(vectors) < 2:
        return None
    terms = [t for a in affines for t in affine_parts(builder.nodes[a.index])[0]]
    biases = [b for a in affines for b in affine_parts(builder.nodes[a.index])[1]] + [v.index for v in vectors]
    symbols = [(builder.symbol(m), builder.symbol(v), transposed, heads) for m, v, transposed, heads in terms]
    merged_ones = {a.index for a in (*affines, *vectors)}
    rest = [a for a in addends if a.index not in merged_ones]
    name = next((n for n in (builder.nodes[a.index].name for a in affines) if n), "")
    merged = builder.affine(symbols, [builder.symbol(b) for b in biases], name if rest else node.name or name)
    return functools.reduce(operator.add, [*rest, merged])


def _addends(builder: Builder, inputs: Sequence[Symbol], uses: Mapping[int, int]) -> list[Symbol]:
    """What a tree of additions adds up, where nothing else reads its inner nodes, nor one of them twice."""
    found: list[Symbol] = []
    left = _counted([symbol.index for symbol in inputs])
    while left:
        i, times = left.pop()
        inner = builder.nodes[i]
        if inner.op == "add" and uses.get(i, 1) == 1 and times == 1:
            left += _counted(inner.inputs)
        else:
            found.append(builder.symbol(i))
    return found


def _counted(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Each with how often it is there, the last one first."""
    return [(i, indices.count(i)) for i in reversed(indices)]


LONG = 200
"""Nodes, more than which are made from the first one on."""


class _Unstack:
    """Takes stacked vectors apart, on demand, from the outputs down.

    `whole(i)` is a node's copy; `part(i, offset, size)` is the copy of some of its features, made of features of what it is
    made of.
    """

    def __init__(self, nodes: Sequence[Node], roots: Iterable[int]) -> None:
        self.nodes, self.users, self.roots = nodes, users(nodes), frozenset(roots)
        self.builder = Builder()
        self.done: dict[int, Symbol] = {}
        self.parts: dict[tuple[int, Dim, Dim], Symbol] = {}
        self.cuts = self._cuts()
        self.can_part: dict[int, bool] = {}

    def _cuts(self) -> dict[int, set[tuple[Dim, Dim]]]:
        """For each vector that is sliced, or is bound feature by feature to one that is, the slices."""
        cuts: dict[int, set[tuple[Dim, Dim]]] = {}
        for node in self.nodes:
            if node.op == "slice" and node.per_sample:
                cuts.setdefault(node.inputs[0], set()).add(node.attributes)
        bound = [
            (i, s)
            for i, node in enumerate(self.nodes)
            if node.row.kind == "elementwise"
            for s in node.inputs
            if self.nodes[s].shape == node.shape
        ]
        changed = True
        while changed:  # what is bound to one that got cuts from another has them too
            changed = False
            for i, s in [*reversed(bound), *bound]:
                both = cuts.get(i, set()) | cuts.get(s, set())
                if both and not cuts.get(i) == cuts.get(s) == both:
                    cuts[i], cuts[s], changed = both, both, True
        return cuts

    def _can_part(self, i: int) -> bool:
        if i not in self.can_part:
            self.can_part[i] = self._find_out(i)
        return self.can_part[i]

    def _find_out(self, i: int) -> bool:
        node = self.nodes[i]
        if not node.per_sample or not node.shape or node.op == "fill":
            return True
        if node.op == "affine":
            return all(heads == 1 and not transposed for transposed, heads in node.attributes)
        if node.op == "concat":
            parts = [self._joined(node, *cut) for cut in self.cuts.get(i, ())]  # of parameters alone one is no value of samples
            return all(part is not None and any(self.nodes[s].per_sample for s in part) for part in parts)
        if node.op == "choose" or (node.op == "clip_gradient" and not self._is_read_in_parts(i)):
            return False
        return node.row.kind == "elementwise" and all(self._can_part(s) for s in node.inputs)

    def _is_read_in_parts(self, i: int) -> bool:
        """Whether all that reads a vector is parts of it, which have no feature in common: what comes back to a feature comes
        from one of them, and is clipped by itself.
        """
        cuts, (whole,) = sorted(self.cuts.get(i, ()), key=str), self.nodes[i].shape
        apart = len(cuts) == 1 or cover_once(cuts, whole)
        return apart and i not in self.roots and all(self.nodes[reader].op == "slice" for reader in self.users[i])

    def _joined(self, node: Node, offset: Dim, size: Dim) -> list[int] | None:
        """The operands of a concat that make up some of its features; None where these begin or end within one."""
        starts = joined_at(self.nodes, node)
        if offset not in starts or offset + size not in starts:
            return None
        return list(node.inputs[starts.index(offset) : starts.index(offset + size)])

    def whole(self, i: int) -> Symbol:
        if i not in self.done:
            self.done[i] = self._whole(self.nodes[i])
            if self.nodes[i].name:
                self.builder.rename(self.done[i].index, self.nodes[i].name)
        return self.done[i]

    def make_in_order(self) -> None:
        """Everything, from the first node to the last, wanted or not: Python does not call as deep as steps may be long."""
        for i in range(len(self.nodes)):
            for cut in self.cuts.get(i, ()) if self._can_part(i) else ():
                self.part(i, *cut)
            self.whole(i)

    def _whole(self, node: Node) -> Symbol:
        self.builder.source = node.source
        if node.op == "slice" and node.per_sample and self._can_part(node.inputs[0]):
            return self.part(node.inputs[0], *node.attributes)
        if node.op == "sum" and node.per_sample and self._can_part(node.inputs[0]):
            slices = sorted(self.cuts.get(node.inputs[0], ()), key=str)
            if len(slices) > 1 and cover_once(slices, self.nodes[node.inputs[0]].shape[0]):
                sums = [self.builder.apply("sum", self.part(node.inputs[0], *cut)) for cut in slices]
                return functools.reduce(operator.add, sums)
        inputs = tuple(self.whole(s).index for s in node.inputs)
        return self.builder.symbol(self.builder.add(replace(node, inputs=inputs)))

    def part(self, i: int, offset: Dim, size: Dim) -> Symbol:
        node = self.nodes[i]
        if node.shape == () or node.shape == (size,):
            return self.whole(i)
        key = (i, offset, size)
        if key not in self.parts:
            self.parts[key] = self._part(node, i, offset, size)
        return self.parts[key]

    def _part(self, node: Node, i: int, offset: Dim, size: Dim) -> Symbol:
        builder = self.builder
        if not node.per_sample and not node.row.boolean:  # a test is made again, of parts of what it compares
            return self._rows(self.whole(i), offset, size)
        if node.op == "fill":
            number = self.whole(node.inputs[0]).index
            return builder.symbol(builder.add(replace(node, inputs=(number,), shape=(size,), attributes=(size,))))
        if node.op == "affine":
            terms, biases = affine_parts(node)
            cut = [
                (self._rows(self.whole(m), offset, size), self.whole(v), transposed, heads) for m, v, transposed, heads in terms
            ]
            return builder.affine(cut, [self._rows(self.whole(b), offset, size) for b in biases], node.name)
        if node.op == "concat":
            operands = self._joined(node, offset, size)
            assert operands, "`_can_part` has looked at every cut"
            joined = [self.whole(s) for s in operands]
            return joined[0] if len(joined) == 1 else builder.concat(joined)
        if node.op == "norm":  # its derivative spans all features: the plain arithmetic is differentiated
            return self.part(node.inputs[0], offset, size)
        return builder.make(node.op, [self.part(s, offset, size) for s in node.inputs], (size,), node.attributes, node.name)

    def _rows(self, parameter: Symbol, offset: Dim, size: Dim) -> Symbol:
        """Rows of a parameter; rows of rows are rows."""
        inner = self.builder.nodes[parameter.index]
        if inner.op == "slice":
            return self._rows(self.builder.symbol(inner.inputs[0]), inner.attributes[0] + offset, size)
        return self.builder.slice(parameter, offset, size)


def _unstack(nodes: Sequence[Node], outputs: Sequence[tuple[str, int]]) -> tuple[tuple[Node, ...], tuple[tuple[str, int], ...]]:
    """The same graph without slices of what can be made slice by slice."""
    if not any(n.op == "slice" and n.per_sample for n in nodes):
        return tuple(nodes), tuple(outputs)
    unstack = _Unstack(nodes, [o for _, o in outputs])
    if len(nodes) > LONG:
        unstack.make_in_order()
    made = [(name, unstack.whole(o).index) for name, o in outputs]
    return live(unstack.builder.nodes, made)
