"""Wrappers of cells: what they compute, against plain NumPy; what they refuse."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import CellError, Step, Vec, backends, cell, cells, show, split, vector
from anyrnn import sigmoid as sigmoid_of
from anyrnn.cells import loading, wrappers
from anyrnn.trace import Cell, State
from anyrnn.trace.language import affine, tanh
from tests.budget import assert_relative
from tests.cells.worked import Array, by_gate, sigmoid
from tests.networks import on_llvm, on_reference, problem

ALL = [
    wrappers.residual(cells.lstm),
    wrappers.highway(cells.gru),
    wrappers.multiplicative_integration(cells.lstm),
    wrappers.independent(cells.lstm_peephole),
    wrappers.normalised(cells.gru),
    wrappers.normalised(cells.rnn_tanh, "rms"),
    wrappers.stacked(cells.gru, cells.lstm),
    wrappers.fast_slow(cells.lstm, cells.gru, 3),
    wrappers.residual(wrappers.normalised(wrappers.multiplicative_integration(cells.rnn_tanh))),
]


def layer_norm(v: Array) -> Array:
    return (v - v.mean()) / np.sqrt(v.var() + 1e-5)


def gated(w: Any, gate: str, x: Array, h: Array) -> Array:
    return w.weight_ih[gate] @ x + w.bias_ih[gate] + w.weight_hh[gate] @ h + w.bias_hh[gate]


def lstm(w: Any, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    i, f, o = (sigmoid(gated(w, gate, x, h)) for gate in "ifo")
    c = f * c + i * np.tanh(gated(w, "g", x, h))
    return o * np.tanh(c), c


def gru(w: Any, x: Array, h: Array) -> Array:
    r, z = sigmoid(gated(w, "r", x, h)), sigmoid(gated(w, "z", x, h))
    n = np.tanh(w.weight_ih["n"] @ x + w.bias_ih["n"] + r * (w.weight_hh["n"] @ h + w.bias_hh["n"]))
    return (1 - z) * n + z * h


def one_step(made: Cell, D: int = 3) -> tuple[Any, Any, list[Array], Array, dict[str, Array]]:
    """Parameters, the input, first states, the output and the new states of one sample, computed by the reference backend."""
    p = problem(made, T=1, N=1, D=D, H=3)
    found = on_reference(p)
    w = by_gate(p.network.graph, dict(p.network.sizes), p.parameters[0])
    last = {s.name: found[f"last {s.name}_l0"][0] for s in p.network.graph.states}
    return w, p.inputs[0][0, 0], [a[0] for a in p.first[0]], found["output"][0, 0], last


def level(w: Any, prefix: str) -> Any:
    return type(w)(**{name.removeprefix(prefix): value for name, value in vars(w).items() if name.startswith(prefix)})


@pytest.mark.parametrize("made", ALL, ids=str)
def test_kernels_and_gradients(made: Cell, quick_compile: None) -> None:
    p = problem(made, 5, 3, 7, 7)
    expected = on_reference(p)
    for name, value in on_llvm(p, np.float64).items():
        assert_relative(value, expected[name], "llvm float64 against the reference backend", name)


def test_every_wrapper_is_one() -> None:
    assert {*loading.WRAPPERS} == {
        "fast_slow", "highway", "independent", "multiplicative_integration", "normalised", "residual", "stacked",
    }  # fmt: skip


def test_residual() -> None:
    w, x, (h, c), y, last = one_step(wrappers.residual(cells.lstm))
    h, c = lstm(w, x, h, c)
    np.testing.assert_allclose(y, h + x, rtol=1e-12)
    np.testing.assert_allclose(last["h"], h, rtol=1e-12)


def test_highway() -> None:
    made = wrappers.highway(cells.gru)
    w, x, (h,), y, _ = one_step(made)
    t = sigmoid(w.highway_weight_ih["transform"] @ x + w.highway_bias_ih["transform"])
    np.testing.assert_allclose(y, t * gru(w, x, h) + (1 - t) * x, rtol=1e-12)
    layer = anyrnn.Recurrent(made, 4, 4, seed=0)
    assert (layer.parameters["highway_bias_ih_l0"] == -2).all()
    assert not (layer.parameters["bias_ih_l0"] == -2).any()


def test_parameters_of_a_wrapper_are_its_own() -> None:
    @cell
    def transformed(x, h):
        h = tanh(affine("transform", x, h))
        return h, State(h=h)

    twice = wrappers.highway(wrappers.highway(transformed))
    names = [p.name for p in twice.trace().parameters if p.name.startswith(("weight", "highway"))]
    assert names == ["weight_ih", "weight_hh", "highway_weight_ih", "highway2_weight_ih", "highway_bias_ih", "highway2_bias_ih"]
    layer = anyrnn.Recurrent(twice, 4, 4, seed=0)
    assert (layer.parameters["highway2_bias_ih_l0"] == -2).all()

    @cell
    def gained(x, h):
        h = tanh(vector("gain_i_z", init=1.0) * affine("z", x, h))
        return h, State(h=h)

    for made in (gained, wrappers.normalised(cells.rnn_tanh)):
        with pytest.raises(CellError, match="is declared twice, by the cell and by a wrapper, or by two wrappers of one kind"):
            wrappers.normalised(made).trace()


def test_states_go_by_their_names() -> None:
    @cell
    def one(x, h, c):
        a, b = tanh(affine("a", x, h)), tanh(affine("b", x, c))
        return a, State(h=a, c=b)

    @cell
    def other(x, h, c):
        a, b = tanh(affine("a", x, h)), tanh(affine("b", x, c))
        return a, State(c=b, h=a)

    x = np.ones((3, 2, 4), np.float32)
    found = [anyrnn.Recurrent(wrappers.fast_slow(c, cells.rnn_tanh, 3), 4, 5, seed=0)(x)[0] for c in (one, other)]
    assert np.array_equal(*found)


def test_two_products_with_one_weight_stay_two() -> None:
    @cell
    def doubled(x, h):
        h = tanh(affine("n", x, h, h=sigmoid_of(h)) + affine("m", x, h))
        return h, State(h=h)

    text = show.render(wrappers.multiplicative_integration(doubled), "text")
    assert "weight_hh[n]·h + weight_hh[n]·sigmoid(h)" in text
    assert "alpha_m" in text


def test_stacked_gates_become_independent_too() -> None:
    @cell
    def stack(x, h):
        a, b = split(affine("a b", x, h), 2)
        h = tanh(a) * sigmoid_of(b)
        return h, State(h=h)

    made = wrappers.independent(stack)
    assert backends.why_not_native(anyrnn.Recurrent(made, 3, 4).network, "float32") is None
    w, x, (h,), y, _ = one_step(made)
    a, b = np.split(np.concatenate([w.weight_ih["a"], w.weight_ih["b"]]) @ x + w.recurrent_h_a_b * np.tile(h, 2), 2)
    a, b = a + w.bias_ih["a"] + w.bias_hh["a"], b + w.bias_ih["b"] + w.bias_hh["b"]
    np.testing.assert_allclose(y, np.tanh(a) * sigmoid(b), rtol=1e-12)


@pytest.mark.parametrize("inside", ["sru", "trnn", "rwkv4", "echo_state", "intersection_rnn", "rnn_multiplicative"])
@pytest.mark.parametrize("spec", ["residual({})", "highway({})", "stacked(lstm, {})", "fast_slow(gru, {})"])
def test_the_size_of_the_input_is_that_of_what_comes_in(spec: str, inside: str) -> None:
    graph = cells.load(spec.format(inside)).trace()
    assert set(graph.size_names) <= {"input", "hidden", "factors"}
    if not spec.startswith(("stacked", "fast")):
        assert "input" not in graph.size_names


def test_multiplicative_integration() -> None:
    w, x, (h,), y, _ = one_step(wrappers.multiplicative_integration(cells.rnn_tanh), D=2)
    a, b = w.weight_ih["h"] @ x, w.weight_hh["h"] @ h
    expected = np.tanh(w.alpha_h * a * b + w.beta_h_h * b + w.beta_h * a + w.bias_ih["h"] + w.bias_hh["h"])
    np.testing.assert_allclose(y, expected, rtol=1e-12)


def test_multiplicative_integration_leaves_other_gates_alone() -> None:
    """Those of the input alone, or of the state alone: GRU's new value."""
    names = [p.name for p in wrappers.multiplicative_integration(cells.gru).trace().parameters]
    assert "alpha_r" in names
    assert "alpha_n" not in names


