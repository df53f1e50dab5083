"""Keras models as networks of the runtime, against Keras itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anyrnn import convert, runtime
from anyrnn.convert.keras import load, network, parity
from anyrnn.convert.keras.functions import FUNCTIONS
from anyrnn.convert.report import drawn, run

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, with NumPy 2


@pytest.fixture(scope="module")
def keras() -> Any:
    """It takes seconds to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        module = pytest.importorskip("keras")
    if module.backend.backend() != "torch":
        pytest.skip("Keras was imported with another backend than torch")
    return module


def attention_weighted_average(keras: Any) -> Any:
    """The layer of textgenrnn and DeepMoji: an average over the steps, weighted with a softmax of a product."""

    class AttentionWeightedAverage(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.W = self.add_weight(shape=(shape[-1], 1), name="attention_W")

        def call(self, x: Any) -> Any:
            scores = keras.ops.matmul(x, self.W)
            e = keras.ops.exp(scores - keras.ops.max(scores, 1, keepdims=True))
            return keras.ops.sum(x * e / (keras.ops.sum(e, 1, keepdims=True) + 1e-7), 1)

    return AttentionWeightedAverage


def with_random_weights(model: Any, seed: int = 0) -> Any:
    """Biases and statistics too; what a variance may be is positive."""
    random = np.random.default_rng(seed)
    arrays = [random.standard_normal(tuple(w.shape)).astype(w.dtype) * 0.6 for w in model.weights]
    model.set_weights([np.abs(a) + 0.3 if "variance" in w.name else a for a, w in zip(arrays, model.weights, strict=True)])
    return model


def weights_of(model: Any) -> dict[str, list[tuple[str, Any]]]:
    return {layer.name: [(w.path, w.value.detach().numpy()) for w in layer.weights] for layer in model.layers}


def converted(model: Any) -> runtime.Network:
    return network(model.get_config(), weights_of(model))


# models, each made of Keras's layers


def cells(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((None, 5)),
            layers.LSTM(4, return_sequences=True),
            layers.GRU(6, return_sequences=True, reset_after=False),
            layers.GRU(3, return_sequences=True, use_bias=False),
            layers.LSTM(4, return_sequences=True, use_bias=False, dropout=0.2, recurrent_dropout=0.1),
            layers.GRU(4, return_sequences=True, go_backwards=False, unroll=False),
            layers.SimpleRNN(7),
            layers.Dense(3, use_bias=False),
        ]
    )


def functions_in_cells(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((None, 5)),
            layers.LSTM(4, return_sequences=True, activation="softsign", recurrent_activation="hard_sigmoid"),
            layers.GRU(4, return_sequences=True, activation="linear", recurrent_activation="softsign"),
            layers.GRU(4, return_sequences=True, activation="sigmoid", recurrent_activation="tanh", reset_after=False),
            layers.SimpleRNN(4, return_sequences=True, activation="leaky_relu"),
            layers.RNN(layers.SimpleRNNCell(4, activation="relu")),
        ]
    )


def directions(keras: Any) -> Any:
    layers, x = keras.layers, keras.Input((None, 5), name="x")
    made = []
    for merge in ("concat", "sum", "mul", "ave", None):
        sequences = layers.Bidirectional(layers.LSTM(3, return_sequences=True), merge_mode=merge)(x)
        made += map(layers.GlobalMaxPooling1D(), sequences if merge is None else [sequences])
        end = layers.Bidirectional(layers.GRU(3), merge_mode=merge)(x)
        made += end if merge is None else [end]
    return keras.Model(x, layers.Concatenate()(made))


def stacked_cells(keras: Any) -> Any:
    layers, x = keras.layers, keras.Input((None, 5), name="x")
    lower = layers.RNN([layers.LSTMCell(3), layers.LSTMCell(5, use_bias=False), layers.GRUCell(4)], return_sequences=True)(x)
    backwards = layers.RNN([layers.SimpleRNNCell(3), layers.SimpleRNNCell(4)], go_backwards=True)(lower)
    return keras.Model(x, [layers.GRU(3, go_backwards=True, return_state=True)(lower)[0], backwards])


