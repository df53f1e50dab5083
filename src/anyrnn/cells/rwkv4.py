"""The time mixing of RWKV-4: an average of values, weighted by keys that decay with time, in a form that never overflows.

`a` and `b` are numerator and denominator, both times exp(-p). First values are those of the authors' first layer, but for the
output's matrix: it begins at the layer's default, not at zero, since nothing goes around it here.
"""

import numpy as np

from anyrnn.trace import State, Vec, cell
from anyrnn.trace.initial import orthogonal
from anyrnn.trace.language import affine, exp, matrix, maximum, sigmoid, vector


def decay(shape, random):
    return -5 + 8 * (np.arange(shape[0]) / max(1, shape[0] - 1)) ** 0.7


def bonus(shape, random):
    return np.log(0.3) + 0.5 * ((np.arange(shape[0]) + 1) % 3 - 1)


def mixing(power):
    return lambda shape, random: (np.arange(shape[0]) / shape[0]) ** power


# p begins below all keys, at -1e38 in the paper, a number that float16 has not.
@cell(
    paper="Peng et al. 2023, RWKV: Reinventing RNNs for the Transformer Era, arXiv 2305.13048",
    init={"weight_ih r": 0.0, "weight_ih k": 0.0, "weight_ih v": orthogonal},
)
def rwkv4(x, past: Vec("input"), a, b, p: Vec(init=-6e4)):
    mu_r, mu_k, mu_v = (vector(f"mu_{g}", "input", init=mixing(0.5 if g == "r" else 1.0)) for g in "rkv")
    r = sigmoid(affine("r", i=mu_r * x + (1 - mu_r) * past, bias=False))
    k = affine("k", i=mu_k * x + (1 - mu_k) * past, bias=False)
    v = affine("v", i=mu_v * x + (1 - mu_v) * past, bias=False)
    w, u = exp(vector("w_log", init=decay)), vector("u", init=bonus)
    q = maximum(p, u + k)
    e1, e2 = exp(p - q), exp(u + k - q)
    wkv = (e1 * a + e2 * v) / (e1 * b + e2)
    q = maximum(p - w, k)
    e3, e4 = exp(p - w - q), exp(k - q)
    a, b, p = e3 * a + e4 * v, e3 * b + e4, q
    y = matrix("W_o") @ (r * wkv)
    return y, State(past=x, a=a, b=b, p=p)
