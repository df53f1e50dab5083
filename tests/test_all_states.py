"""The states after every step: of every cell, layer and direction, dense and uneven, from every front-end and backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import anyrnn
import anyrnn.torch
from tests.zoo import FEW, further, sizes_of

pytestmark = pytest.mark.usefixtures("quick_compile")

SHAPES: list[dict[str, Any]] = [
    {"num_layers": 2, "bidirectional": True, "dropout": 0.3, "zoneout": 0.2},
    {"num_layers": 3, "residual": True, "batch_first": True},
    {"reverse": True},
]
CALLS: list[dict[str, Any]] = [
    {},
    {"lengths": [4, 0, 6], "padding": 0.5},
    {"lengths": [4, 6, 1], "reset": np.random.default_rng(3).random((6, 3)) < 0.3, "padding": "last"},
]


NAMES = (("both", "residual", "reverse"), ("dense", "lengths", "resets"))
QUICK = {(0, 2), (1, 0), (1, 1), (2, 1)}
PAIRS = [
    pytest.param(shape, call, id=f"{NAMES[0][k]}-{NAMES[1][j]}", marks=[] if (k, j) in QUICK else [pytest.mark.slow])
    for k, shape in enumerate(SHAPES)
    for j, call in enumerate(CALLS)
]
"""Each shape with every kind of call, of which some are left to the slow tests."""


@anyrnn.cell
def kinds(x, h, seen: anyrnn.Scalar(1.0), m: anyrnn.Vec("other", 0.5)):  # type: ignore[no-untyped-def, valid-type]
    """Every kind of state."""
    new = anyrnn.tanh(anyrnn.affine("u", x, h)) * anyrnn.sigmoid(seen) + 0.1 * anyrnn.affine("v", m, bias=False)
    return new, anyrnn.State(h=new, seen=0.5 * seen + 1.0, m=0.9 * m + anyrnn.affine("w", h=new, size="other"))


def as_tuple(states: Any) -> tuple[Any, ...]:
    return states if isinstance(states, tuple) else (states,)


@pytest.mark.parametrize(("shape", "call"), PAIRS)
@pytest.mark.parametrize("cell", [*FEW, kinds], ids=str)
def test_front_ends_and_backends_agree(cell: Any, shape: dict[str, Any], call: dict[str, Any]) -> None:
    sizes = sizes_of(cell, 7, 9)
    random = np.random.default_rng(0)
    x = random.normal(size=(6, 3, 5))
    if shape.get("batch_first"):
        x, call = x.swapaxes(0, 1), {k: v.T if k == "reset" else v for k, v in call.items()}
    layers = [
        anyrnn.Recurrent(cell, 5, 9, dtype="float64", seed=1, backend=backend, **shape, **sizes)
        for backend in ("llvm", "reference")
    ]
    module = anyrnn.torch.Recurrent(cell, 5, 9, dtype=torch.float64, **shape, **sizes)
    module.load_state_dict({n: torch.from_numpy(p) for n, p in layers[0].parameters.items()})
    more = further(layers[0].network, *x.shape[:2], dtype=float)
    torch.manual_seed(4)
    tensor = torch.from_numpy(x).clone().requires_grad_()
    y_torch, states_torch = module(tensor, return_states="all", **call, **{n: torch.from_numpy(a) for n, a in more.items()})
    states_torch = as_tuple(states_torch)
    weights = [random.normal(size=s.shape) for s in states_torch]
    sum((torch.from_numpy(w) * s).sum() for w, s in zip(weights, states_torch, strict=True)).backward()
    torch.manual_seed(4)
    seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64)) if "dropout" in shape else 0
    for layer in layers:
        y, states, reserve = layer.forward_training(x, return_states="all", seed=seed, **call, **more)
        plain, last, _ = layer.forward_training(x, seed=seed, **call, **more)
        assert (y == plain).all()
        np.testing.assert_allclose(y, y_torch.detach(), rtol=1e-10, atol=1e-12)
        given = tuple(weights) if len(weights) > 1 else weights[0]
        for two_calls in (False, True):
            if two_calls:
                d_x, _, work = layer.backward_data(reserve, None, given)
                gradients = layer.backward_weights(work)
            else:
                d_x, _, gradients = layer.backward(reserve, None, given)
            np.testing.assert_allclose(d_x[0] if more else d_x, tensor.grad, rtol=1e-8, atol=1e-10)
            for name, p in module.named_parameters():
                expected = p.grad if p.requires_grad else torch.zeros_like(p)
                np.testing.assert_allclose(gradients[name], expected, rtol=1e-8, atol=1e-10, err_msg=name)
        for k, (found, end) in enumerate(zip(as_tuple(states), as_tuple(last), strict=True)):
            np.testing.assert_allclose(found, states_torch[k].detach(), rtol=1e-10, atol=1e-12)
            by_step = found.swapaxes(1, 2) if shape.get("batch_first") else found
            if not call:
                for unit, (_, direction) in enumerate(layer.network.units):
                    assert (by_step[unit, 0 if direction else -1] == end[unit]).all()


def test_they_are_what_a_loop_of_one_step_calls_gives() -> None:
    peer = torch.nn.LSTM(5, 7, dtype=torch.float64)
    layer = anyrnn.torch.LSTM(5, 7, dtype=torch.float64)
    layer.load_state_dict(peer.state_dict())
    x = torch.randn(6, 3, 5, dtype=torch.float64)
    hx, h, c = None, [], []
    for step in x:
        _, hx = peer(step[None], hx)
        h.append(hx[0])
        c.append(hx[1])
    y, (all_h, all_c) = layer(x, return_states="all")
    torch.testing.assert_close(all_h, torch.stack(h, 1))
    torch.testing.assert_close(all_c, torch.stack(c, 1))
    assert torch.equal(all_h[0], y)


def test_of_a_packed_sequence() -> None:
    layer = anyrnn.torch.Recurrent("lstm", 5, 7, 2, bidirectional=True)
    x, lengths = torch.randn(6, 3, 5), [4, 6, 1]
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    y, (h, c) = layer(packed, return_states="all")
    expected, states = layer(x, lengths=lengths, return_states="all")
    assert torch.equal(pad_packed_sequence(y)[0], expected)
    for found, whole in zip((h, c), states, strict=True):
        assert isinstance(found, PackedSequence)
        assert torch.equal(pad_packed_sequence(found)[0], whole.movedim(0, 2))


@pytest.mark.parametrize("batch_first", [False, True])
def test_without_a_batch_and_of_joined_rows(batch_first: bool) -> None:
    module = anyrnn.torch.Recurrent("lstm", 5, 7, 2, batch_first=batch_first)
    numpy = anyrnn.Recurrent("lstm", 5, 7, 2, batch_first=batch_first)
    for name, p in module.named_parameters():
        numpy.parameters[name] = p.detach().numpy()
    x = torch.randn(6, 5)
    for call in ({}, {"lengths": [4]}, {"cu_seqlens": [0, 2, 2, 6]}):
        _, states = module(x, return_states="all", **call)
        _, found = numpy(x.numpy(), return_states="all", **call)
        for a, b in zip(states, found, strict=True):
            assert a.shape == b.shape == (2, 6, 7)
            assert (a.detach().numpy() == b).all()


def test_no_steps_at_all() -> None:
    layer = anyrnn.torch.Recurrent("lstm", 5, 7)
    x = torch.randn(6, 3, 5, requires_grad=True)
    y, states = layer(x, lengths=[0, 0, 0], return_states="all", padding=2.0)
    assert all(s.shape == (1, 6, 3, 7) and (s == 2).all() for s in (y[None], *states))
    sum(s.sum() for s in states).backward()
    assert not x.grad.any()
    numpy = anyrnn.Recurrent("lstm", 5, 7, seed=0)
    y, states, reserve = numpy.forward_training(x.detach().numpy(), lengths=[0, 0, 0], return_states="all")
    assert all(s.shape == (1, 6, 3, 7) and not s.any() for s in states)
    assert not numpy.backward(reserve, None, states)[0].any()


@pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented the batching rule")
def test_derivatives() -> None:
    layer = anyrnn.torch.Recurrent("lstm", 3, 4, dtype=torch.float64)
    x = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)

    def function(x: torch.Tensor) -> Any:
        return layer(x, return_states="all")[1]

    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)
    (_, tangent), expected = torch.func.jvp(function, (x,), (x,))[1], torch.autograd.functional.jvp(function, x, x)[1][1]
    torch.testing.assert_close(tangent, expected)
    batch = torch.randn(4, 3, 2, 3, dtype=torch.float64)
    for a, b in zip(torch.vmap(function)(batch), zip(*map(function, batch), strict=True), strict=True):
        torch.testing.assert_close(a, torch.stack(b))


def test_other_values_are_refused() -> None:
    x = torch.zeros(2, 1, 3)
    for layer, given in ((anyrnn.torch.Recurrent("gru", 3, 4), x), (anyrnn.Recurrent("gru", 3, 4), x.numpy())):
        with pytest.raises(ValueError, match="return_states should be 'last' or 'all', got 'none'"):
            layer(given, return_states="none")
    numpy = anyrnn.Recurrent("gru", 3, 4)
    _, states, reserve = numpy.forward_training(x.numpy(), return_states="all")
    with pytest.raises(ValueError, match=r"d_state h should have shape \(1, 2, 1, 4\), got \(1, 1, 4\)"):
        numpy.backward(reserve, None, states[:, -1])
    with pytest.raises(TypeError, match="d_state h should be float32, got float64"):
        numpy.backward(reserve, None, states.astype(np.float64))
    with pytest.raises(ValueError, match=r"d_state should be 1 arrays \(h\), got 2"):
        numpy.backward(reserve, None, (states, states))
