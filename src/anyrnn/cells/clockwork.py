"""The clockwork network: modules that move every 1, 2, 4, .. steps, each of which sees itself and slower ones."""

import numpy as np

from anyrnn.trace import Scalar, State, cell
from anyrnn.trace.language import affine, floor, matrix, tanh, vector, where


def periods(size, modules):
    """Of each feature; modules are of equal size, as far as the number of features allows."""
    return 2 ** (np.arange(size) * modules // size)


def sees(T):
    return T[:, None] <= T


def remainder(steps, period):
    return steps - floor(steps / period) * period


# Steps are counted from 0, at which all modules move. The blocks of W that the paper leaves out are multiplied by 0.
@cell(paper="Koutnik et al. 2014, A Clockwork RNN, arXiv 1402.3511; periods are powers of two")
def clockwork(x, h, t: Scalar(), *, modules=4):
    T = vector("T", init=lambda shape, random: periods(shape[0], modules), trained=False)
    mask = matrix("mask", init=lambda shape, random: sees(periods(shape[0], modules)), trained=False)
    n = tanh(affine("h", x) + (mask * matrix("W")) @ h)
    h = where(remainder(t, T) < 1, n, h)
    return h, State(h=h, t=remainder(t + 1, 2 ** (modules - 1)))
