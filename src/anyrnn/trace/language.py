"""The functions that a cell is written with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from anyrnn.errors import CellError
from anyrnn.ir.dims import Dim, features, shape_text
from anyrnn.ir.graph import SINGLE
from anyrnn.ir.symbol import Symbol
from anyrnn.trace.initial import Maker
from anyrnn.trace.tracer import ProductRule, Tracer, current, tracing

Size = str | int | Dim


def _features(size: Size, who: str) -> Dim:
    """A size as the language takes it; a value's is one of the outermost cell's already. Raises CellError when it is none."""
    tracer = current(who)
    try:
        dim = features(size, who)
        return dim if isinstance(size, Dim) else dim.within(tracer.sizes)
    except (TypeError, ValueError) as error:
        raise CellError(tracer.located(str(error))) from None


def affine(
    gate: str, *operands: Symbol | None, size: Size = "hidden", heads: int = 1, bias: bool = True, **named: Symbol | None
) -> Symbol:
    """One matrix product, and one bias, for each operand; the sum of them all.

    Args:
        gate: the gate's name. Several names separated by spaces make one stacked vector of `size` features for each, to be split.
        operands: the input, a state, or a value that has been assigned to a variable, each a vector. None is left out; the sum of
            none is zero.
        size: features of the gate: a named size, a number, a sum such as `"hidden - 1"`, or `hidden` by default.
        heads: the matrices are block-diagonal with this many blocks; for one gate at a time.
        bias: False for products alone.
        named: operands under another weight's name: `h=r * h` uses rows of `weight_hh`.

    Returns: a vector of `size` features for each gate named.

    The rows of all gates of an operand are stacked in order of first use: `weight_ih` and `bias_ih` for the input, `weight_hh`
    and `bias_hh` for the state h, `weight_<name>h` for anything else (in a helper function, by the name that it has there). The
    same gate of the same operand, asked for again, is the same weight; gates that are named together are asked for together.

    >>> from anyrnn import Recurrent, State, affine, cell, sigmoid, split, tanh
    >>> @cell
    ... def gated(x, h):
    ...     z, n = split(affine("z n", x, h), 2)
    ...     h = h + sigmoid(z) * (tanh(n) - h)
    ...     return h, State(h=h)
    >>> {name: array.shape for name, array in Recurrent(gated, 3, 4).parameters.items()}
    {'weight_ih_l0': (8, 3), 'weight_hh_l0': (8, 4), 'bias_ih_l0': (8,), 'bias_hh_l0': (8,)}
    """
    tracer = current("affine")
    gates = gate.split() if isinstance(gate, str) else []
    if not gates:
        raise CellError(tracer.located(f"affine's first argument is the gate's name; got {gate!r}"))
    if not isinstance(heads, int) or heads < 1:
        raise CellError(tracer.located(f"affine needs a whole number of heads, at least 1; got {heads!r}"))
    if heads > 1 and len(gates) > 1:
        raise CellError(tracer.located(f"affine({gate!r}) with heads: ask for each gate by itself"))
    tracer.look_up()
    unknown = [key for key, value in named.items() if isinstance(value, (bool, int, float, str))]
    if unknown:
        raise CellError(tracer.located(f"affine has no option {unknown[0]!r}: its options are size, heads and bias"))
    given = [tracer.lift(value, f"an operand of affine({gate!r})") for value in operands if value is not None]
    pairs = [(tracer.operand_key(value), value) for value in given]
    pairs += [(key, tracer.lift(v, f"operand {key} of affine({gate!r})")) for key, v in named.items() if v is not None]
    if not pairs and (operands or named):
        return tracer.constant(0.0)
    tracer.note_gates(gates, pairs)
    rows = _features(size, "affine") * len(gates)
    name = "_".join(gates)
    terms, biases, others = [], [], []
    for key, operand in pairs:
        other = _other_product(tracer, name, key, operand, rows, len(gates))
        weight, shift = tracer.gate(" ".join(gates), key, operand, rows, heads, other is None, bias)
        if weight is not None:
            terms.append((key, (weight, operand, False, heads)))
        else:
            others.append((key, _for_each_gate(tracer, operand, rows, len(gates)) if other is None else other))
        biases += [shift] if shift is not None else []
    if tracer.rules:
        result = _by_rules(tracer, name, [(key, tracer.affine([term])) for key, term in terms] + others, biases)
    else:
        addends = [tracer.affine([term for _, term in terms], biases)] if terms or not others else biases
        addends += [value for _, value in others]
        result = sum(addends[1:], addends[0])
    tracer.gate_names.setdefault(result.index, f"{name}_pre")
    return result


def _other_product(tracer: Tracer, gate: str, key: str, operand: Symbol, rows: Dim, gates: int) -> Symbol | None:
    """What the innermost wrapper that has something else puts in place of a product."""
    if operand.shape != (rows / gates,):
        return None
    for rule in reversed(tracer.rules):
        with tracer.within(rule=rule):
            made = rule.product(gate, key, operand, gates)
        if made is not None:
            tracer.applied.add(rule)
            return made
    return None


def _by_rules(tracer: Tracer, gate: str, products: list[tuple[str, Symbol]], biases: Sequence[Symbol]) -> Symbol:
    """The sum of products and biases as wrappers have it, the innermost first."""
    for rule in reversed(tracer.rules):
        with tracer.within(rule=rule):
            made = [rule.each(gate, key, product) for key, product in products]
        if any(new is not old for new, (_, old) in zip(made, products, strict=True)):
            tracer.applied.add(rule)
        products = [(key, new) for new, (key, _) in zip(made, products, strict=True)]
    one_each = len(dict(products)) == len(products)
    for rule in reversed(tracer.rules) if one_each else ():
        with tracer.within(rule=rule):
            combined = rule.combined(gate, dict(products))
        if combined is not None:
            tracer.applied.add(rule)
            return sum(biases, combined)
    return sum(biases, sum((product for _, product in products[1:]), products[0][1]))


@contextmanager
def products(rule: ProductRule) -> Iterator[None]:
    """Every `affine` inside makes its products as the rule says. Wrappers of cells are written with it."""
    tracer = current("products")
    with tracer.within(rules=[*tracer.rules, rule]):
        yield


def _for_each_gate(tracer: Tracer, operand: Symbol, rows: Dim, gates: int) -> Symbol:
    """The input itself, as every gate gets it that has no matrix for it."""
    if rows != operand.shape[0] * gates:
        sides = f"a gate of {rows / gates} features cannot take the input's {operand.shape[0]} as they are"
        raise CellError(tracer.located(f"skip_input: {sides}"))
    return operand if gates == 1 else tracer.concat([operand] * gates)


def vector(name: str, size: Size = "hidden", init: float | Maker | None = None, trained: bool = True) -> Symbol:
    """A parameter vector.

    Args:
        name: of the parameter.
        size: features: as for `affine`.
        init: what it begins as: None for the layer's default (uniform within 1/sqrt(hidden)), a number, or a function of a shape
            and a `numpy.random.Generator`, such as those of `anyrnn.weights`.
        trained: False for one that stays as it begins: it has no gradient.

    >>> from anyrnn import Recurrent, State, affine, cell, sigmoid, tanh, vector
    >>> @cell
    ... def leaky(x, h):
    ...     leak = sigmoid(vector("leak", init=-2.0))
    ...     h = (1 - leak) * h + leak * tanh(affine("n", x, h))
    ...     return h, State(h=h)
    >>> Recurrent(leaky, 3, 4).parameters["leak_l0"]
    array([-2., -2., -2., -2.], dtype=float32)
    """
    return current("vector").parameter(name, (_features(size, "vector"),), init, trained)


def scalar(name: str, init: float | Maker | None = None, trained: bool = True) -> Symbol:
    """A parameter of one number: `rate = exp(scalar("log_rate", init=0.0))`. `init` and `trained` as for `vector`."""
    return current("scalar").parameter(name, (), init, trained)


def matrix(
    name: str, rows: Size = "hidden", columns: Size = "hidden", init: float | Maker | None = None, trained: bool = True
) -> Symbol:
    """A parameter matrix, used as `W @ v`; arithmetic on parameters alone is done once a call. `init` and `trained` as for
    `vector`.

    >>> from anyrnn import State, affine, cell, matrix, tanh
    >>> @cell
    ... def antisymmetric(x, h):
    ...     W = matrix("W")
    ...     h = h + 0.1 * tanh(affine("n", x) + (W - W.T) @ h)
    ...     return h, State(h=h)
    """
    return current("matrix").parameter(name, (_features(rows, "matrix"), _features(columns, "matrix")), init, trained)


@contextmanager
def scope(name: str, init: Mapping[str, float | Maker] | None = None) -> Iterator[None]:
    """Parameters made inside carry `name_` before their names, so that a cell can call another one, or itself, again. `init` is
    what parameters of `affine` inside begin as, by their names without that, as for `cell`.

    >>> from anyrnn import Recurrent, State, affine, cell, scope, tanh
    >>> @cell
    ... def once(x, h):
    ...     h = tanh(affine("n", x, h))
    ...     return h, State(h=h)
    >>> @cell
    ... def twice(x, h, low):
    ...     with scope("low"):
    ...         low, _ = once(x, low)
    ...     h = tanh(affine("n", low, h))
    ...     return h, State(h=h, low=low)
    >>> print(*Recurrent(twice, 3, 4).parameters)
    low_weight_ih_l0 low_weight_hh_l0 weight_lowh_l0 weight_hh_l0 low_bias_ih_l0 low_bias_hh_l0 bias_lowh_l0 bias_hh_l0
    """
    tracer = current("scope")
    if not isinstance(name, str) or not name or not f"_{name}".isidentifier():
        raise CellError(tracer.located(f"the name of a scope should be a part of a Python variable's, got {name!r}"))
    before, prefix = tracer.prefix, f"{tracer.prefix}{name}_"
    if tracer.around.setdefault(prefix, before) != before:
        raise CellError(tracer.located(f"scope {name!r}: parameters in another scope begin with {prefix} too; rename one"))
    tracer.scopes.setdefault(prefix, None)
    with tracer.within(prefix=prefix, inits=[*tracer.inits, (prefix, init or {})]):
        yield


def apply(op: str, *operands: Any) -> Symbol:
    """An op of the op table by its name."""
    symbols = [o for o in operands if isinstance(o, Symbol)]
    if not symbols and any(isinstance(o, Dim) for o in operands):
        return current(op).apply(op, *operands)
    if not symbols:
        message = f"{op} needs at least one traced value; for numbers use Python's math module"
        raise CellError(current(op).located(message) if tracing() else message)
    return symbols[0].builder.apply(op, *operands)


def split(value: Symbol, parts: int | Sequence[Size]) -> tuple[Symbol, ...]:
    """A vector's features as several vectors: a number of equal parts, or parts of the sizes given, which make up the whole.

    >>> from anyrnn import State, Vec, cell, concat, split
    >>> @cell
    ... def turning(x: Vec("hidden"), h):
    ...     most, last = split(h, ["hidden - 1", 1])
    ...     return h, State(h=x + concat(last, most))
    """
    tracer = current("split")
    value = tracer.number(tracer.lift(value, "what split takes apart"), "what split takes apart")
    if len(value.shape) != 1:
        raise CellError(tracer.located(f"split needs a vector; {value.label} is none"))
    sizes = _parts(tracer, value, parts)
    ends = list(accumulate(sizes, initial=Dim()))
    return tuple(tracer.slice(value, offset, size) for offset, size in zip(ends, sizes, strict=False))


def _parts(tracer: Tracer, value: Symbol, parts: int | Sequence[Size]) -> list[Dim]:
    (whole,) = value.shape
    if isinstance(parts, int) and not isinstance(parts, bool) and parts > 0:
        return [whole / parts] * parts
    if not isinstance(parts, (list, tuple)) or not parts:
        raise CellError(tracer.located(f"split needs a number of parts, at least 1, or a list of their sizes; got {parts!r}"))
    sizes = [_features(size, "a part of split") for size in parts]
    total = sum(sizes, Dim())
    if total != whole:
        listed = ", ".join(map(str, sizes))
        raise CellError(tracer.located(f"split: {listed} make {total} features, and {value.label} has {whole}"))
    return sizes


def concat(*values: Symbol) -> Symbol:
    """The features of several vectors, one after the other. A scalar is one feature.

    For a product of several, `affine("n", x, h)` is the same as one of `concat(x, h)` and faster: x is multiplied before the
    steps, and nothing is joined.
    """
    tracer = current("concat")
    vectors = [tracer.number(tracer.lift(value, "what concat joins"), "what concat joins") for value in values]
    for vector in vectors:
        if len(vector.shape) > 1:
            raise CellError(tracer.located(f"concat needs vectors; {vector.label} is none"))
    if not vectors:
        raise CellError(tracer.located("concat needs at least one vector"))
    return tracer.concat([vector if vector.shape else tracer.fill(vector, *SINGLE) for vector in vectors])


def mean(value: Symbol) -> Symbol:
    """The mean over a vector's features, a scalar."""
    return _mean(value, "mean")