def test_independent() -> None:
    w, x, (h,), y, _ = one_step(wrappers.independent(cells.rnn_tanh), D=2)
    pre = w.weight_ih["h"] @ x + w.recurrent_h_h * h + w.bias_ih["h"] + w.bias_hh["h"]
    np.testing.assert_allclose(y, np.tanh(pre), rtol=1e-12)


def test_independent_cells_have_no_stages() -> None:
    from anyrnn.passes.compile import plan

    for name in ("lstm", "gru", "gru_before", "mgu"):
        made = plan(wrappers.independent(cells.load(name)).trace())
        assert made.inference.stages == made.backward.stages == 0


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_normalised(kind: Any) -> None:
    w, x, (h,), y, _ = one_step(wrappers.normalised(cells.rnn_tanh, kind), D=2)
    of = layer_norm if kind == "layer" else lambda v: v / np.sqrt((v * v).mean() + 1e-5)
    pre = w.gain_i_h * of(w.weight_ih["h"] @ x) + w.gain_h_h * of(w.weight_hh["h"] @ h) + w.bias_ih["h"] + w.bias_hh["h"]
    np.testing.assert_allclose(y, np.tanh(pre), rtol=1e-12)


def test_stacked() -> None:
    w, x, (h0, h1, c1), y, last = one_step(wrappers.stacked(cells.gru, cells.lstm), D=2)
    h0 = gru(level(w, "level0_"), x, h0)
    h1, c1 = lstm(level(w, "level1_"), h0, h1, c1)
    np.testing.assert_allclose(y, h1, rtol=1e-12)
    for name, value in {"level0_h": h0, "level1_h": h1, "level1_c": c1}.items():
        np.testing.assert_allclose(last[name], value, rtol=1e-12)


