"""The op table. One row is everything that the project knows about an op, apart from one spelling in each backend and in ONNX.

Kinds: `leaf` (no inputs), `elementwise` (vectors of one size, scalars are stretched), `reduction` (a vector to a scalar),
`linear` (matrix times vector, summed over terms), `structure` (selects or joins features).

Meaning: a function of an array namespace (NumPy, torch, jax.numpy) and arrays whose last axis is the feature axis and whose
leading axes are the batch; a per-sample scalar has a last axis of length one. A namespace's own function of the op's name
is preferred where there is one.

Derivative: a function of the cotangent, the result and the inputs (all symbols) that gives one cotangent (or None) an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Meaning = Callable[..., Any]
Rule = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Op:
    """A row of the table."""

    name: str
    arity: int | None
    kind: str
    latex: str
    meaning: Meaning | None = None
    derivative: Rule | None = None
    costly: bool = False
    """Worth keeping the result of, rather than computing it again."""
    boolean: bool = False
    jumps: bool = False
    """Constant between jumps: no gradient goes through, and the last bit of an operand may decide between numbers far apart."""
    doc: str = ""


def _where(test: Any, a: Any, b: Any) -> Any:
    return test.builder.apply("where", test, a, b)


def _preferring(name: str, otherwise: Meaning) -> Meaning:
    """The namespace's own function of that name, or a definition by simpler ones."""

    def meaning(xp: Any, *arrays: Any) -> Any:
        own = getattr(xp, name, None)
        return own(*arrays) if own is not None else otherwise(xp, *arrays)

    return meaning


def _sigmoid(xp: Any, a: Any) -> Any:
    e = xp.exp(-xp.abs(a))
    return xp.where(a >= 0, 1 / (1 + e), e / (1 + e))


def _softplus(xp: Any, a: Any) -> Any:
    return xp.maximum(a, xp.zeros_like(a)) + xp.log1p(xp.exp(-xp.abs(a)))


def _clipped(g: Any, low: Any, high: Any) -> Any:
    """As `clip` does: the upper bound comes last."""
    bounded = _where(g < low, low, g)
    return _where(bounded > high, high, bounded)


def _choose(like: Any, a: Any, b: Any) -> Any:
    """The same random choice between other values."""
    builder = like.builder
    return builder.make("choose", [builder.lift(a), builder.lift(b)], like.shape, builder.nodes[like.index].attributes)


RANDOM = ("choose", "scale", "probability")
"""Ops of random choices, whose first attribute says which."""


def same_value(op: str, inputs: Sequence[int]) -> int | None:
    """Of the operands of an op, the one that its result is whatever they are."""
    if op in ("stop_gradient", "clip_gradient", "norm"):
        return inputs[0]
    return inputs[1] if op == "where" and inputs[1] == inputs[2] else None


def _mean(v: Any) -> Any:
    return v.builder.apply("sum", v) / v.builder.size(v.shape[0])


