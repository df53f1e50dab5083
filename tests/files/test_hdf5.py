"""The HDF5 reader, against the HDF5 library's own writing and reading."""

import io
import struct
import zlib

import h5py
import numpy as np
import pytest

from anyrnn.files import hdf5
from tests.files.common import every_dtype, peak, refused, same

REAL = [name for name in every_dtype() if not name.startswith("complex")]


def written(fill, **options):
    packed = io.BytesIO()
    with h5py.File(packed, "w", **options) as file:
        fill(file)
    return packed.getvalue()


def as_h5py_reads(raw):
    """Datasets, and attributes of groups, as the library gives them."""
    arrays, attributes = {}, {}

    def plain(value):
        if isinstance(value, h5py.Empty):
            return None
        value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        items = [item.decode() if isinstance(item, bytes) else item for item in (value if isinstance(value, list) else [value])]
        return items if isinstance(value, list) else items[0]

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = np.asarray(item[()])
        else:
            attributes[name] = {key: plain(value) for key, value in item.attrs.items()}

    with h5py.File(io.BytesIO(raw)) as file:
        visit("", file)
        file.visititems(visit)
    return arrays, attributes


def check(raw):
    arrays, metadata = hdf5.read(raw)
    expected, attributes = as_h5py_reads(raw)
    same(arrays, expected)
    assert metadata == {"attributes": attributes}
    return arrays


def test_every_dtype_and_byte_order_is_read():
    def fill(file):
        for name in REAL:
            file[name] = every_dtype()[name]
            file[f"{name}, the other way"] = every_dtype()[name].astype(every_dtype()[name].dtype.newbyteorder(">"))

    assert len(check(written(fill))) == 2 * len(REAL)


def test_bfloat16_is_widened():
    def fill(file):
        kind = h5py.h5t.IEEE_F32LE.copy()
        kind.set_fields(15, 7, 8, 0, 7)
        kind.set_size(2)
        kind.set_ebias(127)
        space = h5py.h5s.create_simple((2,))
        data = h5py.h5d.create(file.id, b"half", kind, space)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1.5, -2.0], np.float32))

    same(hdf5.read(written(fill))[0], {"half": np.array([1.5, -2.0], np.float32)})


def test_many_groups_and_names_are_read():
    def fill(file):
        for k in range(700):
            file[f"many/{k:03}/x"] = np.float32(k)
        file["großer Name/" + "ä" * 1000] = [1, 2]
        file["großer Name/b/c"] = [3]
        file.create_group("empty")
        deep = file
        for k in range(50):
            deep = deep.create_group(f"d{k}")

    assert len(check(written(fill))) == 702


def test_attributes_are_read():
    def fill(file):
        file.attrs.update({"flag": True, "number": 3, "list": [1.5, 2.0], "grid": np.arange(6).reshape(2, 3), "text": "größe"})
        file.attrs.update(
            {"texts": ["a", "bcd", ""], "fixed": np.array([b"ab", b"c"]), "one": np.bytes_("x"), "long": "x" * 200_000}
        )
        file.attrs.update({"none": h5py.Empty("f4"), "no texts": np.array([], "S3"), "big": np.array(7, ">i8")})
        group = file.create_group("g")
        for k in range(50):
            group.attrs[f"attribute {k}"] = "y" * k

    check(written(fill))


@pytest.mark.parametrize(
    ("shape", "chunks", "options"),
    [
        ((7,), (3,), {}),
        ((70, 33), (8, 9), {"compression": "gzip"}),
        ((70, 33), (8, 9), {"compression": "gzip", "compression_opts": 9, "shuffle": True}),
        ((3, 70, 33), (2, 8, 9), {"shuffle": True}),
        ((400, 300), (5, 7), {}),
        ((5, 5), (8, 8), {"maxshape": (None, None)}),
        ((0, 5), (2, 2), {"maxshape": (None, None)}),
    ],
)
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "i1"])
def test_chunks_and_filters_are_read(shape, chunks, options, dtype):
    values = np.random.default_rng(0).normal(size=shape) * 50
    check(written(lambda file: file.create_dataset("x", data=values.astype(dtype), chunks=chunks, **options)))


