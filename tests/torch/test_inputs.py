"""Inputs out of the ordinary: not finite, empty, of length one, in any layout of memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import anyrnn.torch
from tests.budget import assert_relative
from tests.torch.layers import KINDS, pair, products_of_bfloat16, solve, state_for, tensors_of
from tests.zoo import FEW, further, sizes_of

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

T, N, D, H = 6, 4, 5, 7
kinds = pytest.mark.parametrize("kind", KINDS)


MASK = torch.arange(T * N).view(T, N) % 3 != 1


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def both(kind: str, layers: int = 1, **options: Any) -> tuple[Any, Any]:
    return pair(kind, D, H, layers, dtype=torch.float64, **options)


def assert_equal_results(ours: Any, theirs: Any, x: Tensor, state: Any = None, what: str = "") -> None:
    expected, found = solve(theirs, x, state), solve(ours, x, state)
    for name, value in expected.items():
        assert_relative(found[name], value, "float64 against torch.nn", f"{what} {name}")


# not finite


@kinds
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_what_is_not_finite_comes_through_as_in_torch(kind: str, value: float, dtype: torch.dtype) -> None:
    """NaN, and infinities in the outputs, stand at the same places, whatever is not finite: the input, a state or a weight."""

    def check(x: Tensor, state: Any, what: str) -> None:
        for inference in (False, True):
            with torch.inference_mode(inference):
                expected, found = theirs(x, state), ours(x, state)
            for a, b in zip((found[0], *tensors_of(found[1])), (expected[0], *tensors_of(expected[1])), strict=True):
                torch.testing.assert_close(a, b, equal_nan=True, msg=lambda m: f"{what}: {m}")

    ours, theirs = pair(kind, D, H, 2, bidirectional=True, dtype=dtype)
    state = state_for(theirs, N, dtype, torch.Generator().manual_seed(2))
    x = draw(T, N, D).to(dtype)
    x[2, 1, 3] = value
    check(x, state, "input")
    x = draw(T, N, D).to(dtype)
    for k, part in enumerate(tensors_of(state)):
        before = part.clone()
        part[1, 2, 0] = value
        check(x, state, f"state {k}")
        part.copy_(before)
    for layer in (ours, theirs):
        with torch.no_grad():
            layer.weight_hh_l0[3, 1] = value
    check(x, state, "weight")


@kinds
def test_nan_in_one_sample_stays_there(kind: str) -> None:
    layer, _ = both(kind)
    x = draw(T, N, D)
    clean = layer(x)[0]
    x[2, 1, 3] = math.nan
    y = layer(x)[0]
    assert torch.equal(y[:2], clean[:2])
    assert torch.equal(y[:, [0, 2, 3]], clean[:, [0, 2, 3]])
    assert y[2:, 1].isnan().all()


@pytest.mark.parametrize("name", [name for name in FEW if name not in ("indrnn", "lru", "rnn_relu")])
def test_nan_gives_nan_gradients(name: str) -> None:
    """But for rectifiers, and of what is linear in the input."""
    layer = anyrnn.torch.Recurrent(name, D, H, dtype=torch.float64, **sizes_of(name, 3, H))
    x = draw(T, N, D)
    x[0, 0, 0] = math.nan
    x.requires_grad_()
    layer(x, **{key: torch.from_numpy(a) for key, a in further(layer.network, T, N, dtype=float).items()})[0].sum().backward()
    assert x.grad is not None
    assert x.grad[0, 0].isnan().all()
    assert x.grad[:, 1:].isfinite().all()
    of_x = [p for p in layer.parameters() if p.requires_grad and p.shape[-1:] == (D,)]
    assert len(of_x) == (name != "echo_state")
    assert all(p.grad.isnan().any() for p in of_x)


# empty and small


@kinds
@pytest.mark.parametrize("batch_first", [False, True])
def test_an_empty_batch(kind: str, batch_first: bool) -> None:
    ours, theirs = both(kind, 2, bidirectional=True, batch_first=batch_first)
    shape = (0, T, D) if batch_first else (T, 0, D)
    for state in (None, state_for(theirs, 0, torch.float64, torch.Generator())):
        expected, found = solve(theirs, draw(*shape), state), solve(ours, draw(*shape), state)
        for name, value in expected.items():
            assert found[name].shape == value.shape, name
            assert torch.equal(found[name], value), name
    with torch.no_grad():
        assert ours(draw(*shape))[0].shape == theirs(draw(*shape))[0].shape


@kinds
def test_one_step_and_one_sample(kind: str) -> None:
    for shape in [(1, 1, D), (1, N, D), (T, 1, D), (1, D)]:
        ours, theirs = both(kind, 2, bidirectional=True)
        rows = shape[1] if len(shape) == 3 else None
        state = state_for(theirs, rows, torch.float64, torch.Generator().manual_seed(3))
        assert_equal_results(ours, theirs, draw(*shape), state, str(shape))


@kinds
def test_one_feature(kind: str) -> None:
    if kind == "lstm_projected":
        return  # its projection has 3
    ours, theirs = pair(kind, 1, 1, 2, bidirectional=True, dtype=torch.float64)
    assert_equal_results(ours, theirs, draw(T, N, 1))


# layouts of memory

LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "transposed": lambda: draw(N, T, D).transpose(0, 1),
    "features first": lambda: draw(D, T, N).permute(1, 2, 0),
    "expanded over steps": lambda: draw(1, N, D).expand(T, N, D),
    "expanded over samples": lambda: draw(T, 1, D).expand(T, N, D),
    "expanded over features": lambda: draw(T, N, 1).expand(T, N, D),
    "flipped": lambda: draw(T, N, D).flip(0),
    "every second step": lambda: draw(2 * T, N, D)[::2],
    "every second sample": lambda: draw(T, 2 * N, D)[:, 1::2],
    "every second feature": lambda: draw(T, N, 2 * D)[..., ::2],
    "in the middle": lambda: draw(T + 2, N + 3, D + 4)[1:-1, 2:-1, 3:-1],
    "overlapping steps": lambda: draw((T + D) * N).as_strided((T, N, D), (1, T + D, 1)),
    "not aligned": lambda: draw(T * N * D + 1)[1:].view(T, N, D),
}


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_any_layout_gives_the_bits_of_a_contiguous_one(kind: str, layout: str, batch_first: bool) -> None:
    layer = KINDS[kind][0](D, H, 2, bidirectional=True, batch_first=batch_first, dtype=torch.float64)
    x = LAYOUTS[layout]()
    x = x.transpose(0, 1) if batch_first else x
    results = []
    for given in (x.contiguous(), x):
        leaf = given.detach().requires_grad_()  # a view: solve would make it contiguous
        layer.zero_grad()
        y, last = layer(leaf)
        (y * draw(*y.shape)).sum().backward()
        assert leaf.grad is not None
        with torch.no_grad():
            inference = layer(given)[0]
        results.append([y, *tensors_of(last), inference, leaf.grad, *(p.grad for p in layer.parameters())])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_states_and_cotangents_of_any_layout(kind: str) -> None:
    ours, theirs = both(kind, 2, bidirectional=True)

    def strided(*shape: int, seed: int) -> Tensor:
        return draw(*reversed(shape), seed=seed).permute(*reversed(range(len(shape))))

    x, h, c = draw(T, N, D), strided(4, N, H, seed=3), strided(1, 1, H, seed=4).expand(4, N, H)
    found = []
    for layer in (ours, theirs):
        leaves = [a.detach().requires_grad_() for a in ((h, c) if kind == "lstm" else (h,))]
        y, last = layer(x, tuple(leaves) if kind == "lstm" else leaves[0])
        results = [y, *tensors_of(last)]
        cotangents = [strided(*r.shape, seed=5 + k) for k, r in enumerate(results)]
        cotangents[0] = cotangents[0][:, :1].expand_as(y)
        gradients = torch.autograd.grad(results, [*leaves, *layer.parameters()], cotangents)
        found.append([*results, *gradients])
    for k, (a, b) in enumerate(zip(*found, strict=True)):
        assert_relative(a, b, "float64 against torch.nn", f"result {k}")


@pytest.mark.parametrize("batch_first", [False, True])
def test_outputs_have_the_layout_of_torch(batch_first: bool) -> None:
    for kind in KINDS:
        ours, theirs = both(kind, 2, bidirectional=True, batch_first=batch_first)
        for shape in [(T, N, D), (T, D)]:
            (y, last), (y2, last2) = ours(draw(*shape)), theirs(draw(*shape))
            assert (y.shape, y.is_contiguous()) == (y2.shape, True)
            for a, b in zip(tensors_of(last), tensors_of(last2), strict=True):
                assert (a.shape, a.is_contiguous()) == (b.shape, True)


def test_inputs_are_left_as_they_are() -> None:
    layer, theirs = both("lstm", 2)
    x, state = draw(T, N, D), state_for(theirs, N, torch.float64, torch.Generator())
    before = [x.clone(), *(s.clone() for s in state)]
    solve(layer, x, state)
    layer(x, state)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, *state), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_16_bits_of_many_steps(kind: str, dtype: torch.dtype) -> None:
    """Gradients are sums over all steps: in bfloat16 a sum stops at 256 of what is added."""
    ours, theirs = (getattr(module, kind)(D, H, bidirectional=True, dtype=dtype) for module in (anyrnn.torch, torch.nn))
    exact = getattr(torch.nn, kind)(D, H, bidirectional=True, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    exact.load_state_dict(ours.state_dict())
    x, errors = draw(300, N, D).to(dtype), []
    y_exact = exact(x.double())[0]
    y_exact.sum().backward()
    for layer in (ours, theirs):
        y, _ = layer(x)
        y.double().sum().backward()
        assert y.dtype == dtype
        assert {p.grad.dtype for p in layer.parameters()} == {dtype}
        pairs = [(y, y_exact), *((p.grad, e.grad) for p, e in zip(layer.parameters(), exact.parameters(), strict=True))]
        errors.append([float((a.detach().double() - b.detach()).norm() / b.detach().norm()) for a, b in pairs])
    assert max(errors[0]) < 2 * torch.finfo(dtype).eps
    assert all(a < 2 * b for a, b in zip(*errors, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("call", [{}, {"lengths": [T] * (N - 1) + [2], "padding": 0.5}, {"return_states": "all", "mask": MASK}])
def test_16_bits_are_float32_between_its_tensors_and_results(dtype: torch.dtype, call: dict[str, Any]) -> None:
    layer = anyrnn.torch.Recurrent("lstm", D, H, num_layers=2, bidirectional=True, dtype=dtype)
    wide = copy.deepcopy(layer).float()
    x, states = draw(T, N, D).to(dtype), tuple(draw(4, N, H).to(dtype) for _ in range(2))
    with products_of_bfloat16() if dtype is torch.bfloat16 else nullcontext():
        found, expected = layer(x, states, **call), wide(x.float(), tuple(s.float() for s in states), **call)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert torch.equal(one, other.to(dtype))
    for results in (found, expected):
        torch.autograd.backward([t.float().sum() for t in tree_leaves(results)])
    for p, q in zip(layer.parameters(), wide.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("call", [{}, {"lengths": [T] * (N - 1) + [2], "padding": 0.5}, {"return_states": "all", "mask": MASK}])
def test_autocast(dtype: torch.dtype, call: dict[str, Any]) -> None:
    """Kernels run in the weights' dtype, whatever that of what is given, and results have that of the input. Autocast to bfloat16
    allows products of such numbers.
    """
    layer = anyrnn.torch.LSTM(D, H)
    x, state = draw(T, N, D).float(), (draw(1, N, H).float(), draw(1, N, H).float())
    half, half_state = x.to(dtype), tuple(s.to(dtype) for s in state)
    with products_of_bfloat16() if dtype is torch.bfloat16 else nullcontext():
        plain = layer(x, state, **call)[0]
        expected = tree_leaves(layer(half.float(), tuple(s.float() for s in half_state), **call))
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal(layer(x, state, **call)[0], plain)
        found = tree_leaves(layer(half, half_state, **call))
    assert len(found) == len(expected) == 3
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other.to(dtype))
    torch.autograd.backward(found, [torch.ones_like(t) for t in found])
    assert {p.grad.dtype for p in layer.parameters() if p.grad is not None} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.float64])
@pytest.mark.parametrize("name", ["LSTM", "GRUCell"])
def test_autocast_converts_no_other_dtypes(name: str, dtype: torch.dtype) -> None:
    layer, x = getattr(anyrnn.torch, name)(D, H), torch.zeros((N, D) if "Cell" in name else (T, N, D), dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match="does not match weight dtype"):
        layer(x)


def test_the_interpreter_works_in_the_precision_of_the_weights_too() -> None:
    layer, x = anyrnn.torch.Recurrent("lstm", D, H, backend="reference"), draw(T, N, D).float()
    plain = layer(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x)[0], plain)
        half = anyrnn.torch.LSTM(D, H).half()
        assert half(x.half())[0].dtype == torch.float16


def test_autocast_and_a_parametrisation_that_multiplies() -> None:
    layer, x = anyrnn.torch.LSTM(D, H), draw(T, N, D).float()
    torch.nn.utils.parametrizations.orthogonal(layer, "weight_hh_l0")
    plain = layer(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(layer(x)[0], plain, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
def test_autocast_gives_the_dtypes_of_torch(name: str) -> None:
    """For inputs of the lower precision; for others torch's modules do not agree with each other."""
    dtypes = []
    for where in (anyrnn.torch, torch.nn):
        layer, x = getattr(where, name)(D, H), torch.zeros((N, D) if "Cell" in name else (T, N, D))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            dtypes.append([t.dtype for t in tree_leaves(layer(x.bfloat16()))])
    assert dtypes[0] == dtypes[1]


