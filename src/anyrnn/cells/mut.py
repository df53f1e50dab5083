"""The three mutations of the gated recurrent unit that a search found. In the paper, MUT1 has tanh(x) and MUT2 has x without a
matrix, which takes an input of the state's size; here, as in torchrecurrent and RecurrentLayers.jl, they have one.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Jozefowicz, Zaremba & Sutskever 2015, An Empirical Exploration of Recurrent Network Architectures; MUT1")
def mut1(x, h):
    z = sigmoid(affine("z", x))
    r = sigmoid(affine("r", x, h))
    n = tanh(affine("n", h=r * h) + tanh(affine("n", x)))
    h = n * z + h * (1 - z)
    return h, State(h=h)


@cell(paper="Jozefowicz, Zaremba & Sutskever 2015, An Empirical Exploration of Recurrent Network Architectures; MUT2")
def mut2(x, h):
    z = sigmoid(affine("z", x, h))
    r = sigmoid(affine("r", x, h))
    n = tanh(affine("n", x, h=r * h))
    h = n * z + h * (1 - z)
    return h, State(h=h)


# torchrecurrent documents MUT3 with the equations of MUT2, and computes these.
@cell(paper="Jozefowicz, Zaremba & Sutskever 2015, An Empirical Exploration of Recurrent Network Architectures; MUT3")
def mut3(x, h):
    z = sigmoid(affine("z", x, h=tanh(h)))
    r = sigmoid(affine("r", x, h))
    n = tanh(affine("n", x, h=r * h))
    h = n * z + h * (1 - z)
    return h, State(h=h)
