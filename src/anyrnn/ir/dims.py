"""Sizes that are known when a layer is made, not when a cell is traced: linear forms such as `4*hidden` or `hidden + 1`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm


@dataclass(frozen=True)
class Dim:
    """A linear form over named sizes; the empty name stands for one."""

    terms: tuple[tuple[str, Fraction], ...] = ()
    _in_integers: tuple[tuple[tuple[str, int], ...], int] = field(init=False, repr=False, compare=False)
    """The terms times a whole number, and that number: a call of a new shape asks for a hundred values."""

    def __post_init__(self) -> None:  # and not later, since torch.compile cannot make a cached property
        whole = lcm(*[factor.denominator for _, factor in self.terms])
        parts = tuple([(name, factor.numerator * (whole // factor.denominator)) for name, factor in self.terms])
        object.__setattr__(self, "_in_integers", (parts, whole))

    @staticmethod
    def of(size: str | int | Dim) -> Dim:
        """From a size's name, a form as text (see `parse`), a number, or a Dim."""
        if isinstance(size, Dim):
            return size
        if isinstance(size, str):
            return Dim(((size, Fraction(1)),)) if size.isidentifier() else Dim.parse(size)
        return Dim((("", Fraction(size)),) if size else ())

    def __add__(self, other: Dim | int | str) -> Dim:
        total = dict(self.terms)
        for name, factor in Dim.of(other).terms:
            total[name] = total.get(name, Fraction(0)) + factor
        return Dim(tuple(sorted((n, f) for n, f in total.items() if f)))

    def __mul__(self, factor: int | Fraction) -> Dim:
        if not isinstance(factor, (int, Fraction)):
            return NotImplemented  # of a traced value, which makes it a number
        return Dim(tuple((n, f * factor) for n, f in self.terms) if factor else ())

    __rmul__ = __mul__

    def __sub__(self, other: Dim | int | str) -> Dim:
        return self + Dim.of(other) * -1

    def __truediv__(self, divisor: int) -> Dim:
        return self if divisor == 1 else self * Fraction(1, divisor)

    def __float__(self) -> float:
        raise TypeError(f"{self} features are counted by layers, not by cells: anyrnn.sqrt and the like make a scalar of them")

    def within(self, sizes: Mapping[str, Dim]) -> Dim:
        """The form with other forms in the place of some named sizes."""
        parts = (sizes.get(name, Dim(((name, Fraction(1)),))) * factor for name, factor in self.terms)
        return sum(parts, Dim())

    @property
    def names(self) -> set[str]:
        """The named sizes it depends on."""
        return {name for name, _ in self.terms if name}

    def evaluate(self, sizes: Mapping[str, int], least: int = 0) -> int:
        """Its value. Raises ValueError when that is not a whole number, `least` or above."""
        parts, whole = self._in_integers
        value, rest = divmod(sum([n * sizes[name] if name else n for name, n in parts]), whole)
        if rest or value < least:
            given = ", ".join(f"{n}={sizes[n]}" for n in sorted(self.names))
            found = "not a whole number" if rest or not given else value
            raise ValueError(f"the size {self} is {found}" + (f" for {given}" if given else ""))
        return value

    @staticmethod
    def parse(text: str) -> Dim:
        """Of text such as `4*hidden - 1`, as `str` writes it. Raises ValueError for other text, and for factors beyond nine
        digits.
        """
        total, rest = Dim(), _SIGN.sub(r"\1", text.strip()) if len(text) < 200 else ""
        rest = rest if rest.startswith(("+", "-")) else "+" + rest
        while rest:
            found = _TERM.match(rest)
            if found is None or int(found["divisor"] or 1) == 0:
                raise ValueError(f"a size should be written as '4*hidden + 1', got {text!r}")
            name = found["times"] or found["name"] or ""
            factor = Fraction(int(found["factor"] or 1), int(found["divisor"] or 1))
            total += Dim(((name, factor if found["sign"] == "+" else -factor),))
            rest = rest[found.end() :]
        return total

    def __str__(self) -> str:
        text = ""
        for name, factor in sorted(self.terms, key=lambda term: not term[0]):  # the number last
            sign = "-" if factor < 0 else "+" if text else ""
            term = _term(name, abs(factor))
            text = f"{text} {sign} {term}" if text else sign + term
        return text or "0"


def _term(name: str, factor: Fraction) -> str:
    if not name:
        return str(factor)
    times = name if factor.numerator == 1 else f"{factor.numerator}*{name}"
    return times if factor.denominator == 1 else f"{times}/{factor.denominator}"


_NAME = r"[^\W\d]\w*"
_SIGN = re.compile(r"\s*([-+*/])\s*")
_FACTOR = rf"(?P<factor>\d{{1,9}})(?:\*(?P<times>{_NAME}))?"
_TERM = re.compile(rf"(?P<sign>[-+])(?:{_FACTOR}|(?P<name>{_NAME}))(?:/(?P<divisor>\d{{1,9}}))?(?=[-+]|$)")


def features(size: str | int | Dim, who: str) -> Dim:
    """A number of features that a user has given. Raises TypeError and ValueError when it is none."""
    if not isinstance(size, (str, int, Dim)) or isinstance(size, bool):
        raise TypeError(f"the size of {who} should be a name or a whole number, got {size!r}")
    try:
        dim = Dim.of(size)
        if dim.names or dim.evaluate({}):
            return dim
    except ValueError:
        pass
    given = str(size) if isinstance(size, Dim) else repr(size)
    raise ValueError(f"the size of {who} should be a name, a positive number, or a sum such as 'hidden - 1', got {given}")


def solve(equations: Sequence[tuple[Dim, int]], given: Mapping[str, int]) -> dict[str, int]:
    """The named sizes, of what forms of them are. An equation tells a size when it is the only unknown one, and a whole number;
    sizes that none tells are not there.
    """
    sizes, before = dict(given), -1
    while len(sizes) > before:
        before = len(sizes)
        for dim, size in equations:
            unknown = dim.names - sizes.keys()
            if len(unknown) == 1:
                (name,) = unknown
                rest = sum([factor * sizes.get(of, 1) for of, factor in dim.terms if of != name], Fraction(0))
                value = (size - rest) / dict(dim.terms)[name]
                if value.denominator == 1:
                    sizes[name] = int(value)
    return sizes


Shape = tuple[Dim, ...]


def cover_once(ranges: Sequence[tuple[Dim, Dim]], size: Dim) -> bool:
    """Whether ranges (offset, length), in any order, make up a whole of some size and none overlaps another."""
    ends = {offset: offset + length for offset, length in ranges}
    position = Dim()
    for _ in ranges:
        if position not in ends:
            return False
        position = ends[position]
    return position == size and len(ends) == len(ranges)


def shape_text(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
