"""GRU and LSTM without what hinders a scan over time: gates and candidates see the input alone.

The candidate is linear, as in the paper's section 3; the function g that makes it positive is of its log-space form, which is for
computing the same kind of recurrence by a scan.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid


@cell(paper="Feng et al. 2024, Were RNNs All We Needed?, arXiv 2410.01201")
def mingru(x, h):
    z = sigmoid(affine("z", x))
    h_tilde = affine("h", x)
    h = (1 - z) * h + z * h_tilde
    return h, State(h=h)


@cell(paper="Feng et al. 2024, Were RNNs All We Needed?, arXiv 2410.01201; with gates that add up to one")
def minlstm(x, h):
    f = sigmoid(affine("f", x))
    i = sigmoid(affine("i", x))
    h_tilde = affine("h", x)
    h = f / (f + i) * h + i / (f + i) * h_tilde
    return h, State(h=h)
