"""Weights between all systems: round trips, what is refused, what is left out."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import weights
from anyrnn.weights.table import NETWORKS, SYSTEMS, Flat, Named

D, H, PROJ = 3, 5, 2
FORMS = [(system, cell) for system, of_cells in SYSTEMS.items() for cell in of_cells]
TWO_BIASES = ["anyrnn", "torch", "cudnn", "jax", "mxnet", "gluon", "mxnet_fused", "keras_cudnn", "onnx"]
SHAPES: list[dict[str, Any]] = [{}, {"layers": 2}, {"layers": 2, "bidirectional": True}]


def layer_of(cell: str, inputs: int = D, layers: int | None = None, bidirectional: bool = False, dtype: Any = np.float32) -> Any:
    sizes = {"proj": PROJ} if cell == "lstm_projected" else {}
    options = {"bidirectional": bidirectional, "dtype": dtype, "backend": "reference", **sizes}
    return anyrnn.Recurrent(cell, inputs, H, layers or 1, **options)


def parameters(cell: str, inputs: int = D, dtype: Any = np.float32, **shape: Any) -> dict[str, Any]:
    """Random ones; of a cell by itself without `_l0`."""
    random = np.random.default_rng(1)
    layer = layer_of(cell, inputs, dtype=dtype, **shape)
    found = {name: random.normal(size=a.shape).astype(dtype) for name, a in layer.parameters.items()}
    return found if shape else {name.removesuffix("_l0"): a for name, a in found.items()}


def output(cell: str, given: dict[str, Any], x: Any, **shape: Any) -> Any:
    layer = layer_of(cell, x.shape[-1], dtype=x.dtype, **shape)
    layer.parameters = given if shape else {f"{name}_l0": array for name, array in given.items()}
    return layer(x)[0]


def has(system: str, shape: dict[str, Any]) -> bool:
    """Whether a system has networks of such layers."""
    kind = NETWORKS[system]
    if isinstance(kind, Named):
        return kind.both is not None or not shape.get("bidirectional")
    return bool(shape) or not isinstance(kind, Flat)


def sizes_of(system: str, cell: str, inputs: int) -> dict[str, Any]:
    """What a flat vector does not tell."""
    if not isinstance(NETWORKS[system], Flat):
        return {}
    return {"sizes": {"input": inputs, "hidden": H, **({"proj": PROJ} if cell == "lstm_projected" else {})}}


X = np.random.default_rng(2).normal(size=(7, 2, D))


@pytest.mark.parametrize("shape", [{}, {"layers": 1, "bidirectional": True}], ids=["cell", "network"])
@pytest.mark.parametrize(("system", "cell"), FORMS)
def test_a_round_trip_gives_a_layer_that_computes_the_same(system: str, cell: str, shape: dict[str, Any]) -> None:
    if not has(system, shape):
        shape = {"layers": 1}
    given = parameters(cell, dtype=np.float64, **shape)
    if system == "flux" and cell == "gru":
        given["bias_hh_l0" if shape else "bias_hh"][2 * H :] = 0
    there = weights.convert(given, cell, source="anyrnn", target=system, **shape)
    back = weights.convert(there, cell, source=system, target="anyrnn", **shape, **sizes_of(system, cell, D))
    assert {name: a.shape for name, a in back.items()} == {name: a.shape for name, a in given.items()}
    np.testing.assert_allclose(output(cell, back, X, **shape), output(cell, given, X, **shape), rtol=0, atol=1e-14)
    for name in given:
        if not name.startswith("bias"):
            np.testing.assert_array_equal(back[name], given[name])


def bits(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: (array.shape, array.tobytes()) for name, array in arrays.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("cell", sorted({cell for _, cell in FORMS}))
def test_round_trips_through_every_pair_are_equal_to_the_bit(cell: str, shape: dict[str, Any]) -> None:
    """Of networks whose biases every system can have, with numbers whose bits a sum would change; and of any between systems
    that have two. The input is as wide as the outputs, as oneDNN stacks layers of one shape alone.
    """
    inputs = (PROJ if cell == "lstm_projected" else H) * (1 + shape.get("bidirectional", False))
    having = ["anyrnn", *(s for s, of_cells in SYSTEMS.items() if cell in of_cells and has(s, shape))]
    both = parameters(cell, inputs, **shape)
    for array in both.values():
        array.reshape(-1)[:4] = -0.0, np.nan, -np.inf, 1e-42
    one = {name: np.zeros_like(array) if name.startswith("bias_hh") else array for name, array in both.items()}
    for given, systems in ((one, having), (both, [s for s in having if s in TWO_BIASES])):
        made = {s: weights.convert(given, cell, source="anyrnn", target=s, forget_bias=0.0, **shape) for s in systems}
        for a, b in product(systems, systems):
            options = {**shape, "forget_bias": 0.0}
            in_b = weights.convert(made[a], cell, source=a, target=b, **options, **sizes_of(a, cell, inputs))
            assert bits(in_b) == bits(made[b]), f"{a} to {b}"


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


def test_biases_that_are_left_out_stay_left_out_where_they_may() -> None:
    onnx = {"W": np.ones((20, D)), "R": np.ones((20, H))}
    assert list(weights.read("onnx", onnx, "lstm")) == ["weight_ih", "weight_hh"]
    assert list(weights.convert(onnx, "lstm", source="onnx", target="keras")) == ["kernel", "recurrent_kernel"]
    of_mxnet = weights.convert(onnx, "lstm", source="onnx", target="mxnet")
    assert of_mxnet["i2h_bias"].shape == of_mxnet["h2h_bias"].shape == (20,)
    assert not of_mxnet["i2h_bias"].any()
    without = {name: a for name, a in parameters("gru").items() if name != "bias_hh"}
    np.testing.assert_array_equal(weights.write("keras", without, "gru")["bias"][1], 0)
    assert not weights.write("torch", without, "gru")["bias_hh"].any(), "which torch has with the other"
    whole = parameters("lstm", layers=2, bidirectional=True)
    bare = {name: a for name, a in whole.items() if not name.startswith("bias")}
    assert list(weights.write("onnx", bare, "lstm", 2, True)) == ["0/W", "1/W", "0/R", "1/R"]


def test_peepholes_that_are_left_out_are_zero() -> None:
    given = {"W": np.ones((20, D)), "R": np.ones((20, H))}
    found = weights.convert(given, "lstm_peephole", source="onnx", target="tf1")
    np.testing.assert_array_equal(found["w_f_diag"], np.zeros(H))


def test_a_group_of_biases_is_there_as_a_whole() -> None:
    given = parameters("lstm", layers=2)
    del given["bias_hh_l1"]
    with pytest.raises(ValueError, match=r"torch lstm: arrays should be .*; bias_hh_l1 is missing"):
        weights.convert(given, "lstm", source="torch", target="keras", layers=2)


def test_trees_are_as_good_as_joined_names() -> None:
    layers = weights.convert(parameters("lstm", layers=2), "lstm", source="anyrnn", target="flax", layers=2)
    tree: dict[str, Any] = {}
    for name, array in layers.items():
        *branches, leaf = name.split("/")
        here = tree
        for branch in branches:
            here = here.setdefault(branch, {})
        here[leaf] = array
    assert tree["layers_1"]["cell"]["hf"]["bias"].shape == (H,)
    assert bits(weights.read("flax", tree, "lstm", layers=2)) == bits(weights.read("flax", layers, "lstm", layers=2))
    cells = [{"weight_ih": np.ones((20, n)), "weight_hh": np.ones((20, H)), "bias": None} for n in (D, H)]
    assert list(weights.read("equinox", cells, "lstm", layers=2)) == [
        "weight_ih_l0", "weight_hh_l0", "weight_ih_l1", "weight_hh_l1"
    ]  # fmt: skip


def test_what_a_vector_does_not_tell_is_asked_for() -> None:
    (vector,) = weights.write("jax", parameters("lstm", layers=1), "lstm", 1).values()
    with pytest.raises(ValueError, match="jax lstm: a vector does not tell sizes; give sizes with input"):
        weights.read("jax", {"weights": vector}, "lstm", 1, sizes={"hidden": H})
    with pytest.raises(ValueError, match=r"weights should have shape \(240,\) with input 5, hidden 5, got \(200,\)"):
        weights.read("jax", {"weights": vector}, "lstm", 1, sizes={"input": 5, "hidden": H})
    with pytest.raises(ValueError, match="jax lstm: sizes should be hidden, input, got proj"):
        weights.read("jax", {"weights": vector}, "lstm", 1, sizes={"proj": 5, "hidden": H})
    with pytest.raises(TypeError, match="jax lstm: size input should be of type int, got: float"):
        weights.read("jax", {"weights": vector}, "lstm", 1, sizes={"input": 3.0, "hidden": H})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="jax has one vector for a whole network: give the number of its layers"):
        weights.read("jax", {"weights": vector}, "lstm")


def test_known_sizes_must_be_those_of_the_arrays() -> None:
    with pytest.raises(ValueError, match=r"kernel should have shape \(4, 20\) with input 4, hidden 5, got \(3, 20\)"):
        weights.read("keras", KERNELS, "lstm", sizes={"input": 4})


def test_networks_that_a_system_does_not_have_are_refused() -> None:
    two_ways = parameters("lstm", layers=1, bidirectional=True)
    with pytest.raises(ValueError, match="flux has no layers of two directions; convert each direction by itself"):
        weights.write("flux", two_ways, "lstm", 1, True)
    with pytest.raises(ValueError, match=r"onednn lstm: weights_layer: layers and directions of shapes .* cannot be stacked"):
        weights.write("onednn", parameters("lstm", layers=2), "lstm", 2)
    with pytest.raises(ValueError, match="bidirectional is said of a network: give the number of its layers too"):
        weights.write("keras", parameters("lstm"), "lstm", bidirectional=True)
    with pytest.raises(ValueError, match="anyrnn lstm: these are too few arrays for 1000000000 layers"):
        weights.write("keras", parameters("lstm"), "lstm", 10**9)
    there = weights.write("onednn", parameters("lstm", H, layers=2), "lstm", 2)
    with pytest.raises(ValueError, match="onednn lstm: these are too few arrays for 3 layers"):
        weights.read("onednn", there, "lstm", 3)
    there = weights.write("jax", parameters("lstm", H, layers=2), "lstm", 2)
    with pytest.raises(ValueError, match="jax lstm: these are too few arrays for 1000000 layers"):
        weights.read("jax", there, "lstm", 10**6, sizes={"input": H, "hidden": H})
    with pytest.raises(ValueError, match="layers must be greater than zero"):
        weights.write("keras", parameters("lstm"), "lstm", 0)
    with pytest.raises(ValueError, match=r"arrays should be weight_ih_l0, weight_hh_l0, .* and 4 more; weight_ih_l2 is missing"):
        weights.write("keras", parameters("lstm", layers=2), "lstm", 4)


def test_numbers_without_a_place_in_a_network_are_named() -> None:
    with pytest.raises(weights.InexactError, match="flux gru has no place for bias_hh_l0 n, bias_hh_l1 n, and not all"):
        weights.write("flux", parameters("gru", layers=2), "gru", 2)


def test_the_forget_bias_of_tensorflow_is_an_argument() -> None:
    given = weights.write("tf1", parameters("lstm"), "lstm", forget_bias=0.25)
    ours = weights.read("tf1", given, "lstm", forget_bias=0.25)
    np.testing.assert_array_equal(ours["bias_hh"], np.repeat(np.float32([0, 0.25, 0, 0]), H))
    other = weights.write("tf1", parameters("lstm"), "lstm", forget_bias=1.0)
    np.testing.assert_allclose(given["bias"][2 * H : 3 * H], other["bias"][2 * H : 3 * H] + 0.75, atol=1e-6)
    np.testing.assert_array_equal(given["bias"][: 2 * H], other["bias"][: 2 * H])


def test_a_users_cell_is_not_taken_for_one_of_ours_by_its_name() -> None:
    @anyrnn.cell
    def gru(x, h):  # type: ignore[no-untyped-def]
        h = anyrnn.tanh(anyrnn.affine("h", x, h))
        return h, anyrnn.State(h=h)

    with pytest.raises(ValueError, match="keras has no cell 'gru'"):
        weights.write("keras", {"weight_ih": np.ones((H, D))}, gru)


def test_the_layout_of_cudnn_under_the_shapes_of_keras() -> None:
    """Its matrix [H, D] is read in the order of memory as [D, H]."""
    given = parameters("gru")
    found = weights.write("keras_cudnn", given, "gru")
    reset = given["weight_ih"][:H]
    np.testing.assert_array_equal(found["kernel"][:, H : 2 * H], reset.reshape(D, H))
    np.testing.assert_array_equal(found["recurrent_kernel"][:, H : 2 * H], given["weight_hh"][:H])


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


@pytest.mark.parametrize("system", ["torch", "keras"])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (1, True), (2, False), (2, True)])
def test_a_networks_arrays_ask_for_its_layers(system: str, layers: int, bidirectional: bool) -> None:
    made = anyrnn.Recurrent("lstm", D, H, layers, bidirectional=bidirectional).parameters
    arrays = weights.write(system, made, "lstm", layers, bidirectional, approximate=True)
    if (system, layers, bidirectional) == ("keras", 1, False):  # which has a cell's names
        weights.read(system, arrays, "lstm")
        return
    with pytest.raises(ValueError, match=f"{system} lstm: these are the arrays of a network: give layers="):
        weights.read(system, arrays, "lstm")


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
    assert weights.systems()[:3] == ["anyrnn", "cudnn", "equinox"]
    assert weights.cells_of("haste") == ["gru", "lstm"]
    assert set(weights.cells_of("anyrnn")) > {"mgu", "lstm"}
    with pytest.raises(ValueError, match="unknown system 'tensorflow'"):
        weights.cells_of("tensorflow")


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown system 'tensorflow'; known are anyrnn, cudnn, equinox"):
        weights.convert(KERNELS, "lstm", source="keras", target="tensorflow")
    with pytest.raises(ValueError, match="haste has no cell 'rnn_tanh'; it has gru, lstm"):
        weights.convert(parameters("rnn_tanh"), "rnn_tanh", source="anyrnn", target="haste")
    with pytest.raises(ValueError, match="unknown cell 'lstn'"):
        weights.convert(KERNELS, "lstn", source="keras", target="torch")
    with pytest.raises(
        ValueError, match="anyrnn lstm: arrays should be weight_ih, weight_hh, bias_ih, bias_hh; weight_ih is missing"
    ):
        weights.convert(KERNELS, "lstm", source="anyrnn", target="torch")
