"""Minion recurrent units: GRUs with fixed numbers in place of the update gate, and in the second also of the reset gate. The
defaults are those of torchrecurrent and RecurrentLayers.jl, which call beta theta.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


@cell(paper="Zyarah & Kudithipudi 2025, Minion Gated Recurrent Unit for Continual Learning, arXiv 2503.06175; MiRU-1")
def miru1(x, h, *, lambda_=0.5):
    r = sigmoid(affine("r", x, h))
    n = tanh(affine("n", x, h=r * h))
    h = lambda_ * h + (1 - lambda_) * n
    return h, State(h=h)


@cell(paper="Zyarah & Kudithipudi 2025, Minion Gated Recurrent Unit for Continual Learning, arXiv 2503.06175; MiRU-2")
def miru2(x, h, *, beta=0.5, lambda_=0.5):
    n = tanh(affine("n", x, h=beta * h))
    h = lambda_ * h + (1 - lambda_) * n
    return h, State(h=h)
