"""The readers of .npy and .npz, against NumPy's writers."""

import io
import zipfile

import numpy as np
import pytest

from anyrnn.files import limits, npy, npz
from tests.files.common import every_dtype, peak, refused, same


def saved(save, *values, **named):
    packed = io.BytesIO()
    save(packed, *values, **named)
    return packed.getvalue()


def zipped(members, method=zipfile.ZIP_STORED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


def header(text, version=1):
    text = text.encode()
    return b"\x93NUMPY" + bytes((version, 0)) + len(text).to_bytes(2 if version == 1 else 4, "little") + text


ONE = saved(np.save, np.ones(1, np.float32))
GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
def test_every_dtype_order_and_byte_order_is_read(order, endian):
    for name, array in every_dtype().items():
        stored = np.asarray(array, array.dtype.newbyteorder(endian), order=order)
        same(npy.read(saved(np.save, stored))[0], {"array": array})
        assert npy.read(saved(np.save, stored))[0]["array"].shape == array.shape, name


def test_texts_are_read():
    for array in (np.array([["a", "größe"], ["", "𝄞"]]), np.array([b"ab", b"c"]), np.array(["x"], ">U3"), np.array("one")):
        same(npy.read(saved(np.save, array))[0], {"array": array})


def test_all_versions_of_the_format_are_read(tmp_path):
    for version in ((1, 0), (2, 0), (3, 0)):
        packed = io.BytesIO()
        np.lib.format.write_array(packed, np.arange(3.0), version=version)
        same(npy.read(packed.getvalue())[0], {"array": np.arange(3.0)})
    np.save(tmp_path / "a.npy", np.arange(3.0))
    same(npy.read(tmp_path / "a.npy")[0], {"array": np.arange(3.0)})


@pytest.mark.parametrize(
    "text",
    [
        '{"shape":(1,),"descr":"<f4","fortran_order":False}',
        "{'fortran_order': False,\n 'descr': '<f4',\n 'shape': (1 , )}",
        GOOD + "   \n",
    ],
)
def test_other_writers_headers_are_read(text):
    same(npy.read(header(text) + b"\0\0\x80\x3f")[0], {"array": np.ones(1, np.float32)})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an .npy file: it begins with b''"),
        (b"PK\3\4abcdefghijklm", "not an .npy file: it begins with b'PK"),
        (b"\x93NUMPY\4\0" + bytes(8), "version 04 of the .npy format; read are 1, 2 and 3"),
        (b"\x93NUMPY\1\0", "it is truncated"),
        (ONE[:50], "the header should have 118 bytes, the file has 50: it is truncated"),
        (ONE[:-1], "<f4 of shape (1,) has 4 bytes, 3 follow the header"),
        (ONE + b"\0", "<f4 of shape (1,) has 4 bytes, 5 follow the header"),
        (header(GOOD + " " * 20_000, 2), "a header of 20057 bytes, at most 10000"),
        (saved(np.save, np.array([{}]), allow_pickle=True), "an array of objects, which are a pickle and could run any program"),
        (
            saved(np.save, np.zeros(2, [("a", "<f4")])),
            "the header should give descr (the dtype, as a text), fortran_order and shape",
        ),
        (saved(np.save, np.zeros(2, np.longdouble)), "the dtype is '<f16'; read are float64,"),
        (saved(np.save, np.zeros(2, "M8[s]")), "an array of dtype '<M8[s]': not read"),
        (header(GOOD.replace("<f4", "<U999999999")), "the dtype is '<U999999999'"),
        (header(GOOD.replace("(1,)", "(-1,)")), "the header should give descr"),
        (header(GOOD.replace("(1,)", "(1.0,)")), "the header should give descr"),
        (header(GOOD.replace("(1,)", "(9223372036854775808,)")), "a size in the shape should be a number from 0 to 2**63 - 1"),
        (header(GOOD.replace("(1,)", f"({'9' * 1000},)")), "a size of 1000 digits in the shape"),
        (header(GOOD.replace("(1,)", "(0, 4611686018427387904, 4611686018427387904)")), "is more than an address can hold"),
        (header(GOOD.replace("(1,)", f"({'1,' * 33})")), "33 dimensions, at most 32"),
        (header(GOOD.replace("'shape'", "'descr'")), "the header should give descr"),
        (header(GOOD.replace("False", "__import__('os')")), "the header should give descr"),
        (header(GOOD + "x"), "the header should give descr"),
        (header("{" * 5000), "the header should give descr"),
        (header(GOOD.replace("<f4", "|b1")) + b"\2", "a bool should be 0 or 1, got 2"),
        (header(GOOD.replace("<f4", "<U1")) + b"\0\0\0\1", "texts with what is no Unicode character"),
        (header(GOOD.replace("<f4", ">U1")) + b"\0\0\xd8\0", "texts with what is no Unicode character"),
    ],
)
def test_what_is_wrong_with_an_npy_file_is_said(tmp_path, raw, message):
    refused(npy.read, raw, message, tmp_path / "hostile.npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_by_name(tmp_path, save):
    arrays = every_dtype() | {"a/b.c": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    save(tmp_path / "a.npz", **arrays)
    found, metadata = npz.read(tmp_path / "a.npz")
    same(found, arrays)
    assert list(found) == list(arrays)
    assert metadata == {}


def test_real_weights_are_read(shared):
    path = shared("checkpoints/g2p_en/checkpoint20.npz")
    with np.load(path) as expected:
        same(npz.read(path)[0], dict(expected))


def test_other_members_are_named_and_paths_are_names(tmp_path):
    raw = zipped({"../../up.npy": ONE, "/etc/x.npy": ONE, "notes.txt": b"hello", "b/": b""})
    found, metadata = npz.read(raw)
    assert list(found) == ["../../up", "/etc/x"]
    assert metadata == {"left out": ["notes.txt", "b/"]}
    assert not list(tmp_path.iterdir())


def flagged(raw, at, value):
    """The zip file with a field of its central directory changed."""
    start = raw.index(b"PK\1\2") + at
    return raw[:start] + value + raw[start + len(value) :]


def shared_data(count):
    """A zip file whose directory names one member many times, under different names: each alone looks harmless."""
    raw = zipped({"aaa.npy": bytes(1_000_000)}, zipfile.ZIP_DEFLATED)
    start, end = raw.index(b"PK\1\2"), raw.index(b"PK\5\6")
    entry, local = raw[start:end], raw[:start]
    entries = b"".join(entry.replace(b"aaa", b"%03d" % k) for k in range(count))
    tail = bytearray(raw[end:])
    tail[8:12] = count.to_bytes(2, "little") * 2
    tail[12:16] = len(entries).to_bytes(4, "little")
    return local + entries + bytes(tail)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a readable zip file"),
        (zipped({"a.npy": ONE})[:-30], "not a readable zip file"),
        (zipped({"a.npy": ONE}).replace(b"\0\0\x80\x3f", b"\0\0\x80\x40"), "member 'a.npy' cannot be read: Bad CRC-32"),
        (zipped({"a.npy": ONE + b"x"}), "member 'a.npy': <f4 of shape (1,) has 4 bytes, 5 follow the header"),
        (
            zipped({"a.npy": ONE}, zipfile.ZIP_BZIP2),
            "member 'a.npy' is compressed by bzip2; read are stored and deflated members",
        ),
        (zipped({"a.npy": ONE}, zipfile.ZIP_LZMA), "member 'a.npy' is compressed by lzma"),
        (flagged(zipped({"a.npy": ONE}), 8, b"\1"), "member 'a.npy' is encrypted"),
        (flagged(zipped({"a.npy": ONE}), 24, b"\0\0\1\0"), "should have 65536 bytes, which 132 in the file cannot hold"),
        (zipped({"a.npy": ONE, "b.npy": ONE}).replace(b"b.npy", b"a.npy"), "member 'a.npy' is there twice"),
        (zipped({"x" * 5000 + ".npy": ONE}), "a name of 5004 characters, at most 4096"),
        (zipped({"a.npy": bytes(30_000_000)}, zipfile.ZIP_DEFLATED), "unpacks to 30000000 bytes, and the file has 29"),
        (shared_data(200), "unpacks to 200000000 bytes, and the file has 11"),
    ],
)
def test_what_is_wrong_with_an_npz_file_is_said(tmp_path, raw, message):
    refused(npz.read, raw, message, tmp_path / "hostile.npz")


def test_a_bomb_is_refused_before_it_is_unpacked():
    raw = zipped({"a.npy": bytes(30_000_000)}, zipfile.ZIP_DEFLATED)
    assert peak(lambda: refused(npz.read, raw, "decompression bomb")) < 1_000_000
    zeros = saved(np.savez_compressed, a=np.zeros(limits.FREE // 8 - 100))
    same(npz.read(zeros)[0], {"a": np.zeros(limits.FREE // 8 - 100)})
