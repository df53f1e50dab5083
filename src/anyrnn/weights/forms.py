"""Between the arrays of a system and the parts of our parameters, for a cell or a network of layers and directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod

import numpy as np

from anyrnn.errors import InexactError
from anyrnn.ir.dims import Dim, solve
from anyrnn.ir.graph import Graph
from anyrnn.sequence.network import check_size
from anyrnn.weights.table import NETWORKS, Flat, Form, Named, Stacked
from anyrnn.weights.tree import Array, Concat, Part, Parts, Shapes, Stack, Tree, Vector, make, parts_of, renamed, shape_of, take

Suffixes = Sequence[Sequence[str]]
"""What our parameters carry behind their names, by layer and direction."""
CELL: Suffixes = [[""]]
Sizes = Mapping[str, int]


def suffixes_of(layers: int, bidirectional: bool) -> Suffixes:
    """Of a network."""
    return [[f"_l{layer}", f"_l{layer}_reverse"][: 1 + bidirectional] for layer in range(layers)]


def ours(graph: Graph) -> Form:
    """Our own layout of a cell, as a system's."""
    arrays: dict[str, Tree] = {}
    for p in graph.parameters:
        arrays[p.name] = Concat(tuple([Part(p.name, gate) for gate, _ in p.gates])) if p.gates else Part(p.name)
    return Form(arrays, tuple([(name,) for name in arrays if name.startswith("bias")]))


def shapes_of(graph: Graph, suffixes: Suffixes) -> dict[Part, tuple[Dim, ...]]:
    """Of all parts of our parameters, in sizes. Layers above the first have the outputs of the one below as input."""
    first: dict[Part, tuple[Dim, ...]] = {}
    for p in graph.parameters:
        for gate, rows in p.gates or [("", dim) for dim in p.shape[:1]]:
            first[Part(p.name, gate)] = (rows, *p.shape[1:])
        if not p.shape:
            first[Part(p.name)] = ()
    (of_input,) = graph.inputs[0][1][0].names
    more = graph.nodes[graph.output("y")].shape[0] * len(suffixes[0]) - of_input
    above = first if of_input == "hidden" else {part: tuple([_with(d, of_input, more) for d in s]) for part, s in first.items()}
    return {
        Part(part.parameter + suffix, part.gate): shape
        for layer, of_layer in enumerate(suffixes)
        for suffix in of_layer
        for part, shape in (above if layer else first).items()
    }


def _with(dim: Dim, size: str, more: Dim) -> Dim:
    """A dimension where a size is larger."""
    return dim + more * dict(dim.terms).get(size, Fraction(0))


def check_sizes(graph: Graph, sizes: Sizes, what: str) -> None:
    """Raises: TypeError, ValueError for sizes that are none of the cell's."""
    names = sorted({name for p in graph.parameters for dim in p.shape for name in dim.names})
    if unknown := sizes.keys() - set(names):
        raise ValueError(f"{what}: sizes should be {', '.join(names)}, got {', '.join(map(str, unknown))}")
    for name, size in sizes.items():
        check_size(f"{what}: size {name}", size)


# networks


def check_layers(
    system: str, graph: Graph, arrays: Mapping[str, Array], layers: int, bidirectional: bool, sizes: Sizes, what: str
) -> None:
    """That a system's arrays can be of so many layers, before anything is built of each.

    Raises: TypeError, ValueError; of flat vectors also where not all sizes are given.
    """
    check_size(f"{what}: layers", layers)
    match NETWORKS[system]:
        case Flat():
            above = {p: shape for p, shape in shapes_of(graph, suffixes_of(2, bidirectional)).items() if "_l1" in p.parameter}
            names = sorted({name for shape in above.values() for dim in shape for name in dim.names} | {"input"})
            if missing := [name for name in names if name not in sizes]:
                raise ValueError(f"{what}: a vector does not tell sizes; give sizes with {', '.join(missing)}")
            numbers = sum([prod([dim.evaluate(sizes) for dim in shape]) for shape in above.values()])
            most = 1 + sum([array.size for array in arrays.values()]) // numbers
        case Stacked(layers=True):
            most = max([array.shape[0] for array in arrays.values() if array.ndim], default=0)
        case _:
            most = len(arrays)
    if layers > most:
        raise ValueError(f"{what}: these are too few arrays for {layers} layers")


def network_form(system: str, form: Form, suffixes: Suffixes, shapes: Shapes) -> Form:
    """The form of a network of which `form` is each layer and direction. Raises: ValueError if the system has none such."""
    kind = NETWORKS[system]
    match kind:
        case Flat(name):
            trees = [renamed(tree, suffix) for of_layer in suffixes for suffix in of_layer for tree in form.arrays.values()]
            trees.sort(key=lambda tree: len(shape_of(tree, shapes)) < 2)
            return Form({name: Concat(tuple(map(Vector, trees)))}, flat=True)
        case Stacked():
            placed = list(_stacked(kind, form, suffixes))
        case Named():
            if kind.both is None and len(suffixes[0]) == 2:
                raise ValueError(f"{system} has no layers of two directions; convert each direction by itself, as one layer")
            placed = list(_named(kind, form, suffixes))
    optional = [tuple([name for of, name, _ in placed if of in group]) for group in form.optional]
    return Form({name: tree for _, name, tree in placed}, tuple(optional))


def _named(kind: Named, form: Form, suffixes: Suffixes) -> Iterator[tuple[str, str, Tree]]:
    """Of each array, its name in the cell, its name, and the tree."""
    for layer, of_layer in enumerate(suffixes):
        for way, suffix in enumerate(of_layer):
            for of, tree in form.arrays.items():
                names = kind.names(form.scope + of, layer, len(suffixes), len(of_layer) == 2)
                yield of, names[way], renamed(tree, suffix)


