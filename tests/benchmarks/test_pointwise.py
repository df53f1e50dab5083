import pytest

from benchmarks.pointwise import COSTLY, Pointwise
from benchmarks.result import Ceilings


@pytest.mark.timing
def test_costly_ops_take_time() -> None:
    found = Pointwise("float32", 1).seconds()
    assert set(found) == set(COSTLY)
    assert {"tanh", "sigmoid", "div"} <= set(COSTLY)
    assert 1e-12 < found["tanh"] < 1e-7


def test_others_are_one_instruction() -> None:
    ceilings = Ceilings(arithmetic=2e9, memory=None, ops={"tanh": 3e-9})
    assert ceilings.pointwise({"add": 10, "tanh": 5}) == pytest.approx(10e-9 + 15e-9)
    assert Ceilings(None, None).pointwise({"add": 10}) == 0.0


def test_a_loud_moment_makes_no_op_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the loop by itself, and of one with an op."""
    times = {"nothing": [9.0, 1.0, 1.0], "tanh": [5.0, 8.0, 5.0]}
    monkeypatch.setattr(Pointwise, "_seconds", lambda self, name: times.get(name, [2.0] * 3).pop(0))
    pointwise = Pointwise("float32", 1)
    assert [pointwise.seconds()["tanh"] for _ in range(3)] == [0.0, 4.0, 4.0]