def test_tensors_whose_numbers_are_not_what_memory_holds() -> None:
    """The imaginary part of a conjugate is kept as the opposite; a zero tensor has no memory at all."""
    layer = anyrnn.torch.GRU(1, 1, dtype=torch.float64)
    x = torch.fft.rfft(torch.randn(2, 16, dtype=torch.float64)).conj().imag.t()[..., None]
    h = torch.randn(1, 2, 1, dtype=torch.complex128).conj().imag
    assert x.is_neg()
    assert h.is_neg()
    assert torch.equal(layer(x, h)[0], layer(x.clone(), h.clone())[0])
    gradients = []
    for d in (torch.randn(9, 2, 1, dtype=torch.complex128).conj().imag,):
        for given in (d, d.clone()):
            layer.zero_grad()
            layer(x)[0].backward(given)
            gradients.append(layer.weight_hh_l0.grad.clone())
    assert torch.equal(*gradients)
    layer.zero_grad()
    layer(x)[0].backward(torch._efficientzerotensor((9, 2, 1), dtype=torch.float64))
    assert not layer.weight_hh_l0.grad.any()
    zeros = torch._efficientzerotensor((9, 2, 1), dtype=torch.float64)
    assert torch.equal(layer(zeros)[0], layer(torch.zeros(9, 2, 1, dtype=torch.float64))[0])


