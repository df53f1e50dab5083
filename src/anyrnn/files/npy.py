"""NumPy's own format, one array in a file. Arrays of objects, which are pickles, are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn.files import limits
from anyrnn.files.content import DTYPES, Array, Content, Source, array, content

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 10_000  # what NumPy itself takes from files that it does not trust
LONGEST_TEXT = 100_000
NAME = "array"

_FIELD = re.compile(
    r"""\s*(?P<quote>['"])(?P<name>descr|fortran_order|shape)(?P=quote)\s*:\s*"""
    r"""(?:'(?P<text>[^']*)'|"(?P<other>[^"]*)"|(?P<flag>True|False)|\((?P<sizes>[\d\s,]*)\))\s*,?"""
)
_DESCR = re.compile(r"([<>|=]?)([a-zA-Z?])(\d{0,9})")


def read(source: Source) -> tuple[dict[str, Array], dict[str, Any]]:
    """The array of an .npy file, under the name "array"; and nothing, as all formats give arrays and metadata.

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; ValueError that names the file and what in it is wrong, for arrays of objects or of fields too.
    """
    return {NAME: parsed(content(source))}, {}


def parsed(file: Content) -> Array:
    """The array in the bytes of an .npy file, in C order and this machine's byte order. Raises: ValueError, see `read`."""
    where, (descr, fortran, shape), start = file.name, *_header(file)
    matched = _DESCR.fullmatch(descr)
    if not matched or matched[2] == "O":
        kind = "objects, which are a pickle and could run any program" if matched else f"dtype {limits.shown(descr)}"
        raise ValueError(f"{where}: an array of {kind}: not read; read are numbers, bools and texts")
    order, letter, width = matched[1], matched[2], int(matched[3] or 0)
    texts = letter in "SU" and 0 < width <= LONGEST_TEXT
    name = {"b": "int", "i": "int", "u": "uint", "f": "float", "c": "complex"}.get(letter, "") + str(8 * width)
    name = "bool" if descr.lstrip("<>|=") in ("b1", "?") else name
    if not texts and name not in DTYPES:
        raise ValueError(f"{where}: the dtype is {limits.shown(descr)}; read are {', '.join(DTYPES)}, and texts")
    size = limits.byte_count(where, shape, width * (4 if letter == "U" else 1) if texts else DTYPES[name].itemsize)
    data = file.data[start:]
    if len(data) != size:
        raise ValueError(f"{where}: {descr} of shape {shape} has {size} bytes, {len(data)} follow the header")
    in_file = shape[::-1] if fortran else shape
    found = _texts(where, data, letter, width, order) if texts else array(where, data, name, in_file, big_endian=order == ">")
    found = found.reshape(in_file)
    return np.asarray(found.T, order="C") if fortran else found


def _header(file: Content) -> tuple[tuple[str, bool, tuple[int, ...]], int]:
    """Dtype, whether the first axis is the fastest, and shape; and where the data begins."""
    where, raw = file.name, file.data[:12].tobytes()
    if raw[:6] != MAGIC:
        raise ValueError(f"{where}: not an .npy file: it begins with {raw[:6]!r}, expected {MAGIC!r}")
    if raw[6:7] not in (b"\1", b"\2", b"\3"):
        raise ValueError(f"{where}: version {raw[6:7].hex()} of the .npy format; read are 1, 2 and 3")
    start = 10 if raw[6] == 1 else 12
    length = int.from_bytes(raw[8:start], "little")
    if len(raw) < start or length > len(file.data) - start:
        raise ValueError(f"{where}: the header should have {length} bytes, the file has {len(file.data)}: it is truncated")
    if length > LONGEST_HEADER:
        raise ValueError(f"{where}: a header of {length} bytes, at most {LONGEST_HEADER} are read")
    text = file.data[start : start + length].tobytes().decode("utf-8" if raw[6] == 3 else "latin-1", "replace").strip()
    found: dict[str, Any] = {}
    at, end = 1, len(text) - 1
    while at < end and (matched := _FIELD.match(text, at, end)) and matched["name"] not in found:
        sizes = matched["sizes"]
        if sizes is not None:
            value: Any = tuple(_size(where, size) for size in re.split(r"[\s,]+", sizes.strip(", \t\n")) if size)
        elif matched["flag"]:
            value = matched["flag"] == "True"
        else:
            value = matched["text"] if matched["text"] is not None else matched["other"]
        found[matched["name"]] = value
        at = matched.end()
    kinds = {"descr": str, "fortran_order": bool, "shape": tuple}
    whole = text[:1] == "{" and text[-1:] == "}" and not text[at:end].strip()
    if not whole or {name: type(value) for name, value in found.items()} != kinds:
        raise ValueError(
            f"{where}: the header should give descr (the dtype, as a text), fortran_order and shape, it is {limits.shown(text)}"
        )
    return (found["descr"], found["fortran_order"], found["shape"]), start + length


def _size(where: str, digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"{where}: a size of {len(digits)} digits in the shape")
    return int(digits)


def _texts(where: str, data: npt.NDArray[np.uint8], letter: str, width: int, order: str) -> Array:
    if letter == "S":
        return data.view(f"S{width}")
    points = array(where, data, "uint32", (-1,), big_endian=order == ">")
    if ((points > 0x10FFFF) | ((points >= 0xD800) & (points < 0xE000))).any():
        raise ValueError(f"{where}: texts with what is no Unicode character")
    return points.view(f"U{width}")
