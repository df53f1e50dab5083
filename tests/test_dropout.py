"""Dropout between layers: the same bits from every backend, for any threads; right in the mean; reproducible."""

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import State, affine, cell, tanh
from anyrnn.ir.philox import Randomness
from anyrnn.passes.options import with_input_dropout
from tests.budget import assert_relative

CELLS = ["rnn_tanh", "gru", "lstm_layernorm", "mgu"]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_the_kernels_equal_the_reference(name, bidirectional):
    random = np.random.default_rng(0)
    shape = {"num_layers": 3, "dropout": 0.4, "bidirectional": bidirectional, "dtype": "float64", "seed": 1}
    native, reference = (anyrnn.Recurrent(name, 5, 19, backend=b, **shape) for b in ("llvm", "reference"))
    x = random.normal(size=(6, 3, 5))
    results = []
    for layer in (native, reference):
        y, last, reserve = layer.forward_training(x, seed=2**40 + 3)
        d_x, d_first, gradients = layer.backward(reserve, np.cos(y))
        states = [*(last if isinstance(last, tuple) else (last,)), *(d_first if isinstance(d_first, tuple) else (d_first,))]
        results.append([y, d_x, *states, *gradients.values()])
    for k, (a, b) in enumerate(zip(*results, strict=True)):
        assert_relative(a, b, "llvm float64 against the reference backend", f"result {k}")


def test_inference_drops_nothing():
    layer = anyrnn.Recurrent("gru", 4, 8, 2, dropout=0.9, seed=0)
    plain = anyrnn.Recurrent("gru", 4, 8, 2, seed=0)
    x = np.ones((3, 2, 4), np.float32)
    assert (layer(x)[0] == plain(x)[0]).all()


def test_what_the_second_layer_sees():
    """Features are zero, or scaled up, as the masks say; both directions see the same."""
    layer = anyrnn.Recurrent("rnn_relu", 4, 16, 2, dropout=0.25, bidirectional=True, dtype="float64", seed=0, bias=False)
    below = anyrnn.Recurrent("rnn_relu", 4, 16, 1, bidirectional=True, dtype="float64", bias=False)
    above = anyrnn.Recurrent("rnn_relu", 32, 16, 1, bidirectional=True, dtype="float64", bias=False)
    for name in below.parameters:
        below.parameters[name] = layer.parameters[name]
        above.parameters[name] = layer.parameters[name.replace("_l0", "_l1")]
    x = np.random.default_rng(0).normal(size=(5, 3, 4))
    middle = below(x)[0]
    random = Randomness(11, {"between_layers": (0.0, 0.25)})
    masks = np.stack([random.at(1, 0, t).kept(np, np.arange, "between_layers", 3, 32) for t in range(5)])
    expected = above(np.where(masks, middle / 0.75, 0))[0]
    assert_relative(layer.forward_training(x, seed=11)[0], expected, "llvm float64 against the reference backend", "output")


def test_torch_seed_and_mode():
    layer = anyrnn.torch.GRU(6, 24, 2, dropout=0.5)
    x = torch.randn(4, 2, 6)

    def call(seed):
        torch.manual_seed(seed)
        return layer(x)[0]

    assert torch.equal(call(1), call(1))
    assert not torch.equal(call(1), call(2))
    layer.eval()
    assert torch.equal(call(1), call(2))


def test_gradcheck_through_dropout():
    layer = anyrnn.torch.LSTM(3, 4, 2, dropout=0.3, dtype=torch.float64)

    def function(x):
        torch.manual_seed(0)
        return layer(x)[0]

    assert torch.autograd.gradcheck(function, torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True))


def test_everything_dropped_gives_zero_not_nan():
    layer = anyrnn.torch.GRU(3, 4, 2, dropout=1.0, bias=False)
    y = layer(torch.randn(3, 2, 3))[0]
    assert torch.equal(y, torch.zeros_like(y))


def test_the_probability_may_change() -> None:
    """As torch.nn's modules, which read the attribute at every call."""
    layer, x = anyrnn.torch.LSTM(3, 8, 2, dropout=0.5), torch.randn(3, 2, 3)

    def call() -> torch.Tensor:
        torch.manual_seed(0)
        return layer(x)[0].detach()

    first = call()
    layer.dropout = 0.0
    assert torch.equal(call(), layer.eval()(x)[0])
    layer.train().dropout = 0.75
    changed = call()
    torch.manual_seed(1)
    fresh = anyrnn.torch.LSTM(3, 8, 2, dropout=0.75)
    fresh.load_state_dict(layer.state_dict())
    torch.manual_seed(0)
    assert torch.equal(fresh(x)[0], changed)
    assert not torch.equal(changed, first)
    layer.dropout = 0.5
    assert torch.equal(call(), first)
    for value in (1.5, None):
        with pytest.raises(ValueError, match=r"dropout should be a number in range \[0, 1\]"):
            layer.dropout = value
    assert layer.dropout == 0.5


def test_the_probability_of_a_numpy_layer_may_change() -> None:
    layer, x = anyrnn.Recurrent("lstm", 3, 8, 2, seed=0), np.ones((4, 2, 3), np.float32)
    layer.dropout = 0.75
    fresh = anyrnn.Recurrent("lstm", 3, 8, 2, dropout=0.75, seed=0)
    changed = layer.forward_training(x, seed=1)[0]
    assert (changed == fresh.forward_training(x, seed=1)[0]).all()
    layer.dropout = 0
    assert (layer.forward_training(x, seed=1)[0] == layer(x)[0]).all()
    with pytest.raises(ValueError, match=r"dropout should be a number in range \[0, 1\]"):
        layer.dropout = -0.1


def test_the_option_is_a_rewrite_of_the_input():
    graph = with_input_dropout(anyrnn.cells.gru.trace(), "between_layers")
    assert [n.attributes for n in graph.nodes if n.op == "choose"] == [("between_layers", 0)]


def test_layers_that_differ_in_a_hyper_parameter_alone_keep_their_own() -> None:
    @cell
    def leaky(x, h, *, rate=0.5):
        h = (1 - rate) * h + rate * tanh(affine("a", x, h))
        return h, State(h=h)

    x = np.ones((5, 2, 3))
    for rate in (0.1, 0.9):
        layer = anyrnn.Recurrent(leaky, 3, 4, 2, dropout=1e-9, rate=rate, dtype=np.float64)
        np.testing.assert_allclose(layer.forward_training(x)[0], layer(x)[0], atol=1e-7)
