"""Nodes of an ONNX graph while they are written: names, constants, bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.errors import MissingExtraError

Array = npt.NDArray[Any]
OPSET = 18
"""The version of ONNX's operators that models have unless another one is asked for."""
ELEMENT_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float64": 11}
"""ONNX's numbers of them."""


def library() -> Any:
    """The package onnx. Raises: MissingExtraError without it."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError('ONNX models are written with the package onnx: pip install "anyrnn[onnx]"') from error
    return onnx


@dataclass
class Writer:
    """Collects nodes; values are known by their names. What is made of constants alone is computed at once.

    Args:
        dtype: of the numbers, float32 or float64.
        prefix: goes before all names that the writer makes.
        opset: the version of ONNX's operators.
        nodes: where nodes go now: those of the graph, or of a body.
    """

    dtype: np.dtype[Any]
    prefix: str = ""
    opset: int = OPSET
    nodes: list[Any] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    """The constants by name, of which not all are read in the end."""
    _taken: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _onnx: Any = field(default_factory=library)

    def name(self, hint: str) -> str:
        """A name that nothing has yet."""
        hint = self.prefix + hint
        name = hint
        while name in self._taken:
            self._counts[hint] = self._counts.get(hint, 0) + 1
            name = f"{hint}_{self._counts[hint]}"
        self._taken.add(name)
        return name

    def constant(self, value: Any, hint: str = "constant", dtype: Any = None) -> str:
        """An array, or a number of the graph's dtype."""
        array = np.asarray(value, dtype or (self.dtype if isinstance(value, float) else None))
        key = (array.dtype.name, array.shape, array.tobytes()) if array.size <= 16 else (hint, len(self.arrays))
        if key not in self._known:
            self._known[key] = name = self.name(hint)
            self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return self._known[key]

    def integers(self, *numbers: int) -> str:
        """A vector, such as a shape."""
        return self.constant(numbers, "integers", np.int64)

    def node(self, op: str, *inputs: str, hint: str = "", **attributes: Any) -> str:
        """A node's only output."""
        return self.several(op, inputs, [hint or op.lower()], **attributes)[0]

    def several(self, op: str, inputs: Sequence[str], hints: Sequence[str], **attributes: Any) -> list[str]:
        """A node's outputs. An empty name stands for an input that is left out."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        names = [self.name(hint) for hint in hints]
        self.nodes.append(self._onnx.helper.make_node(op, list(inputs), names, name=self.name(f"node_{names[0]}"), **attributes))
        return names

    @contextmanager
    def body(self) -> Iterator[list[Any]]:
        """Nodes that are written inside go to a list of their own."""
        outside, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outside

    def port(self, name: str, dtype: str, dims: Sequence[int | str | None]) -> Any:
        """An input or output of a graph."""
        return self._onnx.helper.make_tensor_value_info(name, ELEMENT_TYPES[dtype], list(dims))

    def graph(
        self, nodes: Sequence[Any], name: str, inputs: Sequence[Any], outputs: Sequence[Any], constants: Sequence[str]
    ) -> Any:
        tensors = [self._onnx.numpy_helper.from_array(self.arrays[c], c) for c in constants]
        return self._onnx.helper.make_graph(list(nodes), name, list(inputs), list(outputs), tensors)

    def read(self, nodes: Sequence[Any] | None = None) -> list[str]:
        """The constants that nodes read, those in bodies too."""
        found: dict[str, None] = {}
        for node in self.nodes if nodes is None else nodes:
            found |= dict.fromkeys(name for name in node.input if name in self.arrays)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    found |= dict.fromkeys(self.read(attribute.g.node))
        return list(found)

    # of constants at once

    def _made(self, values: Sequence[str], compute: Callable[..., Array], write: Callable[[], str], hint: str) -> str:
        if all(value in self.arrays for value in values):
            return self.constant(compute(*(self.arrays[value] for value in values)), hint)
        return write()

    def rows(self, value: str, offset: int, size: int, hint: str = "rows") -> str:
        """`size` of the first axis."""
        bounds = self.integers(offset), self.integers(offset + size), self.integers(0)
        cut = slice(offset, offset + size)
        return self._made([value], lambda a: a[cut], lambda: self.node("Slice", value, *bounds, hint=hint), hint)

    def reshaped(self, value: str, *sides: int, hint: str = "reshaped") -> str:
        """A side of 0 stays as it is."""

        def computed(array: Array) -> Array:
            return array.reshape([side or array.shape[k] for k, side in enumerate(sides)])

        return self._made([value], computed, lambda: self.node("Reshape", value, self.integers(*sides), hint=hint), hint)

    def joined(self, values: Sequence[str], axis: int = 0, hint: str = "joined") -> str:
        if len(values) == 1:
            return values[0]
        return self._made(
            values, lambda *a: np.concatenate(a, axis), lambda: self.node("Concat", *values, hint=hint, axis=axis), hint
        )

    def total(self, values: Sequence[str], hint: str = "sum") -> str:
        """Their sum."""

        def written() -> str:
            return reduce(lambda a, b: self.node("Add", a, b, hint=hint), values)

        return values[0] if len(values) == 1 else self._made(values, lambda *a: reduce(add, a), written, hint)

    def turned(self, value: str, *order: int, hint: str = "turned") -> str:
        """With its axes in another order."""
        return self._made(
            [value], lambda a: a.transpose(order), lambda: self.node("Transpose", value, hint=hint, perm=list(order)), hint
        )

    def summed(self, value: str, axis: int, hint: str = "sum") -> str:
        """Over an axis, which stays."""
        return self.node("ReduceSum", value, self.integers(axis), hint=hint, keepdims=1)

    def largest(self, value: str, axis: int) -> str:
        """Over an axis, which stays."""
        if self.opset < 18:
            return self.node("ReduceMax", value, hint="largest", axes=[axis], keepdims=1)
        return self.node("ReduceMax", value, self.integers(axis), hint="largest", keepdims=1)

    def cast(self, value: str) -> str:
        """To the graph's dtype."""
        return self.node("Cast", value, hint="number", to=ELEMENT_TYPES[self.dtype.name])

    def softplus(self, x: str, hint: str = "softplus") -> str:
        """log(1 + exp(x)); of float64 by arithmetic, as onnxruntime has no such node for it."""
        if self.dtype != np.float64:
            return self.node("Softplus", x, hint=hint)
        small = self.node("Exp", self.node("Neg", self.node("Abs", x)))
        whole = self.node("Add", self.constant(1.0), small)
        rest = self.node("Sub", whole, self.constant(1.0), hint="rest")  # what the sum has of the small one: no digit is lost
        exact = self.node("Div", self.node("Mul", self.node("Log", whole), small), rest, hint="exact")
        log = self.node("Where", self.node("Equal", rest, self.constant(0.0)), small, exact, hint="log")
        return self.node("Add", self.node("Max", x, self.constant(0.0)), log, hint=hint)

    def expanded(self, array: Array, like: str, hint: str) -> str:
        """An array whose second side, of length one, is as long as that of another value."""
        count = self.node("Shape", like, hint="count", start=1, end=2)
        sides = [self.integers(1)] * array.ndim
        sides[1] = count
        return self.node("Expand", self.constant(array, hint), self.joined(sides), hint=hint)
