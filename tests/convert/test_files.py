"""Networks from files of all kinds, and to them."""

import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import anyrnn
import anyrnn.onnx
from anyrnn import cell, convert, runtime, weights
from anyrnn.cli import main
from anyrnn.convert.recurrent import stacks
from anyrnn.errors import InexactError
from anyrnn.files import safetensors as our_safetensors
from tests.budget import assert_within_budget
from tests.runtime.test_networks import draw, small
from tests.runtime.test_saved import own
from tests.zoo import EVERY, input_size, sizes_of

KINDS = [
    ("LSTM", {}), ("LSTM", {"proj_size": 3}), ("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"}),
]  # fmt: skip


def cell_named(kind, options):
    return {"LSTM": None, "GRU": None, "RNN": f"rnn_{options.get('nonlinearity', 'tanh')}"}[kind]


@pytest.mark.parametrize("prefix", ["", "encoder."])
def test_what_stands_beside_a_layer_is_not_left_out(prefix, tmp_path):
    rnn = {f"{prefix}{name}": p for name, p in torch.nn.LSTM(3, 4).state_dict().items()}
    torch.save({**rnn, f"{prefix}linear.weight": torch.zeros(2, 4)}, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=rf"do not tell how the network goes.* and 1 other arrays \({prefix}linear.weight\)"):
        convert.load(tmp_path / "m.pt")
    for name in (prefix, prefix or "recurrent"):
        assert convert.load(tmp_path / "m.pt", layer=name).layers[0].kind == "recurrent"


def test_what_is_written_of_a_network_of_so_many_steps_is_compared(tmp_path, capsys):
    """As `anyrnn train digits` leaves it."""
    layers = [runtime.Recurrent.of("rnn", "x", anyrnn.Recurrent("gru", 3, 4, seed=0)), runtime.Flatten("flat", "rnn", 8)]
    network = runtime.Network(3, [*layers, runtime.Dense("d", "flat", draw(2, 32))], batch_first=True)
    network.save(tmp_path / "a.safetensors")
    assert main(["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "b.onnx"), "--check"]) == 0
    assert "within" in capsys.readouterr().out


@cell
def of_pixels(x: anyrnn.Vec("pixels"), h: anyrnn.Vec("memory")):
    h = anyrnn.tanh(anyrnn.affine("n", x, h, size="memory"))
    return h, anyrnn.State(h=h)


def test_a_cell_with_sizes_of_other_names(tmp_path):
    layer = anyrnn.Recurrent(of_pixels, 3, 1, memory=5, seed=0)
    np.savez(tmp_path / "m.npz", **layer.parameters)
    x = draw(5, 2, 3)
    assert np.array_equal(convert.load(tmp_path / "m.npz", cell=of_pixels).run(x)[0], layer(x)[0])


def test_a_layer_called_as_inputs_are(tmp_path):
    layer = torch.nn.LSTM(3, 4)
    torch.save({f"x.{name}": p for name, p in layer.state_dict().items()}, tmp_path / "m.pt")
    x = draw(5, 2, 3)
    np.testing.assert_allclose(convert.load(tmp_path / "m.pt").run(x)[0], layer(torch.tensor(x))[0].detach(), atol=1e-6)


@cell
def of_low(x, h):
    low = 0.5 * h
    h = anyrnn.tanh(anyrnn.affine("n", x, low))
    return h, anyrnn.State(h=h)


@pytest.mark.parametrize("bias", ["recurrent", "input", False])
def test_operands_whose_names_begin_as_suffixes_do(bias, tmp_path):
    layer = anyrnn.Recurrent(of_low, 3, 4, bias=bias, seed=0)
    np.savez(tmp_path / "m.npz", **layer.parameters)
    x = draw(5, 2, 3)
    assert np.array_equal(convert.load(tmp_path / "m.npz", cell=of_low).run(x)[0], layer(x)[0])


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("more", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}])
@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("suffix", ["pt", "safetensors", "npz"])
def test_state_dicts_of_torch(kind, options, more, suffix, tmp_path):
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(5, 7, **options, **more)
    path = tmp_path / f"weights.{suffix}"
    if suffix == "pt":
        torch.save(module.state_dict(), path)
    elif suffix == "npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in module.state_dict().items()})
    else:
        safetensors.torch.save_file(module.state_dict(), path)
    network = convert.load(path, cell=cell_named(kind, options))
    x = draw(9, 3, 5)
    peer = module(torch.tensor(x))[0].detach().numpy()
    exact = module.double()(torch.tensor(x, dtype=torch.float64))[0].detach().numpy()
    assert_within_budget(network.run(x)[0], peer, exact, f"{kind} {options} {more}")
    assert convert.parity(path, network).within


