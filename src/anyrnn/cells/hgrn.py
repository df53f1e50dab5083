"""The recurrence of the hierarchically gated network, without its phase: the forget gate has a lower bound.

The paper learns the bounds of all layers together, from 0 in the first one upwards; here it is a number for a layer to be given.
The norm and the projection that follow belong to the paper's block. flash-linear-attention has SiLU for the output's gate.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid


@cell(paper="Qin et al. 2023, Hierarchically Gated Recurrent Neural Network for Sequence Modeling, arXiv 2311.04823")
def hgrn(x, h, *, gamma=0.0):
    mu = sigmoid(affine("mu", x))
    f = gamma + (1 - gamma) * mu
    v = affine("c", x)
    c = v * sigmoid(v)
    g = sigmoid(affine("g", x))
    h = f * h + (1 - f) * c
    y = g * h
    return y, State(h=h)
