"""The multiplicative LSTM: the input chooses the matrix that the hidden state goes through."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# The two factors of m have no biases in the paper; in torchrecurrent both have one. In some code by its authors the output gate
# is inside of the tangent, tanh(o * c), and h_hat goes through none; here as in torchrecurrent.
@cell(paper="Krause et al. 2017, Multiplicative LSTM for Sequence Modelling, arXiv 1609.07959")
def lstm_multiplicative(x, h, c):
    m = affine("m", x, bias=False) * affine("m", h, bias=False)
    h_hat = affine("h", x, m)
    i = sigmoid(affine("i", x, m))
    o = sigmoid(affine("o", x, m))
    f = sigmoid(affine("f", x, m))
    c = f * c + i * tanh(h_hat)
    h = tanh(c) * o
    return h, State(h=h, c=c)
