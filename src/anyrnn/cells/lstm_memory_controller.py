"""LSTM with a memory controller: what goes back to the gates is v, not the output."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# RecurrentLayers.jl has none of the functions around the five gates, torchrecurrent computes these equations.
@cell(paper="Ben-Ari & Shwartz-Ziv 2017, Sequence Modeling Using a Memory Controller Extension for LSTM, NIPS 2017 workshop")
def lstm_memory_controller(x, v, c):
    f = sigmoid(affine("f", x, v))
    i = sigmoid(affine("i", x, v))
    o = sigmoid(affine("o", x, v))
    m = sigmoid(affine("m", x, v))
    n = tanh(affine("n", x, v))
    c = f * c + i * n
    h = o * tanh(c)
    v = m * tanh(c)
    return h, State(v=v, c=c)
