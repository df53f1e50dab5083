"""Keras's layers and those that have kernels for a loop give the same, in whatever backend Keras has here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

keras: Any = pytest.importorskip("keras")

import anyrnn  # noqa: E402
import anyrnn.keras  # noqa: E402
from anyrnn import State, UnsupportedError, Vec, affine, cell, tanh  # noqa: E402
from tests.zoo import EVERY, sizes_of  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("quick_compile"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),  # Keras's
]

random = np.random.default_rng(0)
X, Y = random.normal(size=(8, 9, 3)).astype(np.float32), random.normal(size=(8, 1)).astype(np.float32)
MASK = random.random((8, 9)) < 0.6
MASK[2] = False
HAS_KERNELS = keras.backend.backend() in ("jax", "torch")
needs_kernels = pytest.mark.skipif(not HAS_KERNELS, reason="Keras's backend is neither JAX nor torch")


@cell
def mine(x, h):  # type: ignore[no-untyped-def]
    h = 0.9 * h + 0.1 * tanh(affine("f", x, h))
    return h, State(h=h)


def numbers(tensor: Any) -> np.ndarray[Any, Any]:
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")))


def assert_close(found: Any, expected: Any, atol: float = 1e-5) -> None:
    found, expected = ([a] if not isinstance(a, (list, tuple)) else a for a in (found, expected))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=0, atol=atol)


def both(name: str, units: int = 5, **settings: Any) -> tuple[Any, Any]:
    """Keras's layer and ours, of the same weights."""
    theirs, ours = (getattr(module, name)(units, **settings) for module in (keras.layers, anyrnn.keras))
    theirs(X), ours(X)
    drawn = np.random.default_rng(1)
    theirs.set_weights([drawn.normal(size=w.shape) * 0.4 for w in theirs.get_weights()])
    ours.set_weights(theirs.get_weights())
    assert not ours.why_not_kernels() or not HAS_KERNELS
    return theirs, ours


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "gru": ("GRU", {}),
    "gru, reset before": ("GRU", {"reset_after": False}),
    "simple": ("SimpleRNN", {}),
    "other activations": ("LSTM", {"activation": "relu", "recurrent_activation": "hard_sigmoid"}),
    "linear": ("SimpleRNN", {"activation": None}),
    "lstm without bias": ("LSTM", {"use_bias": False}),
    "gru without bias": ("GRU", {"use_bias": False}),
    "backwards": ("GRU", {"go_backwards": True}),
    "unrolled": ("LSTM", {"unroll": True}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_layers_of_keras(name: str) -> None:
    kind, settings = SETTINGS[name]
    ways = [{"return_sequences": True, "return_state": True}, {}, {"zero_output_for_mask": True, "return_state": True}]
    for more in ways[: 2 if "unroll" in settings else 3]:  # where Keras on JAX holds the last output all the same
        theirs, ours = both(kind, **settings, **more)
        for mask in (None, MASK):
            assert_close(ours(X, mask=mask), theirs(X, mask=mask))
    states = [np.full((8, 5), 0.3 * k, np.float32) for k in range(len(theirs.state_size))]
    assert_close(ours(X, initial_state=states), theirs(X, initial_state=states))


def model(module: Any, **settings: Any) -> Any:
    keras.utils.set_random_seed(0)
    made = keras.Sequential(
        [
            keras.Input((None, 3)),
            keras.layers.Masking(),
            module.LSTM(5, return_sequences=True, **settings),
            keras.layers.Bidirectional(module.GRU(4)),
            keras.layers.Dense(1),
        ]
    )
    made.compile("adam", "mse")
    return made


@needs_kernels
def test_training() -> None:
    x = X.copy()
    x[3, 4:] = 0
    x[5] = 0
    theirs, ours = model(keras.layers), model(anyrnn.keras)
    ours.set_weights(theirs.get_weights())
    losses = [m.fit(x, Y, epochs=3, shuffle=False, verbose=0).history["loss"] for m in (theirs, ours)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@needs_kernels
def test_dropout_of_inputs() -> None:
    """Of Keras, the same features at all steps; what is kept is scaled up."""
    layer = anyrnn.keras.SimpleRNN(1, dropout=0.5, activation=None, use_bias=False, return_sequences=True)
    layer(np.ones((2, 1, 1), np.float32))
    layer.set_weights([np.ones((1, 1)), np.zeros((1, 1))])
    y = numbers(layer(np.ones((400, 3, 1), np.float32), training=True))
    assert set(np.unique(y)) == {0.0, 2.0}
    assert np.array_equal(y[:, 0], y[:, 2])
    assert 0.4 < (y[:, 0] == 0).mean() < 0.6
    assert np.all(numbers(layer(np.ones((4, 3, 1), np.float32))) == 1)


@needs_kernels
def test_dropout_of_states_is_by_keras() -> None:
    layer = anyrnn.keras.LSTM(5, recurrent_dropout=0.5)
    assert layer.why_not_kernels() is None
    assert "recurrent_dropout" in str(layer.why_not_kernels(training=True))
    assert not np.array_equal(numbers(layer(X, training=True)), numbers(layer(X, training=True)))
    told = str(anyrnn.explain(layer, X, training=True))
    assert "9 steps of 8 samples" in told
    assert "Keras's loop, because recurrent_dropout in training is by Keras's cells" in told


@needs_kernels
def test_activations_that_are_not_in_the_language() -> None:
    layer = anyrnn.keras.LSTM(5, activation="softmax")
    assert "activation softmax is not of each feature by itself" in str(layer.why_not_kernels())
    own = anyrnn.keras.LSTM(5, activation=lambda v: keras.ops.tanh(v) * 2)
    assert "activation '<lambda> (of your own)' is none" in str(own.why_not_kernels())
    assert tuple(own(X).shape) == (8, 5)
    sloped = anyrnn.keras.SimpleRNN(5, activation=keras.layers.LeakyReLU(negative_slope=0.1))
    assert sloped.why_not_kernels() is None
    theirs = keras.layers.SimpleRNN(5, activation=keras.layers.LeakyReLU(negative_slope=0.1))
    sloped(X), theirs(X)
    sloped.set_weights(theirs.get_weights())
    assert_close(sloped(X), theirs(X))


def test_states_from_batch_to_batch() -> None:
    theirs, ours = both("LSTM", stateful=True, return_sequences=True)
    for layer in (theirs, ours):
        layer.reset_state()
    for part in (X[:, :4], X[:, 4:]):
        assert_close(ours(part), theirs(part))


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # that has not been used yet
def test_files(tmp_path: Path) -> None:
    ours, theirs = model(anyrnn.keras), model(keras.layers)
    ours.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[1]) is anyrnn.keras.LSTM
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), ours.predict(X, verbose=0))
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    ours.load_weights(tmp_path / "theirs.weights.h5")
    np.testing.assert_allclose(ours.predict(X, verbose=0), theirs.predict(X, verbose=0), atol=1e-6)


