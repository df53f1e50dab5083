"""GRU whose update gate an attention score scales: at a score of 1 a step takes the new value whole. That is the form of the
authors' code, oneDNN and OpenVINO; in the paper the score scales what is taken of the new value, and at 0 the state is kept.
"""

from anyrnn.trace import State, Step, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Zhou et al. 2019, Deep Interest Evolution Network, arXiv 1809.03672; the form of oneDNN")
def augru(x, h, a: Step(1)):
    u = sigmoid(affine("u", x, h))
    r = sigmoid(affine("r", x, h))
    o = tanh(affine("o", x, h=r * h))
    u_a = (1 - a) * u
    h = u_a * h + (1 - u_a) * o
    return h, State(h=h)
