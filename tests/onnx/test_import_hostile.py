"""Files that are no models, or bad ones: each is refused in words, quickly, and in little memory."""

from __future__ import annotations

import copy
import random
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import anyrnn.backends
from anyrnn.errors import MissingExtraError
from anyrnn.onnx import reading
from tests.onnx.import_models import Node, model, onnxruntime_gives, weights

GOLDEN = Path(__file__).parent / "golden"
PATHS = sorted(GOLDEN.glob("import_*.onnx"))
D, H = 3, 4
X = {"x": ("float32", ["T", "N", D])}
GRU: Node = ("GRU", ["x", "W", "R"], ["all"], {"hidden_size": H})
WEIGHTS = weights("GRU", 1, D, H, bias=False)
FAR = 2**62


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyrnn.backends, "why_not_native", lambda *_: "a test")


def gru(*nodes: Node, output: str = "y", **constants: Any) -> Any:
    return model([GRU, *nodes], X, [output], WEIGHTS | constants)


def assert_refused(made: Any, message: str) -> None:
    """With few bytes of memory beside the file's own."""
    content = made if isinstance(made, (bytes, Path)) else made.SerializeToString()
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    onnx.defs.onnx_opset_version()  # what is loaded once is not counted
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message):
            reading.read(content)
        assert tracemalloc.get_traced_memory()[1] < 40e6 + 50 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"\x00", b"PK\x03\x04", b"ONNX model", b"\x08\x07" * 50, bytes(range(256))])
def test_what_is_no_model_is_said_to_be_none(content: bytes) -> None:
    assert_refused(content, "this is no ONNX model")


def test_a_file_that_ends_too_soon_is_refused() -> None:
    content = PATHS[0].read_bytes()
    for size in range(0, len(content), 97):
        with pytest.raises(ValueError, match=r"this is no ONNX model|: "):
            reading.read(content[:size])


def test_a_file_that_is_not_there_is_the_system_s_to_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        reading.read(tmp_path / "missing.onnx")


def test_without_the_package_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"ONNX files are read with the package onnx: pip install \"anyrnn\[onnx\]\""):
        reading.read(b"")


# graphs


def test_nodes_that_read_each_other_are_refused() -> None:
    loop: list[Node] = [("Relu", ["b"], ["a"], {}), ("Relu", ["a"], ["b"], {})]
    assert_refused(gru(*loop, output="b"), r"Relu node 'the_relu_1': nothing before it makes its input 'b'")


def test_nodes_out_of_order_are_refused() -> None:
    assert_refused(model([("Relu", ["all"], ["y"], {}), GRU], X, ["y"], WEIGHTS), "nothing before it makes its input 'all'")


def test_names_are_made_once() -> None:
    assert_refused(gru(("Relu", ["all"], ["all"], {}), output="all"), "its output 'all' is already that of GRU node 'the_gru_0'")
    assert_refused(gru(("Relu", ["all"], ["W"], {}), output="all"), "its output 'W' is already that of an initialiser")
    assert_refused(gru(("Relu", ["all"], ["x"], {}), output="all"), "its output 'x' is already that of an input")
    made = gru(output="all")
    made.graph.initializer.append(made.graph.initializer[0])
    assert_refused(made, "initialiser 'W': its name should be there once")
    made = gru(output="all")
    made.graph.input.append(made.graph.input[0])
    assert_refused(made, "two inputs have one name")


def test_an_output_that_nothing_makes_is_named() -> None:
    assert_refused(gru(output="other"), "output 'other': no node makes it")
    assert_refused(model([GRU], X, [], WEIGHTS), "it has no graph with outputs")


@pytest.mark.parametrize("op", ["If", "Loop", "MaxPool", "Attention"])
def test_a_node_of_another_kind_is_named(op: str) -> None:
    inside = helper.make_graph([], "inside", [], [])
    more = {"If": {"then_branch": inside, "else_branch": inside}, "Loop": {"body": inside}}.get(op, {})
    message = f"{op} node 'the_{op.lower()}_1': nodes of this kind are not read; those that are: Abs, Add, "
    assert_refused(gru((op, ["all"], ["y"], more)), message)


