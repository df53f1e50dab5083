"""The Lipschitz network: a linear and a bounded part, the matrices of both nearly antisymmetric (the nearer beta is to 1)."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, matrix, tanh


def small(shape, random):
    return random.normal(0, 0.1 / shape[-1], shape)


# The constants, and what M_A and M_W begin as, are those of the authors' code for sequential MNIST.
@cell(paper="Erichson et al. 2021, Lipschitz Recurrent Neural Networks, arXiv 2006.12070")
def lipschitz_rnn(x, h, *, epsilon=0.03, beta_A=0.75, beta_W=0.75, gamma_A=0.001, gamma_W=0.001):
    M_A, M_W = matrix("M_A", init=small), matrix("M_W", init=small)
    A = (1 - beta_A) * (M_A + M_A.T) + beta_A * (M_A - M_A.T)
    W = (1 - beta_W) * (M_W + M_W.T) + beta_W * (M_W - M_W.T)
    z = W @ h - gamma_W * h + affine("h", x)
    h = h + epsilon * (A @ h - gamma_A * h + tanh(z))
    return h, State(h=h)
