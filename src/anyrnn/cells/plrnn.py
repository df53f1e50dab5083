"""The piecewise-linear network: linear between the planes where a feature changes its sign."""

import numpy as np

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, relu, vector


def off_diagonal(shape, random):
    return 1 - np.eye(*shape)


def small(shape, random):
    return random.normal(0, 0.2 * shape[-1] ** -0.5, shape)


# h is the paper's z, without its noise, and the bias is the paper's h. First values are chosen such that states do not grow.
@cell(paper="Koppe et al. 2019, Identifying nonlinear dynamical systems via generative RNNs, doi 10.1371/journal.pcbi.1007263")
def plrnn(x, h):
    A = vector("A", init=0.5)
    W = matrix("off_diagonal", init=off_diagonal, trained=False) * matrix("W", init=small)
    h = A * h + W @ relu(h) + affine("h", x)
    return h, State(h=h)
