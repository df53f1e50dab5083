"""The simple recurrent network whose recurrent matrix is a product of two thin ones."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, tanh


@cell(paper="Lu, Sindhwani & Sainath 2016, Learning Compact Recurrent Neural Networks, arXiv 1604.02594")
def rnn_low_rank(x, h):
    h = tanh(affine("h", x) + matrix("U", "hidden", "rank") @ (matrix("V", "rank", "hidden") @ h))
    return h, State(h=h)
