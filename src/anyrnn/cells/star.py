"""The stackable recurrent cell, for deep stacks. The authors' code has sigmoid(f) for 1 - k and 1 - sigmoid(f - 1) for k, so
that more comes in than is forgotten; the first values here are that code's, with a gate that remembers.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import orthogonal
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(
    paper="Turkoglu et al. 2021, Gating Revisited: Deep Multi-layer RNNs That Can Be Trained, arXiv 1911.11033",
    init={
        "weight_ih": orthogonal,
        "weight_hh": orthogonal,
        "bias_ih z": 0.0,
        "bias_ih k": -1.0,
        "bias_hh": 0.0,
    },
)
def star(x, h):
    z = tanh(affine("z", x))
    k = sigmoid(affine("k", x, h))
    h = tanh((1 - k) * h + k * z)
    return h, State(h=h)
