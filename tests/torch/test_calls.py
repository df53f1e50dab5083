"""A call is pure: backward can run again, modes of autograd do not change results, threads and forks do not either."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyrnn.torch
from tests.budget import assert_relative
from tests.torch.layers import KINDS, pair, solve, tensors_of

T, N, D, H = 6, 4, 5, 7
kinds = pytest.mark.parametrize("kind", ["tanh", "lstm", "gru"])


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def large(kind: str = "lstm") -> tuple[Any, Tensor]:
    """A layer and an input with work for several threads."""
    torch.manual_seed(0)
    return KINDS[kind][0](40, 96, 2, bidirectional=True), draw(12, 48, 40)


def assert_same_bits(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


# autograd's modes


@kinds
@pytest.mark.parametrize("offset", [1, 16])
def test_hooks_may_keep_what_a_call_saves_anywhere(kind: str, offset: int) -> None:
    """NumPy's arrays, for one, begin at any multiple of 16 bytes; kernels want 64."""

    def elsewhere(saved: Tensor) -> Tensor:
        place = torch.empty(saved.nbytes + 128, dtype=torch.uint8)
        if saved.dtype != torch.uint8:
            return saved.clone()
        start = -place.data_ptr() % 64 + offset
        return place[start : start + saved.nbytes].copy_(saved)

    layer, x = KINDS[kind][0](D, H), draw(T, N, D)
    expected = solve(layer, x)
    with torch.autograd.graph.saved_tensors_hooks(elsewhere, lambda kept: kept):
        found = solve(layer, x)
    assert_same_bits(found, expected)


@kinds
def test_backward_runs_twice(kind: str) -> None:
    layer, _ = pair(kind, D, H, 2, bidirectional=True)
    x = draw(T, N, D).requires_grad_()
    leaves = [x, *layer.parameters()]
    y, last = layer(x)
    loss = y.square().sum() + sum(s.sin().sum() for s in tensors_of(last))
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    layer(draw(T, N, D, seed=2))[0].sum().backward()  # another call in between
    second = torch.autograd.grad(loss, leaves, retain_graph=True)
    part = torch.autograd.grad(loss, [x], retain_graph=True)
    third = torch.autograd.grad(loss, leaves)
    for others in (second, third):
        assert all(torch.equal(a, b) for a, b in zip(first, others, strict=True))
    assert torch.equal(part[0], first[0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, leaves)


def test_gradients_accumulate() -> None:
    layer, _ = pair("gru", D, H, 2)
    layer(draw(T, N, D))[0].sum().backward()
    once = [p.grad.clone() for p in layer.parameters()]
    layer(draw(T, N, D))[0].sum().backward()
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(layer.parameters(), once, strict=True))


def test_no_gradient_shares_memory_with_another() -> None:
    layer, _ = pair("lstm", D, H, 2, bidirectional=True)
    layer(draw(T, N, D))[0].sum().backward()
    assert len({p.grad.data_ptr() for p in layer.parameters()}) == len(list(layer.parameters()))


def test_a_weight_changed_in_place_before_backward() -> None:
    """Torch says so, and so do we."""
    for layer in pair("lstm", D, H):
        loss = layer(draw(T, N, D).requires_grad_())[0].sum()
        with torch.no_grad():
            layer.weight_hh_l0.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@kinds
def test_modes_without_gradients(kind: str) -> None:
    ours, _ = pair(kind, D, H, 2, bidirectional=True)
    x = draw(T, N, D)
    training, expected = ours(x)
    assert training.requires_grad
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y, last = ours(x)
            assert not y.requires_grad
            assert y.is_inference() == (mode is torch.inference_mode)
        assert torch.equal(y, training)
        assert all(torch.equal(a, b) for a, b in zip(tensors_of(last), tensors_of(expected), strict=True))
    with torch.inference_mode():
        made = draw(T, N, D)
    assert torch.equal(ours.requires_grad_(False)(made)[0], training)
    ours.requires_grad_(True)
    for layer in pair(kind, D, H, 2, bidirectional=True):  # torch.nn refuses it too
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            layer(made)


