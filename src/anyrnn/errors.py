"""The exceptions of this package."""

from __future__ import annotations

from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str:
    """What a message says to a name that may be a slip."""
    from difflib import get_close_matches  # takes a while, and is seldom wanted

    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class CellError(ValueError):
    """A cell's function says something that the language cannot express; the message names the user's line."""


class InexactError(ValueError):
    """A conversion of weights that would lose numbers."""


class UnsupportedError(NotImplementedError):
    """What was asked for explicitly cannot run where it was asked to; the message says why and what can."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message is the command that installs it."""
