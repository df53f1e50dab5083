"""The shuffling network: the features of the state are permuted, and a function of the input alone is added."""

import numpy as np

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, relu, sigmoid


def turn(shape, random):
    """Each feature goes to the place of the next, the last one to that of the first."""
    return np.roll(np.eye(shape[0]), 1, axis=0)


# In the authors' code the layer in between has a size of its own (64); here it has the hidden one.
@cell(paper="Rotman & Wolf 2021, Shuffling Recurrent Neural Networks, AAAI 35, arXiv 2007.07324")
def srnn(x, h):
    P = matrix("P", init=turn, trained=False)
    f = relu(affine("f", x))
    b = affine("b", f) * sigmoid(affine("s", x))
    h = relu(P @ h + b)
    return h, State(h=h)
