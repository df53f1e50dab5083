"""What does not fit is refused before any work, with torch.nn's type of exception and a message that names the argument."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import Scalar, State, Step, UnsupportedError, Vec, cell, cells
from anyrnn.torch import base
from anyrnn.trace.language import affine, exp, floor, mean, minimum, softplus, tanh, total, vector, where
from tests.torch.layers import pair

D, H = 4, 7
kinds = pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])


def x(*shape: int, **options: Any) -> torch.Tensor:
    return torch.zeros(shape or (5, 3, D), **options)


def state(layer: Any, *shape: int, **options: Any) -> Any:
    h = torch.zeros(shape, **options)
    return (h, h.clone()) if layer.mode == "LSTM" else h


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "input of no dimension": (lambda layer: layer(torch.tensor(1.0)), "Expected input to be 2D or 3D, got 0D"),
    "input of one dimension": (lambda layer: layer(x(D)), "Expected input to be 2D or 3D, got 1D"),
    "input of four dimensions": (lambda layer: layer(x(1, 5, 3, D)), "Expected input to be 2D or 3D, got 4D"),
    "features": (lambda layer: layer(x(5, 3, 6)), r"input.size\(-1\) must be equal to input_size. Expected 4, got 6"),
    "features, no batch": (lambda layer: layer(x(5, 6)), r"input.size\(-1\) must be equal to input_size. Expected 4, got 6"),
    "no features": (lambda layer: layer(x(5, 3, 0)), r"input.size\(-1\) must be equal to input_size. Expected 4, got 0"),
    "float64": (lambda layer: layer(x(dtype=torch.float64)), r"input dtype \(torch.float64\) does not match weight dtype"),
    "bfloat16": (lambda layer: layer(x(dtype=torch.bfloat16)), r"input dtype \(torch.bfloat16\) does not match weight dtype"),
    "integers": (lambda layer: layer(x(dtype=torch.int64)), r"input dtype \(torch.int64\) does not match weight dtype"),
    "complex": (lambda layer: layer(x(dtype=torch.complex64)), r"input dtype \(torch.complex64\) does not match weight dtype"),
    "device": (lambda layer: layer(x(device="meta")), "input is on meta, but the weights are on cpu"),
    "length 0": (lambda layer: layer(x(0, 3, D)), r"Expected sequence length to be larger than 0 in RNN, .*\[0, 3, 4\]"),
    "length 0, no batch": (lambda layer: layer(x(0, D)), "Expected sequence length to be larger than 0 in RNN"),
    "length 0 and batch 0": (lambda layer: layer(x(0, 0, D)), "Expected sequence length to be larger than 0 in RNN"),
    "state without a batch": (lambda layer: layer(x(), state(layer, 1, H)), "hx should also be 3-D but got 2-D tensor"),
    "state with a batch": (lambda layer: layer(x(5, D), state(layer, 1, 3, H)), "hx should also be 2-D but got 3-D tensor"),
    "state of four": (lambda layer: layer(x(), state(layer, 1, 1, 3, H)), r"hx should also be 3-D but .* \(state h\)"),
    "layers": (lambda layer: layer(x(), state(layer, 2, 3, H)), r"hidden size \(1, 3, 7\) for state h .*\[2, 3, 7\]"),
    "rows": (lambda layer: layer(x(), state(layer, 1, 2, H)), r"hidden size \(1, 3, 7\) for state h .*\[1, 2, 7\]"),
    "one row": (lambda layer: layer(x(), state(layer, 1, 1, H)), r"hidden size \(1, 3, 7\) for state h .*\[1, 1, 7\]"),
    "size": (lambda layer: layer(x(), state(layer, 1, 3, 6)), r"hidden size \(1, 3, 7\) for state h .*\[1, 3, 6\]"),
    "size, no batch": (lambda layer: layer(x(5, D), state(layer, 1, 6)), r"hidden size \(1, 7\) for state h .*\[1, 6\]"),
    "state's dtype": (
        lambda layer: layer(x(), state(layer, 1, 3, H, dtype=torch.float64)),
        "state h of hx is torch.float64 on cpu, but the input is torch.float32",
    ),
    "integer state": (
        lambda layer: layer(x(), state(layer, 1, 3, H, dtype=torch.int64)),
        "state h of hx is torch.int64 on cpu, but the input is torch.float32",
    ),
    "state's device": (lambda layer: layer(x(), state(layer, 1, 3, H, device="meta")), "state h of hx is .* on meta"),
    "no input": (lambda layer: layer(), "'input'"),
}


@kinds
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_refused_as_torch_refuses_it(kind: str, call: str) -> None:
    ours, theirs = pair(kind, D, H)
    function, message = CALLS[call]
    with pytest.raises(Exception) as expected:  # noqa: PT011 (which one is the question)
        function(theirs)
    with pytest.raises(expected.type, match=message) as found:
        function(ours)
    assert found.type is expected.type
    assert type(ours).__name__ in str(found.value) or call == "no input"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: (x().to_sparse(),), "input has layout torch.sparse_coo, which is not supported"),
        (lambda: (x().to_mkldnn(),), "input has layout torch._mkldnn, which is not supported"),
        (lambda: (x(), x(1, 3, H).to_sparse()), "state h of hx has layout torch.sparse_coo, which is not supported"),
        (
            lambda: (torch.nested.nested_tensor([x(5, D), x(3, D)], layout=torch.jagged),),
            "input is a nested tensor, .*; pad the batch",
        ),
    ],
    ids=["sparse", "oneDNN's", "sparse state", "nested"],
)
def test_other_layouts_are_refused(given: Callable[[], tuple[torch.Tensor, ...]], message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"GRU: {message}"):
        anyrnn.torch.GRU(D, H)(*given())


OWN_TYPES: dict[str, tuple[Any, type[Exception], str]] = {
    "one tensor": (x(1, 3, H), RuntimeError, r"expected hx to be a tuple of 2 initial states \(h, c\), got one tensor"),
    "two layers": (x(2, 1, 3, H), RuntimeError, r"expected hx to be a tuple of 2 initial states \(h, c\), got one tensor"),
    "one state": ((x(1, 3, H),), RuntimeError, r"a tuple of 2 initial states \(h, c\), got 1 state$"),
    "three states": ((x(1, 3, H),) * 3, RuntimeError, r"a tuple of 2 initial states \(h, c\), got 3 states$"),
    "None": ((x(1, 3, H), None), TypeError, "hx: state c should be a Tensor, got NoneType"),
    "numpy": (
        np.zeros((1, 3, H), np.float32),
        TypeError,
        "hx should be a Tensor, a tuple of them or an anyrnn.torch.RecurrentState, got numpy.ndarray",
    ),
}
"""Calls that torch.nn refuses by accident, with IndexError or AttributeError."""


@pytest.mark.parametrize("name", OWN_TYPES)
def test_states_of_the_wrong_form_are_refused(name: str) -> None:
    ours, theirs = pair("lstm", D, H)
    hx, error, message = OWN_TYPES[name]
    with pytest.raises(Exception, match=r"."):
        theirs(x(), hx)
    with pytest.raises(error, match=f"LSTM: .*{message}"):
        ours(x(), hx)


def test_too_many_states_for_a_cell_with_one() -> None:
    with pytest.raises(RuntimeError, match=r"GRU: expected hx to be 1 initial state \(h\), got 2 states"):
        anyrnn.torch.GRU(D, H)(x(), (x(1, 3, H), x(1, 3, H)))


def test_the_state_with_the_wrong_shape_is_named() -> None:
    layer = anyrnn.torch.LSTM(D, H, 2, proj_size=3, bidirectional=True)
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(4, 3, 7\) for state c of hx, got \[4, 3, 3\]"):
        layer(x(), (x(4, 3, 3), x(4, 3, 3)))
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(4, 3, 3\) for state h of hx, got \[4, 3, 7\]"):
        layer(x(), (x(4, 3, 7), x(4, 3, 7)))


@pytest.mark.parametrize("value", [None, [[1.0]], np.zeros((5, 3, D), np.float32)], ids=lambda v: type(v).__name__)
def test_an_input_that_is_no_tensor(value: Any) -> None:
    with pytest.raises(TypeError, match=f"GRU: input should be a Tensor or a PackedSequence, got {type(value).__name__}"):
        anyrnn.torch.GRU(D, H)(value)


CONSTRUCTORS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "input_size 0": ((0, H), {}, "input_size must be greater than zero"),
    "hidden_size 0": ((D, 0), {}, "hidden_size must be greater than zero"),
    "hidden_size -1": ((D, -1), {}, "hidden_size must be greater than zero"),
    "num_layers 0": ((D, H, 0), {}, "num_layers must be greater than zero"),
    "hidden_size 7.0": ((D, 7.0), {}, "hidden_size should be of type int, got: float"),
    "input_size '4'": (("4", H), {}, "input_size should be of type int, got: str"),
    "bias 1": ((D, H), {"bias": 1}, "bias should be of type bool, got: int"),
    "batch_first 1": ((D, H), {"batch_first": 1}, "batch_first should be of type bool, got: int"),
    "dropout 2": ((D, H, 2), {"dropout": 2}, r"dropout should be a number in range \[0, 1\]"),
    "dropout True": ((D, H, 2), {"dropout": True}, r"dropout should be a number in range \[0, 1\]"),
    "unknown": ((D, H), {"hidden": 3}, "unexpected keyword argument 'hidden'"),
}


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_a_layer_is_refused_as_torch_refuses_it(name: str, case: str) -> None:
    arguments, options, message = CONSTRUCTORS[case]
    with pytest.raises(Exception, match=r".") as expected:
        getattr(torch.nn, name)(*arguments, **options)
    with pytest.raises(expected.type, match=message):
        getattr(anyrnn.torch, name)(*arguments, **options)


def test_other_arguments_of_layers() -> None:
    with pytest.raises(TypeError, match="LSTM: proj_size should be of type int, got: float"):
        anyrnn.torch.LSTM(D, H, proj_size=1.5)  # type: ignore[arg-type]
    for library in (anyrnn.torch, torch.nn):
        with pytest.raises(ValueError, match="Unknown nonlinearity 'sigmoid'"):
            library.RNN(D, H, nonlinearity="sigmoid")
        with pytest.raises(ValueError, match="proj_size has to be smaller than hidden_size"):
            library.LSTM(D, H, proj_size=H)
        with pytest.raises(ValueError, match="proj_size should be a positive integer or zero"):
            library.LSTM(D, H, proj_size=-1)
    with pytest.raises(ValueError, match=f"LSTM: proj_size has to be smaller than hidden_size, got {H} and {H}"):
        anyrnn.torch.LSTM(D, H, proj_size=H)
    with pytest.raises(ValueError, match="RNNCell: Unknown nonlinearity 'sigmoid'"):
        anyrnn.torch.RNNCell(D, H, nonlinearity="sigmoid")
    with pytest.raises(ValueError, match="backend should be 'auto', 'llvm', 'triton' or 'reference', got 'cuda'"):
        anyrnn.torch.GRU(D, H, backend="cuda")
    with pytest.raises(TypeError, match="cell 'lstm_projected' needs the size proj"):
        anyrnn.torch.Recurrent("lstm_projected", D, H)
    with pytest.raises(TypeError, match="unexpected keyword argument 'rank'; options of cell 'gru'"):
        anyrnn.torch.Recurrent("gru", D, H, rank=2)


def test_an_explicit_backend_that_cannot_run() -> None:
    layer = anyrnn.torch.GRU(D, H, backend="llvm", dtype=torch.bfloat16)
    with pytest.raises(UnsupportedError, match=r"GRU: backend 'llvm' cannot run this: dtype torch.bfloat16 has no kernels"):
        layer(x(dtype=torch.bfloat16))

    @anyrnn.cell
    def beside(x, h):
        h = tanh(affine("h", x, h, v=vector("v"), heads=2))
        return h, anyrnn.State(h=h)

    with pytest.raises(
        UnsupportedError, match="backend 'llvm' cannot run this: the cell uses a product in blocks, of parameters"
    ):
        anyrnn.torch.Recurrent(beside, 4, 6, backend="llvm")(torch.zeros(3, 2, 4))
    assert anyrnn.torch.Recurrent(beside, 4, 6).backend_name == "reference"


def test_a_cell_without_parameters() -> None:
    @anyrnn.cell
    def average(x, h: Vec("input"), *, rate=0.25):
        h = (1 - rate) * h + rate * x
        return h, anyrnn.State(h=h)

    for backend in ("llvm", "reference"):
        layer = anyrnn.torch.Recurrent(average, D, D, backend=backend)
        assert layer.backend_name == backend
        for dtype in (torch.float32, torch.float64):
            given = torch.randn(5, 3, D, dtype=dtype, requires_grad=True)
            y, h = layer(given)
            assert y.dtype == dtype
            torch.testing.assert_close(y[-1], sum(0.25 * 0.75 ** (4 - t) * given[t] for t in range(5)))
            torch.testing.assert_close(y[-1], h[0])
            (gradient,) = torch.autograd.grad(y[-1].sum(), given)
            torch.testing.assert_close(gradient[0], torch.full((3, D), 0.25 * 0.75**4, dtype=dtype))
        with pytest.raises(ValueError, match=r"input should be of a floating-point dtype, got torch.int64"):
            layer(x(dtype=torch.int64))
    assert "average" in repr(layer)
    assert cells.load(layer.cell) is layer.cell
    layer = anyrnn.torch.Recurrent(average, D, D, dtype=torch.float64)
    assert layer.initial_state(2).h.dtype == torch.float64
    assert layer.float().initial_state(2).h.dtype == torch.float32
    assert not layer.state_dict()


@cell
def decaying(x, dt: Step(1), h):
    h = exp(-softplus(vector("k")) * mean(dt)) * h
    h = tanh(affine("a", x, h))
    return h, State(h=h)


@pytest.mark.parametrize("stack", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}], ids=["llvm", "reference"])
def test_further_inputs_are_given_by_name(stack: dict[str, Any]) -> None:
    layer = anyrnn.torch.Recurrent(decaying, 3, 5, dtype=torch.float64, **stack)
    x, dt = (torch.rand(4, 2, n, dtype=torch.float64, requires_grad=True) for n in (3, 1))
    assert torch.autograd.gradcheck(lambda x, dt: layer(x, dt=dt)[0], (x, dt))
    alone = layer(x[:, 0], dt=dt[:, 0])[0] if not stack else layer(x[0], dt=dt[0])[0]
    torch.testing.assert_close(alone, layer(x, dt=dt)[0][:, 0] if not stack else layer(x, dt=dt)[0][0])


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({}, TypeError, "the cell 'decaying' needs the per-step input dt as keyword argument"),
        ({"dt": 1}, TypeError, "dt should be a Tensor, got int"),
        ({"dt": torch.zeros(3, 2, 1)}, RuntimeError, r"expected dt to have shape \(4, 2, 1\), got \[3, 2, 1\]"),
        ({"dt": torch.zeros(4, 2, 1).double()}, ValueError, "dt is torch.float64, but the weights are torch.float32"),
        ({"dt": torch.zeros(4, 2, 1), "g": 1}, TypeError, "the cell 'decaying' has no per-step input 'g'; it has: dt"),
    ],
)
def test_further_inputs_that_do_not_fit(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        anyrnn.torch.Recurrent(decaying, 3, 5)(torch.zeros(4, 2, 3), **given)


def test_a_replaced_parameter_of_another_form_is_refused() -> None:
    layer = anyrnn.torch.LSTM(3, 4)
    for _ in range(2):
        layer(torch.zeros(2, 2, 3))
    layer.weight_hh_l0 = torch.nn.Parameter(torch.zeros(8, 64))
    with pytest.raises(RuntimeError, match=r"LSTM: weight_hh_l0: expected \[16, 4\] of torch.float32, got \[8, 64\]"):
        layer(torch.zeros(2, 2, 3))
    layer = anyrnn.torch.LSTM(3, 4)
    layer(torch.zeros(2, 2, 3))
    layer.weight_hh_l0.data = layer.weight_hh_l0.data[:8]
    with pytest.raises(RuntimeError, match=r"weight_hh_l0: expected \[16, 4\] of torch.float32, got \[8, 4\]"):
        layer(torch.zeros(2, 2, 3))


@pytest.mark.parametrize(
    ("cell", "name"), [("gru", "weight_ih_l0"), ("gru", "bias_hh_l0"), ("gru", "h0_l0"), ("antisymmetric_rnn", "W_l0")]
)
def test_none_in_the_place_of_a_parameter_is_refused(cell: str, name: str) -> None:
    layer = anyrnn.torch.Recurrent(cell, 3, 4, learned_state=name == "h0_l0")
    for _ in range(2):
        layer(torch.zeros(2, 2, 3))
    setattr(layer, name, None)
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled), pytest.raises(TypeError, match=f"Recurrent: expected .* {name}, got None"):
            layer(torch.zeros(2, 2, 3))


def test_dropout_without_layers_to_act_between_warns() -> None:
    with pytest.warns(UserWarning, match="dropout acts between layers"):
        anyrnn.torch.GRU(3, 4, dropout=0.5)
    with pytest.warns(UserWarning, match="dropout acts between layers") as told:
        anyrnn.Recurrent("gru", 3, 4, dropout=0.5)
    assert told[0].filename == __file__


@pytest.mark.parametrize(("modules", "dtype"), [(10, torch.bfloat16), (13, torch.float16)])
def test_counters_that_begin_again_too_late_for_a_dtype(modules: int, dtype: torch.dtype) -> None:
    layer = anyrnn.torch.Recurrent("clockwork", 3, 2 * modules, modules=modules, dtype=dtype)
    with pytest.raises(UnsupportedError, match="cell 'clockwork': state 't' counts steps, in"):
        layer(torch.ones(2, 1, 3, dtype=dtype))
    with pytest.raises(UnsupportedError, match="cell 'clockwork': state 't' counts steps, in"):
        anyrnn.explain(layer, torch.ones(2, 1, 3, dtype=dtype))
    layer = anyrnn.torch.Recurrent("clockwork", 3, 2 * modules, modules=modules - 1, dtype=dtype)
    assert layer(torch.ones(2, 1, 3, dtype=dtype))[0].shape == (2, 1, 2 * modules)


@cell
def counts_down(x, h, t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("n", x, h)) * exp(0.001 * t)
    return h, State(h=h, t=t - 1)


@cell
def counts_at_a_rate(x, h, t: Vec(), *, rate=0.1):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("n", x, h)) / (t + 1)
    return h, State(h=h, t=(t + rate) + 0.5)


@cell
def counts_from_one(x, h, t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("n", x, h)) * (t + 1)
    return h, State(h=h, t=t - floor(t / 1000) * 1000 + 1)


@cell
def counts_until(x, h, t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("n", x, h)) * (t + 1)
    return h, State(h=h, t=minimum(t + 1, 1000))


@cell
def counts_since(x, h, t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
    h = tanh(affine("n", x, h)) * (t + 1)
    return h, State(h=h, t=where(total(x) > 0, 0.0 * t, t) + 1)


COUNTING = [
    ("lstm_phased", {"clip_gradient": 1.0}), (counts_down, {}), (counts_at_a_rate, {}), (counts_from_one, {}),
    (counts_until, {}), (counts_since, {}),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "options"), COUNTING, ids=str)
def test_whatever_counts_is_refused_in_16_bits(cell: Any, options: dict[str, Any]) -> None:
    layer = anyrnn.torch.Recurrent(cell, 2, 3, dtype=torch.bfloat16, **options)
    with pytest.raises(UnsupportedError, match=r"counts steps, in torch\.bfloat16 to 256 only"):
        layer(torch.ones(2, 1, 2, dtype=torch.bfloat16))


def test_what_does_not_count_runs_in_16_bits() -> None:
    @cell
    def alternates(x, h, p: Scalar()):  # type: ignore[no-untyped-def, valid-type]
        h = tanh(affine("n", x, h)) * p
        return h, State(h=h, p=1 - p)

    layer = anyrnn.torch.Recurrent(alternates, 2, 3, dtype=torch.bfloat16)
    assert layer(torch.ones(2, 1, 2, dtype=torch.bfloat16))[0].shape == (2, 1, 3)

    @cell
    def wraps(x, h, p: Vec()):  # type: ignore[no-untyped-def, valid-type]
        """A phase, whose end is looked at, again and again."""
        w = vector("w")
        for _ in range(40):
            p = p + w
            p = where(p > 3, p - 6, where(p < -3, p + 6, p))
        h = tanh(affine("n", x, h) + p)
        return h, State(h=h, p=p)

    @cell
    def saturates(x, h, t: Scalar(), *, period=100.0):  # type: ignore[no-untyped-def, valid-type]
        h = tanh(affine("n", x, h) + t)
        return h, State(h=h, t=minimum(t + 1, 200))

    for made in (wraps, saturates):
        assert not [limit for limit in anyrnn.torch.Recurrent(made, 2, 3).network.graph.counters.values() if limit > 256]


def test_whether_a_state_counts_is_seen_at_once() -> None:
    @cell
    def again_and_again(x, h, t: Scalar()):  # type: ignore[no-untyped-def, valid-type]
        for _ in range(40):
            t = where(total(x) > 0, t + 1, t)
        h = tanh(affine("n", x, h) + t)
        return h, State(h=h, t=t)

    assert anyrnn.torch.Recurrent(again_and_again, 2, 3).network.graph.counters


def test_a_budget_is_for_calls_that_train() -> None:
    layer = anyrnn.torch.GRU(3, 4, memory_budget=10**6, backend="reference")
    x = torch.ones(2, 1, 3)
    with pytest.raises(UnsupportedError, match="memory_budget is for native kernels, and none run this"):
        layer(x)
    layer.requires_grad_(False)
    assert layer(x)[0].shape == (2, 1, 4)


def test_a_refused_call_draws_nothing() -> None:
    layer = anyrnn.torch.LSTM(D, H, zoneout=0.1, weight_dropout=0.1)
    before = torch.get_rng_state()
    for given, call in (
        (x(5, 3, 6), {}),
        (x(), {"hx": torch.zeros(1)}),
        (x(), {"lengths": [6] * 3}),
        (x(), {"mask": torch.ones(5, 3, dtype=torch.int64)}),
        (x(), {"lengths": [4] * 3, "hx": torch.zeros(1)}),
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            layer(given, **call)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_mask_of_another_dtype_is_told_what_it_should_be() -> None:
    with pytest.raises(TypeError, match=r"^GRU: mask should be an array of bool, got int64: mask.bool\(\)$"):
        anyrnn.torch.GRU(D, H)(x(), mask=torch.ones(5, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"^mask should be an array of bool, got int64: mask.astype\(bool\)$"):
        anyrnn.Recurrent("gru", D, H)(x().numpy(), mask=np.ones((5, 3), np.int64))


def test_the_drop_in_modules_take_options() -> None:
    layers = [anyrnn.torch.LSTM(D, H, proj_size=2, zoneout=0.1), anyrnn.torch.RNN(D, H, residual=True, num_layers=2)]
    layers.append(anyrnn.torch.GRU(D, H, memory_budget=10**7, reverse=True))
    ends = ("proj_size=2, zoneout=0.1)", "residual=True, num_layers=2)", "reverse=True, memory_budget=10000000)")
    for layer, end in zip(layers, ends, strict=True):
        assert repr(layer).endswith(end)
        layer(x())[0].sum().backward()
    assert anyrnn.torch.Recurrent("gru", D, H).load_state_dict(layers[2].state_dict())


def test_the_reference_backend_runs_no_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError

    layers = [anyrnn.torch.Recurrent("gru", D, H, weight_dropout=0.5, backend=backend) for backend in ("llvm", "reference")]
    layers[1].load_state_dict(layers[0].state_dict())
    torch.manual_seed(1)
    expected, _ = layers[0](x())
    monkeypatch.setattr(base.llvm, "draw", never)
    torch.manual_seed(1)
    torch.testing.assert_close(layers[1](x())[0], expected)
    with pytest.raises(AssertionError):
        layers[0](x())


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_states_that_count_steps_in_dtypes_that_cannot(dtype: torch.dtype, limit: int) -> None:
    many = torch.full((), limit, dtype=dtype)
    assert many - 1 != many
    assert many + 1 == many
    layer = anyrnn.torch.Recurrent("lstm_phased", D, H, dtype=dtype)
    with pytest.raises(UnsupportedError, match=rf"'lstm_phased': state 't' counts steps, in {dtype} to {limit} only"):
        layer(x(dtype=dtype))
    held = anyrnn.torch.Recurrent("lstm_phased", D, H, dtype=dtype, zoneout=0.1)
    with pytest.raises(UnsupportedError, match="counts steps"):
        held(x(dtype=dtype), lengths=[1, 2, 2])
    bounded = anyrnn.torch.Recurrent("clockwork", D, H, dtype=dtype)
    assert bounded(x(dtype=dtype))[0].dtype == dtype


FIXED = {"bidirectional": True, "num_layers": 2, "hidden_size": 7, "input_size": 7, "bias": False, "options": {}, "proj_size": 2}


@pytest.mark.parametrize("name", FIXED)
def test_what_is_fixed_when_a_layer_is_made(name: str) -> None:
    for layer in (anyrnn.torch.GRU(3, 5), anyrnn.torch.GRUCell(3, 5), anyrnn.torch.LSTM(3, 5, proj_size=4)):
        if name in vars(layer):
            with pytest.raises(AttributeError, match=f"{name} is fixed when a layer is made"):
                setattr(layer, name, FIXED[name])


def test_the_batch_may_come_first_later() -> None:
    ours, theirs, x = anyrnn.torch.GRU(3, 4), torch.nn.GRU(3, 4), torch.randn(5, 5, 3)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])
    ours.batch_first = theirs.batch_first = True
    for layer in (ours, copy.deepcopy(ours)):
        torch.testing.assert_close(layer(x)[0], theirs(x)[0])
    with pytest.raises(TypeError, match="batch_first should be a bool"):
        ours.batch_first = 1
    with pytest.raises(AttributeError):
        anyrnn.torch.GRUCell(3, 4).batch_first = True


def test_the_backend_may_be_another_later() -> None:
    for layer in (anyrnn.torch.GRU(3, 4), anyrnn.torch.GRUCell(3, 4), anyrnn.Recurrent("gru", 3, 4)):
        layer.backend = "reference"
        assert layer.backend_name == "reference"
        with pytest.raises(ValueError, match="backend should be"):
            layer.backend = "bogus"
        assert layer.backend == "reference"


def test_two_sizes_of_a_projection() -> None:
    with pytest.raises(TypeError, match="give one of them"):
        anyrnn.torch.LSTM(3, 8, proj_size=2, proj=3)


@pytest.mark.parametrize("options", [{}, {"zoneout": 0.2}, {"dropout": 0.5, "num_layers": 2}])
def test_calls_with_different_steps_are_not_captured(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tables come from the CPU."""
    layer = anyrnn.torch.Recurrent("gru", D, H, **options)
    monkeypatch.setattr(base, "_is_captured", lambda device: True)
    expected = r"Recurrent.*lengths, mask, reset\) cannot be captured in a CUDA graph; give all samples all steps"
    for trains in (True, False):
        layer.train(trains)
        with pytest.raises(UnsupportedError, match=expected):
            layer(x(), lengths=[5, 1, 1])
    assert layer(x())[0].shape == (5, 3, H)


