"""Networks in files: the same bits when they are read back, and refusals of what no network has written."""

import itertools
import json

import numpy as np
import pytest
import safetensors.numpy

import anyrnn
from anyrnn import State, Vec, affine, cell, runtime, sigmoid, softplus, tanh
from anyrnn.files import safetensors as ours
from anyrnn.passes import compile
from anyrnn.runtime.saved import FORMAT
from tests.runtime.test_networks import draw, given, recurrent, small
from tests.zoo import EVERY


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_network_is_read_as_it_was_written(name, dtype, tmp_path):
    network = small(name, dtype=dtype)
    network.save(tmp_path / "network.safetensors")
    found = runtime.load(tmp_path / "network.safetensors")
    assert repr(found) == repr(network)
    x = given(network, 9, 3)
    (a, after), (b, later) = network.run(x), found.run(x)
    assert np.array_equal(a, b)
    assert all(np.array_equal(p, q) for p, q in zip(after["rnn"], later["rnn"], strict=True))
    found.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "network.safetensors").read_bytes()


@pytest.mark.parametrize("options", [
    {"bidirectional": True, "num_layers": 2}, {"bidirectional": True, "merge": "mean"}, {"reverse": True},
    {"num_layers": 3, "residual": True}, {"learned_state": True}, {"bias": False}, {"zoneout": 0.3},
    {"clip_state": 0.5, "clip_preactivation": 2.0}, {"activations": {"tanh": "relu"}}, {"skip_input": True, "size": 7},
    {"cut_gradient": True, "clip_gradient": 1.0},
])  # fmt: skip
def test_options_of_layers_are_kept(options, tmp_path):
    rnn = recurrent("gru", **options)
    size = rnn.network.input_size
    network = runtime.Network(size, [rnn], batch_first=True)
    network.save(tmp_path / "network.safetensors")
    x = draw(3, 9, size)
    found = runtime.load(tmp_path / "network.safetensors")
    assert found.batch_first
    assert np.array_equal(found.run(x)[0], network.run(x)[0])


@cell
def own(x, h: Vec(init=0.25), m: Vec("memory"), *, rate=0.5):
    u = sigmoid(affine("u", x, h, m))
    m = rate * m + (1 - rate) * tanh(affine("m", h, size="memory"))
    h = u * h + (1 - u) * softplus(affine("n", h, m))
    return h, State(h=h, m=m)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_cell_of_ones_own_needs_its_file_no_more(backend, tmp_path):
    layer = anyrnn.Recurrent(own, 3, 5, memory=4, rate=0.75, seed=0, backend=backend)
    network = runtime.Network(3, [runtime.Recurrent("rnn", ["x"], layer.network, layer.parameters, backend=backend)])
    network.save(tmp_path / "network.safetensors")
    found = runtime.load(tmp_path / "network.safetensors", backend=backend)
    x = draw(9, 2, 3)
    assert np.array_equal(found.run(x)[0], layer(x)[0])


def test_files_are_those_of_safetensors(tmp_path):
    network = small("gru")
    network.save(tmp_path / "network.safetensors")
    theirs = safetensors.numpy.load_file(tmp_path / "network.safetensors")
    assert theirs.keys() == network.parameters.keys()
    assert all(np.array_equal(theirs[name], array) for name, array in network.parameters.items())


# what is refused


