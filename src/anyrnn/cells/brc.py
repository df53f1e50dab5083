"""Bistable recurrent cells, whose features see themselves alone, and neuromodulated ones, whose gates see the whole state. The
biases are those of the authors' code; the paper writes none, torchrecurrent and RecurrentLayers.jl have one more, in the new
value. In RecurrentLayers.jl the gates of the neuromodulated cell do not see the state.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import xavier
from anyrnn.trace.language import affine, sigmoid, tanh, vector


@cell(
    paper="Vecoven, Ernst & Drion 2021, A Bio-inspired Bistable Recurrent Cell, doi 10.1371/journal.pone.0252676; BRC",
    init={"weight_ih": xavier},
)
def brc(x, h):
    a = 1 + tanh(affine("a", x, bias=False) + vector("recurrent_a", init=1.0) * h + vector("bias_a", init=0.0))
    c = sigmoid(affine("c", x, bias=False) + vector("recurrent_c", init=1.0) * h + vector("bias_c", init=0.0))
    h = c * h + (1 - c) * tanh(affine("h", x, bias=False) + a * h)
    return h, State(h=h)


@cell(
    paper="Vecoven, Ernst & Drion 2021, A Bio-inspired Bistable Recurrent Cell, doi 10.1371/journal.pone.0252676; nBRC",
    init={"weight_ih": xavier, "weight_hh": xavier, "bias_hh": 0.0},
)
def nbrc(x, h):
    a = 1 + tanh(affine("a", h) + affine("a", x, bias=False))
    c = sigmoid(affine("c", h) + affine("c", x, bias=False))
    h = c * h + (1 - c) * tanh(affine("h", x, bias=False) + a * h)
    return h, State(h=h)
