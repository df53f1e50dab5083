"""Torch's checkpoints: what torch writes is read, and nothing in a file runs."""

import io
import pickle
import sys
import time
import zipfile

import numpy as np
import pytest
import torch

from anyrnn.errors import MissingExtraError
from anyrnn.files import pt
from tests.files.common import every_dtype, peak, refused, same

FORMS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
RAN = []


def saved(value, zipped=True):
    packed = io.BytesIO()
    torch.save(value, packed, _use_new_zipfile_serialization=zipped)
    return packed.getvalue()


def repacked(raw, change=lambda pickled: pickled, method=zipfile.ZIP_STORED, **members):
    """The same checkpoint with another pickle, or other members."""
    packed, source = io.BytesIO(), zipfile.ZipFile(io.BytesIO(raw))
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name in source.namelist():
            data = source.read(name)
            archive.writestr(name, change(data) if name.endswith("data.pkl") else data)
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
    return packed.getvalue()


ONE = saved({"a": torch.ones(4, 5)})


def with_pickle(body):
    return repacked(ONE, lambda _: b"\x80\x02" + body + b".")


@FORMS
def test_every_dtype_is_read(zipped, tmp_path):
    held = {name: array for name, array in every_dtype().items() if zipped or not name.startswith(("uint16", "uint32", "uint64"))}
    torch.save(
        {name: torch.tensor(array) for name, array in held.items()}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped
    )
    same(pt.read(tmp_path / "a.pt")[0], held)


