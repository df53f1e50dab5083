"""Whole models, against onnxruntime: those of torch's exporters (`golden/make_import.py`), and others made by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import anyrnn.backends
from anyrnn import runtime
from anyrnn.onnx import reading, reading_layers
from anyrnn.runtime.layers import Call
from tests.onnx.import_models import Node, model, onnxruntime_gives, weights

GOLDEN = Path(__file__).parent / "golden"
T, N, D, H = 6, 3, 4, 5
X = {"x": ("float32", ["T", "N", D])}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels have tests of their own, and take a while to compile."""
    monkeypatch.setattr(anyrnn.backends, "why_not_native", lambda *_: "a test")


def given(made: Any, seed: int = 0, **sizes: int) -> dict[str, Any]:
    """Inputs for a model: integers are classes, or lengths where they are called so."""
    random, found = np.random.default_rng(seed), {}
    for value in made.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        most = sizes.get("T", 10) + 1 if value.name == "lengths" else 10
        whole = dtype.kind == "i"
        found[value.name] = (random.integers(1, most, shape) if whole else random.normal(size=shape)).astype(dtype)
    return found


def assert_same(made: Any, *sizes: dict[str, int], tolerance: float = 1e-5) -> reading.Imported:
    found = reading.read(made.SerializeToString())
    for k, size in enumerate(sizes or ({"T": T, "N": N}, {"T": 1, "N": 1}, {"T": 2, "N": 7})):
        inputs = given(made, k, **size)
        wanted, ours = onnxruntime_gives(made, inputs), found.run(inputs)
        assert list(ours) == list(wanted)
        for name, array in wanted.items():
            assert ours[name].shape == array.shape
            assert ours[name].dtype == array.dtype
            np.testing.assert_allclose(ours[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
    return found


def after(
    op: str, *nodes: Node, outputs: tuple[str, ...] = ("y",), opset: int = 17, direction: str = "forward", **constants: Any
) -> Any:
    """A recurrent node (`all` [T, S, N, H], `last` [S, N, H], of one direction `steps` [T, N, H]) and others behind it."""
    directions = 2 if direction == "bidirectional" else 1
    of_node = weights(op, directions, D, H)
    first: list[Node] = [(op, ["x", "W", "R", "B"], ["all", "last"], {"direction": direction, "hidden_size": H})]
    if directions == 1:
        squeezed = ["all", "of_directions"] if opset >= 13 else ["all"]
        first.append(("Squeeze", squeezed, ["steps"], {} if opset >= 13 else {"axes": [1]}))
    return model([*first, *nodes], X, outputs, {**of_node, "of_directions": np.array([1]), **constants}, opset)


def numbers(*shape: int, seed: int = 9) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("import_*.onnx")), ids=lambda path: path.stem)
def test_a_model_of_an_exporter_of_torch(path: Path) -> None:
    assert_same(onnx.load(path), {"steps": 7, "batch": 2}, {"steps": 4, "batch": 3})


def test_there_are_models_of_both_exporters() -> None:
    names = {path.stem for path in GOLDEN.glob("import_*.onnx")}
    assert len(names) == 8
    assert {name for name in names if f"{name}_dynamo" not in names} == {name for name in names if name.endswith("_dynamo")}


# functions


@pytest.mark.parametrize(
    "op", ["Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "Exp", "Elu", "LeakyRelu", "HardSigmoid", "Abs", "Neg", "Erf"]
)
def test_a_function_of_features(op: str) -> None:
    assert_same(after("LSTM", (op, ["steps"], ["y"], {})))
    assert_same(after("RNN", (op, ["last"], ["y"], {}), direction="bidirectional"))


@pytest.mark.parametrize(
    ("op", "more"), [("Elu", {"alpha": 0.3}), ("LeakyRelu", {"alpha": 0.2}), ("HardSigmoid", {"alpha": 0.4, "beta": 0.1})]
)
def test_functions_have_numbers(op: str, more: dict[str, float]) -> None:
    assert_same(after("GRU", (op, ["steps"], ["y"], more)))


@pytest.mark.parametrize("op", ["Log", "Sqrt", "Reciprocal"])
def test_a_function_of_positive_numbers(op: str) -> None:
    assert_same(after("GRU", ("Exp", ["steps"], ["e"], {}), (op, ["e"], ["y"], {})))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_both_forms_of_gelu(approximate: str) -> None:
    assert_same(after("GRU", ("Gelu", ["steps"], ["y"], {"approximate": approximate}), opset=20))


@pytest.mark.parametrize("bounds", [("low", "high"), ("low", ""), ("", "high")])
def test_a_clip(bounds: tuple[str, str]) -> None:
    assert_same(after("RNN", ("Clip", ["steps", *bounds], ["y"], {}), low=np.float32(-0.2), high=np.float32(0.3)))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("opset", "axis"), [(11, 2), (13, -1)])