def test_a_scan_is_one_of_ours() -> None:
    inside = helper.make_graph([], "inside", [], [])
    message = "Scan node 'the_scan_1': a Scan is not read; of a cell that was exported from here keep the .safetensors"
    assert_refused(gru(("Scan", ["all"], ["y"], {"body": inside})), message)


def test_operators_of_others_are_named() -> None:
    made = gru(("Relu", ["all"], ["y"], {}))
    made.graph.node[1].domain = "com.example"
    made.graph.node[1].name = ""
    assert_refused(made, "com.example.Relu node number 1: nodes of this kind are not read")


@pytest.mark.parametrize("version", [0, -1, 999, 2**62])
def test_versions_that_are_not_known_are_refused(version: int) -> None:
    made = gru(output="all")
    made.opset_import[0].version = version
    assert_refused(made, rf"import one version of ONNX's operators, from 1 to \d+, it imports \[{version}\]")
    del made.opset_import[:]
    assert_refused(made, r"it imports \[\]")


def test_attributes_that_nobody_reads_are_refused() -> None:
    assert_refused(
        gru(("Relu", ["all"], ["y"], {"slope": 1.0})), "Relu node 'the_relu_1': it has no attribute 'slope'; it has none"
    )
    assert_refused(gru(("Relu", ["all", "W"], ["y"], {})), "expected 1 to 1 inputs and up to 1 outputs, got 2 inputs")
    assert_refused(gru(("Gelu", ["all"], ["y"], {})), "version 17 of ONNX's operators has none of this name")
    nodes: list[Node] = [("Squeeze", ["all"], ["rows"], {"axes": [1]}), ("Transpose", ["rows"], ["t"], {"perm": [1, 2, 0]})]
    norm: Node = ("BatchNormalization", ["t", *"abcd"], ["y"], {"spatial": 0})
    made = model([GRU, *nodes, norm], X, ["y"], WEIGHTS | {name: np.ones(H, np.float32) for name in "abcd"}, 7)
    assert_refused(made, "BatchNormalization node 'the_batchnormalization_3': attribute 'spatial' is not read")
    made = gru(("Flatten", ["all"], ["y"], {"axis": 1}))
    made.graph.node[1].attribute.append(made.graph.node[1].attribute[0])
    assert_refused(made, "attribute 'axis' is there twice")


def test_outputs_that_are_not_computed_are_refused() -> None:
    nodes: list[Node] = [("Dropout", ["all"], ["y", "mask"], {})]
    assert_refused(model([GRU, *nodes], X, ["y", "mask"], WEIGHTS), "its output 'mask' is not among those that are read")


def test_there_are_not_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_NODES", 2)
    assert_refused(gru(*[("Identity", ["all"], [f"y{k}"], {}) for k in range(2)], output="y0"), "expected at most 2 nodes, got 3")


def test_long_chains_are_read_in_a_moment() -> None:
    chain: list[Node] = [("Concat", [f"y{k}", "all"], [f"y{k + 1}"], {"axis": 3}) for k in range(200)]
    made = gru(("Identity", ["all"], ["y0"], {}), *chain, output="y200")
    assert reading.read(made).run({"x": np.zeros((2, 1, D), np.float32)})["y200"].shape == (2, 1, 1, 201 * H)


# tensors


def tensor(made: Any, name: str = "W") -> Any:
    return next(t for t in made.graph.initializer if t.name == name)


@pytest.mark.parametrize("dims", [[1, 12, FAR], [-1, 12, D], [1, 12, 2**31], [0, 2**40], [], [2**40] * 40, [1] * 99])
def test_a_shape_that_the_numbers_do_not_have_is_refused(dims: list[int]) -> None:
    made = gru(output="all")
    tensor(made).ClearField("dims")
    tensor(made).dims.extend(dims)
    assert_refused(made, "initialiser 'W'")


@pytest.mark.parametrize("kind", ["float_data", "raw_data"])
def test_missing_numbers_are_counted(kind: str) -> None:
    made = gru(output="all")
    array = WEIGHTS["W"]
    short = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=array.shape)
    setattr(short, kind, array.tobytes()[:-1]) if kind == "raw_data" else short.float_data.extend(array.reshape(-1)[:-1].tolist())
    tensor(made).CopyFrom(short)
    assert_refused(made, "are 144 bytes, it has 143" if kind == "raw_data" else "its shape is of 36 numbers, it has 35")


