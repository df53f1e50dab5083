"""The recurrent highway network: several highway layers within one step, the first of which sees the input.

The carry gate is what the transform gate leaves, as in the paper's experiments and the authors' code.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh, vector


@cell(paper="Zilly et al. 2017, Recurrent Highway Networks, arXiv 1607.03474")
def rhn(x, s, *, depth=3):
    for level in range(1, depth + 1):
        u = x if level == 1 else None
        h = tanh(affine(f"h{level}", u, s, bias=False) + vector(f"bias_h{level}", init=0.0))
        t = sigmoid(affine(f"t{level}", u, s, bias=False) + vector(f"bias_t{level}", init=-2.0))
        s = h * t + s * (1 - t)
    return s, State(s=s)
