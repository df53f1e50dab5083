"""The safetensors reader and writer, against the format's own library."""

import json
import os
import re
import types

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from anyrnn.files import limits
from anyrnn.files.safetensors import DTYPES, read, write
from tests.files.common import every_dtype, peak, refused, same

CODES = sorted(set(DTYPES.values()) - {"bfloat16"})


def packed(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_what_the_library_writes_is_read(tmp_path):
    arrays = every_dtype(CODES)
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors", metadata={"größe": "1\n2"})
    found, metadata = read(tmp_path / "a.safetensors")
    same(found, arrays)
    assert metadata == {"größe": "1\n2"}
    same(read((tmp_path / "a.safetensors").read_bytes())[0], arrays)


def test_the_library_reads_what_is_written(tmp_path):
    arrays = every_dtype(CODES) | {"übung 'a'": np.arange(3.0)}
    write(tmp_path / "a.safetensors", arrays, {"graph": '{"a": [1, 2]}'})
    same(safetensors.numpy.load_file(tmp_path / "a.safetensors"), arrays)
    with safetensors.safe_open(tmp_path / "a.safetensors", "np") as file:
        assert file.metadata() == {"graph": '{"a": [1, 2]}'}
    same(read(tmp_path / "a.safetensors")[0], arrays)


def test_names_keep_their_order_and_wide_numbers_stand_first(tmp_path):
    arrays = {"b": np.zeros(3, np.int8), "a": np.zeros(3), "c": np.zeros(5, np.float32)}
    write(tmp_path / "a.safetensors", arrays)
    found, _ = read(tmp_path / "a.safetensors")
    assert list(found) == ["b", "a", "c"]
    raw = (tmp_path / "a.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert {name: header[name]["data_offsets"] for name in header} == {"b": [44, 47], "a": [0, 24], "c": [24, 44]}
    write(tmp_path / "b.safetensors", arrays)
    assert (tmp_path / "b.safetensors").read_bytes() == raw


def test_no_arrays_are_a_file_too(tmp_path):
    write(tmp_path / "a.safetensors", {})
    assert read(tmp_path / "a.safetensors") == ({}, {})
    assert safetensors.numpy.load_file(tmp_path / "a.safetensors") == {}


def test_bfloat16_is_widened():
    tensor = torch.tensor([1.0, -2.5, float("inf"), 3e38, 1e-40]).to(torch.bfloat16)
    found, _ = read(safetensors.torch.save({"a": tensor.reshape(5, 1)}))
    assert found["a"].dtype == np.float32
    np.testing.assert_array_equal(found["a"], tensor.float().numpy().reshape(5, 1))


def test_arrays_are_native_writable_and_aligned_wherever_they_lie(tmp_path):
    arrays = {"a": np.ones(3, np.int8), "b": np.arange(6.0).reshape(2, 3).T, "c": np.arange(3, dtype=">i4")}
    write(tmp_path / "a.safetensors", arrays)
    shifted = packed({"a": entry("I8", (1,), (0, 1)), "b": entry("F64", (1,), (1, 9))}, b"\1" + np.array([2.5]).tobytes())
    for found in (read(tmp_path / "a.safetensors")[0], read(shifted)[0]):
        for array in found.values():
            assert array.dtype.isnative
            assert array.flags.c_contiguous
            assert array.flags.aligned
            array[...] = 7
    same(read(tmp_path / "a.safetensors")[0], arrays | {"c": np.arange(3, dtype=np.int32)})
    assert read(shifted)[0]["b"] == [2.5]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "only 0 bytes"),
        (b"\0" * 7, "only 7 bytes"),
        (b"\xff" * 9, "a header of 18446744073709551615 bytes, at most 100000000"),
        ((100).to_bytes(8, "little") + b"{}", "the header should have 100 bytes, 2 follow: the file is truncated"),
        (packed(b""), "the header begins with b'', expected '{'"),
        (packed(b" {}"), "the header begins with b' ', expected '{'"),
        (packed(b"{\xff}"), "header: not UTF-8 at byte 1"),
        (packed(b'{"a":}'), "header: not valid JSON: Expecting value: line 1 column 6"),
        (packed(b'{"a":{},"a":{}}'), "header: not valid JSON: the key 'a' is there twice"),
        (packed(b'{"a":' + b"[" * 200), "header: nested 201 levels deep, at most 100"),
        (packed(b'{"\\\\":"[[","\\"":' + b"[" * 200), "header: nested 201 levels deep"),
        (packed(b'{"a":[' + b"{}," * 200_000), "header: 200001 objects and 1 lists in 600006 bytes are more"),
        (packed(b'{"a":NaN}'), "NaN is not a number in JSON"),
        (packed(b'{"a":' + b"9" * 1000 + b"}"), "a whole number of 1000 digits"),
        (packed({"a": 1}), "array 'a': should be an object of dtype, shape and data_offsets, got 1"),
        (packed({"a": {"dtype": "F32"}}), "array 'a': should be an object of dtype, shape and data_offsets, got a dict of 1"),
        (packed({"a": entry("F8_E4M3")}), "array 'a': the dtype is 'F8_E4M3'; read are F64,"),
        (packed({"a": entry(["F32"])}), "array 'a': the dtype is a list of 1"),
        (packed({"a": entry(shape=[-1])}), "array 'a': a size in the shape should be a number from 0 to 2**63 - 1, got -1"),
        (packed({"a": entry(shape=[1.0])}), "got 1.0"),
        (packed({"a": entry(shape=[True])}), "got True"),
        (packed({"a": entry(shape=[2**63])}), "got 9223372036854775808"),
        (packed({"a": entry(shape=[0, 2**62, 2**62])}), "is more than an address can hold"),
        (packed({"a": entry(shape=[2**32, 2**32])}), "is more than an address can hold"),
        (packed({"a": entry(shape=[1] * 33)}), "33 dimensions, at most 32"),
        (packed({"a": {**entry(), "shape": 1}}), "a shape should be a list of sizes, got 1"),
        (packed({"a": entry(offsets=[0, 4.0])}), "data_offsets should be where it begins and ends"),
        (packed({"a": entry(offsets=[0])}), "data_offsets should be where it begins and ends"),
        (packed({"a": entry(offsets=[-4, 0])}), "data_offsets should be where it begins and ends"),
        (packed({"a": entry(offsets=[0, 8])}), "F32 of shape [1] has 4 bytes, its data_offsets [0, 8] are 8 apart"),
        (packed({"a": entry()}), "the arrays take 4 bytes, 0 follow the header: the file is truncated"),
        (packed({"a": entry()}, bytes(5)), "the arrays take 4 bytes, 5 follow the header: bytes that belong to no array"),
        (packed({"a": entry(), "b": entry()}, bytes(4)), "array 'b' begins at byte 0 of the data, and overlaps array 'a'"),
        (
            packed({"a": entry(offsets=[4, 8])}, bytes(8)),
            "array 'a' begins at byte 4 of the data, and leaves a hole after the header",
        ),
        (packed({"a": entry("BOOL", (2,), (0, 2))}, b"\1\2"), "array 'a': a bool should be 0 or 1, got 2"),
        (packed({"__metadata__": {"a": 1}}), "__metadata__ should be an object of texts"),
        (packed({"__metadata__": []}), "__metadata__ should be an object of texts"),
        (packed({"a" * 5000: entry()}), "a name of 5000 characters, at most 4096"),
        (packed({"\ud800": entry()}), "is not valid Unicode (half of a surrogate pair)"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, raw, message):
    refused(read, raw, message, tmp_path / "hostile.safetensors")


def test_brackets_and_quotes_in_names_count_for_nothing(tmp_path):
    arrays = {'[[{{"' * 700 + "\\": np.ones(2), "\\" * 9 + '"[': np.ones(1)}
    write(tmp_path / "a.safetensors", arrays, {"graph": json.dumps([json.dumps("[" * 200)] * 100)})
    same(read(tmp_path / "a.safetensors")[0], arrays)


def test_sizes_of_no_numbers_may_be_large():
    assert read(packed({"a": entry(shape=[0, 2**60], offsets=[0, 0])}))[0]["a"].shape == (0, 2**60)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe: not a regular file"):
        read(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        read(tmp_path / "none.safetensors")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, change):
    write(tmp_path / "a.safetensors", {"a": np.ones(3)})
    size = (tmp_path / "a.safetensors").stat().st_size
    monkeypatch.setattr(os, "fstat", lambda _: types.SimpleNamespace(st_size=size + change))
    with pytest.raises(ValueError, match=r"a\.safetensors: its size changed while it was read"):
        read(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("arrays", "metadata", "error", "message"),
    [
        ({"a": np.zeros(1, complex)}, {}, TypeError, "array 'a' has dtype complex128, which safetensors does not hold"),
        ({"a": np.array(["x"])}, {}, TypeError, "array 'a' has dtype <U1"),
        ({1: np.zeros(1)}, {}, TypeError, "the name of an array should be a text, got 1"),
        ({"__metadata__": np.zeros(1)}, {}, ValueError, "no array can be named __metadata__"),
        ({"\udc00": np.zeros(1)}, {}, ValueError, "is not valid Unicode"),
        ({}, {"a": 1}, TypeError, "metadata 'a' should be a text under a text, got int"),
        ({}, {"a": "x" * limits.HEADER}, ValueError, "at most 100000000 are allowed; the metadata is too long"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(tmp_path, arrays, metadata, error, message):
    path = tmp_path / "a.safetensors"
    write(path, {"old": np.ones(1)})
    with pytest.raises(error, match=re.escape(message)):
        write(path, arrays, metadata)
    assert list(read(path)[0]) == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_large_file_is_one_piece_of_memory(tmp_path):
    write(tmp_path / "a.safetensors", {f"array {k}": np.zeros((1000, 100)) for k in range(20)})
    found = read(tmp_path / "a.safetensors")[0]
    assert len(found) == 20
    assert peak(lambda: read(tmp_path / "a.safetensors")) < 1.1 * 20 * 800_000
