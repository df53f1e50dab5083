"""Hostile files for every reader, and whether the fuzzer sees what it looks for."""

import time
import warnings

import numpy as np
import pytest

from anyrnn.files import safetensors
from tests.files import fuzz


def test_hostile_files_end_in_arrays_or_in_a_message():
    outcomes = fuzz.run(fuzz.targets(), inputs=20_000, seed=0)
    assert outcomes.total() == 20_000
    for target in fuzz.targets():
        assert outcomes[target.name, "read"] > 20, target.name
        assert outcomes[target.name, "refused"] > 100, target.name


def keep(action):
    """A reader that first does something that it should not."""

    def read(data):
        if data[:1] == b"!":
            action()
        return safetensors.read(data)

    return read


def fail(error):
    raise error


def warn():
    warnings.warn("careful", stacklevel=1)


def spin():
    end = time.thread_time() + 1.2
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: fail(KeyError("x")), "KeyError: 'x'"),
        (lambda: fail(MemoryError()), "MemoryError"),
        (lambda: fail(RecursionError()), "RecursionError"),
        (lambda: fail(ValueError("something is wrong")), "the message does not begin with the file's name"),
        (lambda: fail(ValueError("the bytes: " + "x" * 10_000)), "or is endless"),
        (warn, "UserWarning: careful"),
        (spin, r"took 1\.\d s"),
        (lambda: np.zeros(100_000_000, np.uint8), "bytes allocated for a file of"),
    ],
)
def test_the_fuzzer_sees_what_it_looks_for(monkeypatch, action, message):
    monkeypatch.setattr(fuzz, "MEASURED", 1)
    good = fuzz.targets()[0].seeds
    target = fuzz.Target("broken", good, keep(action), (lambda draw: b"!",))
    with pytest.raises(fuzz.Failed, match=rf"broken, --seed 3 --first \d+ --inputs 1: .*{message}"):
        fuzz.run([target], inputs=50, seed=3)


def test_an_input_is_given_again_by_its_number():
    targets = fuzz.targets()
    inputs = [fuzz.make(targets, 5, number) for number in range(300)]
    again = [fuzz.make(targets, 5, number) for number in reversed(range(300))]
    assert [(target.name, data) for target, data in inputs] == [(target.name, data) for target, data in reversed(again)]
    assert {target.name for target, _ in inputs} == {target.name for target in targets}
