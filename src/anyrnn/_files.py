"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where a folder cannot be locked
    CAN_HOLD = False
else:
    CAN_HOLD = True


@contextmanager
def held(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Meanwhile no other process holds the folder, which is there. It is given back when the process ends, however it does.

    Raises: BlockingIOError when another one holds it. On Windows, and where a file system has no locks, all may.
    """
    if not CAN_HOLD:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        _lock(opened)
        yield
    finally:
        os.close(opened)


def _lock(opened: int) -> None:
    try:
        flock(opened, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # the file system has no locks
        pass


@contextmanager
def written_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file's path beside `path`, to be written by the caller; it takes the place of `path` when the block ends well.

    When the block raises (KeyboardInterrupt included) what was written is removed and `path` stays as it was. The folder is
    made if there is none. Several processes may write the same `path`: the last one wins, and readers see a whole file.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "notes" / "one.txt"
        >>> with written_aside(target) as aside:
        ...     _ = aside.write_text("whole")
        >>> target.read_text(), [file.name for file in target.parent.iterdir()]
        ('whole', ['one.txt'])
    """
    target = Path(path)
    target = target.resolve() if target.is_symlink() else target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
    try:
        yield aside
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
