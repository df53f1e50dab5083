"""GRU-D: a gated recurrent unit for inputs with gaps, in which what was last observed, and the state, decay with time."""

from anyrnn.trace import State, Step, Vec, cell
from anyrnn.trace.language import affine, equal, exp, relu, sigmoid, tanh, vector, where


# m is 1 for the features that are observed and 0 for others, delta the time since each was; `mean` is set from the data. What
# is not observed may be anything, NaN too, the usual sign of a gap. The
# first author's Keras code keeps z * h of the state before its decay; here, as in the paper, it has decayed everywhere.
@cell(paper="Che et al. 2018, Recurrent Neural Networks for Multivariate Time Series with Missing Values, arXiv 1606.01865")
def gru_decay(x, m: Step("input"), delta: Step("input"), h, last: Vec("input")):
    x = where(equal(m, 0), 0, x)
    last = m * x + (1 - m) * last
    gamma = exp(-relu(vector("w_gamma", "input") * delta + vector("b_gamma", "input")))
    x = m * x + (1 - m) * (gamma * last + (1 - gamma) * vector("mean", "input", init=0.0, trained=False))
    h = exp(-relu(affine("gamma", delta))) * h
    r = sigmoid(affine("r", i=x, h=h, m=m))
    z = sigmoid(affine("z", i=x, h=h, m=m))
    n = tanh(affine("n", i=x, h=r * h, m=m))
    h = (1 - z) * h + z * n
    return h, State(h=h, last=last)
