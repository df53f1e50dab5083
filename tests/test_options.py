"""Options of layers: each as a loop in torch says it, the kernels as the reference, alone and together, dense and uneven."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import LayerOptions, State, Vec, affine, cell, cells, tanh, where
from anyrnn._memory import aligned
from anyrnn.ir.philox import Randomness
from anyrnn.passes.options import with_weight_dropout
from anyrnn.sequence.options import OPTIONS
from anyrnn.trace.signature import LAYER_ARGUMENTS
from tests.budget import assert_relative
from tests.options import COMBINATIONS, VALUES, options_of, shape_of, title

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_every_option_is_tested_and_documented() -> None:
    assert set(VALUES) == set(OPTIONS)
    assert set(OPTIONS) <= LAYER_ARGUMENTS
    for name in OPTIONS:
        assert f" {name}: " in str(LayerOptions.__doc__)
        for layer in (anyrnn.Recurrent, anyrnn.torch.Recurrent):
            assert name in str(layer.__doc__)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_reading_backwards_is_the_second_half_of_both_directions(backend: str) -> None:
    both = anyrnn.torch.Recurrent("lstm", 5, 8, bidirectional=True, backend=backend)
    layer = anyrnn.torch.Recurrent("lstm", 5, 8, reverse=True, backend=backend)
    assert [name for name, _ in layer.named_parameters()] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    layer.load_state_dict({name: both.get_parameter(f"{name}_reverse") for name in layer.state_dict()})
    x = torch.randn(7, 3, 5)
    for call in ({}, {"lengths": [4, 0, 7], "padding": "last"}, {"reset": torch.rand(7, 3) < 0.3}):
        (y, ends), (y_both, ends_both) = layer(x, **call), both(x, **call)
        assert torch.equal(y, y_both[..., 8:])
        assert all(torch.equal(a[0], b[1]) for a, b in zip(ends, ends_both, strict=True))


# each option against a loop


class Loop:
    """A layer's options as a loop in torch says them, for one layer in one direction."""

    def __init__(self, layer: anyrnn.Recurrent, options: dict[str, Any], x: Any, training: bool) -> None:
        self.options, self.training = {name: options.get(name, 0) for name in VALUES}, training
        self.leaves = {name.removesuffix("_l0"): torch.tensor(a, requires_grad=True) for name, a in layer.parameters.items()}
        self.w = dict(self.leaves)
        if "weight_ih" not in self.w:  # the input is skipped
            self.w["weight_ih"] = torch.eye(9).double().repeat(len(self.w["weight_hh"]) // 9, 1)
        self.x = torch.tensor(x, requires_grad=True)
        self.steps, self.rows, _ = x.shape
        p = self.options["weight_dropout"]
        if p and training:
            gates = self.w["weight_hh"].split(9)
            masks = [self.mask(f"weights.{k}", 9, p, rows=9) for k in range(len(gates))]
            self.w["weight_hh"] = torch.cat([w * mask / (1 - p) for w, mask in zip(gates, masks, strict=True)])

    def mask(self, choice: str, features: int, p: float, t: int = 0, rows: int = 0) -> torch.Tensor:
        random = Randomness(11, {choice: (p,)})
        chances = random.at(0, int(self.options["reverse"]), t)
        return torch.tensor(chances.kept(np, np.arange, choice, rows or self.rows, features))

    def dropped(self, value: torch.Tensor, choice: str, p: float) -> torch.Tensor:
        if not p or not self.training:
            return value
        return value * self.mask(choice, value.shape[-1], p) / (1 - p)

    def zoned(self, new: torch.Tensor, before: torch.Tensor, k: int, t: int) -> torch.Tensor:
        p = self.options["zoneout"]
        if not p:
            return new
        if not self.training:
            return p * before + (1 - p) * new
        return torch.where(self.mask(f"zoneout.{k}", new.shape[-1], p, t), new, before)

    def tanh(self, value: torch.Tensor) -> torch.Tensor:
        return value.sigmoid() if self.options["activations"] else value.tanh()

    def sigmoid(self, value: torch.Tensor) -> torch.Tensor:
        return 0.5 + 0.4 * value.sin() if self.options["activations"] else value.sigmoid()

    def pre(self, value: torch.Tensor) -> torch.Tensor:
        bound = self.options["clip_preactivation"]
        return value.clamp(-bound, bound) if bound else value

    def clipped(self, value: torch.Tensor) -> torch.Tensor:
        bound = self.options["clip_state"]
        return value.clamp(-bound, bound) if bound else value

    def state(self, value: torch.Tensor) -> torch.Tensor:
        """A state as the step gets it."""
        bound = self.options["clip_gradient"]
        if not bound or not value.requires_grad:
            return value
        same = value * 1
        same.register_hook(lambda g: g.clamp(-bound, bound))
        return same

    def for_products(self, value: torch.Tensor, k: int) -> torch.Tensor:
        value = value.detach() if self.options["cut_gradient"] else value
        return self.dropped(value, f"recurrent.{k}", self.options["recurrent_dropout"])

    def run(self, step: Any, first: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """`step(loop, x_t, products' states, states)` gives the new states, the output first."""
        states, outputs = first, [first[0]] * self.steps
        x = self.dropped(self.x, "input", self.options["input_dropout"])
        for t in reversed(range(self.steps)) if self.options["reverse"] else range(self.steps):
            states = [self.state(s) for s in states]
            read = [self.for_products(s, k) for k, s in enumerate(states)]
            new = step(self, x[t], read, states)
            states = [self.zoned(n, s, k, t) for k, (n, s) in enumerate(zip(new, states, strict=True))]
            outputs[t] = self.dropped(states[0], "output", self.options["output_dropout"])
        return torch.stack(outputs), states


def step_rnn(loop: Loop, x: Any, read: Any, states: Any) -> list[torch.Tensor]:
    w = loop.w
    pre = loop.pre(x @ w["weight_ih"].T + w["bias_ih"] + read[0] @ w["weight_hh"].T + w["bias_hh"])
    return [loop.clipped(loop.tanh(pre))]


def step_lstm(loop: Loop, x: Any, read: Any, states: Any) -> list[torch.Tensor]:
    w = loop.w
    i, f, g, o = (
        loop.pre(p) for p in (x @ w["weight_ih"].T + w["bias_ih"] + read[0] @ w["weight_hh"].T + w["bias_hh"]).chunk(4, -1)
    )
    c = loop.clipped(loop.sigmoid(f) * states[1] + loop.sigmoid(i) * loop.tanh(g))
    return [loop.clipped(loop.sigmoid(o) * loop.tanh(c)), c]


def step_gru(loop: Loop, x: Any, read: Any, states: Any) -> list[torch.Tensor]:
    w, h = loop.w, states[0]
    xr, xz, xn = (x @ w["weight_ih"].T + w["bias_ih"]).chunk(3, -1)
    hr, hz, hn = (read[0] @ w["weight_hh"].T + w["bias_hh"]).chunk(3, -1)
    r, z = loop.sigmoid(loop.pre(xr + hr)), loop.sigmoid(loop.pre(xz + hz))
    n = loop.tanh(loop.pre(xn + r * hn))
    return [loop.clipped((1 - z) * n + z * h)]


def step_gru_before(loop: Loop, x: Any, read: Any, states: Any) -> list[torch.Tensor]:
    w, h = loop.w, states[0]
    xr, xz, xn = (x @ w["weight_ih"].T + w["bias_ih"]).chunk(3, -1)
    (wr, wz, wn), (br, bz, bn) = w["weight_hh"].chunk(3), w["bias_hh"].chunk(3)
    r, z = loop.sigmoid(loop.pre(xr + read[0] @ wr.T + br)), loop.sigmoid(loop.pre(xz + read[0] @ wz.T + bz))
    n = loop.tanh(loop.pre(xn + (r * read[0]) @ wn.T + bn))
    return [loop.clipped((1 - z) * n + z * h)]


BETWEEN_LAYERS = {"merge", "residual"}
OF_THE_STEP = [*([name] for name in VALUES if name not in BETWEEN_LAYERS), [n for n in VALUES if n not in BETWEEN_LAYERS]]
STEPS = {"rnn_tanh": step_rnn, "lstm": step_lstm, "gru": step_gru, "gru_before": step_gru_before}


@pytest.mark.parametrize("names", OF_THE_STEP, ids=title)
@pytest.mark.parametrize("cell", STEPS)
def test_each_option_is_what_a_loop_says(cell: str, names: list[str]) -> None:
    options, random = options_of(cell, names), np.random.default_rng(3)
    inputs = 9 if "skip_input" in names else 4
    layer = anyrnn.Recurrent(cell, inputs, 9, dtype="float64", seed=2, **options)
    for array in layer.parameters.values():
        array *= 3  # so that clips have something to clip
    x = random.normal(size=(5, 3, inputs))
    states = len(layer.network.graph.states)
    first = [random.normal(size=(1, 3, 9)) for _ in range(states)]
    given = tuple(first) if states > 1 else first[0]

    loop = Loop(layer, options, x, training=True)
    begin = [torch.tensor(a[0], requires_grad=True) for a in first]
    output, last = loop.run(STEPS[cell], begin)
    d_y = random.normal(size=output.shape)
    (output * torch.tensor(d_y)).sum().backward()
    y, ends, reserve = layer.forward_training(x, given, seed=11)
    d_x, d_first, gradients = layer.backward(reserve, d_y)
    budget = "llvm float64 against the reference backend"
    assert_relative(y, output.detach().numpy(), budget, "output")
    for k in range(states):
        assert_relative((ends if states > 1 else (ends,))[k][0], last[k].detach().numpy(), budget, f"last {k}")
        assert_relative((d_first if states > 1 else (d_first,))[k][0], grad_of(begin[k]), budget, f"d first {k}")
    assert_relative(d_x, grad_of(loop.x), budget, "d x")
    for name, found in gradients.items():
        assert_relative(found, grad_of(loop.leaves[name.removesuffix("_l0")]), budget, name)

    evaluated = Loop(layer, options, x, training=False).run(STEPS[cell], [torch.tensor(a[0]) for a in first])[0]
    assert_relative(layer(x, given)[0], evaluated.detach().numpy(), budget, "evaluated output")


@pytest.mark.parametrize("bias", ["both", "input", "recurrent", "none"])
@pytest.mark.parametrize(("cell", "peer"), [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU), ("rnn_tanh", torch.nn.RNN)])
def test_the_biases_that_are_not_there_are_zero(cell: str, peer: Any, bias: str) -> None:
    layer = anyrnn.torch.Recurrent(cell, 4, 9, 2, bias=bias, dtype=torch.float64)
    theirs = peer(4, 9, 2, dtype=torch.float64)
    missing = {"both": (), "input": ("bias_hh",), "recurrent": ("bias_ih",), "none": ("bias_ih", "bias_hh")}[bias]
    ours = dict(layer.named_parameters())
    assert set(ours) == {name for name, _ in theirs.named_parameters() if not name.startswith(missing)}
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            p.copy_(ours[name]) if name in ours else p.zero_()
    x = torch.randn(5, 3, 4, dtype=torch.float64)
    for module in (layer, theirs):
        module(x)[0].cos().sum().backward()
    torch.testing.assert_close(layer(x)[0], theirs(x)[0])
    for name, p in theirs.named_parameters():
        if name in ours:
            torch.testing.assert_close(ours[name].grad, p.grad)
    assert anyrnn.Recurrent(cell, 4, 9, 2, bias=bias).parameters.keys() == ours.keys()


def test_a_stacked_gate_takes_the_input_for_each_of_its_parts() -> None:
    @anyrnn.cell
    def stacked(x, h):  # type: ignore[no-untyped-def]
        f, g = anyrnn.split(anyrnn.affine("f g", x, h), 2)
        h = anyrnn.sigmoid(f) * h + anyrnn.tanh(g)
        return h, anyrnn.State(h=h)

    @anyrnn.cell
    def apart(x, h):  # type: ignore[no-untyped-def]
        f, g = anyrnn.affine("f", x, h), anyrnn.affine("g", x, h)
        h = anyrnn.sigmoid(f) * h + anyrnn.tanh(g)
        return h, anyrnn.State(h=h)

    x = np.random.default_rng(0).normal(size=(5, 3, 7))
    layers = [anyrnn.Recurrent(c, 7, 7, skip_input=True, dtype="float64", seed=1) for c in (stacked, apart)]
    np.testing.assert_allclose(layers[0](x)[0], layers[1](x)[0], rtol=1e-12)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_learned_states_are_first_states_that_all_samples_share(backend: str, uneven: bool) -> None:
    shape = {"num_layers": 2, "bidirectional": True, "dtype": torch.float64, "backend": backend}
    layer, plain = (anyrnn.torch.Recurrent("lstm", 5, 8, learned_state=learned, **shape) for learned in (True, False))
    assert sorted(set(layer.state_dict()) - set(plain.state_dict()))[:4] == ["c0_l0", "c0_l0_reverse", "c0_l1", "c0_l1_reverse"]
    assert not layer.h0_l0.any()
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn_like(p) / 3)
    plain.load_state_dict({name: p for name, p in layer.state_dict().items() if name in plain.state_dict()})
    x = torch.randn(6, 4, 5, dtype=torch.float64)
    call = {"lengths": [3, 0, 6, 5]} if uneven else {}
    units = ["l0", "l0_reverse", "l1", "l1_reverse"]
    given = {s: torch.stack([getattr(layer, f"{s}0_{u}") for u in units]).detach().requires_grad_() for s in "hc"}
    y, ends = layer(x, **call)
    expected, ends_expected = plain(x, tuple(s[:, None].expand(4, 4, 8) for s in given.values()), **call)
    for a, b in zip((y, *ends), (expected, *ends_expected), strict=True):
        assert torch.equal(a, b)
    for result in ((y, *ends), (expected, *ends_expected)):
        sum(t.cos().sum() for t in result).backward()
    for s, first in given.items():
        for k, u in enumerate(units):
            torch.testing.assert_close(getattr(layer, f"{s}0_{u}").grad, first.grad[k])


