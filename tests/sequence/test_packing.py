"""What batches whose samples have different steps become: which rows there are, and where states come from and go to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anyrnn.sequence.packing import Segments, StepsGiven, beginnings, first_steps, segments, steps_given


def asked(**arguments: Any) -> StepsGiven:
    every = dict.fromkeys(["lengths", "cu_seqlens", "mask", "mask_value", "reset"])
    found = steps_given(**{**every, "padding": 0.0, **arguments})
    assert found is not None
    found.check("float32", 3e38)
    return found


def places(found: Segments) -> list[tuple[int, int]]:
    """(step, sample) of each packed row."""
    return list(zip(found.packing.step.tolist(), found.packing.sample.tolist(), strict=True))


def test_a_call_that_says_nothing() -> None:
    assert steps_given(None, None, None, None, None, 0.0) is None


def test_the_longest_come_first_and_empty_ones_nowhere() -> None:
    found = asked(lengths=[2, 0, 3, 2]).steps((4, 4), batch_first=False).segments()
    assert found is not None
    assert found.packing.counts == (3, 3, 1)
    assert places(found) == [(0, 2), (0, 0), (0, 3), (1, 2), (1, 0), (1, 3), (2, 2)]
    assert [e.tolist() for e in found.enter] == [[2, 0, 3]] * 2
    assert [e.tolist() for e in found.leave] == [[1, 3 + 1, 0, 2]] * 2


def test_masked_steps_are_as_if_cut_out() -> None:
    mask = np.array([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0]], bool)
    found = asked(mask=mask).steps((3, 5), batch_first=True).segments()
    assert found is not None
    assert found.packing.counts == (2, 2, 1)
    assert places(found) == [(0, 0), (1, 2), (2, 0), (2, 2), (4, 0)]
    assert found.held().T.tolist() == [[0, 0, 2, 2, 4], [5, 5, 5, 5, 5], [5, 1, 3, 3, 3]]


def test_a_reset_begins_a_segment() -> None:
    """Sample 0 is reset at step 2, sample 1 at steps 0 and 1, sample 2 never."""
    reset = np.zeros((4, 3), bool)
    reset[2, 0] = reset[0, 1] = reset[1, 1] = True
    found = asked(reset=reset).steps((4, 3), batch_first=False).segments()
    assert found is not None
    # segments: sample 2 (4 steps), sample 1 from 1 on (3), sample 0 up to 2 and from 2 on (2 each), sample 1 up to 1 (1)
    assert found.packing.counts == (5, 4, 2, 1)
    assert places(found)[:5] == [(0, 2), (1, 1), (0, 0), (2, 0), (0, 1)]
    forward, backward = ([e.tolist() for e in both] for both in (found.enter, found.leave))
    own = 3
    assert forward == [[2, own, 0, own, own], [2, 1, own, 0, own]]
    assert backward == [[3, 1, 0], [2, 4, 0]]


@pytest.mark.parametrize("how", ["mask", "lengths", "joined"])
def test_a_reset_where_no_step_is_left(how: str) -> None:
    """Its mark is of no step, whatever says which steps there are; that of a sample without steps neither."""
    reset = np.array([[0, 1], [0, 1], [1, 1]], bool)
    mask = np.array([[1, 0], [1, 0], [0, 0]], bool)
    if how == "joined":
        found, _, _ = asked(cu_seqlens=[0, 3, 6], reset=reset.T.ravel(), mask=mask.T.ravel()).joined(6)
    else:
        which = {"mask": mask} if how == "mask" else {"lengths": [2, 0]}
        some = asked(reset=reset, **which).steps((3, 2), batch_first=False).segments()
        assert some is not None
        found = some
    segment, given = 0, 1
    assert places(found) == [(0, 0), (1, 0)]
    assert [e.tolist() for e in found.enter] == [[0], [0]]
    assert [e.tolist() for e in found.leave] == [[segment, given + 1]] * 2


def test_a_reset_at_a_masked_step_is_for_the_next_that_is_there() -> None:
    """Of four steps the first and the third are not there and have marks."""
    reset, mask = (np.array(of, bool)[:, None] for of in ([1, 0, 1, 0], [0, 1, 0, 1]))
    found = segments(mask, reset)
    own = 1
    assert places(found) == [(1, 0), (3, 0)]
    assert [e.tolist() for e in found.enter] == [[own, own], [own, 0]]
    assert [e.tolist() for e in found.leave] == [[1], [0]]
    assert found.held().ravel().tolist() == [2, 0, 0, 1]


def test_rows_one_after_the_other() -> None:
    given = asked(cu_seqlens=[0, 2, 2, 5], mask=np.array([1, 1, 0, 1, 1], bool), padding="last")
    found, rows, held = given.joined(5)
    assert places(found) == [(0, 0), (1, 2), (1, 0), (2, 2)]
    assert rows.tolist() == [0, 3, 1, 4]
    assert held is not None
    assert held.tolist() == [0, 2, 4, 1, 3]


@pytest.mark.parametrize("sides", [(3, 0), (0, 3)])
def test_batches_of_nothing(sides: tuple[int, int]) -> None:
    found = segments(np.zeros(sides, bool))
    assert found.packing.counts == ()
    assert found.held().shape == sides


def test_lengths_alone_are_what_their_mask_is() -> None:
    rng = np.random.default_rng(0)
    for steps, samples in [(0, 3), (3, 0), (1, 1), *rng.integers(1, 9, (40, 2)).tolist()]:
        lengths = rng.integers(0, steps + 1, samples)
        there = first_steps(lengths, steps)
        ours, theirs = beginnings(lengths, there), segments(there)
        assert ours.packing.counts == theirs.packing.counts
        assert ours.packing.total == len(ours.packing.sample)
        assert places(ours) == places(theirs)
        for name in ("there", "element"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name))
        for name in ("enter", "leave"):
            assert all(map(np.array_equal, getattr(ours, name), getattr(theirs, name)))


def test_lengths_alone_in_a_given_order() -> None:
    lengths = np.array([2, 3, 2])
    found = beginnings(lengths, first_steps(lengths, 3), np.array([1, 2, 0]))
    assert places(found) == [(0, 1), (0, 2), (0, 0), (1, 1), (1, 2), (1, 0), (2, 1)]
    assert found.enter[0].tolist() == [1, 2, 0]
    assert found.leave[0].tolist() == [2, 0, 1]


def test_all_steps_of_all_samples() -> None:
    assert asked(lengths=[3, 3]).steps((3, 2), batch_first=False).are_all
    assert asked(mask=np.ones((3, 2), bool), reset=np.zeros((3, 2), bool)).steps((3, 2), batch_first=False).are_all


def check(kind: type[Exception], words: str, **arguments: Any) -> None:
    with pytest.raises(kind, match=words):
        asked(**arguments).steps((5, 3), batch_first=False).segments()


def test_what_cannot_be() -> None:
    check(ValueError, r"^lengths should have one length for each of the 3 samples, got 2$", lengths=[1, 2])
    check(ValueError, r"^lengths should be from 0 to the 5 steps of the input, got 6$", lengths=[1, 6, 2])
    check(ValueError, r"got -1$", lengths=[1, -1, 2])
    check(TypeError, r"^lengths should be integers: ", lengths=[1, 2.0, 2])
    check(TypeError, r"^lengths should be a vector of integers, got float64 of shape \(3,\)$", lengths=np.ones(3))
    check(TypeError, r"^lengths should be a sequence of integers, got int$", lengths=3)
    check(TypeError, r"^mask should be an array of bool, got float64: mask.astype\(bool\)$", mask=np.ones((5, 3)))
    check(TypeError, r"^mask should be an array of bool, got list$", mask=[[True] * 3] * 5)
    check(
        ValueError, r"^mask should have shape \(5, 3\), one for each step of the input, got \(3, 5\)$", mask=np.ones((3, 5), bool)
    )
    check(ValueError, r"^reset should have shape \(5, 3\), one for each step of the input, got \(5,\)$", reset=np.ones(5, bool))
    check(ValueError, r"^mask_value should be a number, got nan, which equals nothing$", mask_value=float("nan"))
    check(ValueError, r"^mask_value should be a number that float32 has, up to 3e\+38, got one beyond$", mask_value=10**400)
    check(
        ValueError, r"^padding should be a number that float32 has, up to 3e\+38, got one beyond$", lengths=[1] * 3, padding=1e39
    )
    check(TypeError, r"^padding should be a number or 'last', got array", lengths=[1] * 3, padding=np.zeros(2))
    check(ValueError, r"^lengths should be numbers of steps, got 1000000000000000000000$", lengths=[1, 10**21, 1])
    check(
        ValueError,
        r"^lengths should be numbers of steps, got 18446744073709551615$",
        lengths=np.array([2**64 - 1] * 3, np.uint64),
    )
    check(TypeError, r"^lengths should be a sequence of integers, got set$", lengths={1, 2, 3})
    check(TypeError, r"^lengths should be a sequence of integers, got dict$", lengths={1: 1, 2: 2, 3: 3})
    check(TypeError, r"^lengths should be integers, got a bool$", lengths=[True, 1, 2])
    check(TypeError, r"^mask_value should be a number, got True$", mask_value=True)
    check(ValueError, r"^give lengths or cu_seqlens, not both$", lengths=[1, 2, 3], cu_seqlens=[0, 3])
    check(TypeError, r"^padding should be a number or 'last', got 'first'$", lengths=[1, 2, 3], padding="first")
    check(
        ValueError,
        r"^padding='last' is for outputs where there is no step, and there are no lengths and no mask$",
        padding="last",
    )
