"""Products of numbers rounded to bfloat16: where they are allowed; and parameters of 16 bits, kept as kernels read them."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyrnn
import anyrnn.torch
from anyrnn.backends import bfloat16
from anyrnn.torch.kept import Lasting
from tests.networks import NO_PAIRS, on_processor
from tests.torch.layers import products_of_bfloat16, tensors_of

T, N, D, H = 6, 4, 5, 7
X = torch.randn(T, N, D, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not they are worth it."""
    on_processor(monkeypatch, multiplies_pairs=True)


def medium(call: Callable[[], Any]) -> Any:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        return call()
    finally:
        torch.set_float32_matmul_precision(before)


def autocast(call: Callable[[], Any]) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return call()


def fp32_precision(call: Callable[[], Any]) -> Any:
    with products_of_bfloat16():
        return call()


WAYS = {f.__name__: f for f in (medium, autocast, fp32_precision)}


def solve(layer: torch.nn.Module, x: Tensor = X) -> list[Tensor]:
    """The output, and the gradients."""
    leaf = x.detach().clone().requires_grad_()
    layer.zero_grad()
    output = layer(leaf)[0]
    output.backward(torch.ones_like(output))
    return [output.detach(), leaf.grad, *(p.grad.clone() for p in layer.parameters())]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


@NO_PAIRS
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_settings_allow_them(name: str, way: str) -> None:
    layer = getattr(anyrnn.torch, name)(D, H)
    double = copy.deepcopy(layer).double()
    exact = solve(double, X.double())
    for _ in range(4):  # calls that are alike are remembered
        assert not bfloat16.allowed()
        plain = solve(layer)
        found = WAYS[way](lambda: solve(layer))
        assert not equal(found, plain)
        assert {t.dtype for t in found} == {torch.float32}
        for f, p, e in zip(found, plain, exact, strict=True):
            assert (f - e).norm() < 2 * torch.finfo(torch.bfloat16).eps * e.norm()
            assert (p - e).norm() < 1e-5 * e.norm()


@NO_PAIRS
def test_gradients_are_of_the_forward_call() -> None:
    """Whatever the setting is when they are asked for."""
    layer = anyrnn.torch.GRU(D, H)
    expected = fp32_precision(lambda: solve(layer))
    for _ in range(3):
        layer.zero_grad()
        output = fp32_precision(lambda: layer(X)[0])
        output.backward(torch.ones_like(output))
        assert equal([p.grad for p in layer.parameters()], expected[2:])


@NO_PAIRS
@pytest.mark.parametrize("way", WAYS)
def test_under_compile(way: str) -> None:
    layer = anyrnn.torch.GRU(D, H).eval()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(compiled(X)[0], layer(X)[0])
            if way == "fp32_precision":  # torch compiles again where another setting has changed, not where this one has
                torch.compiler.reset()
            assert torch.equal(WAYS[way](lambda: compiled(X)[0]), fp32_precision(lambda: layer(X)[0]))
            if way == "fp32_precision":
                torch.compiler.reset()


@NO_PAIRS
def test_what_is_exported_keeps_its_precision() -> None:
    layer = anyrnn.torch.GRU(D, H).eval()
    program = fp32_precision(lambda: torch.export.export(layer, (X,)))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    assert torch.equal(again(X)[0], fp32_precision(lambda: layer(X)[0]))
    assert not torch.equal(again(X)[0], layer(X)[0])


@NO_PAIRS
@pytest.mark.parametrize("options", [{"dtype": torch.float64}, {"backend": "reference"}])
def test_others_are_as_they_were(options: dict[str, Any]) -> None:
    layer = anyrnn.torch.Recurrent("gru", D, H, **options)
    x = X.to(layer.weight_ih_l0.dtype)
    assert equal(fp32_precision(lambda: solve(layer, x)), solve(layer, x))


@NO_PAIRS
def test_float16_is_multiplied_as_float32() -> None:
    """Which has all of its digits."""
    layer = anyrnn.torch.GRU(D, H, dtype=torch.float16)
    x = X.half()
    expected = copy.deepcopy(layer).float()(x.float())[0].half()
    assert torch.equal(fp32_precision(lambda: layer(x)[0]), expected)


@NO_PAIRS
def test_autocast_to_other_dtypes() -> None:
    """What a call remembers of autocast is more than that it is on."""
    layer = anyrnn.torch.GRU(D, H)
    plain, rounded = layer(X)[0], autocast(lambda: layer(X)[0])
    for dtype, expected in ((torch.float16, plain), (torch.bfloat16, rounded)) * 2:
        for _ in range(4):
            with torch.autocast("cpu", dtype):
                assert torch.equal(layer(X)[0], expected)