_E = "elementwise"
TABLE: dict[str, Op] = {
    op.name: op
    for op in (
        # leaves: a value from outside, named by its attribute
        Op("input", 0, "leaf", "{name}_t", doc="a per-step input of the cell"),
        Op("state", 0, "leaf", "{name}_{{t-1}}", doc="a state before the step"),
        Op("parameter", 0, "leaf", "{name}", doc="a parameter tensor"),
        Op("hyper", 0, "leaf", "{name}", doc="a scalar given at run time"),
        Op("constant", 0, "leaf", "{name}", doc="a number"),
        Op("size", 0, "leaf", "{name}", doc="the number of features, as a scalar"),
        Op("scale", 0, "leaf", "{name}", doc="what makes up for the features that a random choice drops"),
        Op("probability", 0, "leaf", "{name}", doc="of a random choice, the probability of the second"),
        Op("cotangent", 0, "leaf", "\\bar{{{name}}}", doc="the gradient that arrives at an output"),
        Op("load", 0, "leaf", "{name}", doc="a value in memory: (buffer, how many steps later than the current one)"),
        # arithmetic
        Op("add", 2, _E, "{0} + {1}", lambda xp, a, b: a + b, lambda g, y, a, b: (g, g)),
        Op("sub", 2, _E, "{0} - {1}", lambda xp, a, b: a - b, lambda g, y, a, b: (g, -g)),
        Op("mul", 2, _E, "{0} \\odot {1}", lambda xp, a, b: a * b, lambda g, y, a, b: (g * b, g * a)),
        Op("div", 2, _E, "\\frac{{{0}}}{{{1}}}", lambda xp, a, b: a / b, lambda g, y, a, b: (g / b, -g * y / b), costly=True),
        Op("neg", 1, _E, "-{0}", lambda xp, a: -a, lambda g, y, a: (-g,)),
        Op(
            "maximum",
            2,
            _E,
            "\\max({0}, {1})",
            lambda xp, a, b: xp.maximum(a, b),
            lambda g, y, a, b: (_where(a > b, g, _where(a < b, 0.0, g * 0.5)), _where(a < b, g, _where(a > b, 0.0, g * 0.5))),
        ),
        Op(
            "minimum",
            2,
            _E,
            "\\min({0}, {1})",
            lambda xp, a, b: xp.minimum(a, b),
            lambda g, y, a, b: (_where(a < b, g, _where(a > b, 0.0, g * 0.5)), _where(a > b, g, _where(a < b, 0.0, g * 0.5))),
        ),
        Op("abs", 1, _E, "|{0}|", lambda xp, a: xp.abs(a), lambda g, y, a: (g * a.builder.apply("sign", a),)),
        Op("sign", 1, _E, "\\operatorname{{sign}}({0})", lambda xp, a: xp.sign(a), lambda g, y, a: (None,), jumps=True),
        Op("floor", 1, _E, "\\lfloor {0} \\rfloor", lambda xp, a: xp.floor(a), lambda g, y, a: (None,), jumps=True),
        # functions
        Op("sqrt", 1, _E, "\\sqrt{{{0}}}", lambda xp, a: xp.sqrt(a), lambda g, y, a: (g * 0.5 / y,), costly=True),
        Op("exp", 1, _E, "\\exp({0})", lambda xp, a: xp.exp(a), lambda g, y, a: (g * y,), costly=True),
        Op("log", 1, _E, "\\log({0})", lambda xp, a: xp.log(a), lambda g, y, a: (g / a,), costly=True),
        Op("tanh", 1, _E, "\\tanh({0})", lambda xp, a: xp.tanh(a), lambda g, y, a: (g * (1 - y * y),), costly=True),
        Op("sigmoid", 1, _E, "\\sigma({0})", _preferring("sigmoid", _sigmoid), lambda g, y, a: (g * (y * (1 - y)),), costly=True),
        Op(
            "softplus",
            1,
            _E,
            "\\operatorname{{softplus}}({0})",
            _preferring("softplus", _softplus),
            lambda g, y, a: (g * a.builder.apply("sigmoid", a),),
            costly=True,
        ),
        Op(
            "relu",
            1,
            _E,
            "\\operatorname{{relu}}({0})",
            _preferring("relu", lambda xp, a: xp.maximum(a, xp.zeros_like(a))),
            lambda g, y, a: (_where(y.builder.apply("equal", y, 0.0), 0.0, g),),
        ),
        Op("sin", 1, _E, "\\sin({0})", lambda xp, a: xp.sin(a), lambda g, y, a: (g * a.builder.apply("cos", a),), costly=True),
        Op("cos", 1, _E, "\\cos({0})", lambda xp, a: xp.cos(a), lambda g, y, a: (-g * a.builder.apply("sin", a),), costly=True),
        # choice
        Op("less", 2, _E, "{0} < {1}", lambda xp, a, b: a < b, lambda g, y, a, b: (None, None), boolean=True, jumps=True),
        Op("equal", 2, _E, "{0} = {1}", lambda xp, a, b: a == b, lambda g, y, a, b: (None, None), boolean=True, jumps=True),
        Op(
            "where",
            3,
            _E,
            "\\begin{{cases}} {1} & \\text{{if }} {0} \\\\ {2} & \\text{{otherwise}} \\end{{cases}}",
            lambda xp, c, a, b: xp.where(c, a, b),
            lambda g, y, c, a, b: (None, _where(c, g, 0.0), _where(c, 0.0, g)),
        ),
        Op(
            "choose",
            2,
            _E,
            "\\operatorname{{choose}}({0}, {1})",
            derivative=lambda g, y, a, b: (_choose(y, g, 0.0), _choose(y, 0.0, g)),
            costly=True,
            doc="the first or the second, at random: (what for, how many steps later than the current one)",
        ),
        # the same value, with another gradient
        Op(
            "stop_gradient",
            1,
            _E,
            "\\operatorname{{stop}}({0})",
            _preferring("stop_gradient", lambda xp, a: a),
            lambda g, y, a: (None,),
        ),
        Op(
            "clip_gradient",
            3,
            _E,
            "\\operatorname{{clip\\,gradient}}_{{{1}, {2}}}({0})",
            _preferring("clip_gradient", lambda xp, a, low, high: a),
            lambda g, y, a, low, high: (_clipped(g, low, high), None, None),
        ),
        # over all features
        Op("sum", 1, "reduction", "\\operatorname{{sum}}({0})", lambda xp, a: a.sum(-1)[..., None], lambda g, y, a: (g,)),
        Op(
            "largest",
            1,
            "reduction",
            "\\max({0})",
            lambda xp, a: xp.amax(a, -1)[..., None],
            lambda g, y, a: (None,),
            doc="the largest feature, as a number without gradient: what `softmax` takes away does not change it",
        ),
        Op("affine", None, "linear", "{0}", doc="sum of matrix-vector products and bias vectors"),
        Op(
            "norm",
            3,
            _E,
            "\\operatorname{{norm}}({1})",
            lambda xp, y, a, scale: y,
            lambda g, y, value, a, scale: (None, scale * (g - _mean(g) - y * _mean(g * y)), None),
            doc="a normalised value with its derivative: (result, what was normalised, 1 / standard deviation)",
        ),
        # features in and out
        Op("fill", 1, "structure", "{0}", doc="a scalar for every feature; or the same again, as a value of its own"),
        Op("slice", 1, "structure", "{0}", doc="some of the features, or some rows of a parameter"),
        Op("concat", None, "structure", "[{0}]", doc="features of several vectors, one after the other"),
        Op("transpose", 1, "structure", "{0}^\\top", doc="of a parameter matrix"),
        Op("outer", 2, "structure", "{0} {1}^\\top", doc="of two vectors of parameters: the gradient of a matrix"),
    )
}


ELEMENTWISE = tuple(op for op in TABLE.values() if op.kind == _E)