def test_shares_of_classes(op: str, opset: int, axis: int) -> None:
    assert_same(after("GRU", (op, ["steps"], ["y"], {"axis": axis}), opset=opset))


# products and norms


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_product_of_each_step(bias: bool, swapped: bool) -> None:
    nodes: list[Node] = [("MatMul", ["steps", "M"], ["product" if bias else "y"], {})]
    if bias:
        nodes.append(("Add", ["b", "product"] if swapped else ["product", "b"], ["y"], {}))
    found = assert_same(after("LSTM", *nodes, M=numbers(H, 2), b=numbers(2)))
    assert [type(layer) for layer in found.network.layers] == [runtime.Recurrent, runtime.Dense]


@pytest.mark.parametrize("bias", [None, numbers(2), numbers(1, 2), numbers(1), numbers()])
@pytest.mark.parametrize("more", [{}, {"alpha": 0.5, "beta": 2.0}])
def test_a_product_of_whole_samples(bias: Any, more: dict[str, float]) -> None:
    nodes: list[Node] = [("Flatten", ["last"], ["rows"], {"axis": 2})]
    nodes.append(("Gemm", ["rows", "M", *([] if bias is None else ["b"])], ["y"], {"transB": 1, **more}))
    assert_same(after("GRU", *nodes, M=numbers(2, H), **({} if bias is None else {"b": bias})))


