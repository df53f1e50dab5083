"""Streams: a layer called step after step."""

import gc
import re

import numpy as np
import pytest

import anyrnn
from anyrnn import State, Step, affine, cell, tanh
from anyrnn.backends.llvm import split, threads
from tests.zoo import EVERY, further, input_size, sizes_of


def draw(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@cell
def timed(x, h, dt: Step(2)):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("a", x, h) + affine("b", dt))
    return h, State(h=h)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_stream_equals_one_call(name: str, backend: str, dtype: type) -> None:
    size = input_size(name, 3, 6)
    layer = anyrnn.Recurrent(name, size, 6, 2, seed=0, backend=backend, dtype=dtype, **sizes_of(name))
    x, more = draw(7, 2, size, dtype=dtype), further(layer.network, 7, 2, dtype=dtype)
    output, last = layer(x, **more)
    stream = layer.stream(2)
    assert np.array_equal([stream(step, **{k: a[t] for k, a in more.items()}) for t, step in enumerate(x)], output)
    for state, expected in zip(stream.states.values(), last if isinstance(last, tuple) else (last,), strict=True):
        assert np.array_equal(state, expected)


@pytest.mark.parametrize(("cell", "steps", "rows", "count"), [
    ("lstm", 10_000, 1, 1), ("lstm", 10_000, 1, 2), ("lstm", 500, 1, 3), ("gru_before", 500, 1, 4),
    ("lstm_layernorm", 200, 30, 2), ("mgu", 200, 3, 3),
])  # fmt: skip
def test_long_streams_have_the_bits_of_one_call(
    cell: str, steps: int, rows: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "START", 0.0)
    layer, x = anyrnn.Recurrent(cell, 5, 33, seed=0, backend="llvm"), draw(steps, rows, 5)
    expected = layer(x)[0]
    monkeypatch.setattr(threads, "default", lambda: count)
    stream = layer.stream(rows)
    assert np.array_equal([stream(step) for step in x], expected)


def test_per_step_inputs() -> None:
    layer = anyrnn.Recurrent(timed, 3, 6, seed=0)
    x, dt = draw(5, 2, 3), draw(5, 2, 2)
    stream = layer.stream(2)
    assert np.array_equal([stream(a, dt=b) for a, b in zip(x, dt, strict=True)], layer(x, dt=dt)[0])
    with pytest.raises(TypeError, match=r"^the per-step inputs should be dt, got none$"):
        stream(x[0])
    with pytest.raises(TypeError, match=r"^the per-step inputs should be dt, got dt, dx$"):
        stream(x[0], dt=dt[0], dx=dt[0])


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_the_parameters_are_those_of_its_making(backend: str) -> None:
    layer, x = anyrnn.Recurrent("gru", 3, 6, seed=0, backend=backend, batch_first=True), draw(4, 1, 3)
    expected = layer(x.swapaxes(0, 1))[0].swapaxes(0, 1)
    stream = layer.stream()
    first = stream(x[0])
    for array in layer.parameters.values():
        array += 1
    assert np.array_equal([first, *(stream(step) for step in x[1:])], expected)


def test_states_are_read_and_written_and_reset() -> None:
    layer, x = anyrnn.Recurrent("lstm", 3, 6, seed=0), draw(4, 2, 3)
    stream = layer.stream(2)
    output = [stream.step(step) for step in x]
    kept = {name: state.copy() for name, state in stream.states.items()}
    assert list(kept) == ["h", "c"]
    after = stream(x[0])
    for name, state in stream.states.items():
        state[...] = kept[name]
    assert np.array_equal(stream(x[0]), after)
    stream.reset()
    assert np.array_equal([stream(step) for step in x], output)


def test_states_are_written_in_place_only() -> None:
    stream = anyrnn.Recurrent("lstm", 3, 6, seed=0).stream()
    with pytest.raises(TypeError, match="does not support item assignment"):
        stream.states["h"] = np.zeros((1, 1, 6), np.float32)  # type: ignore[index]
    with pytest.raises(ValueError, match=r"could not broadcast"):
        stream.states["h"][...] = np.zeros((1, 1, 7), np.float32)


def test_outputs_are_new_arrays() -> None:
    stream, x = anyrnn.Recurrent("gru", 3, 6, seed=0).stream(), draw(2, 1, 3)
    first = stream(x[0])
    kept = first.copy()
    stream(x[1])
    assert np.array_equal(first, kept)


