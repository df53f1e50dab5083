"""Whatever sums share a kernel, each is made in its own order."""

import random
from collections.abc import Sequence

import pytest

from anyrnn.backends.llvm.products import alike_operands
from anyrnn.backends.llvm.shapes import Operand, OperandKey, in_common_order
from anyrnn.ir.dims import Dim

CASES = range(300)


def drawn(seed: int) -> list[list[OperandKey]]:
    """Operands of a few sums; one may have an operand twice."""
    choose = random.Random(seed)
    keys = [OperandKey(name, later, early=name < "c", heads=1) for name in "abcde" for later in (0, 1)][: choose.randint(1, 10)]
    sums = [[choose.choice(keys) for _ in range(choose.randint(1, 5))] for _ in range(choose.randint(1, 4))]
    return [sorted(keys, key=lambda key: not key.early) for keys in sums]


def is_within(part: Sequence[object], whole: Sequence[object]) -> bool:
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in part)


@pytest.mark.parametrize("seed", CASES)
def test_each_sum_has_its_order_among_those_of_all(seed: int) -> None:
    sums = drawn(seed)
    together, found = in_common_order(sums)
    for keys, given in zip(found, sums, strict=True):
        assert [(key.buffer, key.later) for key in keys] == [(key.buffer, key.later) for key in given]
        assert is_within(keys, together)
        assert is_within(keys, sorted(together, key=lambda key: not key.early))
    assert len(set(together)) == len(together)
    assert set(together) == {key for keys in found for key in keys}


def test_sums_that_agree_share_all_their_operands() -> None:
    a, b, c = (OperandKey(name, 0, early=False, heads=1) for name in "abc")
    assert in_common_order([[b], [a, b, c], [a, c]]) == ([a, b, c], [[b], [a, b, c], [a, c]])


@pytest.mark.parametrize("seed", CASES)
def test_operands_that_are_alike_are_multiplied_together_where_sums_keep_their_order(seed: int) -> None:
    choose = random.Random(seed)
    operands = [
        Operand(
            "b", 0, Dim.of("hidden"), False, tuple(sorted(choose.sample(range(3), choose.randint(1, 3)))), "p", False, (), None, 1
        )
        for _ in range(choose.randint(1, 7))
    ]
    groups = alike_operands(operands)
    order = [k for group in groups for k in group]
    assert sorted(order) == list(range(len(operands)))
    for accumulator in range(3):
        places = [k for k in order if accumulator in operands[k].accumulators]
        assert places == sorted(places)
    for group in groups:
        assert len({operands[k].accumulators for k in group}) == 1


def test_one_group_for_those_that_nothing_parts() -> None:
    def operand(*accumulators: int) -> Operand:
        return Operand("b", 0, Dim.of("hidden"), False, accumulators, "p", False, (), None, 1)

    assert alike_operands([operand(0), operand(1), operand(0), operand(1)]) == [[0, 2], [1, 3]]
    assert alike_operands([operand(0), operand(0, 1), operand(0)]) == [[0], [1], [2]]