def test_data_in_the_header_is_read():
    def fill(file):
        kept = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        kept.set_layout(h5py.h5d.COMPACT)
        data = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((3,)), kept)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(3, dtype=np.int32))

    check(written(fill))


def test_real_weights_are_read(shared):
    path = shared("checkpoints/textgenrnn/textgenrnn_weights.hdf5")
    assert len(check(path.read_bytes())) == 10
    same(hdf5.read(path)[0], hdf5.read(path.read_bytes())[0])


def test_texts_and_empty_datasets_are_named():
    def fill(file):
        file["words"] = ["a", "b"]
        file["nothing"] = h5py.Empty("f4")
        file["fixed"] = np.bytes_("x")

    assert hdf5.read(written(fill)) == ({}, {"attributes": {"": {}}, "left out": ["fixed", "nothing", "words"]})


def soft(file):
    file["a"] = h5py.SoftLink("/b")


def external_link(file):
    file["a"] = h5py.ExternalLink("/etc/passwd", "b")


def hard_link(file):
    file["a"] = np.ones(3)
    file["b"] = file["a"]


def cycle(file):
    file.create_group("a/b")
    file["a/b/c"] = file["a"]


def large(file):
    group = file.create_group("größer")
    for k in range(20):
        group[f"größe {k}"] = 1


def lists(file):
    h5py.h5d.create(file.id, b"x", h5py.h5t.vlen_create(h5py.h5t.NATIVE_INT32), h5py.h5s.create_simple((2,)))


def virtual(file):
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (3,))
    file.create_virtual_dataset("v", layout)


def deep(file):
    for _ in range(150):
        file = file.create_group("d")


def named_dtype(file):
    file["kind"] = np.dtype("f4")


def uses_named_dtype(file):
    file["kind"] = np.dtype("f4")
    file.create_dataset("a", data=np.ones(3), dtype=file["kind"])


PAIR = np.dtype([("a", "f4"), ("b", "i4")])


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (soft, "'a' in the root group is a link to a name (soft or external), not read"),
        (external_link, "'a' is a link to a name (soft or external), not read"),
        (hard_link, "'b' is 'a' again (a hard link), not read"),
        (cycle, "'a/b/c' is 'a' again (a hard link), not read"),
        (large, "a large group of the newer kind, not read"),
        (virtual, "message 0x8 of 'v' is of version 4, not read"),
        (deep, "groups nested more than 100 levels deep"),
        (named_dtype, "'kind' is neither a group nor a dataset (a named dtype?), not read"),
        (uses_named_dtype, "is shared with other objects (a named dtype?), not read"),
        (lambda file: file.create_dataset("x", (3,), "f4", external=[("/etc/passwd", 0, 12)]), "'x' is kept in other files"),
        (lambda file: file.create_dataset("x", (10**12,), "f4"), "unpacks to 4000000000000 bytes, and the file has"),
        (lambda file: file.create_dataset("x", (1000,), "f4"), "dataset 'x' of shape (1000,) has no data: it was never written"),
        (lambda file: file.create_dataset("x", (1000,), "f4", chunks=(10,)), "dataset 'x': 0 of its 100 chunks were written"),
        (lambda file: file.create_dataset("x", (10**6, 10**6), "f4", chunks=(10, 10)), "unpacks to 4000000000000 bytes"),
        (
            lambda file: file.create_dataset("x", (1, 1), "f4", chunks=(9999, 9999), maxshape=(None, None)),
            "unpacks to 399920008 bytes",
        ),
        (lambda file: file.create_dataset("x", data=np.zeros((3000, 3000)), compression="gzip"), "as a decompression bomb"),
        (lambda file: file.create_dataset("x", data=np.ones(9), chunks=(3,), compression="lzf"), "'x' is packed by filter 32000"),
        (lambda file: file.create_dataset("x", data=np.ones(9), chunks=(3,), fletcher32=True), "'x' is packed by filter 3;"),
        (lambda file: file.create_dataset("x", data=np.zeros(2, PAIR)), "'x': compounds are not read"),
        (lambda file: file.create_dataset("y", data=np.ones(2, complex)), "'y': compounds are not read"),
        (lists, "lists of any length are not read"),
        (lambda file: file.create_dataset("x", data=[1], dtype=h5py.enum_dtype({"RED": 1})), "'x': enumerations are not read"),
        (lambda file: file.create_dataset("x", data=np.void(b"ab")), "'x': opaque bytes are not read"),
        (lambda file: file.create_dataset("x", data=np.zeros(2, "(2,)f4")), None),
        (lambda file: file.attrs.update({"x": np.zeros(2, PAIR)}), "attribute 'x': compounds are not read"),
    ],
)
def test_what_is_not_read_is_named(tmp_path, fill, message):
    raw = written(fill)
    if message is None:
        check(raw)
        return
    assert peak(lambda: refused(hdf5.read, raw, message, tmp_path / "hostile.h5")) < 3_000_000


