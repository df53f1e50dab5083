"""What ends a run for a reason that lies outside this program."""

from __future__ import annotations


class UsageError(Exception):
    """What was asked for cannot be done; raised before any work, the message says what to do instead."""


class DivergedError(Exception):
    """The loss is no longer a finite number."""
