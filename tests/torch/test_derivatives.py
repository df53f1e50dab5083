"""Derivatives of every kind, in float64: against finite differences, torch.nn's layers and autograd through the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import anyrnn.torch
from anyrnn import State, Vec, cell
from anyrnn.trace.language import affine, exp, matrix, softplus, tanh, total
from tests.budget import assert_relative
from tests.torch.layers import pair, tensors_of
from tests.zoo import EVERY, FEW, further, input_size, sizes_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented the batching rule"),
]

T, N, D, H = 3, 2, 2, 3
backends = pytest.mark.parametrize("backend", ["llvm", "reference"])
kinds = pytest.mark.parametrize("kind", ["tanh", "lstm", "gru"])


@cell
def antisymmetric(x, h):
    """A cell that computes with its parameters."""
    w = matrix("w")
    h = tanh((w - w.T) @ h + affine("a", x))
    return h, State(h=h)


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make(name: Any, layers: int = 1, bidirectional: bool = False, backend: str = "llvm") -> Any:
    torch.manual_seed(3)
    size = input_size(name, D, 2 * H) if bidirectional else D
    layer = anyrnn.torch.Recurrent(
        name, size, H, layers, bidirectional=bidirectional, backend=backend, dtype=torch.float64, **sizes_of(name, 2, H)
    )
    with torch.no_grad():
        for _, parameter in trained(layer):  # small numbers only: no kinks of rectifiers between two differences
            parameter.copy_(parameter * 0.5 + 0.25)
    return layer


def trained(layer: Any) -> list[tuple[str, Tensor]]:
    return [(name, parameter) for name, parameter in layer.named_parameters() if parameter.requires_grad]


def states(layer: Any) -> list[Tensor]:
    return [0.5 * draw(len(layer.network.units), N, size, seed=7 + k) for k, size in enumerate(layer.network.state_sizes)]


def function_of(layer: Any) -> tuple[Callable[..., Any], list[Tensor]]:
    """The layer as a function of the inputs, the first states and the trained parameters, with a place to evaluate it at."""
    names, first = [name for name, _ in trained(layer)], states(layer)
    more = {name: torch.from_numpy(array) for name, array in further(layer.network, T, N, dtype=float).items()}

    def function(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        given, rest = dict(zip(more, rest, strict=False)), rest[len(more) :]
        hx = rest[0] if len(first) == 1 else tuple(rest[: len(first)])
        weights = dict(zip(names, rest[len(first) :], strict=True))
        y, last = torch.func.functional_call(layer, weights, (x, hx), given)
        return y, *tensors_of(last)

    place = [draw(T, N, layer.network.input_size), *more.values(), *first, *(p.detach().clone() for _, p in trained(layer))]
    return function, [a.requires_grad_() for a in place]


# first and second order


@backends
@pytest.mark.parametrize("name", [*FEW, antisymmetric], ids=lambda n: n if isinstance(n, str) else n.name)
def test_gradcheck(name: Any, backend: str) -> None:
    assert gradcheck(*function_of(make(name, backend=backend)), check_batched_grad=True)


@pytest.mark.slow
@backends
@pytest.mark.parametrize("name", EVERY)
def test_gradcheck_of_stacks(name: str, backend: str) -> None:
    """In directions drawn at random; single layers are checked number by number, below to the second order."""
    assert gradcheck(*function_of(make(name, 2, True, backend)), fast_mode=True)


@pytest.mark.parametrize("name", ["lstm", "gru", antisymmetric], ids=str)
def test_gradgradcheck(name: Any) -> None:
    assert gradgradcheck(*function_of(make(name)), fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_gradgradcheck_of_every_element(name: str) -> None:
    assert gradgradcheck(*function_of(make(name)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivative_of_softplus(dtype: torch.dtype) -> None:
    """At zero too, and where its exponential is beyond the dtype."""

    @anyrnn.cell
    def soft(x: Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
        h = softplus(x)
        return h, State(h=h)

    at = torch.tensor([-1000.0, -3.0, 0.0, 1.0, 1000.0], dtype=dtype).requires_grad_()
    layer = anyrnn.torch.Recurrent(soft, 5, 5, dtype=dtype)
    (first,) = torch.autograd.grad(layer(at[None, None])[0].sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), at)
    s = at.detach().sigmoid()
    torch.testing.assert_close(first.detach(), s)
    torch.testing.assert_close(second, s * (1 - s))


@pytest.mark.parametrize("name", ["clockwork", "lstm_phased"])
def test_batched_cotangents_beside_a_state_that_counts(name: str) -> None:
    layer, x = anyrnn.torch.Recurrent(name, 3, 4, dtype=torch.float64), draw(5, 2, 3)
    more = {k: torch.from_numpy(v) for k, v in further(layer.network, 5, 2).items()}

    def run(x: Tensor) -> tuple[Tensor, ...]:
        return layer(x, **more)[1]

    found, expected = (torch.autograd.functional.jacobian(run, x, vectorize=v) for v in (True, False))
    torch.testing.assert_close(found, expected)


@kinds
def test_second_order_equals_torch(kind: str) -> None:
    """As in a gradient penalty: the gradient of the norm of a gradient."""
    found = []
    for layer in pair(kind, D, H, 2, bidirectional=True, dtype=torch.float64):
        x = draw(T, N, D).requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x)[0].sin().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        found.append([x.grad, *(p.grad for p in layer.parameters())])
    for k, (a, b) in enumerate(zip(*found, strict=True)):
        assert_relative(a, b, "float64 against torch.nn", f"leaf {k}")


@pytest.mark.parametrize("name", ["lstm", "gru_before"])
@pytest.mark.parametrize("derivative", ["jacobian", "hessian"])
def test_many_cotangents_at_once(name: str, derivative: str) -> None:
    layer, x = make(name, 2), draw(T, N, D)
    differentiate = getattr(torch.autograd.functional, derivative)

    def function(x: Tensor) -> Tensor:
        y = layer(x)[0]
        return y if derivative == "jacobian" else y.sin().sum()

    one_by_one = differentiate(function, x)
    assert_relative(differentiate(function, x, vectorize=True), one_by_one, "float64 against torch.nn", derivative)


@pytest.mark.parametrize("logit", [44.0, 50.0])
def test_derivatives_of_a_softmax_in_a_cell(logit: float) -> None:
    """Its numbers are far from 1, their squares no numbers of float32."""

    @cell
    def softmax(x: Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
        e = exp(x + 0.0 * h)
        h = e / total(e)
        return h, State(h=h)

    def expected(x: Tensor) -> Tensor:
        e = torch.exp(x)
        return (e / e.sum(-1, keepdim=True))[..., 0].sum()

    layer = anyrnn.torch.Recurrent(softmax, 2, 2)

    def found(x: Tensor) -> Tensor:
        result: Tensor = layer(x)[0][..., 0].sum()
        return result

    x = torch.tensor([[[logit, logit - 1]]])
    first = torch.func.grad(expected)(x)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(found))(x[None])[0], first)
    results = []
    for function in (found, expected):
        z = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(function(z), z, create_graph=True)
        torch.testing.assert_close(g.detach(), first)
        results.append(torch.autograd.grad(g[..., 0].sum(), z)[0])
    torch.testing.assert_close(*results)


def test_third_order_equals_torch() -> None:
    found = []
    for layer in pair("lstm", D, H, dtype=torch.float64):
        x = draw(T, N, D).requires_grad_()
        value = layer(x)[0].sum()
        for _ in range(3):
            (gradient,) = torch.autograd.grad(value, x, create_graph=True)
            value = gradient.pow(2).sum()
        found.append(gradient)
    assert_relative(*found, "float64 against torch.nn", "third derivative")


# torch.func


def loss_of(layer: Any, x: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
    def loss(weights: dict[str, Tensor]) -> Tensor:
        y, last = torch.func.functional_call(layer, weights, (x,))
        return y.sin().sum() + sum(s.cos().sum() for s in tensors_of(last))

    return loss


def weights_of(layer: Any) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in layer.named_parameters()}


def assert_all_equal(found: Any, expected: Any) -> None:
    """Trees of tensors."""
    a, b = torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)
    assert len(a) == len(b)
    for k, (one, other) in enumerate(zip(a, b, strict=True)):
        assert_relative(one, other, "float64 against torch.nn", f"leaf {k}")


TRANSFORMS: dict[str, Callable[[Any, Tensor], Any]] = {
    "grad": lambda layer, x: torch.func.grad(loss_of(layer, x))(weights_of(layer)),
    "grad of x": lambda layer, x: torch.func.grad(lambda a: layer(a)[0].sin().sum())(x),
    "vjp": lambda layer, x: torch.func.vjp(lambda a: layer(a)[0], x)[1](draw(T, N, H)),
    "jacrev": lambda layer, x: torch.func.jacrev(lambda a: layer(a)[0])(x),
    "jvp": lambda layer, x: torch.func.jvp(lambda a: layer(a)[0], (x,), (draw(T, N, D, seed=4),)),
    "jvp of weights": lambda layer, x: torch.func.jvp(
        loss_of(layer, x), (weights_of(layer),), ({k: w.cos() for k, w in weights_of(layer).items()},)
    ),
    "jacfwd": lambda layer, x: torch.func.jacfwd(lambda a: layer(a)[0].sum((0, 1)))(x),
    "hessian": lambda layer, x: torch.func.hessian(lambda a: layer(a)[0].sin().sum())(x[:, :1]),
    "grad of grad": lambda layer, x: torch.func.grad(
        lambda a: torch.func.grad(lambda b: layer(b)[0].sin().sum())(a).square().sum()
    )(x),
    "jacrev of grad": lambda layer, x: torch.func.jacrev(torch.func.grad(lambda a: layer(a)[0].sin().sum()))(x),
    "vmap": lambda layer, x: torch.vmap(lambda a: layer(a)[0])(torch.stack([x, 2 * x, -x])),
    "vmap over samples": lambda layer, x: torch.vmap(lambda a: layer(a)[0], in_dims=1, out_dims=1)(x),
    "gradients of samples": lambda layer, x: torch.vmap(
        lambda a: torch.func.grad(lambda w: torch.func.functional_call(layer, w, (a,))[0].sin().sum())(weights_of(layer)),
        in_dims=1,
    )(x),
}


@kinds
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_equal_those_of_the_interpreter(kind: str, transform: str) -> None:
    """The reference backend is torch's own operators, on which torch.func works by itself; see also the next tests."""
    ours, theirs = pair(kind, D, H, dtype=torch.float64)
    plain = type(ours)(D, H, dtype=torch.float64, backend="reference")
    plain.load_state_dict(theirs.state_dict())
    assert_all_equal(TRANSFORMS[transform](ours, draw(T, N, D)), TRANSFORMS[transform](plain, draw(T, N, D)))