def test_newer_files_are_refused_with_advice():
    refused(hdf5.read, written(lambda file: None, libver="latest"), "write it with h5py's default settings (libver not given)")
    refused(hdf5.read, written(lambda file: None, userblock_size=512), "not an HDF5 file: it begins with b'\\x00")
    refused(
        hdf5.read,
        written(lambda file: None, track_order=True),
        "the header of the root group at byte 96 is of version 79, not read",
    )


def patched(raw, old, new):
    assert raw.count(old) == 1, (raw.count(old), old)
    return raw.replace(old, new)


def plain():
    def fill(file):
        file.attrs["text"] = "abc"
        file["x"] = np.arange(5.0)

    return written(fill)


def packed_chunk(data):
    """A file with one chunk, which holds these packed bytes instead."""
    raw = written(lambda file: file.create_dataset("x", data=np.zeros(64), chunks=(64,), compression="gzip"))
    packed = zlib.compress(bytes(512), 4)
    at, size = raw.index(packed), len(packed)
    # The new bytes come behind the file: the tree's entry says where, and how many; the superblock says how long the file is.
    end = 2**64 - 1
    raw = patched(raw, struct.pack("<IIQQQ", size, 0, 0, 0, at), struct.pack("<IIQQQ", len(data), 0, 0, 0, len(raw)))
    raw = patched(raw, struct.pack("<QQQ", end, len(raw), end), struct.pack("<QQQ", end, len(raw) + len(data), end))
    return raw + data


def test_a_chunk_that_unpacks_to_more_is_refused_with_little_memory():
    same(hdf5.read(packed_chunk(zlib.compress(bytes(512))))[0], {"x": np.zeros(64)})
    huge = packed_chunk(zlib.compress(bytes(100_000_000)))
    assert peak(lambda: refused(hdf5.read, huge, "a chunk unpacks to more than 512 bytes")) < 3_000_000
    refused(hdf5.read, packed_chunk(zlib.compress(bytes(511))), "the chunk at (0,) has 511 bytes, expected 512")
    refused(hdf5.read, packed_chunk(zlib.compress(bytes(512))[:-1]), "a chunk unpacks to more than 512 bytes, or is cut off")
    refused(hdf5.read, packed_chunk(b"nothing packed"), "a chunk cannot be unpacked")


