"""Runs a graph on arrays of any namespace. On NumPy it is the definition of what a graph means."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from anyrnn.ir.graph import Node
from anyrnn.ir.philox import Chances

Arrays = dict[int, Any]


def evaluation_order(nodes: Sequence[Node], known: Container[int], roots: Iterable[int]) -> list[int]:
    """What has to be evaluated for `roots`, each node after its inputs, when the values of some nodes are `known`."""
    found: dict[int, None] = {}
    pending = [(i, False) for i in roots]
    while pending:
        i, ready = pending.pop()
        if i in known or i in found:
            continue
        if ready:
            found[i] = None
        else:
            pending.append((i, True))
            pending.extend((s, False) for s in nodes[i].inputs)
    return list(found)


class Interpreter:
    """Evaluates nodes on arrays of the namespace `xp`.

    Per-sample vectors are [..., size], per-sample scalars [..., 1]; parameters have their own shapes.
    `number` makes an array of a Python number, in the dtype of the run. `chances` are of random choices, if there are any.
    """

    def __init__(
        self,
        xp: Any,
        number: Callable[[float], Any],
        sizes: Mapping[str, int],
        chances: Chances | None = None,
    ) -> None:
        self.xp = xp
        self.number = number
        self.sizes = sizes
        self.chances = chances

    def run(self, nodes: Sequence[Node], values: Arrays, roots: Iterable[int]) -> Arrays:
        """Extend `values` (node index -> array) by all that `roots` need; returns it."""
        return self.run_in(evaluation_order(nodes, values, roots), nodes, values)

    def run_in(self, order: Iterable[int], nodes: Sequence[Node], values: Arrays) -> Arrays:
        """The same in a given order, for what is run again and again."""
        for i in order:
            node = nodes[i]
            values[i] = self.evaluate(node, [values[s] for s in node.inputs])
        return values

    def evaluate(self, node: Node, arrays: list[Any]) -> Any:
        row = node.row
        if row.kind == "elementwise" and row.meaning is not None:
            return row.meaning(self.xp, *arrays)
        if row.kind == "reduction":
            assert row.meaning is not None
            return row.meaning(self.xp, *arrays) if node.per_sample else row.meaning(self.xp, arrays[0].reshape(-1))[0]
        method: Callable[[Node, list[Any]], Any] = getattr(self, "_" + node.op)
        return method(node, arrays)

    def _constant(self, node: Node, arrays: list[Any]) -> Any:
        return self.number(node.attributes[0])

    def _size(self, node: Node, arrays: list[Any]) -> Any:
        return self.number(node.attributes[0].evaluate(self.sizes))

    def _scale(self, node: Node, arrays: list[Any]) -> Any:
        assert self.chances is not None
        return self.number(self.chances.scale(node.attributes[0]))

    def _probability(self, node: Node, arrays: list[Any]) -> Any:
        assert self.chances is not None
        return self.number(self.chances.probability(node.attributes[0]))

    def _choose(self, node: Node, arrays: list[Any]) -> Any:
        assert self.chances is not None
        place = next(({"device": a.device} for a in arrays if a.ndim and hasattr(a, "device")), {})  # numbers may be anywhere
        features = [d.evaluate(self.sizes) for d in node.shape] or [1]
        rows = [max(a.shape[0] if a.ndim > 1 else 1 for a in arrays)] if node.per_sample else []
        mask = self.chances.kept(self.xp, lambda n: self.xp.arange(n, **place), node.attributes[0], *rows, *features)
        return self.xp.where(mask, *arrays)

    def _affine(self, node: Node, arrays: list[Any]) -> Any:
        count = len(node.attributes)
        total = None
        for k, (transposed, heads) in enumerate(node.attributes):
            product = self._product(arrays[2 * k], arrays[2 * k + 1], transposed, heads)
            total = product if total is None else total + product
        for bias in arrays[2 * count :]:
            total = total + bias
        return total

    def _product(self, matrix: Any, vector: Any, transposed: bool, heads: int) -> Any:
        if heads == 1:
            return vector @ (matrix if transposed else matrix.T)
        blocks = matrix.reshape(heads, matrix.shape[0] // heads, matrix.shape[1])
        parts = vector.reshape(*vector.shape[:-1], heads, vector.shape[-1] // heads)
        result = self.xp.einsum("...hr,hrc->...hc" if transposed else "...hc,hrc->...hr", parts, blocks)
        return result.reshape(*vector.shape[:-1], result.shape[-1] * heads)

    def _fill(self, node: Node, arrays: list[Any]) -> Any:
        (array,) = arrays
        batch = array.shape[:-1]  # none for a number that is alike for all samples
        sizes = [d.evaluate(self.sizes) for d in node.attributes] or [1]
        return self.xp.broadcast_to(array, (*batch, *sizes))

    def _slice(self, node: Node, arrays: list[Any]) -> Any:
        offset, size = (d.evaluate(self.sizes) for d in node.attributes)
        return arrays[0][..., offset : offset + size] if node.per_sample else arrays[0][offset : offset + size]

    def _concat(self, node: Node, arrays: list[Any]) -> Any:
        if not node.per_sample:
            return self.xp.concatenate(arrays, 0)
        batch = max((a.shape[:-1] for a in arrays), key=len)  # features that are alike for all samples have none
        return self.xp.concatenate([self.xp.broadcast_to(a, (*batch, a.shape[-1])) for a in arrays], -1)

    def _transpose(self, node: Node, arrays: list[Any]) -> Any:
        return arrays[0].T

    def _outer(self, node: Node, arrays: list[Any]) -> Any:
        left, right = arrays
        return left[:, None] * right
