"""Sizes that are known when a layer is made, not when a cell is traced: linear forms such as `4*hidden` or `hidden + 1`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm


@dataclass(frozen=True)
class Dim:
    """A linear form over named sizes; the empty name stands for one."""

    terms: tuple[tuple[str, Fraction], ...] = ()

    @staticmethod
    def of(size: str | int | Dim) -> Dim:
        """From a size's name, a number, or a Dim."""
        if isinstance(size, Dim):
            return size
        name, factor = (size, Fraction(1)) if isinstance(size, str) else ("", Fraction(size))
        return Dim(((name, factor),) if factor else ())

    def __add__(self, other: Dim | int | str) -> Dim:
        total = dict(self.terms)
        for name, factor in Dim.of(other).terms:
            total[name] = total.get(name, Fraction(0)) + factor
        return Dim(tuple(sorted((n, f) for n, f in total.items() if f)))

    def __mul__(self, factor: int | Fraction) -> Dim:
        return Dim(tuple((n, f * factor) for n, f in self.terms) if factor else ())

    __rmul__ = __mul__

    def __sub__(self, other: Dim | int | str) -> Dim:
        return self + Dim.of(other) * -1

    def __truediv__(self, divisor: int) -> Dim:
        return self * Fraction(1, divisor)

    @property
    def names(self) -> set[str]:
        """The named sizes it depends on."""
        return {name for name, _ in self.terms if name}

    @cached_property
    def _in_integers(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The terms times a whole number, and that number: a call of a new shape asks for a hundred values."""
        whole = lcm(*[factor.denominator for _, factor in self.terms])
        return tuple((name, factor.numerator * (whole // factor.denominator)) for name, factor in self.terms), whole

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Its value. Raises ValueError when that is not a whole number, 0 or above."""
        parts, whole = self._in_integers
        value, rest = divmod(sum([n * sizes[name] if name else n for name, n in parts]), whole)
        if rest or value < 0:
            given = ", ".join(f"{n}={sizes[n]}" for n in sorted(self.names))
            raise ValueError(f"the size {self} is not a whole number" + (f" for {given}" if given else ""))
        return value

    @staticmethod
    def parse(text: str) -> Dim:
        """What `str` wrote. Raises ValueError for other text, and for factors beyond nine digits."""
        total = Dim()
        for part in text.split(" + "):
            found = _TERM.fullmatch(part) if len(text) < 200 else None
            if found is None or int(found["divisor"] or 1) == 0:
                raise ValueError(f"a size should be written as '4*hidden + 1', got {text!r}")
            name = found["times"] or found["name"] or ""
            total += Dim(((name, Fraction(int(found["factor"] or 1), int(found["divisor"] or 1))),))
        return total

    def __str__(self) -> str:
        def one(name: str, factor: Fraction) -> str:
            if not name:
                return str(factor)
            times = name if factor.numerator == 1 else f"{factor.numerator}*{name}"
            return times if factor.denominator == 1 else f"{times}/{factor.denominator}"

        return " + ".join(one(n, f) for n, f in self.terms) or "0"


_NAME = r"[^\W\d]\w*"
_TERM = re.compile(rf"(?:(?P<factor>-?\d{{1,9}})(?:\*(?P<times>{_NAME}))?|(?P<name>{_NAME}))(?:/(?P<divisor>\d{{1,9}}))?")


def features(size: str | int | Dim, who: str) -> Dim:
    """A number of features that a user has given. Raises TypeError and ValueError when it is none."""
    if not isinstance(size, (str, int, Dim)) or isinstance(size, bool):
        raise TypeError(f"the size of {who} should be a name or a whole number, got {size!r}")
    if (isinstance(size, str) and not size.isidentifier()) or (isinstance(size, int) and size < 1):
        raise ValueError(f"the size of {who} should be a name or a positive number, got {size!r}")
    return Dim.of(size)


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
        position = ends.get(position, position)
    return position == size and len(ends) == len(ranges)


def shape_text(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
