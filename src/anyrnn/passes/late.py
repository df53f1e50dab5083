"""Moves what one stage makes for later ones to the latest of them, where less is stored and loaded that way.

Staging makes each value as early as it can be made. A gate's derivative, say, may then be stored by a stage that does not use it,
and loaded by the next one, which has all that it is made of at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anyrnn.passes.stage import Stager


TRIES = 8
"""Levels at which a value is tried, the last ones; more are those of cells that are loops of many stages."""
MOST_LOOKED_AT = 2**18
"""Ops in all tries together, each of which looks at all of a step: a few hundred tries of usual cells, which need fewer."""


def make_late(stager: Stager) -> None:
    """Change the levels of values of the loop, one after the other from the last, each with all that is made for it alone."""
    readers = _readers(stager)
    # the last stage of a backward step may be done in the step after it, where only states are wanted
    latest = stager.last_level - 1 if stager.step.reverse else stager.last_level
    roots = {i for i, _, _ in stager.reads() if not stager.is_leaf(i)} | set(stager.targets)
    least, left = _traffic(stager), MOST_LOOKED_AT // len(stager.live)
    for root in sorted(roots, reverse=True):
        tries = min(TRIES, left)
        if not tries:
            break
        for level in range(latest, stager.level.get(root, latest), -1):
            moved = _made_for(stager, readers, root, level)
            if not moved:
                continue
            before = {i: stager.level[i] for i in moved}
            stager.level |= dict.fromkeys(moved, level)
            traffic, left = _traffic(stager), left - 1
            if traffic < least:
                least = traffic
                break
            stager.level |= before
            tries -= 1
            if not tries:
                break


def _readers(stager: Stager) -> dict[int, set[int]]:
    """By value, what reads it in the loop. What is made again where it is read is no reader, but its readers are; except where
    all its features are needed, for which it is stored, or made by every thread for itself.
    """
    whole = {s for i in stager.live for s in stager.needs_whole(stager.nodes[i])}
    readers: dict[int, set[int]] = {}
    for i in reversed(stager.live):
        if stager.in_loop(i):
            again = i not in stager.targets and i not in whole and stager.recomputed(i)
            for s in stager.nodes[i].inputs:
                readers.setdefault(s, set()).update(readers.get(i, ()) if again else {i})
    return readers


def _made_for(stager: Stager, readers: dict[int, set[int]], root: int, level: int) -> set[int]:
    """What moves to a level with a value: nothing else reads it before. Empty if the value itself cannot move."""
    step = stager.step
    fixed = {i for _, i in step.states} | {i for _, _, i in step.outputs}
    moved: set[int] = set()
    for i in range(root, -1, -1):
        if i != root and moved.isdisjoint(readers.get(i, ())):
            continue
        node = stager.nodes[i]
        movable = node.row.kind == "elementwise" and node.shape and i not in fixed and stager.in_loop(i)
        if (
            movable
            and stager.level[i] < level
            and all(
                r in moved or stager.level[r] - (i in stager.needs_whole(stager.nodes[r])) >= level for r in readers.get(i, ())
            )
        ):
            moved.add(i)
        elif i == root:
            break
    return moved


def _traffic(stager: Stager) -> int:
    """Vectors that the kernels of a step load, and store for each other."""
    reads = {read for read in stager.reads() if stager.nodes[read[0]].shape}
    stored = {i for i, place, _ in reads if not stager.is_leaf(i) or not stager.still_there(i, place)}
    return len(reads) + len(stored - set(stager.targets))
