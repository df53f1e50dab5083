"""Layers, and networks at run time, whose matrices are multiplied as integers of eight bits."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import anyrnn
from anyrnn import UnsupportedError, backends, cli, runtime
from anyrnn.files import safetensors
from anyrnn.ir import int8
from tests.budget import IN_INT8
from tests.runtime.test_networks import draw, given, small

D, H = 19, 37


def near(found: np.ndarray, exact: np.ndarray) -> bool:
    return bool(np.linalg.norm(found - exact) < IN_INT8 * np.linalg.norm(exact))


@pytest.mark.parametrize("name", ["lstm", "gru", "lstm_heads", "rnn_tanh"])
def test_a_layer(name: str) -> None:
    layer, x = anyrnn.Recurrent(name, D, H, 2, seed=0), draw(9, 3, D)
    exact, rounded = layer(x)[0], layer.in_int8()
    found, state = rounded(x)
    assert not np.array_equal(found, exact)
    assert near(found, exact)
    assert np.array_equal(layer(x)[0], exact)
    stream = rounded.stream(3)
    assert np.array_equal(np.stack([stream(step) for step in x]), found)
    halves = [rounded(x[:4]), None]
    halves[1] = rounded(x[4:], halves[0][1])
    assert np.array_equal(np.concatenate([half[0] for half in halves]), found)
    for a, b in zip(halves[1][1], state, strict=True):
        assert np.array_equal(a, b)
    assert near(rounded(x, lengths=[9, 0, 4])[0], layer(x, lengths=[9, 0, 4])[0])


def test_its_parameters_are_its_own() -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), draw(4, 2, D)
    rounded = layer.in_int8()
    found = rounded(x)[0]
    layer.parameters["weight_hh_l0"] += 1
    assert np.array_equal(rounded(x)[0], found)
    assert not rounded.parameters["weight_hh_l0"].flags.writeable
    assert layer.parameters["weight_hh_l0"].flags.writeable


@pytest.mark.parametrize("how", ["replaced", "written", "copied", "pickled"])
def test_parameters_that_change_are_seen(how: str) -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0).in_int8(), draw(4, 2, D)
    before = layer(x)[0]
    if how in ("copied", "pickled"):
        layer = copy.deepcopy(layer) if how == "copied" else pickle.loads(pickle.dumps(layer))
        assert np.array_equal(layer(x)[0], before)
        assert not any(array.flags.writeable for array in layer.parameters.values())
    new = layer.parameters["weight_hh_l0"].copy()
    layer.parameters["weight_hh_l0"] = new
    assert np.array_equal(layer(x)[0], before)
    new *= 2
    assert not np.array_equal(layer(x)[0], before)
    if how == "written":
        found = layer(x)[0]
        new *= 2
        assert not np.array_equal(layer(x)[0], found)
    assert np.array_equal(layer.stream(2)(x[0]), layer(x)[0][0])
    new.flags.writeable = False
    assert np.array_equal([layer(x)[0] for _ in range(2)], [layer(x)[0] for _ in range(2)])


def test_what_it_no_longer_can() -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), draw(4, 2, D)
    rounded = layer.in_int8()
    rounded.backend = "reference"
    for call in (rounded, rounded.stream, lambda x: anyrnn.explain(rounded, x)):
        with pytest.raises(UnsupportedError, match="in_int8: backend='reference' was asked for"):
            call(x) if call != rounded.stream else rounded.stream(2)
    rounded.backend = "auto"
    rounded.dtype = np.float64
    with pytest.raises(UnsupportedError, match="in_int8: products of int8 are for float32, got float64"):
        rounded(x.astype(np.float64))
    rounded.dtype = np.float32
    assert np.array_equal(rounded(x)[0], layer.in_int8()(x)[0])


def test_probabilities_that_nothing_draws_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights stay packed."""
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0, zoneout=0.1).in_int8(), draw(4, 2, D)
    found, kept = layer(x)[0], layer._kept
    assert kept._packed
    assert np.array_equal(layer(x)[0], found)
    assert layer._kept is kept


