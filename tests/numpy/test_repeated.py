"""Inference calls that are remembered: the same results and the same errors as those that are looked at."""

from __future__ import annotations

import copy
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import State, Step, _memory, affine, cell, mean, tanh
from anyrnn.backends.llvm import run
from anyrnn.numpy import repeated
from anyrnn.numpy.packed_weights import Kept

T, N, D, H = 5, 3, 4, 6


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each call since, whether it was like an earlier one."""
    found: list[bool] = []
    result = repeated.Earlier.result

    def noted(*given: Any) -> Any:
        got = result(*given)
        found.append(got is not None)
        return got

    monkeypatch.setattr(repeated.Earlier, "result", noted)
    return found


def drawn(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def flat(result: Any) -> list[Any]:
    if result is None or isinstance(result, np.ndarray):
        return [result]
    return [array for part in result for array in flat(part)]


def check_equal(found: Any, expected: Any) -> None:
    ours, theirs = flat(found), flat(expected)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if other is None:
            assert one is None
            continue
        assert one.dtype == other.dtype
        assert one.flags.writeable
        np.testing.assert_array_equal(one, other, strict=True)


LAYERS: list[dict[str, Any]] = [
    {"cell": "lstm"},
    {"cell": "gru", "batch_first": True},
    {"cell": "lstm", "num_layers": 2, "bidirectional": True},
    {"cell": "rnn_tanh", "dtype": np.float64},
    {"cell": "lstm_layernorm", "reverse": True},
    {"cell": "mgu", "bidirectional": True, "merge": "sum"},
    {"cell": "mgu", "bidirectional": True, "merge": "separate"},
    {"cell": "gru", "num_layers": 3, "residual": True, "zoneout": 0.2},
    {"cell": "lstm", "learned_state": True},
    {"cell": "gru", "weight_dropout": 0.5},
]


CALLS = [(options, outputs) for options in LAYERS for outputs in ("all", "last", "none")]
CALLS.remove(({"cell": "mgu", "bidirectional": True, "merge": "separate"}, "last"))  # which is refused


@pytest.mark.parametrize(("options", "outputs"), CALLS, ids=str)
@pytest.mark.parametrize("batched", [True, False])
def test_the_results_are_those_of_calls_that_are_looked_at(
    options: dict[str, Any], outputs: Any, batched: bool, remembered: list[bool]
) -> None:
    layer = anyrnn.Recurrent(input_size=D, hidden_size=H, seed=0, **options)
    network, dtype = layer.network, layer.dtype
    sides = () if not batched else (N,)
    x = drawn(*((N, T, D) if batched and layer.batch_first else (T, *sides, D)), dtype=dtype)
    first = tuple(drawn(len(network.units), *sides, size, dtype=dtype) for size in network.state_sizes)
    named = anyrnn.RecurrentState(network.graph.state_names, first)
    for state in (None, first, list(first), named, *([first[0]] if len(first) == 1 else [])):
        called = [layer(x, state, return_outputs=outputs) for _ in range(3)]
        expected = copy.copy(layer)(x, state, return_outputs=outputs)
        for found in called:
            check_equal(found, expected)
            assert type(found[1]) is type(expected[1])
        arrays = [array for found in called for array in flat(found) if array is not None]
        assert len(set(_memory.addresses(arrays))) == len(arrays), "each call gives arrays of its own"
    one_call = network.is_one_call and network.merge != "separate" and not network.probabilities
    assert any(remembered) == (one_call and not network.plan.phase.computed)


def gated(x, h, a: Step(2), b: Step(1)):  # type: ignore[no-untyped-def,valid-type]
    h = tanh(affine("u", x, h)) * mean(a) + mean(b)
    return h, State(h=h)


def test_further_inputs_in_any_order(remembered: list[bool]) -> None:
    layer, x, a, b = anyrnn.Recurrent(cell(gated), D, H, seed=0), drawn(T, N, D), drawn(T, N, 2, seed=1), drawn(T, N, 1, seed=2)
    expected = layer(x, a=a, b=b)
    for _ in range(2):
        check_equal(layer(x, b=b, a=a), expected)
    assert remembered == [False, False, True]
    for wrong, message in (({"a": a}, "needs the per-step input b"), ({"a": a, "c": b}, "no per-step input 'c'")):
        with pytest.raises(TypeError, match=message):
            layer(x, **wrong)
    with pytest.raises(ValueError, match="b should have 1 features"):
        layer(x, a=a, b=a)


def grow(layer: Any) -> None:
    layer.parameters["weight_hh_l0"] *= 2


def replace(layer: Any) -> None:
    for name, array in layer.parameters.items():
        layer.parameters[name] = array + 1


def replace_all(layer: Any) -> None:
    layer.parameters = {name: array + 1 for name, array in reversed(layer.parameters.items())}


def transpose(layer: Any) -> None:
    layer.parameters["weight_hh_l0"] = np.asfortranarray(layer.parameters["weight_hh_l0"] + 1)


def turn(layer: Any) -> None:
    layer.batch_first = True


def interpret(layer: Any) -> None:
    layer.backend = "reference"


@pytest.mark.parametrize("change", [grow, replace, replace_all, transpose, turn, interpret])
@pytest.mark.parametrize("several", [False, True])
def test_what_changes_is_seen(change: Callable[[Any], None], several: bool, remembered: list[bool]) -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, 1 + several, seed=0), drawn(N, N, D)
    for _ in range(3):
        before = layer(x)
    assert remembered[-1]
    change(layer)
    for _ in range(3):
        after = layer(x)
        check_equal(after, copy.copy(layer)(x))
    assert change is interpret or not np.array_equal(after[0], before[0])


def shorten(layer: Any) -> None:
    layer.parameters["bias_ih_l0"] = layer.parameters["bias_ih_l0"][:-1]


def widen(layer: Any) -> None:
    layer.parameters["weight_hh_l0"] = layer.parameters["weight_hh_l0"].astype(np.float64)


def reshape(layer: Any) -> None:
    layer.parameters["weight_hh_l0"].shape = (H, 3 * H)


def take_away(layer: Any) -> None:
    del layer.parameters["bias_hh_l0"]


def rename(layer: Any) -> None:
    layer.parameters["bias"] = layer.parameters.pop("bias_hh_l0")


def mask(layer: Any) -> None:
    layer.parameters["bias_ih_l0"] = np.ma.masked_array(layer.parameters["bias_ih_l0"], True)


def in_float64(layer: Any) -> None:
    layer.dtype = np.float64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shorten, r"bias_ih_l0 should be float32 \(18,\), got float32 \(17,\)"),
        (widen, r"weight_hh_l0 should be float32 \(18, 6\), got float64"),
        (reshape, r"weight_hh_l0 should be float32 \(18, 6\), got float32 \(6, 18\)"),
        (take_away, "parameters should be .*; unknown or missing: bias_hh_l0"),
        (rename, "parameters should be .*; unknown or missing: bias, bias_hh_l0"),
        (mask, "bias_ih_l0 is a masked array"),
        (in_float64, "x should be"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_does_not_fit_is_refused(change: Callable[[Any], None], message: str, remembered: list[bool]) -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), drawn(T, N, D)
    for _ in range(3):
        layer(x)
    assert remembered[-1]
    change(layer)
    with pytest.raises((TypeError, ValueError), match=message):
        layer(x)


def test_arguments_that_do_not_fit_are_refused() -> None:
    layer, x, (h, c) = anyrnn.Recurrent("lstm", D, H, seed=0), drawn(T, N, D), [drawn(1, N, H, seed=k) for k in (1, 2)]
    for _ in range(3):
        layer(x)
        layer(x, (h, c))
        layer(x, anyrnn.RecurrentState(("h", "c"), (h, c)))
    for given, message in [
        ((x.astype(np.float64),), "x should be"),
        ((x[..., :-1],), "x should have 4 features"),
        ((x.tolist(),), "x should be"),
        ((np.ma.masked_array(x, True),), "masked"),
        ((x[:0],), "no steps"),
        ((x, h), "state should be 2 arrays"),
        ((x, ()), "state should be 2 arrays"),
        ((x, []), "state should be 2 arrays"),
        ((x, (h, c, c)), "state should be 2 arrays"),
        ((x, (h, c[:, :1])), "state c should have shape"),
        ((x, (h, c.astype(np.float64))), "state c should be float32"),
        ((x, "no state"), "state should be an array"),
        ((x, anyrnn.RecurrentState(("c", "h"), (h, c))), "state of a cell with h, c"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            layer(*given)
    for outputs in (["all"], "every", None):
        with pytest.raises(ValueError, match="return_outputs should be"):
            layer(x, return_outputs=outputs)


def test_other_strides_are_another_call(remembered: list[bool]) -> None:
    layer = anyrnn.Recurrent("lstm", D, H, seed=0)
    wide = drawn(2 * T, 2 * N, 2 * D)
    views = [wide[:T, :N, :D], wide[::2, ::2, :D], wide[:T, :N, ::2], wide[:T, N - 1 :: -1, D:], wide[:T, :1, :D].repeat(N, 1)]
    views.append(np.broadcast_to(wide[:T, :1, :D], (T, N, D)))
    expected = [copy.copy(layer)(x) for x in views]
    for _ in range(3):
        for x, there in zip(views, expected, strict=True):
            check_equal(layer(x), there)
    assert remembered.count(True) == len(views) - 1, "all but that whose features are apart, in the last round"


def test_more_kinds_of_calls_than_are_remembered(monkeypatch: pytest.MonkeyPatch, remembered: list[bool]) -> None:
    monkeypatch.setattr(repeated, "MOST", 3)
    monkeypatch.setattr(repeated, "MOST_ONCE", 4)
    layer, calls = anyrnn.Recurrent("gru", D, H, seed=0), [drawn(steps, 1, D) for steps in range(1, 5)]
    expected = [layer(x) for x in calls]
    for _ in range(2):
        for x, there in zip(calls, expected, strict=True):
            check_equal(layer(x), there)
    assert remembered[-4:] == [True, True, True, False]
    for steps in range(5, 12):
        layer(drawn(steps, 1, D))
    assert len(layer._earlier.once) <= repeated.MOST_ONCE


def test_frames_that_others_have_let_go_of_are_made_anew(remembered: list[bool]) -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), drawn(T, N, D)
    expected = layer(x)
    layer(x)
    run.POOLS.known.clear()
    check_equal(layer(x), expected)
    check_equal(layer(x), expected)
    assert remembered == [False, False, False, True]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_begin_anew(copied: Callable[[Any], Any], remembered: list[bool]) -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), drawn(T, N, D)
    for _ in range(3):
        expected = layer(x)
    other, x = copied(layer), copied(x)
    remembered.clear()
    for _ in range(3):
        check_equal(other(x), expected)
    assert remembered == [False, False, True]


def test_explain_of_a_call_that_is_remembered() -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), drawn(T, N, D)
    before = str(anyrnn.explain(layer, x))
    for _ in range(3):
        layer(x)
    assert str(anyrnn.explain(layer, x)) == before


def test_weights_stay_packed_until_they_change() -> None:
    """Of several steps: those of a single one are multiplied where they stand."""
    layer, x = anyrnn.Recurrent("gru", 64, 64, seed=0), drawn(3, 2, 64)
    layer(x)
    (packs,) = layer._packs._of.values()
    (packed,) = packs.rest
    packed.memory[:1024] = 0  # as no weights are
    assert np.array_equal(layer(x)[0], layer(x)[0])
    assert packs.rest == [packed]
    assert not packed.memory[:1024].any()
    layer.parameters["weight_ih_l0"][...] *= 2
    layer.parameters["weight_hh_l0"][...] *= 2
    check_equal(layer(x), copy.copy(layer)(x))


def test_layers_whose_parameters_stay_as_they_are(remembered: list[bool]) -> None:
    layer, x = anyrnn.Recurrent("gru", D, H, seed=0), drawn(T, N, D)
    constant = anyrnn.Recurrent.of_network(layer.network, layer.parameters, constant=True)
    rounded = layer.in_int8()
    for one in (constant, rounded):
        expected = copy.copy(one)(x)
        remembered.clear()
        for _ in range(4):
            check_equal(one(x), expected)
        assert remembered == [False, False, one is constant, True]
    rounded.parameters["weight_hh_l0"] = rounded.parameters["weight_hh_l0"] * 2
    for _ in range(3):
        check_equal(rounded(x), copy.copy(rounded)(x))
    kept = weakref.ref(rounded._kept)
    rounded.parameters["weight_hh_l0"] = rounded.parameters["weight_hh_l0"] * 2
    for _ in range(2):
        rounded(x)
    assert kept() is None


def test_names_of_parameters_in_int8_are_looked_at() -> None:
    layer, x = anyrnn.Recurrent("rnn_tanh", H, H, seed=0).in_int8(), drawn(T, N, H)
    for _ in range(4):
        before = layer(x)[0]
    names = [name.replace("ih", "hh") if "ih" in name else name.replace("hh", "ih") for name in layer.parameters]
    layer.parameters = dict(zip(names, layer.parameters.values(), strict=True))
    assert not np.array_equal(layer(x)[0], before)
    layer.parameters = {f"another {name}": array for name, array in layer.parameters.items()}
    with pytest.raises(ValueError, match="unknown or missing"):
        layer(x)


def test_views_of_what_may_be_written_are_copied_in_int8() -> None:
    layer, x = anyrnn.Recurrent("gru", H, H, seed=0), drawn(T, N, H)
    below = layer.parameters["weight_hh_l0"]
    layer.parameters["weight_hh_l0"] = below.view()
    layer.parameters["weight_hh_l0"].flags.writeable = False
    rounded = layer.in_int8()
    before = rounded(x)[0]
    below += 1
    check_equal(rounded(x)[0], before)


def test_first_calls_at_once_read_the_same_arrays() -> None:
    """Of a constant layer, whose arrays are made once: addresses of any others would be those of memory that is gone."""
    layer = anyrnn.Recurrent("gru", D, H, seed=0)
    kept, others = Kept(), layer.sources()
    found = kept.sources(layer.network, layer.dtype, lambda: kept.sources(layer.network, layer.dtype, lambda: others) and [])
    assert found is others


def test_parameters_that_are_replaced_while_another_thread_calls() -> None:
    layer, x = anyrnn.Recurrent("lstm", 64, 256, seed=0), drawn(6, 2, 64)
    sets = [layer.parameters, {name: 2 * array for name, array in layer.parameters.items()}]
    expected = []
    for parameters in sets:
        layer.parameters = parameters
        expected.append(copy.copy(layer)(x)[0])
    ends, wrong = threading.Event(), []

    def call() -> None:
        while not ends.is_set():
            found = layer(x)[0]
            wrong.extend([1] * (not any(np.array_equal(found, one) for one in expected)))

    thread = threading.Thread(target=call)
    thread.start()
    for number in range(300):
        layer.parameters = sets[number % 2]
        wrong.extend([1] * (not np.array_equal(layer(x)[0], expected[number % 2])))
    ends.set()
    thread.join()
    assert not wrong


def test_several_threads() -> None:
    """Each with its own input, and one of them with a copy whose parameters are others."""
    layer = anyrnn.Recurrent("lstm", 32, 64, seed=0)
    other = copy.copy(layer)
    other.parameters = {name: 2 * array for name, array in layer.parameters.items()}
    wrong: list[int] = []

    def call(number: int) -> None:
        mine, x = (other if number == 2 else layer), drawn(6, 2 + number % 2, 32, seed=number)
        expected = copy.copy(mine)(x)[0]
        wrong.extend(number for _ in range(300) if not np.array_equal(mine(x)[0], expected))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_addresses_are_those_that_arrays_tell() -> None:
    arrays = [np.zeros(3), drawn(4, 5)[1:, 2:], np.zeros((0, 2)), np.ones((), np.int8), np.ones(3).view(np.recarray)]
    assert _memory.addresses(arrays) == _memory._by_ctypes(arrays) == [a.ctypes.data for a in arrays]
    assert _memory._structures_are_known()