def changed(change, arrays=None):
    """The bytes of a network's file after a change of its data."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        small("gru").save(path)
        found, metadata = ours.read(path)
        data = json.loads(metadata[FORMAT])
        change(data)
        (arrays or (lambda a: None))(found)
        ours.write(path, found, {FORMAT: json.dumps(data)})
        return path.read_bytes()


def rnn(data):
    return next(layer for layer in data["layers"] if layer["kind"] == "recurrent")


WRONG = [
    (lambda d: rnn(d).update(int8="yes"), "int8: expected true or false, got text"),
    (lambda d: d.update(version=3), "network.version: this version of anyrnn reads 1 and 2, got 3"),
    (lambda d: d.update(version="1"), "network.version: expected an integer, got text"),
    (lambda d: d.pop("layers"), "network.layers: expected a list, got nothing"),
    (lambda d: d.update(layers=d["layers"] * 500), "network.layers: expected at most 1000, got"),
    (lambda d: d["layers"].append({"kind": "shell", "name": "a", "inputs": []}), "unknown kind of layer 'shell'; known are"),
    (lambda d: d["layers"].append(dict(d["layers"][0], name="b")), "arrays should be weight, got none"),
    (lambda d: d["layers"].pop(), "the outputs should be names of layers"),
    (lambda d: d["layers"].pop(0), "arrays of no layer: 'embedding'|its input 'embedding' is no input"),
    (lambda d: d.update(inputs=[["x", -3]]), "input 'x': size must be greater than zero"),
    (lambda d: d.update(inputs=[["x", 5]]), r"embedding: expected integers, got \[T, N, 5\]"),
    (lambda d: d.update(batch_first=0), "network.batch_first: expected true or false, got an integer"),
    (lambda d: rnn(d).update(layers=0), "1 to 1000 layers"),
    (lambda d: rnn(d).update(layers=3), "unknown or missing: bias_hh_l2"),
    (lambda d: rnn(d).update(bidirectional=True), "unknown or missing: bias_hh_l0_reverse"),
    (lambda d: rnn(d).update(merge="sum"), "no layer has merge 'sum', bidirectional False"),
    (lambda d: rnn(d).update(merge="separate", bidirectional=True), "no layer has merge 'separate'"),
    (lambda d: rnn(d)["sizes"].update(hidden=8), r"weight_ih_l0 should be float32 \(24, 5\), got float32 \(21, 5\)"),
    (lambda d: rnn(d)["sizes"].update(hidden=2**31), "sizes: hidden should be a number of features, got 2147483648"),
    (lambda d: rnn(d)["sizes"].update(hidden=2**30), "a value has [0-9]+ features, and all arrays of the file"),
    (lambda d: rnn(d)["sizes"].update(hidden=True), "sizes: hidden should be a number of features, got True"),
    (lambda d: rnn(d)["sizes"].update(more=1), "expected the sizes input, hidden"),
    (lambda d: rnn(d)["sizes"].pop("input"), "expected the sizes input"),
    (lambda d: rnn(d)["hypers"].update(rate=0.5), "hypers: expected none, got 'rate'"),
    (lambda d: rnn(d).update(learned_state=True), "learned_state is True, and the parameters that no equation reads are none"),
    (lambda d: rnn(d)["cell"]["nodes"].clear(), "graph: "),
    (lambda d: rnn(d).update(cell=[]), "cell: expected an object, got a list"),
    (lambda d: d["layers"][-1].update(function="__import__"), "the function should be one of elu, .*, got '__import__'"),
    (lambda d: d["layers"][-2].update(epsilon="small"), "epsilon: expected a number, got text"),
    (lambda d: d["layers"][0].update(name="a" * 5000), "a name of 5000 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_no_network_has_written_is_refused(change, message):
    with pytest.raises(ValueError, match=message) as caught:
        runtime.load(changed(change))
    assert str(caught.value).startswith("the bytes: ")


@pytest.mark.parametrize(("change", "message"), [
    (lambda rnn: rnn.update(learned_state=False), "learned_state is False, and the parameters that no equation reads are 'h0'"),
    (lambda rnn: rnn["cell"]["parameters"][-1].__setitem__(1, []), "learned_state is True, and .*'h0'"),
])  # fmt: skip
def test_learned_first_values_are_said_to_be_such(change, message, tmp_path):
    """And have the shapes of the states."""
    runtime.Network(3, [recurrent("gru", size=3, learned_state=True)]).save(tmp_path / "network.safetensors")
    arrays, metadata = ours.read(tmp_path / "network.safetensors")
    data = json.loads(metadata[FORMAT])
    change(rnn(data))
    ours.write(tmp_path / "network.safetensors", arrays, {FORMAT: json.dumps(data)})
    with pytest.raises(ValueError, match=message):
        runtime.load(tmp_path / "network.safetensors")


def test_layers_that_would_be_wider_than_the_file_justifies_are_refused():
    def doubled(data):
        names = ["rnn", *(f"wide{k}" for k in range(40))]
        data["layers"] += [{"kind": "concatenate", "name": b, "inputs": [a, a]} for a, b in itertools.pairwise(names)]

    with pytest.raises(ValueError, match="network: wide39 has 7696581394432 features, and all arrays of the file"):
        runtime.load(changed(doubled))


def test_arrays_of_no_layer_are_refused():
    with pytest.raises(ValueError, match="arrays of no layer: 'more'"):
        runtime.load(changed(lambda d: None, lambda arrays: arrays.update({"more.weight": np.ones(3, np.float32)})))


def test_arrays_that_are_no_numbers_of_ours_are_refused():
    def integers(arrays):
        arrays["scores.bias"] = arrays["scores.bias"].astype(np.int32)

    with pytest.raises(ValueError, match="int32"):
        runtime.load(changed(lambda d: None, integers))


def test_features_beyond_a_vector_are_refused():
    """A graph that reads beyond the end of a value would read memory that is not its own."""

    def beyond(data):
        nodes = rnn(data)["cell"]["nodes"]
        first = next(node for node in nodes if node[0] == "slice")
        first[3][0] = "3*hidden"

    with pytest.raises(ValueError, match=r"takes hidden from 3.hidden on|is not a whole number"):
        runtime.load(changed(beyond))

    def before(data):
        nodes = rnn(data)["cell"]["nodes"]
        next(node for node in nodes if node[0] == "slice")[3][0] = "-3"

    with pytest.raises(ValueError, match="the size -3 is not a whole number"):
        runtime.load(changed(before))


@cell
def longest(x, m: Vec(init=float("-inf"))):
    m = anyrnn.maximum(m, tanh(affine("a", x)))
    return m, State(m=m)


def test_infinite_first_values_are_kept(tmp_path):
    network = runtime.Network(3, [runtime.Recurrent.of("rnn", "x", anyrnn.Recurrent(longest, 3, 5, seed=0))])
    network.save(tmp_path / "a.safetensors")
    found, x = runtime.load(tmp_path / "a.safetensors"), draw(4, 2, 3)
    assert np.array_equal(found.run(x)[0], network.run(x)[0])
    assert np.isneginf(found.initial_state()["rnn"].m).all()


def test_infinite_hyper_parameters_are_kept(tmp_path):
    limited = anyrnn.Recurrent(own, 3, 5, memory=4, rate=float("inf"), seed=0)
    runtime.Network(3, [runtime.Recurrent.of("rnn", "x", limited)]).save(tmp_path / "a.safetensors")
    assert dict(runtime.load(tmp_path / "a.safetensors").recurrent["rnn"].network.hypers) == {"rate": float("inf")}


def test_what_cannot_be_read_is_not_written(tmp_path):
    layers = [runtime.Add(f"l{k}", [f"l{k - 1}" if k else "x"]) for k in range(1001)]
    with pytest.raises(ValueError, match="a network of more than 1000 layers cannot be kept"):
        runtime.Network(3, layers).save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"a.onnx: networks are kept in .safetensors files; anyrnn.convert.save writes others"):
        small("gru").save(tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


def test_files_of_another_kind_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(ValueError, match=r"a.npz: a file of kind npz; `anyrnn convert` makes a network of it where it can"):
        runtime.load(tmp_path / "a.npz")


def test_equations_of_too_many_ops_are_refused(monkeypatch):
    monkeypatch.setattr(compile, "MOST_OPS", 1000)

    def deep(data):
        cell = rnn(data)["cell"]
        end = dict(map(tuple, cell["outputs"]))["y"]
        for _ in range(2000):
            cell["nodes"].append(["tanh", [end], ["hidden"], [], True, ""])
            end = len(cell["nodes"]) - 1
        cell["outputs"][0][1] = end

    with pytest.raises(ValueError, match="ops in a step; plans are made of 1000 at most"):
        runtime.load(changed(deep))


def test_another_safetensors_file_is_named(tmp_path):
    ours.write(tmp_path / "a.safetensors", {"weight": np.ones(3)})
    with pytest.raises(
        ValueError, match=r"a.safetensors: a safetensors file without a network of anyrnn; its arrays are 'weight'"
    ):
        runtime.load(tmp_path / "a.safetensors")


def test_what_cannot_run_where_it_is_asked_to_says_so(tmp_path):
    layer = anyrnn.Recurrent("gru", 3, 5, seed=0)
    runtime.Network(3, [runtime.Recurrent("rnn", ["x"], layer.network, layer.parameters)]).save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="backend should be one of auto, llvm, reference, got 'cuda'"):
        runtime.load(tmp_path / "a.safetensors", backend="cuda")