@pytest.mark.parametrize("kind", [0, TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.INT4, 99])
def test_other_element_types_are_refused(kind: int) -> None:
    made = gru(output="all")
    tensor(made).data_type = kind
    assert_refused(made, f"initialiser 'W': expected numbers of float32, .*, got ONNX's element type {kind}")


def test_sparse_tensors_and_sequences_are_refused() -> None:
    made = gru(output="all")
    sparse = made.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "S"))
    assert_refused(made, "sparse initialiser 'S'")
    made = gru(output="all")
    made.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(made.graph.input[0].type))
    assert_refused(made, "input 'x': expected a tensor, got sequence_type")


# tensors outside of the file


def external(folder: Path, place: str, **entries: str) -> Path:
    """A model whose W is elsewhere; and a file `beside` that has it."""
    folder.mkdir()
    (folder / "beside").write_bytes(b"1234" + WEIGHTS["W"].tobytes())
    made = gru(output="all")
    outside = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=WEIGHTS["W"].shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": place, "offset": "4", "length": "144", **entries}.items():
        outside.external_data.add(key=key, value=value)
    tensor(made).CopyFrom(outside)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_numbers_may_be_in_a_file_beside_the_model(tmp_path: Path) -> None:
    given = {"x": np.random.default_rng(0).normal(size=(5, 2, D)).astype(np.float32)}
    found = reading.read(external(tmp_path / "here", "beside")).run(given)
    np.testing.assert_array_equal(found["all"], reading.read(gru(output="all")).run(given)["all"])


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "sub/beside", "..", ".", "", "missing", "link", "C:\\beside"])
def test_numbers_are_nowhere_else(tmp_path: Path, place: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(200))
    path = external(tmp_path / "here", place)
    (path.parent / "link").symlink_to(tmp_path / "secret")
    assert_refused(path, "initialiser 'W': there is no file .* beside that of the model")


def test_numbers_in_another_file_need_the_model_s_path(tmp_path: Path) -> None:
    content = external(tmp_path / "here", "beside").read_bytes()
    assert_refused(content, "initialiser 'W': its numbers are in another file: give the model's path")


@pytest.mark.parametrize(
    "entries",
    [{"offset": "5"}, {"offset": "-1"}, {"length": "143"}, {"length": str(2**62)}, {"offset": "x"}, {"offset": "9" * 5000}],
)
def test_places_in_another_file_are_checked(tmp_path: Path, entries: dict[str, str]) -> None:
    assert_refused(
        external(tmp_path / "here", "beside", **entries), "initialiser 'W': (it should be 144 bytes|its offset and length)"
    )


# what a small file makes much of


@pytest.mark.parametrize("shape", [[FAR], [2**20, 2**20], [2**31 - 1, 1], [-1]])
def test_constants_are_not_filled_without_need(shape: list[int]) -> None:
    nodes: list[Node] = [("ConstantOfShape", ["shape"], ["c"], {}), ("Add", ["all", "c"], ["y"], {})]
    assert_refused(gru(*nodes, shape=np.array(shape)), "ConstantOfShape node 'the_constantofshape_1'")
    nodes = [("Expand", ["one", "shape"], ["c"], {}), ("Add", ["all", "c"], ["y"], {})]
    assert_refused(gru(*nodes, shape=np.array(shape), one=np.float32(1)), "Expand node 'the_expand_1'")


def test_constants_do_not_double_without_end() -> None:
    chain: list[Node] = [("Concat", [f"c{k}", f"c{k}"], [f"c{k + 1}"], {"axis": 0}) for k in range(60)]
    assert_refused(gru(*chain, output="all", c0=np.ones(8, np.float32)), "Concat node .* makes more of its numbers")
    chain = [("Gather", [f"c{k}", "many"], [f"c{k + 1}"], {}) for k in range(60)]
    many = np.zeros((4, 4), np.int64)
    assert_refused(
        gru(*chain, output="all", c0=np.ones(8, np.float32), many=many), "Gather node .*(makes more of its numbers|axes)"
    )
    chain = [("Mul", [f"c{k}", f"d{k}"], [f"c{k + 1}"], {}) for k in range(9)]
    sides = {f"d{k}": np.ones([8] + [1] * k, np.float32) for k in range(9)}
    assert_refused(gru(*chain, output="all", c0=np.float32(1), **sides), "Mul node .* makes more of its numbers")


