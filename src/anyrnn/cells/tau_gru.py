"""A gated unit with a second candidate, of the state some steps ago, and a gate that says how much of it there is."""

from anyrnn.trace import Several, State, cell
from anyrnn.trace.initial import xavier
from anyrnn.trace.language import affine, sigmoid, tanh


# First values as in torchrecurrent, whose delay is one step unless told otherwise. The paper chooses it for each task.
@cell(
    paper="Erichson, Lim & Mahoney 2022, Gated Recurrent Neural Networks with Weighted Time-Delay Feedback, arXiv 2212.00228",
    init={"weight_ih": xavier, "weight_hh": xavier, "bias_ih": 0.0, "bias_hh": 0.0},
)
def tau_gru(x, h, *past: Several("delay"), delay=10):
    u = tanh(affine("u", x, h))
    z = tanh(affine("z", x, h=past[-1]))
    g = sigmoid(affine("g", x, h))
    a = sigmoid(affine("a", x, h))
    past = (h, *past[:-1])
    h = (1 - g) * h + g * (u + a * z)
    return h, State(h=h, past=past)
