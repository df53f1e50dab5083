"""The minimal gated unit: one gate, and its forms in which the gate does not see the input. RecurrentLayers.jl has f and 1 - f
the other way round in the last line.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh, vector


@cell(paper="Zhou et al. 2016, Minimal Gated Unit for Recurrent Neural Networks, arXiv 1603.09420")
def mgu(x, h):
    f = sigmoid(affine("f", x, h))
    g = tanh(affine("g", x, h=f * h))
    h = (1 - f) * h + f * g
    return h, State(h=h)


@cell(paper="Heck & Salem 2017, Simplified Minimal Gated Unit Variations, arXiv 1701.03452; MGU1, a gate of the state and a bias")
def mgu1(x, h):
    f = sigmoid(affine("f", h))
    g = tanh(affine("g", x, h=f * h))
    h = (1 - f) * h + f * g
    return h, State(h=h)


@cell(paper="Heck & Salem 2017, Simplified Minimal Gated Unit Variations, arXiv 1701.03452; MGU2, a gate of the state alone")
def mgu2(x, h):
    f = sigmoid(affine("f", h, bias=False))
    g = tanh(affine("g", x) + affine("g", h=f * h, bias=False))
    h = (1 - f) * h + f * g
    return h, State(h=h)


@cell(paper="Heck & Salem 2017, Simplified Minimal Gated Unit Variations, arXiv 1701.03452; MGU3, a gate of a bias alone")
def mgu3(x, h):
    f = sigmoid(vector("bias_f"))
    g = tanh(affine("g", x, h=f * h))
    h = (1 - f) * h + f * g
    return h, State(h=h)