@pytest.mark.filterwarnings("ignore")
def test_recording() -> None:
    with pytest.raises(UnsupportedError, match="does not record what kernels do"):
        torch.jit.trace(anyrnn.torch.GRU(3, 4), torch.randn(5, 2, 3))
    for layer in (anyrnn.torch.GRU(3, 4), anyrnn.torch.Recurrent("mgu", 3, 4)):
        with pytest.raises(UnsupportedError, match=r"torch.jit.script does not compile what kernels do; torch.export and"):
            torch.jit.script(torch.nn.Sequential(layer))


def test_a_symbolic_trace_takes_a_layer_whole() -> None:
    class Whole(torch.fx.Tracer):
        def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, anyrnn.torch.Recurrent) or super().is_leaf_module(m, module_qualified_name)

    model = torch.nn.Sequential(torch.nn.Linear(3, D), anyrnn.torch.GRU(D, H))
    graph = Whole().trace(model)
    given = torch.randn(5, 2, 3)
    assert torch.equal(torch.fx.GraphModule(model, graph)(given)[0], model(given)[0])
    with pytest.raises(TypeError, match=r"got Proxy; torch.fx should not trace into it: give it a Tracer whose is_leaf_module"):
        torch.fx.symbolic_trace(model)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_parameter_on_another_device_is_named(frozen: bool) -> None:
    """As of a module that was loaded in half."""
    with torch.device("meta"):
        layer = anyrnn.torch.GRU(3, 4)
    some = anyrnn.torch.GRU(3, 4).state_dict()
    del some["weight_hh_l0"]
    layer.load_state_dict(some, strict=False, assign=True)
    if frozen:
        layer.eval().freeze()
    message = "GRU: weight_hh_l0: expected a strided tensor on cpu, got one of torch.strided on meta"
    with pytest.raises(RuntimeError, match=message):
        layer(torch.zeros(5, 2, 3))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_parameter_is_named() -> None:
    layer = anyrnn.torch.GRU(3, 4)
    layer.weight_hh_l0 = torch.nn.Parameter(layer.weight_hh_l0.detach().to_sparse())
    with pytest.raises(RuntimeError, match=r"weight_hh_l0: expected a strided tensor on cpu, got one of torch\.sparse_coo"):
        layer(torch.zeros(5, 2, 3))


