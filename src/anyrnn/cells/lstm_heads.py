"""LSTM of several heads, whose features see the hidden state of their own head alone."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# With one head, the default, it is the LSTM with the same parameters; FlashRNN has one bias a gate.
@cell(paper="Pöppel, Beck & Hochreiter 2024, FlashRNN: Optimizing Traditional RNNs on Modern Hardware, arXiv 2412.07752; LSTM")
def lstm_heads(x, h, c, *, heads=1):
    def gate(name):
        return affine(name, x) + affine(name, h, heads=heads)

    i = sigmoid(gate("i"))
    f = sigmoid(gate("f"))
    g = tanh(gate("g"))
    o = sigmoid(gate("o"))
    c = f * c + i * g
    h = o * tanh(c)
    return h, State(h=h, c=c)