def test_learned_states_after_a_reset() -> None:
    """A reset begins with them whatever the call was given; gradients of both front-ends agree."""
    layer = anyrnn.torch.Recurrent("gru", 5, 8, learned_state=True, dtype=torch.float64)
    numpy = anyrnn.Recurrent("gru", 5, 8, learned_state=True, dtype="float64")
    with torch.no_grad():
        layer.h0_l0.normal_()
    for name, p in layer.named_parameters():
        numpy.parameters[name] = p.detach().numpy()
    x, reset = torch.randn(7, 3, 5, dtype=torch.float64), torch.zeros(7, 3, dtype=torch.bool)
    reset[4, 0] = reset[2, 1] = reset[0, 2] = True
    hx = torch.randn(1, 3, 8, dtype=torch.float64)
    for given in (None, hx):
        y, last = layer(x, given, reset=reset)
        assert torch.equal(y[4:, 0], layer(x[4:, :1])[0][:, 0])
        layer.zero_grad()
        (y.cos().sum() + last.sin().sum()).backward()
        y_numpy, last_numpy, reserve = numpy.forward_training(
            x.numpy(), None if given is None else given.numpy(), reset=reset.numpy()
        )
        assert (y_numpy == y.detach().numpy()).all()
        for two in (False, True):
            if two:
                _, _, work = numpy.backward_data(reserve, -np.sin(y_numpy), np.cos(last_numpy))
                gradients = numpy.backward_weights(work)
            else:
                _, _, gradients = numpy.backward(reserve, -np.sin(y_numpy), np.cos(last_numpy))
            for name, p in layer.named_parameters():
                np.testing.assert_allclose(gradients[name], p.grad, rtol=1e-10, atol=1e-12, err_msg=name)