def _mean(value: Symbol, who: str) -> Symbol:
    if not isinstance(value, Symbol):
        raise CellError(current(who).located(f"{who} needs a traced vector, got a {type(value).__name__}"))
    builder = value.builder
    if len(value.shape) != 1:
        raise CellError(builder.located(f"{who} needs a vector, but {value.label} has shape {shape_text(value.shape)}"))
    return total(value) / builder.size(value.shape[0])


def norm(value: Symbol, eps: float | Symbol = 1e-5) -> Symbol:
    """Layer normalisation without gain and bias: (v - mean) / sqrt(variance + eps), over the features. A gain of one's own begins
    at one: `vector("gain", init=1.0) * norm(v)`.

    Source: Ba, Kiros & Hinton 2016, Layer Normalization; the variance is the biased one, as in torch.nn.LayerNorm.
    """
    centred = value - _mean(value, "norm")
    scale = 1 / sqrt(mean(centred * centred) + eps)
    if isinstance(eps, Symbol) and eps.builder.nodes[eps.index].op != "hyper":
        return centred * scale  # the derivative of the whole has none for what eps is made of
    return apply("norm", centred * scale, value, scale)


def rms_norm(value: Symbol, eps: float | Symbol = 1e-5) -> Symbol:
    """v / sqrt(mean of squares + eps), over the features, without gain.

    Source: Zhang & Sennrich 2019, Root Mean Square Layer Normalization, arXiv 1910.07467.
    """
    return value / sqrt(_mean(value * value, "rms_norm") + eps)


