"""The exceptions of this package."""

from __future__ import annotations


class CellError(ValueError):
    """A cell's function says something that the language cannot express; the message names the user's line."""


class UnsupportedError(NotImplementedError):
    """What was asked for explicitly cannot run where it was asked to; the message says why and what can."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message is the command that installs it."""
