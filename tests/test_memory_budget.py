"""Training within a budget of bytes: what is not kept is computed again, with the bits that it has when it is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import UnsupportedError
from anyrnn.backends.llvm import run as llvm
from anyrnn.sequence.windows import Windows
from tests.backends.test_corners import output_made_before_the_steps, state_made_of_the_input
from tests.zoo import FEW, further, sizes_of

pytestmark = pytest.mark.usefixtures("quick_compile")
STEPS, ROWS = 13, 300  # seven chunks of two steps
UNEVEN = {
    "dense": {},
    "lengths": {"lengths": np.where(np.arange(ROWS) % 11, np.arange(ROWS) * 7 % 6 + 8, 0)},
    "resets": {"reset": np.arange(STEPS * ROWS).reshape(STEPS, ROWS) * 5 % 97 == 3},
}


def needed(layer: Any, steps: int = STEPS, rows: int = ROWS) -> int:
    network = layer.training_network if isinstance(layer, anyrnn.Recurrent) else layer._modes[True].network
    return sum(llvm.reserve_bytes(part, "float32", steps * rows, rows) for part in network.parts)


def layers(cell: Any, share: float, **options: Any) -> tuple[anyrnn.torch.Recurrent, anyrnn.torch.Recurrent]:
    """One that keeps everything, and one with a budget of a share of it."""
    plain = anyrnn.torch.Recurrent(cell, 5, 9, **options)
    bounded = anyrnn.torch.Recurrent(cell, 5, 9, memory_budget=int(share * needed(plain)), **options)
    bounded.load_state_dict(plain.state_dict())
    return plain, bounded


def results(layer: anyrnn.torch.Recurrent, **call: Any) -> list[torch.Tensor]:
    """Everything that a training step gives, its gradients twice."""
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    x, sizes = draw(STEPS, ROWS, 5), layer.network.state_sizes
    hx = tuple(draw(len(layer.network.units), ROWS, size) for size in sizes)
    torch.manual_seed(3)
    more = {name: torch.from_numpy(array) for name, array in further(layer.network, STEPS, ROWS).items()}
    y, last = layer(x, hx if len(hx) > 1 else hx[0], **more, **call)
    given = [y, *(last if isinstance(last, tuple) else (last,))]
    loss = sum((t * draw(*t.shape).detach()).sum() for t in given)
    leaves = [x, *hx, *(p for p in layer.parameters() if p.requires_grad)]
    return given + [g for _ in range(2) for g in torch.autograd.grad(loss, leaves, retain_graph=True)]


OPTIONS = {
    "plain": {},
    "layers and directions": {"num_layers": 2, "bidirectional": True},
    "reverse": {"reverse": True},
    "random": {"num_layers": 2, "zoneout": 0.3, "recurrent_dropout": 0.2, "dropout": 0.3, "weight_dropout": 0.2},
    "in parts": {"num_layers": 3, "bidirectional": True, "merge": "sum", "residual": True},
}


@pytest.fixture
def done_again(monkeypatch: pytest.MonkeyPatch) -> list[Windows]:
    """The windows of each backward call that did some again."""
    found: list[Windows] = []

    def backward(frame: Any, *rest: Any) -> None:
        found.append(frame.shape.windows)
        recompute(frame, *rest)

    recompute = llvm.recompute.backward
    monkeypatch.setattr(llvm.recompute, "backward", backward)
    return found


@pytest.mark.parametrize(
    ("uneven", "share"), [("dense", 0.6), ("dense", 0.85), ("lengths", 0.6), ("resets", 0.6), ("resets", 0.85)]
)
@pytest.mark.parametrize("options", OPTIONS)
def test_the_bits_are_those_without_a_budget(options: str, uneven: str, share: float, done_again: list[Windows]) -> None:
    plain, bounded = layers("lstm", share, **OPTIONS[options])
    for ours, theirs in zip(results(bounded, **UNEVEN[uneven]), results(plain, **UNEVEN[uneven]), strict=True):
        assert torch.equal(ours, theirs)
    assert len(done_again) == 2 * (3 if options == "in parts" else 1)


@pytest.mark.parametrize("call", [{}, {"return_states": "all"}, {"return_outputs": "last"}], ids=str)
@pytest.mark.parametrize("cell", [c for c in FEW if c != "lstm"])
def test_every_cell(cell: str, call: dict[str, str], done_again: list[Windows]) -> None:
    plain, bounded = layers(cell, 0.85, **sizes_of(cell, 7, 9))
    for uneven in (UNEVEN["dense"], UNEVEN["resets"]):
        for ours, theirs in zip(results(bounded, **call, **uneven), results(plain, **call, **uneven), strict=True):
            assert torch.equal(ours, theirs)
    assert len(done_again) == 4


@pytest.mark.parametrize(
    ("body", "call"),
    [(output_made_before_the_steps, {}), (state_made_of_the_input, {"return_states": "all"})],
    ids=["y", "states"],
)
def test_what_is_computed_again_and_not_wanted_has_room(body: Any, call: dict[str, str], done_again: list[Windows]) -> None:
    """What steps give is made before them, of all rows of a chunk at once where threads split columns."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        plain, bounded = layers(anyrnn.cell(body), 0.7)
        for ours, theirs in zip(
            results(bounded, **call, **UNEVEN["lengths"]), results(plain, **call, **UNEVEN["lengths"]), strict=True
        ):
            assert torch.equal(ours, theirs)
    finally:
        torch.set_num_threads(threads)
    assert len(done_again) == 2


