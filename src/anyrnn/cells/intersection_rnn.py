"""The intersection network, +RNN, for deep stacks: one gate through time, one through depth. The input of the depth gate has to
have the size of the state; the authors' own cell in TensorFlow projects the first layer's, and this one each layer's, by a matrix
that begins as the identity. Where RecurrentLayers.jl has 1 - g_h in the output, the paper has 1 - g_y.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import identity
from anyrnn.trace.language import affine, matrix, relu, sigmoid, tanh


@cell(
    paper="Collins, Sohl-Dickstein & Sussillo 2016, Capacity and Trainability in Recurrent Neural Networks, arXiv 1611.09913",
    init={"bias_ih gy": 1.0, "bias_hh gy": 0.0, "bias_ih gh": 1.0, "bias_hh gh": 0.0},
)
def intersection_rnn(x, h):
    x_in = matrix("weight_in", "hidden", "input", init=identity) @ x
    y_in = relu(affine("y", x, h))
    h_in = tanh(affine("h", x, h))
    g_y = sigmoid(affine("gy", x, h))
    g_h = sigmoid(affine("gh", x, h))
    y = g_y * x_in + (1 - g_y) * y_in
    h = g_h * h + (1 - g_h) * h_in
    return y, State(h=h)
