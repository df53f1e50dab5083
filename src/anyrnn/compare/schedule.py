"""The runs of a comparison, one after the other, with those left out that are there already."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from anyrnn.compare.contenders import Contender
from anyrnn.compare.options import Options
from anyrnn.compare.record import RESULTS, Record
from anyrnn.compare.summary import best_rate
from anyrnn.compare.training import Plan, Stopped, train
from anyrnn.train.interrupt import stop_requests


def make_runs(options: Options, found: Sequence[Contender], record: Record) -> dict[str, float]:
    """Make those that are not there yet, and give each cell's rate. All rates are chosen first; then each seed goes through all
    cells before the next, so that they meet the same moods of the machine.

    Raises: KeyboardInterrupt when Ctrl-C has stopped it after a training step; runs that had ended are kept.
    """
    rates = options.learning_rates
    tuning = [Plan(one.name, "tuning", rate, seed) for one in found for rate in rates for seed in options.tuning]
    count = len(tuning) + len(found) * options.seeds
    off = not sys.stderr.isatty()
    with stop_requests() as stop, tqdm(total=count * options.steps, unit="step", smoothing=0, disable=off) as bar:
        maker = _Maker(options, {one.name: one for one in found}, record, stop, bar, count)
        maker.make(tuning)
        chosen = {}
        for one in found:
            tried = [record.runs[plan] for plan in tuning if plan.cell == one.name]
            chosen[one.name] = best_rate(tried, rates, one.task) if tried else rates[0]
        maker.make(Plan(one.name, "comparison", chosen[one.name], seed) for seed in range(options.seeds) for one in found)
    return chosen


@dataclass
class _Maker:
    options: Options
    contenders: Mapping[str, Contender]
    record: Record
    stop: Callable[[], bool]
    bar: tqdm
    count: int
    ended: int = 0
    begun: bool = False

    def make(self, plans: Iterable[Plan]) -> None:
        """Each, if it is not there."""
        for plan in plans:
            if plan in self.record.runs:
                if not self.bar.disable:
                    self.bar.initial += self.options.steps  # no step of these tells how long a step takes
                self.bar.update(self.options.steps)
            else:
                self._make(plan)
            self.ended += 1

    def _make(self, plan: Plan) -> None:
        if not self.begun:
            self.record.begin()
            self.begun = True
        self.bar.set_description(f"{self.options.task} {plan.cell}", refresh=False)
        what = "choosing a rate" if plan.purpose == "tuning" else f"seed {plan.seed}"
        done = 0

        def tell(loss: float) -> None:
            nonlocal done
            done += 1
            run = f"run {self.ended + 1} of {self.count}"
            self.bar.set_postfix_str(f"{run}, {what}, rate {plan.learning_rate:g}, loss {loss:.4g}", refresh=False)
            self.bar.update()

        try:
            self.record.add(train(plan, self.contenders[plan.cell], self.options, self.stop, tell))
        except Stopped:
            kept = f"what had ended is kept in {self.record.folder / RESULTS}, and the same command goes on from there"
            raise KeyboardInterrupt(f"interrupted after {self.ended} of {self.count} runs; {kept}") from None
        self.bar.update(self.options.steps - done)  # of a run that diverged
