"""Residual LSTM: the output gate lets through the cell's projection and the input beside it."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, sigmoid, tanh, vector


# W_h is the identity in the paper where the input has the size of h: a layer with skip_input.
@cell(paper="Kim, El-Khamy & Lee 2017, Residual LSTM, arXiv 1701.03360")
def lstm_residual(x, h, c):
    i = sigmoid(affine("i", x, h) + vector("peephole_i") * c)
    f = sigmoid(affine("f", x, h) + vector("peephole_f") * c)
    g = tanh(affine("g", x, h))
    c = f * c + i * g
    o = sigmoid(affine("o", x, h) + vector("peephole_o") * c)
    m = matrix("weight_p") @ tanh(c)
    h = o * (m + affine("h", x, bias=False))
    return h, State(h=h, c=c)