def _stacked(kind: Stacked, form: Form, suffixes: Suffixes) -> Iterator[tuple[str, str, Tree]]:
    for of, tree in form.arrays.items():
        layers = [Stack(tuple([renamed(tree, suffix) for suffix in of_layer])) for of_layer in suffixes]
        if kind.layers:
            yield of, of, Stack(tuple(layers))
        else:
            yield from [(of, f"{layer}/{of}" if len(layers) > 1 else of, stack) for layer, stack in enumerate(layers)]


# reading


def read(
    form: Form, arrays: Mapping[str, Array], shapes: Shapes, sizes: Sizes, what: str, forget_bias: float
) -> tuple[dict[Part, Array], Shapes]:
    """The parts that a system's arrays hold, copied, and the shapes of all in numbers.

    Args:
        form: of the system.
        arrays: by the system's names.
        shapes: of all parts, in sizes.
        sizes: those that are known; the others follow from the arrays' shapes.
        what: the system and the cell, for errors.
        forget_bias: what the system adds by itself.

    Raises: ValueError for arrays that are missing, unknown, or of shapes or dtypes that do not fit together.
    """
    left_out = {name for group in form.optional if not arrays.keys() & set(group) for name in group}
    wrong = [f"{name} is missing" for name in form.arrays if name not in arrays and name not in left_out]
    wrong += [f"{name} is unknown" for name in arrays if name not in form.arrays]
    if wrong:
        raise ValueError(f"{what}: arrays should be {_listed(form.arrays)}; {_listed(wrong)}")
    dtypes = {array.dtype for array in arrays.values()}
    if len(dtypes) > 1 or not all(np.issubdtype(dtype, np.floating) for dtype in dtypes):
        raise ValueError(f"{what}: arrays should be of one floating-point dtype, got {', '.join(sorted(map(str, dtypes)))}")
    known = _solved(form, arrays, shapes, sizes, what)
    try:
        numbers = {part: tuple([dim.evaluate(known) for dim in shape]) for part, shape in shapes.items()}
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    for name, array in arrays.items():
        expected = _shape(form, name, numbers, what)
        if array.shape != expected:
            told = ", ".join(f"{of} {size}" for of, size in known.items())
            raise ValueError(f"{what}: {name} should have shape {expected} with {told}, got {array.shape}")
    parts: dict[Part, Array] = {}
    for name, array in arrays.items():
        parts.update(take(form.arrays[name], array, numbers, forget_bias))
    return parts, numbers


MOST_LISTED = 12
"""Of names in a message; of more, how many there are."""


def _listed(texts: Mapping[str, Tree] | Sequence[str]) -> str:
    shown = list(texts)
    return ", ".join(shown[:MOST_LISTED]) + (f" and {len(shown) - MOST_LISTED} more" if len(shown) > MOST_LISTED else "")


def _shape(form: Form, name: str, numbers: Shapes, what: str) -> tuple[int, ...]:
    try:
        return shape_of(form.arrays[name], numbers)
    except ValueError as error:
        raise ValueError(f"{what}: {name}: {error}") from None


def _solved(form: Form, arrays: Mapping[str, Array], shapes: Shapes, given: Sizes, what: str) -> dict[str, int]:
    """All sizes, from the shapes of arrays, of which each axis is an equation."""
    names = {name for shape in shapes.values() for dim in shape for name in dim.names}
    equations = [] if form.flat else list(_equations(form, arrays, shapes, what))
    sizes = solve(equations, given)
    if names - sizes.keys() or min(sizes.values(), default=1) < 1:
        got = _listed([f"{name} {array.shape}" for name, array in arrays.items()])
        raise ValueError(f"{what}: no layer has arrays of these shapes: {got}")
    return sizes


def _equations(form: Form, arrays: Mapping[str, Array], shapes: Shapes, what: str) -> Iterator[tuple[Dim, int]]:
    """Of each axis, what it should be and what it is."""
    for name, array in arrays.items():
        shape = shape_of(form.arrays[name], shapes)
        if array.ndim != len(shape):
            raise ValueError(f"{what}: {name} should have {len(shape)} axes, got shape {array.shape}")
        yield from [(Dim.of(dim), size) for dim, size in zip(shape, array.shape, strict=True)]


# writing


def write(form: Form, parts: Parts, numbers: Shapes, what: str, forget_bias: float, approximate: bool) -> dict[str, Array]:
    """A system's arrays from the parts of our parameters; the inverse of `read`. Those that may be left out are, where they would
    have none of the parts.

    Raises: InexactError where the system has no place for numbers that are not zero, unless an `approximate` result is asked
    for, which leaves them out; ValueError where it cannot have arrays of these shapes.
    """
    placed = {name: set(parts_of(tree)) for name, tree in form.arrays.items()}
    all_placed = {part for of_array in placed.values() for part in of_array}
    lost = [str(part) for part, value in parts.items() if part not in all_placed and np.any(value)]
    if lost and not approximate:
        told = f"{what} has no place for {_listed(lost)}, and not all of its numbers are zero"
        raise InexactError(f"{told}; approximate=True leaves it out")
    dtype = next((value.dtype for value in parts.values()), np.dtype(np.float32))

    def of_part(part: Part) -> Array:
        return parts[part] if part in parts else np.zeros(numbers[part], dtype)

    left_out = {name for group in form.optional if not any(placed[n] & parts.keys() for n in group) for name in group}
    names = [name for name in form.arrays if name not in left_out]
    for name in names:
        _shape(form, name, numbers, what)
    return {name: np.asarray(make(form.arrays[name], of_part, forget_bias), order="C") for name in names}