def layers_around(keras: Any) -> Any:
    layers = keras.layers
    words, more = keras.Input((None,), name="words", dtype="int32"), keras.Input((None, 4), name="more")
    embedded = layers.SpatialDropout1D(0.3)(layers.Embedding(11, 4)(words))
    both = layers.Add()([embedded, more, layers.Multiply()([more, embedded])])
    dense = layers.TimeDistributed(layers.Dense(4, activation="relu"))(layers.Average()([both, more]))
    normed = layers.TimeDistributed(layers.LayerNormalization())(layers.BatchNormalization(scale=False)(dense))
    normed = layers.LayerNormalization(center=False)(layers.BatchNormalization(axis=2)(normed))
    joined = layers.Concatenate(axis=2)([normed, layers.GaussianNoise(0.1)(dense)])
    mean = layers.GlobalAveragePooling1D()(joined)
    end = layers.BatchNormalization(center=False)(layers.Dense(3, activation="swish")(layers.Dropout(0.5)(mean)))
    return keras.Model([more, words], {"end": end, "joined": joined})


def layers_called_twice(keras: Any) -> Any:
    layers = keras.layers
    a, b = keras.Input((None, 5), name="a"), keras.Input((None, 5), name="b")
    shared, dense = layers.LSTM(4, name="shared"), layers.Dense(3, activation="tanh", name="dense")
    return keras.Model([a, b], [layers.Multiply()([dense(shared(b)), dense(shared(a))])])


def like_textgenrnn(keras: Any) -> Any:
    layers, x = keras.layers, keras.Input((40,), name="input", dtype="int32")
    embedded = layers.Embedding(21, 6, name="embedding")(x)
    first = layers.LSTM(5, return_sequences=True, name="rnn_1")(embedded)
    second = layers.LSTM(5, return_sequences=True, name="rnn_2")(first)
    joined = layers.Concatenate(name="rnn_concat")([embedded, first, second])
    average = attention_weighted_average(keras)(name="attention")(joined)
    return keras.Model(x, layers.Dense(21, activation="softmax", name="output")(average))


def with_states_of_its_own(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential([keras.Input((13, 5), batch_size=3), layers.LSTM(4, stateful=True), layers.Dense(2)])


MODELS: list[Callable[[Any], Any]] = [
    cells, functions_in_cells, directions, stacked_cells, layers_around, layers_called_twice, like_textgenrnn,
    with_states_of_its_own,
]  # fmt: skip


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.usefixtures("quick_compile")
def test_a_model_gives_what_keras_gives(keras: Any, make: Callable[[Any], Any]) -> None:
    model = with_random_weights(make(keras))
    found = parity(model, converted(model))
    assert found.within, found
    assert found.magnitude > 1e-3, found


@pytest.mark.parametrize("make", [stacked_cells, directions, layers_around], ids=lambda make: make.__name__)
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.filterwarnings("ignore")
def test_files_are_read_without_keras(keras: Any, make: Callable[[Any], Any], suffix: str, tmp_path: Any) -> None:
    model = with_random_weights(make(keras))
    path = tmp_path / f"model{suffix}"
    model.save(path)
    ours, theirs = load(path), converted(model)
    x = drawn(theirs, 2, 5, 0)
    assert all(np.array_equal(a, b) for a, b in zip(run(ours, x), run(theirs, x), strict=True))
    assert ours.outputs == theirs.outputs
    kept = tmp_path / "kept.safetensors"
    ours.save(kept)
    assert all(np.array_equal(a, b) for a, b in zip(run(runtime.load(kept), x), run(theirs, x), strict=True))


def test_weights_alone_need_a_config(keras: Any, tmp_path: Any) -> None:
    model = with_random_weights(stacked_cells(keras))
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    with pytest.raises(ValueError, match="arrays without the model's config; give config="):
        load(path)
    ours, theirs = load(path, config=model.get_config()), converted(model)
    x = drawn(theirs, 2, 5, 0)
    assert all(np.array_equal(a, b) for a, b in zip(run(ours, x), run(theirs, x), strict=True))


def test_every_activation_is_that_of_keras(keras: Any) -> None:
    layers, x = keras.layers, keras.Input((None, 9), name="x")
    made = [layers.Activation(name, name=f"the_{name}")(x) for name in FUNCTIONS]
    made += [
        layers.ReLU(max_value=1.5, negative_slope=0.3, threshold=0.2)(x),
        layers.LeakyReLU(negative_slope=0.1)(x),
        layers.LeakyReLU()(x),
        layers.ELU(alpha=0.7)(x),
        layers.Softmax()(x),
        layers.Activation(layers.LeakyReLU(negative_slope=0.4))(x),
    ]
    model = keras.Model(x, made)
    given = np.random.default_rng(0).standard_normal((4, 7, 9)).astype(np.float32) * 3
    ours = network(model.get_config(), {})
    for name, found, expected in zip(ours.outputs, run(ours, {"x": given}), model(given), strict=True):
        expected = expected.detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=5e-7, err_msg=name)