@pytest.mark.parametrize("budget", [1_800_000, 2_000_000])
def test_backwards_with_few_long_samples(budget: int, done_again: list[Windows]) -> None:
    """In a reverse run most samples begin late: more rows go from window to window than the window has had."""
    plain, bounded = (anyrnn.torch.Recurrent("gru", 4, 8, reverse=True, memory_budget=b) for b in (None, budget))
    bounded.load_state_dict(plain.state_dict())
    lengths, x = [13] * 5 + [12] * 20 + [11] * 100 + [10] * 175, torch.randn(STEPS, ROWS, 4)
    found = [torch.autograd.grad(m(x, lengths=lengths)[0].sin().sum(), list(m.parameters())) for m in (plain, bounded)]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert len(done_again) == 1


def test_forwards_with_one_long_sample(done_again: list[Windows]) -> None:
    """What a step of the backward pass reads of the step after it stands where those samples begin that have ended long since."""

    @anyrnn.cell
    def delayed(x, h, p):  # type: ignore[no-untyped-def]
        p = anyrnn.tanh(h)
        h = anyrnn.tanh(anyrnn.affine("n", x, h=p))
        return h, anyrnn.State(h=h, p=p)

    def layer(budget: int | None) -> anyrnn.torch.Recurrent:
        torch.manual_seed(1)
        return anyrnn.torch.Recurrent(delayed, 4, 4, memory_budget=budget, dtype=torch.float64)

    lengths, x = [300] * 63 + [1000], torch.randn(1000, 64, 4, dtype=torch.float64)
    plain = layer(None)
    total = 63 * 300 + 1000
    kept = llvm.reserve_bytes(plain.network, "float64", total, 64)
    both = plain, layer(int(0.5 * kept))
    found = [torch.autograd.grad(m(x, lengths=lengths)[0].sin().sum(), list(m.parameters())) for m in both]
    assert len(done_again) == 1
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_windows() -> None:
    """Of one chunk where it is cheap to begin at many places, of more where a chunk is a step."""
    network = anyrnn.torch.LSTM(5, 64).network
    windows = llvm.windows(network, "float32", llvm.Extent(10_000, 8), llvm.reserve_bytes(network, "float32", 80_000, 8) // 10)
    assert windows == Windows(steps=128, count=79, kept=6)
    many = llvm.windows(network, "float32", llvm.Extent(256, 1000), llvm.reserve_bytes(network, "float32", 256_000, 1000) // 4)
    assert many is not None
    assert many.steps > 1
    assert llvm.windows(network, "float32", llvm.Extent(256, 1000), 10**12) is None


@pytest.mark.parametrize("share", [0.5, 0.75])
def test_no_more_is_kept(share: float) -> None:
    plain, bounded = layers("gru", share, num_layers=2)
    found = []
    for layer in (plain, bounded):
        sizes: list[int] = []

        def note(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.nbytes if tensor.dtype == torch.uint8 else 0)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            layer(torch.randn(STEPS, ROWS, 5))
        found.append(sum(sizes))
    assert found == [needed(plain), bounded.memory_budget]


@pytest.mark.parametrize("uneven", UNEVEN)
def test_numpy(uneven: str) -> None:
    x = np.random.default_rng(0).normal(size=(STEPS, ROWS, 5)).astype(np.float32)
    plain = anyrnn.Recurrent("lstm", 5, 9, 2, bidirectional=True, seed=1)
    budget = int(0.6 * plain.reserve_size(STEPS, ROWS))
    bounded = anyrnn.Recurrent("lstm", 5, 9, 2, bidirectional=True, seed=1, memory_budget=budget)
    assert budget <= bounded.reserve_size(STEPS, ROWS) < budget + 64
    found = []
    for layer in (plain, bounded):
        y, last, reserve = layer.forward_training(x, **UNEVEN[uneven])
        d_x, d_first, gradients = layer.backward(reserve, np.cos(y), tuple(map(np.sin, last)))
        found.append([y, *last, d_x, *d_first, *gradients.values()])
    assert all((a == b).all() for a, b in zip(*found, strict=True))
    with pytest.raises(UnsupportedError, match="with this memory_budget, call backward"):
        bounded.backward_data(reserve, y)
    bounded.memory_budget = None
    assert bounded.reserve_size(STEPS, ROWS) == plain.reserve_size(STEPS, ROWS)


def test_any_number_of_threads() -> None:
    _, bounded = layers("gru", 0.7, bidirectional=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(results(bounded))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_threads_that_go_back_over_one_call() -> None:
    _, bounded = layers("gru", 0.6)
    x, weights = torch.randn(STEPS, ROWS, 5), list(bounded.parameters())
    loss = bounded(x)[0].sin().sum()
    expected = torch.autograd.grad(loss, weights, retain_graph=True)

    def go_back(_: int) -> bool:
        found = torch.autograd.grad(loss, weights, retain_graph=True)
        return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(go_back, range(40)))


def test_torch_func_and_second_derivatives() -> None:
    plain, bounded = layers("gru", 0.7, dtype=torch.float64)
    x = torch.randn(STEPS, ROWS, 5, dtype=torch.float64, requires_grad=True)
    found = []
    for layer in (plain, bounded):
        (d,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        (again,) = torch.autograd.grad(d.square().sum(), x)
        through_func = torch.func.grad(lambda x, layer=layer: layer(x)[0].square().sum())(x)
        assert torch.equal(d, through_func)
        found.append([d, again])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_it_may_be_changed() -> None:
    plain, bounded = layers("gru", 0.6)
    x = torch.randn(STEPS, ROWS, 5)
    saved: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.nbytes if tensor.dtype == torch.uint8 else 0)
        return tensor

    for budget in (None, needed(plain) // 2, 3 * needed(plain) // 4):
        bounded.memory_budget = budget
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            bounded(x)
        assert sum(saved) == (budget or needed(plain))
    with pytest.raises(ValueError, match="memory_budget must be greater than zero"):
        bounded.memory_budget = -1
    assert bounded.memory_budget == 3 * needed(plain) // 4


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_no_samples(kind: str) -> None:
    """Steps without samples need some bytes all the same."""
    x = torch.zeros(STEPS, 0, 5)
    layer = anyrnn.torch.Recurrent("gru", 5, 9, memory_budget=1)
    if kind == "numpy":
        x, layer = x.numpy(), anyrnn.Recurrent("gru", 5, 9, memory_budget=1).forward_training
    with pytest.raises(UnsupportedError, match="memory_budget is too small: 13 steps of 0 samples in 1 layer need at least"):
        layer(x)


def test_what_cannot_be() -> None:
    x = torch.randn(STEPS, ROWS, 5)
    with pytest.raises(
        UnsupportedError, match=r"too small: 13 steps of 300 samples in 1 layer need at least \d+ bytes, and have 1000 of it"
    ):
        anyrnn.torch.Recurrent("gru", 5, 9, memory_budget=1000)(x)
    with torch.no_grad():
        anyrnn.torch.Recurrent("gru", 5, 9, memory_budget=1000)(x)
    needs_kernels = "memory_budget is for native kernels, and none run this: backend='reference'"
    with pytest.raises(UnsupportedError, match=needs_kernels):
        anyrnn.torch.Recurrent("gru", 5, 9, memory_budget=10**9, backend="reference")(x)
    with pytest.raises(UnsupportedError, match=needs_kernels):
        anyrnn.Recurrent("gru", 5, 9, memory_budget=10**9, backend="reference").forward_training(x.numpy())
    assert anyrnn.Recurrent("gru", 5, 9, memory_budget=10**9, backend="reference")(x.numpy())[0].shape == (STEPS, ROWS, 9)
    for make in (anyrnn.Recurrent, anyrnn.torch.Recurrent):
        with pytest.raises(TypeError, match="memory_budget should be of type int, got: float"):
            make("gru", 5, 9, memory_budget=1e6)
        with pytest.raises(ValueError, match="memory_budget must be greater than zero"):
            make("gru", 5, 9, memory_budget=0)
    assert "memory_budget=1000" in repr(anyrnn.torch.Recurrent("gru", 5, 9, memory_budget=1000))
