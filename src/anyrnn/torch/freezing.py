"""Freezes all layers of a model."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from anyrnn.torch.base import RecurrentBase
from anyrnn.torch.swapping import check_module

M = TypeVar("M", bound=nn.Module)


def freeze(model: M, *, int8: bool = False) -> M:
    """Call `freeze` of every layer of ours in a model, as `Recurrent.freeze` tells of it: a promise that parameters stay as they
    are, and with `int8` products of integers of eight bits. `model.train()` ends it.

    Args: model: any module, in evaluation mode.
    Returns: the model. Raises: TypeError for what is no module; ValueError for a model without layers of ours; and then nothing
    has changed, what a layer's `freeze` raises.

    Example:
        >>> import torch, anyrnn.torch
        >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 3), torch.nn.LSTM(3, 5)).eval()
        >>> model = anyrnn.torch.freeze(anyrnn.torch.swap(model), int8=True)
        >>> with torch.no_grad():
        ...     model(torch.tensor([[1], [2]]))[0].shape
        torch.Size([2, 1, 5])
    """
    check_module(model, "freeze")
    layers = [module for module in model.modules() if isinstance(module, RecurrentBase)]
    if not layers:
        raise ValueError("freeze: the model has no layer of anyrnn; anyrnn.torch.swap puts them in the place of torch.nn's")
    for layer in layers:
        layer._check_freeze(int8)
    for layer in layers:
        layer.freeze(int8=int8)
    return model
