"""`swap` and `swap_back`: the same parameters, hooks and results in modules of the other kind."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import anyrnn
import anyrnn.torch
from anyrnn.errors import UnsupportedError
from tests.networks import NO_PAIRS, on_processor

MAKERS: dict[str, Callable[[], nn.Module]] = {
    "rnn": lambda: nn.RNN(3, 5, 2, nonlinearity="relu", bias=False),
    "lstm": lambda: nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True),
    "lstm_projected": lambda: nn.LSTM(3, 5, proj_size=2),
    "gru": lambda: nn.GRU(3, 5, 2, dropout=0.25),
    "rnn_cell": lambda: nn.RNNCell(3, 5, nonlinearity="relu"),
    "lstm_cell": lambda: nn.LSTMCell(3, 5, bias=False),
    "gru_cell": lambda: nn.GRUCell(3, 5),
}


def results(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Of a call, and gradients of all parameters, of a module in evaluation."""
    module.zero_grad()
    found = module(x)
    flat = [t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, Tensor)]
    sum((t * torch.arange(1.0, t.numel() + 1, dtype=t.dtype).view(t.shape)).sum() for t in flat).backward()  # type: ignore[union-attr]
    return [*(t.detach() for t in flat), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


def check_close(module: nn.Module, expected: list[Tensor], x: Tensor) -> None:
    found = results(module, x)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def state_of(module: nn.Module) -> dict[str, Any]:
    return {k: v for k, v in vars(module).items() if k not in ("_flat_weights", "_flat_weight_refs")}


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's own
@pytest.mark.parametrize("kind", MAKERS)
def test_there_and_back(kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), MAKERS[kind]()).double().eval()
    theirs, parameters = model[1], list(model.parameters())
    x = torch.randn(*((4, 2) if "cell" not in kind else (4,)), 3, dtype=parameters[0].dtype)
    expected, text = results(model, x), str(model)
    hook_calls: list[str] = []
    handle = theirs.register_forward_hook(lambda *_: hook_calls.append("hook"))
    assert anyrnn.torch.swap(model) is model
    assert type(model[1]) is getattr(anyrnn.torch, type(theirs).__name__)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert not model[1].training
    check_close(model, expected, x)
    assert hook_calls == ["hook"]
    handle.remove()
    assert anyrnn.torch.swap_back(model) is model
    assert type(model[1]) is type(theirs)
    assert str(model) == text
    assert state_of(model[1]).keys() == state_of(theirs).keys()
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    check_close(model, expected, x)
    assert hook_calls == ["hook"]
    assert getattr(model[1], "dropout", 0) == getattr(theirs, "dropout", 0)


def test_a_single_module() -> None:
    theirs = nn.GRU(3, 5)
    ours = anyrnn.torch.swap(theirs)
    assert type(ours) is anyrnn.torch.GRU
    assert type(anyrnn.torch.swap_back(ours)) is nn.GRU


def test_a_module_in_two_places_stays_one() -> None:
    shared = nn.LSTM(3, 3)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})
    anyrnn.torch.swap(model)
    assert type(model["a"]) is anyrnn.torch.LSTM
    assert model["a"] is model["b"][0]  # type: ignore[index]


def test_an_optimiser_goes_on() -> None:
    """Parameters are the same objects, and so is what an optimiser remembers of them."""
    torch.manual_seed(0)
    model = nn.LSTM(3, 5).double()
    other = copy.deepcopy(model)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    losses: list[list[float]] = []
    for trained, swaps in ((model, False), (other, True)):
        optimiser, run, found = torch.optim.Adam(trained.parameters(), 0.05), trained, []
        for step in range(10):
            if swaps and step == 5:
                run = anyrnn.torch.swap(run)  # type: ignore[assignment]
            optimiser.zero_grad()
            loss = run(x)[0].square().mean()
            loss.backward()
            optimiser.step()
            found.append(loss.item())
        losses.append(found)
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_weight_norm_by_a_hook() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 5).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(model, "weight_hh_l0")
    check_both_ways(model)


