"""Single steps: against torch.nn's cells, and against the layers of the same parameters."""

from __future__ import annotations

import copy
import pickle
import re
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import anyrnn.torch
from anyrnn import State, Step, cell
from anyrnn.sequence.options import OPTIONS
from anyrnn.torch.cell import OF_STEPS
from anyrnn.trace.language import affine, mean, tanh
from tests.zoo import EVERY, further, sizes_of

OF_ITS_OWN = {*signature(anyrnn.torch.RecurrentCell).parameters, *OF_STEPS}
"""What cells take."""
MAKERS = {
    "tanh": ("RNNCell", {}),
    "relu": ("RNNCell", {"nonlinearity": "relu"}),
    "lstm": ("LSTMCell", {}),
    "gru": ("GRUCell", {}),
    "lstm without biases": ("LSTMCell", {"bias": False}),
}


@cell
def adding(x, h):
    h = h + mean(x)
    return h, State(h=h)


@cell
def gated(x, gate: Step("hidden"), h):
    h = gate * tanh(affine("a", x, h))
    return h, State(h=h)


def pair(kind: str, *sizes: int, **options: Any) -> tuple[nn.Module, nn.Module]:
    """Ours and torch's, drawn from one seed."""
    name, own = MAKERS[kind]
    made = []
    for where in (anyrnn.torch, nn):
        torch.manual_seed(0)
        made.append(getattr(where, name)(*sizes, **own, **options))
    return made[0], made[1]


