"""The Legendre memory unit: fixed matrices hold the last `theta` steps of one signal as a sum of Legendre polynomials."""

import numpy as np

from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import affine, matrix, tanh, vector


def legendre(order, theta):
    """A and B of the paper for steps of length 1, the signal being held between them (zero-order hold), as [A, B]."""
    i, j = np.indices((order, order + 1))
    rates = np.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    rates[:, -1] = (-1.0) ** i[:, 0]
    system = np.zeros((order + 1, order + 1))
    system[:-1] = rates * (2 * i + 1) / theta
    halvings = max(0, int(np.log2(np.abs(system).sum(1).max())) + 2)
    power = term = np.eye(order + 1)
    for k in range(1, 20):
        term = term @ system / (k * 2**halvings)
        power = power + term
    return np.linalg.matrix_power(power, 2**halvings)[:-1]


def lecun(shape, random):
    return random.uniform(-1, 1, shape) * (3 / shape[-1]) ** 0.5


def glorot(shape, random):
    return random.normal(0, (2 / sum(shape)) ** 0.5, shape)


# The paper names Euler steps and zero-order hold; its code has the latter. One memory, as in the paper; later code has many, and
# leaves connections out that are here.
@cell(
    paper="Voelker, Kajic & Eliasmith 2019, Legendre Memory Units: Continuous-Time Representation in RNNs, NeurIPS",
    init={
        "weight_ih": glorot,
        "weight_hh": glorot,
        "weight_mh": glorot,
        "weight_ih u": lecun,
        "weight_hh u": lecun,
        "weight_mh u": 0.0,
    },
)
def lmu(x, h, m: Vec("memory"), *, theta=100):
    A = matrix("A", "memory", "memory", init=lambda shape, random: legendre(shape[0], theta)[:, :-1], trained=False)
    B = vector("B", "memory", init=lambda shape, random: legendre(shape[0], theta)[:, -1], trained=False)
    u = affine("u", x, h, m, size=1, bias=False)
    m = A @ m + B * u
    h = tanh(affine("h", x, h, m, bias=False))
    return h, State(h=h, m=m)
