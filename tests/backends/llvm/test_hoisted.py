"""Products of the input that are made before the steps, for a chunk at once: steps find their sums."""

from __future__ import annotations

import numpy as np
import pytest

from anyrnn.backends.llvm import run, unit
from tests.backends.llvm.test_strips import forget
from tests.networks import fitting, on_llvm

FEATURES = unit.FOLDED_FEATURES + 9


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("samples", [1, 3, 50])
@pytest.mark.parametrize("cell", ["indrnn", "mingru", "sru", "gru"])
def test_hoisted_sums_have_the_bits_of_those_in_steps(cell: str, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """37 hidden features: some whole panels, and a part of one."""
    found = []
    for folded in (FEATURES, FEATURES - 1):
        monkeypatch.setattr(unit, "FOLDED_FEATURES", folded)
        forget()
        found.append(on_llvm(fitting(cell, 4, samples, FEATURES, 37), np.float32))
    for name, value in found[0].items():
        assert np.array_equal(found[1][name], value), name


@pytest.mark.parametrize(("cell", "alone"), [("mingru", True), ("gru", False)])
def test_steps_without_products_begin_none(cell: str, alone: bool) -> None:
    plan = fitting(cell, 3, 2, FEATURES, 40).network.plan
    for which in ("inference", "training"):
        assert ("are_all_hoisted" in run.write_code(plan, which, "float32").text) == alone
