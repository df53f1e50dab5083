"""The minimal network: the input as a vector of the state's space, and one gate. RecurrentLayers.jl has the last step's z in the
gate.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Chen 2017, MinimalRNN: Toward More Interpretable and Trainable Recurrent Neural Networks, arXiv 1711.06788")
def minimal_rnn(x, h):
    z = tanh(affine("z", x))
    u = sigmoid(affine("u", h, z))
    h = u * h + (1 - u) * z
    return h, State(h=h)
