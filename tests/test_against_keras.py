"""Against Keras: masks, directions and their merges, reading backwards, and what dropout does on average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import weights

T, N, D, H = 7, 5, 3, 4
CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "SimpleRNN"}
"""Keras's names of ours."""


@pytest.fixture(scope="module")
def keras() -> Any:
    """It takes seconds to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        module = pytest.importorskip("keras")
    if module.backend.backend() != "torch":
        pytest.skip("Keras was imported with another backend than torch")
    return module


def weights_of(layer: anyrnn.torch.Recurrent, cell: str, suffix: str = "_l0") -> list[np.ndarray]:
    """A direction's parameters as Keras keeps them."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    parameters = {name: layer.get_parameter(name + suffix).detach().numpy() for name in names}
    return list(weights.convert(parameters, cell, source="anyrnn", target="keras").values())


def built(layer: Any, *parameters: np.ndarray) -> Any:
    layer.build((N, T, D))
    layer.set_weights(list(parameters))
    return layer


def agree(ours: Any, theirs: Any, what: str) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().cpu().numpy(), rtol=2e-5, atol=2e-6, err_msg=what)


def some_mask(seed: int = 1) -> torch.Tensor:
    """With a sample that has no step, and one that begins late."""
    mask = torch.rand(N, T, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[2], mask[3, :3] = False, False
    return mask


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_masks(keras: Any, cell: str, backwards: bool) -> None:
    """Keras holds outputs and states where a step is masked; backwards it turns the order of outputs around."""
    layer = anyrnn.torch.Recurrent(cell, D, H, batch_first=True, reverse=backwards)
    kind = getattr(keras.layers, CELLS[cell])
    given = weights_of(layer, cell)
    peer = built(kind(H, return_sequences=True, return_state=True, go_backwards=backwards), *given)
    last = built(kind(H, go_backwards=backwards), *given)
    x, mask = torch.randn(N, T, D), some_mask()
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    y, states = layer(leaves[0], mask=mask, padding="last")
    expected, *states_expected = peer(leaves[1], mask=mask)
    if backwards:  # what a masked step holds is the output of the one that was read before it, which is a later one
        y, expected = y * mask[..., None], expected.flip(1) * mask[..., None]
    agree(y, expected, "output")
    for ours, theirs in zip(states if isinstance(states, tuple) else (states,), states_expected, strict=True):
        agree(ours[0], theirs, "state")
    weight = torch.randn(N, T, H)
    for result, leaf in ((y, leaves[0]), (expected, leaves[1])):
        (result * weight).sum().backward()
        assert leaf.grad is not None
    agree(leaves[0].grad, leaves[1].grad, "d x")
    agree(layer(x, mask=mask, return_outputs="last")[0], last(x, mask=mask), "last output")


@pytest.mark.parametrize("merge", ["concat", "sum", "mul", "ave", None])
@pytest.mark.parametrize("cell", CELLS)
def test_merges_of_directions(keras: Any, cell: str, merge: str | None) -> None:
    ours = {"ave": "mean", None: "separate"}.get(merge, merge)
    layer = anyrnn.torch.Recurrent(cell, D, H, batch_first=True, bidirectional=True, merge=ours)
    x, kind = torch.randn(N, T, D), getattr(keras.layers, CELLS[cell])
    parameters = [*weights_of(layer, cell), *weights_of(layer, cell, "_l0_reverse")]
    for sequences, outputs in ((True, "all"), (False, "last")):
        peer = built(keras.layers.Bidirectional(kind(H, return_sequences=sequences), merge_mode=merge), *parameters)
        results = layer(x, return_outputs=outputs)[0], peer(x)
        for found, expected in zip(*(r if isinstance(r, (tuple, list)) else [r] for r in results), strict=True):
            agree(found, expected, outputs)


@pytest.mark.parametrize("option", ["recurrent_dropout", "input_dropout"])
@pytest.mark.parametrize("cell", CELLS)
def test_dropout_has_the_same_mean(keras: Any, cell: str, option: str) -> None:
    """Over many samples with one input, each of which drops other features. Of states Keras drops other features for each gate,
    which makes a small difference to the mean of what is no linear function of them.
    """
    torch.manual_seed(0)
    samples, p = 20_000, 0.4
    layer = anyrnn.torch.Recurrent(cell, D, H, batch_first=True, **{option: p})
    keywords = {"dropout" if option == "input_dropout" else option: p, "seed": 1}
    peer = built(getattr(keras.layers, CELLS[cell])(H, return_sequences=True, **keywords), *weights_of(layer, cell))
    x = torch.randn(1, T, D).expand(samples, T, D)
    with torch.no_grad():
        ours, theirs = layer(x)[0], peer(x, training=True)
    error = ((ours.var(0) + theirs.var(0)) / samples).sqrt()
    allowed = 5 * error + (0.02 if option == "recurrent_dropout" and cell != "rnn_tanh" else 1e-6)
    assert ((ours.mean(0) - theirs.mean(0)).abs() < allowed).all()
    assert ours.std(0)[1:].min() > 1e-3
