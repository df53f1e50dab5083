"""The simple recurrent network with a rectifier, which at first keeps what it has: IRNN."""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import identity, normal
from anyrnn.trace.language import affine, relu


@cell(
    paper="Le, Jaitly & Hinton 2015, A Simple Way to Initialize Recurrent Networks of Rectified Linear Units, arXiv 1504.00941",
    init={"weight_ih": normal(0.001), "weight_hh": identity, "bias_ih": 0.0, "bias_hh": 0.0},
)
def rnn_identity(x, h):
    h = relu(affine("h", x, h))
    return h, State(h=h)
