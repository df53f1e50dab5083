"""New weights are what the next call uses, however they came; copies and pickles are layers of their own."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize

import anyrnn.torch
from anyrnn import State, cell
from anyrnn.trace.language import affine, matrix, tanh
from tests.budget import assert_relative
from tests.torch.layers import pair, solve

D, H, LAYERS = 4, 7, 2
kinds = pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])


@cell
def plain(x, h):
    h = tanh(affine("a", x, h))
    return h, State(h=h)


@cell
def antisymmetric(x, h):
    w = matrix("w")
    h = tanh((w - w.T) @ h + affine("a", x))
    return h, State(h=h)


def inputs(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(5, 3, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)


def assert_like_torch(ours: Any, theirs: Any, what: str) -> None:
    """That both give the same now, without gradients and with them."""
    x = inputs()
    with torch.no_grad():
        inference = ours(x)[0]
    expected, found = solve(theirs, x), solve(ours, x)
    assert torch.equal(inference, found["output"])
    for name, value in expected.items():
        assert_relative(found[name], value, "float64 against torch.nn", f"{what}: {name}")


def optimise(make: Callable[..., torch.optim.Optimizer], layer: Any) -> None:
    optimizer = make(layer.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        layer(inputs())[0].square().sum().backward()
        optimizer.step()


def copy_data(layer: Any) -> None:
    for parameter in layer.parameters():
        parameter.data.copy_(parameter.detach().flip(0) * 1.5)


def replace_data(layer: Any) -> None:
    for parameter in layer.parameters():
        parameter.data = 0.5 * parameter.detach().flip(0)


def other_layout(layer: Any) -> None:
    """The same memory, read along its other dimension."""
    for parameter in layer.parameters():
        if parameter.dim() == 2:
            parameter.data = parameter.detach().flatten().reshape(parameter.shape[1], parameter.shape[0]).t()


def opposite(layer: Any) -> None:
    """Numbers that are kept in memory as their opposites."""
    for parameter in layer.parameters():
        parameter.data = torch._neg_view(2 * parameter.detach())
        assert parameter.is_neg()
        assert parameter.is_contiguous()


def add_in_place(layer: Any) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.25)


def load_state(layer: Any) -> None:
    layer.load_state_dict({name: value.sin() for name, value in layer.state_dict().items()})


def assign_state(layer: Any) -> None:
    layer.load_state_dict({name: value.sin() for name, value in layer.state_dict().items()}, assign=True)


def new_parameters(layer: Any) -> None:
    layer.weight_hh_l0 = torch.nn.Parameter(layer.weight_hh_l0.detach().exp() - 1)


def through_memory(layer: Any) -> None:
    """As another library would that shares the memory."""
    for parameter in layer.parameters():
        parameter.detach().numpy()[...] *= 0.5


CHANGES: dict[str, Callable[[Any], None]] = {
    "Adam": lambda layer: optimise(torch.optim.Adam, layer),
    "fused Adam": lambda layer: optimise(lambda p: torch.optim.Adam(p, lr=0.1, fused=True), layer),
    "fused AdamW": lambda layer: optimise(lambda p: torch.optim.AdamW(p, lr=0.1, fused=True), layer),
    "fused SGD": lambda layer: optimise(lambda p: torch.optim.SGD(p, lr=0.1, fused=True), layer),
    "data.copy_": copy_data,
    "data": replace_data,
    "data in another layout": other_layout,
    "data kept as opposites": opposite,
    "add_": add_in_place,
    "load_state_dict": load_state,
    "load_state_dict, assigning": assign_state,
    "a new parameter": new_parameters,
    "memory": through_memory,
    "float and back": lambda layer: layer.float().double(),
}


@kinds
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_used(kind: str, change: str) -> None:
    ours, theirs = pair(kind, D, H, LAYERS, dtype=torch.float64)
    assert_like_torch(ours, theirs, "before")
    with torch.no_grad():
        before = [ours(inputs())[0] for _ in range(2)][1]
    CHANGES[change](ours)
    assert not torch.equal(ours(inputs())[0], before)
    theirs.load_state_dict(ours.state_dict())
    assert_like_torch(ours, theirs, change)


@kinds
def test_weight_norm(kind: str) -> None:
    ours, theirs = pair(kind, D, H, LAYERS, dtype=torch.float64)
    for layer in (ours, theirs):
        parametrizations.weight_norm(layer, "weight_hh_l0", dim=0)
    names = ["parametrizations.weight_hh_l0.original0", "parametrizations.weight_hh_l0.original1"]
    assert set(names) < set(dict(ours.named_parameters()))
    for _ in range(2):
        assert_like_torch(ours, theirs, "weight_norm")
        assert all(dict(ours.named_parameters())[name].grad.abs().max() > 0 for name in names)
        torch.optim.SGD(ours.parameters(), lr=0.1).step()
        theirs.load_state_dict(ours.state_dict())
    assert_like_torch(copy.deepcopy(ours), theirs, "a copy")
    for layer in (ours, theirs):
        parametrize.remove_parametrizations(layer, "weight_hh_l0")
    assert_like_torch(ours, theirs, "removed")


def test_weight_norm_before_a_parameter_phase() -> None:
    """Of a cell that computes with its parameters."""
    x, gradients = inputs(), []
    for backend in ("llvm", "reference"):
        torch.manual_seed(0)
        layer = anyrnn.torch.Recurrent(antisymmetric, D, H, backend=backend, dtype=torch.float64)
        parametrizations.weight_norm(layer, "w_l0")
        gradients.append(solve(layer, x))
    for name, value in gradients[1].items():
        assert_relative(gradients[0][name], value, "llvm float64 against the reference backend", name)


@kinds
def test_another_dtype(kind: str) -> None:
    ours, theirs = pair(kind, D, H, LAYERS)
    torch.testing.assert_close(ours(inputs(torch.float32))[0], theirs(inputs(torch.float32))[0])
    ours.to(torch.float64)
    theirs.to(torch.float64)
    assert_like_torch(ours, theirs, "float64")
    for dtype in (torch.bfloat16, torch.float16):  # by the kernels of float32
        y = ours.to(dtype)(inputs(dtype))[0]
        assert y.dtype == dtype
        assert ours.backend_name == "llvm"
        assert_relative(y.float(), theirs.to(dtype)(inputs(dtype))[0].float(), "16 bits against torch.nn", str(dtype))


# copies


def saved_and_loaded(layer: Any) -> Any:
    memory = io.BytesIO()
    torch.save(layer, memory)
    memory.seek(0)
    return torch.load(memory, weights_only=False)


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    "torch.save": saved_and_loaded,
}
LAYERS_TO_COPY: dict[str, Callable[[], Any]] = {
    "lstm": lambda: anyrnn.torch.LSTM(D, H, 2, bidirectional=True, proj_size=3),
    "gru with dropout": lambda: anyrnn.torch.GRU(D, H, 2, batch_first=True, dropout=0.5).eval(),
    "rnn": lambda: anyrnn.torch.RNN(D, H, nonlinearity="relu", backend="reference"),
    "a cell by its name": lambda: anyrnn.torch.Recurrent("lstm_layernorm", D, H),
    "a cell of this file": lambda: anyrnn.torch.Recurrent(plain, D, H),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("made", LAYERS_TO_COPY)
def test_a_copy_is_a_layer_of_its_own(made: str, how: str) -> None:
    layer = LAYERS_TO_COPY[made]()
    x = inputs(torch.float32)
    expected = layer(x)[0]
    other = COPIES[how](layer)
    assert type(other) is type(layer)
    assert repr(other) == repr(layer)
    assert other.cell is layer.cell
    assert other.backend_name == layer.backend_name
    assert torch.equal(other(x)[0], expected)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert torch.equal(layer(x)[0], expected)
    assert not torch.equal(other(x)[0], expected)


def test_a_local_cell_can_be_copied_but_not_pickled() -> None:
    @cell
    def local(x, h):
        h = tanh(affine("a", x, h))
        return h, State(h=h)

    layer = anyrnn.torch.Recurrent(local, D, H)
    x = inputs(torch.float32)
    assert torch.equal(copy.deepcopy(layer)(x)[0], layer(x)[0])
    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(layer)


def test_a_pickle_means_the_same_in_another_process(tmp_path: Path) -> None:
    """Where other layers were made first."""
    layer = anyrnn.torch.LSTM(D, H, 2, batch_first=True)
    x = torch.randn(3, 5, D)
    torch.save((layer, x, layer(x)[0].detach()), tmp_path / "layer.pt")
    program = """
        import sys, torch, anyrnn.torch
        anyrnn.torch.GRU(2, 3), anyrnn.torch.RNN(2, 3, dropout=0.0)
        layer, x, y = torch.load(sys.argv[1], weights_only=False)
        assert torch.equal(layer(x)[0], y)
    """
    lines = "\n".join(line.strip() for line in program.splitlines())
    subprocess.run([sys.executable, "-c", lines, str(tmp_path / "layer.pt")], check=True, timeout=120)


def test_a_state_dict_goes_through_a_file(tmp_path: Path) -> None:
    ours, theirs = pair("lstm", D, H, LAYERS, dtype=torch.float64)
    torch.save(theirs.state_dict(), tmp_path / "state.pt")
    torch.manual_seed(9)
    other = anyrnn.torch.LSTM(D, H, LAYERS, dtype=torch.float64)
    other.load_state_dict(torch.load(tmp_path / "state.pt"), strict=True)
    assert_like_torch(other, theirs, "from a file")
    assert torch.equal(other(inputs())[0], ours(inputs())[0])


def test_functional_call() -> None:
    ours, theirs = pair("gru", D, H, LAYERS, dtype=torch.float64)
    weights = {name: value.detach() * 0.5 for name, value in ours.named_parameters()}
    found, expected = (torch.func.functional_call(layer, weights, (inputs(),))[0] for layer in (ours, theirs))
    assert_relative(found, expected, "float64 against torch.nn", "functional_call")
    assert_like_torch(ours, theirs, "after")


def test_parameters_may_be_exchanged_rather_than_changed() -> None:
    """Torch exchanges tensors only where nobody refers to them weakly."""
    layer, x = anyrnn.torch.LSTM(4, 8), torch.randn(3, 2, 4)
    with torch.no_grad():
        before = layer(x)[0]
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            layer.to(torch.float64)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        torch.testing.assert_close(layer(x.double())[0].float(), before)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize(
    "make", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "deepcopy", "pickle"]
)
def test_copies_of_a_layer_that_was_compiled_in_place_are_their_own(make):
    layer, x = anyrnn.torch.LSTM(3, 5), torch.randn(4, 2, 3)
    layer.compile(backend="eager")
    other = make(layer)
    assert other._compiled_call_impl is None
    if make is not copy.copy:
        with torch.no_grad():
            for p in other.parameters():
                p.zero_()
        assert not other(x)[0].any()
    assert layer._compiled_call_impl is not None
    assert layer(x)[0].any()


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_first_values_of_a_subclass_see_what_the_layer_is(kind):
    seen = []

    def reset_parameters(self):
        seen.append(self.nonlinearity if kind == "RNN" else self.proj_size)

    theirs, ours = (
        type("Mine", (getattr(library, kind),), {"reset_parameters": reset_parameters}) for library in (torch.nn, anyrnn.torch)
    )
    for made in (theirs, ours):
        made(3, 5, **({"nonlinearity": "relu"} if kind == "RNN" else {"proj_size": 2}))
    assert seen == (["relu", "relu"] if kind == "RNN" else [2, 2])


def test_states_of_a_replica():
    """Whose parameters are plain attributes, as DataParallel has them."""
    layer = anyrnn.torch.GRU(3, 5)
    replica = layer._replicate_for_data_parallel()
    for name, parameter in layer.named_parameters():
        setattr(replica, name, parameter.detach())
    assert replica.initial_state(2).h.shape == (1, 2, 5)
    assert replica.backend_name == layer.backend_name
