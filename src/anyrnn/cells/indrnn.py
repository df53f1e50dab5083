"""The independently recurrent network: every feature has one recurrent weight of its own."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, relu, vector


@cell(paper="Li et al. 2018, Independently Recurrent Neural Network, arXiv 1803.04831")
def indrnn(x, h):
    h = relu(affine("h", x) + vector("recurrent") * h)
    return h, State(h=h)
