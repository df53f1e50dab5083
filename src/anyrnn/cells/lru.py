"""The linear recurrent unit: a diagonal complex recurrence inside the unit circle, then a linear readout.

The matrix of the input in the readout is a diagonal in the authors' code, where input and output have one size. The squared
radii of the ring are spread evenly rather than drawn, so that gamma begins as that of the same eigenvalues.
"""

import numpy as np

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, cos, exp, matrix, sin, vector

LEAST, MOST, PHASE = 0.0, 1.0, 6.28  # radii of the ring, the largest phase


def squared_radii(count):
    return LEAST**2 + (MOST**2 - LEAST**2) * (np.arange(count) + 0.5) / count


def nu_log(shape, random):
    return np.log(-0.5 * np.log(squared_radii(shape[0])))


def theta_log(shape, random):
    return np.log(PHASE * (1 - random.random(shape)))


def gamma_log(shape, random):
    return 0.5 * np.log(1 - squared_radii(shape[0]))


def glorot(halves):
    return lambda shape, random: random.normal(size=shape) / np.sqrt(halves * shape[1])


@cell(
    paper="Orvieto et al. 2023, Resurrecting Recurrent Neural Networks for Long Sequences, arXiv 2303.06349",
    init={"weight_ih re": glorot(2), "weight_ih im": glorot(2), "weight_ih y": glorot(1)},
)
def lru(x, h_re, h_im):
    nu, theta = exp(vector("nu_log", init=nu_log)), exp(vector("theta_log", init=theta_log))
    lambda_re, lambda_im = exp(-nu) * cos(theta), exp(-nu) * sin(theta)
    gamma = exp(vector("gamma_log", init=gamma_log))
    h_re, h_im = (
        lambda_re * h_re - lambda_im * h_im + gamma * affine("re", x, bias=False),
        lambda_im * h_re + lambda_re * h_im + gamma * affine("im", x, bias=False),
    )
    y = matrix("C_re", init=glorot(1)) @ h_re - matrix("C_im", init=glorot(1)) @ h_im + affine("y", x, bias=False)
    return y, State(h_re=h_re, h_im=h_im)
