"""The orthogonal network: a recurrent matrix that is a product of Householder reflections, and keeps the length of states."""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import normal, xavier
from anyrnn.trace.language import affine, maximum, sqrt, total, vector


# Every u has all features, where those of the paper begin with more and more zeros: no fewer matrices, and more numbers. The
# rectifier is that of the authors' code.
@cell(
    paper="Mhammedi et al. 2017, Efficient Orthogonal Parametrisation of RNNs Using Householder Reflections, arXiv 1612.00188",
    init={"weight_ih": xavier, "bias_ih": 0.0},
)
def orthogonal_rnn(x, h, *, reflections=8):
    for k in range(reflections):
        u = vector(f"u{k}", init=normal(1.0))
        u = u / sqrt(total(u * u))
        h = h - 2 * total(u * h) * u
    h = h + affine("h", x)
    h = maximum(h, 0.1 * h)
    return h, State(h=h)
