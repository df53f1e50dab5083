"""Between the arrays of a system and our parameters, of one layer in one direction, as the table says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.errors import InexactError
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Parameter
from anyrnn.weights.table import Block, Form, Part, Piece

Array = npt.NDArray[Any]
Parameters = Mapping[str, Parameter]
"""Our parameters of a cell, by name."""
Sizes = Mapping[str, int]


def gates_of(parameter: Parameter) -> tuple[tuple[str, Dim], ...]:
    """The gates of a parameter with their rows, if these are alike; else all of its rows."""
    if len({rows for _, rows in parameter.gates}) == 1:
        return parameter.gates
    return (("", parameter.shape[0] if parameter.shape else Dim.of(1)),)


def ours(parameters: Parameters) -> Form:
    """Our own layout, as a system's."""
    pieces = []
    for name, parameter in parameters.items():
        blocks: tuple[Block, ...] = tuple([((name, gate),) for gate, _ in gates_of(parameter)])
        pieces.append(Piece(name, blocks, ("", "(g h)", "(g h) d")[len(parameter.shape)]))
    return Form(tuple(pieces), frozenset(name for name in parameters if name.startswith("bias")))


def read(form: Form, arrays: Mapping[str, Any], parameters: Parameters, what: str) -> tuple[dict[Part, Array], Sizes]:
    """The parts of our parameters from a system's arrays, copied, and the layer's sizes. Of biases that the system has added the
    first is the sum and the second what the system adds by itself, mostly zero.

    Args:
        form: of the system and cell.
        arrays: by the system's names.
        parameters: of our cell.
        what: the system and the cell, for errors.

    Raises: ValueError for arrays that are missing, unknown, or of shapes or dtypes that do not fit together.
    """
    found = {name: np.asarray(array) for name, array in arrays.items()}
    names = [piece.name for piece in form.pieces]
    wrong = [f"{n} is missing" for n in names if n not in found and n not in form.optional]
    wrong += [f"{n} is unknown" for n in found if n not in names]
    if wrong:
        raise ValueError(f"{what}: arrays should be {', '.join(names)}; {', '.join(wrong)}")
    dtypes = {array.dtype for array in found.values()}
    if len(dtypes) > 1 or not all(np.issubdtype(dtype, np.floating) for dtype in dtypes):
        raise ValueError(f"{what}: arrays should be of one floating-point dtype, got {', '.join(sorted(map(str, dtypes)))}")
    sizes, dtype = _sizes(form, found, parameters, what), next(iter(dtypes), np.dtype(np.float32))
    parts: dict[Part, Array] = {}
    for piece in form.pieces:
        expected, shifts = shape_of(piece, parameters, sizes), dict(piece.shifts)
        array = found.get(piece.name, np.zeros(expected, dtype))
        if array.shape != expected:
            told = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ValueError(f"{what}: {piece.name} should have shape {expected} with {told}, got {array.shape}")
        for (first, *others), value in zip(piece.blocks, _blocks(piece, array, parameters, sizes), strict=True):
            parts[first] = value
            for k, other in enumerate(others):
                parts[other] = np.full_like(value, 0.0 if k else shifts.get(first, 0.0))
    for name, parameter in parameters.items():
        for gate, _ in gates_of(parameter):
            parts.setdefault((name, gate), np.zeros(_sides((name, gate), parameters, sizes), dtype))
    return parts, sizes


def write(
    form: Form, parts: Mapping[Part, Array], parameters: Parameters, sizes: Sizes, what: str, approximate: bool = False
) -> dict[str, Array]:
    """A system's arrays from the parts of our parameters; the inverse of `read`.

    Raises: InexactError where the system has no place for numbers that are not zero, unless an `approximate` result is asked
    for, which leaves them out.
    """
    placed = {part for piece in form.pieces for block in piece.blocks for part in block}
    lost = [" ".join(part).strip() for part, value in parts.items() if part not in placed and np.any(value)]
    if lost and not approximate:
        told = f"{what} has no place for {' and '.join(lost)}, and not all of its numbers are zero"
        raise InexactError(f"{told}; approximate=True leaves it out")
    found = {}
    for piece in form.pieces:
        shifts = dict(piece.shifts)
        blocks = [_sum(block, parts, shifts.get(block[0], 0.0)) for block in piece.blocks]
        found[piece.name] = _joined(piece, blocks, parameters, sizes)
    return found


def _sum(block: Block, parts: Mapping[Part, Array], shift: float) -> Array:
    """The last first, since that is what `read` puts a shift into."""
    total = parts[block[-1]] - parts[block[-1]].dtype.type(shift) if shift else parts[block[-1]]
    for part in block[-2::-1]:
        total = parts[part] + total
    return total


# shapes


def _axes(piece: Piece) -> list[list[str]]:
    """The letters of each axis."""
    return [(group or letter).split() for group, letter in re.findall(r"\(([^)]*)\)|(\w)", piece.axes)]


def _dims(part: Part, parameters: Parameters) -> tuple[Dim, ...]:
    """The shape of a part: (h, d), (h,) or ()."""
    parameter = parameters[part[0]]
    return (dict(gates_of(parameter))[part[1]], *parameter.shape[1:]) if parameter.shape else ()


