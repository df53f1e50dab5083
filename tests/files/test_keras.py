"""The reader of Keras's files, against what Keras itself writes."""

import io
import json
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from anyrnn.files import keras as reader
from tests.files.common import refused

GOLDEN = Path(__file__).parent / "golden"
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras on torch and NumPy 2

FORMS = ("model.keras", "model.weights.h5", "model.h5")


@pytest.fixture(scope="module")
def keras():
    """It takes seconds to import, with any of its backends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "torch"))
        return pytest.importorskip("keras")


@pytest.fixture(scope="module")
def model(keras):
    layers = keras.layers
    keras.utils.set_random_seed(0)
    words = layers.Input((None,), name="text")
    x = layers.Embedding(7, 3, name="words")(words)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True), name="both ways")(x)
    x = layers.GRU(5, name="b_gru", return_sequences=True)(x)
    x = layers.GRU(3, name="a_gru", reset_after=False)(x)
    model = keras.Model(words, layers.Dense(2, name="out")(layers.Dropout(0.5)(x)))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)  # its own arrays are saved too
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(random.normal(size=variable.shape))
    return model


def saved(model, path):
    (model.save_weights if path.name.endswith(".weights.h5") else model.save)(path)
    return path


def by_layer(found):
    return {layer: [array for _, array in arrays] for layer, arrays in found.layers.items() if arrays}


@pytest.mark.parametrize("form", FORMS)
def test_every_layer_has_its_arrays(tmp_path, model, form):
    found = by_layer(reader.read(saved(model, tmp_path / form)))
    for layer in model.layers:
        weights = [weight for weight in layer.get_weights() if weight.shape]
        mine = [array for array in found.pop(layer.name, []) if array.ndim]
        if layer.name == "both ways" and form != "model.h5":
            mine = mine[3:] + mine[:3]  # sorted by name, backward_layer stands before forward_layer
        mine = mine[: len(weights)]  # a dropout's seed is a vector that is no weight
        assert len(mine) == len(weights), layer.name
        for array, weight in zip(mine, weights, strict=True):
            np.testing.assert_array_equal(array, weight, layer.name)
    assert found == {}


@pytest.mark.parametrize("form", FORMS)
def test_arrays_have_the_names_that_keras_gives(tmp_path, model, form):
    found = reader.read(saved(model, tmp_path / form)).layers
    names = [name for name, _ in found["b_gru"]]
    if form == "model.h5":
        assert [name.split("/")[-1] for name in names] == ["kernel", "recurrent_kernel", "bias"]
    else:
        assert names == ["cell/vars/0", "cell/vars/1", "cell/vars/2"]
        assert [name for name, _ in found["both ways"]] == [
            f"{way}_layer/cell/vars/{k}" for way in ("backward", "forward") for k in range(3)
        ]


@pytest.mark.parametrize("form", FORMS)
def test_the_configuration_is_keras_s_own(tmp_path, keras, model, form):
    found = reader.read(saved(model, tmp_path / form))
    if form == "model.weights.h5":
        assert found.config is None
        return
    assert found.metadata["keras_version"] == keras.__version__
    config = found.config["config"]
    assert [layer["config"]["name"] for layer in config["layers"]] == [layer.name for layer in model.layers]
    again = keras.Model.from_config(config)
    assert [layer.name for layer in again.layers] == [layer.name for layer in model.layers]


def test_names_come_from_the_configuration_where_the_weights_have_none(tmp_path, model):
    path = saved(model, tmp_path / "model.keras")
    members = zipfile.ZipFile(path)
    weights = io.BytesIO(members.read("model.weights.h5"))
    with h5py.File(weights, "r+") as file:
        file.visititems(lambda name, item: item.attrs.clear())
    with zipfile.ZipFile(tmp_path / "older.keras", "w") as archive:
        for name in members.namelist():
            archive.writestr(name, weights.getvalue() if name.endswith(".h5") else members.read(name))
    older, newer = reader.read(tmp_path / "older.keras"), reader.read(path)
    assert [name for name, _ in older.layers["a_gru"]] == ["cell/vars/0", "cell/vars/1", "cell/vars/2"]
    assert {name for name, arrays in older.layers.items() if arrays} == {name for name, arrays in newer.layers.items() if arrays}
    for name, arrays in newer.layers.items():
        for (_, array), (_, expected) in zip(older.layers[name], arrays, strict=True):
            np.testing.assert_array_equal(array, expected, name)
    (tmp_path / "older.weights.h5").write_bytes(weights.getvalue())
    assert {"gru", "gru_1", "bidirectional", "dense", "embedding"} <= set(reader.read(tmp_path / "older.weights.h5").layers)


def test_class_names_are_written_as_keras_writes_them(keras):
    from keras.src.utils.naming import to_snake_case

    classes = [name for name, value in vars(keras.layers).items() if isinstance(value, type)]
    assert len(classes) > 100
    config = {"config": {"layers": [{"class_name": name, "config": {"name": name}} for name in classes]}}
    assert set(reader._names_by_class(config)) == {to_snake_case(name) for name in classes}


def test_weights_alone_in_the_older_form_are_read(tmp_path, model):
    from keras.src.legacy.saving import legacy_h5_format

    with h5py.File(tmp_path / "weights.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
    found = reader.read(tmp_path / "weights.h5")
    assert found.config is None
    assert [name for name in found.layers if found.layers[name]] == [layer.name for layer in model.layers if layer.weights]
    for layer in model.layers:
        weights = [weight for weight in layer.get_weights() if weight.ndim > 0]
        for (_, array), weight in zip(found.layers.get(layer.name, []), weights, strict=False):
            np.testing.assert_array_equal(array, weight)


def test_lists_of_names_may_be_split(tmp_path):
    def chunked(group, name, texts):
        for k, text in enumerate(texts):
            group.attrs[f"{name}{k}"] = np.array([text], "S")

    with h5py.File(tmp_path / "a.h5", "w") as file:
        chunked(file, "layer_names", ["a", "b"])
        for layer in "ab":
            file[f"{layer}/x:0"], file[f"{layer}/y:0"] = np.ones(2), np.zeros(3)
            chunked(file[layer], "weight_names", ["y:0", "x:0"])
    assert {name: [part for part, _ in arrays] for name, arrays in reader.read(tmp_path / "a.h5").layers.items()} == {
        "a": ["y:0", "x:0"],
        "b": ["y:0", "x:0"],
    }


def test_real_weights_are_read(shared):
    found = reader.read(shared("checkpoints/textgenrnn/textgenrnn_weights.hdf5"))
    assert list(found.layers) == ["input", "embedding", "rnn_1", "rnn_2", "rnn_concat", "attention", "output"]
    assert [(name, array.shape) for name, array in found.layers["rnn_2"]] == [
        ("rnn_2/kernel:0", (128, 512)),
        ("rnn_2/recurrent_kernel:0", (128, 512)),
        ("rnn_2/bias:0", (1024,)),
    ]
    assert found.config is None
    assert found.metadata == {"backend": "tensorflow", "keras_version": "2.1.5"}


def older(tmp_path, change):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["layer_names"] = np.array(["a"], "S")
        file["a/x:0"] = np.ones(2)
        file["a"].attrs["weight_names"] = np.array(["x:0"], "S")
        change(file)
    return (tmp_path / "a.h5").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.attrs.update({"layer_names": np.array(["a", "b"], "S")}), "the layer 'b' has no group 'b'"),
        (lambda file: file.attrs.update({"layer_names": np.array(["a", "a"], "S")}), "the layer 'a' is there twice"),
        (lambda file: file.attrs.update({"layer_names": 3}), "the attribute layer_names of '' should be a list of texts"),
        (lambda file: file["a"].attrs.update({"weight_names": np.array(["z"], "S")}), "the layer 'a' should have a dataset 'z'"),
        (lambda file: file["a"].attrs.pop("weight_names"), "the group 'a' has no attribute weight_names"),
        (lambda file: file.attrs.update({"model_config": 3}), "model_config should be a text, it is a int"),
        (lambda file: file.attrs.update({"model_config": "{"}), "model_config: not valid JSON"),
        (lambda file: file.attrs.update({"model_config": "[]"}), "model_config: should be an object, got a list of 0"),
        (lambda file: file.attrs.pop("layer_names"), "no file of Keras: neither layer_names among the attributes nor"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, change, message):
    refused(reader.read, older(tmp_path, change), message)


def test_archives_without_their_parts_are_refused():
    def zipped(**members):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name.replace("_json", ".json").replace("_h5", ".weights.h5"), data)
        return packed.getvalue()

    weights = zipfile.ZipFile(GOLDEN / "tiny.keras").read("model.weights.h5")
    assert reader.read(zipped(config_json="{}", model_h5=weights)).config == {}
    refused(reader.read, zipped(config_json="{}"), "a .keras file has config.json and model.weights.h5")
    refused(reader.read, zipped(config_json="[]", model_h5=weights), "member 'config.json': should be an object")
    refused(reader.read, zipped(config_json="[" * 300, model_h5=weights), "member 'config.json': nested 300 levels deep")
    refused(reader.read, zipped(config_json="{}", model_h5=weights[:-1]), "member 'model.weights.h5': should have")
    refused(reader.read, zipped(config_json=json.dumps("x" * 10**8), model_h5=weights), "as a decompression bomb")


def test_the_golden_files_say_the_same():
    forms = [reader.read(GOLDEN / name) for name in ("tiny.keras", "tiny.h5", "tiny.weights.h5")]
    for found in forms:
        (arrays,) = by_layer(found).values()
        assert list(by_layer(found)) == ["only"]
        assert [array.shape for array in arrays] == [(1, 6), (2, 6), (2, 6)]
        for array, (_, expected) in zip(arrays, forms[0].layers["only"], strict=True):
            np.testing.assert_array_equal(array, expected)