def test_features_do_not_double_without_end() -> None:
    chain: list[Node] = [("Concat", [f"y{k}", f"y{k}"], [f"y{k + 1}"], {"axis": 3}) for k in range(60)]
    made = gru(("Identity", ["all"], ["y0"], {}), *chain, ("Relu", ["y60"], ["y"], {}))
    assert_refused(made, "Concat node .* makes more of its numbers|expected at most 1048576 features")


@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_sizes_do_not_grow_without_end(op: str) -> None:
    """Of the steps, and of a number beside them."""
    chain: list[Node] = [(op, [f"s{k}", f"s{k}"], [f"s{k + 1}"], {}) for k in range(80)]
    assert_refused(gru(("Shape", ["all"], ["s0"], {}), *chain, output="all"), f"{op} node")
    cut: list[Node] = [
        ("Shape", ["all"], ["shape"], {}),
        ("Slice", ["shape", "one", "two"], ["n"], {}),
        ("Concat", ["n", "big"], ["s"], {"axis": 0}),
    ]
    take: list[Node] = [
        ("Slice", ["s", "one", "two"], ["s0"], {}),
        *[("Mul", [f"s{k}", f"s{k}"], [f"s{k + 1}"], {}) for k in range(80)],
    ]
    constants = {"one": np.array([1]), "two": np.array([2]), "big": np.array([3])}
    made = gru(
        ("Shape", ["x"], ["t"], {}), *cut, ("Concat", ["t", "s"], ["mixed"], {"axis": 0}), *take, output="all", **constants
    )
    assert_refused(made, "Mul node .*(beyond 64 bits|product)")


def test_weights_are_not_copied_without_end() -> None:
    nodes: list[Node] = [("GRU", ["x", "W2", "R2"], [f"y{k}"], {"hidden_size": 200}) for k in range(500)]
    many = {f"{name}2": array for name, array in weights("GRU", 1, D, 200, bias=False).items()}
    assert_refused(gru(*nodes, output="all", **many), "GRU node .* makes more of its numbers than a model of its size can need")


def test_there_are_not_too_many_layers() -> None:
    chain: list[Node] = [("Relu", [f"y{k}"], [f"y{k + 1}"], {}) for k in range(1200)]
    assert_refused(
        gru(("Identity", ["all"], ["y0"], {}), *chain, output="all"), "Relu node 'the_relu_1001': expected at most 1000 layers"
    )


@pytest.mark.parametrize("dim", [FAR, 2**39, 2**21, 0])
def test_inputs_have_as_many_features_as_something_reads(dim: int) -> None:
    made = gru(output="all")
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_value = dim
    assert_refused(made, "input 'x'|GRU node 'the_gru_0'")


def test_inputs_have_shapes() -> None:
    assert_refused(model([GRU], {"x": ("float32", None)}, ["all"], WEIGHTS), "input 'x': its shape should be given")
    assert_refused(
        model([GRU], {"x": ("float32", [None] * 20)}, ["all"], WEIGHTS), "input 'x': its shape should be given, of at most 8"
    )
    made = gru(output="all")
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -4
    assert_refused(made, "input 'x': its axes should have sizes from 0, got -4")
    made = gru(output="all")
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    assert_refused(made, "input 'x': expected float32, float64, int32, int64, got element type 8")


# what cannot be said with steps, samples and features

