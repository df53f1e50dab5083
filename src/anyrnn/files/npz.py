"""NumPy's .npz files: a zip file of .npy files."""

from __future__ import annotations

from typing import Any

from anyrnn.files import archive, npy
from anyrnn.files.content import Array, Source, content

SUFFIX = ".npy"


def read(source: Source) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays of an .npz file by their names without `.npy`; other members are named under "left out" in the metadata.

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; ValueError that names the file, the member, and what is wrong, see `archive.members` and `npy.read`.
    """
    found, others = archive.members(content(source), lambda name: name.endswith(SUFFIX))
    arrays = {name.removesuffix(SUFFIX): npy.parsed(member) for name, member in found.items()}
    return arrays, {"left out": others} if others else {}
