"""Rewrites give the same numbers, where a step depends on the last bit too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anyrnn import Recurrent, State, Step, Vec, affine, cell, equal, floor, scalar, split, tanh, vector, where


@cell
def floors(x, h, t: Step(1)):  # type: ignore[no-untyped-def, valid-type]
    phase = t - floor(t / 41) * 41
    return affine("y", phase), State(h=h + phase * tanh(affine("n", x)))


@cell
def compares(x, h, t: Step(1)):  # type: ignore[no-untyped-def, valid-type]
    phase = where(equal(t / 41, 1.0), 0.0 * t, t)
    return affine("y", phase), State(h=h + phase * tanh(affine("n", x)))


@cell
def by_a_parameter(x, h, t: Step(1)):  # type: ignore[no-untyped-def, valid-type]
    phase = where(t / scalar("period", init=41.0) < 1, t, 0.0 * t)
    return affine("y", phase), State(h=h + phase * tanh(affine("n", x)))


@cell
def beside_a_longer_one(x, h, t: Step(1)):  # type: ignore[no-untyped-def, valid-type]
    """Of which the one feature is a number."""
    phase = where(t / 41 < vector("r", init=1.0), tanh(affine("n", x, bias=False)) + 1, 0 * h)
    return affine("y", phase, size=1, bias=False), State(h=h + phase)


@cell
def in_parts(x, h, t: Step(2)):  # type: ignore[no-untyped-def, valid-type]
    first, _ = split(floor(t / 41) * 41 - t, 2)
    return affine("y", first), State(h=h + first * tanh(affine("n", x)))


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("made", [floors, compares, by_a_parameter, beside_a_longer_one, in_parts], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_quotient_that_a_step_depends_on_is_no_product(made: Any, backend: str, dtype: Any) -> None:
    layer = Recurrent(made, 2, 3, backend=backend, dtype=dtype, seed=0)
    t = np.array([41, 47, 49, 55, 61], dtype)[:, None, None]
    t = np.repeat(t, 2, -1) if made is in_parts else t
    first = layer(np.zeros((5, 1, 2), dtype), t=t)[0][0]
    if made is beside_a_longer_one:
        assert not first.any()
    else:
        assert np.array_equal(first, layer(np.zeros((1, 1, 2), dtype), t=np.zeros_like(t[:1]))[0][0])


@cell
def of_a_vector(x, h, t: Vec()):  # type: ignore[no-untyped-def, valid-type]
    h = h + floor(t / 41) * tanh(affine("n", x))
    return h, State(h=h, t=t + 1)


@cell
def of_the_step_before(x, h, q: Vec(), t: Vec()):  # type: ignore[no-untyped-def, valid-type]
    h = h + floor(q) * tanh(affine("n", x))
    return h, State(h=h, q=t / 41, t=t + 1)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_of_what_a_later_step_tests(backend: str) -> None:
    output = Recurrent(of_the_step_before, 2, 3, backend=backend, seed=0)(np.ones((44, 1, 2), np.float32))[0]
    assert not output[:42].any()
    assert output[42].all()


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_of_a_state_that_counts(backend: str) -> None:
    layer = Recurrent(of_a_vector, 2, 3, backend=backend, seed=0)
    output = layer(np.ones((43, 1, 2), np.float32))[0]
    assert not output[:41].any()
    assert output[41].all()


@pytest.mark.parametrize("cell", ["ctrnn", "lstm_phased"])
def test_what_a_clipped_state_is_divided_by_is_made_before_the_steps(cell: str) -> None:
    """Whether the state is within its bounds depends on the quotient, and so does the gradient, which divides too."""
    found = []
    for backend in ("llvm", "reference"):
        layer = Recurrent(cell, 3, 4, clip_state=0.5, backend=backend, dtype=np.float64, seed=0)
        more = {name: np.ones((5, 2, size)) for name, size in layer.network.further_inputs}
        output, _, reserve = layer.forward_training(np.linspace(-1, 1, 30).reshape(5, 2, 3), **more)
        found.append([output, *layer.backward(reserve, np.cos(output))[2].values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
