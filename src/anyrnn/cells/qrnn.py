"""The quasi-recurrent network with its three kinds of pooling, over convolutions of width 2: `past` is the input before."""

from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Bradbury et al. 2017, Quasi-Recurrent Neural Networks, arXiv 1611.01576; f-pooling")
def qrnn_f(x, h, past: Vec("input")):
    z = tanh(affine("z", x, past))
    f = sigmoid(affine("f", x, past))
    h = f * h + (1 - f) * z
    return h, State(h=h, past=x)


@cell(paper="Bradbury et al. 2017, Quasi-Recurrent Neural Networks, arXiv 1611.01576; fo-pooling")
def qrnn_fo(x, c, past: Vec("input")):
    z = tanh(affine("z", x, past))
    f = sigmoid(affine("f", x, past))
    o = sigmoid(affine("o", x, past))
    c = f * c + (1 - f) * z
    h = o * c
    return h, State(c=c, past=x)


@cell(paper="Bradbury et al. 2017, Quasi-Recurrent Neural Networks, arXiv 1611.01576; ifo-pooling")
def qrnn_ifo(x, c, past: Vec("input")):
    z = tanh(affine("z", x, past))
    f = sigmoid(affine("f", x, past))
    o = sigmoid(affine("o", x, past))
    i = sigmoid(affine("i", x, past))
    c = f * c + i * z
    h = o * c
    return h, State(c=c, past=x)
