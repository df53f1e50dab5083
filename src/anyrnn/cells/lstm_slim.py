"""Three LSTMs with slimmer gates, which do not see the input."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh, vector

PAPER = "Lu & Salem 2017, Simplified Gating in Long Short-term Memory Recurrent Neural Networks, arXiv 1701.03441"


@cell(paper=f"{PAPER}; LSTM1, gates of the state and a bias")
def lstm_slim1(x, h, c):
    i = sigmoid(affine("i", h))
    f = sigmoid(affine("f", h))
    o = sigmoid(affine("o", h))
    c = f * c + i * tanh(affine("c", x, h))
    h = o * tanh(c)
    return h, State(h=h, c=c)


@cell(paper=f"{PAPER}; LSTM2, gates of the state alone")
def lstm_slim2(x, h, c):
    i = sigmoid(affine("i", h, bias=False))
    f = sigmoid(affine("f", h, bias=False))
    o = sigmoid(affine("o", h, bias=False))
    c = f * c + i * tanh(affine("c", x) + affine("c", h, bias=False))
    h = o * tanh(c)
    return h, State(h=h, c=c)


@cell(paper=f"{PAPER}; LSTM3, gates of a bias alone")
def lstm_slim3(x, h, c):
    i = sigmoid(vector("bias_i"))
    f = sigmoid(vector("bias_f"))
    o = sigmoid(vector("bias_o"))
    c = f * c + i * tanh(affine("c", x, h))
    h = o * tanh(c)
    return h, State(h=h, c=c)