def test_steps_and_samples_may_be_one_axis_for_a_product() -> None:
    nodes: list[Node] = [
        ("Reshape", ["steps", "flat"], ["rows"], {}),
        ("Gemm", ["rows", "M", "b"], ["product"], {}),
        ("Shape", ["steps"], ["shape"], {}),
        ("Slice", ["shape", "zero", "two"], ["sides"], {}),
        ("Concat", ["sides", "three"], ["target"], {"axis": 0}),
        ("Reshape", ["product", "target"], ["y"], {}),
    ]
    constants = {"flat": np.array([-1, H]), "zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}
    assert_same(after("GRU", *nodes, M=numbers(H, 3), b=numbers(3), **constants))


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_norm(bias: bool) -> None:
    given_arrays = ["steps", "gain", *(["shift"] if bias else [])]
    assert_same(
        after("LSTM", ("LayerNormalization", given_arrays, ["y"], {"epsilon": 1e-3}), gain=numbers(H), shift=numbers(H, seed=1))
    )


@pytest.mark.parametrize("channels", ["second", "last"])
def test_a_batch_norm_is_of_its_channels(channels: str) -> None:
    norm = ["gain", "shift", "mean", "variance"]
    arrays = {name: numbers(H, seed=k) for k, name in enumerate(norm)} | {"variance": numbers(H) ** 2}
    turned: list[Node] = [("Transpose", ["steps"], ["t"], {"perm": [1, 2, 0]})]
    if channels == "last":
        turned = [("Squeeze", ["last", "zero"], ["t"], {})]
    made = after("GRU", *turned, ("BatchNormalization", ["t", *norm], ["y"], {}), zero=np.array([0]), **arrays)
    assert_same(made)


@pytest.mark.parametrize("channels", [5, 1])
def test_a_batch_norm_before_anything_says_what_the_steps_are(channels: int) -> None:
    """As in front of a network of torch: [N, channels, T]."""
    norm = ["gain", "shift", "mean", "variance"]
    arrays = {name: numbers(channels, seed=k) for k, name in enumerate(norm)} | {"variance": numbers(channels) ** 2}
    nodes: list[Node] = [
        ("BatchNormalization", ["x", *norm], ["t"], {}),
        ("Transpose", ["t"], ["turned"], {"perm": [2, 0, 1]}),
        ("GRU", ["turned", "W", "R"], ["y"], {"hidden_size": H}),
    ]
    weights = {"W": numbers(1, 3 * H, channels), "R": numbers(1, 3 * H, H, seed=1)}
    made = model(nodes, {"x": ("float32", ["N", channels, "T"])}, ["y"], arrays | weights)
    x = numbers(2, channels, 7)
    np.testing.assert_allclose(reading.read(made).run({"x": x})["y"], onnxruntime_gives(made, {"x": x})["y"], atol=1e-5)


def test_a_layer_norm_of_many_nodes() -> None:
    """As exporters have it that know no node for it."""
    nodes: list[Node] = [
        ("ReduceMean", ["steps"], ["mean"], {"axes": [-1]}),
        ("Sub", ["steps", "mean"], ["centred"], {}),
        ("Pow", ["centred", "two"], ["squares"], {}),
        ("ReduceMean", ["squares"], ["variance"], {"axes": [-1]}),
        ("Add", ["variance", "epsilon"], ["shifted"], {}),
        ("Sqrt", ["shifted"], ["deviation"], {}),
        ("Div", ["centred", "deviation"], ["scaled"], {}),
        ("Mul", ["scaled", "gain"], ["gained"], {}),
        ("Add", ["gained", "shift"], ["y"], {}),
    ]
    constants = {"two": np.float32(2), "epsilon": np.float32(1e-3), "gain": numbers(H), "shift": numbers(H, seed=1)}
    assert_same(after("GRU", *nodes, **constants))


@pytest.mark.parametrize("op", ["Sub", "Div"])
def test_a_single_feature_may_come_first(op: str) -> None:
    nodes: list[Node] = [("MatMul", ["steps", "M"], ["one"], {}), ("Exp", ["steps"], ["e"], {}), (op, ["one", "e"], ["y"], {})]
    assert_same(after("GRU", *nodes, M=numbers(H, 1)))


def test_the_sum_of_steps_by_their_number_is_the_mean() -> None:
    nodes: list[Node] = [
        ("ReduceSum", ["steps", "zero"], ["total"], {"keepdims": 0}),
        ("Shape", ["steps"], ["count"], {"start": 0, "end": 1}),
        ("Cast", ["count"], ["number"], {"to": onnx.TensorProto.FLOAT}),
        ("Div", ["total", "number"], ["y"], {}),
    ]
    found = assert_same(after("GRU", *nodes, zero=np.array([0])))
    assert [layer.kind for layer in found.network.layers] == ["recurrent", "mean"]


# arithmetic


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max"])
@pytest.mark.parametrize("shape", [(), (1,), (H,), (1, 1, H), (1, 1, 1, H)])
@pytest.mark.parametrize("swapped", [False, True])
def test_arithmetic_with_constants(op: str, shape: tuple[int, ...], swapped: bool) -> None:
    names = ["k", "e"] if swapped else ["e", "k"]
    assert_same(after("GRU", ("Exp", ["steps"], ["e"], {}), (op, names, ["y"], {}), k=numbers(*shape) + 3))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Min", "Max"])
def test_arithmetic_of_two_layers(op: str) -> None:
    assert_same(after("GRU", ("Exp", ["steps"], ["e"], {}), (op, ["steps", "e"], ["y"], {})))


def test_a_single_feature_goes_to_all() -> None:
    nodes: list[Node] = [("MatMul", ["steps", "M"], ["gate"], {}), ("Mul", ["steps", "gate"], ["y"], {})]
    assert_same(after("GRU", *nodes, M=numbers(H, 1)))


def test_what_is_given_may_be_scaled_first() -> None:
    nodes: list[Node] = [
        ("Sub", ["x", "mean"], ["centred"], {}),
        ("Div", ["centred", "scale"], ["z"], {}),
        ("RNN", ["z", "W", "R"], ["y"], {"hidden_size": H}),
    ]
    constants = weights("RNN", 1, D, H, bias=False) | {"mean": numbers(D), "scale": numbers(D) + 4}
    assert_same(model(nodes, X, ["y"], constants))


# steps


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceSum"])
@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize("first", [True, False])
def test_what_is_over_all_steps(op: str, keeps: int, first: bool) -> None:
    axes = {"axes": [0 if first else 1]}
    turned: list[Node] = [("Identity" if first else "Transpose", ["steps"], ["t"], {} if first else {"perm": [1, 0, 2]})]
    reduce: Node = (op, ["t"], ["y"], {"keepdims": keeps, **axes})
    nodes: list[Node] = [*turned, reduce]
    if op == "ReduceSum":
        nodes = [*turned, (op, ["t", "axes"], ["y"], {"keepdims": keeps})]
    assert_same(after("GRU", *nodes, axes=np.array(axes["axes"])))


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_the_last_step_of_a_sequence(direction: str) -> None:
    nodes: list[Node] = [
        ("Gather", ["steps", "minus"], ["a"], {}),
        ("Slice", ["steps", "minuses", "far", "zero"], ["b"], {}),
        ("Relu", ["steps"], ["r"], {}),
        ("Gather", ["r", "minus"], ["c"], {}),
    ]
    constants = {"minus": np.array(-1), "minuses": np.array([-1]), "far": np.array([2**63 - 1]), "zero": np.array([0])}
    assert_same(after("GRU", *nodes, outputs=("a", "b", "c"), direction=direction, **constants))


def test_where_each_direction_ends() -> None:
    """The last step of one, the first of the other: the last states, computed with."""
    nodes: list[Node] = [
        ("Transpose", ["all"], ["t"], {"perm": [2, 0, 1, 3]}),
        ("Reshape", ["t", "joined"], ["both"], {}),
        ("Split", ["both"], ["one", "other"], {"axis": 2}),
        ("Gather", ["one", "minus"], ["end"], {"axis": 1}),
        ("Gather", ["other", "zero"], ["begin"], {"axis": 1}),
        ("Concat", ["end", "begin"], ["ends"], {"axis": 1}),
        ("Gemm", ["ends", "M"], ["y"], {}),
    ]
    constants = {"joined": np.array([0, 0, -1]), "minus": np.array(-1), "zero": np.array(0), "M": numbers(2 * H, 3)}
    found = assert_same(after("LSTM", *nodes, direction="bidirectional", **constants))
    assert [layer.kind for layer in found.network.layers] == ["recurrent", "dense"]


def test_lengths_are_those_of_the_node_alone() -> None:
    """What follows it computes with the zeros behind each sample, as onnxruntime does."""
    nodes: list[Node] = [
        ("GRU", ["x", "W", "R", "B", "lengths"], ["all", "last"], {"hidden_size": H, "direction": "bidirectional"}),
        ("Transpose", ["all"], ["t"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["t", "joined"], ["both"], {}),
        ("MatMul", ["both", "M"], ["product"], {}),
        ("Add", ["product", "b"], ["y"], {}),
        ("Gather", ["y", "minus"], ["end"], {}),
        ("Gather", ["all", "minus"], ["behind"], {}),
        ("ReduceMean", ["y"], ["mean"], {"axes": [0]}),
        ("Transpose", ["last"], ["states"], {"perm": [1, 0, 2]}),
        ("Flatten", ["states"], ["flat"], {}),
        ("Gemm", ["flat", "M"], ["z"], {}),
    ]
    constants = weights("GRU", 2, D, H) | {"joined": np.array([0, 0, -1]), "minus": np.array(-1)}
    inputs = X | {"lengths": ("int32", ["N"])}
    assert_same(
        model(nodes, inputs, ["y", "last", "end", "behind", "mean", "z"], constants | {"M": numbers(2 * H, 3), "b": numbers(3)})
    )


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_last_states_are_computed_with_whatever_a_call_gives(direction: str) -> None:
    """First states and lengths."""
    directions = 2 if direction == "bidirectional" else 1
    nodes: list[Node] = [
        ("LSTM", ["x", "W", "R", "", "lengths", "h", "c"], ["all", "h_n"], {"hidden_size": H, "direction": direction}),
        ("Relu", ["h_n"], ["y"], {}),
    ]
    states = {name: ("float32", [directions, "N", H]) for name in "hc"}
    inputs = X | {"lengths": ("int32", ["N"])} | states
    assert_same(model(nodes, inputs, ["y", "all"], weights("LSTM", directions, D, H, bias=False)))


def with_masks(first: bool, *more: Node, outputs: tuple[str, ...] = ("y", "h_n")) -> Any:
    """A GRU whose outputs are zero behind each sample's length, and whose samples without steps keep their first states."""
    states = ["h"] if first else [""]
    nodes: list[Node] = [
        ("Shape", ["x"], ["count"], {"start": 0, "end": 1}),
        ("Squeeze", ["count"], ["steps"], {}),
        ("Range", ["zero", "steps", "one"], ["numbers"], {}),
        ("Reshape", ["numbers", "column"], ["number"], {}),
        ("Cast", ["lengths"], ["wide"], {"to": onnx.TensorProto.INT64}),
        ("Reshape", ["wide", "rows"], ["length"], {}),
        ("Less", ["number", "length"], ["there"], {}),
        ("Less", ["zero", "length"], ["any"], {}),
        ("GRU", ["x", "W", "R", "B", "lengths", *states], ["all", "last"], {"hidden_size": H, "direction": "bidirectional"}),
        ("Transpose", ["all"], ["t"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["t", "joined"], ["both"], {}),
        ("Where", ["there", "both", "nothing"], ["y"], {}),
        ("Where", ["any", "last", "h" if first else "nothing"], ["h_n"], {}),
    ]
    constants = weights("GRU", 2, D, H) | {"zero": np.array(0), "one": np.array(1), "column": np.array([-1, 1, 1])}
    constants |= {"rows": np.array([-1, 1]), "joined": np.array([0, 0, -1]), "nothing": np.zeros((), np.float32)}
    states_given = {"h": ("float32", [2, "N", H])} if first else {}
    inputs = X | {"lengths": ("int32", ["N"])} | states_given
    return model([*nodes, *more], inputs, outputs, constants)


@pytest.mark.parametrize("first", [True, False])
def test_masks_by_lengths_are_what_the_node_does_anyway(first: bool) -> None:
    made = with_masks(first)
    found = reading.read(made)
    inputs = given(made, T=T, N=N) | {"lengths": np.array([4, 0, T], np.int32)}
    for name, array in onnxruntime_gives(made, inputs).items():
        np.testing.assert_allclose(found.run(inputs)[name], array, rtol=1e-5, atol=1e-6)
    assert [layer.kind for layer in found.network.layers] == ["recurrent"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (("Where", ["there", "both", "x"], ["z"], {}), "an axis is 10 and 4"),
        (("Where", ["there", "both", "one"], ["z"], {}), "it should choose between sequences and zeros"),
        (("Where", ["any", "last", "nothing"], ["z"], {}), "it should choose between last states and the first ones of 'all'"),
        (("Where", ["any", "both", "nothing"], ["z"], {}), "it should choose between last and first states"),
        (("Where", ["there", "last", "nothing"], ["z"], {}), "an axis is 2 and the steps"),
        (("Where", ["any", "x", "nothing"], ["z"], {}), "it should choose of what recurrent nodes give with these lengths"),
        (("Where", ["x", "both", "nothing"], ["z"], {}), "it should choose by which steps samples have"),
        (("Relu", ["h_n"], ["z"], {}), "what a state is where a sample has no steps can be an output of the model"),
        (("Not", ["there"], ["z"], {}), "nodes of this kind are not read"),
        (("Less", ["one", "length"], ["z"], {}), "it should compare lengths with 0"),
        (("Less", ["length", "number"], ["z"], {}), "it should compare with lengths that are an input of the model"),
        (("Range", ["zero", "steps", "steps"], ["z"], {}), "it should be the numbers of the steps"),
    ],
)  # fmt: skip
def test_masks_choose_nothing_else(node: Node, message: str) -> None:
    made = with_masks(True, node, outputs=("z",))
    with pytest.raises(ValueError, match=f"{node[0]} node 'the_{node[0].lower()}_13': {message}"):
        reading.read(made)


@pytest.mark.parametrize("of", ["x", "r"])
def test_a_sequence_may_be_masked_anywhere(of: str) -> None:
    more: list[Node] = [("Exp", ["both"], ["r"], {}), ("Where", ["there", of, "nothing"], ["z"], {}), ("Relu", ["z"], ["s"], {})]
    made = with_masks(True, *more, outputs=("s",))
    inputs = given(made, T=T, N=N) | {"lengths": np.array([4, 0, T], np.int32)}
    found = reading.read(made).run(inputs)
    np.testing.assert_allclose(found["s"], onnxruntime_gives(made, inputs)["s"], rtol=1e-5, atol=1e-6)
    assert (found["s"] != 0).any()
    assert not found["s"][:, 1].any()


@pytest.mark.parametrize("name", ["there", "any", "numbers"])
def test_masks_are_no_outputs(name: str) -> None:
    with pytest.raises(ValueError, match=f"output '{name}': "):
        reading.read(with_masks(True, outputs=(name,)))


def test_nodes_may_have_lengths_or_none() -> None:
    nodes: list[Node] = [
        ("GRU", ["x", "W", "R", "B", "lengths"], ["all"], {"hidden_size": H, "direction": "reverse"}),
        ("Squeeze", ["all", "one"], ["steps"], {}),
        ("GRU", ["steps", "W2", "R2", "", ""], ["y", "y_h"], {"hidden_size": H, "direction": "reverse"}),
    ]
    upper = {f"{name}2": array for name, array in weights("GRU", 1, H, H, bias=False).items()}
    constants = weights("GRU", 1, D, H) | upper | {"one": np.array([1])}
    assert_same(model(nodes, X | {"lengths": ("int32", ["N"])}, ["y", "y_h"], constants))


# inputs


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_words_have_embeddings(batch_first: bool, dtype: str) -> None:
    nodes: list[Node] = [
        ("Gather", ["table", "words"], ["e"], {}),
        ("Transpose" if batch_first else "Identity", ["e"], ["x"], {"perm": [1, 0, 2]} if batch_first else {}),
        ("LSTM", ["x", "W", "R"], ["y", "h", "c"], {"hidden_size": H}),
    ]
    inputs = {"words": (dtype, ["N", "T"] if batch_first else ["T", "N"])}
    constants = weights("LSTM", 1, D, H, bias=False) | {"table": numbers(12, D)}
    assert_same(model(nodes, inputs, ["y", "h", "c"], constants))


def test_one_step_of_a_decoder() -> None:
    """Without an axis for steps: [N, D] in and out, and states by layer in one array."""
    nodes: list[Node] = [
        ("Unsqueeze", ["x", "zero"], ["s"], {}),
        ("Split", ["h", "ones"], ["h0", "h1"], {"axis": 0}),
        ("GRU", ["s", "W", "R", "B", "", "h0"], ["a", "a_h"], {"hidden_size": H}),
        ("Squeeze", ["a", "one"], ["b"], {}),
        ("GRU", ["b", "W2", "R2", "B2", "", "h1"], ["c", "c_h"], {"hidden_size": H}),
        ("Squeeze", ["c", "both"], ["d"], {}),
        ("Concat", ["a_h", "c_h"], ["h_n"], {"axis": 0}),
        ("Gemm", ["d", "M"], ["y"], {}),
    ]
    upper = {f"{name}2": array for name, array in weights("GRU", 1, H, H, seed=4).items()}
    constants = weights("GRU", 1, D, H) | upper | {"zero": np.array([0]), "one": np.array([1]), "both": np.array([0, 1])}
    inputs = {"x": ("float32", ["N", D]), "h": ("float32", [2, "N", H])}
    made = model(nodes, inputs, ["y", "h_n"], constants | {"ones": np.array([1, 1]), "M": numbers(H, 2)})
    found = assert_same(made, {"N": 1}, {"N": 4})
    assert found.network.stream(4).step(numbers(4, D)).shape == (4, 2)


def test_a_sequence_without_samples() -> None:
    nodes: list[Node] = [
        ("Unsqueeze", ["x", "one"], ["s"], {}),
        ("LSTM", ["s", "W", "R", "B"], ["all"], {"hidden_size": H, "direction": "bidirectional"}),
        ("Squeeze", ["all", "two"], ["a"], {}),
        ("Reshape", ["a", "joined"], ["y"], {}),
    ]
    constants = weights("LSTM", 2, D, H) | {"one": np.array([1]), "two": np.array([2]), "joined": np.array([0, -1])}
    assert_same(model(nodes, {"x": ("float32", ["T", D])}, ["y"], constants), {"T": 5}, {"T": 1})


def test_several_sequences_are_given_by_name() -> None:
    nodes: list[Node] = [
        ("Gather", ["table", "words"], ["e"], {}),
        ("Concat", ["x", "e", "x"], ["both"], {"axis": -1}),
        ("GRU", ["both", "W", "R", "B"], ["y"], {"hidden_size": H}),
    ]
    constants = weights("GRU", 1, 2 * D + 2, H) | {"table": numbers(12, 2)}
    assert_same(model(nodes, X | {"words": ("int64", ["T", "N"])}, ["y"], constants))


@pytest.mark.parametrize("batch_first", [True, False])
def test_states_may_be_given_with_samples_first(batch_first: bool) -> None:
    """Both states in one input, [N, 2, H] or [2, N, H]."""
    turned: Node = ("Transpose", ["hc"], ["t"], {"perm": [1, 0, 2]}) if batch_first else ("Identity", ["hc"], ["t"], {})
    nodes: list[Node] = [
        turned,
        ("Slice", ["t", "zero", "one"], ["h"], {}),
        ("Slice", ["t", "one", "two"], ["c"], {}),
        ("LSTM", ["x", "W", "R", "B", "", "h", "c"], ["y", "h_n", "c_n"], {"hidden_size": H}),
        ("Concat", ["h_n", "c_n"], ["states"], {"axis": 2}),
    ]
    shape = ["N", 2, H] if batch_first else [2, "N", H]
    constants = weights("LSTM", 1, D, H) | {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    assert_same(model(nodes, X | {"hc": ("float32", shape)}, ["y", "states"], constants))


# features that move


def test_features_are_cut_turned_and_joined() -> None:
    nodes: list[Node] = [
        ("Transpose", ["all"], ["a"], {"perm": [2, 3, 1, 0]}),  # [N, H, S, T]
        ("Slice", ["a", "from", "to", "axes", "by"], ["b"], {}),
        ("Reshape", ["b", "shape"], ["c"], {}),  # [N, 4, T]
        ("Transpose", ["c"], ["d"], {"perm": [0, 2, 1]}),
        ("Gather", ["d", "order"], ["e"], {"axis": 2}),
        ("MatMul", ["e", "M"], ["y"], {}),
    ]
    constants = {"from": np.array([-1, 0]), "to": np.array([0, 2]), "axes": np.array([1, 2]), "by": np.array([-2, 1])}
    constants |= {"shape": np.array([0, 4, -1]), "order": np.array([3, 0, 0, -2]), "M": numbers(4, 3)}
    found = assert_same(after("GRU", *nodes, outputs=("y", "d"), direction="bidirectional", **constants))
    assert "formula" in [layer.kind for layer in found.network.layers]


def test_a_slice_to_a_size_that_calls_tell_takes_all() -> None:
    nodes: list[Node] = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Slice", ["sizes", "zero", "one"], ["count"], {}),
        ("Slice", ["all", "zero", "count", "zero"], ["y"], {}),
    ]
    assert_same(after("GRU", *nodes, zero=np.array([0]), one=np.array([1])))


def test_directions_are_added() -> None:
    nodes: list[Node] = [("Split", ["all"], ["a", "b"], {"axis": 1}), ("Add", ["a", "b"], ["y"], {})]
    assert_same(after("GRU", *nodes, direction="bidirectional"))


def test_what_is_read_twice_is_computed_once() -> None:
    nodes: list[Node] = [
        ("Relu", ["steps"], ["r"], {}),
        ("Concat", ["steps", "r"], ["a"], {"axis": 2}),
        ("Concat", ["steps", "r"], ["b"], {"axis": 2}),
        ("MatMul", ["a", "M"], ["y"], {}),
        ("MatMul", ["b", "M"], ["z"], {}),
    ]
    found = assert_same(after("GRU", *nodes, outputs=("y", "z"), M=numbers(2 * H, 2)))
    assert [layer.kind for layer in found.network.layers].count("concatenate") == 1


@pytest.mark.parametrize("opset", [12, 13])
def test_older_operators_have_attributes_for_inputs(opset: int) -> None:
    old = opset < 13
    nodes: list[Node] = [
        ("Split", ["steps"] if old else ["steps", "sizes"], ["a", "b"], {"axis": 2, **({"split": [2, 3]} if old else {})}),
        ("Unsqueeze", ["b"] if old else ["b", "zero"], ["c"], {"axes": [0]} if old else {}),
        ("ReduceMean", ["a"], ["y"], {"axes": [0], "keepdims": 0}),
        ("Dropout", ["c"], ["z"], {}),
    ]
    assert_same(after("GRU", *nodes, outputs=("y", "z"), opset=opset, sizes=np.array([2, 3]), zero=np.array([0])))


# what comes of it


def test_a_model_of_steps_is_called_step_after_step() -> None:
    found = reading.read(GOLDEN / "import_tagger.onnx")
    x, h, c = (
        np.random.default_rng(k).normal(size=shape).astype(np.float32)
        for k, shape in enumerate([(9, 2, 3), (2, 2, 4), (2, 2, 4)])
    )
    stream = found.network.stream(2)
    for layer, states in enumerate(stream.states.values()):
        states["h"][...], states["c"][...] = h[layer], c[layer]
    wanted = found.run({"x": x, "h": h, "c": c})["y"]
    np.testing.assert_array_equal(np.stack([stream.step(step) for step in x]), wanted)


def test_a_model_that_needs_whole_sequences_says_so() -> None:
    found = reading.read(GOLDEN / "import_classifier.onnx")
    with pytest.raises(ValueError, match="cannot be called step after step"):
        found.network.stream()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("import_*.onnx")), ids=lambda path: path.stem)