STEPS: list[Node] = [("Shape", ["all"], ["s"], {}), ("Gather", ["s", "zero"], ["t"], {}), ("Cast", ["t"], ["f"], {"to": 1})]
"""The number of steps."""


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([("Gather", ["all", "two"], ["y"], {})], "of the steps one can be taken, the last or the first, not number 2"),
        ([("Gather", ["all", "both"], ["y"], {})], "of the steps one can be taken, the last or the first, not 2"),
        ([("Slice", ["all", "none", "ends", "none", "back"], ["y"], {})], "not those from 0 to 2 by -1"),
        ([("Gather", ["all", "two"], ["y"], {"axis": 2})], "axis 2 should be one of features, it is the samples"),
        ([("Reshape", ["all", "flat"], ["y"], {})], "is no multiple of 3"),
        ([("Reshape", ["all", "odd"], ["y"], {})], "steps and samples would be mixed with features"),
        ([("ReduceMean", ["all"], ["y"], {"axes": [2]})], "it should be over the steps or all features, it is over"),
        ([("ReduceMean", ["all"], ["y"], {})], "it should be over the steps or all features, it is over"),
        ([("ReduceMax", ["all"], ["y"], {"axes": [3]})], "it should be over the steps or all features, it is over"),
        ([("Pow", ["all", "three"], ["y"], {})], "the exponent should be 2.0 or 0.5"),
        ([("Max", ["all", "all", "all"], ["y"], {})], "expected two inputs, got 3"),
        ([*STEPS, ("Div", ["all", "f"], ["y"], {})], "of all sizes a value can be divided by the number of steps"),
        ([("Softmax", ["all"], ["y"], {"axis": 0})], "it should be over the features, the last axis"),
        ([("MatMul", ["W", "all"], ["y"], {})], "an input that should be constant depends on what the model is given"),
        ([("Relu", ["W"], ["y"], {})], "it computes with constants alone"),
        ([("Add", ["all", "wrong"], ["y"], {})], "an axis is 4 and 7"),
        ([("Cast", ["all"], ["y"], {"to": TensorProto.INT64})], "it would make int64 of float32 while the model runs"),
        ([("Concat", ["all", "W"], ["y"], {"axis": 3})], "what is joined should be all constant, or all given"),
        ([("Transpose", ["all"], ["t"], {"perm": [2, 1, 0, 3]}), ("Add", ["all", "t"], ["y"], {})], "is read as"),
        ([("Squeeze", ["all", "none"], ["y"], {})], "axis 0 should have the size 1 to be left out, it has the steps"),
        ([("Dropout", ["all", "half", "yes"], ["y"], {})], "it drops at random: export the model for inference"),
    ],
)  # fmt: skip
def test_what_no_layer_does_is_named(nodes: list[Node], message: str) -> None:
    constants = {"zero": np.array(0), "two": np.array(2), "both": np.array([0, -1]), "none": np.array([0]), "ends": np.array([2])}
    constants |= {
        "three": np.float32(3),
        "odd": np.array([2, -1]),
        "back": np.array([-1]),
        "flat": np.array([3, -1]),
        "wrong": np.ones(7, np.float32),
        "half": np.float32(0.5),
    }
    last = nodes[-1][0]
    assert_refused(gru(*nodes, yes=np.array(True), **constants), f"{last} node 'the_{last.lower()}_{len(nodes)}': .*({message})")


def test_first_steps_are_those_of_directions_that_go_backwards() -> None:
    made = gru(("Gather", ["all", "zero"], ["y"], {}), zero=np.array(0))
    assert_refused(made, "output 'y': a first step is read of directions alone that go backwards, not that of all")


def test_a_cell_state_is_not_computed_with() -> None:
    lstm: Node = ("LSTM", ["x", "W", "R"], ["all", "h", "c"], {"hidden_size": H})
    made = model([lstm, ("Relu", ["c"], ["y"], {})], X, ["y"], weights("LSTM", 1, D, H, bias=False))
    assert_refused(made, "Relu node 'the_relu_1': the last state c of 'all' can be an output of the model, not be computed with")


def test_first_states_that_are_computed_are_refused() -> None:
    upper: Node = ("GRU", ["x", "W", "R", "", "", "h"], ["y"], {"hidden_size": H})
    made = model([("GRU", ["x", "W", "R"], ["", "h"], {"hidden_size": H}), upper], X, ["y"], WEIGHTS)
    assert_refused(made, "GRU node 'the_gru_1': initial_h is computed by other nodes")