@kinds
def test_transforms_equal_those_of_torch(kind: str) -> None:
    ours, theirs = pair(kind, D, H, 2, bidirectional=True, dtype=torch.float64)
    x = draw(T, N, D)
    assert_all_equal(*(torch.func.grad(loss_of(layer, x))(weights_of(layer)) for layer in (ours, theirs)))
    assert_all_equal(*(torch.func.jacrev(lambda a, m=layer: m(a)[0])(x) for layer in (ours, theirs)))


@kinds
def test_samples_in_a_vmap_are_a_batch(kind: str) -> None:
    ours, _ = pair(kind, D, H, 2, bidirectional=True, dtype=torch.float64)
    x = draw(T, 5, D)
    assert_all_equal(torch.vmap(lambda a: ours(a)[0], 1, 1)(x), ours(x)[0])


@kinds
def test_an_ensemble(kind: str) -> None:
    """Several sets of weights, stacked, in one vmap."""
    layers = [pair(kind, D, H, dtype=torch.float64, seed=seed)[0] for seed in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    x = draw(T, N, D)
    found = torch.vmap(lambda w, b: torch.func.functional_call(layers[0], (w, b), (x,))[0])(parameters, buffers)
    assert_all_equal(found, torch.stack([layer(x)[0] for layer in layers]))


@kinds
@pytest.mark.parametrize("requires_grad", [True, False])
def test_forward_mode(kind: str, requires_grad: bool) -> None:
    """Dual tensors, outside of torch.func; also with a gradient of the tangent."""
    layer, _ = pair(kind, D, H, 2, dtype=torch.float64)
    x, tangent = draw(T, N, D), draw(T, N, D, seed=4)
    expected = torch.func.jvp(lambda a: layer(a)[0], (x,), (tangent,))
    layer.requires_grad_(requires_grad)
    with torch.autograd.forward_ad.dual_level():
        y = layer(torch.autograd.forward_ad.make_dual(x, tangent))[0]
        found = torch.autograd.forward_ad.unpack_dual(y)
        assert found.tangent is not None
        assert_all_equal(tuple(found), expected)
        assert found.tangent.requires_grad == requires_grad
        if requires_grad:
            found.tangent.sum().backward()
            assert all(p.grad.isfinite().all() for p in layer.parameters())
        assert torch.autograd.forward_ad.unpack_dual(layer(x)[0]).tangent is None


@pytest.mark.parametrize("name", ["GRU", "LSTMCell"])
@pytest.mark.parametrize("before", [0, 4])
def test_transforms_of_a_backward_pass_alone(name: str, before: int) -> None:
    """Forward mode and vmap that begin after the forward call, of one that is remembered too."""
    ours, theirs = getattr(anyrnn.torch, name)(3, 4), getattr(torch.nn, name)(3, 4)
    theirs.load_state_dict(ours.state_dict())
    x, w = torch.randn((5, 2, 3)[name.endswith("Cell") :], requires_grad=True), torch.randn(6, 4)
    results = []
    for module in (ours, theirs):
        for _ in range(before):
            module(x)[0].sum().backward()
        y = module(x)[0].flatten(0, -2)[:1]
        with forward_ad.dual_level():
            cotangent = forward_ad.make_dual(w[:1], w[1:2])
            (gradient,) = torch.autograd.grad((y * cotangent).sum(), x, retain_graph=True)
            tangent = forward_ad.unpack_dual(gradient).tangent
        assert tangent is not None
        many = torch.vmap(lambda v, y=y: torch.autograd.grad(y, x, v, retain_graph=True)[0])(w[:, None])
        results.append([tangent, many])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_batched_cotangents_keep_the_graph_that_is_asked_for() -> None:
    found = []
    for backend in ("llvm", "reference"):
        torch.manual_seed(0)
        layer = anyrnn.torch.Recurrent("gru", D, H, dtype=torch.float64, backend=backend)
        x = draw(T, N, D).requires_grad_()
        y = layer(x)[0]
        count = y.numel()
        each = torch.eye(count, dtype=torch.float64).view(count, *y.shape)
        (jacobian,) = torch.autograd.grad(y, x, each, is_grads_batched=True, create_graph=True)
        (y.sum() + jacobian.square().sum()).backward()
        found.append([jacobian.detach(), x.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_vjp_within_vmap_without_gradients_around() -> None:
    layer, xs = anyrnn.torch.GRU(D, H, dtype=torch.float64), draw(4, T, N, D)
    cotangent = draw(T, N, H)

    def of_one(x: Tensor) -> Tensor:
        return torch.func.vjp(lambda t: layer(t)[0], x)[1](cotangent)[0]

    with torch.no_grad():
        found = torch.vmap(of_one)(xs)
    torch.testing.assert_close(found, torch.vmap(of_one)(xs))
    torch.testing.assert_close(found, torch.stack([of_one(x) for x in xs]))


def test_halves_of_an_output_may_be_changed_in_place() -> None:
    layer, x = anyrnn.torch.Recurrent("gru", D, H, bidirectional=True, merge="separate", dtype=torch.float64), draw(T, N, D)
    (forward, backward), _ = layer(x)
    forward.relu_()
    (forward.sum() + backward.sum()).backward()
    (one, other), _ = layer(x)
    expected = torch.autograd.grad(one.relu().sum() + other.sum(), list(layer.parameters()))
    assert all(torch.equal(p.grad, g) for p, g in zip(layer.parameters(), expected, strict=True))