def softmax(value: Symbol) -> Symbol:
    """exp(v) / total(exp(v)) over a vector's features: shares of one, of numbers of any size.

    >>> from anyrnn import State, affine, cell, softmax, tanh
    >>> @cell
    ... def attentive(x, h):
    ...     h = tanh(affine("n", x, h=h * softmax(affine("a", x, h))))
    ...     return h, State(h=h)
    """
    e = exp(value - apply("largest", value))
    return e / total(e)


def total(value: Symbol) -> Symbol:
    """The sum over a vector's features, a scalar."""
    return apply("sum", value)


def tanh(a: Any) -> Symbol:
    """Hyperbolic tangent."""
    return apply("tanh", a)


def sigmoid(a: Any) -> Symbol:
    """1 / (1 + exp(-a))."""
    return apply("sigmoid", a)


def relu(a: Any) -> Symbol:
    """max(a, 0)."""
    return apply("relu", a)


def softplus(a: Any) -> Symbol:
    """log(1 + exp(a))."""
    return apply("softplus", a)


def exp(a: Any) -> Symbol:
    """Exponential."""
    return apply("exp", a)


def log(a: Any) -> Symbol:
    """Natural logarithm."""
    return apply("log", a)


def sqrt(a: Any) -> Symbol:
    """Square root."""
    return apply("sqrt", a)


