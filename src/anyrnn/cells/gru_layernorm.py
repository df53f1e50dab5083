"""GRU with layer normalisation of both products. Ba et al. leave open over what: here, as in haste, each product's gates are
normalised together, with a gain and a bias for each product.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import orthogonal, xavier
from anyrnn.trace.language import affine, norm, sigmoid, split, tanh, vector


def normalised(operand, value):
    size = value.shape[0]
    return vector(f"gain_{operand}", size, init=1.0) * norm(value) + vector(f"shift_{operand}", size, init=0.0)


@cell(
    paper="Ba, Kiros & Hinton 2016, Layer Normalization, arXiv 1607.06450; the form of haste, reset after the product",
    init={"weight_ih": xavier, "weight_hh": orthogonal},
)
def gru_layernorm(x, h):
    of_x = normalised("x", affine("z r g", x, bias=False))
    of_h = normalised("h", affine("z r g", h, bias=False))
    (x_z, x_r, x_g), (h_z, h_r, h_g) = split(of_x, 3), split(of_h, 3)
    z = sigmoid(x_z + h_z)
    r = sigmoid(x_r + h_r)
    g = tanh(x_g + r * h_g)
    h = z * h + (1 - z) * g
    return h, State(h=h)
