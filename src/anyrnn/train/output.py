"""The folder that a command leaves its files in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from anyrnn.train.errors import UsageError


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