def test_parity_is_that_of_the_file_and_not_of_the_network(tmp_path):
    torch.manual_seed(0)
    for name in ("a.pt", "b.pt"):
        torch.save(torch.nn.GRU(5, 7).state_dict(), tmp_path / name)
    assert not convert.parity(tmp_path / "a.pt", convert.load(tmp_path / "b.pt")).within
    np.savez(
        tmp_path / "c.npz", **weights.convert(torch.load(tmp_path / "a.pt"), "gru", source="torch", target="keras", layers=1)
    )
    network = convert.load(tmp_path / "c.npz", system="keras", cell="gru")
    with pytest.raises(ValueError, match=r"c.npz: no library runs what is in it"):
        convert.parity(tmp_path / "c.npz", network)


def with_more(network, name, more):
    """The same network with a number added to the first of a parameter."""
    found = [runtime.Recurrent(layer.name, layer.inputs, layer.network, {**layer.arrays, name: layer.arrays[name] + more})
             for layer in network.layers]  # fmt: skip
    return runtime.Network(network.inputs, found, batch_first=network.batch_first)


@pytest.mark.parametrize(
    ("name", "options"),
    [("gru", {"num_layers": 2, "bidirectional": True}), ("mgu", {"batch_first": True}), ("lstm", {"bias": False})],
)
def test_a_model_that_was_written_is_compared_too(name, options, tmp_path, capsys):
    """Nodes of ONNX's own and a Scan; of a file that no library runs what was written alone."""
    source, target = tmp_path / "a.safetensors", tmp_path / "a.onnx"
    layer = anyrnn.Recurrent(name, 5, 7, seed=0, **options)
    network = runtime.Network([runtime.Input("x", 5)], [runtime.Recurrent.of("rnn", ["x"], layer)])
    network.save(source)
    assert main(["convert", str(source), str(target), "--check"]) == 0
    told = capsys.readouterr().out
    assert ("no library runs what is in it" in told) == (name == "mgu")
    assert f"{target} by onnxruntime" in told
    assert not convert.parity_of_written(target, with_more(network, "weight_hh_l0", 0.01)).within


def test_a_model_that_cannot_be_run_is_no_success(tmp_path, monkeypatch, capsys):
    torch.save(torch.nn.GRU(5, 7).state_dict(), tmp_path / "a.pt")
    monkeypatch.setattr(anyrnn.onnx, "export", lambda network, target: Path(target).write_bytes(b"\x08\x08"))
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "a.onnx"), "--check"]) == 1
    told = capsys.readouterr().out
    assert "within the error budget" in told
    assert "a.onnx: onnxruntime cannot run it" in told


