"""Small networks: a weighted residual connection with two numbers more than a simple network has, and gates of the same matrices.

With a rank, a matrix is the product of two; 0 is for a whole one.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import normal
from anyrnn.trace.language import affine, scalar, sigmoid, tanh, vector


def reduced(name, value, rank):
    return affine(name, value, size=rank, bias=False) if rank else value


# First values are the authors' code's; those of alpha and beta are exchanged in torchrecurrent and RecurrentLayers.jl.
@cell(
    paper="Kusupati et al. 2018, FastGRNN: A Fast, Accurate, Stable and Tiny Gated Recurrent Neural Network, arXiv 1901.02358",
    init={"weight_ih": normal(0.1), "weight_hh": normal(0.1), "bias_ih": 1.0, "bias_hh": 0.0},
)
def fastrnn(x, h, *, rank_w=0, rank_u=0):
    w, u = reduced("w", x, rank_w), reduced("u", h, rank_u)
    n = tanh(affine("n", w, u))
    h = sigmoid(scalar("alpha", init=-3.0)) * n + sigmoid(scalar("beta", init=3.0)) * h
    return h, State(h=h)


# torchrecurrent and RecurrentLayers.jl have tanh around the gate too, unless told otherwise.
@cell(
    paper="Kusupati et al. 2018, FastGRNN: A Fast, Accurate, Stable and Tiny Gated Recurrent Neural Network, arXiv 1901.02358",
    init={"weight_ih": normal(0.1), "weight_hh": normal(0.1)},
)
def fastgrnn(x, h, *, rank_w=0, rank_u=0):
    w, u = reduced("w", x, rank_w), reduced("u", h, rank_u)
    product = affine("n", w, u, bias=False)
    z = sigmoid(product + vector("bias_z", init=1.0))
    n = tanh(product + vector("bias_n", init=1.0))
    h = (sigmoid(scalar("zeta", init=1.0)) * (1 - z) + sigmoid(scalar("nu", init=-4.0))) * n + z * h
    return h, State(h=h)
