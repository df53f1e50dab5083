"""The members of a zip file, which are read into memory and never written anywhere."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable

import numpy as np

from anyrnn.files import limits
from anyrnn.files.content import Content

MAGIC = b"PK\x03\x04"
EMPTY = b"PK\x05\x06"
CHUNK = 1 << 20
DEFLATE_AT_MOST = 1040
"""Deflate packs 1032 bytes into one at best."""

_BROKEN = (zipfile.BadZipFile, EOFError, zlib.error, struct.error, NotImplementedError, RuntimeError, OverflowError, ValueError)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


def members(file: Content, wanted: Callable[[str], bool]) -> tuple[dict[str, Content], list[str]]:
    """What the members of a zip file hold that are wanted by their names, and the names of the others.

    Names are names only: `../x` or `/x` is no path here. Members are stored or deflated, and their check sums are compared.

    Raises: ValueError that names the file and the member: for what is no zip file, encrypted or otherwise compressed members,
        a name that is there twice, and for more than `limits.unpacked` of the file's size, before anything is unpacked.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(file.data.data))
    except _BROKEN as error:
        raise ValueError(f"{file.name}: not a readable zip file: {str(error)[:300]}") from None
    found: dict[str, Content] = {}
    others: list[str] = []
    with archive:
        chosen: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            where = f"{file.name}: member {limits.shown(info.filename)}"
            limits.check_name(where, info.filename)
            if info.filename in chosen:
                raise ValueError(f"{where} is there twice")
            if wanted(info.filename):
                _check(where, info)
                chosen[info.filename] = info
            else:
                others.append(info.filename)
        # Members may share bytes of the file, so that each alone looks harmless.
        limits.check_unpacked(file.name, sum(info.file_size for info in chosen.values()), len(file.data))
        for name, info in chosen.items():
            found[name] = _read(f"{file.name}: member {limits.shown(name)}", archive, info)
    return found, others


def _check(where: str, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & _ENCRYPTED:
        raise ValueError(f"{where} is encrypted")
    if info.compress_type not in _METHODS:
        name = zipfile.compressor_names.get(info.compress_type, "an unknown method")  # type: ignore[attr-defined]
        raise ValueError(f"{where} is compressed by {name}; read are stored and deflated members")
    most = info.compress_size * (DEFLATE_AT_MOST if info.compress_type == zipfile.ZIP_DEFLATED else 1)
    if info.file_size > most:
        raise ValueError(f"{where} should have {info.file_size} bytes, which {info.compress_size} in the file cannot hold")


def _read(where: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Content:
    data = np.empty(info.file_size, np.uint8)
    done = 0
    try:
        with archive.open(info) as stream:
            while chunk := stream.read(CHUNK):  # reading to the end compares the check sum
                data[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
                done += len(chunk)
    except _BROKEN as error:
        raise ValueError(f"{where} cannot be read: {str(error)[:300]}") from None
    if done < len(data):
        raise ValueError(f"{where} should have {len(data)} bytes, it has {done}")
    return Content(where, data)
