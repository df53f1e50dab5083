"""Liquid networks, whose time constants depend on input and state: solved step by step, and in closed form."""

from anyrnn.trace import State, Step, cell
from anyrnn.trace.initial import xavier
from anyrnn.trace.language import affine, sigmoid, softplus, tanh, vector


def signs(shape, random):
    return random.choice([-1.0, 1.0], shape)


# f is one layer, as in the paper; the authors' code has a sigmoid for every pair of features. dt is the time between two inputs,
# and tau is kept positive by softplus, in the place of the code's clipping.
@cell(paper="Hasani et al. 2021, Liquid Time-constant Networks, arXiv 2006.04439; the fused solver")
def ltc(x, h, *, dt=1.0, unfolds=6):
    A, tau = vector("A", init=signs), softplus(vector("tau", init=0.5))
    step, drive = dt / unfolds, affine("f", x)
    for _ in range(unfolds):
        f = sigmoid(drive + affine("f", h))
        h = (h + step * f * A) / (1 + step * (1 / tau + f))
    return h, State(h=h)


# In the paper the time gate is sigmoid(f * dt) alone; the shift s is the authors' code's, whose backbone this is too.
@cell(
    paper="Hasani et al. 2022, Closed-form Continuous-time Neural Networks, arXiv 2106.13898",
    init={"weight_ih": xavier, "weight_hh": xavier, "weight_bh": xavier},
)
def cfc(x, dt: Step(1), h):
    b = 1.7159 * tanh(0.666 * affine("b", x, h, size="backbone"))
    g = tanh(affine("g", b))
    h = tanh(affine("h", b))
    t = sigmoid(affine("f", b) * dt + affine("s", b))
    h = (1 - t) * g + t * h
    return h, State(h=h)