# any cell


@needs_kernels
@pytest.mark.parametrize("name", EVERY)
def test_every_cell(name: str) -> None:
    """As NumPy's layer has it; masks, reversed steps and single steps with it."""
    try:
        layer = anyrnn.keras.Recurrent(name, 6, return_sequences=True, return_state=True, **sizes_of(name, 3, 6))
    except UnsupportedError:
        assert name in ("augru", "cfc", "gru_decay", "lstm_phased_timed", "rwkv4")
        return
    y, *states = layer(X)
    own = anyrnn.Recurrent(name, 3, 6, batch_first=True, **sizes_of(name, 3, 6))
    own.parameters = {f"{n}_l0": numbers(a) for n, a in layer.cell.held.items()}
    expected, last = own(X)
    assert_close([y, *states], [expected, *(s[0] for s in (last if isinstance(last, tuple) else (last,)))])
    alone = keras.layers.RNN(layer.cell, return_sequences=True)(X)
    assert_close(alone, y)
    reversed_steps = anyrnn.keras.Recurrent(name, 6, go_backwards=True, **sizes_of(name, 3, 6))
    reversed_steps(X)
    reversed_steps.set_weights(layer.get_weights())
    assert_close(reversed_steps(X, mask=MASK), own(X[:, ::-1].copy(), mask=MASK[:, ::-1], return_outputs="last")[0])


