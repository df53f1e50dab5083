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
