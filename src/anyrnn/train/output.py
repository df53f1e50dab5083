"""The folder that a command leaves its files in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from anyrnn._files import held
from anyrnn.train.errors import UsageError


@contextmanager
def holding(folder: Path, work: str) -> Iterator[None]:
    """Meanwhile no other process works in the folder. One that had to be made is gone again if nothing is in it. Raises:
    UsageError while one does: each would write its own files over the other's.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(folder))
        except BlockingIOError:
            message = f"--output {folder}: another {work} is at work there; wait for it, or give another folder"
            raise UsageError(message) from None
        if is_new:
            stack.callback(_without_nothing, folder)
        yield


def _without_nothing(folder: Path) -> None:
    with suppress(OSError):  # unless there is something in it
        folder.rmdir()


def check_folder(folder: Path, files: Iterable[str]) -> None:
    """Raises UsageError when the folder cannot be made or written to, or has a folder where one of the files would be; makes
    nothing yet.
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UsageError(f"--output {folder}: {str(existing)!r} is a file, not a folder")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UsageError(f"--output {folder}: the folder {str(existing)!r} cannot be written to: {error.strerror}") from error
    for name in files:
        if (folder / name).is_dir():
            raise UsageError(f"--output {folder}: {name!r} is a folder there, and would be a file")