def _sides(part: Part, parameters: Parameters, sizes: Sizes) -> tuple[int, ...]:
    return tuple(dim.evaluate(sizes) for dim in _dims(part, parameters))


def _joins(piece: Piece) -> bool:
    """Whether the columns of the two halves of the blocks are joined."""
    return ["o", "d"] in _axes(piece)


def _counts(piece: Piece) -> dict[str, int]:
    """How many blocks there are, in halves or at once."""
    halves = 2 if "o" in piece.axes else 1
    return {"o": halves, "g": len(piece.blocks) // halves}


def shape_of(piece: Piece, parameters: Parameters, sizes: Sizes) -> tuple[int, ...]:
    """Of an array of a system."""
    first, last = (_sides(block[0], parameters, sizes) for block in (piece.blocks[0], piece.blocks[-1]))
    letters = {**_counts(piece), **dict(zip("hd", first, strict=False))}
    joined = first[-1] + last[-1] if _joins(piece) else 0
    return tuple([joined if axis == ["o", "d"] else int(np.prod([letters[x] for x in axis])) for axis in _axes(piece)])


def _sizes(form: Form, arrays: Mapping[str, Array], parameters: Parameters, what: str) -> Sizes:
    """Those of the layer, from the shapes of its arrays, the first that tells one."""
    sizes: dict[str, int] = {}

    def learn(dim: Dim, size: int) -> None:
        (name, factor), *others = dim.terms or (("", 1),)
        if name and name not in sizes and not others and size % factor == 0:
            sizes[name] = int(size / factor)

    for piece in form.pieces:
        array, axes = arrays.get(piece.name), _axes(piece)
        if array is None:
            continue
        if array.ndim != len(axes):
            raise ValueError(f"{what}: {piece.name} should have {len(axes)} axes, got shape {array.shape}")
        sides, counts = dict(zip("hd", _dims(piece.blocks[0][0], parameters), strict=False)), _counts(piece)
        for axis, size in sorted(zip(axes, array.shape, strict=True), key=lambda given: "h" not in given[0]):
            if axis == ["o", "d"]:  # the second are those of the state
                last = _dims(piece.blocks[-1][0], parameters)[-1]
                learn(sides["d"], size - last.evaluate(sizes))
                continue
            side = next((letter for letter in axis if letter in "hd"), None)
            if side is not None:
                learn(sides[side], size // int(np.prod([counts[x] for x in axis if x != side])))
    missing = {name for parameter in parameters.values() for dim in parameter.shape for name in dim.names} - sizes.keys()
    if missing or min(sizes.values(), default=1) < 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{what}: no layer has arrays of these shapes: {shapes}")
    return sizes


# blocks


def _blocks(piece: Piece, array: Array, parameters: Parameters, sizes: Sizes) -> list[Array]:
    """Of a system's array, each block as our parameters have it."""
    if _joins(piece):
        above, below = np.split(array, [_sides(piece.blocks[0][0], parameters, sizes)[-1]])
        return [*_apart(piece, above, 0, parameters, sizes), *_apart(piece, below, -1, parameters, sizes)]
    return _apart(piece, array, 0, parameters, sizes)


def _letters(piece: Piece, which: int, parameters: Parameters, sizes: Sizes) -> tuple[list[str], dict[str, int]]:
    """The letters of an array's axes, one after the other, and the size of each; of one half of its blocks if they are joined."""
    letters = [x for axis in _axes(piece) for x in axis if not (_joins(piece) and x == "o")]
    sides = _sides(piece.blocks[which][0], parameters, sizes)
    return letters, {**_counts(piece), **dict(zip("hd", sides, strict=False))}


def _apart(piece: Piece, array: Array, which: int, parameters: Parameters, sizes: Sizes) -> list[Array]:
    letters, of_letter = _letters(piece, which, parameters, sizes)
    ordered = sorted(letters, key="oghd".index)
    turned = array.reshape([of_letter[x] for x in letters]).transpose([letters.index(x) for x in ordered])
    return [block.copy() for block in turned.reshape(-1, *[of_letter[x] for x in ordered if x in "hd"])]


def _joined(piece: Piece, blocks: Sequence[Array], parameters: Parameters, sizes: Sizes) -> Array:
    """The inverse of `_blocks`."""
    if _joins(piece):
        half = len(blocks) // 2
        above = _together(piece, blocks[:half], 0, parameters, sizes)
        below = _together(piece, blocks[half:], -1, parameters, sizes)
        return np.concatenate([above.reshape(len(above), -1), below.reshape(len(below), -1)])
    return _together(piece, blocks, 0, parameters, sizes).reshape(shape_of(piece, parameters, sizes))


def _together(piece: Piece, blocks: Sequence[Array], which: int, parameters: Parameters, sizes: Sizes) -> Array:
    letters, of_letter = _letters(piece, which, parameters, sizes)
    ordered = sorted(letters, key="oghd".index)
    stacked = np.stack(blocks).reshape([of_letter[x] for x in ordered])
    return np.ascontiguousarray(stacked.transpose([ordered.index(x) for x in letters]))
