import pytest
import torch

from benchmarks.check import difference, rounding_explains

OUTPUT = torch.tensor([[1.0, -4.0], [2.0, 3.0]])


def check(theirs: dict[str, torch.Tensor], **ours: torch.Tensor) -> str | None:
    return difference({"output": OUTPUT, **ours}, theirs, "torch", torch.float32)


def test_equal_results_agree() -> None:
    assert check({"output": OUTPUT + 3e-4}) is None
    assert check({"output": OUTPUT, "d_input": torch.ones(2)}, d_input=torch.ones(2) * 1.0009) is None
    assert check({"output": OUTPUT, "d_input": torch.zeros(2)}, d_input=torch.zeros(2)) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({}, {"output": OUTPUT + 0.04}, "output differs from torch's by 1.0e-02 of its largest magnitude (allowed: 1e-04)"),
        ({}, {"output": OUTPUT[:1]}, "output is [2, 2], torch's is [1, 2]"),
        ({}, {"output": torch.full_like(OUTPUT, torch.nan)}, "output differs from torch's by nan"),
        ({}, {}, "there is no output to compare with torch's"),
        ({"d_input": torch.ones(2)}, {"output": OUTPUT}, "only one of anyrnn and torch gives d_input"),
        ({"d_input": torch.ones(2)}, {"output": OUTPUT, "d_input": torch.ones(2) * 2}, "d_input differs from torch's by 5.0e-01"),
        ({"d_input": torch.ones(2)}, {"output": OUTPUT, "d_input": torch.zeros(2)}, "d_input differs from torch's by inf"),
    ],
)
def test_what_differs_is_told(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], words: str) -> None:
    reason = check(theirs, **ours)
    assert reason is not None
    assert reason.startswith(words)


def test_where_gradients_jump_single_numbers_may_differ() -> None:
    theirs = torch.linspace(-1, 1, 40_000)
    one, many, far = theirs.clone(), theirs + 0.002, theirs.clone()
    one[7] += 0.02
    far[7] += 0.06

    def reason(ours: torch.Tensor, kinks: bool, name: str = "d_input") -> str | None:
        ours_and_theirs = ({"output": OUTPUT, name: of} for of in (ours, theirs))
        return difference(*ours_and_theirs, "torch", torch.float32, kinks)

    assert reason(one, kinks=True) is None
    for wrong in (reason(one, kinks=False), reason(many, kinks=True), reason(one, kinks=True, name="last state 0")):
        assert wrong is not None
    assert "(allowed: 5e-02)" in (reason(far, kinks=True) or "")


def test_double_precision_is_held_to_more() -> None:
    assert difference({"output": OUTPUT}, {"output": OUTPUT + 1e-6}, "torch", torch.float64)


@pytest.mark.parametrize(
    ("ours", "theirs", "explains"),
    [(1.0002, 1.0001, True), (1.0004, 0.9999, False), (1.00005, 1.0009, True), (1.00005, 1.002, False), (1.0015, 1.0014, False)],
)
def test_rounding_explains_what_is_near_the_exact_results(ours: float, theirs: float, explains: bool) -> None:
    exact, *found = ({"output": torch.tensor([0.5, value], dtype=torch.float64)} for value in (1.0, ours, theirs))
    assert rounding_explains(found[0], found[1], exact, "torch", torch.float32) is explains
