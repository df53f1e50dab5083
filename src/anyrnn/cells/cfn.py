"""The chaos-free network: without inputs its state goes to zero, so that W x has no bias; torchrecurrent and RecurrentLayers.jl
have one there.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import uniform
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(
    paper="Laurent & von Brecht 2017, A Recurrent Neural Network without Chaos, arXiv 1612.06212",
    init={
        "weight_ih": uniform(-0.07, 0.07),
        "weight_hh": uniform(-0.07, 0.07),
        "bias_hh theta": 1.0,
        "bias_hh eta": -1.0,
    },
)
def cfn(x, h):
    theta = sigmoid(affine("theta", h) + affine("theta", x, bias=False))
    eta = sigmoid(affine("eta", h) + affine("eta", x, bias=False))
    h = theta * tanh(h) + eta * tanh(affine("w", x, bias=False))
    return h, State(h=h)
