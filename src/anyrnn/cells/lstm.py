"""Long short-term memory, its forms with peepholes and with coupled gates, and the one with a projected hidden state."""

from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import affine, matrix, sigmoid, tanh, vector


@cell(paper="Hochreiter & Schmidhuber 1997, Long Short-Term Memory; forget gate: Gers et al. 2000")
def lstm(x, h, c):
    i = sigmoid(affine("i", x, h))
    f = sigmoid(affine("f", x, h))
    g = tanh(affine("g", x, h))
    o = sigmoid(affine("o", x, h))
    c = f * c + i * g
    h = o * tanh(c)
    return h, State(h=h, c=c)


@cell(paper="Gers & Schmidhuber 2000, Recurrent Nets that Time and Count")
def lstm_peephole(x, h, c):
    i = sigmoid(affine("i", x, h) + vector("peephole_i") * c)
    f = sigmoid(affine("f", x, h) + vector("peephole_f") * c)
    g = tanh(affine("g", x, h))
    c = f * c + i * g
    o = sigmoid(affine("o", x, h) + vector("peephole_o") * c)
    h = o * tanh(c)
    return h, State(h=h, c=c)


@cell(paper="Greff et al. 2015, LSTM: A Search Space Odyssey, arXiv 1503.04069; the forget gate is what the input gate leaves")
def lstm_coupled(x, h, c):
    i = sigmoid(affine("i", x, h))
    g = tanh(affine("g", x, h))
    o = sigmoid(affine("o", x, h))
    c = (1 - i) * c + i * g
    h = o * tanh(c)
    return h, State(h=h, c=c)


@cell(paper="Sak, Senior & Beaufays 2014, arXiv 1402.1128; the form of cuDNN and torch, without peepholes")
def lstm_projected(x, h: Vec("proj"), c):
    i = sigmoid(affine("i", x, h))
    f = sigmoid(affine("f", x, h))
    g = tanh(affine("g", x, h))
    o = sigmoid(affine("o", x, h))
    c = f * c + i * g
    h = matrix("weight_hr", "proj", "hidden") @ (o * tanh(c))
    return h, State(h=h, c=c)
