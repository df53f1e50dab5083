"""What the parameters of every built-in cell begin as, where its paper (or its authors' code) says so: by the distribution of
the numbers, or by what is to hold for them. Those that are not trained are in `worked`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

import anyrnn
from anyrnn import cells
from tests.zoo import sizes_of

Array = np.ndarray[Any, np.dtype[Any]]
Check = Callable[[Array], None]
"""Of one gate's numbers, or of a parameter without gates."""

INPUTS, HIDDEN, OTHER = 96, 128, 80
LEAST_CHANCE = 1e-3
"""Of numbers like these, where they are drawn as they are said to be."""


@cache
def layer(name: str) -> anyrnn.Recurrent:
    return anyrnn.Recurrent(name, INPUTS, HIDDEN, dtype="float64", seed=0, **sizes_of(name, OTHER))


def pieces(name: str) -> Iterator[tuple[str, str, bool, Array]]:
    """Of trained parameters: the name, the gate if there is one, whether the cell says what it begins as, and the numbers."""
    sizes = {"input": INPUTS, "hidden": HIDDEN} | sizes_of(name, OTHER)
    for parameter in cells.load(name).trace().parameters:
        if not parameter.trained:
            continue
        value, start = np.atleast_1d(layer(name).parameters[f"{parameter.name}_l0"]), 0
        gates = [gate for gate, _ in parameter.gates] if len(parameter.pieces) == len(parameter.gates) else [""]
        for gate, (rows, init) in zip(gates, parameter.pieces, strict=True):
            end = start + rows.evaluate(sizes)
            yield parameter.name, gate, init is not None, value[start:end]
            start = end


# ways to begin


def drawn(distribution: Any) -> Check:
    """The numbers are of a distribution of SciPy, and within its bounds."""

    def check(value: Array) -> None:
        low, high = distribution.support()
        assert value.min() >= low
        assert value.max() <= high
        assert stats.kstest(value.ravel(), distribution.cdf, method="asymp").pvalue > LEAST_CHANCE
        assert len(np.unique(value)) > 0.9 * value.size

    return check


def uniform(low: float, high: float) -> Check:
    return drawn(stats.uniform(low, high - low))


def normal(deviation: float) -> Check:
    return drawn(stats.norm(0, deviation))


def by_shape(check: Callable[..., Check]) -> Check:
    """A check that depends on the numbers of rows and columns."""
    return lambda value: check(*value.shape)(value)


def through(function: Callable[[Array], Array], check: Check) -> Check:
    """What holds for a function of the numbers."""
    return lambda value: check(function(value))


def equal(number: float) -> Check:
    def check(value: Array) -> None:
        assert (value == number).all()

    return check


def is_(expected: Callable[..., Any]) -> Check:
    """The numbers are a function of the shape."""
    return lambda value: np.testing.assert_allclose(value, expected(*value.shape), rtol=1e-12, atol=1e-15)


def orthonormal(value: Array) -> None:
    short = value if value.shape[0] <= value.shape[1] else value.T
    np.testing.assert_allclose(short @ short.T, np.eye(len(short)), atol=1e-12)
    assert not np.array_equal(value, np.eye(*value.shape))


def signs(value: Array) -> None:
    assert (np.abs(value) == 1).all()
    assert abs(value.mean()) < 5 / np.sqrt(value.size)


ZERO, ONE = equal(0), equal(1)
IDENTITY = is_(np.eye)
XAVIER = by_shape(lambda rows, columns: uniform(-np.sqrt(6 / (rows + columns)), np.sqrt(6 / (rows + columns))))
XAVIER_NORMAL = by_shape(lambda rows, columns: normal(np.sqrt(2 / (rows + columns))))
FAN_IN = by_shape(lambda rows, columns: normal(columns**-0.5))
LECUN = by_shape(lambda rows, columns: uniform(-np.sqrt(3 / columns), np.sqrt(3 / columns)))
HALF_LECUN = by_shape(lambda rows, columns: uniform(-np.sqrt(1.5 / columns), np.sqrt(1.5 / columns)))
COMPLEX = by_shape(lambda rows, columns: normal((2 * columns) ** -0.5))
"""The real or the imaginary part of numbers whose squares have the mean 1 / columns."""


def sigmoid(value: Array) -> Array:
    return 1 / (1 + np.exp(-value))


def channels(count: int) -> Array:
    """From 0 to less than 1."""
    return np.array([k / count for k in range(count)])


def steps(longest: float) -> Check:
    """Chrono initialisation: a forget gate begins as its feature's characteristic time, less one step, over that time."""
    return through(np.exp, uniform(1, longest - 1))


