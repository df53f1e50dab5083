"""Ctrl-C as a request to stop after the step at hand, so that what is saved is the state between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C was pressed within the block. The second Ctrl-C raises KeyboardInterrupt.

    Outside the main thread, where Python delivers no signals, the function says no; and where SIGINT is ignored, as a shell has
    it for a job in the background, or is not Python's.
    """
    requested = False

    def request(signal_number: int, frame: FrameType | None) -> None:
        nonlocal requested
        requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, request)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, before)