def test_outputs_have_the_names_of_keras_layers(keras: Any) -> None:
    model = layers_called_twice(keras)
    assert [given.name for given in converted(model).inputs] == ["a", "b"]
    assert converted(model).outputs == (model.layers[-1].name,)
    assert "shared/1" in converted(model).recurrent


def test_what_is_given_to_a_stream_is_what_a_call_gives(keras: Any) -> None:
    layers = keras.layers
    body = [
        layers.LSTM(4, return_sequences=True),
        layers.BatchNormalization(),
        layers.LeakyReLU(),
        layers.Dense(3, activation="elu"),
    ]
    ours = converted(with_random_weights(keras.Sequential([keras.Input((None, 5)), *body])))
    x = np.random.default_rng(0).standard_normal((2, 9, 5)).astype(np.float32)
    stream = ours.stream(2)
    assert np.array_equal(np.stack([stream.step(step) for step in x.swapaxes(0, 1)], 1), ours.run(x)[0])


# parity


def test_a_network_of_other_weights_is_over_the_budget(keras: Any) -> None:
    model = with_random_weights(cells(keras))
    good = converted(model)
    assert parity(model, good).within
    weights = weights_of(model)
    name, arrays = next((name, arrays) for name, arrays in weights.items() if len(arrays) == 3)
    weights[name] = [*arrays[:2], (arrays[2][0], arrays[2][1] + np.float32(1e-4))]
    found = parity(model, network(model.get_config(), weights))
    assert not found.within
    assert "OVER the error budget" in str(found)


def test_a_report_says_what_was_compared(keras: Any, tmp_path: Any) -> None:
    model = with_random_weights(with_states_of_its_own(keras))
    model.save(tmp_path / "model.keras")
    found = parity(tmp_path / "model.keras", load(tmp_path / "model.keras"))
    name = model.get_config()["layers"][0]["config"]["name"]
    assert f"keras {keras.__version__} (torch) against lstm on {name} [3, 13, 5]: largest error" in str(found)
    assert "within the error budget" in str(found)
    assert found.shapes == ({name: (3, 13, 5)},)


def test_there_is_no_parity_of_float64(keras: Any) -> None:
    model = keras.Sequential([keras.Input((None, 5), dtype="float64"), keras.layers.LSTM(4, dtype="float64")])
    ours = converted(with_random_weights(model))
    x = np.random.default_rng(0).standard_normal((2, 9, 5))
    np.testing.assert_allclose(ours.run(x)[0], model(x).detach().numpy(), rtol=1e-12)
    with pytest.raises(ValueError, match="a network of float64 has no parity: Keras has nothing more exact"):
        parity(model, ours)


# refusals


def refused(keras: Any, layer: Any, message: str, size: int = 5) -> None:
    """A layer of a sequence."""
    x = keras.Input((None, size), name="x")
    model = keras.Model(x, layer(x))
    with pytest.raises(ValueError, match=message):
        converted(model)


def test_layers_that_the_runtime_has_not_are_named(keras: Any) -> None:
    layers = keras.layers
    refused(
        keras, layers.Conv1D(4, 3, name="conv"), "^Conv1D 'conv' cannot be converted; what can be: InputLayer, Embedding, LSTM"
    )
    refused(keras, layers.Masking(name="masked"), "Masking 'masked' cannot be converted; where masked steps are at the ends")
    refused(keras, keras.Sequential([layers.LSTM(3)], name="inner"), "Sequential 'inner' cannot be converted, a model within")
    refused(keras, layers.Lambda(lambda v: v, name="code"), "Lambda 'code' cannot be converted, which is code")


