"""LSTM with layer normalisation of all gates as one vector, in the input's product and in the state's, and of the cell state."""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import orthogonal, xavier
from anyrnn.trace.language import affine, norm, sigmoid, split, tanh, vector


def normalised(name, value):
    return vector(f"gain_{name}", value.shape[0], init=1.0) * norm(value)


# The form and the first values of haste. The paper also has a shift after the norm of each product, beside the biases.
@cell(
    paper="Ba, Kiros & Hinton 2016, Layer Normalization, arXiv 1607.06450; all gates normalised together",
    init={"weight_ih": xavier, "weight_hh": orthogonal},
)
def lstm_layernorm_stacked(x, h, c):
    from_x = normalised("x", affine("i g f o", x, bias=False))
    from_h = normalised("h", affine("i g f o", h, bias=False))
    v_i, v_g, v_f, v_o = split(from_x + from_h, 4)
    i = sigmoid(v_i + vector("bias_i", init=0.0))
    g = tanh(v_g + vector("bias_g", init=0.0))
    f = sigmoid(v_f + vector("bias_f", init=1.0))
    o = sigmoid(v_o + vector("bias_o", init=0.0))
    c = f * c + i * g
    h = o * tanh(normalised("c", c) + vector("shift_c", init=0.0))
    return h, State(h=h, c=c)