@needs_kernels
def test_a_model_of_ones_own_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((None, 3)),
        anyrnn.keras.Recurrent(mine, 6, return_sequences=True),
        keras.layers.Bidirectional(anyrnn.keras.Recurrent("ctrnn", 4, dt=0.5)),
        keras.layers.Dense(1),
    ]
    made = keras.Sequential(layers)
    made.compile("adam", "mse")
    losses = made.fit(X, Y, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    made.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")  # this process knows the cell
    np.testing.assert_array_equal(again.predict(X, verbose=0), made.predict(X, verbose=0))
    monkeypatch.setattr("anyrnn.keras.recurrent._SEEN", {})
    with pytest.raises(ValueError, match=r"unknown cell 'mine'.*keras.saving.get_custom_objects\(\)\['mine'\] = "):
        keras.saving.load_model(tmp_path / "model.keras")
    monkeypatch.setitem(keras.saving.get_custom_objects(), "mine", mine)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), made.predict(X, verbose=0))


@needs_kernels
def test_cells_of_one_name() -> None:
    """A cell of one's own is not taken for a built-in one, in wrappers, copies and configs."""

    @cell
    def gru(x, h):  # type: ignore[no-untyped-def]
        h = 0.5 * h + tanh(affine("n", x, h))
        return h, State(h=h)

    layer = anyrnn.keras.Recurrent(gru, 5)
    expected = layer(X)
    both_ways = keras.layers.Bidirectional(anyrnn.keras.Recurrent(gru, 5), merge_mode=None)
    assert [tuple(a.shape) for a in both_ways(X)] == [(8, 5)] * 2
    assert {tuple(w.shape) for w in both_ways.weights} == {(5, 3), (5, 5), (5,)}
    config = layer.get_config()
    again = anyrnn.keras.Recurrent.from_config(config)
    again(X)
    again.set_weights(layer.get_weights())
    assert_close(again(X), expected)
    with pytest.raises(ValueError, match="cell 'gru' has other equations here than when this was written"):
        anyrnn.keras.Recurrent.from_config({**config, "equations": "another"})