BEGINS: dict[str, dict[str, Check]] = {
    "antisymmetric_rnn": {"weight_ih": FAN_IN, "W": FAN_IN, "bias_ih": ZERO},
    "brc": {"weight_ih": XAVIER, "recurrent_?": ONE, "bias_?": ZERO},
    "cfc": {"weight_?h": XAVIER},
    "cfn": {"weight_?h": uniform(-0.07, 0.07), "bias_hh theta": ONE, "bias_hh eta": equal(-1)},
    "elstm": {"weight_ih": normal(0.1), "bias_ih": normal(0.1), "w_?": normal(0.1)},
    "ema": {"*_logit": normal(0.2)},
    "fastgrnn": {"weight_?h": normal(0.1), "bias_?": ONE, "zeta": ONE, "nu": equal(-4)},
    "fastrnn": {"weight_?h": normal(0.1), "bias_ih": ONE, "bias_hh": ZERO, "alpha": equal(-3), "beta": equal(3)},
    "gated_antisymmetric_rnn": {"weight_ih": FAN_IN, "W": FAN_IN, "bias_ih": ZERO},
    "gru_block": {"weight_?h": FAN_IN, "bias_?h": ZERO, "gain_*": ONE},
    "gru_layernorm": {"weight_ih": XAVIER, "weight_hh": orthonormal, "gain_?": ONE, "shift_?": ZERO},
    "indrnn_layernorm": {"weight_ih": XAVIER, "gain": ONE, "shift": ZERO, "recurrent": uniform(-0.5, 0.5)},
    "intersection_rnn": {"bias_ih": ONE, "bias_hh": ZERO, "weight_in": IDENTITY},
    "janet": {"bias_ih f": steps(100), "bias_ih c": ZERO, "bias_hh": ZERO},
    "ligru": {"weight_ih": XAVIER, "weight_hh": orthonormal, "bias_?h": ZERO},
    "lipschitz_rnn": {"M_?": normal(0.1 / HIDDEN)},
    "lmu": {"weight_?h h": XAVIER_NORMAL, "weight_mh u": ZERO, "weight_?h u": LECUN},
    "lru": {
        "weight_ih y": FAN_IN,
        "weight_ih": COMPLEX,
        "C_??": FAN_IN,
        # squares of the radii and phases; see below for gamma
        "nu_log": through(lambda nu: np.exp(-np.exp(nu)) ** 2, uniform(0, 1)),
        "theta_log": through(np.exp, uniform(0, 6.28)),
        "gamma_log": through(lambda gamma: np.exp(gamma) ** 2, uniform(0, 1)),
    },
    "lstm_layernorm": {"gain_?": ONE, "shift_?": ZERO},
    "lstm_layernorm_stacked": {
        "weight_ih": XAVIER,
        "weight_hh": orthonormal,
        "gain_?": ONE,
        "bias_f": ONE,
        "bias_?": ZERO,
        "shift_c": ZERO,
    },
    "lstm_phased": {"s": uniform(0, 1000), "tau": drawn(stats.loguniform(1, 1000))},
    "lstm_phased_timed": {"s": uniform(0, 1000), "tau": drawn(stats.loguniform(1, 1000))},
    "ltc": {"A": signs, "tau": equal(0.5)},
    "nbrc": {"weight_?h": XAVIER, "bias_hh": ZERO},
    "orthogonal_rnn": {"weight_ih": XAVIER, "bias_ih": ZERO, "u?": normal(1)},
    "plrnn": {"A": equal(0.5), "W": by_shape(lambda rows, columns: normal(0.2 * columns**-0.5))},
    "rg_lru": {"Lambda": through(lambda a: sigmoid(a) ** 8, uniform(0.9, 0.999))},
    "tau_gru": {"weight_?h": XAVIER, "bias_?h": ZERO},
    "rhn": {"bias_h?": ZERO, "bias_t?": equal(-2)},
    "rnn_identity": {"weight_ih": normal(0.001), "weight_hh": IDENTITY, "bias_?h": ZERO},
    "rwkv4": {
        "weight_ih v": orthonormal,
        "weight_ih": ZERO,
        "mu_r": is_(lambda count: np.sqrt(channels(count))),
        "mu_?": is_(channels),
        "w_log": is_(lambda count: -5 + 8 * np.linspace(0, 1, count) ** 0.7),
        "u": is_(lambda count: np.log(0.3) + np.resize([0, 0.5, -0.5], count)),
    },
    "slstm": {
        "weight_hh": ZERO,
        "bias_ih f": through(lambda bias: ((5 - bias) / 12) ** (1 / 0.3), uniform(0, 1)),
        "bias_ih": ZERO,
    },
    "sru": {"weight_ih": HALF_LECUN, "bias_ih": ZERO, "v_?": uniform(-np.sqrt(1.5), np.sqrt(1.5)), "W*": LECUN},
    "star": {"weight_?h": orthonormal, "bias_ih k": equal(-1), "bias_?h": ZERO},
    "ugrnn": {"bias_ih": ONE, "bias_hh": ZERO},
    "unicornn": {
        "weight_ih": by_shape(lambda rows, columns: uniform(-np.sqrt(6 / 65 / columns), np.sqrt(6 / 65 / columns))),
        "bias_ih": ZERO,
        "w": uniform(0, 1),
        "c": uniform(-0.1, 0.1),
    },
}
"""By cell, then by parameter, or by parameter and gate; the first that fits. Cells that are not here leave all to the layer."""