def test_a_model_can_be_read_in_float64(path: Path) -> None:
    found, inputs = reading.read(path), given(onnx.load(path), steps=7, batch=2)
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in inputs.items()}
    exact, wanted = found.in_float64().run(wide), onnxruntime_gives(onnx.load(path), inputs)
    for name, array in found.run(inputs).items():
        assert exact[name].dtype == np.float64
        np.testing.assert_allclose(exact[name], wanted[name], rtol=1e-5, atol=1e-6)
        assert bool((exact[name] != array).any())


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("import_*.onnx")), ids=lambda path: path.stem)
def test_what_is_read_can_be_saved(path: Path, tmp_path: Path) -> None:
    network = reading.read(path).network
    network.save(tmp_path / "saved.safetensors")
    random = np.random.default_rng(0)
    (of_input,) = network.inputs
    sides = (5, 2)
    x = random.integers(0, 11, sides) if of_input.size is None else random.normal(size=(*sides, of_input.size)).astype(np.float32)
    np.testing.assert_array_equal(runtime.load(tmp_path / "saved.safetensors").run(x)[0], network.run(x)[0])


def test_the_error_function_is_that_of_the_library() -> None:
    x = np.linspace(-7, 7, 2001)
    formula = reading_layers.of_one("erf", "x", len(x), reading_layers.erf, "float64")
    np.testing.assert_allclose(formula.run(Call(), x[None]), [[math.erf(v) for v in x]], atol=1e-13)


