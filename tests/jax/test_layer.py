"""A layer's own methods, and what it refuses."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import anyrnn  # noqa: E402
import anyrnn.jax  # noqa: E402
from anyrnn import State, UnsupportedError, affine, cell, tanh, vector  # noqa: E402
from anyrnn._memory import ALIGNMENT, aligned  # noqa: E402
from anyrnn.jax import native  # noqa: E402
from tests.jax.layers import Given, assert_close, on_jax, on_numpy, pair  # noqa: E402

pytestmark = pytest.mark.usefixtures("quick_compile")

LAYER = anyrnn.jax.Recurrent("lstm", 3, 5, 2)
DROPPING = anyrnn.jax.Recurrent("lstm", 3, 5, 2, dropout=0.25)
P = LAYER.init(jax.random.key(0))
X = np.ones((7, 2, 3), np.float32)


def test_options_are_documented() -> None:
    for name in ("anyrnn.LayerOptions", "memory_budget", "backend"):
        assert name in str(anyrnn.jax.Recurrent.__doc__)


@cell
def of_jax(x, h):  # type: ignore[no-untyped-def]
    h = jnp.tanh(affine("f", x, h))
    return h, State(h=h)


def test_first_parameters() -> None:
    assert {n: a.shape for n, a in P.items()} == {n: a.shape for n, a in anyrnn.Recurrent("lstm", 3, 5, 2).parameters.items()}
    everything = np.concatenate([np.ravel(a) for a in P.values()])
    bound = 1 / np.sqrt(5)
    assert np.all(np.abs(everything) <= bound)
    assert 0.9 * bound < np.abs(everything).max()
    assert len(np.unique(everything)) > 0.99 * everything.size  # each parameter by a key of its own
    again = jax.jit(LAYER.init)(jax.random.key(0))
    assert all(np.array_equal(a, again[n]) for n, a in P.items())
    assert LAYER.init(jax.random.key(0), dtype=jnp.float16)["weight_hh_l0"].dtype == jnp.float16
    for dtype in (int, "float64"):
        with pytest.raises(TypeError, match="dtype should be float32"):
            LAYER.init(jax.random.key(0), dtype=dtype)
    with jax.enable_x64(True):
        assert LAYER.init(jax.random.key(0), dtype="float64")["weight_hh_l0"].dtype == np.float64
    with jax.debug_key_reuse(True):
        anyrnn.jax.Recurrent("echo_state", 3, 5).init(jax.random.key(0))


def test_first_values_that_a_cell_names() -> None:
    layer = anyrnn.jax.Recurrent("rnn_identity", 3, 5)
    assert np.array_equal(layer.init(jax.random.key(0))["weight_hh_l0"], np.eye(5))
    assert jax.vmap(layer.init)(jax.random.split(jax.random.key(0), 4))["weight_hh_l0"].shape == (4, 5, 5)
    drawn = anyrnn.jax.Recurrent("echo_state", 3, 5)
    one, other, same = (drawn.init(jax.random.key(k)) for k in (0, 1, 0))
    assert any(not np.array_equal(a, other[n]) for n, a in one.items())
    assert all(np.array_equal(a, same[n]) for n, a in one.items())


def test_a_layer_is_equal_to_one_that_was_made_alike() -> None:
    alike = anyrnn.jax.Recurrent("lstm", 3, 5, num_layers=2, dropout=0.25)
    assert alike == DROPPING
    assert hash(DROPPING) == hash(alike) == hash(copy.deepcopy(DROPPING)) == hash(pickle.loads(pickle.dumps(DROPPING)))
    assert anyrnn.jax.Recurrent("lstm", 3, 5, num_layers=2, dropout=0.5) != DROPPING
    assert anyrnn.jax.Recurrent("lstm", 3, 5, num_layers=2, dropout=0.25, batch_first=True) != DROPPING
    traced = []

    def call(layer: Any, parameters: Any) -> Any:
        traced.append(layer)
        return layer.apply(parameters, X, train=False)[0]

    for program in (jax.jit(call, static_argnums=0), jax.jit(call)):
        traced.clear()
        assert np.array_equal(program(DROPPING, P), program(alike, P))
        assert len(traced) == 1
    assert repr(DROPPING) == "Recurrent(lstm, 3, 5, num_layers=2, dropout=0.25)"
    with pytest.raises(AttributeError, match="batch_first: a layer cannot be changed"):
        LAYER.batch_first = True


def test_layers_that_begin_otherwise_are_not_equal() -> None:
    def beginning_with(value: float) -> Any:
        @cell
        def own(x, h):  # type: ignore[no-untyped-def]
            h = tanh(affine("f", x, h) + vector("b", init=value))
            return h, State(h=h)

        return anyrnn.jax.Recurrent(own, 3, 5)

    init = jax.jit(lambda layer, key: layer.init(key)["b_l0"], static_argnums=0)
    assert [float(init(beginning_with(value), jax.random.key(0))[0]) for value in (1.0, 2.0)] == [1.0, 2.0]


def test_a_layer_in_another_process() -> None:
    hash(LAYER)
    code = f"""
