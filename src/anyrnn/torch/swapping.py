"""Puts our modules in the place of torch's in a model that is made already, and torch's back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from anyrnn.backends.llvm import run as llvm
from anyrnn.errors import UnsupportedError
from anyrnn.torch import standard
from anyrnn.torch.base import RecurrentBase
from anyrnn.torch.calls import DTYPES
from anyrnn.torch.cell import RecurrentCell

M = TypeVar("M", bound=nn.Module)

OURS: dict[type[nn.Module], type[RecurrentBase]] = {
    nn.RNN: standard.RNN,
    nn.LSTM: standard.LSTM,
    nn.GRU: standard.GRU,
    nn.RNNCell: standard.RNNCell,
    nn.LSTMCell: standard.LSTMCell,
    nn.GRUCell: standard.GRUCell,
}
THEIRS: dict[type[nn.Module], type[nn.Module]] = {ours: theirs for theirs, ours in OURS.items()}
OF_CELLS = ("input_size", "hidden_size", "bias")
OF_LAYERS = (*OF_CELLS, "num_layers", "batch_first", "bidirectional")
"""What modules of both kinds are made with, and remember."""
OF_EVERY_MODULE = tuple(vars(nn.Module()))
"""Parameters, buffers, submodules, hooks and the mode."""


def swap(model: M) -> M | nn.Module:
    """Put `RNN`, `LSTM`, `GRU` and their cells in the place of torch.nn's, wherever they are submodules of a model.

    The model is changed in place. Parameters, buffers and hooks are the same objects as before, so optimisers go on, and so are
    parametrisations, pruning and weight norm. What stays as it is, is named in a warning: modules of classes derived from
    torch's, compiled ones, those with a `forward` or other attributes of their own that ours would not heed, and those on a
    device or of a dtype that has no kernels yet (so move a model before); layers of bfloat16 are exchanged on processors that
    multiply pairs of such numbers in the time of one product of float32. What a model keeps of a module elsewhere, in a list or
    a closure, is still torch's. Cells are exchanged too: a step takes about as long as torch's; one of a tanh
    network that is trained takes longer.

    Args: model: any module.
    Returns: the model; of a single recurrent module, what took its place. Raises: TypeError for what is no module.

    Example:
        >>> import torch, anyrnn.torch
        >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 3), torch.nn.LSTM(3, 5))
        >>> anyrnn.torch.swap(model)
        Sequential(
          (0): Embedding(10, 3)
          (1): LSTM(3, 5)
        )
        >>> type(model[1]).__module__
        'anyrnn.torch.standard'
    """
    kept: list[str] = []

    def ours(name: str, module: nn.Module) -> nn.Module:
        if not isinstance(module, tuple(OURS)):
            return module
        reason = _why_not(name, module)
        if reason:
            kept.append(f"{name} ({reason})")
            return module
        return _moved(module, OURS[_kind(module)])

    check_module(model, "swap")
    result = _replaced(model, ours)
    if kept:
        warnings.warn(f"swap has left torch's modules: {', '.join(kept)}", UserWarning, stacklevel=2)
    return result


def swap_back(model: M) -> M | nn.Module:
    """Put torch.nn's `RNN`, `LSTM`, `GRU` and their cells in the place of ours; see `swap`, which this undoes.

    A `backend` and a `memory_budget` are forgotten. Other modules of ours, such as `Recurrent`, stay as they are.

    Args: model: any module.
    Returns: the model; of a single recurrent module, what took its place. Raises: TypeError for what is no module; and then
    nothing has changed, UnsupportedError for a module with options or products that torch's have not, or that is compiled.
    """
    check_module(model, "swap_back")
    for name, module in model.named_modules():
        if isinstance(module, RecurrentBase) and _kind(module) in THEIRS:
            _check_back(name or type(module).__name__, module)

    def theirs(name: str, module: nn.Module) -> nn.Module:
        kind = _kind(module)
        return _moved(module, THEIRS[kind]) if kind in THEIRS else module

    return _replaced(model, theirs)


def check_module(model: Any, who: str) -> None:
    if not isinstance(model, nn.Module):
        kind = model if isinstance(model, type) else type(model)
        raise TypeError(f"{who}: model should be a torch.nn.Module, got {kind.__name__}")


def _check_back(name: str, module: RecurrentBase) -> None:
    more = sorted(module.options.keys() - {"proj"})
    if not isinstance(module.bias, bool):
        more.append(f"bias={module.bias!r}")
    if more:
        raise UnsupportedError(f"swap_back: {name}: torch.nn has no {', '.join(more)}")
    if own := _own_calls(name, module):
        raise UnsupportedError(f"swap_back: {name} {own}")
    if module.int8:
        raise UnsupportedError(f"swap_back: {name} has products of int8, which torch.nn has not; train() or freeze() ends them")


def _why_not(name: str, module: nn.Module) -> str | None:
    """Why a module of torch's stays, or None."""
    kind = _kind(module)
    if kind not in OURS:
        return f"{kind.__name__} is a class of its own"
    if own := _own_calls(name, module):
        return own
    as_made, ours = kind(**_arguments(module), device="meta"), OURS[kind](**_arguments(module), device="meta")
    lost = sorted((vars(module).keys() - vars(as_made).keys() - set(OF_EVERY_MODULE)) & vars(ours).keys())
    if lost:
        return f"has attributes that ours needs itself: {', '.join(lost)}"
    parameter = next(module.parameters(), None)
    if parameter is None or (parameter.is_meta and parameter.dtype in DTYPES):
        return None
    pairs = parameter.dtype is torch.bfloat16 and ours._is_widened(parameter) and llvm.multiplies_pairs()
    if pairs and not _is_cell(module):
        return None  # products take half the time of float32's; single steps are nothing but conversions
    return ours._why_not_native(parameter)


