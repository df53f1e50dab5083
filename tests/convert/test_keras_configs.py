"""Configs of Keras models as they may be in files, where no Keras is: older ones, and ones that no Keras wrote."""

from __future__ import annotations

import copy
import gzip
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anyrnn import files, weights
from anyrnn.convert.keras import graph, network

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("keras2.h5", "keras2.keras", "keras2_sequential.h5", "keras3.keras")
Array = np.ndarray[Any, Any]


def saved(name: str) -> Any:
    return files.keras.read(gzip.decompress((GOLDEN / f"{name}.gz").read_bytes()))


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layer(class_name: str, name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": class_name, "config": {"name": name, **config}}


INPUT = layer("InputLayer", "x", batch_shape=[None, None, 3])
GATED = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def sequential(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "model", "layers": [INPUT, *layers]}}


def named(*arrays: Array) -> list[tuple[str, Array]]:
    return [(str(number), array) for number, array in enumerate(arrays)]


DENSE = layer("Dense", "dense", units=2, activation="linear")
OF_DENSE = {"dense": named(draw(3, 2), draw(2))}


def without(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: without(child, key) for name, child in value.items() if name != key}
    return [without(child, key) for child in value] if isinstance(value, list) else value


def test_the_resets_of_keras_2_are_before_the_product_where_nothing_is_said() -> None:
    found, kept = saved("keras2.h5"), np.load(GOLDEN / "keras2.h5.npz")
    entries = found.config["config"]["layers"]
    changed = [without(entry, "reset_after") if entry["class_name"] == "Bidirectional" else entry for entry in entries]
    config = {**found.config, "config": {**found.config["config"], "layers": changed}}
    assert config != found.config
    output, _ = network(config, found.layers).run({"words": kept["words"], "more": kept["more"]})
    np.testing.assert_allclose(output, kept["expected"], rtol=1e-5, atol=1e-6)


def test_a_model_may_be_a_list_of_layers() -> None:
    """As Keras 2 had it before 2.2.3, with the input's shape in the first layer."""
    simple = layer("SimpleRNN", "simple", units=4, activation="tanh", batch_input_shape=[None, None, 3])
    arrays = {"simple": named(draw(3, 4), draw(4, 4), draw(4)), "dense": named(draw(4, 2), draw(2))}
    found = network([simple, DENSE], arrays)
    again = network(sequential({**simple, "config": without(simple["config"], "batch_input_shape")}, DENSE), arrays)
    x = draw(2, 5, 3)
    assert np.array_equal(found.run(x)[0], again.run(x)[0])
    assert [given.name for given in found.inputs] == ["simple_input"]


@pytest.mark.parametrize(("kind", "cell"), [("LSTM", "lstm"), ("GRU", "gru")])
def test_layers_for_cudnn_are_those_of_their_converted_arrays(kind: str, cell: str) -> None:
    gates = {"LSTM": 4, "GRU": 3}[kind]
    plain = {
        "weight_ih": draw(gates * 4, 3),
        "weight_hh": draw(gates * 4, 4),
        "bias_ih": draw(gates * 4),
        "bias_hh": draw(gates * 4),
    }
    if kind == "LSTM":
        plain["bias_hh"] *= 0  # the other layer has one bias
    ours = weights.convert(plain, cell, source="anyrnn", target="keras")
    cudnn = weights.convert(plain, cell, source="anyrnn", target="keras_cudnn")
    assert not np.array_equal(ours["kernel"], cudnn["kernel"])
    a = network(sequential(layer(kind, "rnn", units=4, **GATED)), {"rnn": list(ours.items())})
    b = network(sequential(layer(f"CuDNN{kind}", "rnn", units=4)), {"rnn": list(cudnn.items())})
    x = draw(2, 5, 3)
    np.testing.assert_allclose(a.run(x)[0], b.run(x)[0], rtol=1e-6, atol=1e-6)