def test_native_kernels_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("anyrnn.backends.llvm.target.OPTIMISATION", 0)
    assert_same(onnx.load(GOLDEN / "import_tagger.onnx"), {"steps": 7, "batch": 2})


def test_calls_are_checked() -> None:
    found = reading.read(GOLDEN / "import_tagger.onnx")
    x, states = numbers(7, 2, 3), {"h": numbers(2, 2, 4), "c": numbers(2, 2, 4)}
    with pytest.raises(ValueError, match="expected the inputs x, h, c, got x"):
        found.run({"x": x})
    with pytest.raises(TypeError, match=r"expected the inputs by name, {'x': .., 'h': .., 'c': ..}, got ndarray"):
        found.run(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="x should be an array of float32, got float64"):
        found.run({"x": x.astype(float), **states})
    with pytest.raises(ValueError, match=r"x should have shape \[steps, batch, 3\], got \[7, 2, 4\]"):
        found.run({"x": numbers(7, 2, 4), **states})
    with pytest.raises(ValueError, match="h: axis 1 of input 'h' should have the size 3, as elsewhere, got 2"):
        found.run({"x": numbers(7, 3, 3), **states})
    with pytest.raises(TypeError, match="x should be a NumPy array, got a list"):
        found.run({"x": x.tolist(), **states})