@pytest.mark.parametrize("calls", [1, 4])
def test_an_input_of_another_shape_since_the_forward_call(calls: int) -> None:
    """As many rows of states as there were; later calls are remembered ones."""
    layer = anyrnn.torch.GRU(3, 4)
    for _ in range(calls):
        x = torch.randn(5, 2, 3)
        y = layer(x)[0]
        if _ < calls - 1:
            y.sum().backward()
    x.data = torch.randn(11, 1, 3)
    with pytest.raises(RuntimeError, match="an input or a parameter has another shape, dtype or device than in the forward call"):
        y.square().sum().backward()


def test_a_slip_in_a_name_is_told_for_packed_sequences_too() -> None:
    given = torch.nn.utils.rnn.pack_sequence([torch.zeros(4, 3)])
    with pytest.raises(TypeError, match=r"has no per-step input 'lenghts' \(did you mean 'lengths'\?\)"):
        anyrnn.torch.GRU(3, 4)(given, lenghts=[4])


def test_an_input_without_numbers_has_no_mask_value() -> None:
    layer = anyrnn.torch.GRU(3, 4, device="meta")
    with pytest.raises(ValueError, match="mask_value looks at the input's numbers, and a tensor on the meta device has none"):
        layer(torch.zeros(5, 2, 3, device="meta"), mask_value=0.0)


def test_parameters_without_an_inverse_are_refused_before_any_change() -> None:
    class Twice(torch.nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return 2 * w

    layer = anyrnn.torch.GRU(3, 4)
    before = layer.weight_ih_l0.detach().clone()
    torch.nn.utils.parametrize.register_parametrization(layer, "weight_hh_l0", Twice())
    with pytest.raises(TypeError, match="weight_hh_l0 is parametrised by Twice, which has no right_inverse"):
        layer.reset_parameters()
    assert torch.equal(layer.weight_ih_l0, before)


@pytest.mark.parametrize(("name", "value"), [("dropout", 0.5), ("memory_budget", 10**9), ("batch_first", True)])
def test_cells_refuse_what_layers_alone_heed_later_too(name: str, value: Any) -> None:
    made = anyrnn.torch.RecurrentCell("gru", 3, 4)
    with pytest.raises(AttributeError, match=f"{name} is for sequences, and a cell takes single steps"):
        setattr(made, name, value)
