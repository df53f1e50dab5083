import signal
import threading

import pytest

from anyrnn.train.interrupt import stop_requests


def test_the_first_asks_and_the_second_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_requests() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("other", [signal.SIG_IGN, signal.SIG_DFL])
def test_ctrl_c_that_is_ignored_stops_nothing(other: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, other)
    try:
        with stop_requests() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop() == (other is signal.SIG_DFL)
        assert signal.getsignal(signal.SIGINT) is other
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_of_the_main_thread_there_is_none() -> None:
    answers = []

    def ask() -> None:
        with stop_requests() as stop:
            answers.append(stop())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert answers == [False]
