"""The recurrent additive network: its state is a weighted sum of its inputs, and of nothing else."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# g is tanh or the identity in the paper. torchrecurrent and RecurrentLayers.jl document a bias of c, which only the latter has.
@cell(paper="Lee, Levy & Zettlemoyer 2017, Recurrent Additive Networks, arXiv 1705.07393")
def ran(x, h, c, *, g=tanh):
    content = affine("c", x, bias=False)
    i = sigmoid(affine("i", x, h))
    f = sigmoid(affine("f", x, h))
    c = i * content + f * c
    h = g(c)
    return h, State(h=h, c=c)