def test_learned_states_that_a_call_does_not_use_get_no_gradient() -> None:
    """Not even of one that is infinite."""
    layer = anyrnn.Recurrent("gru", 3, 4, learned_state=True, seed=0)
    y, _, reserve = layer.forward_training(np.ones((2, 1, 3), np.float32), np.zeros((1, 1, 4), np.float32))
    gradients = layer.backward(reserve, np.full_like(y, np.inf))[2]
    assert not gradients["h0_l0"].any()


def test_a_stream_begins_with_learned_states() -> None:
    layer = anyrnn.Recurrent("lstm", 4, 9, 2, seed=2, learned_state=True)
    random = np.random.default_rng(0)
    for array in layer.parameters.values():
        array[...] = random.normal(size=array.shape) / 3
    x = random.normal(size=(6, 3, 4)).astype(np.float32)
    stream = layer.stream(3)
    for _ in range(2):
        assert (np.stack([stream(step) for step in x]) == layer(x)[0]).all()
        stream.reset()


def test_states_of_all_kinds_may_be_learned() -> None:
    """A scalar one is a parameter of one number, and begins as the cell says."""

    @anyrnn.cell
    def counts(x, h, n: anyrnn.Scalar(init=1.0)):  # type: ignore[no-untyped-def, valid-type]
        h = anyrnn.tanh(anyrnn.affine("a", x, h)) / n
        return h, anyrnn.State(h=h, n=n + 1)

    for layer in (anyrnn.Recurrent(counts, 3, 4, learned_state=True), anyrnn.torch.Recurrent(counts, 3, 4, learned_state=True)):
        parameters = layer.parameters if isinstance(layer, anyrnn.Recurrent) else dict(layer.named_parameters())
        assert parameters["n0_l0"].shape == ()
        assert parameters["n0_l0"].item() == 1.0

    @anyrnn.cell
    def taken(x, h):  # type: ignore[no-untyped-def]
        h = anyrnn.tanh(anyrnn.affine("a", x, h)) * anyrnn.vector("h0")
        return h, anyrnn.State(h=h)

    with pytest.raises(ValueError, match="learned_state: cell 'taken' has a parameter 'h0' already"):
        anyrnn.Recurrent(taken, 3, 4, learned_state=True)


def test_what_a_cell_computes_may_be_called_as_a_learned_state_is() -> None:
    """Of what is computed of parameters, and of numbers that are told when a layer is made."""

    @anyrnn.cell
    def computes(x, h, *, c0=0.5):  # type: ignore[no-untyped-def]
        h0 = anyrnn.tanh(anyrnn.vector("a", init=2.0))
        h = anyrnn.tanh(anyrnn.affine("g", x, h)) * h0 * c0
        return h, anyrnn.State(h=h)

    @anyrnn.cell
    def plain(x, h, *, of=0.5):  # type: ignore[no-untyped-def]
        h = anyrnn.tanh(anyrnn.affine("g", x, h)) * anyrnn.tanh(anyrnn.vector("a", init=2.0)) * of
        return h, anyrnn.State(h=h)

    x = np.ones((3, 2, 3), np.float32)
    for c0 in (0.5, 0.25):
        one = anyrnn.Recurrent(computes, 3, 4, learned_state=True, seed=0, c0=c0)
        other = anyrnn.Recurrent(plain, 3, 4, learned_state=True, seed=0, of=c0)
        one.parameters["h0_l0"][:] = other.parameters["h0_l0"][:] = 0.25
        assert (one(x)[0] == other(x)[0]).all()
        torch.manual_seed(0)
        module = anyrnn.torch.Recurrent(computes, 3, 4, learned_state=True, c0=c0)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(torch.from_numpy(one.parameters[name]))
        assert (module(torch.from_numpy(x))[0].detach().numpy() == one(x)[0]).all()


