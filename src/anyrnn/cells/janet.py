"""JANET, just another network: an LSTM with its forget gate alone. One state is both h and c, which are equal."""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import chrono
from anyrnn.trace.language import affine, sigmoid, tanh


# Chrono initialisation as in the paper, for dependencies of up to 100 steps; the paper takes the longest of its task.
# torchrecurrent trains beta.
@cell(
    paper="van der Westhuizen & Lasenby 2018, The Unreasonable Effectiveness of the Forget Gate, arXiv 1804.04849",
    init={"bias_ih f": chrono(100.0), "bias_ih c": 0.0, "bias_hh": 0.0},
)
def janet(x, h, *, beta=1.0):
    s = affine("f", x, h)
    c_tilde = tanh(affine("c", x, h))
    h = sigmoid(s) * h + (1 - sigmoid(s - beta)) * c_tilde
    return h, State(h=h)
