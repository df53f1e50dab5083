import gzip
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anyrnn.datasets import mnist
from anyrnn.datasets._idx import read_idx

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IMAGES, LABELS = NAMES[:2]


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()


def some_images(count: int, rows: int = 28, columns: int = 28) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, rows, columns))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four small files, well made: 12 images to train on, 5 to test on."""
    for count, images, labels in ((12, NAMES[0], NAMES[1]), (5, NAMES[2], NAMES[3])):
        (tmp_path / images).write_bytes(idx(some_images(count)))
        (tmp_path / labels).write_bytes(idx(np.arange(count) % 10))
    return tmp_path


def compress(path: Path) -> Path:
    compressed = path.with_name(path.name + ".gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return compressed


def test_reads_rows_as_steps(folder: Path) -> None:
    data = mnist(folder)
    assert (data.name, data.classes, data.steps, data.features) == ("mnist", 10, 28, 28)
    np.testing.assert_array_equal(data.train.inputs, some_images(12).astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(data.test.labels, np.arange(5))
    for part in (data.train, data.test):
        assert part.inputs.dtype == np.float32
        assert part.labels.dtype == np.int64


def test_gzip_is_seen_in_the_bytes_not_in_the_name(folder: Path) -> None:
    expected = mnist(folder)
    compress(folder / IMAGES)
    compress(folder / LABELS).rename(folder / LABELS)
    data = mnist(str(folder))
    np.testing.assert_array_equal(data.train.inputs, expected.train.inputs)
    np.testing.assert_array_equal(data.train.labels, expected.train.labels)


def test_reads_the_spelling_with_dots(folder: Path) -> None:
    for name in NAMES:
        (folder / name).rename(folder / name.replace("-idx", ".idx"))
    assert len(mnist(folder).train) == 12


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere' to read MNIST from"):
        mnist(tmp_path / "nowhere")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named_with_its_folder(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name} \(or {name}.gz\) is not in the folder '{folder}'"):
        mnist(folder)


WRONG_FILES = {
    "empty": (IMAGES, b"", "only 0 bytes, less than an IDX header: the file is truncated"),
    "a cut header": (IMAGES, bytes((0, 0, 8, 3, 0, 0)), "only 6 bytes, less than an IDX header: the file is truncated"),
    "text": (
        IMAGES,
        b"<html>not found</html>",
        "not an IDX file of unsigned bytes with 3 dimensions: it starts with 3c 68 74 6d",
    ),
    "labels for images": (IMAGES, idx(np.arange(12)), "it starts with 00 00 08 01, expected 00 00 08 03"),
    "images for labels": (LABELS, idx(some_images(12)), "with 1 dimension: it starts with 00 00 08 03, expected 00 00 08 01"),
    "floats": (LABELS, bytes((0, 0, 13, 1)) + bytes(8), "it starts with 00 00 0d 01"),
    "cut pixels": (
        IMAGES,
        idx(some_images(12))[:-1],
        "the header promises 12 x 28 x 28 bytes, 9407 follow: the file is truncated",
    ),
    "left-overs": (LABELS, idx(np.arange(12) % 10) + b"\0", "more bytes follow than the 12 that the header promises"),
    "a false promise": (
        IMAGES,
        bytes((0, 0, 8, 3)) + b"\xff" * 12,
        "the header promises 4294967295 x 4294967295 x 4294967295 bytes, 0 follow: the file is truncated",
    ),
    "another size": (IMAGES, idx(some_images(12, 8, 9)), "images of 8 x 9 pixels, expected 28 x 28"),
    "no images": (IMAGES, idx(some_images(0)), "there are no images in it"),
    "another count": (LABELS, idx(np.arange(10)), f"10 labels for the 12 images of {IMAGES}"),
    "a label too large": (LABELS, idx(np.arange(12)), "label 10 is 10, expected 0 to 9"),
}


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("name", "content", "message"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_named_with_what_is_wrong(
    folder: Path, name: str, content: bytes, message: str, compressed: bool
) -> None:
    path = folder / name
    path.write_bytes(content)
    if compressed:
        path = compress(path)
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        mnist(folder)
    assert str(raised.value).startswith(f"{path}: ")


def test_damaged_gzip(folder: Path) -> None:
    path = compress(folder / IMAGES)
    whole = path.read_bytes()

    for kept in (5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=rf"{path}: the gzip data ends too early: the file is truncated"):
            mnist(folder)

    def flipped(place: int) -> bytes:
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        return bytes(damaged)

    path.write_bytes(flipped(-6))  # in the check sum
    with pytest.raises(ValueError, match=rf"{path}: the gzip data is corrupt \(CRC check failed"):
        mnist(folder)
    path.write_bytes(flipped(10))  # in the first block's header
    with pytest.raises(ValueError, match=rf"{path}: the gzip data is corrupt \("):
        mnist(folder)


def labels_or_message(folder: Path) -> np.ndarray | str:
    try:
        return mnist(folder).train.labels
    except ValueError as error:
        return str(error)


def test_every_cut_and_every_flipped_byte_is_noticed_or_harmless(folder: Path) -> None:
    """Whatever happens to the labels' file, the answer is right labels or a ValueError that names the file."""
    expected = mnist(folder).train.labels
    path = compress(folder / LABELS)
    whole = path.read_bytes()
    damaged = [whole[:kept] for kept in range(len(whole))]
    damaged += [whole[:i] + bytes([whole[i] ^ bit]) + whole[i + 1 :] for i in range(len(whole)) for bit in (1, 0x80)]
    for content in damaged:
        path.write_bytes(content)
        found = labels_or_message(folder)
        assert str(path) in found if isinstance(found, str) else (found == expected).all()


def test_the_real_files(shared: Callable[[str], Path], tmp_path: Path) -> None:
    source = shared("data/mnist")
    data = mnist(source)
    assert data.train.inputs.shape == (60000, 28, 28)
    assert data.test.inputs.shape == (10000, 28, 28)
    assert data.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(data.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # published means of the training and test pixels
    assert data.train.inputs.mean() == pytest.approx(0.1307, abs=1e-4)
    assert data.test.inputs.mean() == pytest.approx(0.1325, abs=1e-4)


def test_a_real_file_cut_short(shared: Callable[[str], Path], tmp_path: Path) -> None:
    for file in shared("data/mnist").glob("*ubyte.gz"):
        shutil.copy(file, tmp_path / file.name)
    cut = tmp_path / "t10k-images-idx3-ubyte.gz"
    cut.chmod(0o644)
    cut.write_bytes(cut.read_bytes()[:1_000_000])
    with pytest.raises(ValueError, match=rf"{cut}: the gzip data ends too early"):
        mnist(tmp_path)


def test_a_file_that_unpacks_to_far_more_than_it_is(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(">II", 0x801, 2**28) + bytes(2**25))
    with pytest.raises(ValueError, match=r"labels.gz: unpacks to \d+ bytes, .* refused as a decompression bomb"):
        read_idx(path, 1)