def test_settings_that_the_runtime_has_not_are_named(keras: Any) -> None:
    layers = keras.layers
    turned = layers.LSTM(3, go_backwards=True, return_sequences=True, name="turned")
    refused(keras, turned, "LSTM 'turned': go_backwards=True turns the steps of return_sequences=True around")
    different = layers.Bidirectional(layers.LSTM(3), backward_layer=layers.LSTM(4, go_backwards=True), name="both")
    refused(keras, different, r"Bidirectional 'both': directions that are different layers \(units\)")
    different = layers.Bidirectional(layers.LSTM(3), backward_layer=layers.GRU(3, go_backwards=True), name="both")
    refused(keras, different, r"directions that are different layers \((reset_after|LSTM and GRU)")
    twice = layers.Bidirectional(layers.LSTM(3, go_backwards=True), backward_layer=layers.LSTM(3), name="both")
    refused(keras, twice, "LSTM 'both': go_backwards=True cannot be converted")
    refused(
        keras, layers.Bidirectional(layers.RNN(layers.LSTMCell(3)), name="both"), "directions of class RNN cannot be converted"
    )
    refused(
        keras, layers.LSTM(3, activation="gelu", name="odd"), "LSTM 'odd': the activation 'gelu' is none that can be converted; "
    )
    refused(
        keras, layers.LSTM(3, activation="softmax", name="odd"), "LSTM 'odd': activation softmax is not of each feature by itself"
    )
    refused(keras, layers.Dense(3, activation=keras.ops.sin, name="odd"), "Dense 'odd': the activation 'sin' is none")
    with pytest.warns(UserWarning, match="rms_scaling"):
        refused(keras, layers.LayerNormalization(rms_scaling=True, name="rms"), "'rms': rms_scaling=True cannot be converted")
    refused(keras, layers.Softmax(axis=1, name="steps"), "Softmax 'steps': axis 1 is not that of the features, which is 2 or -1")
    refused(
        keras, layers.GlobalAveragePooling1D(data_format="channels_first", name="mean"), "'mean': data_format='channels_first'"
    )
    refused(keras, layers.GlobalMaxPooling1D(keepdims=True, name="most"), "'most': keepdims=True cannot be converted")
    inner = layers.TimeDistributed(layers.TimeDistributed(layers.Dense(3)), name="apart")
    four = keras.Input((None, 2, 5), name="four")
    with pytest.raises(ValueError, match="InputLayer 'four': expected a sequence of a known number of features, or of integers"):
        converted(keras.Model(four, inner(four)))


def test_masks_of_embeddings_are_refused(keras: Any) -> None:
    x = keras.Input((None,), name="x")
    model = keras.Model(x, keras.layers.LSTM(3)(keras.layers.Embedding(7, 3, mask_zero=True, name="words")(x)))
    with pytest.raises(
        ValueError, match="Embedding 'words': mask_zero=True cannot be converted; where masked steps are at the ends"
    ):
        converted(model)


def test_states_from_other_layers_are_refused(keras: Any) -> None:
    layers, x = keras.layers, keras.Input((None, 5), name="x")
    y, h = layers.GRU(3, return_state=True, name="encoder")(x)
    with pytest.raises(ValueError, match="GRU 'decoder': it is given initial_state, which cannot be converted"):
        converted(keras.Model(x, layers.GRU(3, name="decoder")(x, initial_state=h)))
    with pytest.raises(
        ValueError, match="Dense 'out': it gets result 1 of 'encoder', which is a state or not there; outputs alone"
    ):
        converted(keras.Model(x, layers.Dense(3, name="out")(h)))
    with pytest.raises(ValueError, match="Dropout 'drop': it is given training"):
        converted(keras.Model(x, layers.Dropout(0.5, name="drop")(y, training=True)))


@pytest.mark.parametrize(("name", "cell"), [("LSTM", "lstm"), ("GRU", "gru"), ("SimpleRNN", "rnn_tanh")])
@pytest.mark.parametrize("both", [False, True])
def test_files_of_weights_alone(keras: Any, name: str, cell: str, both: bool, tmp_path: Path) -> None:
    """Of `save_weights`, whose arrays are numbered."""
    layer = getattr(keras.layers, name)(6, return_sequences=True)
    model = keras.Sequential([keras.Input((9, 4)), keras.layers.Bidirectional(layer) if both else layer, keras.layers.Dense(2)])
    model.save_weights(tmp_path / "a.weights.h5")
    told = {"layers": 1, "bidirectional": True} if both else {}
    network = convert.load(tmp_path / "a.weights.h5", system="keras", cell=cell, layer=model.layers[0].name, **told)
    x = np.random.default_rng(0).standard_normal((3, 9, 4)).astype(np.float32)
    expected = np.asarray(model.layers[0](x).detach())
    found = network.run(x.swapaxes(0, 1).copy())[0].swapaxes(0, 1)
    assert np.abs(found - expected).max() < 1e-6