@NO_PAIRS
@pytest.mark.parametrize("cell", ["lstm", "gru_before", "lstm_heads"])
def test_steps_and_samples_alone_have_the_same_bits(cell: str) -> None:
    layer, x = anyrnn.torch.Recurrent(cell, 37, 33, num_layers=2), torch.randn(6, 5, 37)
    with products_of_bfloat16(), torch.no_grad():
        output, state = layer(x)
        steps, last = [], None
        for step in x.split(1):
            y, last = layer(step, last)
            steps.append(y)
        assert torch.equal(torch.cat(steps), output)
        assert all(map(torch.equal, tensors_of(last), tensors_of(state)))
        lengths = [6, 2, 5, 1, 4]
        ragged = layer(x, lengths=lengths)[0]
        for n, length in enumerate(lengths):
            assert torch.equal(ragged[:length, n], layer(x[:length, n : n + 1])[0][:, 0])


@NO_PAIRS
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_what_is_computed_again_has_the_same_bits(cell: str) -> None:
    found = []
    for budget in (None, 3_000_000):
        torch.manual_seed(0)
        layer = anyrnn.torch.Recurrent(cell, 5, 16, memory_budget=budget)
        found.append(fp32_precision(lambda layer=layer: solve(layer, torch.randn(8000, 2, 5, generator=torch.manual_seed(1)))))
    assert equal(*found)


@NO_PAIRS
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("column", range(H))
def test_weights_that_are_not_finite_meet_states_of_zeros(column: int, value: float) -> None:
    """The products of the first step are not made, but their result is."""
    layer = anyrnn.torch.RNN(D, H, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight_hh_l0[2, column] = value
        for state in (None, torch.zeros(1, N, H, dtype=torch.bfloat16)):
            output = layer(X[:1].bfloat16(), state)[0]
            assert output[..., 2].isnan().all()
            assert output[..., torch.arange(H) != 2].isfinite().all()


@pytest.mark.parametrize("worth_it", [False, pytest.param(True, marks=NO_PAIRS)])
def test_explained(worth_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    on_processor(monkeypatch, multiplies_pairs=worth_it)
    layer, products = anyrnn.torch.GRU(D, H), " with products of bfloat16" * worth_it
    with products_of_bfloat16():
        assert anyrnn.explain(layer, X).call.endswith(f"float32{products}")
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(X, X)
            assert anyrnn.explain(layer, dual).call.endswith("float32")
        assert anyrnn.explain(layer.double(), X.double()).call.endswith("float64")
    assert anyrnn.explain(layer.bfloat16(), X.bfloat16()).call.endswith(f"float32{products} for torch.bfloat16")


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda p: p.mul_(2),
    "data": lambda p: p.data.mul_(2),
    "another tensor": lambda p: setattr(p, "data", 2 * p.data),
    "one number": lambda p: p.view(-1)[-1:].data.add_(1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cell", ["lstm", "lru", "indrnn"])
def test_changed_parameters_are_seen(cell: str, dtype: torch.dtype, change: str) -> None:
    layer = anyrnn.torch.Recurrent(cell, D, H, num_layers=2, dtype=dtype).eval()
    x = X.to(dtype)
    with torch.no_grad():
        for p in layer.parameters():
            before = [layer(x)[0] for _ in range(4)][-1]
            CHANGES[change](p)
            found = layer(x)[0]
            assert torch.equal(found, copy.deepcopy(layer)(x)[0])
        assert not torch.equal(found, before)


def test_parameters_are_widened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, made = anyrnn.torch.LSTM(D, H, num_layers=2, dtype=torch.bfloat16).eval(), []
    get = Lasting.get

    def watched(self: Lasting[Any], *given: Any) -> Any:
        made.append(get(self, *given))
        return made[-1]

    monkeypatch.setattr(Lasting, "get", watched)
    x = X.bfloat16()
    with torch.no_grad():
        for _ in range(5):
            layer(x)
        assert len(made) == 4  # the first call looks at the parameters themselves
        assert all(a is b for kept in made[1:] for a, b in zip(kept, made[0], strict=True))
        layer.freeze()
        layer(x)
        assert made[-1][0] is made[0][0]
    layer(x)[0].sum().backward()  # training changes them
    assert made[-1] is None
    with torch.no_grad():
        layer(x)
    assert made[-1] is not None
    assert made[-1][0] is not made[0][0]


def test_a_layer_that_is_frozen_sees_what_torch_counts() -> None:
    layer = anyrnn.torch.GRU(D, H, dtype=torch.bfloat16).eval().freeze()
    x = X.bfloat16()
    with torch.no_grad():
        for _ in range(3):
            layer(x)
        layer.weight_hh_l0.mul_(2)
        assert torch.equal(layer(x)[0], copy.deepcopy(layer)(x)[0])
        layer.load_state_dict({k: 2 * v for k, v in layer.state_dict().items()})
        assert torch.equal(layer(x)[0], copy.deepcopy(layer)(x)[0])
        layer.weight_ih_l0 = torch.nn.Parameter(-layer.weight_ih_l0)
        assert torch.equal(layer(x)[0], copy.deepcopy(layer)(x)[0])
