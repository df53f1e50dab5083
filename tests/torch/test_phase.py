"""What the parameter phase makes is kept from call to call, and is never that of other parameters."""

import copy
import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize

import anyrnn.torch
from anyrnn import State, affine, cell, matrix, sigmoid, tanh, vector
from anyrnn.torch import packed_weights
from anyrnn.torch.phase import Phase


@cell
def skewed(x, h, *, leak=0.25):  # type: ignore[no-untyped-def]
    W, rate = matrix("W"), sigmoid(vector("rate"))
    h = (1 - leak) * h + leak * tanh(affine("h", x) + (W - W.T) @ h) * rate
    return h, State(h=h)


@cell
def leaky(x, h, *, leak=0.25):  # type: ignore[no-untyped-def]
    h = (1 - leak) * h + leak * tanh(affine("h", x, h))
    return h, State(h=h)


SIZES = {"num_layers": 2, "bidirectional": True}


def layer_of(cell: Any, **options: Any) -> Any:
    torch.manual_seed(1)
    return anyrnn.torch.Recurrent(cell, 3, 5, **SIZES, **options)


def by_interpreter(layer: Any, x: Tensor) -> Tensor:
    """What a layer should give with the parameters that it has."""
    with torch.inference_mode(False), torch.no_grad():
        fresh = anyrnn.torch.Recurrent(layer.cell, 3, 5, **SIZES, **layer.options, backend="reference", dtype=x.dtype)
        fresh.load_state_dict({name: p.clone() for name, p in layer.state_dict().items()})
        output: Tensor = fresh.train(layer.training)(x.clone())[0]
        return output


def check(layer: Any, x: Tensor, times: int = 3) -> None:
    """That calls give what they should: looked at, remembered, and repeated."""
    expected = by_interpreter(layer, x)
    for _ in range(times):
        torch.testing.assert_close(layer(x)[0].detach(), expected, rtol=1e-5, atol=1e-6)


