import pytest
import torch

from benchmarks.check import difference

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


def test_double_precision_is_held_to_more() -> None:
    assert difference({"output": OUTPUT}, {"output": OUTPUT + 1e-6}, "torch", torch.float64)