def test_stacked_is_two_layers() -> None:
    """The same numbers as those of a layer with two, given the same parameters."""
    one, two = anyrnn.Recurrent(wrappers.stacked(cells.gru, cells.gru), 3, 4, seed=0), anyrnn.Recurrent("gru", 3, 4, num_layers=2)
    for name in two.parameters:
        kind, _, k = name.rpartition("_l")
        two.parameters[name] = one.parameters[f"level{k}_{kind}_l0"]
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype("f")
    np.testing.assert_allclose(one(x)[0], two(x)[0], rtol=1e-5, atol=1e-6)


def test_fast_slow() -> None:
    """Mujika et al. 2017, equations 1 to 4, with LSTM cells; fast cells beyond the second have no input."""
    w, x, (h, c, slow_h, slow_c), y, last = one_step(wrappers.fast_slow(cells.lstm, cells.lstm, 3), D=2)
    h, c = lstm(level(w, "fast0_"), x, h, c)
    slow_h, slow_c = lstm(level(w, "slow_"), h, slow_h, slow_c)
    h, c = lstm(level(w, "fast1_"), slow_h, h, c)
    third = level(w, "fast2_")
    i, f, g, o = (third.weight_hh[gate] @ h + third.bias_hh[gate] for gate in "ifgo")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    np.testing.assert_allclose(y, h, rtol=1e-12)
    for name, value in {"fast_h": h, "fast_c": c, "slow_h": slow_h, "slow_c": slow_c}.items():
        np.testing.assert_allclose(last[name], value, rtol=1e-12)


