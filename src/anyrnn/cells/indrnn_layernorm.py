"""The independently recurrent network, with layer normalisation of what comes from the input; as in haste, with tanh, where the
paper of the network without norm has a rectifier.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import uniform, xavier
from anyrnn.trace.language import affine, norm, tanh, vector


@cell(paper="Li et al. 2018, arXiv 1803.04831; Ba et al. 2016, arXiv 1607.06450; the form of haste", init={"weight_ih": xavier})
def indrnn_layernorm(x, h):
    v = vector("gain", init=1.0) * norm(affine("h", x, bias=False)) + vector("shift", init=0.0)
    h = tanh(v + vector("recurrent", init=uniform(-0.5, 0.5)) * h)
    return h, State(h=h)