MERGED = {"sum": lambda a, b: a + b, "mean": lambda a, b: (a + b) / 2, "mul": lambda a, b: a * b}


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("merge", [*MERGED, "concat", "separate"])
def test_layers_are_put_together_as_torch_modules_would_be(merge: str, residual: bool) -> None:
    """Against one-layer torch.nn modules, whose outputs are merged and added by hand."""
    layers, width = 3, 14 if merge in ("concat", "separate") else 7
    layer = anyrnn.torch.Recurrent("gru", 5, 7, layers, bidirectional=True, merge=merge, residual=residual, dtype=torch.float64)
    peers = [torch.nn.GRU(5 if k == 0 else width, 7, bidirectional=True, dtype=torch.float64) for k in range(layers)]
    for k, peer in enumerate(peers):
        peer.load_state_dict({n: layer.get_parameter(n.replace("_l0", f"_l{k}")).detach() for n in peer.state_dict()})
    x = torch.randn(6, 3, 5, dtype=torch.float64, requires_grad=True)
    hx = torch.randn(2 * layers, 3, 7, dtype=torch.float64)
    expected, ends = x, []
    for k, peer in enumerate(peers):
        y, h = peer(expected, hx[2 * k : 2 * k + 2])
        y = MERGED[merge](y[..., :7], y[..., 7:]) if merge in MERGED else y
        expected = expected + y if residual and k else y
        ends.append(h)
    (d_expected,) = torch.autograd.grad(expected.cos().sum() + torch.cat(ends).sin().sum(), x)

    y, last = layer(x, hx)
    assert isinstance(y, tuple) == (merge == "separate")
    whole = torch.cat(y, -1) if isinstance(y, tuple) else y
    torch.testing.assert_close(whole, expected)
    torch.testing.assert_close(last, torch.cat(ends))
    (d_x,) = torch.autograd.grad(whole.cos().sum() + last.sin().sum(), x)
    torch.testing.assert_close(d_x, d_expected)
    assert layer.weight_ih_l1.shape == (21, width)


def test_separate_outputs_of_every_kind_of_batch() -> None:
    shape = {"num_layers": 2, "bidirectional": True}
    layer, plain = (anyrnn.torch.Recurrent("gru", 5, 7, merge=merge, **shape) for merge in ("separate", "concat"))
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(6, 3, 5)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [6, 4, 1])
    for given, call in ((x, {}), (x[:, 0], {}), (x, {"lengths": [2, 6, 0]}), (packed, {})):
        halves, expected = layer(given, **call)[0], plain(given, **call)[0]
        data = [h.data for h in halves]
        assert torch.equal(torch.cat(data, -1), expected.data)
        assert all(type(h) is type(expected) for h in halves)
    numpy, numpy_plain = (anyrnn.Recurrent("gru", 5, 7, merge=merge, seed=1, **shape) for merge in ("separate", "concat"))
    (a, b), _, reserve = numpy.forward_training(x.numpy())
    expected, _, plain_reserve = numpy_plain.forward_training(x.numpy())
    assert (np.concatenate([a, b], -1) == expected).all()
    for cotangent in ({"d_output": expected}, {"d_last_output": expected[-1]}):
        ((name, d),) = cotangent.items()
        d_x, _, gradients = numpy.backward(reserve, **{name: tuple(np.split(d, 2, -1))})
        d_x_plain, _, gradients_plain = numpy_plain.backward(plain_reserve, **cotangent)
        assert (d_x == d_x_plain).all()
        assert all((gradients[n] == gradients_plain[n]).all() for n in gradients)
    with pytest.raises(TypeError, match="the cotangent of separate outputs should be a pair of NumPy arrays of float32"):
        numpy.backward(reserve, expected)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_primitives_of_networks_in_parts(backend: str) -> None:
    """Sizes told in advance, gradients in two calls, the last output's cotangent, memory of the caller's, `out=`."""
    options = {"bidirectional": True, "merge": "mul", "residual": True, "dtype": "float64", "seed": 1, "backend": backend}
    layer = anyrnn.Recurrent("lstm", 5, 7, 3, **options)
    x = np.random.default_rng(0).normal(size=(6, 4, 5))
    size = layer.reserve_size(6, 4)
    memory, out = aligned(max(size, 64)), np.empty((6, 4, 7))
    y, _, reserve = layer.forward_training(x, memory=memory, out=out)
    assert y is out
    assert backend == "reference" or (size > 0 and np.shares_memory(reserve.memory, memory))
    d_last = np.cos(y[-1])
    d_y = np.zeros_like(y)
    d_y[-1] = d_last
    d_x, d_first, gradients = layer.backward(reserve, d_y)
    d_x2, d_first2, work = layer.backward_data(reserve, d_last_output=d_last)
    gradients2 = layer.backward_weights(work)
    for a, b in [(d_x, d_x2), *zip(d_first, d_first2, strict=True), *((gradients[n], gradients2[n]) for n in gradients)]:
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    added = layer.backward_weights(work, {n: g.copy() for n, g in gradients.items()}, add=True)
    np.testing.assert_allclose(added["weight_ih_l1"], 2 * gradients["weight_ih_l1"], rtol=1e-12)
    if backend == "llvm":
        with pytest.raises(ValueError, match=f"memory should be at least {size} bytes"):
            layer.forward_training(x, memory=aligned(size - 64))


def test_a_stream_of_residual_layers_equals_a_call() -> None:
    layer = anyrnn.Recurrent("gru", 4, 9, 3, seed=2, residual=True)
    x = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
    stream = layer.stream(3)
    assert (np.stack([stream(step) for step in x]) == layer(x)[0]).all()


def test_layers_of_a_network_in_parts_choose_for_themselves() -> None:
    """The same masks as in a network that is one call: layers keep their numbers."""
    shape = {"num_layers": 3, "dropout": 0.5, "zoneout": 0.3}
    plain, parts = (anyrnn.Recurrent("gru", 6, 6, seed=1, residual=residual, **shape) for residual in (False, True))
    assert len(parts.training_network.parts) == 3
    for part, layer in zip(parts.training_network.parts, range(3), strict=True):
        whole, alone = plain.training_network.randomness(5, None), part.randomness(5, None)
        for choice in dict(part.probabilities):
            masks = [r.at(k, 0, 2).kept(np, np.arange, choice, 4, 6) for r, k in ((whole, layer), (alone, 0))]
            assert (masks[0] == masks[1]).all()