def test_damaged_parts_are_refused():
    raw = plain()
    heap = raw.index(b"GCOL")
    for at, value, message in [
        (8, b"\5", "the superblock at byte 0 is of version 5, not read"),
        (13, b"\4", "addresses or lengths that have not 8 bytes"),
        (24, b"\1", "a user block or a driver of its own"),
        (raw.index(b"TREE"), b"tree", "should begin with b'TREE', it begins with b'tree'"),
        (raw.index(b"SNOD"), b"NODE", "should begin with b'SNOD'"),
        (raw.index(b"HEAP"), b"HOPE", "should begin with b'HEAP'"),
        (raw.index(b"TREE") + 4, b"\1", "has kind 1 and level 0, expected kind 0 and level 0"),
        (heap + 4, b"\7", "a heap of texts at byte"),
        (heap + 8, b"\xff\xff\xff\xff", "a heap of texts at byte"),
        (heap + 24, b"\xff\xff\xff\xff", "an entry of a heap of texts at byte"),
        (heap + 32, b"\xff", "is not UTF-8 at its byte 0"),
    ]:
        refused(hdf5.read, raw[:at] + value + raw[at + len(value) :], message)
    refused(hdf5.read, raw[:-1], f"should have {len(raw)} bytes, it has {len(raw) - 1}: the file is truncated")
    refused(hdf5.read, b"", "the superblock at byte 0 is too short")
    refused(hdf5.read, b"x" * 100, "not an HDF5 file: it begins with b'xxxxxxxx'")


def test_a_heap_that_never_ends_is_refused():
    raw = plain()
    at = raw.index(b"GCOL") + 16  # the first entry: its number, and its length, of which 0 would stay where it is
    endless = raw[:at] + struct.pack("<HHIQ", 9, 0, 0, 2**64 - 16) + raw[at + 16 :]
    refused(hdf5.read, endless, "an entry of a heap of texts")


def test_dtypes_in_dtypes_and_filters_without_end_are_refused():
    raw = written(lambda file: file.create_dataset("x", data=np.array([True])))
    at = raw.index(struct.pack("<BHBI", 0x18, 2, 0, 1))  # an enumeration of bytes; the base follows
    nested = raw[: at + 8] + raw[at : at + 8] + raw[at + 16 :]
    refused(hdf5.read, nested, "enumerations are not read")
    raw = written(lambda file: file.create_dataset("x", data=np.ones(64), chunks=(64,), compression="gzip", shuffle=True))
    at = raw.index(b"deflate\0") - 8
    refused(hdf5.read, raw[:at] + b"\2" + raw[at + 1 :], "dataset 'x' is packed by filter 2 twice")


def test_chunks_may_skip_filters():
    packed = io.BytesIO()
    with h5py.File(packed, "w") as file:
        data = file.create_dataset("x", data=np.zeros(8), chunks=(4,), compression="gzip", shuffle=True)
        data.id.write_direct_chunk((4,), np.arange(4.0).tobytes(), 0b11)
    np.testing.assert_array_equal(check(packed.getvalue())["x"], [0, 0, 0, 0, 0, 1, 2, 3])


def test_a_header_that_continues_in_itself_is_refused():
    def fill(file):
        for k in range(30):
            file.attrs[f"attribute {k}"] = k

    raw = written(fill)
    at = raw.index(struct.pack("<HHI", 0x10, 16, 0)) + 8  # the first block of the root's header goes on elsewhere
    (size,) = struct.unpack("<I", raw[96 + 8 : 96 + 12])
    refused(
        hdf5.read, raw[:at] + struct.pack("<QQ", 96 + 16, size) + raw[at + 16 :], "its parts share bytes, or contain one another"
    )


def test_a_text_longer_than_its_place_is_refused():
    raw = plain()
    heap = raw.index(b"GCOL")
    longer = patched(raw, struct.pack("<IQI", 3, heap, 1), struct.pack("<IQI", 300, heap, 1))
    refused(hdf5.read, longer, "attribute 'text': a text of 300 bytes, where the file has 3")
    elsewhere = patched(raw, struct.pack("<IQI", 3, heap, 1), struct.pack("<IQI", 3, heap, 9))
    refused(hdf5.read, elsewhere, "attribute 'text': a text of 3 bytes, where the file has 0")
