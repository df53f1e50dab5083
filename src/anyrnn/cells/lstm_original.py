"""The first long short-term memory, whose cell state nothing forgets."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# Where tanh is, the paper has any squashing functions, in its experiments 4 sigmoid(x) - 2 and 2 sigmoid(x) - 1.
@cell(paper="Hochreiter & Schmidhuber 1997, Long Short-Term Memory; without a forget gate")
def lstm_original(x, h, c):
    i = sigmoid(affine("i", x, h))
    g = tanh(affine("g", x, h))
    o = sigmoid(affine("o", x, h))
    c = c + i * g
    h = o * tanh(c)
    return h, State(h=h, c=c)
