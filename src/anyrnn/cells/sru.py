"""The simple recurrent unit: gates see the cell state feature by feature, and a highway carries the input to the output.

The paper has the input itself in the highway, which then must have the output's size; here it goes through a matrix, as in the
authors' code where sizes differ. That matrix begins as the identity where they do not.
"""

import math

from anyrnn.trace import State, cell
from anyrnn.trace.initial import identity, uniform
from anyrnn.trace.language import affine, matrix, sigmoid, vector


def scaled(variance):
    """Uniform, of a variance of so much divided by the number of columns."""
    return lambda shape, random: uniform(-1, 1)(shape, random) * math.sqrt(3 * variance / shape[1])


def carried(shape, random):
    return identity(shape, random) if shape[0] == shape[1] else scaled(1.0)(shape, random)


@cell(
    paper="Lei et al. 2018, Simple Recurrent Units for Highly Parallelizable Recurrence, arXiv 1709.02755v5; first values as in"
    " the authors' code",
    init={"weight_ih": scaled(0.5), "bias_ih": 0.0},
)
def sru(x, c, *, alpha=3**0.5):  # sqrt(1 + 2 exp(b)), where b is what biases of r begin as
    f = sigmoid(affine("f", x) + vector("v_f", init=uniform(-(1.5**0.5), 1.5**0.5)) * c)
    r = sigmoid(affine("r", x) + vector("v_r", init=uniform(-(1.5**0.5), 1.5**0.5)) * c)
    c = f * c + (1 - f) * (matrix("W", "hidden", "input", init=scaled(1.0)) @ x)
    h = r * c + (1 - r) * alpha * (matrix("W_x", "hidden", "input", init=carried) @ x)
    return h, State(c=c)
