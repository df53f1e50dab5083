"""The simple gated recurrent network: one gate, and one matrix of the input for it and for the new state."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# The new state has no bias, as RecurrentLayers.jl documents it; its code, and torchrecurrent, add the gate's to it.
@cell(paper="Zu 2020, A Simple Gated Recurrent Network for Detection of Power Quality Disturbances, doi 10.1049/gtd2.12056")
def sgrn(x, h):
    w_x = affine("f", x, bias=False)
    f = sigmoid(w_x + affine("f", h))
    i = 1 - f
    h = tanh(i * w_x + f * h)
    return h, State(h=h)
