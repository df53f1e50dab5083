"""Networks whose recurrent matrix is antisymmetric: Euler steps of a differential equation that neither grows nor decays."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, sigmoid, tanh


def scaled_normal(shape, random):
    return random.normal(0, shape[-1] ** -0.5, shape)


@cell(
    paper="Chang et al. 2019, AntisymmetricRNN: A Dynamical System View on Recurrent Neural Networks, arXiv 1902.09689",
    init={"weight_ih": scaled_normal, "bias_ih": 0.0},
)
def antisymmetric_rnn(x, h, *, epsilon=0.1, gamma=0.01):
    W = matrix("W", init=scaled_normal)
    h = h + epsilon * tanh((W - W.T) @ h - gamma * h + affine("h", x))
    return h, State(h=h)


# torchrecurrent leaves its recurrent bias out of the gate; here, as in the paper, there is none.
@cell(
    paper="Chang et al. 2019, AntisymmetricRNN: A Dynamical System View on Recurrent Neural Networks, arXiv 1902.09689; gated",
    init={"weight_ih": scaled_normal, "bias_ih": 0.0},
)
def gated_antisymmetric_rnn(x, h, *, epsilon=0.1, gamma=0.01):
    W = matrix("W", init=scaled_normal)
    turned = (W - W.T) @ h - gamma * h
    z = sigmoid(turned + affine("z", x))
    h = h + epsilon * z * tanh(turned + affine("h", x))
    return h, State(h=h)