import pickle, anyrnn.jax
layer = pickle.loads({pickle.dumps(LAYER)!r})
alike = anyrnn.jax.Recurrent("lstm", 3, 5, 2)
print(layer == alike, hash(layer) == hash(alike))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "7"}
    )
    assert done.stdout == "True True\n"


def test_who_trains() -> None:
    key = jax.random.key(1)
    evaluated = LAYER.apply(P, X)[0]
    assert np.array_equal(DROPPING.apply(P, X, train=False)[0], evaluated)
    assert np.array_equal(DROPPING.apply(P, X, train=False, key=key)[0], evaluated)
    dropped = DROPPING.apply(P, X, key=key)[0]
    assert not np.array_equal(dropped, evaluated)
    assert np.array_equal(DROPPING.apply(P, X, train=True, key=key)[0], dropped)
    assert np.array_equal(LAYER.apply(P, X, train=True)[0], evaluated)
    assert np.array_equal(LAYER.apply(P, X, key=key)[0], evaluated)


def test_first_states() -> None:
    h, c = LAYER.initial_state(P, 4)
    assert h.shape == c.shape == (2, 4, 5)
    assert LAYER.initial_state(P)[0].shape == (2, 5)
    learned = anyrnn.jax.Recurrent("gru", 3, 5, learned_state=True)
    parameters = learned.init(jax.random.key(0)) | {"h0_l0": jnp.arange(5.0)}
    state = learned.initial_state(parameters, 2)
    assert np.array_equal(state, np.arange(5.0) * np.ones((1, 2, 5)))
    assert np.array_equal(learned.apply(parameters, X)[0], learned.apply(parameters, X, state)[0])
    gradient = jax.grad(lambda p: learned.apply(p, X)[0].sum())(parameters)["h0_l0"]
    given = jax.grad(lambda h: learned.apply(parameters, X, h)[0].sum())(state)
    np.testing.assert_allclose(gradient, given.sum((0, 1)), rtol=1e-5)


def test_on_numpy() -> None:
    layer = DROPPING.on_numpy(P)
    assert np.array_equal(layer(X)[0], LAYER.apply(P, X)[0])
    assert layer.dropout == 0.25
    with pytest.raises(TypeError, match=r"layer.on_numpy\(parameters\) is one"):
        anyrnn.weights.pack(LAYER)
    with pytest.raises(TypeError, match=r"layer.on_numpy\(parameters\) is one"):
        anyrnn.onnx.export(LAYER, "layer.onnx")
    half = LAYER.on_numpy({n: a.astype(jnp.bfloat16) for n, a in P.items()})
    assert half.dtype == np.float32


def test_explain() -> None:
    told = str(anyrnn.explain(LAYER, P, X, lengths=[7, 3]))
    assert told.startswith("Recurrent(lstm, 3, 5, num_layers=2), 7 steps of up to 2 samples, float32")
    assert "llvm: native kernels" in told
    scan = anyrnn.jax.Recurrent("lstm", 3, 5, 2, backend="reference")
    assert "reference: the interpreter on JAX, in a scan, because backend='reference' was asked for" in str(
        anyrnn.explain(scan, P, X)
    )


def test_a_cell_of_ones_own() -> None:
    @cell
    def own(x, h):  # type: ignore[no-untyped-def]
        h = h + 0.1 * tanh(affine("f", x, h))
        return h, State(h=h)

    layer = anyrnn.jax.Recurrent(own, 3, 5)
    parameters = layer.init(jax.random.key(0))
    _, h = layer.apply(parameters, X)
    expected = jnp.zeros((2, 5))
    for x in X:
        product = x @ parameters["weight_ih_l0"].T + expected @ parameters["weight_hh_l0"].T
        expected = expected + 0.1 * jnp.tanh(product + parameters["bias_ih_l0"] + parameters["bias_hh_l0"])
    np.testing.assert_allclose(h[0], expected, rtol=1e-5)


