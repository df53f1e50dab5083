"""Where the boxes of a layered drawing stand: from left to right by the longest way to them, from top to bottom so that few lines
cross. After Sugiyama, Tagawa & Toda 1981, Methods for Visual Understanding of Hierarchical System Structures.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 12
Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """`places` are the middles of boxes, in layers and rows; `ways` the points of each line, both ends included."""

    places: Mapping[Hashable, Point]
    ways: Mapping[tuple[Hashable, Hashable], tuple[Point, ...]]
    layers: int
    rows: float


def layered(boxes: Sequence[Hashable], lines: Iterable[tuple[Hashable, Hashable]], last: Collection[Hashable] = ()) -> Layout:
    """Places for boxes (what lines come from before what they go to) and for lines. `last` go to the last layer."""
    lines = list(dict.fromkeys(lines))
    sources, targets = _by_second(lines), _by_second((b, a) for a, b in lines)
    layer: dict[Hashable, int] = {}
    for box in boxes:
        layer[box] = 1 + max((layer[a] for a in sources.get(box, ())), default=-1)
    end = max(layer.values()) if boxes else 0
    layer |= dict.fromkeys(last, end)
    for box in reversed(boxes):  # what is needed late stands late: lines become shorter; what is given stays in the first layer
        if box in targets and box in sources and box not in last:
            layer[box] = min(layer[b] for b in targets[box]) - 1
    columns: list[list[Hashable]] = [[] for _ in range(end + 1)]
    for box in boxes:
        columns[layer[box]].append(box)
    chains = {line: _chain(line, layer, columns) for line in lines}
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    before, after = _by_second(links), _by_second((b, a) for a, b in links)
    rows = {item: float(k) for column in columns for k, item in enumerate(column)}
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            _arrange(column, before if forward else after, rows)
    top = min(rows.values(), default=0.0)
    depth = {item: k for k, column in enumerate(columns) for item in column}
    places = {box: (float(depth[box]), rows[box] - top) for box in boxes}
    ways = {line: tuple((float(depth[item]), rows[item] - top) for item in chain) for line, chain in chains.items()}
    return Layout(places, ways, end + 1, max(rows.values(), default=0.0) - top)


def _by_second(pairs: Iterable[tuple[Hashable, Hashable]]) -> dict[Hashable, list[Hashable]]:
    """What stands first in pairs, by what stands second."""
    found: dict[Hashable, list[Hashable]] = {}
    for a, b in pairs:
        found.setdefault(b, []).append(a)
    return found


def _chain(line: tuple[Hashable, Hashable], layer: Mapping[Hashable, int], columns: list[list[Hashable]]) -> list[Hashable]:
    """The two ends, and a place in every layer between them."""
    a, b = line
    between: list[Hashable] = [(line, k) for k in range(layer[a] + 1, layer[b])]
    for k, item in enumerate(between, layer[a] + 1):
        columns[k].append(item)
    return [a, *between, b]


def _arrange(column: list[Hashable], neighbours: Mapping[Hashable, Sequence[Hashable]], rows: dict[Hashable, float]) -> None:
    """Order a column by where its neighbours stand, and put each as near to them as the others let it."""

    def wanted(item: Hashable) -> float:
        near = neighbours.get(item, ())
        return sum(rows[n] for n in near) / len(near) if near else rows[item]

    column.sort(key=wanted)
    groups: list[list[float]] = []  # of items that touch: the sum of what their first one's row would be, and their number
    for item in column:
        groups.append([wanted(item), 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] + groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1][0] += total - count * groups[-1][1]
            groups[-1][1] += count
    items = iter(column)
    for total, count in groups:
        for k in range(int(count)):
            rows[next(items)] = total / count + k