@pytest.mark.parametrize("system", ["torch", "keras", "onnx", "cudnn"])
@pytest.mark.parametrize("bias", ["input", "recurrent"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh"])
def test_a_bias_that_a_network_lacks_is_zero_elsewhere(cell, bias, system, tmp_path):
    """As in networks of Keras, whose LSTM has one bias."""
    both = {"num_layers": 2, "bidirectional": True}
    layer = anyrnn.Recurrent(cell, 5, 7, seed=0, bias=bias, **both)
    network = runtime.Network([runtime.Input("x", 5)], [runtime.Recurrent.of("rnn", ["x"], layer)])
    full = {name: np.zeros_like(array) for name, array in anyrnn.Recurrent(cell, 5, 7, **both).parameters.items()}
    full |= layer.parameters
    expected = weights.write(system, full, cell, 2, True, approximate=True)
    convert.save(network, tmp_path / "a.npz", system=system, approximate=True)
    with np.load(tmp_path / "a.npz") as found:
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_arrays_of_ones_own_cell_have_no_system(tmp_path):
    rnn = runtime.Recurrent.of("rnn", ["x"], anyrnn.Recurrent(own, 5, 7, seed=0, memory=3))
    with pytest.raises(
        ValueError, match=r"none of anyrnn's cells computes what its cell does; .* a .safetensors file has any cell"
    ):
        convert.save(runtime.Network([runtime.Input("x", 5)], [rnn]), tmp_path / "a.npz", system="anyrnn")


@pytest.mark.parametrize("bias", ["both", "none", "input", "recurrent"])
def test_our_arrays_come_back_with_the_biases_that_they_have(bias, tmp_path):
    layer = anyrnn.Recurrent("gru_before", 5, 7, seed=0, bias=bias)
    network = runtime.Network([runtime.Input("x", 5)], [runtime.Recurrent.of("rnn", ["x"], layer)])
    convert.save(network, tmp_path / "a.npz", system="anyrnn")
    with pytest.raises(ValueError, match=r"a.npz: our arrays do not tell their cell; name it .--cell."):
        convert.load(tmp_path / "a.npz", system="anyrnn")
    found, x = convert.load(tmp_path / "a.npz", system="anyrnn", cell="gru_before"), draw(9, 3, 5)
    assert np.array_equal(found.run(x)[0], network.run(x)[0])


STANDS_FOR = [{}, {"batch_first": True}, {"bias": "input"}]
NOT_FOR = [{"residual": True}, {"merge": "sum"}, {"reverse": True}, {"learned_state": True}]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [*STANDS_FOR, *NOT_FOR], ids=str)
def test_whatever_torchs_layer_stands_for_is_compared(options, dtype, tmp_path):
    both = {"bidirectional": True} if "merge" in options else {"num_layers": 2}
    layer = anyrnn.Recurrent("gru", 7, 7, seed=0, dtype=np.dtype(dtype), **both, **options)
    network = runtime.Network([runtime.Input("given", 7)], [runtime.Recurrent.of("rnn", ["given"], layer)],
                              batch_first=options.get("batch_first", False))  # fmt: skip
    network.save(tmp_path / "a.safetensors")
    if options in STANDS_FOR:
        assert convert.parity(tmp_path / "a.safetensors", network).within
    else:
        with pytest.raises(ValueError, match="no library runs what is in it"):
            convert.parity(tmp_path / "a.safetensors", network)


@pytest.mark.parametrize("seed", range(6))
def test_a_written_model_of_float64_is_compared(seed, tmp_path):
    layer = anyrnn.Recurrent("mgu", 5, 7, seed=seed, dtype=np.float64)
    network = runtime.Network([runtime.Input("x", 5)], [runtime.Recurrent.of("rnn", ["x"], layer)])
    convert.save(network, tmp_path / "a.onnx")
    assert convert.parity_of_written(tmp_path / "a.onnx", network).within
    assert not convert.parity_of_written(tmp_path / "a.onnx", with_more(network, "weight_hh_l0", 1e-12)).within


def legacy(path, layers, names):
    """A weights-only file of an older Keras."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = np.array([name.encode() for name in layers])
        file.attrs["backend"], file.attrs["keras_version"] = "tensorflow", "2.1.5"
        for layer, arrays in layers.items():
            group = file.create_group(layer)
            listed = [names.format(layer=layer, name=name) for name in arrays]
            group.attrs["weight_names"] = np.array([name.encode() for name in listed])
            for name, array in zip(listed, arrays.values(), strict=True):
                group[name] = array


def test_layers_of_keras_are_chosen_by_their_whole_names(tmp_path):
    layers = {name: {"kernel": draw(5, 28, seed=k), "recurrent_kernel": draw(7, 28), "bias": draw(28)}
              for k, name in enumerate(["lstm", "lstm_1"])}  # fmt: skip
    legacy(tmp_path / "a.h5", layers, "{layer}/{name}:0")
    with pytest.raises(ValueError, match=r"a.h5: name the layer that is wanted .--layer., one of lstm, lstm_1"):
        convert.load(tmp_path / "a.h5", cell="lstm")
    for name, arrays in layers.items():
        found = convert.load(tmp_path / "a.h5", cell="lstm", layer=name)
        assert np.array_equal(found.parameters["rnn.weight_ih_l0"], arrays["kernel"].T)
    with pytest.raises(ValueError, match=r"a.h5: no layer 'lst' with arrays; there are lstm, lstm_1"):
        convert.load(tmp_path / "a.h5", cell="lstm", layer="lst")
    both = {f"{way}_lstm/{name}": array for way in ("forward", "backward") for name, array in layers["lstm"].items()}
    legacy(tmp_path / "b.h5", {"bidirectional": both}, "{layer}/{name}:0")
    with pytest.raises(ValueError, match=r"b.h5: the arrays' names do not tell which they are; save the whole model"):
        convert.load(tmp_path / "b.h5", cell="lstm")


def test_a_file_that_says_config_is_not_therefore_kerass(tmp_path):
    our_safetensors.write(tmp_path / "a.safetensors", {"weight": np.ones(3)}, {"config": "{}"})
    assert "weight  [3] float64" in convert.inspect(tmp_path / "a.safetensors")


def test_a_layer_of_a_larger_model_is_chosen_by_its_prefix(tmp_path):
    model = torch.nn.ModuleDict({"encoder": torch.nn.LSTM(5, 7), "head": torch.nn.Linear(7, 2), "decoder": torch.nn.GRU(2, 3)})
    path = tmp_path / "model.pt"
    torch.save({"state": model.state_dict(), "step": 3}, path)
    with pytest.raises(
        ValueError, match=r"name the layer that is wanted .--layer.: state.encoder: 1 layer, .*; state.decoder: 1 layer"
    ):
        convert.load(path)
    with pytest.raises(ValueError, match=r"no recurrent layer 'state.head'; there are: state.encoder"):
        convert.load(path, layer="state.head")
    network = convert.load(path, layer="state.decoder")
    x = draw(4, 2, 2)
    assert np.abs(network.run(x)[0] - model["decoder"](torch.tensor(x))[0].detach().numpy()).max() < 1e-6
    told = convert.inspect(path)
    assert "state.head.weight  [2, 7] float32" in told
    assert "recurrent layer state.encoder: 1 layer, weight_ih_l0 [28, 5], cell lstm" in told


def test_arrays_that_do_not_tell_their_cell_ask_for_it(tmp_path):
    np.savez(tmp_path / "a.npz", **{name: tensor.numpy() for name, tensor in torch.nn.RNN(5, 7).state_dict().items()})
    with pytest.raises(ValueError, match="a tanh or a relu network, which the arrays do not tell; name the cell"):
        convert.load(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"cell 'lstm' needs|weight_ih_l0 should be"):
        convert.load(tmp_path / "a.npz", cell="lstm")
    np.savez(tmp_path / "b.npz", kernel=draw(5, 28), recurrent_kernel=draw(7, 28), bias=draw(28))
    with pytest.raises(ValueError, match=r"whose arrays these are, they do not tell; name the system .--from., one of anyrnn,"):
        convert.load(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"keras's arrays do not tell their cell; name it .--cell., one of gru,"):
        convert.load(tmp_path / "b.npz", system="keras")
    network = convert.load(tmp_path / "b.npz", system="keras", cell="lstm")
    assert np.array_equal(network.parameters["rnn.weight_ih_l0"], np.load(tmp_path / "b.npz")["kernel"].T)


HELD = [
    ("a.npz", "keras"), ("a.npz", "flax"), ("a.npz", "onnx"), ("a.npz", "torch"), ("a.safetensors", "equinox"),
    ("a.safetensors", "torch"), ("a.params", None), ("a.pt", None), ("a.pt", "haste"), ("a.npz", "tf1"),
]  # fmt: skip
BY_DEFAULT = {"a.params": "mxnet", "a.pt": "torch"}
HELD_CELLS = [
    (name, file, system)
    for file, system in HELD
    for name in ("lstm", "gru", "rnn_tanh")
    if name in weights.cells_of(system or BY_DEFAULT[file])
]


@pytest.mark.parametrize(("name", "file", "system"), HELD_CELLS)
def test_arrays_of_other_systems_come_back(name, file, system, tmp_path):
    layer = anyrnn.Recurrent(name, 5, 7, seed=0)
    layer.parameters["bias_hh_l0"][:] = 0  # which systems with a single bias have no place for, or add to the other
    network = runtime.Network(5, [runtime.Recurrent("rnn", ["x"], layer.network, layer.parameters)])
    convert.save(network, tmp_path / file, system=system)
    found = convert.load(tmp_path / file, system=system, cell=name)
    x = draw(6, 2, 5)
    expected = network.run(x)[0]
    if system == "tf1" and name == "lstm":  # which adds 1 to the forget gate's bias by itself
        assert np.abs(found.run(x)[0] - expected).max() < 1e-6
    else:
        assert np.array_equal(found.run(x)[0], expected)


def test_what_a_system_cannot_hold_is_refused(tmp_path):
    layer = anyrnn.Recurrent("gru", 5, 7, seed=0)
    network = runtime.Network(5, [runtime.Recurrent("rnn", ["x"], layer.network, layer.parameters)])
    with pytest.raises(InexactError, match=r"flux.* has no place for bias_hh_l0 n"):
        convert.save(network, tmp_path / "a.npz", system="flux")
    convert.save(network, tmp_path / "a.npz", system="flux", approximate=True)
    mine = anyrnn.Recurrent(own, 5, 7, memory=3, seed=0)
    with pytest.raises(ValueError, match="none of torch's cells computes what its cell does; they are gru, lstm"):
        convert.save(runtime.Network(5, [runtime.Recurrent("r", ["x"], mine.network, mine.parameters)]), tmp_path / "a.pt")
    with pytest.raises(
        ValueError, match=r"the network has 6 layers; name the recurrent one whose arrays are written .--layer.: rnn"
    ):
        convert.save(small("lstm"), tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a.txt: cannot be written; what can be are .onnx, .o, .obj, .npz"):
        convert.save(network, tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a.npz: name the system whose arrays are written"):
        convert.save(network, tmp_path / "a.npz")
    both = anyrnn.Recurrent("gru", 5, 7, bidirectional=True, merge="sum", seed=0)
    with pytest.raises(ValueError, match="not for what goes on between them"):
        convert.save(runtime.Network(5, [runtime.Recurrent("r", ["x"], both.network, both.parameters)]), tmp_path / "a.pt")


def test_flat_vectors_are_read_with_their_sizes(tmp_path, capsys):
    layer = anyrnn.Recurrent("lstm", 5, 7, 2, seed=0)
    np.savez(tmp_path / "a.npz", **weights.write("cudnn", layer.parameters, "lstm", 2))
    arguments = ["convert", str(tmp_path / "a.npz"), str(tmp_path / "a.safetensors"), "--from", "cudnn", "--cell", "lstm"]
    sizes = ["--layers", "2", "--size", "input=5", "--size", "hidden=7"]
    assert main([*arguments, *sizes]) == 0
    found = runtime.load(tmp_path / "a.safetensors")
    assert all(np.array_equal(found.parameters[f"rnn.{name}"], array) for name, array in layer.parameters.items())
    capsys.readouterr()
    assert main(arguments) == 2
    assert "a.npz: cudnn" in capsys.readouterr().err
    assert main([*arguments, "--size", "hidden"]) == 2
    assert "--size should be given as NAME=N, such as hidden=256, got hidden" in capsys.readouterr().err


@pytest.mark.parametrize("name", EVERY)
def test_stacks_are_found_and_made_again(name):
    layer = anyrnn.Recurrent(name, input_size(name, 5, 14), 7, 2, bidirectional=True, seed=0, **sizes_of(name))
    arrays = {f"model.rnn.{k}": array for k, array in layer.parameters.items()}
    if not {"weight_ih_l0", "weight_hh_l0"} & layer.parameters.keys():
        assert stacks(arrays) == []  # nothing says that these are a recurrent layer's
        return
    (found,) = stacks(arrays)
    assert found.prefix == "model.rnn."
    assert found.made("rnn", "x", name).network == layer.network


@cell
def nearly(x, h):
    r = anyrnn.sigmoid(anyrnn.affine("r", x, h))
    z = anyrnn.sigmoid(anyrnn.affine("z", x, h))
    n = anyrnn.tanh(anyrnn.affine("n", x) + r * anyrnn.affine("n", h))
    h = (1 - z) * n + z * h
    return h, anyrnn.State(h=h)


def test_a_cell_is_known_by_its_equations_and_not_by_its_name(tmp_path):
    layer = anyrnn.Recurrent(nearly, 5, 7, seed=0)
    convert.save(runtime.Network(5, [runtime.Recurrent("r", ["x"], layer.network, layer.parameters)]), tmp_path / "a.pt")
    assert convert.load(tmp_path / "a.pt").layers[0].network.graph.name == "gru"


# the command line


def test_the_command_line_converts_checks_and_tells(tmp_path, capsys):
    torch.manual_seed(0)
    torch.save({"rnn": torch.nn.GRU(5, 7, 2).state_dict()}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "a.safetensors"), "--check"]) == 0
    said = capsys.readouterr().out
    assert "a.safetensors: " in said
    assert "bytes written" in said
    assert "within the error budget" in said
    assert main(["inspect", str(tmp_path / "a.safetensors")]) == 0
    said = capsys.readouterr().out
    assert "630 numbers in 8 arrays, 2.461 KiB" in said
    assert "rnn = recurrent(x)  [T, N, 7]" in said
    assert "cell gru (hidden 7, input 5, 2 layers)" in said
    assert "h' = (1 - z) * n + z * h" in said
    assert main(["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "a.params")]) == 0
    again = ["convert", str(tmp_path / "a.params"), str(tmp_path / "b.pt"), "--cell", "gru", "--layers", "2"]
    assert main(again) == 0
    theirs, ours = (torch.load(tmp_path / name, weights_only=True) for name in ("a.pt", "b.pt"))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs["rnn"].items())


def test_a_network_of_ones_own_is_converted_though_nothing_runs_it(tmp_path, capsys):
    small("mgu").save(tmp_path / "a.safetensors")
    assert main(["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"), "--check"]) == 1
    assert "not compared with another library: " in capsys.readouterr().out
    assert (tmp_path / "b.safetensors").exists()
    assert main(["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "c.safetensors"), "--int8", "--check"]) == 0
    assert "products of int8 move results by" in capsys.readouterr().out


def test_one_layer_of_a_network_is_written_on_the_command_line(tmp_path, capsys):
    layer = anyrnn.Recurrent("gru", 3, 5, seed=0)
    dense = runtime.Dense("d", ["first"], np.ones((2, 5), np.float32))
    runtime.Network(3, [runtime.Recurrent.of("first", ["x"], layer), dense]).save(tmp_path / "a.safetensors")
    convert.save(runtime.load(tmp_path / "a.safetensors"), tmp_path / "a.onnx")
    for source in ("a.safetensors", "a.onnx"):
        (name,) = convert.load(tmp_path / source).recurrent
        asked = ["convert", str(tmp_path / source), str(tmp_path / "a.npz"), "--to", "torch"]
        assert main(asked) != 0
        assert f"(--layer): {name}" in capsys.readouterr().err
        assert main([*asked, "--layer", "second"]) != 0
        assert f"no recurrent layer 'second'; there are: {name}" in capsys.readouterr().err
        assert main([*asked, "--layer", name]) == 0
        with np.load(tmp_path / "a.npz") as found:
            assert all(np.array_equal(found[name], array) for name, array in layer.parameters.items())
    assert main(["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "b.onnx"), "--layer", "first"]) != 0
    assert "a network is written whole" in capsys.readouterr().err


def test_arrays_behind_a_prefix_are_those_of_the_layer_that_is_written(tmp_path):
    arrays = anyrnn.weights.write("keras", anyrnn.Recurrent("gru", 3, 5, seed=0).parameters, "gru", 1)
    np.savez(tmp_path / "a.npz", other=np.ones(3, np.float32), **{f"net/{name}": array for name, array in arrays.items()})
    asked = ["convert", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), "--from", "keras", "--cell", "gru", "--layer", "net"]
    assert main([*asked, "--to", "torch"]) == 0


def test_of_two_layers_the_one_whose_name_begins_the_others_can_be_chosen(tmp_path):
    layers = {name: anyrnn.Recurrent("gru", 3, 5, seed=seed).parameters for seed, name in enumerate(("gru", "gru_1"))}
    written = {name: anyrnn.weights.write("keras", parameters, "gru", 1) for name, parameters in layers.items()}
    np.savez(
        tmp_path / "a.npz", **{f"{layer}/{name}": array for layer, arrays in written.items() for name, array in arrays.items()}
    )
    for name, parameters in layers.items():
        found = convert.load(tmp_path / "a.npz", system="keras", cell="gru", layer=name)
        assert np.array_equal(found.parameters["rnn.weight_hh_l0"], parameters["weight_hh_l0"])


def test_a_file_is_not_written_over_the_one_that_is_read(tmp_path, capsys):
    file = tmp_path / "a.safetensors"
    arrays = {
        f"{name}.{key}": array for name in ("one", "two") for key, array in anyrnn.Recurrent("gru", 3, 5).parameters.items()
    }
    safetensors.numpy.save_file(arrays, file)
    before = file.read_bytes()
    (tmp_path / "b.safetensors").symlink_to(file)
    for target in (file, tmp_path / "b.safetensors"):
        assert main(["convert", str(file), str(target), "--layer", "one"]) == 2
        assert "is SOURCE; what else is in it would be lost" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["a.safetensors", "a.onnx", "a.npz"])
def test_a_pipe_is_not_waited_for(name, tmp_path, capsys):
    os.mkfifo(tmp_path / name)
    for command in (["inspect"], ["convert", str(tmp_path / "b.safetensors")]):
        assert main([command[0], str(tmp_path / name), *command[1:]]) != 0
        assert "not a regular file" in capsys.readouterr().err
    with pytest.raises(ValueError, match="not a regular file"):
        anyrnn.onnx.read(tmp_path / name)


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "real.safetensors")
    small("gru").save(tmp_path / "link.safetensors")
    assert (tmp_path / "link.safetensors").is_symlink()
    assert repr(runtime.load(tmp_path / "real.safetensors")) == repr(small("gru"))


@pytest.mark.parametrize(("name", "message"), [
    ("a.pkl", "a pickle, which could run any program when it is read; it is never loaded"),
    ("a.xyz", "the suffix '.xyz' is not known"),
    ("a.safetensors", "a safetensors file begins with 8|not a safetensors file|by its first bytes nothing known"),
    ("none.onnx", "No such file"),
])  # fmt: skip
def test_the_command_line_says_what_it_cannot_read(name, message, tmp_path, capsys):
    if not name.startswith("none"):
        (tmp_path / name).write_bytes(b"\x80\x04hello" if name == "a.pkl" else b"hello")
    for command in (["inspect"], ["convert", str(tmp_path / "b.safetensors")]):
        arguments = [command[0], str(tmp_path / name), *command[1:]]
        assert main(arguments) != 0
        assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "b.safetensors").exists()


def test_hyper_parameters_that_arrays_have_no_place_for_are_named(tmp_path):
    rnn = runtime.Recurrent.of("rnn", ["x"], anyrnn.Recurrent("ctrnn", 3, 4, dt=0.5, seed=0))
    network = runtime.Network(3, [rnn])
    with pytest.raises(InexactError, match=r"rnn: arrays have no place for dt=0.5: name the cell ctrnn\(dt=0.5\) when"):
        convert.save(network, tmp_path / "a.npz", system="anyrnn")
    convert.save(network, tmp_path / "a.npz", system="anyrnn", approximate=True)
    found = convert.load(tmp_path / "a.npz", system="anyrnn", cell="ctrnn(dt=0.5)")
    x = draw(5, 2, 3)
    assert np.array_equal(found.run(x)[0], network.run(x)[0])


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_parameters_that_are_numbers_come_back(suffix, tmp_path):
    layer = anyrnn.Recurrent("fastrnn", 3, 4, seed=0)
    network = runtime.Network(3, [runtime.Recurrent.of("rnn", "x", layer)])
    convert.save(network, tmp_path / f"a.{suffix}", system="anyrnn")
    again = convert.load(tmp_path / f"a.{suffix}", system="anyrnn", cell="fastrnn")
    assert again.layers[0].arrays["alpha_l0"].shape == ()
    x = draw(5, 2, 3)
    assert np.array_equal(again.run(x)[0], network.run(x)[0])


def test_parameters_of_16_bits_are_told_with_their_layer(tmp_path):
    torch.save(torch.nn.LSTM(3, 4).half().state_dict(), tmp_path / "a.pt")
    with pytest.raises(ValueError, match="should be float32 or float64, got float16"):
        convert.load(tmp_path / "a.pt")


def test_the_layer_that_is_named_is_the_one(tmp_path):
    """Of one with a prefix, and one without."""
    named, unnamed = torch.nn.LSTM(3, 4), torch.nn.LSTM(3, 5)
    arrays = {f"encoder.{name}": p for name, p in named.state_dict().items()} | unnamed.state_dict()
    torch.save(arrays, tmp_path / "m.pt")
    for name, hidden in (("encoder", 4), ("", 5), ("recurrent", 5)):
        assert dict(convert.load(tmp_path / "m.pt", layer=name).layers[0].network.sizes)["hidden"] == hidden
    torch.save({name: p for name, p in arrays.items() if name.startswith("encoder.")}, tmp_path / "m.pt")
    with pytest.raises(ValueError, match="no recurrent layer ''"):
        convert.load(tmp_path / "m.pt", layer="")
