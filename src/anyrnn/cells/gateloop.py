"""A diagonal complex recurrence whose size and angle come from the input, between keys, values and queries.

With as many heads as features, as the paper has it in practice, so that the state is a vector; with fewer it is a matrix. Other
implementations take size and angle from one complex number, sigmoid(|a|) and its angle.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, cos, sigmoid, sin


@cell(paper="Katsch 2023, GateLoop: Fully Data-Controlled Linear Recurrence for Sequence Modeling, arXiv 2311.01927")
def gateloop(x, h_re, h_im):
    q, k, v = affine("q", x), affine("k", x), affine("v", x)
    size, angle = sigmoid(affine("alpha", x)), affine("beta", x)
    a_re, a_im = size * cos(angle), size * sin(angle)
    h_re, h_im = a_re * h_re - a_im * h_im + k * v, a_im * h_re + a_re * h_im
    y = q * h_re
    return y, State(h_re=h_re, h_im=h_im)
