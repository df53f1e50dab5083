"""Torch's checkpoints, read by torch's own safe loader; nothing in them is ever run."""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any

import numpy as np

from anyrnn.errors import MissingExtraError
from anyrnn.files import archive, limits, opcodes
from anyrnn.files.content import Array, Collected, Content, Source, content

LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""What files from before torch 1.6 begin with, as do those that torch still writes without zip."""

PICKLE = "data.pkl"
ROOT = "array"


def read(source: Source) -> tuple[dict[str, Array], dict[str, Any]]:
    """The tensors of a .pt or .pth file by their names, those of nested dictionaries joined by dots.

    Lists count from 0. bfloat16 becomes float32, which holds the same numbers. What is no tensor is only named, under "left
    out" in the metadata. Read by `torch.load(weights_only=True)`, after a look at what the pickle in it would do.

    Args:
        source: a path, or the bytes of a file.

    Raises: OSError; MissingExtraError without torch; ValueError that names the file: for pickles that need more than tensors,
        plain containers and settings, for TorchScript, and for all that torch refuses.
    """
    file = content(source)
    safe = _from_zip(file) if file.data[:4].tobytes() == archive.MAGIC else _legacy(file)
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError('.pt files are read with torch: pip install "anyrnn[torch]"') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loaded = torch.load(io.BytesIO(safe), map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001 (torch raises of every kind)
            lines = str(error).splitlines() or [""]
            raise ValueError(f"{file.name}: torch cannot load it: {type(error).__name__}: {lines[0][:300]}") from None
    tensors: dict[str, Any] = {}
    found = Collected(file.name, len(file.data))
    _walk(file.name, found, tensors, loaded, "", 0)
    promised = 0
    for name, tensor in tensors.items():
        where = f"{file.name}: tensor {limits.shown(name)}"
        promised += limits.byte_count(where, list(tensor.shape), max(4, tensor.element_size()))
        limits.check_unpacked(file.name, promised, len(file.data))
    for name, tensor in tensors.items():
        plain = tensor.detach().resolve_conj().resolve_neg()
        found.add(name, np.array((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy(), order="C"))
    return found.arrays, found.metadata


def _from_zip(file: Content) -> bytes:
    """A zip file of our own making, with what torch is to see of this one."""
    found, _ = archive.members(file, lambda name: "/" in name)
    pickles = [name for name in found if name.endswith("/" + PICKLE)]
    if len(pickles) != 1:
        raise ValueError(f"{file.name}: a zip file without one {PICKLE}, which torch's files have; there are {len(pickles)}")
    folder = pickles[0].removesuffix(PICKLE)
    if folder + "constants.pkl" in found or "/" in folder[:-1]:
        raise ValueError(f"{file.name}: a TorchScript program, not only weights; save its state_dict() instead")
    opcodes.check(found[pickles[0]].name, found[pickles[0]].data.tobytes())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as clean:
        for name, member in found.items():
            inner = name.removeprefix(folder)
            if inner in (PICKLE, "version", "byteorder") or inner.startswith("data/"):
                clean.writestr(f"archive/{inner}", member.data.data)
    return packed.getvalue()


def _legacy(file: Content) -> bytes:
    if file.data[: len(LEGACY)].tobytes() != LEGACY:
        raise ValueError(f"{file.name}: not a torch file: it begins with {file.data[:8].tobytes()!r}")
    data, at = file.data.tobytes(), 0
    for _ in range(5):  # a number, the version, the machine, the tensors, the keys of their storages
        at = opcodes.check(file.name, data, at)
    return data


def _walk(where: str, found: Collected, tensors: dict[str, Any], value: Any, name: str, depth: int) -> None:
    import torch

    if depth > limits.DEPTH:
        raise ValueError(f"{where}: nested more than {limits.DEPTH} levels deep")
    if isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            label = key.decode("latin-1") if isinstance(key, bytes) else str(key) if isinstance(key, (str, int)) else ""
            if not label:
                found.leave_out(f"{name}.{limits.shown(key)}" if name else limits.shown(key))
            else:
                _walk(where, found, tensors, item, f"{name}.{label}" if name else label, depth + 1)
    elif isinstance(value, torch.Tensor):
        found.check(name)
        if (name or ROOT) in tensors:
            raise ValueError(f"{where}: the name {limits.shown(name)} is there twice")
        tensors[name or ROOT] = value
    else:
        found.leave_out(name or ROOT)