def check_both_ways(model: nn.Module) -> None:
    x, names = torch.randn(4, 2, 3, dtype=torch.float64), list(model.state_dict())
    expected = results(model, x)
    ours = anyrnn.torch.swap(model)
    assert type(ours).__name__ in ("LSTM", "ParametrizedLSTM")
    assert isinstance(ours, anyrnn.torch.LSTM)
    assert list(ours.state_dict()) == names
    check_close(ours, expected, x)
    back = anyrnn.torch.swap_back(ours)
    assert isinstance(back, nn.LSTM)
    assert list(back.state_dict()) == names
    check_close(back, expected, x)


def test_parametrisations() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 5).double()
    parametrizations.weight_norm(model, "weight_hh_l0")
    parametrizations.orthogonal(model, "weight_ih_l0")
    check_both_ways(model)
    ours = anyrnn.torch.swap(model)
    parametrize.remove_parametrizations(ours, "weight_hh_l0")
    assert isinstance(ours.weight_hh_l0, nn.Parameter)


def test_spectral_norm_goes_on_where_it_was() -> None:
    """Its vectors move with every training call, by as much as those of torch's cell do."""
    torch.manual_seed(0)
    theirs = nn.GRUCell(3, 5)
    for name in ("weight_ih", "weight_hh"):
        parametrizations.spectral_norm(theirs, name)
    ours, x = anyrnn.torch.swap(copy.deepcopy(theirs)), torch.randn(2, 3)
    before = [b.clone() for b in ours.buffers()]
    assert anyrnn.explain(ours, x).backend == "llvm"  # which asks for no parametrisation
    assert all(map(torch.equal, before, ours.buffers()))
    for _ in range(2):
        torch.testing.assert_close(ours(x), theirs(x))
    assert not any(map(torch.equal, before, ours.buffers()))
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_pruning() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 5).double()
    prune.l1_unstructured(model, "weight_hh_l0", amount=0.5)
    check_both_ways(model)


class OfUser(nn.LSTM):
    pass


def test_what_stays_is_told() -> None:
    model = nn.ModuleDict({"own": OfUser(3, 5), "brief": nn.GRU(3, 5, dtype=torch.float16), "usual": nn.GRU(3, 5)})
    with pytest.warns(UserWarning, match="swap has left") as caught:
        anyrnn.torch.swap(model)
    (warning,) = caught
    assert warning.filename == __file__
    half = "brief (dtype torch.float16 has no kernels (float32 and float64 have))"
    assert str(warning.message) == f"swap has left torch's modules: own (OfUser is a class of its own), {half}"
    assert [type(m).__module__.partition(".")[0] for m in model.values()] == [__name__.partition(".")[0], "torch", "anyrnn"]


@pytest.mark.parametrize("worth_it", [False, pytest.param(True, marks=NO_PAIRS)])
def test_layers_of_bfloat16(worth_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    on_processor(monkeypatch, multiplies_pairs=worth_it)
    model = nn.ModuleDict({"layer": nn.GRU(3, 5, dtype=torch.bfloat16), "cell": nn.GRUCell(3, 5, dtype=torch.bfloat16)})
    with pytest.warns(UserWarning, match="cell .dtype torch.bfloat16 has no kernels"):
        anyrnn.torch.swap(model)
    assert [type(m).__module__.partition(".")[0] for m in model.values()] == ["anyrnn" if worth_it else "torch", "torch"]


def test_options_that_torch_has_not() -> None:
    model = nn.ModuleDict({"plain": anyrnn.torch.GRU(3, 5), "more": anyrnn.torch.LSTM(3, 5, zoneout=0.1)})
    with pytest.raises(UnsupportedError, match=r"^swap_back: more: torch.nn has no zoneout$"):
        anyrnn.torch.swap_back(model)
    assert type(model["plain"]) is anyrnn.torch.GRU
    compiled = anyrnn.torch.LSTM(3, 5)
    compiled.compile(backend="eager")
    with pytest.raises(UnsupportedError, match=r"^swap_back: LSTM is compiled: swap before$"):
        anyrnn.torch.swap_back(compiled)
    with pytest.raises(UnsupportedError, match=r"^swap_back: LSTM: torch.nn has no bias='input'$"):
        anyrnn.torch.swap_back(anyrnn.torch.LSTM(3, 5, bias="input"))  # type: ignore[arg-type]


def test_before_there_is_memory() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.LSTM(3, 5))
    anyrnn.torch.swap(model)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert model(torch.randn(4, 2, 3))[0].eq(0).all()


