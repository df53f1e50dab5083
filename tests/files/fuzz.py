"""Hostile files for every reader: `python -m tests.files.fuzz --inputs 1000000 --seed 0`.

An input is a real file that was damaged, or a structure that no program would write. It must end in arrays or in a ValueError
that begins with the name of the file; without another exception, a warning, more than a second of work, or more memory than its
size justifies. Another reader is one more row of `targets()`. A failure names the seed and the number of the input, which give it
again: `--seed S --first N --inputs 1`.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import math
import pickle
import random
import re
import resource
import struct
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import safetensors.numpy
import torch

from anyrnn import onnx
from anyrnn.files import flax, hdf5, keras, limits, mxnet, npy, npz, pt
from anyrnn.files import safetensors as ours
from anyrnn.files.content import size_of
from tests.runtime import hostile

GOLDEN = Path(__file__).parent / "golden"
MODELS = Path(__file__).parent.parent / "onnx" / "golden"
NAME = "the bytes"
SLOWEST = 1.0  # seconds of this thread's own time
WATCHDOG = 60  # seconds for `BATCH` inputs
BATCH = 200
MEASURED = 10  # of a batch, one part in so many is read with all allocations traced, which takes several times longer

Maker = Callable[[random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """A reader of bytes, real files for it, and makers of whole hostile files; `weight` is its share of the inputs."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], Any]
    makers: tuple[Maker, ...] = ()
    weight: int = 10


class Failed(AssertionError):
    """An input that a reader did not handle."""


# Damage