def test_no_samples() -> None:
    y, (h, _) = LAYER.apply(P, X[:, :0])
    assert y.shape == (7, 0, 5)
    assert h.shape == (2, 0, 5)
    gradients = jax.grad(lambda p: LAYER.apply(p, X[:, :0])[0].sum())(P)
    assert all(not np.any(a) for a in gradients.values())


def test_lengths_that_are_traced() -> None:
    call = jax.jit(lambda n: LAYER.apply(P, X, lengths=n)[0])
    assert np.array_equal(call(jnp.array([3, 7])), LAYER.apply(P, X, lengths=[3, 7])[0])
    with pytest.raises(ValueError, match="lengths should be 2 integers, one for each sample, got float32"):
        call(jnp.array([3.0, 7.0]))


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no steps": (lambda: LAYER.apply(P, X[:0]), ValueError, "x has no steps"),
    "features": (lambda: LAYER.apply(P, X[..., :2]), ValueError, "x should have 3 features, got 2"),
    "dimensions": (lambda: LAYER.apply(P, X[0, 0]), ValueError, r"x should be 2-D \[T, 3\] or 3-D, got 1-D"),
    "integers": (lambda: LAYER.apply(P, X.astype(int)), TypeError, "x should be of the parameters' dtype, float32, got int"),
    "another dtype": (lambda: LAYER.apply(P, X.astype(jnp.bfloat16)), TypeError, "parameters' dtype, float32, got bfloat16"),
    "no parameters": (lambda: LAYER.apply({}, X), ValueError, "missing: bias_hh_l0"),
    "a list": (lambda: LAYER.apply([], X), TypeError, "parameters should be a dict of arrays by name, got list"),
    "two dtypes": (
        lambda: LAYER.apply(P | {"bias_hh_l0": P["bias_hh_l0"].astype(jnp.float16)}, X),
        TypeError,
        "parameters should have one dtype, got float16, float32",
    ),
    "a parameter's shape": (
        lambda: LAYER.apply(P | {"weight_hh_l0": P["weight_ih_l0"]}, X),
        ValueError,
        r"parameter weight_hh_l0 should have shape \(20, 5\), got \(20, 3\)",
    ),
    "states": (lambda: LAYER.apply(P, X, X), ValueError, r"state should be 2 arrays \(h, c\), got 1"),
    "a state's shape": (lambda: LAYER.apply(P, X, (X, X)), ValueError, r"state h should have shape \(2, 2, 5\)"),
    "a state's dtype": (
        lambda: LAYER.apply(P, X, (jnp.zeros((2, 2, 5), int),) * 2),
        TypeError,
        "state h should be float32, got int32",
    ),
    "a length": (lambda: LAYER.apply(P, X, lengths=[8, 1]), ValueError, "lengths should be from 0 to the 7 steps"),
    "lengths": (lambda: LAYER.apply(P, X, lengths=[8]), ValueError, "one length for each of the 2 samples, got 1"),
    "a mask": (lambda: LAYER.apply(P, X, mask=X[..., 0]), TypeError, r"mask should be an array of bool, got float32"),
    "a mask's shape": (
        lambda: LAYER.apply(P, X, mask=np.ones((2, 7), bool)),
        ValueError,
        r"mask should have shape \(7, 2\), one for each step of the input, got \(2, 7\)",
    ),
    "padding": (lambda: LAYER.apply(P, X, padding="first"), TypeError, "padding should be a number or 'last', got 'first'"),
    "padding of nothing": (lambda: LAYER.apply(P, X, padding=3.0), ValueError, "there are no lengths and no mask"),
    "an argument": (lambda: LAYER.apply(P, X, lenghts=[1, 2]), TypeError, r"did you mean 'lengths'\?"),
    "rows of samples": (lambda: LAYER.apply(P, X, cu_seqlens=[0, 2]), UnsupportedError, "programs of JAX have fixed sizes"),
    "no array": (lambda: LAYER.apply(P, object()), TypeError, "x should be an array, got object"),
    "no state": (lambda: LAYER.apply(P, X, (object(), X)), TypeError, "state h should be an array, got object"),
    "nobody says who trains": (lambda: DROPPING.apply(P, X), ValueError, "this layer draws random numbers when it trains"),
    "training without a key": (lambda: DROPPING.apply(P, X, train=True), ValueError, "this layer draws random numbers"),
    "who trains": (lambda: LAYER.apply(P, X, train="yes"), TypeError, "train should be a bool, got 'yes'"),
    "other steps": (
        lambda: anyrnn.jax.Recurrent("augru", 3, 5).apply(
            anyrnn.jax.Recurrent("augru", 3, 5).init(jax.random.key(0)), X, a=X[:3, :, :1]
        ),
        ValueError,
        "a should have as many steps and samples as x",
    ),
    "padding beyond": (
        lambda: LAYER.apply(P, X, lengths=[7, 7], padding=1e39),
        ValueError,
        "should be a number that float32 has",
    ),
    "a batch size": (lambda: LAYER.initial_state(P, 0), ValueError, "batch_size must be greater than zero"),
    "a further input": (
        lambda: anyrnn.jax.Recurrent("augru", 3, 5).apply(anyrnn.jax.Recurrent("augru", 3, 5).init(jax.random.key(0)), X),
        TypeError,
        "cell 'augru' needs the per-step input",
    ),
    "outputs": (lambda: LAYER.apply(P, X, return_outputs="some"), ValueError, "return_outputs should be 'all', 'last' or 'none'"),
    "a backend": (
        lambda: anyrnn.jax.Recurrent("lstm", 3, 5, backend="triton"),
        ValueError,
        "backend should be one of auto, llvm",
    ),
    "a budget of the scan": (
        lambda: anyrnn.jax.Recurrent("lstm", 3, 5, 2, backend="reference", memory_budget=9).apply(P, X),
        UnsupportedError,
        "memory_budget is for native kernels",
    ),
    "too small a budget": (
        lambda: jax.grad(lambda p: anyrnn.jax.Recurrent("lstm", 3, 5, 2, memory_budget=9).apply(p, X)[0].sum())(P),
        UnsupportedError,
        "memory_budget",
    ),
    "a budget of resets": (
        lambda: anyrnn.jax.Recurrent("lstm", 3, 5, 2, memory_budget=10**9).apply(P, X, reset=np.ones((7, 2), bool)),
        UnsupportedError,
        "memory_budget: with resets",
    ),
    "a counter in 16 bits": (
        lambda: anyrnn.jax.Recurrent("lstm_phased", 3, 5).apply(
            anyrnn.jax.Recurrent("lstm_phased", 3, 5).init(jax.random.key(0), dtype=jnp.bfloat16), X.astype(jnp.bfloat16)
        ),
        UnsupportedError,
        "state 't' counts steps, in bfloat16 to 256 only",
    ),
    "clipped gradients twice": (
        lambda: jax.grad(
            lambda x: jax.grad(lambda x: anyrnn.jax.Recurrent("lstm", 3, 5, 2, clip_gradient=0.1).apply(P, x)[0].sum())(x).sum()
        )(X),
        TypeError,
        "a clipped gradient has no derivative",
    ),
    "clipped gradients forward": (
        lambda: jax.jvp(lambda x: anyrnn.jax.Recurrent("lstm", 3, 5, 2, clip_gradient=0.1).apply(P, x)[0], (X,), (X,)),
        TypeError,
        "clip_gradient: in forward mode there is no gradient to clip",
    ),
    "export": (
        lambda: jax.export.export(jax.jit(lambda x: LAYER.apply(P, x)))(X),
        ValueError,
        "Cannot serialize code with custom calls",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()


def test_programs_can_be_read() -> None:
    assert "call=(lstm 3->5)" in str(jax.make_jaxpr(LAYER.apply)(P, X))


@pytest.mark.parametrize("jit", [False, True])
def test_debugging_finds_nan(jit: bool) -> None:
    def gradient(p: Any, x: Any) -> Any:
        return jax.grad(lambda p: LAYER.apply(p, x)[0].sum())(p)

    for function in (lambda p, x: LAYER.apply(p, x)[0], gradient):
        with jax.debug_nans(True):
            jax.block_until_ready((jax.jit(function) if jit else function)(P, X))
            with pytest.raises(FloatingPointError, match="nan"):
                jax.block_until_ready((jax.jit(function) if jit else function)(P, X * np.nan))


def test_lengths_without_a_batch() -> None:
    expected = LAYER.apply(P, X[:, 0], lengths=[3])[0]
    assert np.array_equal(LAYER.apply(P, X[:, 0], lengths=3)[0], expected)
    assert np.array_equal(LAYER.apply(P, X[:, 0], lengths=jnp.int32(3))[0], expected)
    assert np.array_equal(jax.jit(lambda n: LAYER.apply(P, X[:, 0], lengths=n)[0])(3), expected)
    with jax.numpy_rank_promotion("raise"):
        for batch_first, backend in ((False, "auto"), (True, "auto"), (False, "reference")):
            layer = anyrnn.jax.Recurrent("lstm", 3, 5, 2, batch_first=batch_first, backend=backend)
            x = X.swapaxes(0, 1) if batch_first else X
            jax.grad(lambda p: layer.apply(p, x, lengths=[3, 2], padding="last")[0].sum())(P)  # noqa: B023


def test_errors_within_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised where XLA calls is told by XLA."""

    def fail(*given: Any) -> None:
        raise MemoryError("of a test")

    monkeypatch.setattr(native, "_kernels", fail)
    layer = anyrnn.jax.Recurrent("gru", 3, 5)
    parameters = layer.init(jax.random.key(0))
    with pytest.raises((RuntimeError, ValueError), match="MemoryError: of a test"):  # as JAX chooses
        jax.block_until_ready(layer.apply(parameters, X))  # it may return before the call has run


def test_python_that_fails_before_it_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every depth of the stack at which something in the handler fails: an error, never numbers that nobody made."""
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)  # pytest's has no room there either
    call, expected = jax.jit(lambda x: LAYER.apply(P, x)[0]), np.asarray(LAYER.apply(P, X)[0])
    call(X)

    def fails(depth: int) -> bool:
        if depth:
            return fails(depth - 1)
        try:
            found = np.asarray(call(X))
        except (RecursionError, RuntimeError, ValueError):
            return True
        assert np.array_equal(found, expected)
        return False

    def fails_at(depth: int) -> bool:
        try:
            return fails(depth)
        except RecursionError:  # before the call
            return False

    here = sys.getrecursionlimit() - len(inspect.stack())
    assert any([fails_at(here - left) for left in range(60, 4, -1)])  # noqa: C419 - all of them