def test_a_model_without_recurrent_nodes_does_not_say_what_its_axes_are() -> None:
    assert_refused(
        model([("Relu", ["x"], ["y"], {})], X, ["y"]), "output 'y': cannot tell which of its axes are steps and samples"
    )


def test_dtypes_do_not_mix() -> None:
    made = gru(output="all")
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    assert_refused(made, "input 'x' should be float32, as the weights are, got float64")


# files that were changed at random

NUMBERS = (-1, 0, 1, 2, 3, 7, -(2**63), 2**63 - 1, 2**31, 2**40, 65536, -5)


def changed_bytes(content: bytes, r: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(r.choice([1, 1, 2, 5, 20])):
        place, kind = r.randrange(len(made) + 1), r.randrange(4)
        if kind == 0:
            made[place : place + 1] = bytes([r.randrange(256)])
        elif kind == 1:
            del made[place : place + r.choice([1, 2, 8, 100])]
        elif kind == 2:
            made[place:place] = r.randbytes(r.choice([1, 2, 8]))
        elif r.random() < 0.1:
            del made[place:]
    return bytes(made)


def changed_model(made: Any, r: random.Random) -> Any:
    made = copy.deepcopy(made)
    graph = made.graph
    names = [name for node in graph.node for name in node.output]
    names += [value.name for value in (*graph.input, *graph.initializer)] + ["", "nowhere"]
    for _ in range(r.choice([1, 1, 2, 3, 6])):
        node = r.choice(graph.node) if graph.node else graph.node.add()
        change, one = r.randrange(12), r.choice(graph.initializer)
        if change == 0 and node.input:
            node.input[r.randrange(len(node.input))] = r.choice(names)
        elif change == 1:
            node.op_type = r.choice([*reading.NODES, "If", "Loop"])
        elif change == 2 and node.attribute:
            _change_attribute(r.choice(node.attribute), r)
        elif change == 3 and one.dims:
            one.dims[r.randrange(len(one.dims))] = r.choice(NUMBERS)
        elif change == 4:
            one.data_type = r.randrange(25)
        elif change == 5 and (dims := r.choice(graph.input).type.tensor_type.shape.dim):
            r.choice(dims).dim_value = r.choice(NUMBERS)
        elif change == 6:
            graph.node.remove(node)
        elif change == 7:
            other = copy.deepcopy(node)
            graph.node.remove(node)
            graph.node.insert(r.randrange(len(graph.node) + 1), other)
        elif change == 8 and node.output:
            node.output[r.randrange(len(node.output))] = r.choice(names)
        elif change == 9:
            array = np.zeros(r.choice([(), (1,), (2, 0), (0,), (3, 5), (1, 1, 1)]), r.choice([np.float32, np.int64, np.float64]))
            one.CopyFrom(numpy_helper.from_array(array, one.name))
        elif change == 10:
            node.input.append(r.choice(names))
        elif change == 11:
            name, inputs = f"new{r.randrange(10**6)}", [r.choice(names) for _ in range(r.randrange(1, 4))]
            graph.node.append(helper.make_node(r.choice(list(reading.NODES)), inputs, [name]))
            r.choice(graph.output).name = r.choice([name, *names])
    return made


def _change_attribute(attribute: Any, r: random.Random) -> None:
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = r.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.INTS:
        attribute.ints[:] = [r.choice(NUMBERS) for _ in range(r.randrange(5))]
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = r.choice([0.0, -1.0, float("nan"), float("inf"), 1e30])
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = r.choice([b"reverse", b"bidirectional", b"\xff", b""])
    elif attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == TensorProto.INT64:
        shape = r.choice([(), (0,), (1,), (3,)])
        attribute.t.CopyFrom(
            numpy_helper.from_array(np.array([r.choice(NUMBERS) for _ in range(3)])[: int(np.prod(shape))].reshape(shape))
        )


def changed(seed: int, count: int) -> Iterator[Any]:
    r = random.Random(seed)
    contents = [path.read_bytes() for path in PATHS]
    models = [onnx.ModelProto.FromString(content) for content in contents]
    for _ in range(count):
        which = r.randrange(len(PATHS))
        yield changed_bytes(contents[which], r) if r.random() < 0.3 else changed_model(models[which], r)


@pytest.mark.parametrize(("seed", "count"), [(1, 1000), pytest.param(2, 30_000, marks=pytest.mark.slow)])
def test_whatever_is_in_a_file_it_is_read_or_refused_in_words(seed: int, count: int) -> None:
    found = sum(_is_read(made) for made in changed(seed, count))
    assert count > found > count // 50


def _is_read(made: Any) -> bool:
    try:
        reading.read(made)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("seed", "count"), [(3, 300), pytest.param(4, 4000, marks=pytest.mark.slow)])
