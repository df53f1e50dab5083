"""Gated recurrent units whose gates do not see the input. As in the paper, z is what a step takes of the new value; `gru` and
`gru_before` call that 1 - z.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh, vector


@cell(paper="Dey & Salem 2017, Gate-Variants of Gated Recurrent Unit, arXiv 1701.05923; GRU1, gates of the state and a bias")
def gru1(x, h):
    z = sigmoid(affine("z", h))
    r = sigmoid(affine("r", h))
    n = tanh(affine("n", x, h=r * h))
    h = (1 - z) * h + z * n
    return h, State(h=h)


@cell(paper="Dey & Salem 2017, Gate-Variants of Gated Recurrent Unit, arXiv 1701.05923; GRU2, gates of the state alone")
def gru2(x, h):
    z = sigmoid(affine("z", h, bias=False))
    r = sigmoid(affine("r", h, bias=False))
    n = tanh(affine("n", x) + affine("n", h=r * h, bias=False))
    h = (1 - z) * h + z * n
    return h, State(h=h)


@cell(paper="Dey & Salem 2017, Gate-Variants of Gated Recurrent Unit, arXiv 1701.05923; GRU3, gates of a bias alone")
def gru3(x, h):
    z = sigmoid(vector("bias_z"))
    r = sigmoid(vector("bias_r"))
    n = tanh(affine("n", x, h=r * h))
    h = (1 - z) * h + z * n
    return h, State(h=h)