@pytest.mark.parametrize("made", ALL, ids=str)
def test_they_are_cells_like_others(made: Cell) -> None:
    assert pickle.loads(pickle.dumps(made)).trace() == made.trace()
    assert copy.deepcopy(made) is made
    assert made.name in show.render(made)
    assert repr(made) == f"<cell {made.name}>"


def test_hyper_parameters_and_inputs_stay() -> None:
    @cell(paper="nobody 2000")
    def driven(x, dt: Step(1), h, *, rate=0.5):
        h = h + rate * dt * (tanh(affine("h", x, h)) - h)
        return h, State(h=h)

    made = wrappers.residual(driven)
    assert made.signature.order == driven.signature.order == ("x", "dt", "h")
    assert made.trace().hypers == ("rate",)
    layer, plain = (anyrnn.Recurrent(c, 3, 3, seed=0, rate=0.25) for c in (made, driven))
    x, dt = np.ones((2, 1, 3), "f"), np.full((2, 1, 1), 0.5, "f")
    np.testing.assert_allclose(layer(x, dt=dt)[0], plain(x, dt=dt)[0] + x, rtol=1e-6)


def test_refusals() -> None:
    @cell
    def driven(x, h, dt: Step(1)):
        return h, State(h=h * dt + affine("h", x))

    with pytest.raises(ValueError, match="depth should be at least 2"):
        wrappers.fast_slow(cells.lstm, cells.lstm, 1)
    with pytest.raises(ValueError, match="kind should be 'layer' or 'rms', got 'batch'"):
        wrappers.normalised(cells.lstm, "batch")  # type: ignore[arg-type]
    with pytest.raises(CellError, match=r"cell 'driven' has per-step inputs \(dt\), which cells made of several cells have not"):
        wrappers.stacked(cells.lstm, driven)
    with pytest.raises(ValueError, match="at least one cell"):
        wrappers.stacked()
    with pytest.raises(TypeError, match="residual takes a Cell, got a str"):
        wrappers.residual("lstm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="input_size"):
        anyrnn.Recurrent(wrappers.residual(cells.lstm), 3, 4)
    with pytest.raises(TypeError, match=r"depth should be a whole number, got 2\.5"):
        wrappers.fast_slow(cells.lstm, cells.gru, 2.5)  # type: ignore[arg-type]
    with pytest.raises(CellError, match="residual of cell 'lstm' needs an input at every step, and here is none"):
        wrappers.fast_slow(wrappers.residual(cells.lstm), cells.gru).trace()
    for name in ("sru", "gru_block", "gru_layernorm", "lstm_mogrifier", "lstm_layernorm_stacked"):
        with pytest.raises(CellError, match=f"fast_slow: the fast cell '{name}' cannot do without its input"):
            wrappers.fast_slow(cells.load(name), cells.gru).trace()
    for wrapper in (wrappers.residual, wrappers.highway):
        with pytest.raises(CellError, match=r"needs an output of the input's size, and cell 'lstm_projected' makes \[proj\] of"):
            wrapper(cells.lstm_projected).trace()


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (
            wrappers.independent,
            "parameter 'recurrent_h_s_z' of a wrapper would be two, of h s_z and h_s z: give a gate another name",
        ),
        (wrappers.normalised, "parameter 'gain_h_s_z' of a wrapper would be two, of h s_z and h_s z"),
        (wrappers.multiplicative_integration, "parameter 'beta_h_s_z' of a wrapper would be two, of h s_z and h_s z"),
    ],
)
def test_names_of_gates_that_meet(wrapper: Any, message: str) -> None:
    @cell
    def meeting(x, h, h_s):
        a, b = affine("s_z", x, h), affine("z", x, h_s)
        h = tanh(a + b + affine("z", x, h) + affine("h_z", x, h))
        return h, State(h=h, h_s=h)

    with pytest.raises(CellError, match=message):
        wrapper(meeting).trace()


