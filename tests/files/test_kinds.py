"""Any file by its name and its first bytes."""

import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from anyrnn import files
from anyrnn.files import mxnet, safetensors
from tests.files.common import same

GOLDEN = Path(__file__).parent / "golden"
ARRAYS = {"x": np.arange(3.0), "y": np.ones((2, 2), np.float32)}


def h5(path):
    with h5py.File(path, "w") as file:
        for name, array in ARRAYS.items():
            file[name] = array


WRITERS = {
    "a.safetensors": ("safetensors", lambda path: safetensors.write(path, ARRAYS)),
    "a.npz": ("npz", lambda path: np.savez(path, **ARRAYS)),
    "a.h5": ("hdf5", h5),
    "A.HDF5": ("hdf5", h5),
    "a.params": ("mxnet", lambda path: mxnet.write(path, ARRAYS)),
    "a.pt": ("pt", lambda path: torch.save({name: torch.tensor(array) for name, array in ARRAYS.items()}, path)),
    "a.pth": (
        "pt",
        lambda path: torch.save(
            {name: torch.tensor(array) for name, array in ARRAYS.items()}, path, _use_new_zipfile_serialization=False
        ),
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_is_known_and_read(tmp_path, name):
    kind, write = WRITERS[name]
    write(tmp_path / name)
    assert files.kind(tmp_path / name) == kind
    arrays, _, found = files.load(str(tmp_path / name))
    assert found == kind
    same(arrays, ARRAYS)


def test_one_array_is_read(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3.0))
    assert files.kind(tmp_path / "a.npy") == "npy"
    same(files.load(tmp_path / "a.npy")[0], {"array": np.arange(3.0)})


@pytest.mark.parametrize("name", ["tiny.keras", "tiny.h5", "tiny.weights.h5"])
def test_keras_s_files_are_known_and_named_by_layer(name):
    arrays, metadata, kind = files.load(GOLDEN / name)
    assert kind == files.kind(GOLDEN / name) == "keras"
    assert [key.split("/")[0] for key in arrays] == ["only"] * 3
    assert (metadata["config"] is None) == (name == "tiny.weights.h5")


def test_flax_s_files_are_known():
    assert files.kind(GOLDEN / "tiny.msgpack") == files.load(GOLDEN / "tiny.msgpack")[2] == "flax"


@pytest.mark.parametrize("name", ["a.safetensors", "a.h5", "a.params", "a.pth"])
def test_first_bytes_are_enough(tmp_path, name):
    kind, write = WRITERS[name]
    write(tmp_path / name)
    shutil.move(tmp_path / name, tmp_path / "weights.of.mine")
    assert files.kind(tmp_path / "weights.of.mine") == kind
    same(files.load(tmp_path / "weights.of.mine")[0], ARRAYS)


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("a.npz", b"\x89HDF\r\n\x1a\n" + bytes(99), "by its name the file is npz, by its first bytes hdf5"),
        ("a.safetensors", b"PK\3\4" + bytes(99), "by its name the file is safetensors, by its first bytes npz or keras or pt"),
        ("a.h5", b"hello, world", "by its name the file is hdf5, by its first bytes nothing known (b'hello, w')"),
        ("a.npy", b"", "by its name the file is npy, by its first bytes nothing known (b'')"),
        ("a.onnx", b"PK\3\4" + bytes(99), "by its name the file is onnx, by its first bytes npz or keras or pt"),
        ("a.safetensors", b"\xff\xff\xff\0\0\0\0\0{}", "by its name the file is safetensors, by its first bytes nothing known"),
        ("a.txt", b"hello", "the suffix '.txt' is not known, and its first bytes are b'hello'; known are .safetensors, .npz"),
        ("a", b"PK\3\4" + bytes(99), "the suffix '' is not known, and its first bytes may be npz or keras or pt"),
        ("a.pkl", pickle.dumps([1]), "a pickle, which could run any program when it is read; it is never loaded"),
        ("a.joblib", b"\x89HDF\r\n\x1a\n", "a pickle, which could run any program"),
        ("a.pickle", b"(lp0\n.", "a pickle, which could run any program"),
        ("a.pt", pickle.dumps([1]), "a pickle, which could run any program"),
        ("a.npz", pickle.dumps([1], 2), "a pickle, which could run any program"),
        ("a.bin", pickle.dumps([1], 5), "a pickle, which could run any program"),
    ],
)
def test_disagreement_and_pickles_are_refused(tmp_path, name, raw, message):
    (tmp_path / name).write_bytes(raw)
    for read in (files.kind, files.load):
        with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path / name))}: {re.escape(message)}"):
            read(tmp_path / name)


def test_onnx_is_known_and_read_elsewhere(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"\x08\x08\x12\x04test")
    assert files.kind(tmp_path / "a.onnx") == "onnx"
    with pytest.raises(ValueError, match=r"an ONNX file holds a graph and not only arrays; it is read by anyrnn\.onnx"):
        files.load(tmp_path / "a.onnx")


def test_a_missing_file_is_named(tmp_path):
    for read in (files.kind, files.load):
        with pytest.raises(FileNotFoundError, match=r"none\.npz"):
            read(tmp_path / "none.npz")


def test_numpy_alone_reads_all_but_torch_s_files():
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name in ('torch', 'h5py', 'keras', 'msgpack', 'safetensors', 'llvmlite'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from anyrnn import files\n"
        f"print(*(files.load({str(GOLDEN)!r} + '/' + name)[2] for name in ('tiny.keras', 'tiny.h5', 'tiny.msgpack')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "keras keras flax\n"
