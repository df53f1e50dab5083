"""Where the values of a step can be made: before the loop, in it or after it, and in which of its stages.

A product needs every feature of its operand; a reduction needs every feature of its argument, and what moves features needs
others than its own. Where columns are split over threads, each such need is a barrier, so a stage begins there. `level` is the
stage in which a value can be made, column by column; `whole` is the stage at whose start a thread can have all its features: the
next stage for what a product or a costly op made, the same stage for cheap arithmetic on what is whole already (a thread computes
it again rather than waits).

What depends on no state, and is needed whole, is made before the steps (hoisted); what no state depends on, and needs
something whole, is made after them (sunk). Both are done for a chunk of steps at once.
"""

from __future__ import annotations

from anyrnn.ir.graph import Node, affine_parts, reachable
from anyrnn.passes.plan import MOVES
from anyrnn.passes.step import Step

MOST_WAYS = 16
"""Places that the features of a vector may be read from where it is cut or joined once more. What is cut and joined again and
again would be read from many times as many each time: it is stored on the way.
"""
BEFORE, LOOP, AFTER = "before", "loop", "after"
RECOMPUTED_OPS = 6
"""Cheap ops on a whole row that every thread may do for itself rather than wait at a barrier for the others."""


def carried(step: Step) -> set[int]:
    """The values that depend on a state."""
    names, found = {name for name, _ in step.states}, set()
    for i, node in enumerate(step.nodes):
        if (node.op == "load" and node.attributes[0] in names) or any(s in found for s in node.inputs):
            found.add(i)
    return found


class Levels:
    """The region of each value of a step, and its stage there."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.nodes = step.nodes
        self.carried = carried(step)
        self.feeds = reachable(self.nodes, (i for _, i in step.states))
        """What a state depends on."""
        self.ways: list[int] = []
        """How many places of memory a value's features are read from where it is made."""
        for node in self.nodes:
            before = (self.ways[s] if self.ways[s] <= MOST_WAYS else 1 for s in node.inputs)
            self.ways.append(sum(before) if node.op in MOVES else int(node.op != "fill"))
        self.live = sorted(
            reachable(
                self.nodes,
                [i for _, i in step.states]
                + [i for _, _, i in step.outputs]
                + [i for _, *lr, _ in step.products for i in lr]
                + [i for _, i in step.sums],
            )
        )
        self.region = self._around_scans() if step.scans else self._regions()
        self.level: dict[int, int] = {}
        self.whole: dict[int, int] = {}
        self.effort: dict[int, int] = {}
        for region in (BEFORE, LOOP, AFTER):
            self._levels(region)
        self.last_level = max((self.level[i] for i, region in self.region.items() if region == LOOP), default=0)

    def needs_whole(self, node: Node) -> list[int]:
        """The inputs of which a node needs every feature."""
        if node.op == "affine":
            return [operand for _, operand, _, _ in affine_parts(node)[0]]
        if node.op in MOVES:
            found: list[int] = []
            for s in node.inputs:
                if self.is_made_with_reader(s):
                    found += self.needs_whole(self.nodes[s])
                elif self.is_elsewhere(s):
                    found.append(s)
            return found
        return list(node.inputs) if node.row.kind == "reduction" else []

    def is_made_with_reader(self, i: int) -> bool:
        """Whether a value whose features have moved is made where they move again, rather than read from memory there."""
        return self.nodes[i].op in MOVES and self.ways[i] <= MOST_WAYS

    def is_elsewhere(self, i: int) -> bool:
        """Whether what moves a value's features reads them from memory: one number for all of them is the same anywhere."""
        return self.nodes[i].per_sample and self.nodes[i].op != "fill"

    def _regions(self) -> dict[int, str]:
        region = {i: LOOP for i in self.live if self.nodes[i].per_sample}
        free = {i for i in region if i not in self.carried}
        hoisted: set[int] = set()
        for i in reversed(self.live):
            node = self.nodes[i]
            if i in region and i in free and node.row.kind == "reduction":
                hoisted.add(i)
            for s in self.needs_whole(node) if node.per_sample else []:
                if s in free and node.row.kind != "reduction" and self.nodes[s].op != "load":
                    hoisted.add(s)
        for i in sorted(hoisted, reverse=True):
            hoisted |= {s for s in reachable(self.nodes, [i]) if s in free}
        for i in hoisted:
            if self.nodes[i].op != "load":
                region[i] = BEFORE
        sunk: set[int] = set()
        for i in self.live:
            node = self.nodes[i]
            if (
                i in region
                and i in self.carried
                and i not in self.feeds
                and (self.needs_whole(node) or any(s in sunk for s in node.inputs))
            ):
                sunk.add(i)
                region[i] = AFTER
        return region

    def _around_scans(self) -> dict[int, str]:
        """What scans read is made before them, all else after."""
        read = {name for scan in self.step.scans for name in scan.coefficients}
        before = reachable(self.nodes, (i for name, _, i in self.step.outputs if name in read))
        return {i: BEFORE if i in before else AFTER for i in self.live if self.nodes[i].per_sample}

    def _levels(self, region: str) -> None:
        for i in self.live:
            node = self.nodes[i]
            if self.region.get(i) != region:
                continue
            inside, whole = (
                [s for s in some if self.region.get(s) == region and self.nodes[s].op != "load"]
                for some in (node.inputs, self.needs_whole(node))
            )
            level = max([0, *(self.level[s] for s in inside), *(self._whole_for(node, s) for s in whole)])
            self.level[i] = level
            self.effort[i] = 1 + sum(self.effort[s] for s in inside if self.level[s] == level and self.nodes[s].shape)
            if node.op == "load" or node.shape == ():
                self.whole[i] = level
            elif node.op in ("affine", *MOVES) or node.row.costly or self.effort[i] > RECOMPUTED_OPS:
                self.whole[i] = level + 1
            else:
                self.whole[i] = max((self.whole[s] for s in inside), default=0)

    def _whole_for(self, node: Node, operand: int) -> int:
        """Products, and what moves features, read from memory, so whatever is computed must have been stored a stage before."""
        if node.op in ("affine", *MOVES) and self.nodes[operand].op != "load":
            return self.level[operand] + 1
        return self.whole[operand]