def test_a_gate_called_as_an_operand_and_a_gate() -> None:
    @cell
    def meeting(x, h):
        h = sigmoid_of(affine("f", x, h)) * tanh(affine("h_f", x, h))
        return h, State(h=h)

    with pytest.raises(
        CellError, match="parameter 'beta_h_f' of a wrapper would be two, of h f and h_f: give a gate another name"
    ):
        wrappers.multiplicative_integration(meeting).trace()


@pytest.mark.parametrize("name", ["gru_layernorm", "lstm_layernorm_stacked", "normalised(gru)", "independent(gru)"])
def test_a_cell_inside_whose_input_and_states_have_changed_places(name: str) -> None:
    inner = cells.load(name)

    @cell
    def auto(x, h, o: Vec("input"), c: Vec("input")):  # type: ignore[valid-type]
        h = tanh(affine("n", x, h))
        with anyrnn.scope("out"):
            y, s = inner(h, o, c) if len(inner.signature.states) == 2 else inner(h, o)
        return y, State(h=h, o=s.h, c=s.c if "c" in s.values else c)

    output, _ = anyrnn.Recurrent(auto, 3, 5, seed=0)(np.ones((4, 2, 3), np.float32))
    assert output.shape == (4, 2, 3)


@pytest.mark.parametrize(
    ("wrapper", "inside"),
    [("multiplicative_integration", "slstm"), ("independent", "lstm_projected"), ("normalised", "echo_state")],
)
def test_a_wrapper_that_changes_nothing_is_refused(wrapper: str, inside: str) -> None:
    with pytest.raises(CellError, match=f"{wrapper} changes nothing of cell '{inside}', which has no affine"):
        cells.load(f"{wrapper}({inside})").trace()


BEGINNING = [n for n in cells.names() if cells.load(n).init and len(cells.load(n).signature.inputs) == 1]


@pytest.mark.parametrize("name", BEGINNING)
def test_parameters_begin_as_those_of_the_cell_inside(name: str) -> None:
    inside = cells.load(name)
    sizes = dict(inside.trace().other_sizes(8))
    alone = anyrnn.Recurrent(inside, 8, 8, seed=3, **sizes).parameters
    levels = anyrnn.Recurrent(wrappers.stacked(inside), 8, 8, seed=3, **{f"{k}": v for k, v in sizes.items()}).parameters
    assert {f"level0_{key}": value.tolist() for key, value in alone.items()} == {k: v.tolist() for k, v in levels.items()}


