"""What ONNX's recurrent operators compute, as cells: with other functions than the usual ones, a clip, peepholes, coupled gates.

Source: the pages of the operators RNN, GRU and LSTM, and of the operators whose defaults the functions have. Where the text
leaves open what is clipped, as with the last function of an LSTM, onnxruntime is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anyrnn.ir.symbol import Symbol
from anyrnn.trace import State, cell
from anyrnn.trace.functions import elu
from anyrnn.trace.language import affine, apply, maximum, minimum, relu, sigmoid, softplus, tanh, vector, where

Meaning = Callable[[Symbol, Any, Any], Symbol]


@dataclass(frozen=True)
class Kind:
    """A function with up to two numbers, and what they are unless a node says so; None where ONNX's text says nothing, or
    onnxruntime has another value.
    """

    meaning: Meaning
    defaults: tuple[float | None, ...] = ()


KINDS: dict[str, Kind] = {
    "affine": Kind(lambda v, a, b: a * v + b, (None, None)),
    "elu": Kind(lambda v, a, _: elu(v, a), (1.0,)),
    "hardsigmoid": Kind(lambda v, a, b: maximum(minimum(a * v + b, 1.0), 0.0), (0.2, 0.5)),
    "leakyrelu": Kind(lambda v, a, _: where(v < 0, a * v, v), (0.01,)),
    "relu": Kind(lambda v, _, __: relu(v)),
    "scaledtanh": Kind(lambda v, a, b: a * tanh(b * v), (None, None)),
    "sigmoid": Kind(lambda v, _, __: sigmoid(v)),
    "softplus": Kind(lambda v, _, __: softplus(v)),
    "softsign": Kind(lambda v, _, __: v / (1 + apply("abs", v))),
    "tanh": Kind(lambda v, _, __: tanh(v)),
    "thresholdedrelu": Kind(lambda v, a, _: where(v < a, 0.0, v), (None,)),
}


@dataclass(frozen=True)
class Function:
    """An activation function of ONNX, for the language of cells."""

    name: str
    alpha: float | None = None
    beta: float | None = None

    def __call__(self, value: Symbol) -> Symbol:
        return KINDS[self.name].meaning(value, self.alpha, self.beta)


SIGMOID, TANH, RELU = Function("sigmoid"), Function("tanh"), Function("relu")


def functions(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Function]:
    """By the names that ONNX has for them. As in onnxruntime a function takes the next alpha or beta if it has one at all.

    Raises: ValueError for unknown ones, and those that lack a number that has no usual value.
    """
    left, found = (list(alphas), list(betas)), []
    for name in names:
        kind = KINDS.get(name.lower())
        if kind is None:
            raise ValueError(f"activations should be among {', '.join(KINDS)} (in any case), got {name!r}")
        numbers = [left[k].pop(0) if left[k] else default for k, default in enumerate(kind.defaults)]
        if None in numbers:
            missing = ("activation_alpha", "activation_beta")[numbers.index(None)]
            raise ValueError(f"activation {name!r} has no usual numbers: {missing} should be given")
        found.append(Function(name.lower(), *numbers))
    return found


def _clipped(value: Symbol, clip: Symbol | None) -> Symbol:
    return value if clip is None else maximum(minimum(value, clip), -clip)


@cell(name="onnx_rnn")
def rnn(x, h, *, function=TANH, clip=None):  # type: ignore[no-untyped-def]
    h = function(_clipped(affine("h", x, h), clip))
    return h, State(h=h)


@cell(name="onnx_gru")
def gru(x, h, *, gates=SIGMOID, candidate=TANH, clip=None, after=False):  # type: ignore[no-untyped-def]
    r = gates(_clipped(affine("r", x, h), clip))
    z = gates(_clipped(affine("z", x, h), clip))
    n = affine("n", x) + r * affine("n", h) if after else affine("n", x, h=r * h)
    h = (1 - z) * candidate(_clipped(n, clip)) + z * h
    return h, State(h=h)


@cell(name="onnx_lstm")
def lstm(x, h, c, *, gates=SIGMOID, candidate=TANH, squash=TANH, clip=None, peepholes=False, coupled=False):  # type: ignore[no-untyped-def]
    def gate(name: str, seen: Symbol) -> Symbol:
        value = affine(name, x, h)
        made: Symbol = gates(_clipped(value + vector(f"peephole_{name}") * seen if peepholes else value, clip))
        return made

    i = gate("i", c)
    f = 1 - i if coupled else gate("f", c)
    g = candidate(_clipped(affine("g", x, h), clip))
    c = f * c + i * g
    h = gate("o", c) * squash(c)
    return h, State(h=h, c=c)
