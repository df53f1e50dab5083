"""The addition-subtraction twin-gated network. The authors' code has a bias in q and none in p; torchrecurrent and
RecurrentLayers.jl have one in each.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid


@cell(paper="Zhang et al. 2018, Addition-Subtraction Twin-Gated Recurrent Networks, arXiv 1810.12546")
def atr(x, h):
    p = affine("p", x, bias=False)
    q = affine("q", h)
    i = sigmoid(p + q)
    f = sigmoid(p - q)
    h = i * p + f * h
    return h, State(h=h)