def test_attributes_of_the_user_and_pickles() -> None:
    model = nn.LSTM(3, 5)
    model.note = "mine"  # type: ignore[assignment]
    ours = anyrnn.torch.swap(model)
    assert ours.note == "mine"
    assert pickle.loads(pickle.dumps(ours)).note == "mine"
    assert anyrnn.torch.swap_back(copy.deepcopy(ours)).note == "mine"


def compiled(module: nn.Module) -> nn.Module:
    module.compile(backend="eager")
    return module


def patched(module: nn.Module) -> nn.Module:
    module.forward = lambda *given: given  # type: ignore[method-assign,assignment]
    return module


def with_attribute(module: nn.Module) -> nn.Module:
    module.network = 3  # type: ignore[assignment]
    return module


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (compiled, "0 (is compiled: swap before)"),
        (lambda module: torch.compile(module, backend="eager"), "0._orig_mod (is compiled: swap before)"),
        (patched, "0 (has a forward of its own)"),
        (with_attribute, "0 (has attributes that ours needs itself: network)"),
    ],
    ids=["compiled", "compiled around", "patched", "with attribute"],
)
def test_what_would_not_be_heeded_stays(change: Callable[[nn.Module], nn.Module], why: str) -> None:
    theirs = nn.LSTM(3, 5)
    theirs.register_load_state_dict_pre_hook(lambda *_: None)
    model = nn.Sequential(change(theirs))
    with pytest.warns(UserWarning, match=f"^{re.escape(f'swap has left torch{chr(39)}s modules: {why}')}$"):
        anyrnn.torch.swap(model)
    assert theirs in model.modules()
    model.load_state_dict(model.state_dict())


def test_a_hook_that_is_given_the_module() -> None:
    model, seen = nn.Sequential(nn.LSTM(3, 5)), []
    model[0].register_load_state_dict_pre_hook(lambda module, *_: seen.append(module))
    for exchange in (anyrnn.torch.swap, anyrnn.torch.swap_back):
        exchange(model)
        gc.collect()
        model.load_state_dict(model.state_dict())
        assert seen[-1] is model[0]


def test_torchscript_after_the_way_back() -> None:
    model, x = nn.Sequential(nn.LSTM(3, 5)), torch.randn(4, 2, 3)
    expected = model(x)[0]
    anyrnn.torch.swap_back(anyrnn.torch.swap(model))
    assert all(a is b for a, b in zip(model[0]._flat_weights, model.parameters(), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
        assert torch.equal(torch.jit.script(model)(x)[0], expected)


def test_meta_modules_of_a_dtype_without_kernels_stay() -> None:
    with pytest.warns(UserWarning, match="swap has left torch's modules: LSTM .dtype torch.bfloat16 has no kernels"):
        anyrnn.torch.swap(nn.LSTM(3, 5, device="meta", dtype=torch.bfloat16))


@pytest.mark.parametrize("given", [None, 3, nn.LSTM])
def test_what_is_no_module(given: Any) -> None:
    for exchange in (anyrnn.torch.swap, anyrnn.torch.swap_back):
        with pytest.raises(TypeError, match=f"^{exchange.__name__}: model should be a torch.nn.Module, got "):
            exchange(given)


def test_a_default_device_does_not_decide_where_parameters_are() -> None:
    with torch.device("meta"):
        layer = anyrnn.torch.GRU(3, 4, device="cpu")
    assert layer(torch.zeros(2, 1, 3))[0].isfinite().all()
    with torch.device("cpu"):
        assert anyrnn.torch.GRU(3, 4, device="meta").weight_ih_l0.is_meta
    theirs = torch.nn.GRU(3, 4)
    with torch.device("meta"):
        swapped = anyrnn.torch.swap(theirs)
    assert torch.equal(swapped(torch.ones(2, 1, 3))[0], anyrnn.torch.swap(theirs)(torch.ones(2, 1, 3))[0])
    state = anyrnn.torch.GRU(3, 4).initial_state(2)
    with torch.device("meta"):
        assert state.index([1, 0]).arrays[0].shape == (1, 2, 4)
