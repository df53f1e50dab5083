"""JAX's transformations, of a layer whose calls are kernels, beside those of the scan, which are JAX's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import anyrnn.jax  # noqa: E402
from tests.budget import assert_relative  # noqa: E402
from tests.jax.layers import pair  # noqa: E402

pytestmark = pytest.mark.usefixtures("quick_compile")

KERNELS, parameters_of_numpy = pair("lstm", 3, 5, bidirectional=True)
SCAN, _ = pair("lstm", 3, 5, bidirectional=True, backend="reference")
P = dict(parameters_of_numpy.parameters)
X = np.random.default_rng(0).normal(size=(4, 6, 2, 3)).astype(np.float32)
"""Four batches"""
LENGTHS = np.array([[6, 3], [0, 2], [1, 1], [6, 6]])
Layer = anyrnn.jax.Recurrent


def loss(layer: Layer, parameters: Any, x: Any, **call: Any) -> Any:
    y, (_, c) = layer.apply(parameters, x, **call)
    return (y**2).sum() + (c**3).sum()


def one_after_the_other(layer: Layer, parameters: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        y, state = layer.apply(parameters, x, state)
        return state, y

    return jax.lax.scan(step, layer.initial_state(parameters, 2), X)


def pulled_twice(layer: Layer) -> Any:
    y, pull = jax.vjp(lambda p: layer.apply(p, X[0])[0], P)
    return pull(y), pull(2 * y)


FORWARD: dict[str, Callable[[Layer], Any]] = {
    "vmap": lambda layer: jax.vmap(lambda x: layer.apply(P, x))(X),
    "vmap over samples": lambda layer: jax.vmap(lambda x: layer.apply(P, x)[0], in_axes=2, out_axes=1)(X[0][None]),
    "vmap without a batch": lambda layer: jax.vmap(lambda x: layer.apply(P, x))(X[:, :, 0]),
    "vmap of lengths": lambda layer: jax.vmap(lambda x, n: layer.apply(P, x, lengths=n, padding="last"))(X, LENGTHS),
    "vmap of lengths alone": lambda layer: jax.vmap(lambda n: layer.apply(P, X[0], lengths=n))(LENGTHS),
    "vmap of all states": lambda layer: jax.vmap(lambda x: layer.apply(P, x, return_states="all", return_outputs="last"))(X),
    "vmap of states": lambda layer: jax.vmap(lambda h: layer.apply(P, X[0], (h, 2 * h)))(
        X[:, :2, :, :1] * np.ones(5, np.float32)
    ),
    "vmap of parameters": lambda layer: jax.vmap(lambda k: layer.apply({n: k * a for n, a in P.items()}, X[0]))(X[:2, 0, 0, 0]),
    "vmap over nothing": lambda layer: jax.vmap(lambda x: layer.apply(P, x))(X[:0]),
    "vmap of keys": lambda layer: jax.vmap(
        lambda k: Layer("gru", 3, 5, recurrent_dropout=0.5, backend=layer.backend).apply(
            Layer("gru", 3, 5).init(jax.random.key(0)), X[0], key=k
        )
    )(jax.random.split(jax.random.key(1), 3)),
    "conditions": lambda layer: jax.jit(lambda b: jax.lax.cond(b, lambda: layer.apply(P, X[0]), lambda: layer.apply(P, X[1])))(
        True
    ),
    "scan": lambda layer: jax.jit(partial(one_after_the_other, layer))(P),
}
FIRST: dict[str, Callable[[Layer], Any]] = {
    "grad of vmap": lambda layer: jax.grad(lambda p: jax.vmap(partial(loss, layer, p))(X).sum())(P),
    "vmap of grad": lambda layer: jax.vmap(lambda x: jax.grad(partial(loss, layer), (0, 1))(P, x))(X),
    "vmap of grad of lengths": lambda layer: jax.jit(jax.vmap(lambda x, n: jax.grad(lambda p: loss(layer, p, x, lengths=n))(P)))(
        X, LENGTHS
    ),
    "checkpoint": lambda layer: jax.grad(jax.checkpoint(partial(loss, layer)), (0, 1))(P, X[0]),
    "grad of scan": lambda layer: jax.jit(jax.grad(lambda p: (one_after_the_other(layer, p)[1] ** 2).sum()))(P),
    "grad of x alone": lambda layer: jax.grad(lambda x: loss(layer, P, x))(X[0]),
    "a pullback twice": pulled_twice,
    "jacrev": lambda layer: jax.jacrev(lambda x: layer.apply(P, x)[1][0])(X[0, :2]),
}
HIGHER: dict[str, Callable[[Layer], Any]] = {
    "jvp": lambda layer: jax.jvp(layer.apply, (P, X[0]), (P, X[1])),
    "linearize": lambda layer: jax.linearize(lambda x: layer.apply(P, x), X[0])[1](X[1]),
    "jacfwd": lambda layer: jax.jacfwd(lambda x: layer.apply(P, x)[1][0])(X[0, :2]),
    "hessian": lambda layer: jax.hessian(partial(loss, layer, P))(X[0, :2]),
    "grad of grad": lambda layer: jax.grad(lambda p: (jax.grad(lambda x: loss(layer, p, x))(X[0]) ** 2).sum())(P),
    "jvp of grad": lambda layer: jax.jvp(lambda p: jax.grad(partial(loss, layer))(p, X[0]), (P,), (P,)),
    "grad of jvp": lambda layer: jax.grad(lambda p: jax.jvp(partial(loss, layer, p), (X[0],), (X[1],))[1])(P),
    "third": lambda layer: jax.grad(lambda s: jax.grad(lambda s: jax.grad(lambda s: loss(layer, P, s * X[0]))(s))(s))(0.5),
}


QUICK = ("vmap", "vmap of lengths", "vmap of keys", "grad of vmap", "vmap of grad", "jacrev", "jvp", "grad of grad")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in (*FORWARD, *FIRST, *HIGHER)]
)
def test_transforms(name: str) -> None:
    transformed = (FORWARD | FIRST | HIGHER)[name]
    found, expected = transformed(KERNELS), transformed(SCAN)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_relative(a, b, "float32 kernels against a scan, through JAX's transformations", name, least=1.0)


def calls(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """Of our primitives in the program of a function, inner ones too."""
    text = str(jax.make_jaxpr(function)(*arguments))
    return [word.partition("[")[0] for word in text.split() if word.startswith("anyrnn_")]


def test_a_batch_of_batches_is_one_call() -> None:
    batches = jax.vmap(lambda x: KERNELS.apply(P, x)[0])
    assert calls(batches, X) == ["anyrnn_forward"]
    assert "scan" not in str(jax.make_jaxpr(batches)(X))
    trained = jax.grad(lambda p: jax.vmap(lambda x: KERNELS.apply(p, x)[0])(X).sum())
    assert calls(trained, P) == ["anyrnn_training", "anyrnn_backward"]
    assert "scan" not in str(jax.make_jaxpr(trained)(P))


def test_samples_have_the_bits_of_one_call_in_a_batch_of_batches() -> None:
    whole, _ = KERNELS.apply(P, X.swapaxes(0, 1).reshape(6, 8, 3))
    batches, _ = jax.vmap(lambda x: KERNELS.apply(P, x))(X)
    assert np.array_equal(np.asarray(batches).swapaxes(0, 1).reshape(whole.shape), whole)


def test_what_is_not_asked_for_is_not_computed() -> None:
    assert calls(lambda p: KERNELS.apply(p, X[0]), P) == ["anyrnn_forward"]
    text = str(jax.make_jaxpr(jax.grad(lambda x: KERNELS.apply(P, x)[0].sum()))(X[0]))
    assert "weights=False" in text
    assert "present=(True, False, False)" in text


def test_without_jit() -> None:
    with jax.disable_jit():
        found = jax.grad(partial(loss, KERNELS))(P, X[0])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(jax.grad(partial(loss, KERNELS)))(P, X[0])), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_several_devices() -> None:
    """Samples divided over the devices by `shard_map`, whose gradients are added up."""
    code = """
        import jax, numpy as np, anyrnn.jax
        from jax.sharding import AxisType, PartitionSpec as S
        x = np.random.default_rng(0).normal(size=(6, 4, 3)).astype("f")
        for backend in ("auto", "reference"):
            layer = anyrnn.jax.Recurrent("lstm", 3, 5, learned_state=True, backend=backend)
            p = layer.init(jax.random.key(0))
            mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
            loss = lambda p, x: (layer.apply(p, x)[0] ** 2).sum()
            grad = jax.shard_map(jax.value_and_grad(loss), mesh=mesh, in_specs=(S(), S(None, "d")), out_specs=(S("d"), S()))
            try:
                jax.jit(grad)(p, x)
                raise SystemExit("a loss that differs by device was taken for a whole one")
            except ValueError:
                pass
            total = lambda p, x: (lambda l, g: (jax.lax.psum(l, "d"), g))(*jax.value_and_grad(loss)(p, x))
            found = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=(S(), S(None, "d")), out_specs=(S(), S())))(p, x)
            for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.value_and_grad(loss)(p, x)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        print("done")
    """
    assert run(code, XLA_FLAGS="--xla_force_host_platform_device_count=2") == "done\n"


@pytest.mark.slow
def test_programs_that_jax_keeps_on_disk(tmp_path: Any) -> None:
    code = f"""
        import jax, numpy as np, anyrnn.jax
        jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        other = anyrnn.jax.Recurrent("rnn_tanh", 2, 3)
        {{}}
        layer = anyrnn.jax.Recurrent("gru", 3, 5)
        p = layer.init(jax.random.key(0))
        y = jax.jit(jax.grad(lambda p: layer.apply(p, np.ones((4, 2, 3), "f"))[0].sum()))(p)
        print({{{{n: a.tolist() for n, a in y.items()}}}})
    """
    first = run(code.format(""))
    assert any(tmp_path.iterdir())
    assert run(code.format("other.apply(other.init(jax.random.key(0)), np.ones((4, 2, 2), 'f'))")) == first


def run(code: str, **environment: str) -> str:
    import os
    from textwrap import dedent

    command, variables = [sys.executable, "-c", dedent(code)], os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, check=True, env=variables).stdout
