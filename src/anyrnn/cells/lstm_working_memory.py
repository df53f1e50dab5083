"""LSTM with working memory connections: every gate sees the cell state through a matrix and a tanh."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# No biases inside of the inner tanh, as in the paper; torchrecurrent and RecurrentLayers.jl have them, and document g without h.
@cell(paper="Landi et al. 2021, Working Memory Connections for LSTM, arXiv 2109.00020")
def lstm_working_memory(x, h, c):
    i = sigmoid(affine("i", x, h) + tanh(affine("i", c, bias=False)))
    f = sigmoid(affine("f", x, h) + tanh(affine("f", c, bias=False)))
    g = tanh(affine("g", x, h))
    c = f * c + i * g
    o = sigmoid(affine("o", x, h) + tanh(affine("o", c, bias=False)))
    h = o * tanh(c)
    return h, State(h=h, c=c)
