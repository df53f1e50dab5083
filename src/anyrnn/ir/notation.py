"""How names and operators are written: as text, and as LaTeX.

A written value is a Piece: its text, and how strongly the text holds together. Parentheses go where what holds together
weakly stands in what binds strongly, and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from anyrnn.ir.dims import Dim
from anyrnn.ir.ops import Op

COMPARISON, SUM, MATRIX, PRODUCT, SIGN, POWER, ATOM = range(7)
INFIX = {
    "less": (COMPARISON, SUM, SUM),
    "equal": (COMPARISON, SUM, SUM),
    "add": (SUM, SUM, MATRIX),
    "sub": (SUM, SUM, MATRIX),
    "mul": (PRODUCT, PRODUCT, SIGN),
    "div": (PRODUCT, PRODUCT, SIGN),
}
"""op: (how it holds together, what its left side must, what its right side must)"""


class Piece(NamedTuple):
    """A written value and how it holds together."""

    text: str
    level: int = ATOM


@dataclass(frozen=True)
class Name:
    """What a value is called. `when`: a state `before` the step or the `new` one, a value made `now` in the step, or a
    parameter, which is `always` the same. `version` tells values of one name apart; 0 needs no telling.
    """

    base: str
    when: Literal["before", "new", "now", "always"]
    version: int = 0


@dataclass(frozen=True)
class Rows:
    """Some rows of a parameter. `gate` is whose they are, `whole` when there are no others."""

    parameter: str
    gate: str | None
    offset: Dim
    size: Dim
    whole: bool


class Notation(Protocol):
    """What a way of writing must say."""

    def name(self, name: Name) -> str: ...
    def number(self, value: float) -> Piece: ...
    def size(self, dim: Dim) -> Piece: ...
    def rows(self, rows: Rows) -> str: ...
    def infix(self, op: Op, left: Piece, right: Piece, featurewise: bool) -> Piece: ...
    def negative(self, value: Piece) -> Piece: ...
    def square(self, value: Piece) -> Piece: ...
    def test(self, value: Piece) -> str: ...
    def call(self, op: Op, arguments: Sequence[Piece]) -> Piece: ...
    def function(self, name: str, argument: Piece) -> Piece: ...
    def product(self, matrix: Piece, heads: int, transposed: bool, vector: Piece) -> Piece: ...
    def transpose(self, matrix: Piece) -> Piece: ...
    def features(self, vector: Piece, offset: Dim, size: Dim) -> Piece: ...
    def concat(self, parts: Sequence[Piece]) -> Piece: ...
    def zeros(self, size: Dim) -> Piece: ...


SIGNS = {"less": "<", "equal": "==", "add": "+", "sub": "-", "mul": "*", "div": "/"}


class Text:
    """Plain text in the manner of Python, with `W·x` for a matrix times a vector and `c'` for the new value of c."""

    def name(self, name: Name) -> str:
        return self.plain(name.base, name.version) + ("'" if name.when == "new" else "")

    @staticmethod
    def plain(base: str, version: int) -> str:
        return f"{base}_{version}" if version else base

    def number(self, value: float) -> Piece:
        whole = math.isfinite(value) and value == int(value) and abs(value) < 1e16
        return Piece(str(int(value)) if whole else repr(value), SIGN if value < 0 else ATOM)

    def size(self, dim: Dim) -> Piece:
        return Piece(str(dim), SUM if " " in str(dim) else PRODUCT if len(dim.terms) == 1 and not str(dim).isalnum() else ATOM)

    def rows(self, rows: Rows) -> str:
        if rows.whole:
            return rows.parameter
        return f"{rows.parameter}[{rows.gate or self._range(rows.offset, rows.size)}]"

    @staticmethod
    def _range(offset: Dim, size: Dim) -> str:
        return f"{offset}:{offset + size}"

    def _within(self, piece: Piece, least: int, right: bool = False) -> str:
        return f"({piece.text})" if piece.level < least or (right and piece.text.startswith("-")) else piece.text

    def infix(self, op: Op, left: Piece, right: Piece, featurewise: bool) -> Piece:
        level, least_left, least_right = INFIX[op.name]
        sides = self._within(left, least_left), self._within(right, least_right, right=True)
        return Piece(f" {SIGNS[op.name]} ".join(sides), level)

    def negative(self, value: Piece) -> Piece:
        return Piece("-" + self._within(value, SIGN, right=True), SIGN)

    def square(self, value: Piece) -> Piece:
        return Piece(self._within(value, ATOM) + "**2", POWER)

    def test(self, value: Piece) -> str:
        return f"({value.text})"

    def call(self, op: Op, arguments: Sequence[Piece]) -> Piece:
        return Piece(f"{op.name}({', '.join(a.text for a in arguments)})")

    def function(self, name: str, argument: Piece) -> Piece:
        return Piece(f"{name}({argument.text})")

    def product(self, matrix: Piece, heads: int, transposed: bool, vector: Piece) -> Piece:
        blocks = matrix if heads == 1 else Piece(f"blockdiag({matrix.text}, {heads})")
        factor = self.transpose(blocks) if transposed else blocks
        return Piece(f"{self._within(factor, ATOM)}·{self._within(vector, ATOM)}", MATRIX)

    def transpose(self, matrix: Piece) -> Piece:
        return Piece(self._within(matrix, ATOM) + ".T")

    def features(self, vector: Piece, offset: Dim, size: Dim) -> Piece:
        return Piece(f"{self._within(vector, ATOM)}[{self._range(offset, size)}]")

    def concat(self, parts: Sequence[Piece]) -> Piece:
        return Piece(f"concat({', '.join(p.text for p in parts)})")

    def zeros(self, size: Dim) -> Piece:
        return Piece(f"zeros({size})")


GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi", "pi"),
    *("rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
}
ACCENTS = {"tilde", "hat", "bar"}
STACKED = re.compile(r"(?:(?P<scope>(?!weight_|bias_)\w+?)_)?(?P<kind>weight|bias)_(?P<key>.+)h")


class Latex:
    """LaTeX as papers have it: h_{t-1} is a state before the step, h_t the new one, W_{ix} what x adds to gate i."""

    def __init__(self, first_input: str) -> None:
        self.first_input = first_input

    # names

    def name(self, name: Name) -> str:
        time = {"before": "t-1", "new": "t", "now": "t", "always": ""}[name.when]
        symbol, *below = [part for part in name.base.split("_") if part] or ["\\_"]
        if len(symbol) > 1 and symbol.isalnum() and (digits := re.search(r"\d+$", symbol)) and digits.start():
            symbol, below = symbol[: digits.start()], [digits.group(), *below]
        written = {"weight": "W", "bias": "b"}.get(symbol) or self._word(symbol)
        if below and below[0] in ACCENTS:
            written, below = f"\\{below[0]}{{{written}}}", below[1:]
        subscript = self._subscript([*(self._word(p) for p in below), *([time] if time else [])])
        return written + subscript + (f"^{{({name.version})}}" if name.version else "")

    @staticmethod
    def _word(word: str) -> str:
        if len(word) == 1 or word.isdigit() or word == "\\_":
            return word
        if word.lower() in GREEK and word[1:].islower():
            return "\\" + word if word[0].islower() else f"\\mathrm{{{word}}}"
        return f"\\mathrm{{{word}}}"

    @staticmethod
    def _subscript(parts: Sequence[str]) -> str:
        inside = ",".join(parts)
        return "" if not parts else f"_{inside}" if len(inside) == 1 else f"_{{{inside}}}"

    def rows(self, rows: Rows) -> str:
        stacked = STACKED.fullmatch(rows.parameter)
        if stacked is None or rows.gate is None:
            whole = self.name(Name(rows.parameter, "always"))
            return whole if rows.whole else f"{{{whole}}}_{{[{self._range(rows.offset, rows.size)}]}}"
        gates, key = rows.gate.split("_"), stacked["key"]
        gate = "".join(gates) if all(len(g) == 1 for g in gates) else ",".join(map(self._word, gates))
        operand = self._word(self.first_input if key == "i" else key)
        both = gate + operand if len(gate) == len(operand) == 1 else f"{gate},{operand}"
        scope = ",".join(map(self._word, stacked["scope"].split("_"))) if stacked["scope"] else ""
        return ("W" if stacked["kind"] == "weight" else "b") + f"_{{{both}}}" + (f"^{{{scope}}}" if scope else "")

    # values

    def number(self, value: float) -> Piece:
        if not math.isfinite(value):
            return Piece("\\mathrm{NaN}") if math.isnan(value) else Piece("\\infty") if value > 0 else Piece("-\\infty", SIGN)
        if value == int(value) and abs(value) < 1e16:
            return Piece(str(int(value)), SIGN if value < 0 else ATOM)
        digits, _, exponent = repr(value).partition("e")
        if not exponent:
            return Piece(digits, SIGN if value < 0 else ATOM)
        power = f"10^{{{int(exponent)}}}"
        return Piece(power, POWER) if digits == "1" else Piece(f"{digits} \\cdot {power}", PRODUCT)

    def size(self, dim: Dim) -> Piece:
        words = re.sub(r"[A-Za-z_]\w*", lambda word: "\\mathrm{" + word[0].replace("_", "\\_") + "}", str(dim))
        return Piece(words.replace("*", " \\, "), SUM if " " in str(dim) else ATOM)

    def _range(self, offset: Dim, size: Dim) -> str:
        return f"{self.size(offset).text}:{self.size(offset + size).text}"

    @staticmethod
    def _is_tall(text: str) -> bool:
        return "\\frac" in text or "\\begin" in text

    def _within(self, piece: Piece, least: int, right: bool = False) -> str:
        if piece.level >= least and not (right and piece.text.startswith("-")):
            return piece.text
        return f"\\left({piece.text}\\right)" if self._is_tall(piece.text) else f"({piece.text})"

    def infix(self, op: Op, left: Piece, right: Piece, featurewise: bool) -> Piece:
        if op.name == "div":
            return Piece(op.latex.format(left.text, right.text))
        level, least_left, least_right = INFIX[op.name]
        template = op.latex if featurewise or op.name != "mul" else "{0} \\cdot {1}"
        return Piece(template.format(self._within(left, least_left), self._within(right, least_right, right=True)), level)

    def negative(self, value: Piece) -> Piece:
        return Piece("-" + self._within(value, SIGN, right=True), SIGN)

    def square(self, value: Piece) -> Piece:
        return Piece(f"{{{self._within(value, ATOM)}}}^2", POWER)

    def test(self, value: Piece) -> str:
        return f"[{value.text}]"

    def call(self, op: Op, arguments: Sequence[Piece]) -> Piece:
        template = op.latex
        if any(self._is_tall(a.text) for a in arguments):
            template = template.replace("(", "\\left(").replace(")", "\\right)")
        written = template.format(*(a.text for a in arguments))
        return Piece(written, SUM if "\\begin" in op.latex else ATOM)

    def function(self, name: str, argument: Piece) -> Piece:
        inside = f"\\left({argument.text}\\right)" if self._is_tall(argument.text) else f"({argument.text})"
        word = name.rstrip("0123456789")
        return Piece(f"\\operatorname{{{word}}}{self._subscript([name[len(word) :]] if name != word else [])}{inside}")

    def product(self, matrix: Piece, heads: int, transposed: bool, vector: Piece) -> Piece:
        blocks = matrix if heads == 1 else Piece(f"\\operatorname{{blockdiag}}_{{{heads}}}({matrix.text})")
        factor = self.transpose(blocks) if transposed else blocks
        return Piece(f"{self._within(factor, ATOM)} {self._within(vector, ATOM)}", MATRIX)

    def transpose(self, matrix: Piece) -> Piece:
        return Piece(f"{{{self._within(matrix, ATOM)}}}^\\top")

    def features(self, vector: Piece, offset: Dim, size: Dim) -> Piece:
        return Piece(f"{{{self._within(vector, ATOM)}}}_{{[{self._range(offset, size)}]}}")

    def concat(self, parts: Sequence[Piece]) -> Piece:
        return Piece("[" + ";\\, ".join(p.text for p in parts) + "]")

    def zeros(self, size: Dim) -> Piece:
        return Piece(f"0_{{{self.size(size).text}}}")
