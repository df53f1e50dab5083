"""A cell with every kind of state and a further per-step input."""

from anyrnn import Scalar, State, Step, Vec, affine, cell, sigmoid, tanh


@cell
def counting(x, h, seen: Scalar(1.0), dt: Step(2), m: Vec("hidden", 0.5)):
    """First values are not zero."""
    u = affine("u", x, h, dt)
    new = tanh(u) * sigmoid(seen) + 0.1 * m
    return new * m, State(h=new, seen=0.5 * seen + 1.0, m=0.9 * m + 0.1 * new)