def test_options_by_state() -> None:
    layer = anyrnn.Recurrent("lstm", 4, 9, seed=2, zoneout={"c": 0.5}, clip_state={"c": (-0.1, 0.2)}, dtype="float64")
    y, (h, c), _ = layer.forward_training(np.random.default_rng(0).normal(size=(6, 3, 4)) * 9, seed=1)
    assert c.min() == -0.1
    assert c.max() == 0.2
    assert (y[-1] == h[0]).all()
    assert layer.training_network.probabilities == (("zoneout.1", (0.5,)),)


@anyrnn.cell
def added(x, h):  # type: ignore[no-untyped-def]
    h = anyrnn.tanh(anyrnn.affine("a", x, h)) + 0.5 * h
    return h, anyrnn.State(h=h)


@anyrnn.cell
def subtracted(x, h):  # type: ignore[no-untyped-def]
    h = anyrnn.sigmoid(anyrnn.affine("a", x, h)) - anyrnn.tanh(anyrnn.affine("b", x))
    return h, anyrnn.State(h=h)


@anyrnn.cell
def read_again(x, h, c):  # type: ignore[no-untyped-def]
    c = anyrnn.tanh(anyrnn.affine("a", x, h))
    return c * h, anyrnn.State(h=anyrnn.relu(c), c=c)


@pytest.mark.parametrize("which", ["rnn_tanh", "rnn_relu", added, subtracted, read_again], ids=str)
def test_gradients_where_a_function_is_zoned_out(which: Any) -> None:
    """Of what a choice gets as it is, and of what goes into it or is read elsewhere; against torch's own derivatives."""
    results = []
    for backend in ("reference", "llvm"):
        torch.manual_seed(1)
        layer = anyrnn.torch.Recurrent(which, 3, 5, zoneout=0.3, backend=backend, dtype=torch.float64)
        x = torch.randn(6, 4, 3, dtype=torch.float64, requires_grad=True)
        output, _ = layer(x)
        results.append([output.detach(), *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])])
    for theirs, ours in zip(*results, strict=True):
        assert_relative(ours.numpy(), theirs.numpy(), "llvm float64 against the reference backend", "output or gradient")


def test_everything_stays_with_a_zoneout_of_one() -> None:
    layer = anyrnn.Recurrent("gru", 4, 9, seed=2, zoneout=1.0)
    first = np.random.default_rng(0).normal(size=(1, 3, 9)).astype(np.float32)
    x = np.ones((5, 3, 4), np.float32)
    for y in (layer.forward_training(x, first)[0], layer(x, first)[0]):
        np.testing.assert_allclose(y, np.broadcast_to(first, (5, 3, 9)), rtol=1e-6)


@pytest.mark.parametrize("name", ["dropout", "zoneout", "recurrent_dropout", "input_dropout", "output_dropout", "weight_dropout"])
@pytest.mark.parametrize("rows", [3, 70])
def test_the_same_bits_for_any_number_of_threads(name: str, rows: int) -> None:
    layer = anyrnn.torch.Recurrent("lstm", 6, 40, 2, bidirectional=True, **{name: 0.5})
    x, before, results = torch.randn(7, rows, 6), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            torch.manual_seed(5)
            layer.zero_grad()
            y = layer(x)[0]
            y.square().sum().backward()
            results.append([y, *(p.grad.clone() for p in layer.parameters())])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("name", ["zoneout", "recurrent_dropout", "input_dropout", "output_dropout", "weight_dropout"])
def test_a_sample_chooses_the_same_whatever_its_length_and_batch(name: str) -> None:
    """Sample n of a batch, however long, has the bits that it has among the first n + 1 alone."""
    layer = anyrnn.Recurrent("gru", 6, 17, 2, seed=0, **{name: 0.5})
    x = np.random.default_rng(0).normal(size=(7, 5, 6)).astype(np.float32)
    lengths = [3, 7, 0, 5, 6]
    whole = layer.forward_training(x, lengths=lengths, seed=9)[0]
    for n in (1, 3, 4):
        alone = layer.forward_training(x[:, : n + 1], seed=9)[0]
        assert (whole[: lengths[n], n] == alone[: lengths[n], n]).all()


def test_a_stream_equals_a_call_with_zoneout() -> None:
    for backend in ("llvm", "reference"):
        layer = anyrnn.Recurrent("lstm", 4, 9, seed=2, zoneout={"h": 0.25, "c": 0.5}, clip_preactivation=0.3, backend=backend)
        x = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
        stream = layer.stream(3)
        assert (np.stack([stream(step) for step in x]) == layer(x)[0]).all()


