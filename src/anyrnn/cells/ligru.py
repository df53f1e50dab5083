"""The light gated recurrent unit: one gate and a rectifier. The paper normalises the products of the input over the training
batch, which is left out: steps know one sample. RecurrentLayers.jl has tanh in place of the rectifier.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import orthogonal, xavier
from anyrnn.trace.language import affine, relu, sigmoid


@cell(
    paper="Ravanelli et al. 2018, Light Gated Recurrent Units for Speech Recognition, arXiv 1803.10225; no batch normalisation",
    init={"weight_ih": xavier, "weight_hh": orthogonal, "bias_ih": 0.0, "bias_hh": 0.0},
)
def ligru(x, h):
    z = sigmoid(affine("z", x, h))
    n = relu(affine("n", x, h))
    h = z * h + (1 - z) * n
    return h, State(h=h)