CHANGES: dict[str, Callable[[Any], object]] = {
    "in place": lambda layer: layer.W_l1_reverse.mul_(2),
    "data": lambda layer: layer.W_l0.data.mul_(2),
    "a single number": lambda layer: layer.rate_l1.data.view(-1)[4].add_(1),
    "through NumPy": lambda layer: np.multiply(layer.W_l1.detach().numpy(), 2, out=layer.W_l1.detach().numpy()),
    "another parameter": lambda layer: setattr(layer, "W_l0", torch.nn.Parameter(layer.W_l0 * 2)),
    "other strides": lambda layer: setattr(layer, "W_l0", torch.nn.Parameter((layer.W_l0 * 2).T.contiguous().T)),
    "a state dict": lambda layer: layer.load_state_dict({n: p * 2 for n, p in layer.state_dict().items()}),
    "what is read as it is": lambda layer: layer.weight_ih_l0.data.add_(1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_every_change_of_a_parameter_is_seen(change: str, mode: Callable[[], Any]) -> None:
    layer, x = layer_of(skewed).eval(), torch.randn(4, 2, 3)
    with mode():
        check(layer, x)
        before = layer(x)[0]
        with torch.inference_mode(False), torch.no_grad():
            CHANGES[change](layer)
        assert not torch.equal(layer(x)[0], before)
        check(layer, x)


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "longer": lambda rate: torch.cat([rate, torch.ones(3)]),
    "with a side more": lambda rate: rate[None],
    "empty": lambda rate: rate[:0],
    "of other numbers": Tensor.double,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", [torch.nn.Parameter, None])
@pytest.mark.parametrize("times", [1, 3])
def test_a_parameter_of_another_form_is_refused_whatever_its_bits(form: str, change: Any, times: int) -> None:
    layer, x = layer_of(skewed).eval(), torch.randn(4, 2, 3)
    with torch.no_grad():
        for _ in range(times):
            layer(x)
        other = FORMS[form](layer.rate_l0.detach().clone())
        if change is None:
            layer.rate_l0.data = other
        else:
            layer.rate_l0 = change(other)
        with pytest.raises(RuntimeError, match=r"expected \[5\]|dtype"):
            layer(x)


class Noisy(torch.nn.Module):
    """A parametrisation that draws."""

    def forward(self, weight: Tensor) -> Tensor:
        return torch.nn.functional.dropout(weight, 0.5)


def test_a_parametrisation_is_computed_once_in_a_call() -> None:
    found = []
    for turned in (False, True):
        layer, x = layer_of(skewed), torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
        parametrize.register_parametrization(layer, "W_l0", Noisy())
        for _ in range(3):
            layer(x)
        torch.manual_seed(7)
        given = x.permute(2, 1, 0).contiguous().permute(2, 1, 0) if turned else x
        found.append((layer(given)[0].detach(), torch.rand(1)))
    (plain, next_plain), (other, next_other) = found
    torch.testing.assert_close(other, plain)
    assert next_other == next_plain, "as much was drawn"


def test_what_was_packed_of_earlier_numbers_is_freed_at_once() -> None:
    layer, x = layer_of(skewed).eval(), torch.randn(4, 2, 3)
    made = []
    gc.disable()
    try:
        with torch.no_grad():
            for _ in range(5):
                layer.W_l0.mul_(1.5)
                layer(x)
                made += [weakref.ref(w) for w in packed_weights.KNOWN.values() if all(ref() is not w for ref in made)]
            kept = [ref for ref in made if ref() is not None]
            assert {id(ref()) for ref in kept} == {id(w) for w in packed_weights.KNOWN.values()}
            assert len(kept) < len(made)
    finally:
        gc.enable()


def test_a_parameter_that_was_replaced_is_not_kept() -> None:
    layer, x = layer_of(skewed).eval(), torch.randn(4, 2, 3)
    with torch.no_grad():
        layer(x)
    gone = weakref.ref(layer.W_l0)
    layer.W_l0 = torch.nn.Parameter(layer.W_l0.detach().clone())
    layer.train()(x)[0].sum().backward()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("change", ["in place", "another parameter", "a state dict"])
def test_a_frozen_module_sees_what_torch_counts(change: str) -> None:
    layer, x = layer_of(skewed).eval().freeze(), torch.randn(4, 2, 3)
    with torch.no_grad():
        check(layer, x)
        CHANGES[change](layer)
        check(layer, x)
        layer.W_l0.data.mul_(2)
        layer.freeze()  # a new promise
        check(layer, x)


def test_a_frozen_module_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_of(skewed).eval().freeze(), torch.randn(4, 2, 3)
    with torch.no_grad():
        check(layer, x)
        monkeypatch.setattr("anyrnn.torch.kept.same_bytes", lambda *_: pytest.fail("the numbers were looked at"))
        layer(x)


def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The units for which something is made from now on."""
    found: list[tuple[int, int]] = []
    make = Phase.make

    def counted(phase: Phase, unit: tuple[int, int], *given: Any, **how: Any) -> Any:
        found.append(unit)
        return make(phase, unit, *given, **how)

    monkeypatch.setattr(Phase, "make", counted)
    return found


def test_nothing_is_made_twice_of_the_same_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, found = layer_of(skewed).eval(), torch.randn(4, 2, 3), made(monkeypatch)
    with torch.no_grad():
        for _ in range(5):
            layer(x)
        assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]
        layer.W_l1.add_(1)
        layer(x)
    assert found[4:] == [(1, 0)]


@pytest.mark.parametrize("frozen", [True, False])
def test_a_parameter_that_another_thread_writes_to_meanwhile(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After something was made of it, and before that is kept."""
    layer, x, make = layer_of(skewed).eval(), torch.randn(4, 2, 3), Phase.make
    if frozen:
        layer.freeze()

    def disturbed(phase: Phase, *given: Any, **how: Any) -> Any:
        monkeypatch.undo()
        found = make(phase, *given, **how)
        layer.W_l0.mul_(2)
        return found

    with torch.no_grad():
        monkeypatch.setattr(Phase, "make", disturbed)
        layer(x)
        check(layer, x)


def test_hyper_parameters_are_made_once_for_training_too(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, found = layer_of(leaky), torch.randn(4, 2, 3), made(monkeypatch)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(5):
        optimiser.zero_grad()
        layer(x)[0].sum().backward()
        optimiser.step()
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]
    check(layer, x)


def test_what_follows_from_no_parameter_is_made_once_for_training_too() -> None:
    layer, x = layer_of(skewed), torch.randn(4, 2, 3)
    with torch.inference_mode():
        layer(x)
    _, phase = (mode.phase for mode in layer._modes.values())
    for _ in range(3):
        layer(x)[0].sum().backward()  # of tensors that were made in inference mode autograd keeps none
    kept = list(phase._constants.values())
    layer(x)
    assert list(map(bool, kept)) == [True] * 4
    assert all(made is values for made, values in zip(phase._constants.values(), kept, strict=True))
    check(layer, x)


def gradients(layer: Any, x: Tensor) -> list[Tensor]:
    layer.zero_grad()
    layer(x)[0].square().sum().backward()
    return [p.grad.clone() for p in layer.parameters()]


@pytest.mark.parametrize("own", [skewed, leaky])
def test_calls_with_gradients_between_those_without(own: Any) -> None:
    layer, x = layer_of(own), torch.randn(4, 2, 3)
    expected = gradients(layer_of(own, backend="reference"), x)
    for _ in range(4):
        with torch.no_grad():
            check(layer, x)
        with torch.inference_mode():
            check(layer, x)
        for d, e in zip(gradients(layer, x), expected, strict=True):
            torch.testing.assert_close(d, e, rtol=1e-4, atol=1e-5)


def test_a_parameter_that_is_to_be_trained_after_all() -> None:
    layer, x = layer_of(skewed).requires_grad_(False), torch.randn(4, 2, 3)
    for _ in range(4):
        layer(x)
    layer.W_l0.requires_grad_()
    layer(x)[0].sum().backward()
    assert layer.W_l0.grad is not None
    assert layer.W_l0.grad.abs().sum() > 0


def test_other_dtypes_and_copies() -> None:
    layer, x = layer_of(skewed).eval(), torch.randn(4, 2, 3)
    with torch.no_grad():
        check(layer, x)
        double = copy.deepcopy(layer).double()
        check(double, x.double())
        double.W_l0.mul_(2)
        check(double, x.double())
        check(layer, x)
        check(layer.double(), x.double())


def test_nan_is_kept_as_other_numbers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, found = layer_of(skewed).eval(), torch.randn(4, 2, 3), made(monkeypatch)
    with torch.no_grad():
        layer.W_l0[0, 0] = float("nan")
        for _ in range(3):
            assert layer(x)[0].isnan().any()
    assert len(found) == 4


def test_transforms_make_it_themselves() -> None:
    layer, x = layer_of(skewed).eval(), torch.randn(4, 2, 3)
    with torch.no_grad():
        check(layer, x)
        parameters = {n: torch.stack([p, p + 1]) for n, p in layer.named_parameters()}
        both = torch.vmap(lambda p: torch.func.functional_call(layer, p, (x,))[0])(parameters)
        torch.testing.assert_close(both[0], layer(x)[0])
        for p in layer.parameters():
            p.add_(1)
        torch.testing.assert_close(both[1], layer(x)[0])


def test_a_module_that_was_made_in_inference_mode() -> None:
    with torch.inference_mode():
        layer, x = layer_of(skewed).eval(), torch.randn(4, 2, 3)
        for _ in range(3):
            check(layer, x)
            layer.W_l0.mul_(2)


@pytest.mark.parametrize(("own", "name"), [(skewed, "W_l0"), (skewed, "weight_ih_l0"), (leaky, "weight_ih_l0")])
def test_parametrised_parameters(own: Any, name: str) -> None:
    layer, x = layer_of(own).eval(), torch.randn(4, 2, 3)
    torch.nn.utils.parametrizations.weight_norm(layer, name)
    with torch.no_grad():
        before = layer(x)[0]
        for _ in range(3):
            torch.testing.assert_close(layer(x)[0], before)
        layer.parametrizations[name].original0.mul_(2)
        assert not torch.equal(layer(x)[0], before)


@pytest.mark.timing
def test_a_hyper_parameter_costs_little() -> None:
    """A call of one sample, beside the same cell with the numbers written in."""

    @cell
    def written(x, h):  # type: ignore[no-untyped-def]
        h = 0.75 * h + 0.25 * tanh(affine("h", x, h))
        return h, State(h=h)

    x = torch.randn(20, 1, 64)
    layers = [anyrnn.torch.Recurrent(c, 64, 64) for c in (leaky, written)]
    seconds: list[list[float]] = [[], []]
    with torch.no_grad():
        for _ in range(20):
            for layer, found in zip(layers, seconds, strict=True):
                for _ in range(4):
                    layer(x)
                begin = time.perf_counter()
                for _ in range(10):
                    layer(x)
                found.append(time.perf_counter() - begin)
    given, plain = map(np.median, seconds)
    assert given < 1.5 * plain, (given, plain)


@pytest.mark.parametrize("name", ["lmu", "cornn", "gru_decay"])
def test_calls_of_every_mode_follow_each_other(name: str) -> None:
    """What they read of the parameters may be another number of tensors: of held states, while training with options."""
    sizes = {"memory": 4} if name == "lmu" else {}
    layer = anyrnn.torch.Recurrent(name, 3, 5, **sizes, zoneout=0.1)
    x, mask = torch.randn(40, 2, 3), torch.ones(40, 2, dtype=torch.bool)
    further = {f: torch.rand(40, 2, size) for f, size in layer.network.further_inputs}
    mask[7, 1] = False
    for _ in range(4):
        for mode in (layer.eval, layer.train):
            mode()
            for grad in (True, False):
                with torch.set_grad_enabled(grad):
                    layer(x, **further)
                    layer(x, mask=mask, **further)
                    layer(x, lengths=[40, 3], **further)


def test_a_copy_of_a_frozen_module_with_parametrisations_keeps_nothing_of_the_first() -> None:
    layer = anyrnn.torch.Recurrent("antisymmetric_rnn", 3, 4).eval()
    torch.nn.utils.parametrizations.weight_norm(layer, "weight_ih_l0")
    layer.freeze()
    x = torch.randn(5, 2, 3)
    with torch.no_grad():
        before = layer(x)[0]
        for changes in range(1, 5):  # one of which makes the copy's count that of the first
            other = copy.deepcopy(layer)
            assert torch.equal(other(x)[0], before)
            other = copy.deepcopy(layer)
            for _ in range(changes):
                other.W_l0.mul_(3)
            assert not torch.equal(other(x)[0], before)