def test_very_wide_vectors() -> None:
    with pytest.raises(UnsupportedError, match="vectors of more than 262144 features are not rounded to int8, got 300000"):
        anyrnn.Recurrent("gru", 300_000, 1).in_int8()


def test_residual_layers() -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, 3, seed=0, residual=True), draw(9, 3, D)
    found, exact = layer.in_int8()(x)[0], layer(x)[0]
    assert not np.array_equal(found, exact)
    assert near(found, exact)


def test_what_cannot_be() -> None:
    layer = anyrnn.Recurrent("gru", D, H, seed=0)
    with pytest.raises(UnsupportedError, match="products of int8 have no gradients"):
        layer.in_int8().forward_training(draw(4, 2, D))
    with pytest.raises(UnsupportedError, match="in_int8: products of int8 are for float32, got float64"):
        anyrnn.Recurrent("gru", D, H, dtype="float64").in_int8()
    with pytest.raises(UnsupportedError, match="in_int8: backend='reference' was asked for"):
        anyrnn.Recurrent("gru", D, H, backend="reference").in_int8()
    network = small("gru", backend="reference")
    with pytest.raises(UnsupportedError, match=r"^rnn: in_int8: backend='reference' was asked for"):
        network.in_int8()


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_llvm", lambda: (None, "llvmlite cannot be imported"))
    backends.why_not_native.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match="in_int8: llvmlite cannot be imported"):
            anyrnn.Recurrent("gru", D, H).in_int8()
    finally:
        backends.why_not_native.cache_clear()


def test_it_is_told() -> None:
    told = anyrnn.explain(anyrnn.Recurrent("gru", D, H).in_int8(), draw(4, 2, D))
    assert [p.name for p in told.passes] == ["inference"]
    assert told.call.endswith("4 steps of 2 samples, float32 with products of int8")


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_network(name: str) -> None:
    network, rows = small(name), 3
    rounded, x = network.in_int8(), given(network, 9, rows)
    found, exact = rounded.run(x)[0], network.run(x)[0]
    assert not np.array_equal(found, exact)
    assert near(found, exact)
    stream = rounded.stream(rows)
    assert np.array_equal([stream.step({key: array[t] for key, array in x.items()}) for t in range(9)], found)


def test_embeddings_stand_in_tables() -> None:
    layer = anyrnn.Recurrent("lstm", 8, H, seed=0)
    layers = [runtime.Embedding("e", ["x"], draw(11, 8)), runtime.Recurrent.of("r", ["e"], layer)]
    network = runtime.Network(None, layers)
    x = np.random.default_rng(0).integers(0, 11, (6, 2))
    found, exact = network.in_int8().run(x)[0], network.run(x)[0]
    assert not np.array_equal(found, exact)
    assert near(found, exact)


def test_files_have_the_integers(tmp_path: Path) -> None:
    """A quarter of the room; what is read has the integers that were written, but scales may be rounded again."""
    layer = anyrnn.Recurrent("gru", 600, 64, seed=0)
    dense = runtime.Dense("d", ["r"], draw(9, 64), draw(9))
    network = runtime.Network(600, [runtime.Recurrent.of("r", ["x"], layer), dense, runtime.LayerNorm("n", ["d"], draw(9))])
    sizes, x = [], draw(5, 3, 600)
    for k, written in enumerate((network, network.in_int8())):
        written.save(tmp_path / f"{k}.safetensors")
        sizes.append((tmp_path / f"{k}.safetensors").stat().st_size)
    assert sizes[1] < sizes[0] / 3.5
    read, exact = runtime.load(tmp_path / "1.safetensors"), network.in_int8().run(x)[0]
    assert read.int8
    assert repr(read) == repr(network.in_int8())
    for name, array in network.parameters.items():
        if array.ndim == 2:
            (integers, scales), (again, of_again) = int8.rounded(array), int8.rounded(read.parameters[name])
            assert np.array_equal(integers, again), name
            np.testing.assert_array_max_ulp(scales, of_again, 1)
    assert near(read.run(x)[0], exact)
    plain = runtime.load(tmp_path / "1.safetensors", backend="reference")
    assert not plain.int8
    assert near(plain.run(x)[0], exact)
    arrays, _ = safetensors.read(tmp_path / "1.safetensors")
    assert {name: (str(a.dtype), a.shape) for name, a in arrays.items() if "weight" in name and name != "n.weight"} == {
        "r.weight_ih_l0": ("int8", (192, 600)), "r.weight_ih_l0_scale": ("float32", (192, 2)),
        "r.weight_hh_l0": ("int8", (192, 64)), "r.weight_hh_l0_scale": ("float32", (192, 1)),
        "d.weight": ("int8", (9, 64)), "d.weight_scale": ("float32", (9, 1)),
    }  # fmt: skip


