"""Strongly typed networks: states are averaged feature by feature, and nothing is made of them by a matrix. `z_1` and the like
are what an input gives to the gates one step later.

In T-RNN torchrecurrent adds a bias to z, and RecurrentLayers.jl has tanh for the forget gate by default.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, sigmoid, tanh

PAPER = "Balduzzi & Ghifary 2016, Strongly-Typed Recurrent Neural Networks, arXiv 1602.02218"


def later(gate, x):
    return affine(f"{gate}_1", x, bias=False)


@cell(paper=f"{PAPER}; T-RNN")
def trnn(x, h):
    z = matrix("W", "hidden", "input") @ x
    f = sigmoid(affine("f", x))
    h = f * h + (1 - f) * z
    return h, State(h=h)


@cell(paper=f"{PAPER}; T-GRU")
def tgru(x, h, z_1, f_1, o_1):
    z = affine("z", x) + z_1
    f = sigmoid(affine("f", x) + f_1)
    o = tanh(affine("o", x) + o_1)
    h = f * h + z * o
    return h, State(h=h, z_1=later("z", x), f_1=later("f", x), o_1=later("o", x))


@cell(paper=f"{PAPER}; T-LSTM")
def tlstm(x, c, z_1, f_1, o_1):
    z = affine("z", x) + z_1
    f = sigmoid(affine("f", x) + f_1)
    o = tanh(affine("o", x) + o_1)
    c = f * c + (1 - f) * z
    h = c * o
    return h, State(c=c, z_1=later("z", x), f_1=later("f", x), o_1=later("o", x))