def test_whatever_is_read_computes_what_onnxruntime_does(seed: int, count: int) -> None:
    assert sum(_computes_the_same(made) for made in changed(seed, count) if not isinstance(made, bytes)) > count // 50


def _computes_the_same(made: Any) -> bool:
    """False where one of both refuses a model."""
    try:
        found = reading.read(made)
        given = _given(found)
        wanted = onnxruntime_gives(made, given)
    except (ValueError, MemoryError):
        return False
    except Exception as error:
        if type(error).__module__.startswith(onnxruntime.__name__):
            return False
        raise
    ours = found.run(given)
    for name, array in wanted.items():
        assert ours[name].shape == array.shape
        np.testing.assert_allclose(ours[name], array, rtol=1e-3, atol=1e-4)
    return True


def _given(found: reading.Imported) -> dict[str, Any]:
    r = np.random.default_rng(0)
    given = {}
    for port in found.inputs:
        shape = [dim if isinstance(dim, int) else {"steps": 5}.get(str(dim), 2) for dim in port.dims or ()]
        if np.prod(shape, dtype=float) > 1e5:
            raise ValueError("too large to compute with")
        given[port.name] = (r.integers(0, 10, shape) if port.dtype.startswith("int") else r.normal(size=shape)).astype(port.dtype)
    return given


def test_an_output_without_a_name_is_none() -> None:
    made = model([("GRU", ["x", "W", "R"], ["", "last"], {"hidden_size": H})], X, ["last"], WEIGHTS)
    made.graph.output[0].name = ""
    assert_refused(made, "output '': no node makes it")


def test_sizes_of_a_call_are_no_output() -> None:
    assert_refused(gru(("Shape", ["all"], ["y"], {})), "output 'y': it is made of the sizes of what a call is given")


@pytest.mark.parametrize(("dividend", "divisor"), [(-7, 2), (7, -2), (-7, -2), (6, -2), (0, -3)])
def test_whole_numbers_are_divided_towards_zero(dividend: int, divisor: int) -> None:
    given = {"a": np.array([dividend], np.int64), "b": np.array([divisor], np.int64)}
    made = model([GRU, ("Div", ["a", "b"], ["y"], {})], X, ["y", "all"], WEIGHTS | given)
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    x = np.ones((2, 1, D), np.float32)
    expected = onnxruntime_gives(made, {"x": x})["y"]
    assert np.array_equal(reading.read(made).run({"x": x})["y"], expected)


def test_an_axis_that_is_repeated_is_not_another_one() -> None:
    further = {"p": ("float32", [1, "N", H])}
    nodes: list[Node] = [GRU, ("Squeeze", ["all", "one"], ["s"], {}), ("Add", ["s", "p"], ["y"], {})]
    made = model(nodes, X | further, ["y"], WEIGHTS | {"one": np.array([1])})
    assert_refused(made, "of which the 1 is repeated")


def test_a_squeeze_of_whatever_is_one_depends_on_the_call() -> None:
    assert_refused(gru(("Squeeze", ["all"], ["y"], {})), "axes should be given, as it depends on a call whether")


def test_a_size_divided_by_a_fraction_is_no_mean() -> None:
    """The sum of the steps by two thirds of their number."""
    nodes: list[Node] = [
        ("Squeeze", ["all", "one"], ["s"], {}),
        ("ReduceSum", ["s", "zero"], ["sum"], {"keepdims": 0}),
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "first"], ["steps"], {"axis": 0}),
        ("Cast", ["steps"], ["count"], {"to": TensorProto.FLOAT}),
        ("Div", ["count", "part"], ["some"], {}),
        ("Div", ["sum", "some"], ["y"], {}),
    ]
    constants = {"one": np.array([1]), "zero": np.array([0]), "first": np.array(0), "part": np.float32(1.5)}
    assert_refused(gru(*nodes, **constants), "divided by 1.5, which is no whole number")


