"""Puts our modules in the place of torch's in a model that is made already, and torch's back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from torch import nn
from torch.nn.utils import parametrize

from anyrnn.errors import UnsupportedError
from anyrnn.torch import standard
from anyrnn.torch.cell import RecurrentCell
from anyrnn.torch.module import Module

M = TypeVar("M", bound=nn.Module)

OURS: dict[type[nn.Module], type[Module]] = {
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
    """Put `RNN`, `LSTM`, `GRU` and their cells in the place of torch.nn's, wherever they are in a model.

    The model is changed in place. Parameters, buffers and hooks are the same objects as before, so optimisers go on, and so are
    parametrisations, pruning and weight norm. Modules of classes derived from torch's stay as they are, and so do those on a
    device or of a dtype that has no kernels yet; a warning names them.

    Args: model: any module.
    Returns: the model; of a single recurrent module, what took its place.

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
        kind = _kind(module)
        if kind not in OURS:
            if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
                kept.append(f"{name} ({kind.__name__} is a class of its own)")
            return module
        made = _moved(module, OURS[kind])
        reason = made.why_not_native
        if reason and not next(made.parameters()).is_meta:
            kept.append(f"{name} ({reason})")
            return module
        return made

    result = _replaced(model, ours)
    if kept:
        warnings.warn(f"swap has left torch's modules: {', '.join(kept)}", UserWarning, stacklevel=2)
    return result


def swap_back(model: M) -> M | nn.Module:
    """Put torch.nn's `RNN`, `LSTM`, `GRU` and their cells in the place of ours; see `swap`, which this undoes.

    Raises: UnsupportedError for a module with options that torch's have not; then nothing has changed. A `backend` and a
    `memory_budget` are forgotten. Other modules of ours, such as `Recurrent`, stay as they are.
    """
    for name, module in model.named_modules():
        if isinstance(module, Module) and _kind(module) in THEIRS:
            more = sorted(module.options.keys() - {"proj"}) or (
                [] if isinstance(module.bias, bool) else [f"bias={module.bias!r}"]
            )
            if more:
                raise UnsupportedError(f"swap_back: {name or type(module).__name__}: torch.nn has no {', '.join(more)}")

    def theirs(name: str, module: nn.Module) -> nn.Module:
        kind = _kind(module)
        return _moved(module, THEIRS[kind]) if kind in THEIRS else module

    return _replaced(model, theirs)


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


def _moved(module: nn.Module, kind: type[M]) -> M:
    """A module of another kind with all that one has."""
    is_cell = isinstance(module, (nn.RNNCellBase, RecurrentCell))
    given = {name: getattr(module, name) for name in (OF_CELLS if is_cell else OF_LAYERS)}
    given |= {name: getattr(module, name) for name in ("nonlinearity", "proj_size") if getattr(module, name, 0)}
    as_made, moved = _kind(module)(**given, device="meta"), kind(**given, device="meta")
    if not is_cell:
        moved.dropout = module.dropout
    for name in dict(getattr(module, "parametrizations", nn.ModuleDict()).items()):
        parametrize.register_parametrization(moved, name, nn.Identity())  # gives it the class; the parametrisations come below
    for name, value in vars(module).items():
        if name in OF_EVERY_MODULE or name not in vars(as_made):
            moved.__dict__[name] = value
    return moved