@pytest.mark.parametrize("name", cells.names())
def test_parameters_begin_as_the_paper_says(name: str) -> None:
    """Those of which a cell says nothing begin uniform within 1 / sqrt(hidden), as those of torch.nn."""
    bound, table, used = HIDDEN**-0.5, BEGINS.get(name, {}), set()
    for parameter, gate, said, value in pieces(name):
        fits = [key for key in table if any(fnmatchcase(part, key) for part in (f"{parameter} {gate}", parameter))]
        if said:
            assert fits, f"{parameter} {gate}: BEGINS says nothing of it"
            table[fits[0]](value)
            used.add(fits[0])
        else:
            uniform(-bound, bound)(value)
    assert used == set(table)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_eigenvalues_of_the_linear_unit_fit_its_gamma(bidirectional: bool) -> None:
    """gamma is sqrt(1 - |lambda|^2), which keeps the variance of white noise: equation (7) of the paper."""
    made = anyrnn.Recurrent("lru", 5, 33, num_layers=2, bidirectional=bidirectional, dtype="float64", seed=1).parameters
    suffixes = [name.removeprefix("nu_log") for name in made if name.startswith("nu_log")]
    assert len(suffixes) == (4 if bidirectional else 2)
    for suffix in suffixes:
        eigenvalues = np.exp(-np.exp(made[f"nu_log{suffix}"]) + 1j * np.exp(made[f"theta_log{suffix}"]))
        np.testing.assert_allclose(np.exp(made[f"gamma_log{suffix}"]) ** 2 + np.abs(eigenvalues) ** 2, 1, rtol=1e-12)
        assert (np.abs(eigenvalues) < 1).all()


@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_reservoir_has_the_spectral_radius_of_one(size: int) -> None:
    """Its weights and biases fill the range from -1 to 1 (the recurrent ones do before they are scaled)."""
    made = anyrnn.Recurrent("echo_state", 7, size, dtype="float64", seed=2).parameters
    assert np.abs(np.linalg.eigvals(made["W_l0"])).max() == pytest.approx(1, rel=1e-12)
    large = layer("echo_state").parameters
    uniform(-1, 1)(large["W_in_l0"])
    uniform(-1, 1)(large["b_l0"])
    W = large["W_l0"]
    uniform(-np.abs(W).max(), np.abs(W).max())(W)


@pytest.mark.parametrize("size", [1, 5, 7, 8, 31])
@pytest.mark.parametrize("modules", [1, 2, 4])
def test_modules_of_a_clockwork_are_as_equal_as_they_can_be(size: int, modules: int) -> None:
    """In the order of their periods; a feature sees those that are not faster."""
    made = anyrnn.Recurrent("clockwork", 3, size, modules=modules, seed=0).parameters
    T, mask = made["T_l0"], made["mask_l0"]
    assert (np.diff(T) >= 0).all()
    assert set(T) <= {2**k for k in range(modules)}
    counts = [(2**k == T).sum() for k in range(modules)]
    assert max(counts) - min(counts) <= 1
    assert all(mask[i, j] == (T[j] >= T[i]) for i in range(size) for j in range(size))


def test_a_memory_holds_a_window_of_its_signal() -> None:
    """The signal of the last `theta` steps is a sum of Legendre polynomials of how long ago: equation (3) of the paper."""
    theta, order = 200, 10
    made = anyrnn.Recurrent("lmu", 3, 4, memory=order, theta=theta, dtype="float64", seed=0).parameters
    signal, state = np.sin(np.arange(1000) / 40), np.zeros(order)
    for value in signal:
        state = made["A_l0"] @ state + made["B_l0"] * value
    ago = np.arange(theta)
    found = np.polynomial.legendre.legval(2 * ago / theta - 1, state)
    np.testing.assert_allclose(found, signal[::-1][:theta], atol=0.02)


def test_a_matrix_that_carries_the_input_begins_as_none() -> None:
    """Where sizes allow it."""
    made = anyrnn.Recurrent("sru", 9, 9, seed=0).parameters
    assert np.array_equal(made["W_x_l0"], np.eye(9))
    assert not np.array_equal(made["W_l0"], np.eye(9))
