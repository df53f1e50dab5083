"""Networks of oscillators, h being where they are and z how fast they move: coupled, and each by itself.

The constants are those of the authors' sequential and permuted MNIST.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import uniform
from anyrnn.trace.language import affine, sigmoid, tanh, vector


# The paper damps by the new z or by the old one; its authors' code does by the old one, as here. So do torchrecurrent and
# RecurrentLayers.jl, against what their documentation says.
@cell(paper="Rusch & Mishra 2021, Coupled Oscillatory Recurrent Neural Network, arXiv 2010.00951")
def cornn(x, h, z, *, dt=0.042, gamma=2.7, epsilon=4.7):
    z = z + dt * (tanh(affine("z", x, h, z)) - gamma * h - epsilon * z)
    h = h + dt * z
    return h, State(h=h, z=z)


def kaiming(shape, random):
    bound = (6 / (1 + 8**2) / shape[-1]) ** 0.5
    return random.uniform(-bound, bound, shape)


# RecurrentLayers.jl has a matrix in the place of w.
@cell(
    paper="Rusch & Mishra 2021, UnICORNN: A recurrent model for learning very long time dependencies, arXiv 2103.05487",
    init={"weight_ih": kaiming, "bias_ih": 0.0},
)
def unicornn(x, h, z, *, dt=0.19, alpha=30.65):
    w, c = vector("w", init=uniform(0.0, 1.0)), vector("c", init=uniform(-0.1, 0.1))
    z = z - dt * sigmoid(c) * (tanh(w * h + affine("h", x)) + alpha * h)
    h = h + dt * sigmoid(c) * z
    return h, State(h=h, z=z)