# torch


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("names", COMBINATIONS, ids=title)
def test_torch_and_numpy_give_the_same(names: list[str], backend: str) -> None:
    options = {name: VALUES[name] for name in names}
    options |= shape_of("gru", options, 12, 5)
    layer = anyrnn.torch.Recurrent("gru", dtype=torch.float64, backend=backend, **options)
    numpy = anyrnn.Recurrent("gru", dtype="float64", **options)
    for name, p in layer.named_parameters():
        numpy.parameters[name] = p.detach().numpy()
    x = torch.randn(6, 3, layer.input_size, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(4)
    y, last = layer(x)
    y.cos().sum().backward()
    torch.manual_seed(4)
    seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64)) if layer._modes[True].draws else 0
    y_numpy, last_numpy, reserve = numpy.forward_training(x.detach().numpy(), seed=seed)
    d_x, _, gradients = numpy.backward(reserve, -np.sin(y_numpy))
    np.testing.assert_allclose(y.detach(), y_numpy, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(last.detach(), last_numpy, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(x.grad, d_x, rtol=1e-9, atol=1e-11)
    for name, p in layer.named_parameters():
        np.testing.assert_allclose(p.grad, gradients[name], rtol=1e-9, atol=1e-11, err_msg=name)


HONEST = [name for name in VALUES if name not in ("clip_gradient", "cut_gradient")]
"""Options whose gradients are those of their values."""


@pytest.mark.parametrize("name", HONEST)
def test_gradcheck_and_gradgradcheck(name: str) -> None:
    inputs = 4 if name == "skip_input" else 3
    more = {"num_layers": 2} if name == "residual" else {"bidirectional": True} if name == "merge" else {}
    layer = anyrnn.torch.Recurrent("lstm", inputs, 4, dtype=torch.float64, **{name: VALUES[name]}, **more)

    def function(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return layer(x)[0]

    x = torch.randn(3, 2, inputs, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_clipped_gradient_has_no_second_derivative(backend: str) -> None:
    layer, x = anyrnn.torch.Recurrent("gru", 3, 4, backend=backend, clip_gradient=0.1), torch.randn(4, 2, 3, requires_grad=True)
    (d_x,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="a clipped gradient has no derivative"):
        d_x.sum().backward()


def test_second_derivatives_where_gradients_are_cut() -> None:
    """As torch's detach: what is cut counts as constant."""
    layers = [
        anyrnn.torch.Recurrent("gru", 3, 4, dtype=torch.float64, backend=b, cut_gradient=True) for b in ("llvm", "reference")
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    found, x = [], torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    for layer in layers:
        y = layer(x)[0]
        (d_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append([d_x, *torch.autograd.grad(d_x.square().sum(), [x, *layer.parameters()], allow_unused=True)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_a_clipped_gradient_has_no_forward_mode() -> None:
    layer = anyrnn.torch.Recurrent("gru", 3, 4, clip_gradient=0.1)
    x = torch.randn(4, 2, 3)
    with pytest.raises(RuntimeError, match="jvp"):
        torch.func.jvp(lambda x: layer(x)[0], (x,), (x,))


def grad_of(leaf: torch.Tensor) -> Any:
    """What autograd left there: zeros where nothing leads."""
    return (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).numpy()


def test_copies_and_pickles_keep_their_options() -> None:
    import copy
    import pickle

    layer = anyrnn.torch.Recurrent("gru", 3, 4, zoneout=0.5, clip_state=0.1).eval()
    x = torch.randn(4, 2, 3)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x)[0], layer(x)[0])
    assert "zoneout=0.5" in repr(layer)
    numpy = anyrnn.Recurrent("gru", 3, 4, zoneout=0.5)
    assert (pickle.loads(pickle.dumps(numpy))(x.numpy())[0] == numpy(x.numpy())[0]).all()


# states that share a value, or are none of the usual kind


def by_hand(step: Any, x: Any, first: dict[str, Any]) -> dict[str, Any]:
    """A loop: what `step(x_t, states)` gives last, by name; the outputs under `y`."""
    states, outputs = dict(first), []
    for x_t in x:
        y, states = step(x_t, states)
        outputs.append(y)
    return {"y": np.stack(outputs), **states}


@anyrnn.cell
def twin(x, h, k):  # type: ignore[no-untyped-def]
    n = anyrnn.tanh(anyrnn.affine("a", x, h, k))
    return n, anyrnn.State(h=n, k=n)


@anyrnn.cell
def delay(x, h, before):  # type: ignore[no-untyped-def]
    n = anyrnn.tanh(anyrnn.affine("a", x, h, before))
    return n, anyrnn.State(h=n, before=h)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("options", [
    {"zoneout": {"h": 0.5, "k": 0.25}}, {"zoneout": {"k": 1.0}}, {"clip_state": {"k": 0.2, "h": 0.1}}, {"clip_state": {"k": 0.2}},
    {"clip_state": {"h": 0.1}, "zoneout": {"k": 0.5}},
], ids=str)  # fmt: skip
def test_states_that_have_the_same_new_value(options: dict[str, Any], backend: str) -> None:
    """Each has its own option; the output is the first of them."""
    layer = anyrnn.Recurrent(twin, 2, 3, dtype="float64", seed=0, backend=backend, **options)
    random, w = np.random.default_rng(0), {n.removesuffix("_l0"): p for n, p in layer.parameters.items()}
    x, first = random.normal(size=(4, 2, 2)), {s: random.normal(size=(2, 3)) for s in "hk"}
    zones, clips = options.get("zoneout", {}), options.get("clip_state", {})

    def step(x_t: Any, states: Any) -> Any:
        pre = x_t @ w["weight_ih"].T + states["h"] @ w["weight_hh"].T + states["k"] @ w["weight_kh"].T
        n = np.tanh(pre + w["bias_ih"] + w["bias_hh"] + w["bias_kh"])
        new = {s: np.clip(n, -clips.get(s, 9), clips.get(s, 9)) for s in "hk"}
        new = {s: zones.get(s, 0) * states[s] + (1 - zones.get(s, 0)) * new[s] for s in "hk"}
        return new["h"], new

    expected = by_hand(step, x, first)
    y, (h, k) = layer(x, tuple(s[None] for s in first.values()))
    for name, found in {"y": y, "h": h[0], "k": k[0]}.items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-12, err_msg=name)
    if "zoneout" in options and len(zones) > 1:
        _, (h, k), _ = layer.forward_training(x, seed=3)
        assert (h != k).any()


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_new_state_that_was_one_before_the_step_is_clipped_alone(backend: str) -> None:
    layer = anyrnn.Recurrent(delay, 2, 3, dtype="float64", seed=0, backend=backend, clip_state={"before": 0.1})
    random, w = np.random.default_rng(0), {n.removesuffix("_l0"): p for n, p in layer.parameters.items()}
    x, first = random.normal(size=(4, 2, 2)), {s: random.normal(size=(2, 3)) for s in ("h", "before")}

    def step(x_t: Any, states: Any) -> Any:
        pre = x_t @ w["weight_ih"].T + states["h"] @ w["weight_hh"].T + states["before"] @ w["weight_beforeh"].T
        n = np.tanh(pre + w["bias_ih"] + w["bias_hh"] + w["bias_beforeh"])
        return n, {"h": n, "before": np.clip(states["h"], -0.1, 0.1)}

    expected = by_hand(step, x, first)
    y, (h, before) = layer(x, tuple(s[None] for s in first.values()))
    for name, found in {"y": y, "h": h[0], "before": before[0]}.items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-12, err_msg=name)


def test_recurrent_dropout_leaves_scalars_alone() -> None:
    @anyrnn.cell
    def counted(x, h, n: anyrnn.Scalar(init=1.0)):  # type: ignore[no-untyped-def, valid-type]
        m = anyrnn.tanh(anyrnn.affine("a", x, h=h / n))
        return m, anyrnn.State(h=m, n=n + 1)

    results = []
    for backend in ("llvm", "reference"):
        layer = anyrnn.Recurrent(counted, 6, 6, dtype="float64", recurrent_dropout=0.5, seed=1, backend=backend)
        y, (_, n), reserve = layer.forward_training(np.ones((7, 3, 6)), seed=3)
        assert (n == 8).all()
        results.append([y, *layer.backward(reserve, np.cos(y))[2].values()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_no_samples_at_all(backend: str) -> None:
    options = {"zoneout": 0.3, "recurrent_dropout": 0.3, "learned_state": True}
    layer = anyrnn.Recurrent("gru", 6, 6, backend=backend, **options)
    y, _, reserve = layer.forward_training(np.zeros((7, 0, 6), np.float32))
    assert not any(g.any() for g in layer.backward(reserve, np.zeros_like(y))[2].values())
    y, _, reserve = layer.forward_training(np.zeros((7, 2, 6), np.float32), lengths=[0, 0])
    assert not any(g.any() for g in layer.backward(reserve, d_last_output=np.ones_like(y[0]))[2].values())


def test_learned_states_of_another_kind_are_refused() -> None:
    for backend in ("auto", "reference"):
        layer = anyrnn.torch.Recurrent("gru", 2, 5, learned_state=True, backend=backend)
        for wrong in (torch.zeros(5).double(), torch.zeros(1, 5), torch.zeros(7), torch.zeros(5, device="meta")):
            layer.h0_l0 = torch.nn.Parameter(wrong)
            for call in ({}, {"lengths": [1]}):
                with pytest.raises(RuntimeError, match=r"Recurrent: h0_l0: expected \[5\] of torch.float32 on cpu, got \["):
                    layer(torch.zeros(3, 1, 2), **call)
    numpy = anyrnn.Recurrent("gru", 2, 5, learned_state=True)
    del numpy.parameters["h0_l0"]
    for use in (numpy.stream, lambda: numpy(np.zeros((3, 1, 2), np.float32))):
        with pytest.raises(ValueError, match=r"parameters should be .* unknown or missing: h0_l0"):
            use()


def test_options_are_those_that_were_given() -> None:
    """Whatever the caller does with a dict afterwards."""
    z = {"h": 0.3}
    module, layer = anyrnn.torch.Recurrent("lstm", 6, 6, zoneout=z), anyrnn.Recurrent("lstm", 6, 6, 2, dropout=0.1, zoneout=z)
    z["h"] = 0.9
    layer.dropout = 0.2
    assert dict(layer.training_network.probabilities)["zoneout.0"] == (0.3, 0.3)
    assert "zoneout={'h': 0.3}" in repr(module)


def test_numbers_of_numpy_are_numbers() -> None:
    options = {
        "zoneout": np.float32(0.5),
        "clip_state": np.int64(1),
        "clip_gradient": np.float16(2),
        "input_dropout": np.int64(0),
    }
    layer = anyrnn.Recurrent("gru", 3, 4, 2, dropout=np.float32(0.5), **options)
    assert dict(layer.training_network.probabilities) == {"between_layers": (0.0, 0.5), "zoneout.0": (0.5, 0.5)}


@pytest.mark.parametrize(
    "options", [{"clip_state": (-1.0, 1e39)}, {"clip_preactivation": 1e300}, {"clip_gradient": 1e39}], ids=str
)
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_bounds_beyond_float32_bound_nothing(options: dict[str, Any], backend: str) -> None:
    found = []
    for given in ({}, options):
        layer = anyrnn.torch.Recurrent("gru", 3, 4, backend=backend, **given)
        with torch.no_grad():
            for p in layer.parameters():
                p.fill_(0.1)
        x = torch.ones(4, 2, 3, requires_grad=True)
        layer(x)[0].sum().backward()
        found += [x.grad, layer.weight_hh_l0.grad]
    torch.testing.assert_close(found[:2], found[2:])


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_numbers_beyond_a_dtype_are_infinite(backend: str) -> None:
    @cell
    def mine(x, h, p: Vec(init=-1e300)):  # type: ignore[no-untyped-def, valid-type]
        h = where(p < -1e39, tanh(affine("n", x)), where(h > 1e39, h, -1e39))
        return h, State(h=h, p=p)

    layer = anyrnn.torch.Recurrent(mine, 3, 4, backend=backend)
    output, (_, p) = layer(torch.ones(2, 1, 3))
    assert output.isneginf().all()
    assert p.isneginf().all()


# errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"input_dropout": 1.5}, ValueError, r"input_dropout should be a probability, a number in range \[0, 1\]; got 1.5"),
        ({"recurrent_dropout": True}, ValueError, "recurrent_dropout should be a probability"),
        ({"output_dropout": None}, ValueError, "output_dropout should be a probability"),
        ({"zoneout": float("nan")}, ValueError, "zoneout should be a probability"),
        ({"zoneout": {"c": 0.1}}, ValueError, "zoneout: cell 'gru' has no state 'c' that is a vector; it has: h"),
        ({"clip_state": 0.0}, ValueError, r"clip_state should be a positive number, or a pair \(low, high\), got 0.0"),
        ({"clip_state": (1, -1)}, ValueError, "clip_state should be a positive number, or a pair"),
        ({"clip_state": {"h": "1"}}, ValueError, "clip_state should be a positive number, or a pair"),
        ({"clip_state": 1 << 2000}, ValueError, "clip_state should be a positive number, or a pair"),
        ({"clip_preactivation": -1}, ValueError, "clip_preactivation should be a positive number, got -1"),
        ({"clip_gradient": 0}, ValueError, "clip_gradient should be a positive number, got 0"),
        ({"activations": {"gelu": "tanh"}}, ValueError, "activations should be for sigmoid, tanh, relu, softplus, got 'gelu'"),
        ({"activations": {"tanh": "gelu"}}, ValueError, "expected a function or the name of one of neg, abs.*, got 'gelu'"),
        ({"activations": {"relu": "tanh"}}, ValueError, "activations: cell 'gru' has no relu; it has sigmoid, tanh"),
        ({"activations": "relu"}, TypeError, "activations should map names of functions to others, got 'relu'"),
        ({"merge": "sum"}, ValueError, "merge='sum' is for bidirectional layers"),
        ({"merge": "ave"}, ValueError, "merge should be one of concat, sum, mean, mul, separate, got 'ave'"),
        ({"residual": True}, ValueError, "residual is for layers above the first, and num_layers=1 has none"),
        ({"reverse": True, "bidirectional": True}, ValueError, "reverse is for one direction; a bidirectional layer has both"),
        ({"skip_input": True}, ValueError, "cell 'gru' takes inputs of the hidden size 4, got input_size=3"),
        ({"learned_state": None}, TypeError, "learned_state should be of type bool, got: NoneType"),
        ({"skip_input": 1}, TypeError, "skip_input should be of type bool, got: int"),
        ({"bias": "all"}, ValueError, "bias should be a bool or one of both, input, recurrent, none, got 'all'"),
        ({"bias": 1}, TypeError, "bias should be of type bool, got: int"),
        ({"reverse": "yes"}, TypeError, "reverse should be of type bool, got: str"),
        ({"cut_gradient": 1}, TypeError, "cut_gradient should be of type bool, got: int"),
        (
            {"zone_out": 0.1},
            TypeError,
            r"unexpected keyword argument 'zone_out' \(did you mean 'zoneout'\?\); options of cell 'gru': none; of layers of any",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    for layer in (anyrnn.Recurrent, anyrnn.torch.Recurrent):
        with pytest.raises(error, match=message):
            layer("gru", 3, 4, **options)


@pytest.mark.parametrize("name", ["recurrent_dropout", "weight_dropout", "cut_gradient"])
@pytest.mark.parametrize("cell", ["indrnn", "mingru"])
def test_an_option_that_can_do_nothing_is_refused(cell: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: cell '{cell}' has no product that reads a state: leave the option out"):
        anyrnn.Recurrent(cell, 3, 4, **{name: VALUES[name]})


@pytest.mark.parametrize("option", [{"zoneout": 0.5}, {"clip_state": 1.0}], ids=str)
def test_a_cell_without_vectors(option: dict[str, Any]) -> None:
    @anyrnn.cell
    def number(x, n: anyrnn.Scalar(init=1.0)):  # type: ignore[no-untyped-def, valid-type]
        y = anyrnn.tanh(anyrnn.affine("a", x))
        return y * n, anyrnn.State(n=n * 0.9 + anyrnn.mean(y))

    with pytest.raises(ValueError, match=f"{next(iter(option))}: cell 'number' has no state that is a vector"):
        anyrnn.Recurrent(number, 3, 4, **option)


def test_a_cell_without_pre_activations() -> None:
    @anyrnn.cell
    def linear(x, h):  # type: ignore[no-untyped-def]
        h = 0.5 * h + anyrnn.affine("a", x)
        return h, anyrnn.State(h=h)

    with pytest.raises(ValueError, match="clip_preactivation: cell 'linear' has no activation function of products or inputs"):
        anyrnn.Recurrent(linear, 3, 4, clip_preactivation=1.0)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_what_else_reads_a_pre_activation_gets_it_as_it_is(backend: str) -> None:
    @anyrnn.cell
    def gated(x, h):  # type: ignore[no-untyped-def]
        v = anyrnn.affine("a", x, h)
        h = v * anyrnn.sigmoid(v)
        return h, anyrnn.State(h=h)

    layer = anyrnn.Recurrent(gated, 2, 3, clip_preactivation=0.01, dtype="float64", backend=backend)
    x, p = np.ones((1, 1, 2)), layer.parameters
    v = p["weight_ih_l0"] @ x[0, 0] + p["bias_ih_l0"] + p["bias_hh_l0"]
    assert np.abs(v).max() > 0.01
    np.testing.assert_allclose(layer(x)[0][0, 0], v / (1 + np.exp(-v.clip(-0.01, 0.01))), rtol=1e-12)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_activations_that_are_functions(backend: str) -> None:
    """An Elman network with any activation function is rnn_tanh with another one."""
    x = np.random.default_rng(0).normal(size=(5, 3, 4))
    given = {"seed": 1, "dtype": "float64", "backend": backend}
    ours = anyrnn.Recurrent("rnn_tanh", 4, 5, activations={"tanh": lambda v: anyrnn.where(v > 0, v, 0.0)}, **given)
    theirs = anyrnn.Recurrent("rnn_relu", 4, 5, **given)
    (y, _, reserve), (expected, _, theirs_reserve) = (layer.forward_training(x) for layer in (ours, theirs))
    np.testing.assert_allclose(y, expected, atol=1e-15)
    np.testing.assert_allclose(ours.backward(reserve, y)[0], theirs.backward(theirs_reserve, y)[0], atol=1e-14)
    earlier: list[anyrnn.ir.symbol.Symbol] = []

    def remembered(v: anyrnn.ir.symbol.Symbol) -> anyrnn.ir.symbol.Symbol:
        earlier.append(v)
        return v + 0.0

    anyrnn.Recurrent("rnn_tanh", 4, 5, activations={"tanh": remembered})
    for function in (anyrnn.total, lambda v: v > 0, lambda v: 3.0, lambda _: earlier[0] + 0.0):
        with pytest.raises(ValueError, match="activations: what is in the place of tanh should give as many numbers"):
            anyrnn.Recurrent("rnn_tanh", 4, 5, activations={"tanh": function})


def test_matrices_that_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="cell 'lstm' has 4 products that read states, and at most 3 can be told apart"):
        with_weight_dropout(cells.load("lstm").trace(), "weights", 3)


def test_a_gate_that_cannot_take_the_input_as_it_is() -> None:
    @anyrnn.cell
    def narrow(x, h):  # type: ignore[no-untyped-def]
        h = anyrnn.tanh(anyrnn.affine("a", x, h)) * anyrnn.mean(anyrnn.affine("b", x, size=3))
        return h, anyrnn.State(h=h)

    with pytest.raises(
        anyrnn.CellError, match=r"test_options.py:\d+: skip_input: a gate of 3 features cannot take the input's hidden"
    ):
        anyrnn.Recurrent(narrow, 4, 4, skip_input=True)


def test_a_skipped_input_is_the_layers_and_not_that_of_a_cell_within() -> None:
    @anyrnn.cell
    def two(x, a, b):  # type: ignore[no-untyped-def]
        with anyrnn.scope("a"):
            y, s = anyrnn.cells.rnn_tanh(x, a)
        with anyrnn.scope("b"):
            y, t = anyrnn.cells.rnn_tanh(y, b)
        return y, anyrnn.State(a=s.h, b=t.h)

    weights = [name for name in anyrnn.Recurrent(two, 4, 4, skip_input=True).parameters if "weight" in name]
    assert weights == ["a_weight_hh_l0", "b_weight_ih_l0", "b_weight_hh_l0"]


def test_random_choices_are_for_as_many_states_as_their_counter_has_room_for() -> None:
    @anyrnn.cell
    def many(x, h, *past: anyrnn.Several(257)):  # type: ignore[no-untyped-def,valid-type]
        h, past = anyrnn.tanh(anyrnn.affine("n", x, h=past[-1])), (h, *past[:-1])
        return h, anyrnn.State(h=h, past=past)

    anyrnn.Recurrent(many, 2, 3)
    with pytest.raises(ValueError, match="cell 'many' has 258 states; random choices are for 256 at most"):
        anyrnn.Recurrent(many, 2, 3, recurrent_dropout=0.1)
