"""Formulas, which are cells that remember nothing, and what is taken over all steps."""

from __future__ import annotations

import numpy as np
import pytest

import anyrnn
from anyrnn import maximum, runtime


def draw(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def leaky(name, given, size=3):
    return runtime.elementwise(name, given, size, lambda v: maximum(v, 0.25 * v))


def scaled(name, given, dtype=np.float32):
    arrays = {"scale": draw(3, seed=1, dtype=dtype), "shift": draw(3, seed=2, dtype=dtype)}
    return runtime.elementwise(name, given, 3, lambda v, scale, shift: v * scale + shift, **arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_formula_is_of_each_step_or_each_sample(dtype):
    layers = [scaled("scaled", "x", dtype), leaky("leaky", "scaled"), runtime.Last("last", ["x"]), leaky("end", "last")]
    network = runtime.Network(3, layers, ["leaky", "end"])
    x = draw(5, 2, 3, dtype=dtype)
    y = x * draw(3, seed=1, dtype=dtype) + draw(3, seed=2, dtype=dtype)
    output = network.run(x)[0]
    assert output["leaky"].dtype == output["end"].dtype == dtype
    np.testing.assert_allclose(output["leaky"], np.maximum(y, y / 4), rtol=1e-5, atol=1e-6)
    assert np.array_equal(output["end"], np.maximum(x[-1], x[-1] / 4))


def test_formulas_without_parameters_have_the_dtype_of_the_network():
    network = runtime.Network(3, [leaky("leaky", "x"), runtime.Dense("dense", ["leaky"], draw(2, 3, dtype=np.float64))])
    assert network.run(draw(5, 2, 3, dtype=np.float64))[0].dtype == np.float64


def test_formulas_are_kept_with_their_equations(tmp_path):
    network = runtime.Network(3, [scaled("scaled", "x"), leaky("leaky", "scaled")])
    network.save(tmp_path / "it.safetensors")
    x = draw(5, 2, 3)
    again = runtime.load(tmp_path / "it.safetensors")
    assert np.array_equal(again.run(x)[0], network.run(x)[0])
    stream = again.stream(2)
    assert np.array_equal([stream.step(step) for step in x], network.run(x)[0])
    assert not network.run(x)[1]


def test_what_remembers_is_no_formula():
    layer = anyrnn.Recurrent("gru", 3, 4, seed=0)
    with pytest.raises(ValueError, match="it: a formula is of one layer that goes forwards and has no states that are vectors"):
        runtime.Formula("it", ["x"], layer.network, layer.parameters)
    with pytest.raises(ValueError, match=r"leaky: expected inputs of \[3\] features, got \[T, N, 4\]"):
        runtime.Network(4, [leaky("leaky", "x")])


@pytest.mark.parametrize(("kind", "of_numpy"), [(runtime.Mean, np.mean), (runtime.Max, np.max)])
def test_mean_and_maximum_are_over_the_steps_that_are_there(kind, of_numpy, tmp_path):
    network = runtime.Network(3, [kind("end", ["x"])])
    x, lengths = draw(6, 4, 3) - 2, [6, 2, 0, 1]
    np.testing.assert_allclose(network.run(x)[0], of_numpy(x, 0), rtol=1e-6)
    output = network.run(x, lengths=lengths)[0]
    for n, length in enumerate(lengths):
        expected = of_numpy(x[:length, n], 0) if length else np.zeros(3)
        np.testing.assert_allclose(output[n], expected, rtol=1e-6)
    network.save(tmp_path / "it.safetensors")
    assert np.array_equal(runtime.load(tmp_path / "it.safetensors").run(x, lengths=lengths)[0], output)
    with pytest.raises(ValueError, match="end needs whole sequences, as it looks at all steps"):
        network.stream()
