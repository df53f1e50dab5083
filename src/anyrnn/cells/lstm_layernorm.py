"""LSTM with layer normalisation of every gate and of the cell state."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, norm, sigmoid, tanh, vector


def normalised(gate, value):
    return vector(f"gain_{gate}", init=1.0) * norm(value) + vector(f"shift_{gate}", init=0.0)


@cell(paper="Ba, Kiros & Hinton 2016, Layer Normalization, arXiv 1607.06450; each gate normalised by itself")
def lstm_layernorm(x, h, c):
    i = sigmoid(normalised("i", affine("i", x, h, bias=False)))
    f = sigmoid(normalised("f", affine("f", x, h, bias=False)))
    g = tanh(normalised("g", affine("g", x, h, bias=False)))
    o = sigmoid(normalised("o", affine("o", x, h, bias=False)))
    c = f * c + i * g
    h = o * tanh(normalised("c", c))
    return h, State(h=h, c=c)
