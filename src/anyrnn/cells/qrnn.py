"""The quasi-recurrent network with its three kinds of pooling, over convolutions of width 2: `z_1` and the like are what an input
gives to the gates one step later.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh

PAPER = "Bradbury et al. 2017, Quasi-Recurrent Neural Networks, arXiv 1611.01576"


def later(gate, x):
    return affine(f"{gate}_1", x, bias=False)


@cell(paper=f"{PAPER}; f-pooling")
def qrnn_f(x, h, z_1, f_1):
    z = tanh(affine("z", x) + z_1)
    f = sigmoid(affine("f", x) + f_1)
    h = f * h + (1 - f) * z
    return h, State(h=h, z_1=later("z", x), f_1=later("f", x))


@cell(paper=f"{PAPER}; fo-pooling")
def qrnn_fo(x, c, z_1, f_1, o_1):
    z = tanh(affine("z", x) + z_1)
    f = sigmoid(affine("f", x) + f_1)
    o = sigmoid(affine("o", x) + o_1)
    c = f * c + (1 - f) * z
    h = o * c
    return h, State(c=c, z_1=later("z", x), f_1=later("f", x), o_1=later("o", x))


@cell(paper=f"{PAPER}; ifo-pooling")
def qrnn_ifo(x, c, z_1, f_1, o_1, i_1):
    z = tanh(affine("z", x) + z_1)
    f = sigmoid(affine("f", x) + f_1)
    o = sigmoid(affine("o", x) + o_1)
    i = sigmoid(affine("i", x) + i_1)
    c = f * c + i * z
    h = o * c
    return h, State(c=c, z_1=later("z", x), f_1=later("f", x), o_1=later("o", x), i_1=later("i", x))
