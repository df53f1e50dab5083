"""The simple recurrent network, with the two activations that cuDNN and torch have."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, relu, tanh


@cell(paper="Elman 1990, Finding Structure in Time")
def rnn_tanh(x, h):
    h = tanh(affine("h", x, h))
    return h, State(h=h)


@cell(paper="Elman 1990, Finding Structure in Time; with a rectifier: Le, Jaitly & Hinton 2015, arXiv 1504.00941")
def rnn_relu(x, h):
    h = relu(affine("h", x, h))
    return h, State(h=h)
