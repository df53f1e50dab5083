"""eLSTM: gates see the state element by element, so that its gradient can be carried forward."""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import normal
from anyrnn.trace.language import affine, sigmoid, tanh, vector


# The paper writes no biases; the authors' code has them. First values are those of that code.
@cell(
    paper="Irie et al. 2023, Exploring the Promise and Limits of Real-Time Recurrent Learning, arXiv 2305.19044",
    init={"weight_ih f": normal(0.1), "weight_ih z": normal(0.1), "bias_ih f": normal(0.1), "bias_ih z": normal(0.1)},
)
def elstm(x, c):
    f = sigmoid(affine("f", x) + vector("w_f", init=normal(0.1)) * c)
    z = tanh(affine("z", x) + vector("w_z", init=normal(0.1)) * c)
    c = f * c + (1 - f) * z
    o = sigmoid(affine("o", x, c))
    h = o * c
    return h, State(c=c)