EXTREMES = (0, 1, 2, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(draw: random.Random, data: bytes, other: bytes) -> bytes:
    """A file with something wrong in it; `other` is another one, of which pieces may get in."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if not found:
            return bytes(draw.randbytes(draw.randrange(20)))
        draw.choice(DAMAGES)(draw, found, other)
    return bytes(found)


def _flip(draw: random.Random, found: bytearray, other: bytes) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        found[draw.randrange(len(found))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))


def _bit(draw: random.Random, found: bytearray, other: bytes) -> None:
    found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)


def _truncate(draw: random.Random, found: bytearray, other: bytes) -> None:
    del found[draw.randrange(len(found)) :]


def _append(draw: random.Random, found: bytearray, other: bytes) -> None:
    found += other[: draw.randrange(1, 100)]


def _number(draw: random.Random, found: bytearray, other: bytes) -> None:
    """A number, such as a length, becomes an extreme one, or a little more or less."""
    size = draw.choice((1, 2, 4, 8))
    at = draw.randrange(len(found)) // draw.choice((1, size)) * size % len(found)
    order = draw.choice(("little", "little", "big"))
    old = int.from_bytes(found[at : at + size], order)
    new = draw.choice((*EXTREMES, len(found), len(found) - at, old + 1, old - 1, old * 2, -1))
    found[at : at + size] = (new % 256**size).to_bytes(size, order)


def _splice(draw: random.Random, found: bytearray, other: bytes) -> None:
    source = draw.choice((bytes(found), other)) or b"?"
    start, at, size = draw.randrange(len(source)), draw.randrange(len(found)), draw.randrange(1, 80)
    found[at : at + draw.choice((0, size))] = source[start : start + size]


def _remove(draw: random.Random, found: bytearray, other: bytes) -> None:
    at = draw.randrange(len(found))
    del found[at : at + draw.choice((1, 2, 4, 8, 60))]


def _digits(draw: random.Random, found: bytearray, other: bytes) -> None:
    """A number in text becomes another one."""
    places = list(re.finditer(rb"\d+", bytes(found[:4000])))
    if places:
        place = draw.choice(places)
        new = draw.choice(
            (*map(str, EXTREMES), "-1", "-0", "1.5", "1e9", "1e999", "9" * 30, "9" * 5000, "true", "null", '"1"', "[]", "")
        )
        found[place.start() : place.end()] = new.encode()


DAMAGES = (_flip, _flip, _bit, _truncate, _append, _number, _number, _number, _splice, _remove, _digits)


# Structures


def any_json(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(9 if depth < 4 else 6)
    if kind < 6:
        return draw.choice((None, True, -1, 0, 3, 1.5, 2**63, 10**25, "F32", "", "\ud800", "__metadata__", "a" * 10))
    if kind == 6:
        return [any_json(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(("dtype", "shape", "data_offsets", "a", "__metadata__", "")): any_json(draw, depth + 1) for _ in range(3)}


def safetensors_header(draw: random.Random) -> bytes:
    header: dict[str, Any] = {}
    end = 0
    for k in range(draw.randrange(5)):
        shape = [draw.choice((0, 1, 2, 3, 2, 3)) for _ in range(draw.choice((0, 1, 2, 2)))]
        if draw.random() < 0.1:
            shape.append(draw.choice((2**32, 2**62, -1)))
        dtype = draw.choice((*ours.DTYPES, "F8"))
        size = size_of(ours.DTYPES.get(dtype, "int8")) * math.prod(shape)
        if size < 0 or size > 1000 or draw.random() < 0.1:
            size = draw.choice((0, 4, 8, 24, 48))
        begin = end if draw.random() < 0.9 else draw.choice((0, end + 1))
        header[f"a{k}"] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}
        end = begin + size
        if draw.random() < 0.2:
            header[f"a{k}"][draw.choice(("dtype", "shape", "data_offsets", "x"))] = any_json(draw)
    if draw.random() < 0.3:
        header["__metadata__"] = any_json(draw)
    text = json.dumps(header).encode()
    if draw.random() < 0.2:
        text = draw.choice((json.dumps(any_json(draw)), "[" * draw.choice((90, 110, 100_000)), '{"a":' * 2000)).encode()
    length = len(text) if draw.random() < 0.9 else draw.choice((len(text) + 1, *EXTREMES))
    return struct.pack("<Q", length) + text + draw.randbytes(draw.choice((end, end, end + 1, 0)))


def npy_file(draw: random.Random) -> bytes:
    letter, width = draw.choice("biuffffcSUOVMm?x"), draw.choice(("", "1", "2", "4", "4", "8", "8", "16", "999999999", "0"))
    shape = ", ".join(
        str(draw.choice((0, 1, 2, 3, 2, 3, 2, draw.choice((10**9, 2**63, 10**30, -1)))))
        for _ in range(draw.choice((0, 1, 2, 2, 40)))
    )
    odd = draw.random() < 0.3
    descr = draw.choice(("[]", "[(1, 2)]", "'<f4'x", "__import__")) if odd else repr(draw.choice("<>|=") + letter + width)
    fields = [
        f"'descr': {descr}",
        f"'fortran_order': {draw.choice(('1', 'None', 'true')) if odd else draw.choice(('True', 'False'))}",
        f"'shape': ({shape}{draw.choice((',', ''))})",
    ]
    draw.shuffle(fields)
    text = ("{" + ", ".join(fields[: 2 if odd else 3]) + draw.choice((", }", "}", "}", "" if odd else "}"))).encode()
    version = draw.choice((1, 1, 1, 2, 3, 4 if odd else 1))
    form = "<H" if version == 1 else "<I"
    sizes = [int(size) for size in shape.split(", ") if size]
    count = math.prod(sizes) * int(width or 1) * (4 if letter == "U" else 1)
    data = bytes(count) if 0 <= count < 10_000 and draw.random() < 0.8 else draw.randbytes(draw.choice((0, 4, 8, 16, 64)))
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack(form, len(text)) + text + data


def zipped(*inner: Callable[[random.Random], tuple[str, bytes]]) -> Maker:
    """A maker of sound zip files of damaged members."""

    def make(draw: random.Random) -> bytes:
        packed = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(packed, "w", draw.choice((0, 8)), strict_timestamps=False) as archive:
            warnings.simplefilter("ignore")  # of names that are there twice
            for member in inner:
                name, data = member(draw)
                if draw.random() < 0.05:
                    name = draw.choice(("../" + name, "/" + name, name + "x", "x/" * 3000 + name, "n\x00" + name))
                timeless = zipfile.ZipInfo(name)  # so that a number always gives the same bytes
                if draw.random() < 0.95:
                    archive.writestr(timeless, data, archive.compression)
                if draw.random() < 0.02:
                    archive.writestr(timeless, data, archive.compression)
        return packed.getvalue()

    return make


def member(
    name: str, seeds: tuple[bytes, ...], *makers: Maker, sound: float = 0.5
) -> Callable[[random.Random], tuple[str, bytes]]:
    def make(draw: random.Random) -> tuple[str, bytes]:
        data = draw.choice(seeds)
        if draw.random() > sound:
            data = draw.choice(makers)(draw) if makers and draw.random() < 0.5 else damaged(draw, data, draw.choice(seeds))
        return name, data

    return make


def bomb(draw: random.Random) -> bytes:
    return bytes(draw.choice((10**3, 10**5, 10**6)))


def msgpack(draw: random.Random, depth: int = 0) -> bytes:
    kind = draw.randrange(12)
    if kind < 3 and depth < 120:
        items = draw.randrange(3) if draw.random() < 0.9 else 15
        return bytes((0x80 | items,)) + b"".join(b"\xa1" + draw.randbytes(1) + msgpack(draw, depth + 1) for _ in range(items % 3))
    if kind < 5:
        items = draw.randrange(4)
        return bytes((0x90 | items,)) + b"".join(msgpack(draw, depth + 1) for _ in range(items))
    if kind < 9:
        sizes = [draw.choice((1, 2, 3, 0, 127)) for _ in range(draw.randrange(3))]
        name = draw.choice(("float32", "bfloat16", "int8", "bool", "object", "float128")).encode()
        data = draw.randbytes(draw.choice((0, 1, 4, 8, 24)))
        body = b"\x93" + bytes((0x90 | len(sizes), *sizes, 0xA0 | len(name))) + name + bytes((0xC4, len(data))) + data
        return bytes((0xC7, len(body) % 256, draw.choice((1, 1, 1, 3, 2)))) + body
    return draw.choice(
        (b"\xc0", b"\x01", b"\xcb" + bytes(8), b"\xdf\xff\xff\xff\xff", b"\xc9\x7f\xff\xff\xff\x01", b"\xc1", b"\x81" * 200)
    )


def deep_msgpack(draw: random.Random) -> bytes:
    return draw.choice((b"\x91", b"\x81\xa1a", b"\x81\xa0")) * draw.choice((50, 99, 101, 102, 5000)) + b"\xc0"


def mxnet_file(draw: random.Random) -> bytes:
    count, arrays = draw.randrange(4), b""
    for _ in range(count):
        magic = draw.choice((mxnet.V1, mxnet.V2, mxnet.V2, mxnet.V3, draw.randrange(5)))
        axes = draw.choice((0, 1, 2, 2, 33, -1))
        sizes = [draw.choice((0, 1, 2, 3, -1, 2**62)) for _ in range(max(0, min(axes, 40)))]
        code = draw.choice((*range(13), 99, -1))
        arrays += struct.pack("<I", magic)
        arrays += struct.pack("<i", draw.choice((0, 0, 0, 1, 2, 9))) if magic in (mxnet.V2, mxnet.V3) else b""
        if magic > 100:
            arrays += struct.pack(f"<i{len(sizes)}q", axes, *sizes)
        else:
            arrays += struct.pack(f"<{magic}I", *(abs(size) % 2**32 for size in [*sizes, 1, 1, 1, 1, 1][:magic]))
        arrays += struct.pack("<iii", 1, 0, code) + draw.randbytes(draw.choice((0, 1, 4, 8, 24)))
    names = [draw.choice((b"a", b"b", b"c", b"\xff", b"a" * 5000)) for _ in range(draw.choice((count, count, 0)))]
    tail = b"".join(struct.pack("<Q", draw.choice((len(name), len(name), 2**63))) + name for name in names)
    return struct.pack("<QQQ", 0x112, 0, draw.choice((count, count, 2**40))) + arrays + struct.pack("<Q", len(names)) + tail


OPCODES = [bytes((op,)) for op in range(256) if bytes((op,)) in b"KMJGN\x88\x89XU\x8aqrhj\x85\x86\x87(t)]}cRQaesub\x81\x8f02"]
GLOBALS = (
    b"collections\nOrderedDict\n",
    b"torch._utils\n_rebuild_tensor_v2\n",
    b"torch\nFloatStorage\n",
    b"builtins\nbytearray\n",
)


def pickled(draw: random.Random) -> bytes:
    """Operations of a pickle in any order; some multiply what is there."""
    if draw.random() < 0.2:
        again = draw.choice((b"q\x00h\x00h\x00\x86", b"q\x00]q\x00h\x00ah\x00a", b"q\x00h\x00\x86q\x00h\x00\x86"))
        return b"\x80\x02" + draw.choice((b")", b"]", b"}", b"N")) + again * 60 + draw.choice((b".", b"}h\x00Ns.", b"Q.", b")R."))
    found = b"\x80\x02"
    for _ in range(draw.randrange(1, 30)):
        op = draw.choice(OPCODES)
        found += op + (draw.choice(GLOBALS) if op == b"c" else draw.randbytes(draw.choice((0, 0, 1, 4))))
    return found + b"."


def evil_pickles(draw: random.Random) -> bytes:
    class Evil:
        def __reduce__(self) -> Any:
            return draw.choice(((print, ("evil",)), (bytearray, (10**12,)), (eval, ("1",)), (torch.Tensor, (10**12,))))

    return pickle.dumps(draw.choice((Evil(), {"a": Evil()}, [Evil()])), draw.choice((0, 2, 2, 4, 5)))


# The readers


def _h5(fill: Callable[[h5py.File], None]) -> bytes:
    packed = io.BytesIO()
    with h5py.File(packed, "w") as file:
        fill(file)
    return packed.getvalue()


def _plain_h5(file: h5py.File) -> None:
    file.attrs["layer_names"] = ["a", "bcd"]
    file.attrs["list"] = np.arange(3)
    file["g/x"] = np.arange(6.0, dtype=">f4").reshape(2, 3)
    file["g/y"] = np.ones(3, bool)


def _chunked_h5(file: h5py.File) -> None:
    file.attrs["name"] = np.bytes_("x")
    file.create_dataset("z", data=np.arange(70.0).reshape(7, 10), chunks=(3, 4), compression="gzip", shuffle=True)
    file.create_dataset("w", data=np.arange(5, dtype="i2"), chunks=(2,))


def targets() -> list[Target]:
    small = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.ones(3), "flag": np.array([True, False])}
    plain = safetensors.numpy.save(small, {"made": "here"})
    arrays = [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3), ">f4")), np.array(["ab", "c"]), np.array(3)]
    npys = tuple(_saved(np.save, value) for value in arrays)
    npzs = (_saved(np.savez, **small), _saved(np.savez_compressed, **small))
    state = {"model": torch.nn.GRU(1, 2).state_dict(), "step": 3, "half": torch.ones(2).bfloat16(), "betas": (0.9, 0.99)}
    zips, legacy = (
        _saved(lambda file, new=new: torch.save(state, file, _use_new_zipfile_serialization=new)) for new in (True, False)
    )
    inner = zipfile.ZipFile(io.BytesIO(zips))
    pkl = inner.read("archive/data.pkl")
    rest = [member(name, (inner.read(name),), bomb, sound=0.97) for name in inner.namelist() if not name.endswith(".pkl")]
    h5s = (_h5(_plain_h5), _h5(_chunked_h5))
    kerases = tuple((GOLDEN / name).read_bytes() for name in ("tiny.keras", "tiny.h5", "tiny.weights.h5"))
    parts = zipfile.ZipFile(io.BytesIO(kerases[0]))
    whole = zipped(*(member(name, (parts.read(name),)) for name in parts.namelist()))
    return [
        Target("safetensors", (plain,), ours.read, (safetensors_header,), 25),
        Target("npy", npys, npy.read, (npy_file,), 20),
        Target("npz", npzs, npz.read, (zipped(*(member(f"{k}.npy", npys, npy_file, bomb) for k in range(3))),), 8),
        Target("hdf5", h5s, hdf5.read, (), 20),
        Target("keras", kerases, keras.read, (whole,), 3),
        Target("mxnet", (_mxnet(small),), mxnet.read, (mxnet_file,), 20),
        Target("flax", ((GOLDEN / "tiny.msgpack").read_bytes(),), flax.read, (msgpack, deep_msgpack), 10),
        Target(
            "pt", (zips, legacy), pt.read, (zipped(member("archive/data.pkl", (pkl,), pickled, evil_pickles), *rest), pickled), 3
        ),
        Target("network", hostile.networks(), hostile.read_and_run, (hostile.changed,), 2),
        Target("onnx", tuple(path.read_bytes() for path in sorted(MODELS.glob("*.onnx"))), onnx.read, (), 4),
    ]


def _saved(save: Callable[..., Any], *values: Any, **named: Any) -> bytes:
    packed = io.BytesIO()
    with mock.patch("time.localtime", return_value=time.struct_time((1980, 1, 1, 0, 0, 0, 1, 1, 0))):  # which zip files note
        save(packed, *values, **named)
    return packed.getvalue()


def _mxnet(arrays: dict[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.params"
        mxnet.write(path, arrays)
        return path.read_bytes()


# Running


def make(all_targets: list[Target], seed: int, number: int) -> tuple[Target, bytes]:
    """The input of a number, and the reader that it is for."""
    draw = random.Random(f"{seed} {number}")
    target = draw.choices(all_targets, [target.weight for target in all_targets])[0]
    if target.makers and draw.random() < 0.4:
        data = draw.choice(target.makers)(draw)
        return target, damaged(draw, data, target.seeds[0]) if data and draw.random() < 0.2 else data
    strangers = draw.choice(all_targets).seeds if draw.random() < 0.1 else target.seeds
    data = draw.choice(target.seeds) if draw.random() < 0.98 else draw.choice(strangers)
    return target, damaged(draw, data, draw.choice(strangers))


def allowed(size: int) -> int:
    """Bytes that reading a file of a size may take at the same time: what it unpacks to, twice."""
    return 2 * limits.unpacked(size)


def judge(target: Target, data: bytes) -> str:
    """What became of an input: "read" or "refused". Raises: Failed."""
    if tracing := tracemalloc.is_tracing():
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
    start = time.thread_time()
    try:
        target.read(data)
        outcome = "read"
    except ValueError as error:
        if not str(error).startswith(f"{NAME}: ") or len(str(error)) > 5000:
            raise Failed(f"the message does not begin with the file's name, or is endless: {str(error)[:300]!r}") from error
        outcome = "refused"
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {str(error)[:300]}") from error
    took = time.thread_time() - start
    if took > SLOWEST:
        raise Failed(f"took {took:.1f} s")
    if tracing and (peak := tracemalloc.get_traced_memory()[1] - before) > allowed(len(data)):
        raise Failed(f"{peak} bytes allocated for a file of {len(data)}")
    return outcome


def run(all_targets: list[Target], inputs: int, seed: int, first: int = 0) -> Counter[tuple[str, str]]:
    """Read many inputs, and count what became of them. Raises: Failed, that says which input it was."""
    outcomes: Counter[tuple[str, str]] = Counter()
    for target in all_targets:  # what is imported and kept once is nobody's fault
        for seed_file in target.seeds:
            target.read(seed_file)
    before = _resident()
    largest = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in range(first, first + inputs):
                _watch(number - first)
                target, data = make(all_targets, seed, number)
                largest = max(largest, len(data))
                try:
                    outcomes[target.name, judge(target, data)] += 1
                except Failed as failure:
                    raise Failed(f"{target.name}, --seed {seed} --first {number} --inputs 1: {failure}") from failure
    finally:
        tracemalloc.stop()
        faulthandler.cancel_dump_traceback_later()
    grown = _resident() - before
    if grown > allowed(largest):
        raise Failed(f"{grown} bytes more were resident at the worst moment, and the largest file had {largest}")
    return outcomes


def _watch(count: int) -> None:
    """At the start of a batch: look out for hangs, and trace allocations for a while."""
    if count % BATCH == 0:
        faulthandler.dump_traceback_later(WATCHDOG, exit=True)
        tracemalloc.start()
    elif count % BATCH == BATCH // MEASURED:
        tracemalloc.stop()


def _resident() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--inputs", type=int, default=1_000_000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--only", help="the name of one reader")
    given = arguments.parse_args()
    chosen = [target for target in targets() if given.only in (None, target.name)]
    start = time.perf_counter()
    outcomes = run(chosen, given.inputs, given.seed, given.first)
    for (name, outcome), count in sorted(outcomes.items()):
        print(f"{name:12} {outcome:8} {count:8}")
    print(f"{given.inputs} inputs in {time.perf_counter() - start:.0f} s, {_resident() >> 20} MiB at most")


if __name__ == "__main__":
    main()