@pytest.mark.parametrize(
    "wanted", [w for n in (1, 2) for w in itertools.combinations(["x", "weights", "state"], n)], ids="+".join
)
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_only_what_is_asked_for_has_a_gradient(wanted: tuple[str, ...], backend: str) -> None:
    layer = anyrnn.torch.LSTM(D, H, 2, bidirectional=True, backend=backend, dtype=torch.float64)
    x, h, c = draw(T, N, D).double(), draw(4, N, H, seed=2).double(), draw(4, N, H, seed=3).double()
    everything = solve(layer, x, (h, c), seed=5)
    x.requires_grad_("x" in wanted)
    h.requires_grad_("state" in wanted)
    layer.requires_grad_("weights" in wanted)
    layer.zero_grad()
    y, last = layer(x, (h, c))
    random = torch.Generator().manual_seed(5)
    results = [y, *last]
    torch.autograd.backward(results, [torch.randn(r.shape, dtype=torch.float64, generator=random) for r in results])
    found = {"d x": x.grad, "d first 0": h.grad, "d first 1": c.grad}
    found |= {f"d {name}": p.grad for name, p in layer.named_parameters()}
    kind_of = {"d x": "x", "d first 0": "state"}
    for name, gradient in found.items():
        if kind_of.get(name, "none" if name == "d first 1" else "weights") in wanted:
            assert torch.equal(gradient, everything[name]), name
        else:
            assert gradient is None, name


@kinds
@pytest.mark.parametrize("used", ["output", "last", "first step"])
def test_a_loss_of_some_results(kind: str, used: str) -> None:
    loss: Callable[[Any, Any], Tensor] = {
        "output": lambda y, last: y.sin().sum(),
        "last": lambda y, last: tensors_of(last)[-1].sin().sum(),
        "first step": lambda y, last: y[0].sin().sum(),
    }[used]
    gradients = []
    for layer in pair(kind, D, H, 2, bidirectional=True, dtype=torch.float64):
        x = draw(T, N, D).double().requires_grad_()
        gradients.append(torch.autograd.grad(loss(*layer(x)), [x, *layer.parameters()], allow_unused=True))
    for k, (a, b) in enumerate(zip(*gradients, strict=True)):
        assert_relative(a, b, "float64 against torch.nn", f"leaf {k}")


# bits, threads and forks


@kinds
def test_bits_depend_on_neither_run_nor_threads(kind: str) -> None:
    layer, x = large(kind)
    expected = solve(layer, x)
    for threads in (1, 2, 3, 2):
        torch.set_num_threads(threads)
        for _ in range(2):
            assert_same_bits(solve(layer, x), expected)


