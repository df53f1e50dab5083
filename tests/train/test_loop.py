import io
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from anyrnn.datasets import digits
from anyrnn.train import loop
from anyrnn.train.checkpoint import of_run
from anyrnn.train.errors import DivergedError
from anyrnn.train.layers import find_layers
from anyrnn.train.loop import batches, learning_rate
from anyrnn.train.model import build
from anyrnn.train.options import Options
from anyrnn.train.record import Record


def never() -> bool:
    return False


def trained(options: Options, stop: Callable[[], bool] = never) -> Record:
    data = digits()
    model = build(find_layers(options), data, options)
    record = loop.train(model, data, options, stop, of_run(model, data, options))
    loop.evaluate(model, data.test, record)
    return record


def test_the_rate_decays() -> None:
    assert learning_rate(0.001, 0) == 0.001
    assert learning_rate(0.001, 10_000) == pytest.approx(0.001 * 2**-0.85)


def test_batches_are_whole_and_use_every_image_equally_often() -> None:
    taken = list(itertools.islice(batches(10, 4, seed=0), 5))
    assert all(batch.shape == (4,) and batch.dtype == np.int64 for batch in taken)
    for part in np.concatenate(taken).reshape(2, 10):
        assert sorted(part) == list(range(10))


def test_batches_depend_on_the_seed_alone() -> None:
    first, again, other = (np.concatenate(list(itertools.islice(batches(50, 7, seed), 9))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("layers_from", ["anyrnn", "torch"])
def test_it_learns_to_read(options: Callable[..., Options], layers_from: str) -> None:
    record = trained(options(steps=150, layers_from=layers_from))
    assert len(record.losses) == 150
    assert record.losses[0] > 2.2
    assert record.evaluations[-1].step == 150
    assert record.evaluations[-1].accuracy > 0.9
    assert not record.interrupted
    assert record.seconds > 0
    assert record.evaluation_seconds > 0


@pytest.mark.parametrize("change", [{}, {"head": "last", "bidirectional": True}, {"cell": "gru", "layers": 2}], ids=str)
def test_both_kinds_of_layers_learn_alike(options: Callable[..., Options], change: dict[str, object]) -> None:
    ours = options(**change)
    record, expected = trained(ours), trained(replace(ours, layers_from="torch"))
    np.testing.assert_allclose(record.losses, expected.losses, rtol=1e-3)


def test_two_runs_are_equal(options: Callable[..., Options]) -> None:
    assert trained(options()).losses == trained(options()).losses


def test_it_evaluates_about_ten_times(options: Callable[..., Options]) -> None:
    assert [e.step for e in trained(options(steps=25)).evaluations] == [3, 6, 9, 12, 15, 18, 21, 24, 25]
    assert [e.step for e in trained(options(steps=1)).evaluations] == [1]


def test_an_evaluation_in_parts_is_that_of_the_whole(options: Callable[..., Options], monkeypatch: pytest.MonkeyPatch) -> None:
    choice = options()
    data = digits()
    model = build(find_layers(choice), data, choice)
    whole, parts = Record(), Record()
    loop.evaluate(model, data.test, whole)
    monkeypatch.setattr(loop, "EVALUATION_BATCH", 100)
    loop.evaluate(model, data.test, parts)
    np.testing.assert_array_equal(parts.evaluations[0].predictions, whole.evaluations[0].predictions)
    assert parts.evaluations[0].accuracy == np.mean(whole.evaluations[0].predictions == data.test.labels)
    assert model.training


def test_a_request_to_stop_is_heard_after_the_step(options: Callable[..., Options]) -> None:
    asked = iter([False, False, True])
    record = trained(options(), stop=lambda: next(asked))
    assert record.interrupted
    assert len(record.losses) == 3
    assert record.losses == trained(options()).losses[:3]


def test_a_request_at_the_last_step_changes_nothing(options: Callable[..., Options]) -> None:
    assert not trained(options(steps=1), stop=lambda: True).interrupted


def test_divergence_is_an_error(options: Callable[..., Options]) -> None:
    with pytest.raises(DivergedError, match=r"the loss is (nan|inf) at step \d+: training has diverged; try a smaller --lr$"):
        trained(options(cell="rnn_relu", learning_rate=1e30, layers_from="torch"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_and_silence_in_a_pipe(options: Callable[..., Options], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    trained(options())
    assert "digits lstm: 100%" in terminal.getvalue()
    assert "held_out=" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", pipe)
    trained(options())
    assert pipe.getvalue() == ""
