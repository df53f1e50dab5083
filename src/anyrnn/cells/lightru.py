"""The light recurrent unit: one gate, and a new value of the input alone. In the paper the gate alone has a bias; in
torchrecurrent and RecurrentLayers.jl the new value has one too.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Ye et al. 2024, Light Recurrent Unit, Electronics 13(16) 3204, doi 10.3390/electronics13163204")
def lightru(x, h):
    n = tanh(affine("n", x, bias=False))
    f = sigmoid(affine("f", h) + affine("f", x, bias=False))
    h = (1 - f) * h + f * n
    return h, State(h=h)