@pytest.mark.parametrize("change", ["no scales", "few scales", "scales of float64", "scales alone", "one dimension"])
def test_damaged_files(change: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    runtime.Network(7, [runtime.Dense("d", ["x"], draw(9, 7))]).in_int8().save(file)
    arrays, metadata = safetensors.read(file)
    if change == "no scales":
        arrays.pop("d.weight_scale")
    elif change == "few scales":
        arrays["d.weight_scale"] = arrays["d.weight_scale"][:8]
    elif change == "scales of float64":
        arrays["d.weight_scale"] = arrays["d.weight_scale"].astype(np.float64)
    elif change == "scales alone":
        arrays["d.weight"] = draw(9, 7)
    else:
        arrays["d.weight"] = arrays["d.weight"][0]
    safetensors.write(file, arrays, metadata)
    told = "arrays should be weight, bias, got " if change == "scales alone" else "array 'd.weight': integers"
    with pytest.raises(ValueError, match=told):
        runtime.load(file)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    small("gru").save(source)
    assert cli.main(["convert", str(source), str(target), "--int8"]) == 0
    assert runtime.load(target).int8
    assert cli.main(["inspect", str(target)]) == 0
    assert "in int8" in capsys.readouterr().out
    for more in (["c.onnx"], ["c.npz", "--to", "torch"], ["c.safetensors", "--to", "torch"]):
        assert cli.main(["convert", str(source), *more, "--int8"]) == 2
        assert "--int8 is for whole networks in .safetensors and object files" in capsys.readouterr().err


def test_the_check_is_of_the_conversion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what int8 does to results is told beside it."""
    layer = anyrnn.Recurrent("lstm", D, H, seed=0)
    source = tmp_path / "a.safetensors"
    runtime.Network(D, [runtime.Recurrent.of("rnn", ["x"], layer)]).save(source)
    assert cli.main(["convert", str(source), str(tmp_path / "b.o"), "--int8", "--check"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"products of int8 move results by 0\.\d\d% of their norm, on random input", told[2])
    assert "b.o: run here, its results are within " in told[3]
    assert told[4].endswith("within the error budget")
    assert float(told[2].split("%")[0].split()[-1]) > 0.05


def test_the_definition() -> None:
    x = np.float32([[127, -3.4, 0.6, 0], [0, 0, 0, 0], [np.nan, 1, 2, 3], [np.inf, 1, 2, 3], [1e-38, 0, 0, 0]])
    integers, scales = int8.rounded(x)
    assert integers[0].tolist() == [127, -3, 1, 0]
    assert not integers[1].any()
    assert scales[:, 0].tolist()[:2] == [1, 0]
    assert np.isnan(scales[2:4, 0]).all()
    assert scales[4, 0] == 0
    assert int8.numbers_of(integers, scales)[0].tolist() == [127, -3, 1, 0]
    wide = draw(3, 1100)
    integers, scales = int8.rounded(wide)
    assert scales.shape == (3, 3)
    most = [np.abs(wide[:, a:b]).max(-1) for a, b in ((0, 512), (512, 1024), (1024, 1100))]
    np.testing.assert_allclose(scales.T, np.array(most) / 127, rtol=1e-6)
    assert (np.abs(int8.numbers_of(integers, scales) - wide) <= np.repeat(scales, 512, 1)[:, :1100] * 0.5001).all()
