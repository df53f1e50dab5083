"""Between the arrays of a system and our parameters, of one layer in one direction, as the table says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.weights.table import Block, Form, Part, Piece

Array = npt.NDArray[Any]
Gates = Mapping[str, Sequence[str]]
"""Of each of our parameters of a cell, the gates whose rows it stacks: (\"\",) where it has none."""


class InexactError(ValueError):
    """A system has no place for some numbers that are not zero."""


def _axes(piece: Piece) -> list[list[str]]:
    """The letters of each axis."""
    return [(group or letter).split() for group, letter in re.findall(r"\(([^)]*)\)|(\w)", piece.axes)]


def _sides(part: Part, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a part: [h, d] or [h]. `sizes` has `hidden`, `input` and `state`."""
    hidden, input, state = sizes["hidden"], sizes["input"], sizes["state"]
    return {"weight_ih": (hidden, input), "weight_hh": (hidden, state), "weight_hr": (state, hidden)}.get(part[0], (hidden,))


def shape_of(piece: Piece, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Of an array of a system, for a layer of these sizes."""
    first, last = (_sides(block[0], sizes) for block in (piece.blocks[0], piece.blocks[-1]))
    letters = {"h": first[0], "d": first[-1], "o": 2, "g": len(piece.blocks) // (2 if "o" in piece.axes else 1)}
    joined = first[-1] + last[-1]
    return tuple([joined if axis == ["o", "d"] else int(np.prod([letters[x] for x in axis])) for axis in _axes(piece)])


def read(form: Form, arrays: Mapping[str, Any], gates: Gates, what: str) -> dict[str, Array]:
    """Our parameters from a system's arrays, copied. Of biases that the system has added the first is the sum and the second what
    the system adds by itself, mostly zero.

    Args:
        form: of the system and cell.
        arrays: by the system's names.
        gates: of our cell.
        what: the system and the cell, for errors.

    Raises: ValueError for arrays that are missing, unknown, or of shapes that do not fit together.
    """
    found = {name: np.asarray(array) for name, array in arrays.items()}
    names = [piece.name for piece in form.pieces]
    wrong = [f"{n} is missing" for n in names if n not in found and n not in form.optional]
    wrong += [f"{n} is unknown" for n in found if n not in names]
    if wrong:
        raise ValueError(f"{what}: arrays should be {', '.join(names)}; {', '.join(wrong)}")
    sizes, dtype = _sizes(form, found, what), next(iter(found.values())).dtype
    parts: dict[Part, Array] = {}
    for piece in form.pieces:
        expected, shifts = shape_of(piece, sizes), dict(piece.shifts)
        array = found.get(piece.name, np.zeros(expected, dtype))
        if array.shape != expected:
            raise ValueError(f"{what}: {piece.name} should have shape {expected}, as the others are, got {array.shape}")
        for (first, *others), value in zip(piece.blocks, _blocks(piece, array, sizes), strict=True):
            parts[first] = value
            for k, other in enumerate(others):
                parts[other] = np.full_like(value, 0.0 if k else shifts.get(first, 0.0))

    def part(name: str, gate: str) -> Array:
        return parts[name, gate] if (name, gate) in parts else np.zeros(_sides((name, gate), sizes), dtype)

    return {name: np.concatenate([part(name, gate) for gate in of_name]) for name, of_name in gates.items()}


def write(form: Form, parameters: Mapping[str, Array], gates: Gates, what: str, approximate: bool = False) -> dict[str, Array]:
    """A system's arrays from our parameters; the inverse of `read`. A parameter that is left out is zero.

    Raises: InexactError where the system has no place for numbers that are not zero, unless an `approximate` result is asked
    for, which leaves them out.
    """
    w, r = parameters["weight_ih"], parameters["weight_hh"]
    sizes = {"hidden": len(w) // len(gates["weight_ih"]), "input": w.shape[1], "state": r.shape[1]}
    parts: dict[Part, Array] = {}
    for name, of_name in gates.items():
        whole = parameters.get(name)
        for k, gate in enumerate(of_name):
            shape = _sides((name, gate), sizes)
            parts[name, gate] = np.zeros(shape, w.dtype) if whole is None else whole[k * shape[0] : (k + 1) * shape[0]]
    placed = {part for piece in form.pieces for block in piece.blocks for part in block}
    lost = [" ".join(part).strip() for part, value in parts.items() if part not in placed and np.any(value)]
    if lost and not approximate:
        raise InexactError(f"{what} has no place for {' and '.join(lost)}, and not all of its numbers are zero")
    found = {}
    for piece in form.pieces:
        shifts = dict(piece.shifts)
        blocks = [_sum(block, parts, shifts.get(block[0], 0.0)) for block in piece.blocks]
        found[piece.name] = _joined(piece, blocks, sizes)
    return found


def _sum(block: Block, parts: Mapping[Part, Array], shift: float) -> Array:
    """The last first, since that is what `read` puts a shift into."""
    total = parts[block[-1]] - parts[block[-1]].dtype.type(shift) if shift else parts[block[-1]]
    for part in block[-2::-1]:
        total = parts[part] + total
    return total


def _blocks(piece: Piece, array: Array, sizes: Mapping[str, int]) -> list[Array]:
    """Of a system's array, each block as our parameters have it."""
    if "o d" in piece.axes:
        above, below = np.split(array, [_sides(piece.blocks[0][0], sizes)[1]])
        return [*_blocks_of(piece, above, sizes, 0), *_blocks_of(piece, below, sizes, -1)]
    return _blocks_of(piece, array, sizes, 0)


def _letters(piece: Piece, sizes: Mapping[str, int], which: int) -> tuple[list[str], dict[str, int]]:
    """The letters of an array's axes, one after the other, and the size of each."""
    sides = _sides(piece.blocks[which][0], sizes)
    joins = "o d" in piece.axes
    letters = [x for axis in _axes(piece) for x in axis if not (joins and x == "o")]
    halves = 2 if "o" in piece.axes else 1
    return letters, {"o": halves, "g": len(piece.blocks) // halves, "h": sides[0], "d": sides[-1]}


def _blocks_of(piece: Piece, array: Array, sizes: Mapping[str, int], which: int) -> list[Array]:
    letters, of_letter = _letters(piece, sizes, which)
    ordered = sorted(letters, key="oghd".index)
    sides = array.reshape([of_letter[x] for x in letters]).transpose([letters.index(x) for x in ordered])
    inner = [of_letter[x] for x in ordered if x in "hd"]
    return [block.copy() for block in sides.reshape(-1, *inner)]


def _joined(piece: Piece, blocks: Sequence[Array], sizes: Mapping[str, int]) -> Array:
    """The inverse of `_blocks`."""
    if "o d" in piece.axes:
        half = len(blocks) // 2
        return np.concatenate([_joined_of(piece, blocks[:half], sizes, 0), _joined_of(piece, blocks[half:], sizes, -1)])
    return _joined_of(piece, blocks, sizes, 0).reshape(shape_of(piece, sizes))


def _joined_of(piece: Piece, blocks: Sequence[Array], sizes: Mapping[str, int], which: int) -> Array:
    letters, of_letter = _letters(piece, sizes, which)
    ordered = sorted(letters, key="oghd".index)
    stacked = np.stack(blocks).reshape([of_letter[x] for x in ordered])
    turned = stacked.transpose([ordered.index(x) for x in letters])
    if "o d" in piece.axes:
        return turned.reshape(of_letter["d"], -1)
    return np.ascontiguousarray(turned)


def _sizes(form: Form, arrays: Mapping[str, Array], what: str) -> dict[str, int]:
    """Those of the layer, from the shapes of its matrices."""
    sizes: dict[str, int] = {}
    for piece in form.pieces:
        array, first, last = arrays.get(piece.name), piece.blocks[0][0][0], piece.blocks[-1][0][0]
        if array is None or first not in ("weight_ih", "weight_hh"):
            continue
        axes = _axes(piece)
        if array.ndim != len(axes):
            raise ValueError(f"{what}: {piece.name} should have {len(axes)} axes, got shape {array.shape}")
        for axis, size in zip(axes, array.shape, strict=True):
            count = len(piece.blocks) // (2 if first != last else 1)
            if "h" in axis:
                sizes["hidden"] = size // count if "g" in axis else size
            elif axis == ["o", "d"]:
                sizes["both"] = size
            elif axis == ["d"]:
                sizes["input" if first == "weight_ih" else "state"] = size
    if "both" in sizes:
        sizes["state"] = sizes["hidden"]
        sizes["input"] = sizes.pop("both") - sizes["hidden"]
    if min(sizes.get(side, 0) for side in ("hidden", "input", "state")) < 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{what}: no layer has arrays of these shapes: {shapes}")
    return sizes
