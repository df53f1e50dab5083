"""The minimal gated unit: one gate."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Zhou et al. 2016, Minimal Gated Unit for Recurrent Neural Networks, arXiv 1603.09420")
def mgu(x, h):
    f = sigmoid(affine("f", x, h))
    g = tanh(affine("g", x, h=f * h))
    h = (1 - f) * h + f * g
    return h, State(h=h)