def test_streams_do_not_disturb_each_other() -> None:
    layer, x = anyrnn.Recurrent("gru", 3, 6, seed=0), draw(5, 2, 1, 3)
    one, other = layer.stream(), layer.stream()
    found = [(one(a), other(b)) for a, b in x]
    assert np.array_equal([a for a, _ in found], layer(x[:, 0])[0])
    assert np.array_equal([b for _, b in found], layer(x[:, 1])[0])


def test_any_layout_of_the_input() -> None:
    layer, x = anyrnn.Recurrent("gru", 3, 6, seed=0), draw(3, 4)
    assert np.array_equal(layer.stream(4)(x.T), layer(np.ascontiguousarray(x.T)[None])[0][0])


def test_a_stream_needs_no_layer() -> None:
    layer, x = anyrnn.Recurrent("gru", 3, 6, seed=0), draw(3, 1, 3)
    expected, stream = layer(x)[0], layer.stream()
    del layer
    gc.collect()
    assert np.array_equal([stream(step) for step in x], expected)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize(("x", "error", "message"), [
    ([1.0, 2.0, 3.0], TypeError, "x should be a NumPy array of float32, got list; np.asarray(x, 'float32') makes one of it"),
    (
        draw(2, 3, dtype=np.float64), TypeError,
        "x should be a NumPy array of float32, got float64; x.astype('float32') makes it so",
    ),
    (draw(3), ValueError, "x should have shape (2, 3), got (3,)"),
    (draw(1, 3), ValueError, "x should have shape (2, 3), got (1, 3); stream(batch_size=N) is of N samples"),
    (draw(1, 2, 3), ValueError, "x should have shape (2, 3), got (1, 2, 3)"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_any_work(x: object, error: type[Exception], message: str, backend: str) -> None:
    stream = anyrnn.Recurrent("gru", 3, 6, seed=0, backend=backend).stream(2)
    before = stream.states["h"].copy()
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        stream(x)  # type: ignore[arg-type]
    assert np.array_equal(stream.states["h"], before)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_after_an_interrupted_call_it_waits_for_a_reset(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, x = anyrnn.Recurrent("gru", 3, 6, seed=0, backend=backend).stream(), draw(2, 1, 3)
    first = stream(x[0])
    before = stream.states["h"].copy()
    step = "_native" if backend == "llvm" else "_interpret"
    whole = getattr(stream, step)

    def interrupted() -> None:
        whole()
        raise KeyboardInterrupt

    monkeypatch.setattr(stream, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream(x[1])
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^a call of this stream was interrupted: .* reset\(\) it, and write the states"):
            stream(x[1])
    stream.reset()
    assert np.array_equal(stream(x[0]), first)
    assert np.array_equal(stream.states["h"], before)


def test_what_no_stream_can_be() -> None:
    with pytest.raises(
        ValueError, match=r"^a layer that reads backwards needs whole sequences: it cannot be called step after step$"
    ):
        anyrnn.Recurrent("gru", 3, 6, bidirectional=True).stream()
    with pytest.raises(ValueError, match=r"^batch_size must be greater than zero$"):
        anyrnn.Recurrent("gru", 3, 6).stream(0)
    with pytest.raises(TypeError, match=r"^batch_size should be of type int, got: float$"):
        anyrnn.Recurrent("gru", 3, 6).stream(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("doze", "asleep"), [(0.0, True), (1e9, False)])
def test_a_step_is_planned_for_threads_that_sleep_or_not(monkeypatch: pytest.MonkeyPatch, doze: float, asleep: bool) -> None:
    """By how long ago the last step was, and how long the threads in use look for work."""
    stream = anyrnn.Recurrent("gru", 3, 6, seed=0, backend="llvm").stream()
    x, used = draw(1, 3), []
    stream(x)
    stream(x)
    repeated = stream._native
    monkeypatch.setattr(threads, "doze", lambda: doze)
    monkeypatch.setattr(repeated.frame, "threads", 2)
    monkeypatch.setattr(repeated.frame, "threads_asleep", 1, raising=False)
    monkeypatch.setattr(repeated.frame, "call_again", used.append)
    stream(x)
    stream(x)
    assert used == [1 if asleep else 2] * 2


@pytest.mark.parametrize(("pool", "expected"), [(None, threads.DOZE), (object(), threads.OPENMP_DOZE)])
def test_how_soon_threads_sleep_is_their_pools_matter(monkeypatch: pytest.MonkeyPatch, pool: object, expected: float) -> None:
    monkeypatch.setattr(threads, "_openmp", pool)
    assert threads.doze() == expected
