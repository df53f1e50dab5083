"""The block GRU of DreamerV3's world model, a recurrence of several heads: features see those of their own block, and the others
through a projection of the state to the size `proj`. DreamerV3 has 8 heads, and two inputs with a projection each; here, as in
TorchRL, they are one.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.language import affine, rms_norm, sigmoid, tanh, vector


def active(name, value):
    scaled = vector(f"gain_{name}", value.shape[0], init=1.0) * rms_norm(value, eps=1e-4)
    return scaled * sigmoid(scaled)


def fan_in(shape, random):
    return random.normal(0, shape[-1] ** -0.5, shape)


@cell(
    paper="Hafner et al. 2023, Mastering Diverse Domains through World Models, arXiv 2301.04104; the form of TorchRL",
    init={f"weight_{operand}h": fan_in for operand in "ihpqsv"} | {f"bias_{operand}h": 0.0 for operand in "ihpqv"},
)
def gru_block(x, h, *, heads=1, depth=1):
    p = active("p", affine("p", x, size="proj"))
    q = active("q", affine("q", h, size="proj"))
    v_pre = affine("v0", p, q) + affine("v0", s=h, heads=heads, bias=False)
    v = active("v0", v_pre)
    for k in range(1, depth):
        v = active(f"v{k}", affine(f"v{k}", v, heads=heads))
    r = sigmoid(affine("r", v, heads=heads))
    c = tanh(r * affine("c", v, heads=heads))
    u = sigmoid(affine("u", v, heads=heads) - 1)
    h = u * c + (1 - u) * h
    return h, State(h=h)
