"""What kind of file a file is, by its name and by its first bytes, and reading it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anyrnn.files import archive, flax, hdf5, keras, limits, mxnet, npy, npz, pt, safetensors
from anyrnn.files.content import Array, Content, content, regular
from anyrnn.files.hdf5_parts import MAGIC as HDF5

SUFFIXES = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".npy": "npy",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".keras": "keras",
    ".params": "mxnet",
    ".pt": "pt",
    ".pth": "pt",
    ".ckpt": "pt",
    ".bin": "pt",
    ".msgpack": "flax",
    ".onnx": "onnx",
}
PICKLES = (".pkl", ".pickle", ".joblib", ".dill")

_ZIPPED = ("npz", "keras", "pt")
_READERS = {"safetensors": safetensors.read, "npz": npz.read, "npy": npy.read, "mxnet": mxnet.read, "pt": pt.read}
_READERS |= {"flax": flax.read}


def kind(path: str | os.PathLike[str]) -> str:
    """The kind of a file: "safetensors", "npz", "npy", "hdf5", "keras", "mxnet", "pt", "flax" or "onnx".

    An HDF5 file that is laid out as Keras does is "keras". Files with other suffixes are known by their first bytes alone.

    Raises: OSError; ValueError for pickles, for a name and first bytes that disagree, where neither says anything, and for what
    is no regular file.
    """
    with regular(path).open("rb") as file:
        first, size = file.read(32), os.fstat(file.fileno()).st_size
    found = _kind(Path(path), first, size)
    if found == "hdf5":
        data = content(path)
        return "keras" if keras.is_keras(*hdf5.parsed(data)) else "hdf5"
    return found


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any], str]:
    """The arrays of a file by name, what else it says, and its kind.

    Arrays are in C order and this machine's byte order, and may be written to. Those of Keras's files are named by layer and
    array, with "/" between; the model's configuration, or nothing, is in the metadata under "config".

    Raises: OSError; MissingExtraError where a library is needed that is not installed; ValueError that names the file and what
        in it is wrong, for pickles, and for ONNX files, which hold graphs.
    """
    data = content(path)
    found = _kind(Path(path), data.data[:32].tobytes(), len(data.data))
    if found == "onnx":
        raise ValueError(f"{path}: an ONNX file holds a graph and not only arrays; it is read by anyrnn.onnx")
    if found in _READERS:
        return *_READERS[found](data), found
    if found == "hdf5":
        arrays, metadata = hdf5.parsed(data)
        if not keras.is_keras(arrays, metadata):
            return arrays, metadata, found
        saved = keras.parsed(data, arrays, metadata)
    else:
        saved = keras.read(data)
    return _flat(data, saved), {"config": saved.config, **saved.metadata}, "keras"


def _flat(file: Content, saved: keras.Saved) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for layer, values in saved.layers.items():
        for name, value in values:
            if f"{layer}/{name}" in arrays:
                raise ValueError(f"{file.name}: the array {limits.shown(f'{layer}/{name}')} is there twice")
            arrays[f"{layer}/{name}"] = value
    return arrays


def _kind(path: Path, first: bytes, size: int) -> str:
    named, found = SUFFIXES.get(path.suffix.lower()), _by_bytes(first, size)
    if path.suffix.lower() in PICKLES or found == ("pickle",):
        raise ValueError(
            f"{path}: a pickle, which could run any program when it is read; it is never loaded. Save the arrays alone"
        )
    if named == "onnx" and found in ((), ("flax",)):  # its first bytes say little
        return named
    if named is None:
        if len(found) == 1:
            return found[0]
        what = f"its first bytes may be {' or '.join(found)}" if found else f"its first bytes are {first[:8]!r}"
        raise ValueError(f"{path}: the suffix {path.suffix!r} is not known, and {what}; known are {', '.join(SUFFIXES)}")
    if named not in found:
        what = " or ".join(found) if found else f"nothing known ({first[:8]!r})"
        raise ValueError(f"{path}: by its name the file is {named}, by its first bytes {what}")
    return named


def _by_bytes(first: bytes, size: int) -> tuple[str, ...]:
    """The kinds of files that begin so."""
    if first[:4] in (archive.MAGIC, archive.EMPTY):
        return _ZIPPED
    if first[:8] == HDF5:
        return ("hdf5",)
    if first[:6] == npy.MAGIC:
        return ("npy",)
    if first[:16] == mxnet.MAGIC.to_bytes(8, "little") + bytes(8):
        return ("mxnet",)
    if first[: len(pt.LEGACY)] == pt.LEGACY:
        return ("pt",)
    if first[8:9] == b"{" and int.from_bytes(first[:8], "little") <= size - 8:
        return ("safetensors",)
    if first[:1] == b"\x80" and first[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return ("pickle",)
    return ("flax",) if first[:1] and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF)) else ()
