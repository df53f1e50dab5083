"""Sizes as cells write them: names, numbers, and sums of them as text or made of `Dim`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn.errors import CellError
from anyrnn.ir.dims import Dim
from anyrnn.ir.show import text
from anyrnn.trace import Several, State, Step, Vec, cell
from anyrnn.trace.language import affine, concat, matrix, mean, sigmoid, split, tanh, total, vector
from tests.budget import assert_relative
from tests.networks import on_llvm, on_reference, on_torch, problem


@pytest.mark.parametrize("written", ["hidden - 1", " hidden-1 ", "-1 + hidden", "2*hidden - hidden - 1", "2 * hidden/2 - 1"])
def test_text_is_what_arithmetic_makes(written: str) -> None:
    assert Dim.of(written) == Dim.parse(written) == Dim.of("hidden") - 1
    assert str(Dim.of(written)) == "hidden - 1"


@pytest.mark.parametrize(
    ("written", "made"),
    [("4", Dim.of(4)), ("-hidden + 9", Dim.of(9) - "hidden"), ("a + 3*b/4 - 2", Dim.of("b") * 3 / 4 + "a" - 2)],
)
def test_other_text(written: str, made: Dim) -> None:
    assert Dim.of(written) == made
    assert str(made) == written


MOST = [["hidden - 1", 1], [Dim.of("hidden") - 1, 1], ("hidden - 1", Dim.of(1))]


def turning(sizes: Any) -> Any:
    def turned(x: Vec("hidden"), h):
        most, last = split(h, sizes)
        h = x + concat(last, most)
        return h, State(h=h)

    return cell(turned)


@pytest.mark.parametrize("sizes", MOST, ids=str)
def test_a_vector_is_split_into_given_sizes(sizes: Any) -> None:
    layer = anyrnn.Recurrent(turning(sizes), 5, 5, dtype="float64")
    first = np.arange(5.0)
    x = np.zeros((2, 1, 5))
    output, _ = layer(x, first.reshape(1, 1, 5))
    assert np.array_equal(output[:, 0], [np.roll(first, 1), np.roll(first, 2)])
    assert text(turning(sizes).trace()).splitlines()[0] == "most = h[0:hidden - 1]"


@cell
def odd(x, a: Step("input - 1"), h: Vec("hidden + 2"), c: Vec("2*slow")):
    gates = affine("g", x, h, size="2*hidden + 5")
    z, u, one, two = split(gates, ["hidden + 2", "hidden", 1, 2])
    h = sigmoid(z) * h + total(one) * tanh(matrix("W", "hidden + 2", "input - 1") @ a)
    c = c + matrix("V", "2 * slow", "hidden") @ u + vector("b", "2*slow") * total(two)
    return concat(h, c), State(h=h, c=c)


def test_sizes_everywhere() -> None:
    graph = odd.trace()
    assert [str(s.shape[0]) for s in graph.states] == ["hidden + 2", "2*slow"]
    assert {p.name: [str(d) for d in p.shape] for p in graph.parameters} == {
        "weight_ih": ["2*hidden + 5", "input"],
        "weight_hh": ["2*hidden + 5", "hidden + 2"],
        "bias_ih": ["2*hidden + 5"],
        "bias_hh": ["2*hidden + 5"],
        "W": ["hidden + 2", "input - 1"],
        "V": ["2*slow", "hidden"],
        "b": ["2*slow"],
    }
    assert graph.size_names == ["input", "hidden", "slow"]


@cell
def uneven(x, h):
    z, n = split(affine("g", x, h, size="hidden + 1"), [1, "hidden"])
    h = h + total(sigmoid(z)) * tanh(n)
    return h, State(h=h)


def test_what_is_split_into_given_sizes_runs_on_kernels() -> None:
    p = problem(uneven, 5, 3, 4, 7, 2, True)
    expected, found = on_reference(p), on_llvm(p)
    derived = on_torch(p)
    for name, value in expected.items():
        assert_relative(value, derived[name], "reference backend against torch autograd, float64", name)
        assert_relative(found[name], value, "llvm float64 against the reference backend", name)


def test_the_gradient_of_a_split_is_that_of_autograd() -> None:
    p = problem(odd, 4, 3, 5, 6, slow=2)
    expected = on_torch(p)
    for name, value in on_reference(p).items():
        assert_relative(value, expected[name], "reference backend against torch autograd, float64", name)


def test_cuts_that_a_vector_gets_from_another() -> None:
    """`z` is cut in the middle, and so is what is added to it, whose border is elsewhere."""

    @cell
    def turning(x, h):  # type: ignore[no-untyped-def]
        last, most = split(h, [1, "hidden - 1"])
        turned = concat(most, last)
        z = affine("z", x, h)
        a, b = split(z, 2)
        h = tanh(z) * mean(z + turned) + 0.1 * concat(b, a)
        return h, State(h=h)

    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    layer = anyrnn.Recurrent(turning, 3, 4, seed=0)
    h, parameters = np.zeros((2, 4), np.float32), layer.parameters
    for step, output in zip(x, layer(x)[0], strict=True):
        z = step @ parameters["weight_ih_l0"].T + h @ parameters["weight_hh_l0"].T
        z = z + parameters["bias_ih_l0"] + parameters["bias_hh_l0"]
        turned = np.roll(h, -1, axis=1)
        h = np.tanh(z) * (z + turned).mean(1, keepdims=True) + 0.1 * np.roll(z, 2, axis=1)
        np.testing.assert_allclose(output, h, rtol=0, atol=1e-6)


@cell
def counted(x, n: Vec("keys", init=1), m: Vec("2*keys + 1"), *rows: Several("keys"), keys=2):  # type: ignore[no-untyped-def, valid-type]
    k = tanh(affine("k", x, size="keys"))
    n = n + k * k
    m = tanh(affine("m", x, m, size="2*keys + 1"))
    rows = [row + one * affine("v", x) for row, one in zip(rows, split(k / n, keys), strict=True)]
    return sum(rows) + mean(m), State(n=n, rows=rows, m=m)


@cell
def around(x, h, n: Vec("k"), m: Vec("2*k + 1"), *rows: Several("k"), k=3):  # type: ignore[no-untyped-def, valid-type]
    y, state = counted(x, n, m, *rows, keys=k)
    assert len(state.rows) == k
    h = tanh(affine("h", h, y=y))
    return h, State(h=h, n=state.n, m=state.m, rows=state.rows)


@pytest.mark.parametrize(("made", "name"), [(counted, "keys"), (around, "k")])
@pytest.mark.parametrize("count", [None, 1, 5])
def test_hyper_parameters_are_sizes(made: Any, name: str, count: int | None) -> None:
    given = {} if count is None else {name: count}
    layer = anyrnn.Recurrent(made, 3, 7, seed=0, **given)
    keys, states = count or dict(made.signature.hypers)[name], layer.initial_state(4)
    assert states.n.shape == (1, 4, keys)
    assert states.m.shape == (1, 4, 2 * keys + 1)
    assert states.arrays[-1].shape == (1, 4, 7)
    assert set(dict(layer.network.sizes)) == {"input", "hidden"}
    p = problem(made, 4, 3, 5, 6, **given)
    expected = on_reference(p)
    for found in (on_llvm(p), on_torch(p, torch.float64)):
        for key, value in expected.items():
            assert_relative(found[key], value, "random cells, float64", key)


def test_a_number_of_states_is_no_size_of_a_layer() -> None:
    with pytest.raises(TypeError, match="hyper-parameter 'keys' of cell 'counted' should be a whole number, got '3'"):
        anyrnn.Recurrent(counted, 3, 7, keys="3")
    with pytest.raises(CellError, match="rows should be at least one state; 'keys' is 0"):
        anyrnn.Recurrent(counted, 3, 7, keys=0)

    @cell
    def sized(x, h: Vec("m"), *, m=2):  # type: ignore[no-untyped-def, valid-type]
        h = tanh(affine("h", x, h, size="m"))
        return h, State(h=h)

    with pytest.raises(CellError, match="size 'm', a hyper-parameter, should be at least 1, got -1"):
        anyrnn.Recurrent(sized, 3, 7, m=-1)