@pytest.mark.parametrize("layer", [("Relu", ["x"], ["a"], {}), ("MatMul", ["x", "m"], ["a"], {})], ids=["relu", "matmul"])
def test_features_that_are_told_after_a_layer_was_made_are_refused(layer: Node) -> None:
    nodes: list[Node] = [layer, ("Gather", ["a", "one"], ["c"], {"axis": 1}), ("Tanh", ["c"], ["y"], {})]
    made = model(nodes, {"x": ("float32", [1, 4, 3])}, ["y"], {"one": np.array(1), "m": np.ones((3, 5), np.float32)})
    assert_refused(made, "is read as features, after a layer was made of it")


@pytest.mark.parametrize(
    "nodes",
    [
        [("Relu", ["x"], ["a"], {}), ("LeakyRelu", ["a"], ["b"], {})],
        [("Add", ["x", "x"], ["a"], {}), ("Clip", ["a", "", "top"], ["b"], {})],
    ],
    ids=str,
)
def test_formulas_of_what_has_no_weights_yet(nodes: list[Node]) -> None:
    made = model([*nodes, ("GRU", ["b", "W", "R"], ["y"], {"hidden_size": H})], X, ["y"], WEIGHTS | {"top": np.float32(0.5)})
    x = np.linspace(-1, 1, 2 * D, dtype=np.float32).reshape(2, 1, D)
    np.testing.assert_allclose(reading.read(made).run({"x": x})["y"], onnxruntime_gives(made, {"x": x})["y"], atol=1e-6)


def test_features_are_not_put_into_many_values_without_end() -> None:
    wide = 1 << 18
    copies: list[Node] = [("Identity", ["x"], [f"c{k}"], {}) for k in range(100)]
    nodes: list[Node] = [("Slice", ["x", "a", "b", "axis"], ["y"], {}), *copies]
    constants = {"a": np.array([0]), "b": np.array([1]), "axis": np.array([2])}
    made = model(
        [*nodes, *[("Relu", [f"c{k}"], [f"d{k}"], {}) for k in range(100)]], {"x": ("float32", [1, 1, wide])}, ["y"], constants
    )
    assert_refused(made, "makes more of its numbers")


def test_masked_arrays_are_refused() -> None:
    read = reading.read(gru(output="all"))
    with pytest.raises(TypeError, match=r"x.*masked"):
        read.run({"x": np.ma.masked_array(np.ones((2, 1, D), np.float32))})


def test_no_samples_with_first_states() -> None:
    made = model([("GRU", ["x", "W", "R", "", "", "h0"], ["", "y"], {"hidden_size": H})],
                 {"x": ("float32", ["T", "N", D]), "h0": ("float32", [1, "N", H])}, ["y"], WEIGHTS)  # fmt: skip
    given = {"x": np.zeros((2, 0, D), np.float32), "h0": np.zeros((1, 0, H), np.float32)}
    assert reading.read(made).run(given)["y"].shape == (1, 0, H)


def test_a_slice_of_features_before_the_last_axis_is_told() -> None:
    nodes: list[Node] = [
        ("Slice", ["x", "zero", "two", "axis"], ["s"], {}),
        ("Relu", ["s"], ["r"], {}),
        ("Reshape", ["r", "shape"], ["f"], {}),
        ("GRU", ["f", "W", "R"], ["y"], {"hidden_size": H}),
    ]
    constants = {"zero": np.array([0]), "two": np.array([2]), "axis": np.array([2]), "shape": np.array([0, 0, 6])}
    made = model(nodes, {"x": ("float32", ["T", "N", 4, 3])}, ["y"], weights("GRU", 1, 6, H) | constants)
    x = np.linspace(-1, 1, 2 * 1 * 4 * 3, dtype=np.float32).reshape(2, 1, 4, 3)
    np.testing.assert_allclose(reading.read(made).run({"x": x})["y"], onnxruntime_gives(made, {"x": x})["y"], atol=1e-6)