def states(kind: str, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(1)
    h, c = (torch.randn(*shape, dtype=torch.float64, generator=generator) for _ in range(2))
    return (h, c) if "lstm" in kind else h


def solve(module: nn.Module, x: Tensor, hx: Any) -> list[Tensor]:
    """The new states, and all gradients."""
    x = x.clone().requires_grad_()
    given = None if hx is None else torch.utils._pytree.tree_map(lambda t: t.clone().requires_grad_(), hx)
    new = tree_leaves(module(x, given))
    module.zero_grad()
    torch.autograd.backward(new, [torch.linspace(-1, 2, t.numel(), dtype=t.dtype).view(t.shape) for t in new])
    leaves = [x, *(t for t in tree_leaves(given) if t is not None), *module.parameters()]
    return [*(t.detach() for t in new), *(leaf.grad for leaf in leaves)]  # type: ignore[misc]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("rows", [4, 1, None])
@pytest.mark.parametrize("kind", MAKERS)
def test_float64_equals_torch(kind: str, rows: int | None, given: bool) -> None:
    ours, theirs = pair(kind, 3, 5, dtype=torch.float64)
    batch = () if rows is None else (rows,)
    x, hx = torch.randn(*batch, 3, dtype=torch.float64), states(kind, *batch, 5) if given else None
    found, expected = solve(ours, x, hx), solve(theirs, x, hx)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", MAKERS)
def test_parameters_and_text_are_those_of_torch(kind: str) -> None:
    ours, theirs = pair(kind, 3, 5)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    assert (ours.bias_ih is None) == (theirs.bias_ih is None)
    assert str(ours).replace("'", "") == str(theirs)
    for name in ("input_size", "hidden_size", "bias"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("name", EVERY)
def test_a_loop_of_steps_is_a_layer(name: str) -> None:
    """To the bit, and every cell has the parameters of its layer under plain names."""
    torch.manual_seed(0)
    layer = anyrnn.torch.Recurrent(name, 4, 5, **sizes_of(name, 3))
    module = anyrnn.torch.RecurrentCell(name, 4, 5, **sizes_of(name, 3))
    module.load_state_dict({key.removesuffix("_l0"): value for key, value in layer.state_dict().items()})
    x, more = torch.randn(6, 2, 4), {k: torch.from_numpy(a) for k, a in further(layer.network, 6, 2).items()}
    outputs, state = [], None
    for t, step in enumerate(x):
        output, state = module(step, state, **{k: a[t] for k, a in more.items()})
        outputs.append(output)
    expected, last = layer(x, **more)
    assert torch.equal(torch.stack(outputs), expected)
    for one, other in zip(*(tree_leaves(s) for s in (state, last)), strict=True):
        assert torch.equal(one, other[0])


@pytest.mark.parametrize(
    ("x", "hx"),
    [
        ((2, 2, 3), None), ((), None), ((2, 4), None), ((4,), None), ((2, 3), (2, 4)), ((2, 3), (3, 5)), ((2, 3), (1, 2, 5)),
        ((3,), (1, 5)), ((2, 3), (5,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["tanh", "lstm", "gru"])
def test_a_call_is_refused_as_torch_refuses_it(kind: str, x: tuple[int, ...], hx: tuple[int, ...] | None) -> None:
    ours, theirs = pair(kind, 3, 5)
    state = None if hx is None else torch.zeros(hx)
    given = (state, state) if kind == "lstm" and state is not None else state
    with pytest.raises(Exception) as expected:  # noqa: PT011 (its type is what is asked)
        theirs(torch.zeros(x), given)
    with pytest.raises(expected.type, match=f"^{type(ours).__name__}: "):
        ours(torch.zeros(x), given)


@pytest.mark.parametrize("kind", MAKERS)
def test_no_samples(kind: str) -> None:
    ours, theirs = pair(kind, 3, 5)
    given = torch.zeros(0, 5)
    hx = (given, given) if "lstm" in kind else given
    for one, other in zip(*(tree_leaves(module(torch.zeros(0, 3), hx)) for module in (ours, theirs)), strict=True):
        assert one.shape == other.shape == (0, 5)


def test_messages() -> None:
    module = anyrnn.torch.LSTMCell(3, 5)
    x, h, convert = torch.zeros(2, 3), torch.zeros(2, 5), "convert it with .to()"
    for hx, message in (
        ((h, torch.zeros(2, 4)), "LSTMCell: state c of hx: expected [2, 5] as the input is, got [2, 4]"),
        ((h, torch.zeros(2, 5, 1)), "LSTMCell: Expected state c of hx to be 1D or 2D, got 3D instead"),
        (h, "LSTMCell: expected hx to be a tuple of 2 initial states (h, c), got one tensor"),
        ((h,), "LSTMCell: expected hx to be a tuple of 2 initial states (h, c), got 1 state"),
        ((h, h, h), "LSTMCell: expected hx to be a tuple of 2 initial states (h, c), got 3 states"),
        (5, "LSTMCell: hx should be a Tensor or a tuple of them, got builtins.int"),
        (
            (h, h.to_sparse()),
            f"LSTMCell: state c of hx has layout {torch.sparse_coo}, which is not supported; {convert[:-5]}.to_dense()",
        ),
        ((h, 1), "LSTMCell: hx: state c should be a Tensor, got int"),
        ((h, h.double()), f"LSTMCell: state c of hx is torch.float64 on cpu, but the input is torch.float32 on cpu; {convert}"),
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError), match=f"^{re.escape(message)}$"):
            module(x, hx)
    with pytest.raises(TypeError, match=r"^LSTMCell: input should be a Tensor, got list$"):
        module([[0.0] * 3])
    with pytest.raises(TypeError, match=r"^LSTMCell: the cell 'lstm' has no per-step input 'z'; it has: none$"):
        module(x, z=x)


@pytest.mark.parametrize("option", sorted({*OPTIONS, *signature(anyrnn.torch.Recurrent).parameters} - OF_ITS_OWN))
def test_options_of_sequences_are_refused(option: str) -> None:
    message = f"^RecurrentCell: {option} is for sequences, and a cell takes single steps; anyrnn.torch.Recurrent has it$"
    with pytest.raises(TypeError, match=message):
        anyrnn.torch.RecurrentCell("lstm", 3, 5, **{option: 0.5})


def test_options_of_steps() -> None:
    module = anyrnn.torch.GRUCell(3, 5, clip_state=0.01)
    assert module(torch.randn(4, 3)).abs().max() <= 0.01
    module = anyrnn.torch.LSTMCell(3, 5, zoneout=0.5)
    x, threes = torch.randn(400, 3), torch.full((400, 5), 3.0)
    assert 0.4 < (module(x, (threes, threes))[1] == 3.0).float().mean() < 0.6
    assert module.eval()(x, (threes, threes))[1].ne(3.0).all()


def test_further_inputs() -> None:
    module = anyrnn.torch.RecurrentCell(gated, 3, 5)
    x, gate = torch.randn(2, 3), torch.rand(2, 5)
    assert torch.equal(module(x, gate=gate)[0][1:], module(x[1:], gate=gate[1:])[0])
    torch.testing.assert_close(module(x[0], gate=gate[0])[0], module(x, gate=gate)[0][0])
    with pytest.raises(TypeError, match=r"^RecurrentCell: gate should be a Tensor, got float$"):
        module(x, gate=0.5)
    with pytest.raises(RuntimeError, match=r"^RecurrentCell: expected gate to have shape \(2, 5\), got \[2, 4\]$"):
        module(x, gate=gate[:, :4])
    with pytest.raises(TypeError, match=r"has no per-step input 'lengths'; it has: gate$"):
        module(x, gate=gate, lengths=[1])


def test_a_parameter_named_as_an_attribute_of_modules() -> None:
    @anyrnn.cell
    def shifted(x, h):  # type: ignore[no-untyped-def]
        h = anyrnn.tanh(anyrnn.affine("n", x, h) + anyrnn.vector("bias"))
        return h, anyrnn.State(h=h)

    assert anyrnn.torch.Recurrent(shifted, 3, 5).bias_l0.shape == (5,)
    with pytest.raises(ValueError, match=r"^RecurrentCell: parameter 'bias' of cell 'shifted' has the name of an attribute"):
        anyrnn.torch.RecurrentCell(shifted, 3, 5)


def test_a_cell_without_parameters() -> None:
    module = anyrnn.torch.RecurrentCell(adding, 3, 3)
    assert torch.equal(module(torch.ones(2, 3), torch.ones(2, 3))[0], torch.full((2, 3), 2.0))
    with pytest.raises(TypeError, match=r"^RecurrentCell: input should be a Tensor, got list$"):
        module([1.0])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies(again: Any) -> None:
    module, x = anyrnn.torch.GRUCell(3, 5), torch.randn(2, 3)
    assert torch.equal(again(module)(x), module(x))


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [1, 0, None, np.bool_(True)])
def test_what_torchs_cells_take_as_sizes_and_bias(kind: str, bias: Any) -> None:
    sizes = torch.prod(torch.tensor([3])), np.int64(4)
    ours, theirs = getattr(anyrnn.torch, kind)(*sizes, bias), getattr(torch.nn, kind)(*sizes, bias)
    assert {name: p.shape for name, p in ours.named_parameters()} == {name: p.shape for name, p in theirs.named_parameters()}
    swapped = anyrnn.torch.swap(torch.nn.Sequential(theirs))
    assert type(swapped[0]).__module__.startswith("anyrnn")