@pytest.mark.parametrize("name", ["LSTM", "GRUCell"])
def test_calls_on_the_meta_device_give_shapes(name: str) -> None:
    module, like = getattr(anyrnn.torch, name)(3, 4, device="meta"), getattr(torch.nn, name)(3, 4, device="meta")
    x = torch.empty((5, 2, 3)[name.endswith("Cell") :], device="meta")
    for found, expected in zip(tree_leaves(module(x)), tree_leaves(like(x)), strict=True):
        assert found.is_meta
        assert found.shape == expected.shape


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    ("which", "create_graph"), [("cell", False), ("cell", True), ("states", False), ("states", True), ("compiled", False)]
)
def test_cotangents_with_a_lazy_sign(which: str, create_graph: bool) -> None:
    """As those of an imaginary part of a conjugate; in a first call and in those that are remembered."""
    torch.manual_seed(0)
    module: Any = anyrnn.torch.LSTMCell(3, 4) if which == "cell" else anyrnn.torch.LSTM(3, 4)
    run = torch.compile(module, backend="aot_eager") if which == "compiled" else module
    x = torch.randn(*(() if which == "cell" else (5,)), 2, 3, requires_grad=True)

    def states() -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = run(x) if which == "cell" else run(x)[1]
        return found

    cotangents = [torch.randn_like(s) for s in states()]
    lazy = [torch._neg_view(-d) for d in cotangents]
    assert all(d.is_neg() and d.stride(-1) == 1 for d in lazy)
    for _ in range(4):
        expected, found = (torch.autograd.grad(states(), x, given, create_graph=create_graph)[0] for given in (cotangents, lazy))
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "told", [{"lengths": torch.ones(2, dtype=torch.int64)}, {"mask": torch.ones(5, 2, dtype=torch.bool)}], ids=str
)
def test_lengths_without_numbers(told: dict[str, Tensor]) -> None:
    with pytest.raises(
        ValueError, match="GRU: a tensor on the meta device has no numbers: give lengths, masks and resets on another"
    ):
        anyrnn.torch.GRU(3, 4)(torch.zeros(5, 2, 3), **{name: tensor.to("meta") for name, tensor in told.items()})
