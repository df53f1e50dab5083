"""`explain` says what calls do: checked against the calls themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import anyrnn
import anyrnn.torch
from anyrnn import UnsupportedError, explain, runtime
from anyrnn.backends.llvm.frame import Frame
from anyrnn.explanation import _bytes
from tests.networks import on_processor


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, set[bool]]]:
    """What ran: the program, threads, and whether they split columns."""
    found: list[tuple[str, int, set[bool]]] = []
    run = Frame.call_again

    def noted(frame: Frame, count: int) -> None:
        places = [start + unit.layout.header("columns") for unit, start in zip(frame.units, frame.starts, strict=True)]
        found.append((frame.shape.which, count, {bool(frame.view[place]) for place in places}))
        run(frame, count)

    monkeypatch.setattr(Frame, "call_again", noted)
    return found


@pytest.fixture
def two_threads() -> Any:
    yield from with_threads(2)


@pytest.fixture
def one_thread() -> Any:
    yield from with_threads(1)


def with_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("sizes", [(4, 1, 8, 8), (100, 1, 256, 256), (28, 200, 28, 256), (20, 8, 512, 512)])
@pytest.mark.parametrize("cell", ["lstm", "gru_before", "indrnn"])
@pytest.mark.usefixtures("two_threads")
def test_threads_and_memory_are_those_of_the_call(cell: str, sizes: tuple[int, ...], runs: list[Any]) -> None:
    steps, rows, features, hidden = sizes
    layer, x = anyrnn.torch.Recurrent(cell, features, hidden), torch.randn(steps, rows, features)
    kept: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.nbytes if tensor.dtype == torch.uint8 else 0)
        return tensor

    told = explain(layer, x)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x)[0].sum().backward()
    assert [p.name for p in told.passes] == ["forward", "backward"]
    assert 0 <= told.kept_bytes - sum(kept) < 64  # from an aligned place on
    with torch.no_grad():
        told_more = explain(layer, x)
        for _ in range(2):
            layer(x)
    assert [p.name for p in told_more.passes] == ["inference"]
    assert told_more.kept_bytes == 0
    for one, (_, threads, columns) in zip((*told.passes, *told_more.passes), (*runs[:2], runs[-1]), strict=True):
        assert one.threads == threads
        if threads > 1:
            assert one.split == ("columns" if columns == {True} else "samples")


@pytest.mark.usefixtures("one_thread")
def test_text() -> None:
    told = str(explain(anyrnn.torch.LSTM(3, 5, batch_first=True), torch.zeros(2, 7, 3)))
    first, *rest = told.splitlines()
    assert first == "LSTM(3, 5, batch_first=True), 7 steps of 2 samples, float32"
    assert rest[:3] == ["  backend   llvm: native kernels", "  forward   1 thread", "  backward  1 thread"]
    assert [line.split()[0] for line in rest[3:]] == ["kept", "work", "beside"]
    assert rest[-1] == "  beside    second derivatives, forward mode and vmap run on the interpreter on torch"


def test_why_no_kernels_run() -> None:
    told = explain(anyrnn.torch.GRUCell(3, 5, backend="reference"), torch.zeros(2, 3))
    assert told.backend == "reference"
    assert told.why_not_native == "backend='reference' was asked for"
    assert str(told) == (
        "GRUCell(3, 5, backend='reference'), 1 step of 2 samples, float32\n"
        "  backend   reference: the interpreter on torch, because backend='reference' was asked for"
    )


def test_16_bits_are_computed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    on_processor(monkeypatch, multiplies_pairs=False)
    layer = anyrnn.torch.GRUCell(3, 5, dtype=torch.bfloat16)
    told = explain(layer, torch.zeros(2, 3, dtype=torch.bfloat16))
    assert told.call == "GRUCell(3, 5), 1 step of 2 samples, float32 for torch.bfloat16"
    assert (told.backend, told.why_not_native) == ("llvm", None) == (layer.backend_name, layer.why_not_native)


def test_samples_of_different_lengths() -> None:
    layer = anyrnn.torch.GRU(3, 5)
    told = explain(layer, pack_sequence([torch.zeros(4, 3), torch.zeros(2, 3)]))
    assert told.call == "GRU(3, 5), 4 steps of up to 2 samples, float32"
    assert told.kept_bytes < explain(layer, torch.zeros(4, 2, 3)).kept_bytes


def test_layers_for_numpy() -> None:
    layer = anyrnn.Recurrent("mgu", 3, 5, num_layers=2, dropout=0.1)
    told = explain(layer, np.zeros((7, 2, 3), np.float32))
    assert [p.name for p in told.passes] == ["inference", "forward", "backward"]
    assert told.kept_bytes == layer.reserve_size(7, 2)
    assert told.passes[-1].work_bytes > 0
    assert "beside" not in str(told)


def test_stacks_of_several_calls() -> None:
    layer = anyrnn.torch.Recurrent("gru", 4, 4, num_layers=3, residual=True)
    assert not layer.network.is_one_call
    assert explain(layer, torch.zeros(5, 2, 4)).kept_bytes > explain(anyrnn.torch.GRU(4, 4), torch.zeros(5, 2, 4)).kept_bytes


def test_refusals_are_those_of_the_call() -> None:
    with pytest.raises(RuntimeError, match=r"^GRU: input.size\(-1\) must be equal to input_size"):
        explain(anyrnn.torch.GRU(3, 5), torch.zeros(4, 2, 4))
    with pytest.raises(ValueError, match=r"^GRUCell: Expected input to be 1D or 2D, got 3D instead"):
        explain(anyrnn.torch.GRUCell(3, 5), torch.zeros(4, 2, 3))
    with pytest.raises(TypeError, match=r"^GRU: input should be a Tensor or a PackedSequence, got list"):
        explain(anyrnn.torch.GRU(3, 5), [1])
    with pytest.raises(UnsupportedError, match=r"backend 'llvm' cannot run this: dtype torch.bfloat16"):
        explain(anyrnn.torch.GRU(3, 5, backend="llvm", dtype=torch.bfloat16), torch.zeros(4, 2, 3, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match=r"^explain is for layers of anyrnn, got LSTM of torch.nn; see anyrnn.torch.swap$"):
        explain(torch.nn.LSTM(3, 5), torch.zeros(4, 2, 3))
    with pytest.raises(TypeError, match=r"^x should be a NumPy array of float32, got float64; x.astype"):
        explain(anyrnn.Recurrent("gru", 3, 5), np.zeros((4, 2, 3)))
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ModuleDict({"rnn": anyrnn.torch.GRU(3, 5)}))
    with pytest.raises(TypeError, match=r"got Sequential; those in it are 1.rnn \(its get_submodule gives them\)$"):
        explain(model, torch.zeros(4, 2, 3))
    with pytest.raises(TypeError, match=r"^explain is for layers of anyrnn, got Linear$"):
        explain(torch.nn.Linear(3, 5), torch.zeros(4, 2, 3))
    with pytest.raises(TypeError, match=r"^explain is for layers of anyrnn, got GRU \(the class\)$"):
        explain(anyrnn.torch.GRU, torch.zeros(4, 2, 3))
    with pytest.raises(ValueError, match="x has no steps; a sequence needs at least one"):
        explain(anyrnn.Recurrent("gru", 3, 5), np.zeros((0, 2, 3), np.float32))


def test_a_memory_budget() -> None:
    x = torch.zeros(3000, 8, 64)
    whole = explain(anyrnn.torch.LSTM(64, 64), x)
    told = explain(anyrnn.torch.LSTM(64, 64, memory_budget=whole.kept_bytes // 4), x)
    assert told.kept_bytes <= whole.kept_bytes // 4 + 64
    (forward, backward), (_, usual) = told.passes, whole.passes
    assert forward.again == usual.again == 0
    assert 0.7 < backward.again < 1
    assert str(backward).endswith(f"; {backward.again:.0%} of the steps are computed again")
    assert backward.work_bytes > usual.work_bytes
    for layer, input in (
        (anyrnn.torch.LSTM(64, 64, memory_budget=1000), x),
        (anyrnn.Recurrent("lstm", 64, 64, memory_budget=1000), x.numpy()),
    ):
        with pytest.raises(UnsupportedError, match="memory_budget is too small"):
            explain(layer, input)
    with torch.no_grad():
        assert explain(anyrnn.torch.LSTM(64, 64, memory_budget=1000), x).kept_bytes == 0


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1 byte"), (0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (999_499, "999 kB"), (999_999, "1 MB"), (10**9, "1 GB")],
)
def test_sizes(count: int, text: str) -> None:
    assert _bytes(count) == text


@pytest.mark.parametrize(("cell", "barriers"), [("lstm", 1), ("gru_before", 2), ("indrnn", 0)])
@pytest.mark.usefixtures("two_threads")
def test_barriers(cell: str, barriers: int) -> None:
    (forward, backward) = explain(anyrnn.torch.Recurrent(cell, 512, 512), torch.zeros(20, 1, 512)).passes
    assert forward.threads == backward.threads == 2
    assert (forward.split, forward.barriers, backward.barriers) == ("columns", barriers, barriers)
    waits = f"{barriers} barrier{'s' * (barriers > 1)} a step" if barriers else "no barriers"
    assert str(forward) == f"2 threads, each with its columns: {waits}"
    (forward, _) = explain(anyrnn.torch.Recurrent(cell, 64, 256), torch.zeros(20, 400, 64)).passes
    assert str(forward) == "2 threads, each with its samples: no barriers"


@pytest.mark.usefixtures("two_threads")
def test_directions_at_once() -> None:
    layer = anyrnn.torch.Recurrent("lstm", 64, 64, bidirectional=True)
    passes = explain(layer, torch.zeros(100, 1, 64)).passes
    assert {str(one) for one in passes} == {"2 threads, each with its direction: no barriers"}
    torch.set_num_threads(4)
    layer = anyrnn.torch.Recurrent("lstm", 256, 256, bidirectional=True)
    passes = explain(layer, torch.zeros(100, 1, 256)).passes
    assert {str(one) for one in passes} == {"4 threads, each with its direction and its columns: 1 barrier a step"}


RAGGED = {
    "held": ({"lengths": [50] * 11 + [40]}, "states are held at 10 of 600 steps, which are not there"),
    "packed": ({"lengths": [50] * 6 + [20] * 6}, "packed: 420 steps in 12 segments"),
    "reset": ({"reset": torch.arange(50)[:, None].eq(7).expand(50, 12)}, "packed: 600 steps in 24 segments"),
    "all": ({"lengths": [50] * 12, "return_states": "all"}, ""),
}


@pytest.mark.parametrize(("call", "batch"), RAGGED.values(), ids=RAGGED)
@pytest.mark.usefixtures("two_threads")
def test_calls_whose_samples_have_different_steps(call: dict[str, Any], batch: str, runs: list[Any]) -> None:
    layer, x, hx = anyrnn.torch.GRU(16, 128), torch.randn(50, 12, 16), torch.zeros(1, 12, 128)
    told = explain(layer, x, hx, **call)
    assert told.batch == batch
    assert (batch in str(told)) is True
    kept: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.nbytes if tensor.dtype == torch.uint8 else 0)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x, hx, **call)[0].sum().backward()
    assert 0 <= told.kept_bytes - sum(kept) < 64  # from an aligned place on
    assert [p.threads for p in told.passes] == [threads for _, threads, _ in runs]


WRONG = [
    ({"lengths": [6, 1]}, "lengths should be from 0 to the 5 steps of the input, got 6"),
    ({"mask": np.ones(3, bool)}, "mask should have shape"),
    ({"return_states": "some"}, "return_states should be"),
    ({"lengths": [1, 1], "cu_seqlens": [0, 5]}, "give lengths or cu_seqlens, not both"),
]


def test_what_a_call_would_refuse() -> None:
    layers = [(anyrnn.torch.GRU(3, 4), torch.zeros(5, 2, 3)), (anyrnn.Recurrent("gru", 3, 4), np.zeros((5, 2, 3), np.float32))]
    for layer, x in layers:
        for call, words in WRONG:
            for run in (layer, partial(explain, layer)):
                with pytest.raises(ValueError, match=words):
                    run(x, **call)
        with pytest.raises(TypeError, match=r"has no per-step input 'lengts' .did you mean 'lengths'"):
            explain(layer, x, lengts=[1, 1])
    assert explain(layers[1][0], layers[1][1], lengths=[5, 2]).batch == "packed: 7 steps in 2 segments"
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        explain(*layers[0], torch.zeros(1, 3, 4))
    cell = anyrnn.torch.GRUCell(3, 4)
    with pytest.raises(RuntimeError, match="state h of hx"):
        explain(cell, torch.zeros(2, 3), torch.zeros(2, 5))


def test_batches_without_a_step() -> None:
    ours, x = anyrnn.torch.GRU(3, 4), torch.zeros(5, 2, 3)
    for told in (
        explain(ours, x, lengths=[0, 0]),
        explain(ours, x, lengths=[0, 0], return_outputs="last"),
        explain(ours, x[:0, 0], cu_seqlens=[0, 0]),
        explain(anyrnn.Recurrent("gru", 3, 4), x.numpy(), lengths=[0, 0]),
    ):
        assert str(told).endswith(", no steps, float32\n  backend   llvm: nothing to compute, as no sample has a step")
    assert len(explain(ours, x[:, :0]).passes) == 2  # of no samples


@pytest.mark.parametrize("of", ["hx", "the input", "a parameter", "nothing"])
def test_whether_gradients_are_asked_for(of: str) -> None:
    layer = anyrnn.torch.GRU(3, 4).requires_grad_(False)
    layer.weight_hh_l0.requires_grad_(of == "a parameter")
    x, hx = torch.zeros(5, 2, 3, requires_grad=of == "the input"), torch.zeros(1, 2, 4, requires_grad=of == "hx")
    expected = ["inference"] if of == "nothing" else ["forward", "backward"]
    for call in ({}, {"lengths": [5, 2]}):
        assert [p.name for p in explain(layer, x, hx, **call).passes] == expected


def test_transforms_that_have_no_kernels() -> None:
    layer, x = anyrnn.torch.GRU(3, 4), torch.zeros(6, 5, 3)
    seen: list[anyrnn.Explanation] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        seen.append(explain(layer, x))
        return x.sum()

    torch.vmap(run)(x)
    torch.func.jvp(run, (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        run(x)
    assert [told.backend for told in seen] == ["reference"] * 3
    assert all("no kernels" in str(told) for told in seen)
    torch.func.grad(run)(x)
    assert seen.pop().backend == "llvm"


class Scaled(anyrnn.torch.GRU):
    """Whose calls take more than ours do."""

    def forward(self, input: torch.Tensor, scale: float) -> Any:  # type: ignore[override]
        return super().forward(input * scale)


def test_nothing_changes() -> None:
    """Neither generators, nor parameters that change when they are asked for; subclasses are called as they are."""
    layer = torch.nn.utils.parametrizations.spectral_norm(
        anyrnn.torch.LSTM(3, 4, 2, dropout=0.5, weight_dropout=0.2), "weight_hh_l0"
    )
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    generator = torch.get_rng_state()
    assert explain(layer, input=torch.zeros(5, 2, 3)).kept_bytes
    assert torch.get_rng_state().equal(generator)
    assert all(value.equal(before[name]) for name, value in layer.state_dict().items())
    assert explain(Scaled(3, 4), torch.zeros(5, 2, 3), scale=2.0).backend == "llvm"
    ours, out = anyrnn.Recurrent("gru", 3, 4), np.ones((5, 2, 4), np.float32)
    assert explain(ours, np.zeros((5, 2, 3), np.float32), out=out).backend == "llvm"
    assert (out == 1).all()


def test_parameters_of_another_form() -> None:
    layer = anyrnn.torch.GRU(3, 4)
    layer.weight_hh_l0 = torch.nn.Parameter(torch.zeros(5, 4))
    for run in (layer, partial(explain, layer)):
        with pytest.raises(RuntimeError, match=r"weight_hh_l0: expected \[12, 4\] of torch.float32, got \[5, 4\]"):
            run(torch.zeros(5, 2, 3))


def test_layers_of_a_network_are_explained_one_by_one() -> None:
    network = runtime.Network(3, [runtime.Recurrent.of("rnn", ["x"], anyrnn.Recurrent("gru", 3, 5))])
    with pytest.raises(
        TypeError, match=r"got Network of anyrnn.runtime; its layers can be told of, each as network.recurrent\[name\]$"
    ):
        explain(network, np.zeros((4, 2, 3), np.float32))
    with pytest.raises(TypeError, match=r"got GRU of torch.nn; see anyrnn.torch.swap$"):
        explain(torch.nn.GRU, torch.zeros(4, 2, 3))
    assert "4 steps of 2 samples, float32" in str(explain(network.recurrent["rnn"], np.zeros((4, 2, 3), np.float32)))