def test_what_a_cell_says_of_first_values_comes_before_what_one_inside_says() -> None:
    @cell(init={"bias_ih f": 7.0})
    def outer(x, h):
        return cells.janet(x, h)

    inner = anyrnn.Recurrent(cells.janet, 3, 4, seed=0).parameters
    found = anyrnn.Recurrent(outer, 3, 4, seed=0).parameters
    assert found["bias_ih_l0"][:4].tolist() == [7.0] * 4
    assert found["bias_hh_l0"].tolist() == inner["bias_hh_l0"].tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("residual(lstm)", "residual(lstm)"),
        ("residual( independent(gru) )", "residual(independent(gru))"),
        ("fast_slow(lstm, gru, depth=3)", "fast_slow(lstm, gru, 3)"),
        ("normalised(lstm, 'rms')", "normalised(lstm, 'rms')"),
        ("ctrnn(dt=1, tau=0.5)", "ctrnn(dt=1.0, tau=0.5)"),
        ("residual(lstm_mogrifier(rounds=2))", "residual(lstm_mogrifier(rounds=2))"),
    ],
)
def test_by_name(spec: str, name: str) -> None:
    assert cells.load(spec).name == name


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("residuall(lstm)", r"unknown wrapper or cell 'residuall'.*did you mean 'residual'"),
        ("residual(lstmm)", r"unknown cell 'lstmm'"),
        ("normalised(lstm, kind=rms)", r"unknown cell 'rms'.*; text that is no cell stands in quotes"),
        ("residual(lstm", r"cell 'residual\(lstm' is not written as wrapper\(cell\)"),
        ("residual(open('x'))", r"unknown wrapper or cell 'open'"),
        ("residual(lstm.function)", r"the value should be a cell, a number, True"),
        ("residual(cell=lstm, cell=gru)", r"an argument is given twice"),
        ("residual(**lstm)", r"arguments are written as name=value"),
        ("fast_slow(lstm, gru, depth=-1)", r"depth should be at least 2: .* got -1"),
        ("ctrnn(0.5)", r"hyper-parameters are given by name, as ctrnn\(name=value\)"),
        ("residual(ctrnn(leak=0.5))", r"'ctrnn' has no hyper-parameter 'leak'; it has: dt, tau"),
        ("clockwork(modules=2.5)", r"'modules' of cell 'clockwork' should be a whole number, got 2.5"),
        ("ctrnn(dt='fast')", r"'dt' of cell 'ctrnn' should be a number, got 'fast'"),
        ("residual(lstm, 3)", r"residual\(lstm, 3\)': residual\(\) takes 1 positional argument"),
    ],
)
def test_names_that_mean_nothing(spec: str, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        cells.load(spec)


def test_a_file_is_read_anew_however_soon_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from bytecode that is kept for a file of the same second and size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file, values = tmp_path / "mine.py", []
    for factor in "23":
        text = "from anyrnn import State, affine, cell\n@cell\ndef mine(x, h):\n    h = affine('h', x, h)\n"
        file.write_text(f"{text}    return {factor} * h, State(h=h)\n")
        os.utime(file, (10**9, 10**9))
        values.append(show.render(cells.load(f"{file}:mine")))
    assert values[0] != values[1]


def test_first_values_of_a_cell_inside_are_those_of_its_gates() -> None:
    @cell
    def gated(x, h):  # type: ignore[no-untyped-def]
        y, _ = cells.rnn_identity(x, h)
        z = sigmoid_of(affine("z", x, h))
        h = z * h + (1 - z) * y
        return h, State(h=h)

    weight = anyrnn.Recurrent(gated, 2, 3, seed=0).parameters["weight_hh_l0"]
    assert np.array_equal(weight[:3], np.eye(3))
    assert not np.isin(weight[3:], (0, 1)).any()


def test_what_depends_on_no_state_keeps_its_matrix() -> None:
    @cell
    def context(x, h, e: Step("hidden")):  # type: ignore[no-untyped-def,valid-type,name-defined]
        q = tanh(affine("p", x))
        h = tanh(affine("u", x, h, e) + affine("w", q))
        return h, State(h=h)

    names = {p.name for p in wrappers.independent(context).trace().parameters}
    assert {"weight_eh", "weight_qh", "recurrent_h_u"} <= names
    assert not {"recurrent_e_u", "recurrent_q_w", "weight_hh"} & names

    @cell
    def without_state(x, h, e: Step("hidden")):  # type: ignore[no-untyped-def,valid-type,name-defined]
        h = tanh(affine("u", x, e)) + h
        return h, State(h=h)

    with pytest.raises(CellError, match="multiplicative_integration changes nothing"):
        wrappers.multiplicative_integration(without_state).trace()


def test_a_wrapper_has_as_many_states_as_the_cell_has_by_default() -> None:
    made = wrappers.residual(cells.tau_gru)
    assert "delay" not in dict(made.signature.hypers)
    assert len(anyrnn.Recurrent(made, 4, 4).network.graph.states) == len(cells.tau_gru.signature.states)
    with pytest.raises(TypeError, match="unexpected keyword argument 'delay'"):
        anyrnn.Recurrent(made, 4, 4, delay=3)


def test_a_depth_that_is_no_number() -> None:
    with pytest.raises(TypeError, match="depth should be a whole number"):
        wrappers.fast_slow(cells.lstm, cells.gru, "a")  # type: ignore[arg-type]
