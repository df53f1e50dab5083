"""LSTM whose gates see a linear surrogate of its output: a gated average of impulses from the input."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Martin & Cundy 2018, Parallelizing Linear Recurrent Neural Nets Over Sequence Length, arXiv 1709.04057")
def gilr_lstm(x, h_tilde, c):
    f = sigmoid(affine("f", x, h=h_tilde))
    i = sigmoid(affine("i", x, h=h_tilde))
    o = sigmoid(affine("o", x, h=h_tilde))
    z = tanh(affine("z", x, h=h_tilde))
    g = sigmoid(affine("g", x))
    j = tanh(affine("j", x))
    h_tilde = g * h_tilde + (1 - g) * j
    c = f * c + i * z
    h = o * c
    return h, State(h_tilde=h_tilde, c=c)
