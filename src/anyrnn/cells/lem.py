"""Long expressive memory: two states, of which every feature has time steps of its own."""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, sigmoid, tanh


# h, the paper's y, is made of the new z; torchrecurrent and RecurrentLayers.jl make it of the old one, against their equations.
@cell(paper="Rusch et al. 2022, Long Expressive Memory for Sequence Modeling, arXiv 2110.04744")
def lem(x, h, z, *, dt=1.0):
    dt_h = dt * sigmoid(affine("dt_h", x, h))
    dt_z = dt * sigmoid(affine("dt_z", x, h))
    z = (1 - dt_z) * z + dt_z * tanh(affine("z", x, h))
    h = (1 - dt_h) * h + dt_h * tanh(affine("h", x, z))
    return h, State(h=h, z=z)
