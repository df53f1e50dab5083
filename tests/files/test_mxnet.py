"""MXNet's .params, against bytes laid out by hand as its sources describe them: MXNet itself has no wheels for today's Python."""

import struct

import numpy as np
import pytest

from anyrnn.files import mxnet
from tests.files.common import every_dtype, refused, same

V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
X = np.arange(6, dtype=np.float32).reshape(2, 3)
CPU, GPU = struct.pack("<ii", 1, 0), struct.pack("<ii", 2, 3)
HELD = [name for name in every_dtype() if not name.startswith("complex") and name.endswith("matrix")]


def listed(arrays, names, *, magic=0x112, reserved=0, count=None, name_count=None):
    head = struct.pack("<QQQ", magic, reserved, len(arrays) if count is None else count)
    tail = struct.pack("<Q", len(names) if name_count is None else name_count)
    return head + b"".join(arrays) + tail + b"".join(struct.pack("<Q", len(name)) + name for name in names)


def v2(array=X, *, magic=V2, storage=0, shape=None, code=0, context=CPU, data=None):
    shape = array.shape if shape is None else shape
    head = struct.pack(f"<Iii{len(shape)}q", magic, storage, len(shape), *shape)
    return head + context + struct.pack("<i", code) + (array.tobytes() if data is None else data)


def v1(array=X):
    return struct.pack(f"<Ii{array.ndim}q", V1, array.ndim, *array.shape) + CPU + struct.pack("<i", 0) + array.tobytes()


def v0(array=X):
    return struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape) + CPU + struct.pack("<i", 0) + array.tobytes()


def test_all_versions_of_the_layout_are_read(tmp_path):
    raw = listed([v0(), v1(), v2(), v2(context=GPU), v2(magic=V3)], [b"arg:0", b"arg:1", b"aux:2", b"arg:3", "größe".encode()])
    found, metadata = mxnet.read(raw)
    same(found, dict.fromkeys(["arg:0", "arg:1", "aux:2", "arg:3", "größe"], X))
    assert metadata == {}
    (tmp_path / "a.params").write_bytes(raw)
    same(mxnet.read(tmp_path / "a.params")[0], found)


def test_every_dtype_is_read():
    order = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "int16", "uint16", "uint32", "uint64")
    for code, name in enumerate(order):
        array = every_dtype()[f"{name} matrix"]
        same(mxnet.read(listed([v2(array, code=code)], [b"a"]))[0], {"a": array})
    half = v2(X[:1, :2], code=12, data=struct.pack("<HH", 0x3FC0, 0xC000))
    same(mxnet.read(listed([half], [b"a"]))[0], {"a": np.array([[1.5, -2.0]], np.float32)})


def test_lists_without_names_are_numbered():
    same(mxnet.read(listed([v2(), v2(X * 2)], []))[0], {"0": X, "1": X * 2})
    assert mxnet.read(listed([], []))[0] == {}


def test_shapes_that_are_unknown_have_no_array():
    unknown = [
        struct.pack("<Iii", V2, 0, 0),
        struct.pack("<Iii", V3, 0, -1),
        struct.pack("<Iiiqq", V3, 0, 2, -1, 3),
        struct.pack("<I", 0),
    ]
    same(mxnet.read(listed([*unknown, v2()], [b"a", b"b", b"c", b"d", b"e"]))[0], {"e": X})
    same(mxnet.read(listed([v2(np.ones((), "f"), magic=V3)], [b"a"]))[0], {"a": np.ones((), "f")})


def test_what_is_written_is_laid_out_as_described(tmp_path):
    mxnet.write(tmp_path / "a.params", {"arg:x": X, "y": X.T.astype(">f8")})
    expected = listed([v2(), v2(np.ascontiguousarray(X.T, "<f8"), code=1)], [b"arg:x", b"y"])
    assert (tmp_path / "a.params").read_bytes() == expected


def test_what_is_written_is_read(tmp_path):
    arrays = {name: every_dtype()[name] for name in HELD}
    mxnet.write(tmp_path / "a.params", arrays)
    same(mxnet.read(tmp_path / "a.params")[0], arrays)


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.ones(3, complex), TypeError, "array 'a' has dtype complex128, which MXNet does not hold; it holds float32,"),
        (np.ones(()), ValueError, r"array 'a' has shape \(\), which MXNet's files cannot hold"),
        (np.ones((0, 3)), ValueError, r"array 'a' has shape \(0, 3\), which MXNet's files cannot hold"),
    ],
)
def test_what_mxnet_cannot_hold_is_not_written(tmp_path, array, error, message):
    with pytest.raises(error, match=message):
        mxnet.write(tmp_path / "a.params", {"a": array})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the header at byte 0 should have 16 bytes, 0 follow: truncated"),
        (listed([], [], magic=0x113), "not an MXNet .params file: it begins with 0x113 and 0, expected 0x112 and 0"),
        (listed([], [], reserved=1), "it begins with 0x112 and 1"),
        (listed([], [], count=2**60), "1152921504606846976 arrays promised before byte 24, at most 1000000 are read"),
        (listed([], [], count=999_999), "array 2 at byte 32 should have 4 bytes, 0 follow: truncated"),
        (listed([v2()], [b"a"], name_count=2**40), "1099511627776 names promised before byte"),
        (listed([v2()], [b"a"])[:-1], "name 0 at byte 104 should have 1 bytes, 0 follow: truncated"),
        (listed([v2()], [b"a"]) + b"x", "1 bytes follow the last name, at byte 105"),
        (listed([v2()], [b"a", b"b"]), "1 arrays and 2 names"),
        (listed([v2(), v2()], [b"a", b"a"]), "the name 'a' is there twice"),
        (listed([v2()], [b"\xff"]), "name 0 is not UTF-8 at byte 104"),
        (listed([v2()], [b"a" * 5000]), "a name of 5000 characters, at most 4096"),
        (listed([v2(storage=1)], [b"a"]), "array 0 at byte 24: its storage is row sparse; only dense arrays are read"),
        (listed([v2(storage=2)], [b"a"]), "its storage is compressed sparse rows"),
        (listed([v2(storage=7)], [b"a"]), "its storage is unknown (7)"),
        (listed([v2(code=13)], [b"a"]), "array 0 at byte 24: dtype number 13; known are 0 to 12"),
        (listed([v2(shape=(-2, 3))], [b"a"]), "a size in the shape should be a number from 0 to 2**63 - 1, got -2"),
        (listed([v2(shape=(2**62, 4))], [b"a"]), "is more than an address can hold"),
        (listed([v2(shape=(2**30, 2**30))], [b"a"]), "the data of array 0 at byte 64 should have 4611686018427387904 bytes"),
        (listed([v2(shape=(1,) * 33)], [b"a"]), "array 0 at byte 24: 33 dimensions, at most 32 are read"),
        (listed([struct.pack("<I", 0xF993FACB)], [b"a"]), "4187224779 dimensions, at most 32 are read"),
        (listed([v2(code=7, data=b"\2" * 6)], [b"a"]), "a bool should be 0 or 1, got 2"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, raw, message):
    refused(mxnet.read, raw, message, tmp_path / "hostile.params")