def _own_calls(name: str, module: nn.Module) -> str | None:
    """What a module has that would still be called when another has taken its place."""
    if vars(module).get("_compiled_call_impl") is not None or name.rpartition(".")[2] == "_orig_mod":
        return "is compiled: swap before"
    return "has a forward of its own" if "forward" in vars(module) else None


def _kind(module: nn.Module) -> type[nn.Module]:
    """A module's class, beneath that which parametrisations give it."""
    return type(module).__mro__[1] if parametrize.is_parametrized(module) else type(module)


def _replaced(model: nn.Module, choose: Callable[[str, nn.Module], nn.Module]) -> nn.Module:
    """Exchange modules in place. Each is chosen once, wherever it stands."""
    chosen = {module: choose(name or type(module).__name__, module) for name, module in model.named_modules()}
    for module in chosen:
        for name, child in module._modules.items():
            if child is not None and chosen[child] is not child:
                module._modules[name] = chosen[child]
    return chosen[model]


def _arguments(module: nn.Module) -> dict[str, Any]:
    given = {name: getattr(module, name) for name in (OF_CELLS if _is_cell(module) else OF_LAYERS)}
    return given | {name: getattr(module, name) for name in ("nonlinearity", "proj_size") if getattr(module, name, 0)}


def _is_cell(module: nn.Module) -> bool:
    return isinstance(module, (nn.RNNCellBase, RecurrentCell))


def _moved(module: nn.Module, kind: type[M]) -> M:
    """A module of another kind with all that one has. The dictionaries of parameters, hooks and so on are the same ones, as the
    handles of hooks refer to them.
    """
    as_made, moved = _kind(module)(**_arguments(module), device="meta"), kind(**_arguments(module), device="meta")
    if not _is_cell(module):
        moved.dropout = module.dropout
    parametrised = parametrize.is_parametrized(module)
    for name in getattr(module, "parametrizations", ()):
        parametrize.register_parametrization(moved, name, nn.Identity())  # gives it the class; the parametrisations come below
    for name, value in vars(module).items():
        if name in OF_EVERY_MODULE or name not in vars(as_made).keys() | vars(moved).keys():
            moved.__dict__[name] = value
    hooks: dict[int, Any] = moved._load_state_dict_pre_hooks
    for key, hook in hooks.items():
        if getattr(hook, "with_module", False):  # it refers to the module
            hooks[key] = type(hook)(hook.hook, moved)
    if isinstance(moved, nn.RNNBase) and not parametrised:
        moved._init_flat_weights()
    return moved