@needs_kernels
def test_what_is_changed_later() -> None:
    theirs, ours = both("LSTM")
    for layer in (theirs, ours):
        layer.cell.activation = keras.activations.relu
    assert_close(ours(X), theirs(X))
    other = anyrnn.keras.LSTM(5)
    other.cell = type("Own", (keras.layers.LSTMCell,), {})(5)
    assert other.why_not_kernels() == "the cell is a Own, and not Keras's LSTMCell"

    class ReLU(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return keras.ops.tanh(x)

    assert "activation 'ReLU (of your own)' is none" in str(anyrnn.keras.SimpleRNN(5, activation=ReLU()).why_not_kernels())


@needs_kernels
def test_states_that_begin_elsewhere() -> None:
    @cell
    def mine(x, h, n: Vec(init=1)):  # type: ignore[no-untyped-def, valid-type]
        h = n * tanh(affine("n", x, h))
        return h, State(h=h, n=n)

    layer = anyrnn.keras.Recurrent(mine, 5, stateful=True)
    first = layer(X)
    layer.reset_state()
    assert_close(layer(X), first)


@needs_kernels
@pytest.mark.parametrize("kind", ["SimpleRNN", "LSTM", "own"])
def test_training_from_batch_to_batch(kind: str) -> None:
    keras.utils.set_random_seed(0)
    layer = anyrnn.keras.Recurrent("gru", 5, stateful=True) if kind == "own" else getattr(anyrnn.keras, kind)(5, stateful=True)
    made = keras.Sequential([keras.Input(batch_shape=(4, 9, 3)), layer, keras.layers.Dense(1)])
    made.compile("adam", "mse")
    losses = made.fit(X, Y, batch_size=4, epochs=8, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@needs_kernels
def test_other_dtypes() -> None:
    """Of inputs and masks, as Keras takes them."""
    theirs, ours = both("LSTM", return_sequences=True)
    whole = (10 * X).astype(np.int32)
    assert_close(ours(whole), theirs(whole.astype(np.float32)))
    for mask in (MASK.astype(np.int32), MASK.astype(np.float32), MASK[..., None]):
        assert_close(ours(X, mask=mask), ours(X, mask=MASK))


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="on other backends threads have nothing in common")
def test_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one layer: its parameters are in the module that they share for one of them at a time."""
    from torch import func

    call, inside, together = func.functional_call, [], []

    def watched(*given: Any) -> Any:
        inside.append(given)
        time.sleep(0.01)
        together.append(len(inside))
        found = call(*given)
        inside.pop()
        return found

    theirs, ours = both("LSTM")
    expected, found = theirs(X), []
    monkeypatch.setattr(func, "functional_call", watched)
    threads = [threading.Thread(target=lambda: found.append(ours(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1] * 4
    for y in found:
        assert_close(y, expected)


@needs_kernels
def test_activations_in_configs() -> None:
    layer = anyrnn.keras.Recurrent("lstm", 5, activations={"tanh": anyrnn.relu})
    assert anyrnn.keras.Recurrent.from_config(layer.get_config()).get_config()["activations"] == {"tanh": "relu"}
    with pytest.raises(ValueError, match="activations: '<lambda>', in the place of tanh, is not a function of anyrnn"):
        anyrnn.keras.Recurrent("lstm", 5, activations={"tanh": lambda v: 2 * v}).get_config()


@needs_kernels
def test_first_weights_follow_keras_s_seed() -> None:
    drawn = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        layer = anyrnn.keras.Recurrent("gru", 5)
        layer(X)
        drawn.append(layer.get_weights())
    assert all(np.array_equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert not np.array_equal(drawn[0][0], drawn[2][0])
    assert np.abs(np.concatenate([w.ravel() for w in drawn[0]])).max() <= 1 / np.sqrt(5)


@needs_kernels
def test_mixed_precision() -> None:
    for layer in (anyrnn.keras.LSTM(5, dtype="mixed_bfloat16"), anyrnn.keras.Recurrent("lstm", 5, dtype="mixed_bfloat16")):
        y = layer(X)
        assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
        assert {keras.backend.standardize_dtype(w.dtype) for w in layer.weights} == {"float32"}


@needs_kernels
def test_explain() -> None:
    told = str(anyrnn.explain(anyrnn.keras.Recurrent("gru", 5, name="own"), X))
    assert told.startswith("Recurrent(own), 9 steps of 8 samples, float32\n  backend   llvm: native kernels")


@pytest.mark.skipif(HAS_KERNELS, reason="Keras's backend is JAX or torch")
def test_other_backends() -> None:
    told = str(anyrnn.explain(anyrnn.keras.LSTM(5), X))
    assert f"Keras's loop, because Keras's backend {keras.backend.backend()} has no kernels (jax and torch have)" in told
    with pytest.raises(UnsupportedError, match=r"cells other than Keras's: Keras's backend .* has no kernels"):
        anyrnn.keras.Recurrent("gru", 5)


@needs_kernels
def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"recurrent_dropout is an option of layers of anyrnn.torch"):
        anyrnn.keras.Recurrent("lstm", 5, recurrent_dropout=0.2)
    for name in ("dropout", "num_layers", "bidirectional"):
        with pytest.raises(ValueError, match=f"{name} is an option of layers of anyrnn.torch"):
            anyrnn.keras.Recurrent("lstm", 5, **{name: 2})
    with pytest.raises(TypeError, match="units should be of type int"):
        anyrnn.keras.Recurrent("lstm", 5.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected sequences \[N, T, D\], got shape \(9, 3\)"):
        anyrnn.explain(anyrnn.keras.LSTM(5), X[0])
    with pytest.raises(UnsupportedError, match=r"'augru' has per-step inputs beside the first"):
        anyrnn.keras.Recurrent("augru", 5)
    with pytest.raises(UnsupportedError, match=r"'rwkv4' has states of the input's size"):
        anyrnn.keras.Recurrent("rwkv4", 5)
    with pytest.raises(TypeError, match="needs the size proj"):
        anyrnn.keras.Recurrent("lstm_projected", 5)


@pytest.mark.skipif("ANYRNN_WITHIN" in os.environ, reason="this is such a process")
@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_in_other_backends(backend: str) -> None:
    """These tests, in a process of Keras's other backends."""
    if backend == "jax":
        pytest.importorskip("jax")
    variables = os.environ | {"KERAS_BACKEND": backend, "ANYRNN_WITHIN": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stdout[-3000:]
