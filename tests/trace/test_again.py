"""A cell is what its function is when a layer is made of it: in notebooks what it reads from outside changes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import State, affine, cell, sigmoid, tanh

SCALE = 1.0


def activation(v: Any) -> Any:
    return tanh(v)


@cell
def inner(x, h):  # type: ignore[no-untyped-def]
    h = activation(SCALE * affine("n", x, h))
    return h, State(h=h)


@cell
def outer(x, h):  # type: ignore[no-untyped-def]
    return inner(x, h)


def text() -> str:
    return outer.show().partition("one step")[2].partition("its gradient")[0]


def test_what_changes_outside_changes_layers_made_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text()]
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    texts.append(text())
    monkeypatch.setitem(globals(), "activation", sigmoid)
    texts.append(text())
    assert ["2 *" in found for found in texts] == [False, True, True]
    assert ["sigmoid" in found for found in texts] == [False, False, True]
    assert outer.trace() is outer.trace()


@pytest.mark.parametrize("make", [anyrnn.Recurrent, anyrnn.torch.Recurrent], ids=["numpy", "torch"])
def test_what_changes_outside_changes_no_layer_that_is_there(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make(outer, 3, 5, 2, dropout=0.5)
    x: Any = torch.ones(4, 2, 3) if make is anyrnn.torch.Recurrent else np.ones((4, 2, 3), np.float32)
    if make is anyrnn.torch.Recurrent:
        layer.eval()
    before = layer.training_network if make is anyrnn.Recurrent else layer._modes[True].network
    expected = layer(x)[0]
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    other = make(outer, 3, 5, 2)
    assert other.network.graph != layer.network.graph
    layer.dropout = 0.0
    for one in (layer, copy.deepcopy(layer)):
        assert bool((one(x)[0] == expected).all())
        one.dropout = 0.5
        assert (one.training_network if make is anyrnn.Recurrent else one._modes[True].network) == before
