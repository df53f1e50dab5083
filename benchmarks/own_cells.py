"""Cells that the suite times and the package does not bring: written as a user would."""

from anyrnn import State, affine, cell, sigmoid


@cell(paper="Feng et al. 2024, Were RNNs All We Needed?, arXiv 2410.01201")
def mingru(x, h):
    z = sigmoid(affine("z", x))
    g = affine("g", x)
    h = (1 - z) * h + z * g
    return h, State(h=h)
