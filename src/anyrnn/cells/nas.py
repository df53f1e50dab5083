"""The cell that neural architecture search found on the Penn Treebank."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, relu, sigmoid, tanh


# As in TensorFlow's NASCell, which has the biases of the state alone (a layer with bias="recurrent"). torchrecurrent and
# RecurrentLayers.jl have a sum in place of the product in o4.
@cell(paper="Zoph & Le 2017, Neural Architecture Search with Reinforcement Learning, arXiv 1611.01578")
def nas(x, h, c):
    o1 = sigmoid(affine("o1", x, h))
    o2 = relu(affine("o2", x, h))
    o3 = sigmoid(affine("o3", x, h))
    o4 = relu(affine("o4", x) * affine("o4", h))
    o5 = tanh(affine("o5", x, h))
    o6 = sigmoid(affine("o6", x, h))
    o7 = tanh(affine("o7", x, h))
    o8 = sigmoid(affine("o8", x, h))
    l1 = tanh(tanh(o1 * o2) + c)
    l2 = tanh(o3 + o4)
    l3 = tanh(o5 * o6)
    l4 = sigmoid(o7 + o8)
    c = l1 * l2
    h = tanh(c * tanh(l3 + l4))
    return h, State(h=h, c=c)