@FORMS
def test_a_training_s_checkpoint_is_read(zipped):
    model = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    betas = (0.9, 0.999)  # torch's optimizers share it between groups of parameters
    groups = [{"lr": 0.1, "betas": betas, "params": [0]}, {"lr": 0.2, "betas": betas, "params": [1]}]
    optimizer = {"state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.full((2,), 3.0)}}, "param_groups": groups}
    state = {"model": model.state_dict(), "optimizer": optimizer, "epoch": 3, "of": [model.weight_ih_l0, "x"]}
    found, metadata = pt.read(saved(state, zipped))
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(found[f"model.{name}"], value)
    np.testing.assert_array_equal(found["of.0"], model.weight_ih_l0.detach())
    same({"x": found["optimizer.state.0.exp_avg"]}, {"x": np.full(2, 3, "f")})
    assert {"epoch", "of.1", "optimizer.param_groups.0.lr", "optimizer.param_groups.1.betas.1"} <= set(metadata["left out"])


@FORMS
def test_views_bfloat16_and_conjugates_become_plain_arrays(zipped):
    x = torch.arange(6.0).reshape(2, 3)
    state = {"turned": x.T, "part": x[:, 1], "wide": torch.ones(1).expand(1000), "half": x.bfloat16(), "c": (x * 1j).conj()}
    expected = {
        "turned": x.numpy().T,
        "part": x.numpy()[:, 1],
        "wide": np.ones(1000, "f"),
        "half": x.numpy(),
        "c": (x * 1j).conj().resolve_conj().numpy(),
    }
    same(pt.read(saved(state, zipped))[0], expected)


def test_a_tensor_alone_is_read():
    same(pt.read(saved(torch.ones(2)))[0], {"array": np.ones(2, "f")})
    assert pt.read(saved(3)) == ({}, {"left out": ["array"]})
    same(pt.read(saved(torch.nn.Parameter(torch.ones(2))))[0], {"array": np.ones(2, "f")})


def test_real_weights_are_read(shared):
    path = shared("checkpoints/resemblyzer/pretrained.pt")
    found, metadata = pt.read(path)
    expected = torch.load(path, map_location="cpu", weights_only=True)
    for name, value in expected["model_state"].items():
        np.testing.assert_array_equal(found[f"model_state.{name}"], value)
    assert found["model_state.lstm.weight_hh_l2"].shape == (1024, 256)
    assert "step" in metadata["left out"]


def test_compressed_members_are_read_and_bombs_are_not():
    same(pt.read(repacked(ONE, method=zipfile.ZIP_DEFLATED))[0], {"a": np.ones((4, 5), "f")})
    bomb = repacked(ONE, method=zipfile.ZIP_DEFLATED, **{"data/1": bytes(30_000_000)})
    assert peak(lambda: refused(pt.read, bomb, "as a decompression bomb")) < 2_000_000
    refused(pt.read, saved({"a": torch.ones(1).expand(10**9)}), "unpacks to 4000000000 bytes")


class Runs:
    def __reduce__(self):
        return RAN.append, (1,)


class Grows:
    def __reduce__(self):
        return bytearray, (10**10,)


def again(begin, step, end):
    """A value of which each step makes one of twice the size."""
    return begin + step * 60 + end


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a torch file: it begins with b''"),
        (pickle.dumps({"a": [1.0]}), "not a torch file: it begins with b'\\x80"),
        (ONE[:-40], "not a readable zip file"),
        (repacked(ONE, **{"x/data.pkl": b""}), "a zip file without one data.pkl, which torch's files have; there are 2"),
        (repacked(ONE, **{"constants.pkl": b""}), "a TorchScript program, not only weights; save its state_dict() instead"),
        (repacked(ONE, lambda pickled: pickled[:-1]), "the pickle ends at byte"),
        (repacked(ONE, lambda pickled: b"\x80\x04" + pickled[2:]), "the pickle is not of protocol 2"),
        (repacked(ONE, lambda _: pickle.dumps(Runs(), 2)), "the pickle uses "),
        (repacked(ONE, lambda _: pickle.dumps({"a": Grows()}, 2)), "the pickle uses '__builtin__.bytearray'"),
        (with_pickle(b"cos\nsystem\n(X\x02\0\0\0lstR"), "the pickle uses 'os.system'"),
        (with_pickle(b"cbuiltins\neval\n(X\x01\0\0\0" + b"1tR"), "the pickle uses 'builtins.eval'"),
        (with_pickle(b"ctorch\nTensor\nJ\xff\xff\xff\x7f\x85R"), "the pickle uses 'torch.Tensor'"),
        (with_pickle(b"c" + b"x" * 200 + b"\ny\n"), "names a global in more than 100 letters"),
        (with_pickle(b"c_codecs\nencode\n"), "the pickle uses '_codecs.encode'"),
        (with_pickle(b"]NR"), "calls what is no function"),
        (with_pickle(b"ctorch\nFloatStorage\n)R"), "calls what is no function"),
        (with_pickle(b"I1\n"), "has the operation b'I'"),
        (with_pickle(b"N\x85\x86"), "takes values that are not there"),
        (with_pickle(b"Nt"), "takes values that are not there"),
        (with_pickle(b"(" * 200), "is nested more than 100 levels deep"),
        (with_pickle(b"h\x07"), "repeats what it never kept"),
        (with_pickle(again(b")q\0", b"h\0h\0\x86q\0", b"")), "makes a tuple of 1023 values"),
        (with_pickle(again(b"]q\0", b"]h\0ah\0aq\0", b"")), "repeats a list or dictionary"),
        (with_pickle(again(b"]\x85q\0", b"]h\0ah\0a\x85q\0", b"")), "repeats a list or dictionary"),
        (with_pickle(b"ccollections\nOrderedDict\n)Rq\0h\0"), "repeats a list or dictionary"),
        (with_pickle(b"]Q"), "names a storage by a list or dictionary"),
        (
            repacked(ONE, lambda p: p.replace(b"K\4K\5\x86", b"J\0\0\0\x10K\5\x86")),
            "torch cannot load it: RuntimeError: Trying to resize",
        ),
        (repacked(ONE, lambda p: p.replace(b"K\x14t", b"J\0\0\0\x10t")), "torch cannot load it: RuntimeError: record size"),
        (saved({"a": torch.ones(2, dtype=torch.float8_e5m2)}), "the pickle uses 'torch.float8_e5m2'"),
        (saved({"a": torch.ones(2, device="meta")}), "the pickle uses 'torch._utils._rebuild_meta_tensor_no_storage'"),
        (saved({"a": torch.ones(2).to_sparse()}), "the pickle uses 'torch._utils._rebuild_sparse_tensor'"),
        (saved(torch.nn.Linear(2, 2)), "the pickle uses "),
        (saved({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}), "the name 'a.b' is there twice"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_runs(tmp_path, raw, message):
    start = time.thread_time()
    refused(pt.read, raw, message, tmp_path / "hostile.pt")
    assert time.thread_time() - start < 1
    assert RAN == []


def test_deep_containers_are_refused():
    deep = torch.ones(1)
    for _ in range(150):
        deep = [deep]
    refused(pt.read, saved(deep), "nested more than 100 levels deep")


def test_torch_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'\.pt files are read with torch: pip install "anyrnn\[torch\]"'):
        pt.read(ONE)
