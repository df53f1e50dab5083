import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from anyrnn.compare import contenders, tasks, training
from anyrnn.compare.options import make
from anyrnn.compare.training import Plan, Run, Stopped

Settings = Callable[..., dict[str, Any]]


def made(settings: dict[str, Any], purpose: Any = "comparison", stop: Callable[[], bool] = lambda: False) -> Run:
    options = make(**settings)
    (one,) = contenders.find(options, tasks.load(options))
    return training.train(Plan(one.name, purpose, options.learning_rates[0], 3), one, options, stop, lambda loss: None)


def figures(run: Run) -> Any:
    return run.validations, run.best_step, run.test


def test_a_run_follows_from_its_plan(settings: Settings) -> None:
    first = made(settings(cells="gru"))
    torch.rand(5)
    assert figures(made(settings(cells="gru"))) == figures(first)


def test_torchs_random_numbers_go_on_as_before(settings: Settings) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    made(settings(cells="gru"))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("task", "length"), [("digits", None), ("adding", 6), ("copy", 2)])
def test_it_learns(settings: Settings, task: str, length: int | None) -> None:
    run = made(settings(cells="gru", task=task, length=length, steps=200, hidden=16))
    assert run.test is not None
    first, last = run.validations[0], run.validations[-1]
    assert last["loss"] < first["loss"]
    assert last["train_loss"] < first["train_loss"]
    assert run.test["loss"] < first["loss"]
    assert [v["step"] for v in run.validations] == list(range(20, 201, 20))


def test_the_last_step_is_always_validated(settings: Settings) -> None:
    assert [v["step"] for v in made(settings(cells="gru", steps=25)).validations] == [3, 6, 9, 12, 15, 18, 21, 24, 25]


def told(monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, float]]) -> list[dict[str, torch.Tensor]]:
    """Evaluations give these, and the weights that they saw are noted."""
    seen: list[dict[str, torch.Tensor]] = []
    left: Iterator[dict[str, float]] = iter(answers)

    def evaluate(network: torch.nn.Module, *rest: object) -> dict[str, float]:
        seen.append({name: tensor.clone() for name, tensor in network.state_dict().items()})
        return next(left)

    monkeypatch.setattr(training, "evaluate", evaluate)
    return seen


def evaluated(figure: float, loss: float = 1.0) -> dict[str, float]:
    return {"figure": figure, "loss": loss}


@pytest.mark.parametrize(
    ("task", "given", "best"),
    [
        ("digits", [evaluated(30), evaluated(50), evaluated(40)], 2),
        ("digits", [evaluated(50, 1.0), evaluated(50, 0.5), evaluated(50, 0.5)], 2),
        ("adding", [evaluated(0.3), evaluated(0.1), evaluated(0.2)], 2),
        ("adding", [evaluated(0.1), evaluated(0.2), evaluated(0.3)], 1),
    ],
)
def test_the_weights_of_the_best_validation_are_tested(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, task: str, given: list[dict[str, float]], best: int
) -> None:
    seen = told(monkeypatch, [*given, evaluated(77.0)])
    run = made(settings(cells="gru", task=task, length=4 if task == "adding" else None, steps=3))
    assert run.best_step == best
    assert run.test == evaluated(77.0)
    assert len(seen) == 4
    for name, tensor in seen[-1].items():
        assert torch.equal(tensor, seen[best - 1][name])


def test_runs_to_choose_a_rate_by_are_not_tested(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, [evaluated(1.0)] * 3)
    run = made(settings(cells="gru", steps=3), purpose="tuning")
    assert (run.test, run.diverged, run.best_step) == (None, None, 1)


def test_a_run_that_diverges_has_no_figure(settings: Settings) -> None:
    run = made(settings(cells="rnn_relu", learning_rate=1e30, steps=20))
    assert run.diverged is not None
    assert 2 <= run.diverged <= 20
    assert (run.test, run.best_step, run.best) == (None, None, None)


@pytest.mark.parametrize("answers", [[evaluated(1.0, math.inf)], [evaluated(1.0), evaluated(1.0, math.nan)]])
def test_losses_that_are_not_finite_in_evaluations_are_divergence(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, float]]
) -> None:
    told(monkeypatch, answers)
    run = made(settings(cells="gru", steps=1))
    assert (run.diverged, run.test) == (1, None)


def test_gradients_are_scaled_down(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    real = torch.optim.Adam.step

    def step(self: torch.optim.Adam, *rest: Any) -> Any:
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(float(torch.cat([g.flatten() for g in gradients if g is not None]).norm()))
        return real(self, *rest)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    made(settings(cells="gru", clip=0.0))
    free, norms[:] = min(norms), []
    made(settings(cells="gru", clip=free / 2))
    assert norms == pytest.approx([free / 2] * 6, rel=1e-4)


def test_a_request_to_stop_is_heard_after_the_step(settings: Settings) -> None:
    asked = iter([False, False, True])
    with pytest.raises(Stopped):
        made(settings(cells="gru"), stop=lambda: next(asked))
    assert list(asked) == []


def test_an_evaluation_in_parts_is_that_of_the_whole(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made(settings(cells="gru"))
    monkeypatch.setattr(training, "ROWS", 100)
    parts = made(settings(cells="gru"))
    assert parts.test is not None
    assert whole.test is not None
    assert parts.test["figure"] == whole.test["figure"]
    assert parts.test["loss"] == pytest.approx(whole.test["loss"], rel=1e-6)
    assert parts.backend == "llvm"
    assert parts.steps_per_second > 0


def test_what_is_beyond_an_utterance_is_never_read(settings: Settings, shared: Callable[[str], Any]) -> None:
    options = make(**settings(cells="gru", task="vowels", data=shared("data/japanese-vowels")))
    task = tasks.load(options)
    (one,) = contenders.find(options, task)
    plan = Plan("gru", "comparison", 0.01, 0)
    clean = training.train(plan, one, options, lambda: False, lambda loss: None)
    for part in (task.validation, task.test):
        assert part.lengths is not None
        for inputs, length in zip(part.inputs, part.lengths, strict=True):
            inputs[length:] = float("nan")
    poisoned = training.train(plan, one, options, lambda: False, lambda loss: None)
    assert figures(poisoned) == figures(clean)


def test_characters_are_learned(settings: Settings, shared: Callable[[str], Any]) -> None:
    chars = settings(cells="gru", task="chars", data=shared("data/text"), length=20, steps=60, hidden=24)
    run = made(chars)
    assert run.test is not None
    assert run.test["figure"] == pytest.approx(run.test["loss"] / math.log(2))
    assert run.test["figure"] < 4.85  # of one who knows how frequent they are
