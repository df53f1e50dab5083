"""The simple gated unit and its deep form: the input is multiplied into the state, and one gate says how much of it is new.

`slope` is that of the hard sigmoid: 0.2 in Theano and Keras when the paper was written. torchrecurrent has torch's, 1/6, and
another bias, in z_g.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, maximum, minimum, sigmoid, softplus, tanh


def hard_sigmoid(v, slope):
    return maximum(minimum(slope * v + 0.5, 1.0), 0.0)


@cell(paper="Gao & Glowacka 2016, Deep Gate Recurrent Neural Network, arXiv 1604.02910")
def sgu(x, h, *, slope=0.2):
    x_g = affine("g", x)
    z_g = tanh(matrix("W_zxh") @ (x_g * h))
    z_out = softplus(z_g * h)
    z = hard_sigmoid(affine("z", x, h), slope)
    h = (1 - z) * h + z * z_out
    return h, State(h=h)


@cell(paper="Gao & Glowacka 2016, Deep Gate Recurrent Neural Network, arXiv 1604.02910; the deep form")
def dsgu(x, h, *, slope=0.2):
    x_g = affine("g", x)
    z_g = tanh(matrix("W_zxh") @ (x_g * h))
    z_out = sigmoid(matrix("W_go") @ (z_g * h))
    z = hard_sigmoid(affine("z", x, h), slope)
    h = (1 - z) * h + z * z_out
    return h, State(h=h)
