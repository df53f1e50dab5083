"""Frames that batches of about the same size have in common, whose sequences end at different steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import anyrnn
from anyrnn.backends.llvm import run, split, threads
from anyrnn.backends.llvm.extent import Extent
from anyrnn.backends.llvm.frame import Frame
from anyrnn.backends.llvm.pools import Pools
from anyrnn.torch import Recurrent
from anyrnn.torch.calls import Call

RNG = np.random.default_rng(0)
SIZES = [(7, 3), (8, 3), (9, 3), (30, 40), (33, 40), (2, 1), (1, 5), (60, 600), (3, 1500)]
"""Steps and samples."""


def lengths_of(steps: int, samples: int) -> list[int]:
    return [steps, *RNG.integers(1, steps + 1, samples - 1).tolist()]


def extent_of(lengths: list[int]) -> Extent:
    counts = tuple(sum(length > step for length in lengths) for step in range(max(lengths)))
    return Extent(len(counts), len(lengths), counts)


@pytest.mark.parametrize(("steps", "samples"), SIZES)
def test_what_there_is_room_for(steps: int, samples: int) -> None:
    extent = extent_of(lengths_of(steps, samples))
    room = extent.room
    assert room.counts is not None
    assert list(room.counts) == sorted(room.counts, reverse=True)
    assert extent.total <= room.total == sum(room.counts) <= max(15, extent.total * 9 / 8)
    assert extent.steps <= room.steps == len(room.counts) < 2 * steps
    for name in ("rows", "chunk", "block", "chunks_kept", "sum_slots"):
        assert getattr(extent, name) == getattr(room, name)
    assert extent.chunk_rows <= room.chunk_rows
    assert (steps == 1) == (room.steps == 1), "a forward call of one step has its input's products in it"


def test_batches_of_all_steps_have_no_more_room_than_they_need() -> None:
    assert Extent(9, 4).room == Extent(9, 4)


def fresh(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """From now on frames are new; those that are made."""
    made: list[Any] = []
    make = run._make_frame
    monkeypatch.setattr(run, "UNEVEN", Pools(lambda *given: made.append(given) or make(*given)))
    return made


def both_passes(layer: Recurrent, batches: list[tuple[torch.Tensor, dict[str, Any]]]) -> list[list[torch.Tensor]]:
    """Of each batch what a call gives, and the gradients."""
    found = []
    for number, (x, call) in enumerate(batches):
        torch.manual_seed(number)
        layer.zero_grad()
        x = x.clone().requires_grad_()
        output, states = layer(x, **call)
        results = [output, *(states if isinstance(states, tuple) else (states,))]
        sum((r * torch.linspace(-1, 1, r.numel()).view_as(r)).sum() for r in results).backward()
        found.append([*results, x.grad, *(p.grad for p in layer.parameters())])
    return found


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    ("cell", "options", "call"),
    [
        ("lstm", {}, {}),
        ("gru", {"bidirectional": True, "num_layers": 2}, {}),
        ("gru_before", {"bidirectional": True}, {"return_states": "all"}),
        ("lstm_layernorm", {"input_dropout": 0.3, "zoneout": 0.2}, {"padding": "last"}),
        ("indrnn", {"num_layers": 2}, {"return_states": "all"}),
        ("mgu", {"num_layers": 2, "bidirectional": True}, {"return_outputs": "last"}),
    ],
)
def test_results_do_not_depend_on_what_a_frame_was_made_for(
    cell: str, options: dict[str, Any], call: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of several batches, two of which have the same room, and the same calls by frames without room to spare."""
    torch.manual_seed(0)
    layer = Recurrent(cell, 5, 19, **options)
    several = ([32, 8, 32, 20, 9, 1], [31, 30, 25, 3, 4, 8], [17] * 5 + [3], [32, 8, 32, 20, 8, 1], [9, 1, 1, 1, 1, 1])
    batches = [(torch.randn(max(lengths), 6, 5), {"lengths": lengths, **call}) for lengths in several]
    rooms = len({extent_of(given["lengths"]).room for _, given in batches})
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        made = fresh(monkeypatch)
        found = both_passes(layer, batches)
        monkeypatch.setattr(Call, "has_room", False)
        some, made = made, fresh(monkeypatch)
        exact = both_passes(layer, batches)
    finally:
        torch.set_num_threads(before)
    assert rooms < len(batches)
    assert len(made) == 2 * len(batches)
    apart = "return_states" in call and len(layer.network.units) > 1
    assert len(some) == 2 * (len(batches) if apart else rooms)
    for ours, theirs in zip(found, exact, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.equal(other)


def test_batches_in_pieces_and_whole_ones_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same frame runs those that take long piece by piece, and others at once."""
    torch.manual_seed(0)
    layer = Recurrent("gru", 5, 19, num_layers=2)
    several = [[300] * 5 + [last] for last in (200, 201, 202, 203)]
    batches = [(torch.randn(300, 6, 5), {"lengths": lengths}) for lengths in several]
    assert len({extent_of(lengths).room for lengths in several}) == 1
    expected = both_passes(layer, batches)
    made, pieces = fresh(monkeypatch), []
    run_piece = Frame.run_piece
    monkeypatch.setattr(Frame, "run_piece", lambda *given: pieces.append(1) or run_piece(*given))
    found = []
    for number, batch in enumerate(batches):
        pieces.clear()
        monkeypatch.setattr(split, "PIECE", float("inf") if number % 2 else 1e-9)
        (one,) = both_passes(layer, [batch])
        found.append(one)
        assert bool(pieces) is (number % 2 == 0)
    assert len(made) == 2
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.equal(other)


def test_directions_are_run_at_once_where_the_batch_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads would divide the samples of what there is room for, which end about together, and not those of the batch."""
    frames: list[Frame] = []
    make = Frame.__init__
    monkeypatch.setattr(Frame, "__init__", lambda frame, *given: make(frame, *given) or frames.append(frame))
    monkeypatch.setattr(threads, "default", lambda: 2)
    fresh(monkeypatch)
    layer, x = Recurrent("gru", 5, 19, bidirectional=True), torch.randn(16, 64, 5)
    both_passes(layer, [(x, {"lengths": [16] * 40 + [12] * 24})])
    assert [frame.shape.which for frame in frames] == ["training", "backward"]
    for frame in frames:
        assert frame.work.abreast(2) == 2
        frame.fit(frame.shape.extent)
        assert frame.work.abreast(2) == 1


def test_few_frames_are_made_for_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, made = Recurrent("gru", 5, 19), fresh(monkeypatch)
    for _ in range(100):
        steps = int(RNG.integers(17, 33))
        layer(torch.randn(steps, 12, 5), lengths=lengths_of(steps, 12))[0].sum().backward()
    assert len(made) <= 2 * 16, "a forward and a backward one for each eighth of four powers of two, the rows of all steps"


def test_inference_of_numpy_has_room_and_what_is_told_in_advance_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = anyrnn.Recurrent("lstm", 5, 19)
    made = fresh(monkeypatch)
    some = ([32, 8, 32, 20, 9, 1], [31, 30, 25, 3, 4, 8], [32, 8, 32, 20, 8, 1])
    batches = [(RNG.standard_normal((max(lengths), 6, 5), np.float32), lengths) for lengths in some]
    found = [layer(x, lengths=lengths)[0] for x, lengths in batches]
    assert len(made) == 1
    for (x, lengths), y in zip(batches, found, strict=True):
        again, _, reserve = layer.forward_training(x, lengths=lengths)
        assert np.array_equal(again, y)
        assert reserve.memory is not None
        assert reserve.memory.nbytes == run.reserve_bytes(layer.network, "float32", sum(lengths), 6)
