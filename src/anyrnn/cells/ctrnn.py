"""The continuous-time network, by Euler steps."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, tanh


# Some have tanh around the sum of products and not around h alone; this is the paper's equation.
@cell(paper="Funahashi & Nakamura 1993, Approximation of Dynamical Systems by Continuous Time Recurrent Neural Networks")
def ctrnn(x, h, *, dt=0.1, tau=1.0):
    h = h + dt * (-h / tau + affine("h", x, h=tanh(h)))
    return h, State(h=h)