def in_threads(count: int, function: Callable[[int], None]) -> None:
    """Call function(0), function(1), ... at once; the first exception is raised again."""
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def run(k: int) -> None:
        try:
            together.wait(timeout=60)
            function(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("native_threads", [1, 2])
def test_calls_from_several_threads(native_threads: int) -> None:
    """One layer for all, with inputs of several shapes; each thread looks for its own gradients."""
    torch.set_num_threads(native_threads)
    layer, _ = large()
    problems = [draw(8 + k % 2, rows, 40, seed=k) for k, rows in enumerate([48, 48, 3, 1])]

    def call(x: Tensor) -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        y, last = layer(leaf)
        with torch.no_grad():
            inference = layer(x)[0]
        return [y, *last, inference, *torch.autograd.grad(y.square().sum(), [leaf, *layer.parameters()])]

    expected = [call(x) for x in problems]

    def again(k: int) -> None:
        for _ in range(5):
            for a, b in zip(call(problems[k]), expected[k], strict=True):
                assert torch.equal(a, b)

    in_threads(len(problems), again)


def test_weights_that_another_thread_writes_to_and_puts_back() -> None:
    """Of many rows, so that a look behind the packing sees what one before it did not: afterwards nothing of them is kept. What
    is put back before that look is not seen, about once in a thousand times; without it half of the layers are wrong.
    """
    torch.set_num_threads(1)
    x, wrong = draw(2, 1, 16), 0
    for _ in range(20):
        layer, fresh = (anyrnn.torch.Recurrent("gru", 16, 512) for _ in range(2))
        place, ends = layer.weight_hh_l0.data[:64], threading.Event()
        own, other = place.clone(), draw(64, 512)

        def write(place: Tensor = place, own: Tensor = own, other: Tensor = other, ends: threading.Event = ends) -> None:
            while not ends.is_set():
                place.copy_(other)
                place.copy_(own)

        thread = threading.Thread(target=write)
        thread.start()
        end = time.monotonic() + 0.05
        with torch.no_grad():
            while time.monotonic() < end:
                layer(x)
            ends.set()
            thread.join()
            fresh.load_state_dict(layer.state_dict())
            wrong += not torch.equal(layer(x)[0], fresh(x)[0])
    assert wrong <= 2


def test_layers_made_in_several_threads() -> None:
    """Each its own, though they are made, compiled and called at once."""
    shapes = [(3, 5), (4, 6), (5, 7), (6, 8)]
    outputs: dict[int, tuple[Any, Tensor, Tensor]] = {}

    def make(k: int) -> None:
        for _ in range(10):
            features, hidden = shapes[k]
            layer = anyrnn.torch.Recurrent("mgu", features, hidden, 1 + k % 2)
            x = draw(T, N, features, seed=k)
            outputs[k] = (layer, x, layer(x)[0])

    in_threads(len(shapes), make)
    for k, (layer, x, y) in outputs.items():
        assert y.shape == (T, N, shapes[k][1])
        assert torch.equal(layer(x)[0], y)


def _in_child(layer: Any, x: Tensor, cotangent: Tensor, queue: Any) -> None:
    """With nothing but calls of the layer: torch's own operators on several threads hang in a forked child."""
    y, _ = layer(x)
    gradients = torch.autograd.grad([y], list(layer.parameters()), [cotangent])
    with torch.no_grad():
        inference = layer(x)[0]
    queue.put([a.detach().numpy() for a in (y, inference, *gradients)])


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="fork is not available")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork.. was called.*JAX is multithreaded:RuntimeWarning")
def test_a_forked_child(request: pytest.FixtureRequest) -> None:
    """After calls on several threads, of the kernels and of torch itself."""
    torch.set_num_threads(2)
    layer, x = large()
    y, _ = layer(x)
    cotangent = draw(*y.shape)
    expected = [y, y, *torch.autograd.grad([y], list(layer.parameters()), [cotangent])]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    for child in [context.Process(target=_in_child, args=(layer, x, cotangent, queue)) for _ in range(2)]:
        child.start()
        request.addfinalizer(child.kill)
        found = [torch.from_numpy(a) for a in queue.get(timeout=60)]
        child.join(timeout=60)
        assert child.exitcode == 0
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(layer(x)[0], y)  # the parent goes on


@pytest.mark.parametrize("batch_first", [False, True])
def test_all_states_may_be_changed_in_place(batch_first: bool) -> None:
    layer = anyrnn.torch.Recurrent("gru", 3, 4, batch_first=batch_first)
    _, states = layer(torch.randn(2, 5, 3), return_states="all")
    expected = states.detach() * 2
    assert torch.equal(states.mul_(2), expected)


def test_gradients_of_a_cells_input_may_be_changed_in_place() -> None:
    made = anyrnn.torch.GRUCell(3, 4)
    x = torch.randn(2, 3, requires_grad=True)
    (d_x,) = torch.autograd.grad(made(x).square().sum(), x, create_graph=True)
    assert d_x.mul_(2).shape == x.shape
