"""sLSTM of xLSTM: an exponential input gate, a normaliser n, and the state m that keeps exponents from growing."""

from anyrnn.trace import State, Vec, cell
from anyrnn.trace.language import affine, exp, maximum, sigmoid, softplus, tanh


def powerlaw(shape, random):
    return 5 - 12 * random.uniform(size=shape) ** 0.3


# The forget gate is the paper's sigmoid; it also has exp. First values are those of the authors' code for a first block, whose
# forget biases are the same curve over the features of a head. In the first step m is to be log_i, so that it begins below all
# gates: at minus infinity in the paper, whose difference from itself would be NaN.
@cell(
    paper="Beck et al. 2024, xLSTM: Extended Long Short-Term Memory, arXiv 2405.04517; sLSTM",
    init={"weight_hh": 0.0, "bias_ih": 0.0, "bias_ih f": powerlaw},
)
def slstm(x, h, c, n, m: Vec(init=-6e4), *, heads=1):
    def gate(name):
        return affine(name, x) + affine(name, h, heads=heads, bias=False)

    log_i = gate("i")
    log_f = -softplus(-gate("f"))
    z = tanh(gate("z"))
    o = sigmoid(gate("o"))
    m_new = maximum(log_f + m, log_i)
    i = exp(log_i - m_new)
    f = exp(log_f + m - m_new)
    c = f * c + i * z
    n = f * n + i
    h = o * (c / n)
    return h, State(h=h, c=c, n=n, m=m_new)