def sin(a: Any) -> Symbol:
    """Sine. Kernels of float32 (float64) lose digits of arguments beyond some 1e5 (1e14), and from 2**21 (2**50) on give NaN."""
    return apply("sin", a)


def cos(a: Any) -> Symbol:
    """Cosine; see `sin`."""
    return apply("cos", a)


def floor(a: Any) -> Symbol:
    """The largest whole number not above."""
    return apply("floor", a)


def maximum(a: Any, b: Any) -> Symbol:
    """The larger one; NaN when either is."""
    return apply("maximum", a, b)


def minimum(a: Any, b: Any) -> Symbol:
    """The smaller one; NaN when either is."""
    return apply("minimum", a, b)


def where(test: Any, a: Any, b: Any) -> Symbol:
    """a where the test holds, else b: `where(u > 0, u, exp(minimum(u, 0)) - 1)`, feature by feature. No gradient goes through the
    test. What is not chosen has a gradient of 0 times its derivative, which has to be finite too: `minimum` keeps it so.
    """
    return apply("where", test, a, b)


def stop_gradient(a: Any) -> Symbol:
    """The same value, through which no gradient goes."""
    return apply("stop_gradient", a)


def clip_gradient(a: Any, low: Any, high: Any) -> Symbol:
    """The same value, whose gradient is clipped to [low, high]: numbers, or vectors of the value's features. Two of one value
    with the same bounds are one, which clips the sum of what reads either.
    """
    made = apply("clip_gradient", a, low, high)
    least, most = (made.builder.nodes[i] for i in made.builder.nodes[made.index].inputs[1:])
    if least.op == most.op == "constant" and not least.attributes[0] <= most.attributes[0]:
        bounds = f"{least.attributes[0]:g}, {most.attributes[0]:g}"
        raise CellError(made.builder.located(f"clip_gradient: no gradient is in [{bounds}]"))
    value = made.builder.symbol(made.builder.nodes[made.index].inputs[0])
    if made.shape != value.shape:
        message = f"clip_gradient: its bounds have more features than {value.label}, whose gradient they bound"
        raise CellError(made.builder.located(message))
    return made


def equal(a: Any, b: Any) -> Symbol:
    """Test for equality, for `where`."""
    return apply("equal", a, b)
