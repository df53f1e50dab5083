"""The gated recurrent unit, with its reset after the product and before it."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Cho et al. 2014, arXiv 1406.1078v1; the form of cuDNN and torch, reset after the product")
def gru(x, h):
    r = sigmoid(affine("r", x, h))
    z = sigmoid(affine("z", x, h))
    n = tanh(affine("n", x) + r * affine("n", h))
    h = (1 - z) * n + z * h
    return h, State(h=h)


@cell(paper="Cho et al. 2014, arXiv 1406.1078v3; reset before the product")
def gru_before(x, h):
    r = sigmoid(affine("r", x, h))
    z = sigmoid(affine("z", x, h))
    n = tanh(affine("n", x, h=r * h))
    h = (1 - z) * n + z * h
    return h, State(h=h)
