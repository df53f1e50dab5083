"""The structurally constrained network: beside a fast state a slow one, the context."""

from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import affine, sigmoid


# y is the paper's output but for the function around it, which is left to what comes next. torchrecurrent and RecurrentLayers.jl
# have tanh around it, take that for the next step's h, and train alpha.
@cell(paper="Mikolov et al. 2014, Learning Longer Memory in Recurrent Neural Networks, arXiv 1412.7753")
def scrn(x, h, s: Vec("context"), *, alpha=0.95):
    s = (1 - alpha) * affine("s", x, size="context", bias=False) + alpha * s
    h = sigmoid(affine("h", x, h, s, bias=False))
    y = affine("y", h, s, bias=False)
    return y, State(h=h, s=s)
