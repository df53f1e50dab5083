"""Ten cells from the literature, to see what the language can say: each against plain NumPy, its gradient against finite
differences, and llvm runs it or declines it by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import Scalar, State, UnsupportedError, Vec, cell
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.reference import run as reference
from anyrnn.trace.language import (
    affine,
    concat,
    cos,
    exp,
    floor,
    matrix,
    maximum,
    norm,
    scalar,
    sigmoid,
    sin,
    softplus,
    split,
    tanh,
    vector,
    where,
)
from tests.budget import assert_relative
from tests.networks import Problem, on_llvm, on_reference, on_torch, problem

Array = np.ndarray[Any, np.dtype[Any]]


@cell(paper="Sak, Senior & Beaufays 2014, arXiv 1402.1128")
def projected_lstm(x, h: Vec("proj"), c):
    i = sigmoid(affine("i", x, h))
    f = sigmoid(affine("f", x, h))
    g = tanh(affine("g", x, h))
    o = sigmoid(affine("o", x, h))
    c = f * c + i * g
    h = matrix("weight_hr", "proj", "hidden") @ (o * tanh(c))
    return h, State(h=h, c=c)


@cell(paper="Ba, Kiros & Hinton 2016, arXiv 1607.06450; one norm over all gates, as in haste")
def stacked_norm_lstm(x, h, c):
    gates = "i g f o"
    from_x = split(norm(affine(gates, x, bias=False)), 4)
    from_h = split(norm(affine(gates, h, bias=False)), 4)
    i, g, f, o = (
        vector(f"gain_x_{k}", init=1) * a + vector(f"gain_h_{k}", init=1) * b + vector(f"bias_{k}")
        for k, a, b in zip(gates.split(), from_x, from_h, strict=True)
    )
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(vector("gain_c", init=1) * norm(c) + vector("shift_c"))
    return h, State(h=h, c=c)


@cell(paper="Chang et al. 2019, AntisymmetricRNN, arXiv 1902.09689; the gated form")
def antisymmetric(x, h, *, step=0.1, diffusion=0.01):
    w = matrix("w")
    turned = (w - w.T) @ h - diffusion * h
    z = sigmoid(turned + affine("z", x))
    h = h + step * z * tanh(turned + affine("h", x))
    return h, State(h=h)


@cell(paper="Krause et al. 2016, Multiplicative LSTM, arXiv 1609.07959")
def multiplicative_lstm(x, h, c):
    m = affine("m", x, bias=False) * affine("m", h, bias=False)
    i = sigmoid(affine("i", x, m))
    f = sigmoid(affine("f", x, m))
    o = sigmoid(affine("o", x, m))
    u = tanh(affine("u", x, m))
    c = f * c + i * u
    h = tanh(c) * o
    return h, State(h=h, c=c)


@cell(paper="Zilly et al. 2017, Recurrent Highway Networks, arXiv 1607.03474")
def highway(x, s, *, depth=3):
    for k in range(depth):
        inputs = (x, s) if k == 0 else (s,)
        h = tanh(affine(f"h{k}", *inputs))
        t = sigmoid(affine(f"t{k}", *inputs))
        s = h * t + s * (1 - t)
    return s, State(s=s)


@cell(paper="Mikolov et al. 2014, Learning Longer Memory in Recurrent Neural Networks, arXiv 1412.7753")
def scrn(x, h, s: Vec("slow"), *, alpha=0.95):
    s = (1 - alpha) * affine("s", x, size="slow", bias=False) + alpha * s
    h = sigmoid(affine("h", x, h, s, bias=False))
    return affine("y", h, s, bias=False), State(h=h, s=s)


@cell(paper="Koutnik et al. 2014, A Clockwork RNN, arXiv 1402.3511; modules of periods 1, 2 and 4")
def clockwork(x, h1, h2, h4, t: Scalar()):
    def when(period, new, old):
        return where(t - period * floor(t / period) < 0.5, new, old)

    n1 = when(1, tanh(affine("a", x, h1, h2, h4)), h1)
    n2 = when(2, tanh(affine("b", x, h2, h4)), h2)
    n4 = when(4, tanh(affine("c", x, h4)), h4)
    return concat(n1, n2, n4), State(h1=n1, h2=n2, h4=n4, t=t + 1)


@cell(paper="Beck et al. 2024, xLSTM, arXiv 2405.04517; sLSTM with 4 heads")
def slstm(x, h, c, n, m):
    def gate(name):
        return affine(name, x) + affine(name, h, heads=4, bias=False)

    log_i, log_f = gate("i"), -softplus(-gate("f"))
    z, o = tanh(gate("z")), sigmoid(gate("o"))
    m_new = maximum(log_f + m, log_i)
    i, f = exp(log_i - m_new), exp(log_f + m - m_new)
    c, n = f * c + i * z, f * n + i
    h = o * c / n
    return h, State(h=h, c=c, n=n, m=m_new)


@cell(paper="Orvieto et al. 2023, Resurrecting Recurrent Neural Networks for Long Sequences, arXiv 2303.06349")
def lru(x, re, im):
    size, angle = exp(-exp(vector("nu"))), exp(vector("theta"))
    a, b = size * cos(angle), size * sin(angle)
    gamma = exp(vector("gamma"))
    re, im = (
        a * re - b * im + gamma * affine("re", x, bias=False),
        b * re + a * im + gamma * affine("im", x, bias=False),
    )
    y = matrix("c_re") @ re - matrix("c_im") @ im + affine("d", x, bias=False)
    return y, State(re=re, im=im)


@cell(paper="Kusupati et al. 2018, FastGRNN, arXiv 1901.02358; low-rank")
def fastgrnn(x, h):
    w1, w2 = matrix("w1", "hidden", "rank_w"), matrix("w2", "rank_w", "input")
    u1, u2 = matrix("u1", "hidden", "rank_u"), matrix("u2", "rank_u", "hidden")
    a = w1 @ (w2 @ x) + u1 @ (u2 @ h)
    z = sigmoid(a + vector("bias_z"))
    g = tanh(a + vector("bias_h"))
    h = (sigmoid(scalar("zeta")) * (1 - z) + sigmoid(scalar("nu"))) * g + z * h
    return h, State(h=h)


# The same in plain NumPy: a step from the parameters w, the input and the states to the output and the new states.


def logistic(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def normalised(a: Array) -> Array:
    centred = a - a.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def gates(w: Any, count: int, *operands: tuple[str, Array]) -> list[Array]:
    total: Any = sum(a @ w[f"weight_{k}h"].T + w.get(f"bias_{k}h", 0) for k, a in operands)
    return np.split(total, count, -1)


def plain_projected_lstm(w: Any, x: Array, h: Array, c: Array) -> Any:
    i, f, g, o = gates(w, 4, ("i", x), ("h", h))
    c = logistic(f) * c + logistic(i) * np.tanh(g)
    h = (logistic(o) * np.tanh(c)) @ w["weight_hr"].T
    return h, (h, c)


def plain_stacked_norm_lstm(w: Any, x: Array, h: Array, c: Array) -> Any:
    gain_x, gain_h, bias = (np.concatenate([w[f"{name}_{k}"] for k in "igfo"]) for name in ("gain_x", "gain_h", "bias"))
    stacked = gain_x * normalised(x @ w["weight_ih"].T) + gain_h * normalised(h @ w["weight_hh"].T) + bias
    i, g, f, o = np.split(stacked, 4, -1)
    c = logistic(f) * c + logistic(i) * np.tanh(g)
    h = logistic(o) * np.tanh(w["gain_c"] * normalised(c) + w["shift_c"])
    return h, (h, c)


def plain_antisymmetric(w: Any, x: Array, h: Array) -> Any:
    turn = w["w"] - w["w"].T - 0.01 * np.eye(len(w["w"]))
    from_z, from_h = gates(w, 2, ("i", x))
    h = h + 0.1 * logistic(h @ turn.T + from_z) * np.tanh(h @ turn.T + from_h)
    return h, (h,)


def plain_multiplicative_lstm(w: Any, x: Array, h: Array, c: Array) -> Any:
    H = h.shape[-1]
    m = (x @ w["weight_ih"][:H].T) * (h @ w["weight_hh"].T)
    i, f, o, u = np.split(x @ w["weight_ih"][H:].T + w["bias_ih"] + m @ w["weight_mh"].T + w["bias_mh"], 4, -1)
    c = logistic(f) * c + logistic(i) * np.tanh(u)
    h = np.tanh(c) * logistic(o)
    return h, (h, c)


def plain_highway(w: Any, x: Array, s: Array) -> Any:
    H = s.shape[-1]
    for k in range(3):
        rows = slice(2 * k * H, 2 * (k + 1) * H)
        a = s @ w["weight_sh"][rows].T + w["bias_sh"][rows]
        if k == 0:
            a = a + x @ w["weight_ih"].T + w["bias_ih"]
        h, t = np.tanh(a[:, :H]), logistic(a[:, H:])
        s = h * t + s * (1 - t)
    return s, (s,)


def plain_scrn(w: Any, x: Array, h: Array, s: Array) -> Any:
    H, P = h.shape[-1], s.shape[-1]
    s = 0.05 * (x @ w["weight_ih"][:P].T) + 0.95 * s
    new = logistic(x @ w["weight_ih"][P:].T + h @ w["weight_hh"][:H].T + s @ w["weight_sh"][:H].T)
    return new @ w["weight_hh"][H:].T + s @ w["weight_sh"][H:].T, (new, s)


def plain_clockwork(w: Any, x: Array, h1: Array, h2: Array, h4: Array, t: Array) -> Any:
    H, i = h1.shape[-1], x @ w["weight_ih"].T + w["bias_ih"]
    from_2, from_4 = h2 @ w["weight_h2h"].T + w["bias_h2h"], h4 @ w["weight_h4h"].T + w["bias_h4h"]
    a = i[:, :H] + h1 @ w["weight_h1h"].T + w["bias_h1h"] + from_2[:, :H] + from_4[:, :H]
    b = i[:, H : 2 * H] + from_2[:, H:] + from_4[:, H : 2 * H]
    c = i[:, 2 * H :] + from_4[:, 2 * H :]
    n1, n2, n4 = (np.where(t % p == 0, np.tanh(v), old) for p, v, old in ((1, a, h1), (2, b, h2), (4, c, h4)))
    return np.concatenate([n1, n2, n4], -1), (n1, n2, n4, t + 1)


def plain_slstm(w: Any, x: Array, h: Array, c: Array, n: Array, m: Array) -> Any:
    H = h.shape[-1]
    blocks = w["weight_hh"].reshape(4, 4, H // 4, H // 4)  # gate, head, row, column
    from_h = np.einsum("ghrc,nhc->nghr", blocks, h.reshape(-1, 4, H // 4)).reshape(-1, 4 * H)
    i, f, z, o = np.split(x @ w["weight_ih"].T + w["bias_ih"] + from_h, 4, -1)
    log_f = np.log(logistic(f))
    m_new = np.maximum(log_f + m, i)
    i, f = np.exp(i - m_new), np.exp(log_f + m - m_new)
    c, n = f * c + i * np.tanh(z), f * n + i
    h = logistic(o) * c / n
    return h, (h, c, n, m_new)


def plain_lru(w: Any, x: Array, re: Array, im: Array) -> Any:
    H = re.shape[-1]
    eigenvalues = np.exp(-np.exp(w["nu"]) + 1j * np.exp(w["theta"]))
    b = w["weight_ih"][:H] + 1j * w["weight_ih"][H : 2 * H]
    s = eigenvalues * (re + 1j * im) + np.exp(w["gamma"]) * (x @ b.T)
    y = (s @ (w["c_re"] + 1j * w["c_im"]).T).real + x @ w["weight_ih"][2 * H :].T
    return y, (s.real, s.imag)


def plain_fastgrnn(w: Any, x: Array, h: Array) -> Any:
    a = x @ (w["w1"] @ w["w2"]).T + h @ (w["u1"] @ w["u2"]).T
    z, g = logistic(a + w["bias_z"]), np.tanh(a + w["bias_h"])
    h = (logistic(w["zeta"]) * (1 - z) + logistic(w["nu"])) * g + z * h
    return h, (h,)


PROBES: dict[str, tuple[Any, Callable[..., Any], str | None]] = {
    "projected_lstm": (projected_lstm, plain_projected_lstm, None),
    "stacked_norm_lstm": (stacked_norm_lstm, plain_stacked_norm_lstm, None),
    "antisymmetric": (antisymmetric, plain_antisymmetric, None),
    "multiplicative_lstm": (multiplicative_lstm, plain_multiplicative_lstm, None),
    "highway": (highway, plain_highway, None),
    "scrn": (scrn, plain_scrn, None),
    "clockwork": (clockwork, plain_clockwork, None),
    "slstm": (slstm, plain_slstm, None),
    "lru": (lru, plain_lru, None),
    "fastgrnn": (fastgrnn, plain_fastgrnn, None),
}
"""The cell, the same in NumPy, and the op by whose name llvm declines it, or None when it runs."""

probes = pytest.mark.parametrize("name", PROBES)


def probe(name: str, T: int = 6, N: int = 3, D: int = 5, H: int = 8, layers: int = 1, bidirectional: bool = False) -> Problem:
    p = problem(PROBES[name][0], T, N, D, H, layers, bidirectional)
    for unit in p.first:
        for spec, value in zip(p.network.graph.states, unit, strict=True):
            if (name, spec.name) == ("slstm", "n"):
                value[:] = 1 + np.abs(value)
            if spec.name == "t":
                value[:] = 2
    return p


@probes
def test_it_says_what_the_paper_says(name: str) -> None:
    p = probe(name)
    (w,), (states,) = p.parameters, p.first
    found = on_reference(p)
    for t, x in enumerate(p.inputs[0]):
        y, states = PROBES[name][1](w, x, *states)
        assert_relative(found["output"][t], y, "reference backend against torch autograd, float64", f"step {t}")
    for spec, value in zip(p.network.graph.states, states, strict=True):
        assert_relative(found[f"last {spec.name}_l0"], value, "reference backend against torch autograd, float64", spec.name)


def loss(p: Problem) -> float:
    """The function whose gradient a backward call gives."""
    values = [reference.parameter_values(p.network, np.float64, unit) for unit in p.parameters]
    output, last, _ = reference.forward(p.network, np, np.float64, p.inputs, values, p.first)
    total = np.sum(output * p.d_output)
    return float(
        total + sum(np.sum(a * d) for end, d_end in zip(last, p.d_last, strict=True) for a, d in zip(end, d_end, strict=True))
    )


@probes
def test_its_gradient_is_that_of_finite_differences(name: str) -> None:
    p = probe(name)
    found = on_reference(p)
    random = np.random.default_rng(1)
    (w,), (first,) = p.parameters, p.first
    leaves: dict[str, tuple[Array, Callable[[Array], Problem]]] = {
        "d x": (p.inputs[0], lambda a: replace(p, inputs=[a])),
        **{f"d {k}_l0": (v, lambda a, k=k: replace(p, parameters=[{**w, k: a}])) for k, v in w.items()},
        **{
            f"d first {s.name}_l0": (v, lambda a, i=i: replace(p, first=[[*first[:i], a, *first[i + 1 :]]]))
            for i, (s, v) in enumerate(zip(p.network.graph.states, first, strict=True))
            if s.name != "t"
        },
    }
    assert set(leaves) | {"d first t_l0"} >= {k for k in found if k.startswith("d ")}
    for key, (value, changed) in leaves.items():
        direction = random.normal(size=value.shape)
        step = 1e-6
        numeric = (loss(changed(value + step * direction)) - loss(changed(value - step * direction))) / (2 * step)
        scale = np.linalg.norm(found[key]) * np.linalg.norm(direction)
        assert abs(np.sum(found[key] * direction) - numeric) <= 1e-7 * max(scale, 1), key


@probes
@pytest.mark.parametrize("stack", [(1, False), (2, True)], ids=str)
def test_its_gradient_is_that_of_autograd(name: str, stack: tuple[int, bool]) -> None:
    p = probe(name, 4, 3, 5, 8, *stack)
    expected = on_torch(p)
    for key, value in on_reference(p).items():
        assert_relative(value, expected[key], "reference backend against torch autograd, float64", key)


@probes
@pytest.mark.parametrize("sizes", [(4, 3, 5, 8), (3, 1, 1, 4), (5, 14, 34, 36)], ids=str)
def test_llvm_runs_it_or_declines_it_by_name(name: str, sizes: tuple[int, ...]) -> None:
    declined = PROBES[name][2]
    p = probe(name, *sizes, 2, True)
    why = llvm.why_not(p.network, "float64")
    if declined is not None:
        options = {k: v for k, v in p.network.sizes if k not in ("input", "hidden")}
        with pytest.raises(UnsupportedError, match=declined):
            anyrnn.Recurrent(PROBES[name][0], sizes[2], sizes[3], backend="llvm", **options)
        assert anyrnn.Recurrent(PROBES[name][0], sizes[2], sizes[3], **options).backend_name == "reference"
        return
    assert why is None
    expected = on_reference(p)
    for padding in (0, 1):
        for key, value in on_llvm(p, padding=padding).items():
            assert_relative(value, expected[key], "llvm float64 against the reference backend", key)
