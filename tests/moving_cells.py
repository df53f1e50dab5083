"""Cells that move features: cut vectors and join them, where no other way of making them is left."""

from __future__ import annotations

from anyrnn import (
    State,
    Vec,
    affine,
    cell,
    concat,
    cos,
    exp,
    matrix,
    mean,
    norm,
    sigmoid,
    sin,
    softplus,
    split,
    tanh,
    total,
    vector,
)


@cell
def halves(x, h):  # type: ignore[no-untyped-def]
    """Each with an equation of its own, which reads the other."""
    a, b = split(h, 2)
    n, z = tanh(affine("n", x, a, size="hidden/2")), sigmoid(affine("z", x, b, size="hidden/2"))
    h = concat(n * b, z * a)
    return h, State(h=h)


@cell
def rotated(x, h):  # type: ignore[no-untyped-def]
    """A state of pairs that are turned by angles."""
    a, b = split(h, 2)
    angle, _ = split(affine("t", x, h), 2)
    h = concat(cos(angle) * a - sin(angle) * b, sin(angle) * a + cos(angle) * b)
    return h, State(h=h)


@cell
def joined(x, h, c):  # type: ignore[no-untyped-def]
    """Products as papers write them, of all in one vector."""
    u = concat(x, h)
    f, i = sigmoid(affine("f", u)), sigmoid(affine("i", u))
    c = f * c + i * tanh(affine("g", u))
    return tanh(c), State(h=tanh(c), c=c)


@cell
def two_sizes(x, h, p: Vec("other")):  # type: ignore[no-untyped-def, valid-type]
    """An output of states of two sizes, which both read."""
    both = concat(p, h)
    h, p = tanh(affine("h", x, both)), sigmoid(affine("p", x, both, size="other"))
    return concat(h, p), State(h=h, p=p)


@cell
def thirds(x, h):  # type: ignore[no-untyped-def]
    """Cut into three, within three, and put together in another order; an output that no state reads."""
    a, b, c = split(h, 3)
    n, m, k = split(tanh(norm(affine("n", x, h))), 3)
    h = concat(m * c + a, k - n, n * b)
    return concat(split(a, 2)[1], softplus(concat(h, b))), State(h=h)


@cell
def given(x, h):  # type: ignore[no-untyped-def]
    """Parameters beside what is made, and one feature from one end to the other."""
    first, others = split(h, [1, "hidden - 1"])
    turned = concat(others, first)
    w = concat(vector("w", 5), turned)
    h = tanh(affine("n", x, w) + 0.5 * turned)
    return h, State(h=h)


@cell
def whole_and_in_parts(x, h):  # type: ignore[no-untyped-def]
    """What a product makes is read whole, and some of it by itself: rows of its matrix have one term of their gradient or two."""
    u = tanh(matrix("U", "hidden", "input") @ x)
    n = tanh(affine("n", x, h, u) + mean(split(u, 2)[1]) + total(split(u, 3)[0]))
    h = 0.5 * h + concat(split(n, 2)[1], split(u, 2)[1])
    return h, State(h=h)


@cell
def computed_beside(x, h):  # type: ignore[no-untyped-def]
    """The same, beside a matrix that is computed of a parameter."""
    n = tanh(affine("n", x) + exp(-exp(matrix("W"))) @ h)
    u = affine("g", x)
    return tanh(u) * n + 0.5 * mean(split(u, 2)[0]), State(h=n)


@cell
def rolled(x, h):  # type: ignore[no-untyped-def]
    """Turned again and again: each round reads the one before in two places."""
    u = h
    for _ in range(7):
        first, others = split(u, [1, "hidden - 1"])
        u = concat(others, first)
    h = tanh(affine("n", x, h=u) + 0.5 * u)
    return h, State(h=h)


CELLS = (halves, rotated, joined, two_sizes, thirds, given, whole_and_in_parts, computed_beside, rolled)
