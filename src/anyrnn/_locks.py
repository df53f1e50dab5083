"""Locks that a forked process gets anew."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


class ForkedLock:
    """A lock, as `now`. When a process forks another thread may hold it, which the child does not have: there it is a new one."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]] = threading.Lock) -> None:
        self.make = make
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.now = self.make()
