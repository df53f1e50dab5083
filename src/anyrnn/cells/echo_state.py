"""The echo state network: a random reservoir that is not trained; what reads it is."""

import numpy as np

from anyrnn.trace import State, cell
from anyrnn.trace.initial import uniform
from anyrnn.trace.language import matrix, tanh, vector


def radius_of_one(shape, random):
    W = random.uniform(-1, 1, shape)
    return W / np.abs(np.linalg.eigvals(W)).max()


# The first paper has no leak (1.0). Feedback from the readout is left out; many reservoirs are sparse, this one is dense.
@cell(paper='Jaeger 2001, The "echo state" approach to analysing and training recurrent networks; leak: Jaeger et al. 2007')
def echo_state(x, h, *, leak=1.0, spectral_radius=0.9, input_scaling=1.0):
    W_in, W = matrix("W_in", "hidden", "input", uniform(-1, 1), trained=False), matrix("W", init=radius_of_one, trained=False)
    b = vector("b", init=uniform(-1, 1), trained=False)
    n = tanh(input_scaling * (W_in @ x + b) + (spectral_radius * W) @ h)
    h = (1 - leak) * h + leak * n
    return h, State(h=h)
