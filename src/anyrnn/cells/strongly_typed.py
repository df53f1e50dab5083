"""Strongly typed networks: states are averaged feature by feature, and nothing is made of them by a matrix; `past` is the input
before.

In T-RNN torchrecurrent adds a bias to z, and RecurrentLayers.jl has tanh for the forget gate by default.
"""

from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import affine, matrix, sigmoid, tanh


@cell(paper="Balduzzi & Ghifary 2016, Strongly-Typed Recurrent Neural Networks, arXiv 1602.02218; T-RNN")
def trnn(x, h):
    z = matrix("W", "hidden", "input") @ x
    f = sigmoid(affine("f", x))
    h = f * h + (1 - f) * z
    return h, State(h=h)


@cell(paper="Balduzzi & Ghifary 2016, Strongly-Typed Recurrent Neural Networks, arXiv 1602.02218; T-GRU")
def tgru(x, h, past: Vec("input")):
    z = affine("z", x, past)
    f = sigmoid(affine("f", x, past))
    o = tanh(affine("o", x, past))
    h = f * h + z * o
    return h, State(h=h, past=x)


@cell(paper="Balduzzi & Ghifary 2016, Strongly-Typed Recurrent Neural Networks, arXiv 1602.02218; T-LSTM")
def tlstm(x, c, past: Vec("input")):
    z = affine("z", x, past)
    f = sigmoid(affine("f", x, past))
    o = tanh(affine("o", x, past))
    c = f * c + (1 - f) * z
    h = c * o
    return h, State(c=c, past=x)
