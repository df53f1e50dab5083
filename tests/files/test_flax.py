"""Flax's msgpack files, against one that Flax made (`golden/make.py`)."""

from pathlib import Path

import numpy as np
import pytest

from anyrnn.files import flax
from tests.files.common import peak, refused, same

GOLDEN = Path(__file__).parent / "golden" / "tiny.msgpack"


def packed_array(shape=b"\x91\x02", dtype=b"\xa7float32", data=b"\xc4\x08" + bytes(8), code=1):
    body = b"\x93" + shape + dtype + data
    return b"\xc7" + bytes((len(body), code)) + body


def test_what_flax_writes_is_read():
    expected = {
        "params/OptimizedLSTMCell_0/ii/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "params/OptimizedLSTMCell_0/hi/bias": np.zeros(3, np.float32),
        "params/bfloat16": np.array([1.5, -2.0, 3.0042e38], np.float32),
        "params/empty": np.zeros((0, 3), np.float32),
        "params/scalar": np.array(2.5, np.float32),
        "params/none": np.array(7),
        **{f"many/{k}": np.full(1, k, np.int8) for k in range(40)},
    }
    dtypes = "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex64 complex128"
    expected |= {f"dtypes/{name}": np.array([[0, 1, 0], [1, 1, 0]], name) for name in dtypes.split()}
    found, metadata = flax.read(GOLDEN)
    expected["params/bfloat16"][2] = found["params/bfloat16"][2]
    assert abs(found["params/bfloat16"][2] / 3e38 - 1) < 2**-8
    same(found, expected)
    names = ["rate", "big", "negative", "name", "nothing", "flag", "c", "raw"]
    assert metadata == {"left out": ["step", *(f"other/{name}" for name in names)]}
    same(flax.read(GOLDEN.read_bytes())[0], expected)


def test_an_array_alone_is_read():
    same(flax.read(packed_array())[0], {"array": np.zeros(2, np.float32)})
    same(flax.read(b"\x92" + packed_array() + b"\xc0")[0], {"0": np.zeros(2, np.float32)})


def test_long_forms_of_lengths_are_read():
    text = b"\xda\x00\x01a"
    long = (
        b"\xdf\x00\x00\x00\x01"
        + text
        + packed_array(b"\xdd\x00\x00\x00\x01\xcd\x00\x02", b"\xd9\x07float32", b"\xc6\x00\x00\x00\x08" + bytes(8))
    )
    same(flax.read(long)[0], {"a": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "a value at byte 0 should have 1 bytes, 0 follow: truncated"),
        (GOLDEN.read_bytes()[:-1], "truncated"),
        (b"\x80\x80", "1 bytes follow the last value, at byte 1"),
        (b"\xc1", "not msgpack: the byte 0xc1 at 0 begins no value"),
        (b"\x81\xa1a", "a value at byte 3 should have 1 bytes"),
        (b"\x81\x01\xc0", "the key at byte 1 should be a text, it is a small"),
        (b"\x81\xa1\xff\xc0", "a key is not UTF-8 at byte 2"),
        (b"\xdf\xff\xff\xff\xff", "a map of length 4294967295 at byte 0, 0 bytes follow: truncated"),
        (b"\xdd\xff\xff\xff\xff\xc0", "a array of length 4294967295 at byte 0, 1 bytes follow"),
        (b"\xc6\xff\xff\xff\xff", "a bin of length 4294967295 at byte 0"),
        (b"\xc9\xff\xff\xff\xff\x01", "a ext of length 4294967295 at byte 0"),
        (b"\x91" * 200 + b"\xc0", "nested more than 100 levels deep at byte 101"),
        (b"\x81\xa1a" * 200 + b"\xc0", "nested more than 100 levels deep"),
        (b"\x81\xbd__msgpack_chunked_array__\xc3".replace(b"\xbd", b"\xb9"), "array '' is in chunks, which are not read"),
        (b"\x82\xa3a/b" + packed_array() + b"\xa1a\x81\xa1b" + packed_array(), "the name 'a/b' is there twice"),
        (packed_array(dtype=b"\xa6object"), "array 'array' at byte 3: the dtype is 'object'; read are float64,"),
        (packed_array(shape=b"\x91\xff"), "a size in the shape should be a number from 0 on, it begins with the byte 0xff"),
        (
            packed_array(shape=b"\x91\xcf" + b"\xff" * 8),
            "a size in the shape should be a number from 0 to 2**63 - 1, got 18446744073709551615",
        ),
        (packed_array(shape=b"\x92\xce\xff\xff\xff\xff\xce\xff\xff\xff\xff"), "is more than an address can hold"),
        (packed_array(shape=b"\x91\x03"), "float32 of shape (3,) has 12 bytes, 8 are there"),
        (packed_array(data=b"\xc4\x07" + bytes(7)), "float32 of shape (2,) has 8 bytes, 7 are there"),
        (packed_array(shape=b"\xc0"), "an array should be its shape, its dtype and its bytes"),
        (packed_array(dtype=b"\xc0"), "a scalar at its byte 3, expected str or bin"),
        (packed_array(b"\x91\x01", b"\xa4bool", b"\xc4\x01\x02"), "a bool should be 0 or 1, got 2"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, raw, message):
    refused(flax.read, raw, message, tmp_path / "hostile.msgpack")


def test_long_names_of_many_values_take_no_memory():
    deep = b"\x81\xd9\xc8" + b"a" * 200
    raw = deep * 19 + b"\xdc\xff\xff" + b"\xc0" * 65535
    assert peak(lambda: refused(flax.read, raw, "the names of all that is in it take more than 20 times its size")) < 5_000_000
