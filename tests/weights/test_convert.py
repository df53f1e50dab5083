"""Weights of one layer between all systems, and against the systems themselves."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import weights
from anyrnn.weights.table import SYSTEMS

D, H, PROJ = 3, 5, 2
FORMS = [(system, cell) for system, of_cells in SYSTEMS.items() for cell in of_cells]


def parameters(cell: str, dtype: Any = np.float32, biases: tuple[str, ...] = ("bias_ih", "bias_hh")) -> dict[str, Any]:
    sizes = {"proj": PROJ} if cell == "lstm_projected" else {}
    layer = anyrnn.Recurrent(cell, D, H, seed=0, dtype=dtype, backend="reference", **sizes)
    random = np.random.default_rng(1)
    found = {name.removesuffix("_l0"): random.normal(size=a.shape).astype(dtype) for name, a in layer.parameters.items()}
    return {name: a * (name in biases or not name.startswith("bias")) for name, a in found.items()}


def output(cell: str, given: dict[str, Any], x: Any) -> Any:
    sizes = {"proj": PROJ} if cell == "lstm_projected" else {}
    layer = anyrnn.Recurrent(cell, D, H, backend="reference", dtype=x.dtype, **sizes)
    layer.parameters = {f"{name}_l0": array for name, array in given.items()}
    return layer(x)[0]


X = np.random.default_rng(2).normal(size=(7, 2, D))


@pytest.mark.parametrize(("system", "cell"), FORMS)
def test_a_round_trip_gives_a_layer_that_computes_the_same(system: str, cell: str) -> None:
    ours = parameters(cell, np.float64)
    if system == "flux" and cell == "gru":
        ours["bias_hh"][2 * H :] = 0
    there = weights.convert(ours, cell, source="anyrnn", target=system)
    back = weights.convert(there, cell, source=system, target="anyrnn")
    assert {name: a.shape for name, a in back.items()} == {name: a.shape for name, a in ours.items()}
    np.testing.assert_allclose(output(cell, back, X), output(cell, ours, X), rtol=0, atol=1e-14)
    for name in ours:
        if not name.startswith("bias"):
            np.testing.assert_array_equal(back[name], ours[name])


@pytest.mark.parametrize("cell", sorted({cell for _, cell in FORMS}))
def test_round_trips_through_every_pair_are_equal_to_the_bit(cell: str) -> None:
    """Of networks whose biases every system can have."""
    having = [system for system, of_cells in SYSTEMS.items() if cell in of_cells]
    ours = parameters(cell, biases=("bias_ih",))
    shifting = {system for system in having if any(piece.shifts for piece in SYSTEMS[system][cell].pieces)}
    for a, b in product(having, having):
        in_a = weights.convert(ours, cell, source="anyrnn", target=a)
        in_b = weights.convert(in_a, cell, source=a, target=b)
        again = weights.convert(in_b, cell, source=b, target=a)
        assert again.keys() == in_a.keys()
        for name, array in again.items():
            assert array.dtype == np.float32
            if a == b or not {a, b} & shifting or ("bias" not in name and name != "B"):
                np.testing.assert_array_equal(array, in_a[name], f"{a} {b} {name}")


def test_a_number_without_a_place_is_refused_by_name() -> None:
    ours = parameters("gru")
    with pytest.raises(weights.InexactError, match="flux gru has no place for bias_hh n, and not all"):
        weights.convert(ours, "gru", source="anyrnn", target="flux")
    found = weights.convert(ours, "gru", source="anyrnn", target="flux", approximate=True)
    np.testing.assert_array_equal(found["b"][2 * H :], ours["bias_ih"][2 * H :])


def test_the_bias_that_tensorflow_adds_stands_by_itself() -> None:
    arrays = weights.convert(parameters("lstm"), "lstm", source="anyrnn", target="tf1")
    ours = weights.convert(arrays, "lstm", source="tf1", target="anyrnn")
    np.testing.assert_array_equal(ours["bias_hh"], np.repeat(np.float32([0, 1, 0, 0]), H))
    np.testing.assert_array_equal(weights.convert(ours, "lstm", source="anyrnn", target="tf1")["bias"], arrays["bias"])


def test_arrays_that_may_be_left_out_are_zero() -> None:
    ours = weights.convert({"W": np.ones((20, D)), "R": np.ones((20, H))}, "lstm", source="onnx", target="anyrnn")
    assert not ours["bias_ih"].any()
    assert not ours["bias_hh"].any()
    without = {name: a for name, a in parameters("gru").items() if not name.startswith("bias")}
    assert not weights.convert(without, "gru", source="anyrnn", target="keras")["bias"].any()


KERNELS = {"kernel": np.ones((D, 4 * H)), "recurrent_kernel": np.ones((H, 4 * H)), "bias": np.ones(4 * H)}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"recurrent_kernel": None}, "should be kernel, recurrent_kernel, bias; recurrent_kernel is missing"),
    "unknown": ({"biases": np.ones(3)}, "biases is unknown"),
    "another state": (
        {"recurrent_kernel": np.ones((7, 4 * H))}, r"recurrent_kernel should have shape \(5, 20\) with .*hidden 5.*got \(7, 20\)"
    ),
    "other features": ({"recurrent_kernel": np.ones((H, 4 * H + 4))}, r"recurrent_kernel should have shape .* got \(5, 24\)"),
    "gates that are not whole": ({"kernel": np.ones((D, 4 * H + 1))}, r"kernel should have shape \(3, 20\)"),
    "axes": ({"kernel": np.ones(4 * H)}, r"kernel should have 2 axes, got shape \(20,\)"),
    "a bias of another size": ({"bias": np.ones(3 * H)}, r"bias should have shape \(20,\) with .*, got \(15,\)"),
    "no features": ({"kernel": np.ones((0, 4 * H))}, "no layer has arrays of these shapes"),
    "two dtypes": ({"bias": np.ones(4 * H, np.float32)}, "should be of one floating-point dtype, got float32, float64"),
    "whole numbers": ({name: a.astype(int) for name, a in KERNELS.items()}, "one floating-point dtype, got int64"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arrays_are_refused(changes: dict[str, Any], message: str) -> None:
    arrays = {name: a for name, a in (KERNELS | changes).items() if a is not None}
    with pytest.raises(ValueError, match=message):
        weights.convert(arrays, "lstm", source="keras", target="torch")


def test_wrong_arrays_of_ours_are_refused() -> None:
    whole = parameters("gru")
    for name, array in {"bias_ih": np.ones(27), "weight_ih": np.ones((22, D)), "weight_hh": np.ones((24, H))}.items():
        for target in ("keras", "anyrnn"):
            with pytest.raises(ValueError, match=rf"anyrnn gru: {name} should have shape"):
                weights.convert(whole | {name: array.astype(np.float32)}, "gru", source="anyrnn", target=target)
    with pytest.raises(ValueError, match="anyrnn gru: weight_ih should have 2 axes"):
        weights.convert(whole | {"weight_ih": np.ones(15, np.float32)}, "gru", source="anyrnn", target="keras")


def test_a_cell_of_ones_own_goes_through_as_it_is() -> None:
    for cell in (anyrnn.cells.lstm_layernorm, anyrnn.cells.indrnn, "mgu"):
        given = parameters(cell if isinstance(cell, str) else cell.name)
        found = weights.convert(given, cell, source="anyrnn", target="anyrnn")
        assert found.keys() == given.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, given[name])
            assert not np.shares_memory(array, given[name])


def test_what_there_is() -> None:
    assert weights.systems()[:3] == ["anyrnn", "equinox", "flax"]
    assert weights.cells_of("haste") == ["gru", "lstm"]
    assert set(weights.cells_of("anyrnn")) > {"mgu", "lstm"}
    with pytest.raises(ValueError, match="unknown system 'cudnn'"):
        weights.cells_of("cudnn")


def test_what_a_system_adds_is_beside_a_second_bias() -> None:
    """Else reading would lose it."""
    for system, cell in FORMS:
        for piece in SYSTEMS[system][cell].pieces:
            assert all(any(block[0] == part and len(block) > 1 for block in piece.blocks) for part, _ in piece.shifts)


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown system 'tensorflow'; known are anyrnn, equinox, flax"):
        weights.convert(KERNELS, "lstm", source="keras", target="tensorflow")
    with pytest.raises(ValueError, match="haste has no cell 'rnn_tanh'; it has gru, lstm"):
        weights.convert(parameters("rnn_tanh"), "rnn_tanh", source="anyrnn", target="haste")
    with pytest.raises(ValueError, match="unknown cell 'lstn'"):
        weights.convert(KERNELS, "lstn", source="keras", target="torch")
    with pytest.raises(
        ValueError, match="anyrnn lstm: arrays should be weight_ih, weight_hh, bias_ih, bias_hh; weight_ih is missing"
    ):
        weights.convert(KERNELS, "lstm", source="anyrnn", target="torch")
