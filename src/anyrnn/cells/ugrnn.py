"""The update gate network: an Elman network with one gate. It begins as the authors' own cell in TensorFlow does, remembering."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(
    paper="Collins, Sohl-Dickstein & Sussillo 2016, Capacity and Trainability in Recurrent Neural Networks, arXiv 1611.09913",
    init={"bias_ih g": 1.0, "bias_hh g": 0.0},
)
def ugrnn(x, h):
    c = tanh(affine("c", x, h))
    g = sigmoid(affine("g", x, h))
    h = g * h + (1 - g) * c
    return h, State(h=h)
