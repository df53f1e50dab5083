"""A value of a graph under construction, with the operators of Python. Cells and derivative rules are written with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from anyrnn.errors import CellError
from anyrnn.ir.dims import Shape, shape_text

if TYPE_CHECKING:
    from anyrnn.ir.graph import Builder


FROM_NUMPY = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "less": "less", "greater": "less"}
"""Our ops by the names of NumPy's for the operators."""


class Symbol:
    """A traced value: a number for each feature of each sample, or a parameter."""

    __slots__ = ("builder", "index")

    def __init__(self, builder: Builder, index: int) -> None:
        self.builder = builder
        self.index = index

    @property
    def shape(self) -> Shape:
        return self.builder.nodes[self.index].shape

    @property
    def label(self) -> str:
        """How messages call it."""
        return self.builder.label(self.index)

    @property
    def per_sample(self) -> bool:
        return self.builder.nodes[self.index].per_sample

    def __repr__(self) -> str:
        return f"<{self.label} {shape_text(self.shape)}>"

    def __add__(self, other: Any) -> Symbol:
        return self.builder.apply("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self.builder.apply("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self.builder.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self.builder.apply("sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self.builder.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self.builder.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self.builder.apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self.builder.apply("div", other, self)

    def __neg__(self) -> Symbol:
        return self.builder.apply("neg", self)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return self.builder.apply("abs", self)

    def __pow__(self, exponent: Any) -> Symbol:
        if isinstance(exponent, Symbol):
            self._refuse_operator("a traced value as an exponent", "exp(b * log(a)) where a is positive")
        if exponent == 2:
            return self * self
        if exponent == 0.5:
            return self.builder.apply("sqrt", self)
        raise CellError(self.builder.located(f"the power {exponent!r} is not in the language; 2 and 0.5 are, and products"))

    def __rpow__(self, base: Any) -> NoReturn:
        self._refuse_operator("a traced value as an exponent", "exp(number * value), the number being math.log(base)")

    def __mod__(self, other: Any) -> NoReturn:
        self._refuse_operator("a remainder", "a - floor(a / b) * b")

    __rmod__ = __mod__

    def __floordiv__(self, other: Any) -> NoReturn:
        self._refuse_operator("//", "floor(a / b)")

    __rfloordiv__ = __floordiv__

    def __and__(self, other: Any) -> NoReturn:
        self._refuse_operator("&, |, ^ or ~ of tests", "where inside where")

    __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __and__

    def __invert__(self) -> NoReturn:
        self.__and__(self)

    def __lt__(self, other: Any) -> Symbol:
        return self.builder.apply("less", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return self.builder.apply("less", other, self)

    def __ge__(self, other: Any) -> NoReturn:
        self._refuse(
            "a traced value cannot be compared by >= or <=", "use > or <, and equal(a, b), as tests of where(test, a, b)"
        )

    __le__ = __ge__

    def __eq__(self, other: object) -> NoReturn:
        self._refuse("a traced value cannot be compared by == or !=", "use equal(a, b) as the test of where(test, a, b)")

    __hash__ = object.__hash__

    def __matmul__(self, other: Any) -> Symbol:
        matrix = self.builder.number(self, "the left side of @")
        operand = self.builder.number(self.builder.lift(other, "the right side of @"), "the right side of @")
        return self.builder.affine([(matrix, operand, False, 1)])

    @property
    def T(self) -> Symbol:
        """The transpose of a parameter matrix."""
        if len(self.shape) != 2:
            raise CellError(
                self.builder.located(f"{self.label} {shape_text(self.shape)} is not a matrix: .T is for parameter matrices")
            )
        return self.builder.transpose(self.builder.number(self, "a transposed matrix"))

    # what a traced value cannot do, said where it is tried

    def _refuse_operator(self, what: str, instead: str) -> NoReturn:
        raise CellError(self.builder.located(f"{what} is not in the language; use {instead}"))

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise CellError(self.builder.located(f"{what}: {self.label} has no number until the cell runs; {instead}"))

    def __bool__(self) -> bool:
        instead = "where(test, a, b), which may stand within another one (for `and`, `or` and a < b < c), maximum and minimum"
        self._refuse("a cell cannot branch on a traced value", f"use {instead}")

    def __float__(self) -> float:
        self._refuse("a traced value cannot become a Python number", "use the functions of anyrnn, such as anyrnn.floor")

    def __round__(self, digits: Any = None) -> NoReturn:
        self._refuse_operator("round", "floor(value + 0.5)")

    def __index__(self) -> int:  # noqa: PLE0305 - it never does
        self._refuse("a traced value cannot be an index", "choose by where(test, a, b)")

    def __len__(self) -> int:  # noqa: PLE0303 - likewise
        self._refuse_operator("len", "value.shape[0], the number of features as a scalar, or a number of the cell's own")

    def __format__(self, form: str) -> str:
        if form:
            self._refuse("a traced value cannot be written as a number", "call the layer, with return_states='all' for states")
        return repr(self)

    def __int__(self) -> int:
        return int(float(self))

    def __iter__(self) -> NoReturn:
        self._refuse("a traced value cannot be unpacked or looped over", "use split(value, parts) for stacked features")

    def __getitem__(self, key: Any) -> NoReturn:
        self._refuse("a traced value cannot be indexed", "use split(value, parts) for stacked features")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse("a traced value cannot be changed in place", "make a new one, by where(test, a, b) or concat")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Symbol:
        """A NumPy number before an operator asks like this."""
        op = FROM_NUMPY.get(ufunc.__name__)
        if op is None or method != "__call__" or kwargs:
            self._refuse_foreign("numpy", ufunc)
        return self.builder.apply(op, *(inputs[::-1] if ufunc.__name__ == "greater" else inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        self._refuse_foreign("numpy", function)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        given = [*args, *(kwargs or {}).values()]
        flat = [a for some in given for a in (some if isinstance(some, (list, tuple)) else [some])]
        traced = next(a for a in flat if isinstance(a, Symbol))
        for other in (a for a in flat if type(a).__module__.startswith("torch")):
            traced.builder.lift(other, f"what stands beside {traced.label}")  # which refuses it
        traced._refuse_foreign("torch", function)

    def __getattr__(self, name: str) -> Any:
        import anyrnn

        if name.startswith("_"):
            raise AttributeError(name)
        instead = f"anyrnn.{name}(value)" if hasattr(anyrnn, name) else "the functions and operators of anyrnn"
        raise CellError(self.builder.located(f"a traced value has no .{name}; use {instead}"))

    def _refuse_foreign(self, library: str, function: Any) -> NoReturn:
        import anyrnn

        name = getattr(function, "__name__", str(function))
        is_same = hasattr(anyrnn, name) and name != "norm"  # which is the length of a vector elsewhere
        instead = f"anyrnn.{name}" if is_same else "the functions and operators of anyrnn"
        self._refuse(f"{library}.{name} is not an op of a cell", f"use {instead}")