def test_classes_may_be_registered_under_a_package() -> None:
    config = sequential(layer("mine>AttentionWeightedAverage", "average"), DENSE)
    found = network(config, {**OF_DENSE, "average": named(draw(3, 1))})
    assert [one.kind for one in found.layers] == ["attention_average", "dense"]


@pytest.mark.parametrize(
    ("config", "arrays", "message"),
    [
        ({"class_name": "Mine", "config": {}}, {}, "the config is not that of a Sequential or a Functional model but of Mine"),
        (7, {}, "the config is not that of a Sequential or a Functional model but of what was given; others are code"),
        ({"layers": [draw]}, {}, "the model's config cannot be written as JSON"),
        ({"layers": [3]}, {}, r"config.layers\[0\]: expected an object, got an integer"),
        ({"layers": []}, {}, "config.layers: expected layers of different names"),
        (sequential(DENSE, DENSE), {}, "config.layers: expected layers of different names"),
        ({"layers": [DENSE]}, {}, "Dense 'dense': the config does not tell the shape of the input; build the model before"),
        (sequential({"class_name": "Dense", "config": {}}), {}, "a Dense without a name"),
        (sequential(DENSE), {}, "Dense 'dense': expected the arrays kernel, bias, got none"),
        (sequential(DENSE), {**OF_DENSE, "other": named(draw(3))}, "arrays of layers that are not in the config: other"),
        (sequential(DENSE), {"dense": named(draw(3), draw(2))}, r"dense: expected a weight .* and a bias .*, got weight \(3,\)"),
        (sequential(DENSE), {"dense": named(draw(4, 2), draw(2))}, r"dense: expected inputs of \[4\] features, got \[T, N, 3\]"),
        (
            sequential(layer("LSTM", "rnn", units=5, **GATED)),
            {"rnn": named(draw(3, 16), draw(4, 16), draw(16))},
            "LSTM 'rnn': its config has 5 units, its arrays have 4",
        ),
        (
            sequential(layer("GRU", "rnn", units=4, **GATED)),
            {"rnn": named(draw(3, 12), draw(4, 16), draw(2, 12))},
            "GRU 'rnn': keras gru: recurrent_kernel should have shape",
        ),
        (
            sequential(layer("RNN", "rnn", cell=layer("Mine", "cell"))),
            {},
            "RNN 'rnn': expected cells of the classes LSTMCell, .* got Mine",
        ),
        (
            sequential(layer("LSTM", "rnn", units=4, time_major=True, **GATED)),
            {},
            "LSTM 'rnn': time_major=True cannot be converted",
        ),
        (
            sequential(layer("BatchNormalization", "batch", epsilon=1e-3)),
            {"batch": named(*[draw(4)] * 4)},
            "BatchNormalization 'batch': expected 3 features",
        ),
        (
            sequential(layer("AttentionWeightedAverage", "average")),
            {"average": named(draw(3, 2))},
            r"AttentionWeightedAverage 'average': expected a weight \[features, 1\], got \(3, 2\)",
        ),
        (
            sequential(layer("TimeDistributed", "apart", layer=layer("LSTM", "inner"))),
            {},
            "TimeDistributed 'apart': expected a sequence, and one of the layers Dense, .* got LSTM",
        ),
    ],
)  # fmt: skip
def test_what_no_keras_wrote_is_refused(config: Any, arrays: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network(config, arrays)


def functional(**given: list[str]) -> dict[str, Any]:
    """Layers that add up what they are given."""
    nodes = {name: [[[source, 0, 0, {}] for source in sources]] for name, sources in given.items()}
    layers = [{**INPUT, "inbound_nodes": []}]
    layers += [{**layer("Add", name), "inbound_nodes": node} for name, node in nodes.items()]
    return {"layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["a", 0, 0]]}


def test_layers_may_stand_in_any_order() -> None:
    found = network(functional(a=["b", "x"], b=["x", "x"]), {})
    x = draw(2, 5, 3)
    np.testing.assert_allclose(found.run(x)[0], 3 * x, rtol=1e-6)


def test_circles_and_loose_ends_are_refused() -> None:
    with pytest.raises(ValueError, match=r"config\.layers: each of these gets what another gives: (a, b|b, a)"):
        network(functional(a=["b", "x"], b=["a", "x"]), {})
    with pytest.raises(ValueError, match="Add 'a': call 0 of 'c', whose result it gets, is not there"):
        network(functional(a=["c", "x"]), {})
    with pytest.raises(ValueError, match=r"config\.output_layers: it gets result 0 of 'a', which is a state or not there"):
        network(functional(b=["x", "x"]), {})
    with pytest.raises(ValueError, match=r"config\.input_layers: expected each InputLayer once, got none"):
        network({**functional(a=["x", "x"]), "input_layers": []}, {})


# configs that are changed at random

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**70, 1.5, float("nan"), "", "relu", "__keras_tensor__", [], {}, [[]], [1, 2], ["x", 0, 0],
    ["words", -1, 0], ["both", 0, 5], {"class_name": "x"}, {"class_name": "LSTM", "config": {}}, [None, None, 3], [None, 5],
    {"class_name": "ReLU", "config": {"max_value": "a"}},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(config: Any, chance: random.Random) -> Any:
    found = copy.deepcopy(config)
    for _ in range(chance.choice([1, 1, 2, 5])):
        all_places = list(places(found))
        *before, key = chance.choice(all_places)
        parent, what = at(found, tuple(before)), chance.randrange(3)
        if what == 0:
            parent[key] = chance.choice(ODD)
        elif what == 1:
            del parent[key]
        else:
            parent[key] = copy.deepcopy(at(config, chance.choice(list(places(config)))))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_changed_configs_are_read_or_refused(name: str) -> None:
    original, chance, refused = saved(name), random.Random(0), 0
    for _ in range(60):
        arrays = dict(original.layers)
        if chance.random() < 0.2:
            one = chance.choice([key for key, found in arrays.items() if found])
            arrays[one] = [(place, array.T if chance.random() < 0.5 else array[:1]) for place, array in arrays[one]][
                chance.randrange(2) :
            ]
        try:
            network(changed(original.config, chance), arrays)
        except ValueError:
            refused += 1
    assert 10 < refused < 60


@pytest.mark.parametrize(("version", "older"), [(None, False), ("2.3.1", True), ("2.2.4-tf", True), ("3.5.0", False)])
def test_which_keras_wrote_a_config_is_what_its_file_says(version: str | None, older: bool) -> None:
    """Models of older ones that were built by their first call do not say it themselves."""
    config = {"name": "l", "units": 2, "recurrent_activation": "hard_sigmoid"}
    layers = [{"class_name": "LSTM", "config": config}]
    made = {"class_name": "Sequential", "config": {"build_input_shape": [None, None, 3], "layers": layers}}
    assert graph.model(made, version).keras2 is older


def test_a_models_json_says_which_keras_wrote_it() -> None:
    layers = [{"class_name": "LSTM", "config": {"name": "l", "units": 2}}]
    made = {"class_name": "Sequential", "keras_version": "2.15.0"}
    made["config"] = {"name": "m", "build_input_shape": [None, None, 3], "layers": layers}
    assert graph.model(made).keras2
    assert not graph.model(made | {"keras_version": "3.5.0"}).keras2


def test_a_config_without_activations_is_none_of_keras() -> None:
    layers = [{"class_name": "LSTM", "config": {"name": "l", "units": 2}}]
    made = {"class_name": "Sequential", "config": {"build_input_shape": [None, None, 3], "layers": layers}}
    arrays = {"l": [(n, np.ones(s, np.float32)) for n, s in [("k", (3, 8)), ("r", (2, 8)), ("b", (8,))]]}
    with pytest.raises(ValueError, match="LSTM 'l': the config does not tell its activation"):
        network(made, arrays)
