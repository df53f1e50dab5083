"""What a forked process has to know, and locks that it gets anew."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

forked = False
"""Whether this process was forked from one that had this package."""


def _note_fork() -> None:
    global forked
    forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class ForkedLock:
    """A lock, as `now`. When a process forks another thread may hold it, which the child does not have: there it is a new one."""

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self.make = make
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.now = self.make()


class AwaitedLock(ForkedLock):
    """One that a process which forks waits for: what is done under it takes locks of others, which the child would find taken
    for ever. The thread that forks may hold it itself.
    """

    def __init__(self) -> None:
        super().__init__(threading.RLock)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._take, after_in_parent=self._leave)

    def _take(self) -> None:
        """Whatever a signal's handler raises meanwhile: Python shows what a hook raises, and forks all the same."""
        try:
            self.now.acquire()
        except BaseException:
            self._take()
            raise

    def _leave(self) -> None:
        self.now.release()
