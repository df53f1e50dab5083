"""What compiling gives, on disk: made once for a machine and a version of the package, read by every process after that.

A file is a digest and what it is the digest of: a pickled pair of a key and a value. It appears whole or not at all, so any
number of processes may make the same one. One that is cut off, altered or foreign is told of once and made anew. Folder and files
must be the user's alone to write to, for whoever writes there decides what the user's programs run. Where the system has no such
owners and modes (Windows), the folder is the one that it gives to each user, and nothing is checked.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from anyrnn._files import written_aside

T = TypeVar("T")
VARIABLE = "ANYRNN_CACHE"
"""Names the folder; empty: nothing is kept on disk."""
MOST_BYTES = 2**28
"""Of all files; what was not used for the longest time goes first."""
DAY = 86400
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
ENDING = ".compiled"
OURS = re.compile(rf"[0-9a-f]{{32}}{ENDING}|\.[0-9a-f]{{32}}{ENDING}\.\d+-[0-9a-f]+\.partial")
"""Names of our files; the folder may be one where the user keeps others."""
DIGEST = hashlib.blake2b
DIGEST_BYTES = 32


def folder() -> Path | None:
    """Where files are, whether it exists or not; None when nothing is to be kept."""
    named = os.environ.get(VARIABLE)
    try:
        if named is not None:
            return Path(named).expanduser() if named else None
        if sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        elif sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        else:
            wanted = Path(os.environ.get("XDG_CACHE_HOME", ""))
            base = wanted if wanted.is_absolute() else Path.home() / ".cache"  # as that name's specification has it
    except RuntimeError:  # no home, or none of the user that is named
        return None
    return base / "anyrnn"


def why_not(place: Path) -> str | None:
    """Why files in a folder must not be used, or None. A folder that does not exist is made."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.stat()
    except OSError as error:
        return f"{place}: {error.strerror or error}"
    if hasattr(os, "geteuid"):
        if found.st_uid != os.geteuid():
            return f"{place} belongs to another user"
        if found.st_mode & OTHERS_WRITE:
            return f"others may write to {place}: chmod go-w {place}"
    return None


def remembered(kind: str, key: str, make: Callable[[], T]) -> T:
    """`make()`, or what it gave before, in this process or another one, for the same kind and key.

    `make` must depend on nothing else but the package itself; its value must be one that pickle takes.
    """
    place = _place(kind, key)
    if place is None:
        return make()
    found = _read(*place)
    if found is not None:
        return found[1]  # type: ignore[no-any-return]
    value = make()
    file, key = place
    _write(file, pickle.dumps((key, value), protocol=5))
    return value


def recalled(kind: str, key: str) -> Any:
    """What `remembered` has on disk for a kind and a key; None where it has nothing."""
    place = _place(kind, key)
    found = None if place is None else _read(*place)
    return None if found is None else found[1]


def _place(kind: str, key: str) -> tuple[Path, str] | None:
    """The file, and the key that is in it; None where nothing is kept."""
    place = folder()
    if BUILD is None or place is None or why_not(place):
        return None
    key = f"{kind} {BUILD} {key}"
    return place / (DIGEST(key.encode(), digest_size=16).hexdigest() + ENDING), key


def _build() -> str | None:
    """What tells one state of the package, and of what it stands on, from another; None where it is not in files of its own, but
    in an archive.
    """
    if not Path(__file__).is_file():
        return None
    digest = DIGEST("\n".join(sorted(_stamps(Path(__file__).parent))).encode(), digest_size=16).hexdigest()
    return f"{digest}, numpy {np.__version__}, python {platform.python_version()}"


def _stamps(folder: Path | str) -> Iterator[str]:
    """Of the package's files, as far as they can be read. Quicker than with Path: every process does it."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".ll")):
                with suppress(OSError):  # an editor's link to nowhere
                    found = entry.stat()
                    yield f"{entry.path} {found.st_size} {found.st_mtime_ns}"
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _stamps(entry.path)


BUILD = _build()
"""At the import: files that change afterwards are not those that this process runs."""


def _read(file: Path, key: str) -> tuple[str, Any] | None:
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                _tell(file, "it is no file")
                return None
            if hasattr(os, "geteuid"):
                if found.st_uid != os.geteuid():
                    _tell(file, "it belongs to another user")
                    return None
                if found.st_mode & OTHERS_WRITE:
                    _tell(file, "others may write to it")
                    return None
            content = opened.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        _tell(file, str(error))
        return None
    if DIGEST(content[DIGEST_BYTES:], digest_size=DIGEST_BYTES).digest() != content[:DIGEST_BYTES]:
        _tell(file, "it is not what was written")
        return None
    pair: tuple[str, Any] = pickle.loads(memoryview(content)[DIGEST_BYTES:])
    if pair[0] != key:
        _tell(file, "it is for something else")
        return None
    with suppress(OSError):  # gone, or not ours to touch
        if time.time() - file.stat().st_mtime > DAY:
            os.utime(file)
    return pair


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to would be waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _tell(file: Path, why: str) -> None:
    warnings.warn(f"anyrnn: {file} is not used, {why}; it is made anew", RuntimeWarning, stacklevel=2)


def _write(file: Path, content: bytes) -> None:
    """Without a word when that cannot be: a full disk, or one that is only read."""
    with suppress(OSError):
        with written_aside(file) as aside:
            aside.touch(0o600)
            aside.write_bytes(DIGEST(content, digest_size=DIGEST_BYTES).digest() + content)
        _make_room(file.parent)


def _files(place: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Ours, and what processes that were killed have left of ours."""
    for file in place.iterdir():
        if OURS.fullmatch(file.name):
            with suppress(FileNotFoundError):  # another process makes room too
                yield file, file.stat()


def _make_room(place: Path) -> None:
    files = sorted(_files(place), key=lambda pair: pair[1].st_mtime, reverse=True)
    total = 0
    for file, found in files:
        total += found.st_size
        left = not file.name.endswith(ENDING) and time.time() - found.st_mtime > DAY
        if total > MOST_BYTES or left:
            file.unlink(missing_ok=True)


def describe() -> str:
    """One line: where files are and how much there is, or why there are none."""
    place = folder()
    if place is None:
        return f"none: {VARIABLE} is empty" if os.environ.get(VARIABLE) == "" else "none: there is no home folder"
    is_new = not place.exists()
    reason = why_not(place)
    if is_new:
        with suppress(OSError):
            place.rmdir()
    if reason or is_new:
        return f"not used: {reason}" if reason else f"{place}: empty"
    sizes = [found.st_size for _, found in _files(place)]
    return f"{place}: {len(sizes)} file{'s' * (len(sizes) != 1)}, {sum(sizes) / 2**20:.1f} MiB of at most {MOST_BYTES >> 20}"


def clear() -> str:
    """Remove all files; says in a line what was done."""
    place = folder()
    if place is None or not place.is_dir():
        return "nothing to clear"
    files = list(_files(place))
    for file, _ in files:
        file.unlink(missing_ok=True)
    return f"{place}: {len(files)} file{'s' * (len(files) != 1)} removed, {sum(f.st_size for _, f in files) / 2**20:.1f} MiB"