@pytest.mark.slow
def test_interrupts_at_any_moment() -> None:
    code = """
        import os, signal, subprocess, sys, time, numpy as np, jax, anyrnn.jax
        layer = anyrnn.jax.Recurrent("lstm", 8, 8)
        p, x = layer.init(jax.random.key(0)), np.ones((3, 2, 8), "f")
        call = jax.jit(lambda p, x: layer.apply(p, x)[0])
        expected = np.asarray(call(p, x))
        sends = "import os, random, time" + chr(10)
        sends += f"for _ in range(2000): time.sleep(random.random() * 2e-3); os.kill({os.getpid()}, 2)"
        sender, raised, calls = subprocess.Popen([sys.executable, "-c", sends]), 0, 0

        armed = False

        def interrupt(*_):
            if armed:
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        while sender.poll() is None:
            try:
                armed = True
                for _ in range(20):
                    assert np.array_equal(call(p, x), expected), "numbers that nobody made"
                    calls += 1
                armed = False
            except (KeyboardInterrupt, RuntimeError, ValueError):
                armed = False
                raised += 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("done" if raised and calls else (raised, calls))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_separate_directions_of_different_lengths() -> None:
    layer, layer_of_numpy = pair("lstm", 3, 5, bidirectional=True, merge="separate")
    for call in ({"lengths": [4, 2]}, {}):
        given = Given(layer_of_numpy, 4, 2, call)
        assert_close(on_jax(layer, given), on_numpy(given), 1e-6)


def test_no_samples_of_learned_states() -> None:
    for backend in ("auto", "reference"):
        learned = anyrnn.jax.Recurrent("gru", 3, 5, learned_state=True, backend=backend)
        parameters = learned.init(jax.random.key(0))
        x = np.ones((4, 0, 3), np.float32)
        gradients = jax.grad(lambda p: learned.apply(p, x, lengths=[])[0].sum())(parameters)  # noqa: B023
        assert all(not np.any(a) for a in gradients.values())


def test_the_scan_may_be_exported() -> None:
    scan = anyrnn.jax.Recurrent("lstm", 3, 5, 2, backend="reference")
    saved = jax.export.export(jax.jit(lambda x: scan.apply(P, x)[0]))(X).serialize()
    np.testing.assert_allclose(jax.export.deserialize(saved).call(X), LAYER.apply(P, X)[0], atol=1e-6)


def test_a_reserve_that_was_moved_is_copied() -> None:
    """To where kernels can read it: JAX may copy an array to any multiple of 16 bytes."""
    kernels = native.Dense.__new__(native.Dense)
    kernels.reserve = 100
    memory = aligned(200)
    memory[:] = np.arange(200, dtype=np.uint8)
    for start, is_copied in ((0, False), (16, True)):
        found = kernels.kept(memory[start:].ctypes.data)
        assert np.array_equal(found, memory[start : start + 100])
        assert found.ctypes.data % ALIGNMENT == 0
        assert np.shares_memory(found, memory) is not is_copied
