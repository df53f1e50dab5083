"""The real-gated linear recurrent unit: a diagonal recurrence whose forgetting and whose input are gated by the input.

The linear layer before it, which gives the input the hidden size, is part of the paper's recurrent block; with `skip_input` there
is none. The authors' code, other than the paper, has block-diagonal matrices for gates, -Lambda in the place of Lambda, and 1 in
the place of the root at the first step. There the gradient of the root is at most 1000; here 1 - a * a is computed such that it
is not 0 where a is all but 1, as where a gate is shut.
"""

import numpy as np

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, exp, maximum, sigmoid, softplus, sqrt, tanh, vector


def slowly(shape, random):
    """a = sigmoid(Lambda), where a**8 is uniform from 0.9 to 0.999; in the authors' code it is a itself that is near there."""
    a = random.uniform(0.9, 0.999, shape) ** (1 / 8)
    return np.log(a / (1 - a))


@cell(paper="De et al. 2024, Griffin: Mixing Gated Linear Recurrences with Local Attention, arXiv 2402.19427")
def rg_lru(x, h, *, c=8.0):
    u = affine("u", x, bias=False)
    r = sigmoid(affine("r", u=u))
    i = sigmoid(affine("i", u=u))
    log_a = -softplus(-vector("Lambda", init=slowly))
    log_a_r = c * r * log_a
    a = exp(log_a_r)
    rest = -tanh(log_a_r) * (1 + a * a)  # 1 - a * a, which loses its digits near 0
    h = a * h + sqrt(maximum(rest, 1e-30)) * (i * u)
    return h, State(h=h)
