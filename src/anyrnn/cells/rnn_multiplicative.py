"""The multiplicative network: the input chooses the recurrent matrix, whose product with the state goes through `factors`."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, tanh


@cell(paper="Sutskever, Martens & Hinton 2011, Generating Text with Recurrent Neural Networks")
def rnn_multiplicative(x, h):
    f = (matrix("W_fx", "factors", "input") @ x) * (matrix("W_fh", "factors", "hidden") @ h)
    h = tanh(affine("h", x, f))
    return h, State(h=h)
