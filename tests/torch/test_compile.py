"""torch.compile takes a layer in one graph, and gives what eager mode gives. Few tests: each compiles for seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor
from torch._dynamo.utils import counters

import anyrnn.torch
from anyrnn import State, UnsupportedError, cell
from anyrnn.trace.language import affine, matrix, tanh
from tests.torch.layers import solve, tensors_of

# Torch's own doing.
pytestmark = pytest.mark.filterwarnings(
    "ignore:<class 'torch.autograd.function.Function'> should not be instantiated",
)

T, N, D, H = 5, 3, 4, 7


@cell
def antisymmetric(x, h):
    """A cell that computes with its parameters."""
    w = matrix("w")
    h = tanh((w - w.T) @ h + affine("a", x))
    return h, State(h=h)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(layer: Any) -> Any:
    return torch.compile(layer, fullgraph=True, backend="aot_eager")


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


LAYERS = {
    "lstm": lambda: anyrnn.torch.LSTM(D, H, 2, bidirectional=True, batch_first=True),
    "a parameter phase": lambda: anyrnn.torch.Recurrent(antisymmetric, D, H, batch_first=True),
    "interpreter": lambda: anyrnn.torch.GRU(D, H, batch_first=True, backend="reference"),
}


@pytest.mark.parametrize("made", ["lstm", "a parameter phase", pytest.param("interpreter", marks=pytest.mark.slow)])
def test_results_and_gradients_are_those_of_eager_mode(made: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[made]()
    fast = compiled(layer)
    x = draw(N, T, D)
    state = tuple(draw(len(layer.network.units), N, size) for size in layer.network.state_sizes)
    for hx in (None, state if len(state) > 1 else state[0]):
        # The compiled one first: it must not need a call in eager mode before.
        found = {name.replace("_orig_mod.", ""): value for name, value in solve(fast, x, hx).items()}
        expected = solve(layer, x, hx)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, msg=lambda m, name=name: f"{name}: {m}")
    with torch.no_grad():
        assert torch.equal(fast(x)[0], layer(x)[0])


@pytest.mark.parametrize("dynamic", [True, None])
def test_any_batch_size_and_length(dynamic: bool | None) -> None:
    """Compiled once for twenty, whether told that sizes vary, or which dimensions do."""
    layer = anyrnn.torch.LSTM(D, H)
    counters.clear()
    fast = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for k in range(20):
        x = draw(3 + 7 * k % 20, 2 + 11 * k % 20, D, seed=k).requires_grad_()
        if dynamic is None:
            for dimension in (0, 1):
                torch._dynamo.mark_dynamic(x, dimension)
        results = []
        for function in (fast, layer):
            y, last = function(x)
            gradients = torch.autograd.grad(y.sin().sum() + last[1].sum(), [x, *layer.parameters()])
            results.append([y, *tensors_of(last), *gradients])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_new_weights_are_used() -> None:
    layer = anyrnn.torch.GRU(D, H)
    fast, x = compiled(layer), draw(T, N, D)
    adam = torch.optim.Adam(layer.parameters(), lr=0.1)
    before = fast(x)[0]
    for _ in range(2):
        adam.zero_grad()
        fast(x)[0].square().sum().backward()
        adam.step()
    assert torch.equal(fast(x)[0], layer(x)[0])
    assert not torch.equal(fast(x)[0], before)


def test_inside_of_a_larger_model() -> None:
    """Between other layers, several of them, in one graph."""
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(10, D)
            self.below = anyrnn.torch.GRU(D, H, batch_first=True)
            self.above = anyrnn.torch.Recurrent("mgu", H, 5, batch_first=True)
            self.head = torch.nn.Linear(5, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            y, h = self.below(self.embed(tokens))
            y, _ = self.above(torch.relu(y), None)
            return self.head(y) + h.sum()

    model = Model()
    tokens = torch.arange(12).remainder(10).reshape(3, 4)
    gradients = []
    for function in (model, compiled(model)):
        model.zero_grad()
        function(tokens).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
def test_inductor() -> None:
    layer = anyrnn.torch.LSTM(D, H, 2)
    fast, x = torch.compile(layer, fullgraph=True), draw(T, N, D)
    expected, found = solve(layer, x), solve(fast, x)
    for a, b in zip(expected.values(), found.values(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
def test_export() -> None:
    layer = anyrnn.torch.LSTM(D, H, 2, batch_first=True).eval()
    x = draw(N, T, D)
    batch, steps = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("steps", min=2, max=64)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: batch, 1: steps},))
    for shape in [(N, T, D), (2, 9, D)]:
        assert torch.equal(program.module()(draw(*shape))[0], layer(draw(*shape))[0])


@pytest.mark.filterwarnings("ignore:.*autograd.*:UserWarning")
@pytest.mark.parametrize(("strict", "lengths"), [(True, None), (False, None), (False, [3, 5])])
def test_an_exported_program_has_gradients(strict: bool, lengths: list[int] | None) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.below, self.rnn, self.head = torch.nn.Linear(3, D), anyrnn.torch.LSTM(D, H, 2), torch.nn.Linear(H, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.head(self.rnn(self.below(x), lengths=lengths)[0])
            return found

    model, x = Model(), draw(5, 2, 3)
    program = torch.export.export(model, (x,), strict=strict).module()
    gradients = []
    for call in (program, model):
        names, parameters = zip(*call.named_parameters(), strict=True)
        gradients.append(dict(zip(names, torch.autograd.grad(call(x).cos().sum(), parameters), strict=True)))
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], gradient)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_exported_program_of_lengths_is_not_compiled_with_gradients() -> None:
    class Ragged(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = anyrnn.torch.GRU(D, H)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.rnn(x, lengths=[3, 5])[0]
            return found

    x = draw(5, 2, D)
    program = torch.export.export(Ragged(), (x,), strict=False).module()
    with pytest.raises(Exception, match="cannot be compiled with gradients"):
        torch.compile(program, backend="aot_eager")(x).sum().backward()


def test_an_exported_program_takes_a_state() -> None:
    layer, x = anyrnn.torch.LSTM(D, H), draw(T, N, D)
    state = anyrnn.torch.RecurrentState(("h", "c"), (draw(1, N, H), draw(1, N, H)))
    program = torch.export.export(layer, (x, state)).module()
    (y, last), (expected, expected_last) = program(x, state), layer(x, state)
    assert torch.equal(y, expected)
    assert all(torch.equal(a, b) for a, b in zip(last, expected_last, strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_package_of_aotinductor(tmp_path: Path) -> None:
    layer, x = anyrnn.torch.LSTM(D, H).eval(), draw(T, N, D)
    with torch.no_grad():
        program = torch.export.export(layer, (x,))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "a.pt2"))
        assert torch.equal(torch._inductor.aoti_load_package(package)(x)[0], layer(x)[0])


@pytest.mark.parametrize("kind", ["gru", "lstm_layernorm"])
def test_a_dtype_without_kernels_that_was_never_called(kind: str) -> None:
    layer, x = anyrnn.torch.Recurrent(kind, D, H, dtype=torch.bfloat16), draw(T, N, D).bfloat16()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x)[0], layer(x)[0])


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_an_export_of_any_number_of_samples_in_16_bits(backend: str) -> None:
    layer = anyrnn.torch.Recurrent("gru", D, H, dtype=torch.bfloat16, backend=backend).eval()
    rows = torch.export.Dim("rows", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(layer, (draw(T, N, D).bfloat16(),), dynamic_shapes=({1: rows},))
        x = draw(T, N + 2, D).bfloat16()
        assert torch.equal(program.module()(x)[0], layer(x)[0])


def test_options_and_all_states() -> None:
    """With options that are networks in parts, random choices and learned states too."""
    shape = {"num_layers": 2, "bidirectional": True, "merge": "sum", "residual": True, "learned_state": True, "zoneout": 0.3}
    layer = anyrnn.torch.Recurrent("gru", 5, 8, **shape)
    compiled = torch.compile(lambda x: layer(x, return_states="all"), backend="aot_eager", fullgraph=True)
    x = torch.randn(6, 3, 5)
    results = []
    for call in (compiled, lambda x: layer(x, return_states="all")):
        torch.manual_seed(2)
        layer.zero_grad()
        y, h = call(x)
        (y.sum() + h.cos().sum()).backward()
        results.append([y, h, *(p.grad for p in layer.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_weights_that_are_dropped():
    layer = anyrnn.torch.Recurrent("lstm", D, H, weight_dropout=0.5)
    results = []
    for call in (layer, compiled(layer)):
        torch.manual_seed(3)
        layer.zero_grad()
        y = call(draw(T, N, D))[0]
        y.sum().backward()
        results.append([y, layer.weight_hh_l0.grad])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert (results[0][1] == 0).float().mean() > 0.4


def test_a_state_that_goes_from_call_to_call():
    layer = anyrnn.torch.GRU(D, H, bidirectional=True)

    def call(x, state):
        return layer(x, state.detach(), return_outputs="last")

    x, state = draw(T, N, D), layer.initial_state(N)
    (ours, after), (theirs, expected) = compiled(call)(x, state), call(x, state)
    assert torch.equal(ours, theirs)
    assert torch.equal(after.h, expected.h)


def test_a_loop_of_steps() -> None:
    made = anyrnn.torch.LSTMCell(D, H)

    def unroll(x: Tensor) -> Tensor:
        h = c = x.new_zeros(N, H)
        for step in x:
            h, c = made(step, (h, c))
        return h

    x = torch.randn(T, N, D)
    torch.testing.assert_close(torch.compile(unroll, fullgraph=True, backend="aot_eager")(x), unroll(x))


def test_samples_of_different_lengths_are_not_for_whole_graphs() -> None:
    layer, x = anyrnn.torch.GRU(3, 4), torch.randn(5, 2, 3)
    with pytest.raises(UnsupportedError, match="GRU: lengths, masks and resets of an exported program are those"):
        torch.export.export(layer, (x,), {"lengths": torch.tensor([5, 2])})
    with pytest.raises(torch._dynamo.exc.Unsupported, match="arranged outside of compiled code; leave out fullgraph=True"):
        torch.compile(layer, backend="eager", fullgraph=True)(x, lengths=[5, 2])
    compiled = torch.compile(layer, backend="eager")
    assert compiled(x, lengths=[5, 2])[0].equal(layer(x, lengths=[5, 2])[0])


def test_an_exported_program_in_forward_mode() -> None:
    layer, x = anyrnn.torch.GRU(D, H), draw(T, N, D)
    program = torch.export.export(layer, (x,)).module()
    (_, ours), (y, theirs) = (torch.func.jvp(lambda v, f=f: f(v)[0], (x,), (torch.ones_like(x),)) for f in (program, layer))
    torch.testing.assert_close(ours, theirs)
    assert theirs.abs().max() > 0
    assert torch.equal(y, layer(x)[0])  # by kernels, as ever


def test_first_states_of_as_many_samples_as_there_are_can_be_exported() -> None:
    class Given(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = anyrnn.torch.GRU(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.layer(x, self.layer.initial_state(x.size(1)))[0]
            return output

    module = Given().eval()
    samples = torch.export.Dim("samples", min=1, max=64)
    program = torch.export.export(module, (torch.zeros(5, 2, 3),), dynamic_shapes=({1: samples},))
    x = torch.randn(5, 7, 3)
    torch.testing.assert_close(program.module()(x), module(x))
