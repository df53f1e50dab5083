"""What was compiled is kept on disk for this user, machine and version, and is not trusted when it is not as written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyrnn
from anyrnn import _cache
from anyrnn.backends.llvm import run, target, threads
from anyrnn.passes import compile as passes

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are those of POSIX")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    folder = tmp_path / "deep" / "cache"
    monkeypatch.setenv(_cache.VARIABLE, str(folder))
    return folder


def test_the_code_of_threads_is_kept(place: Path) -> None:
    """And works when it comes from disk."""
    source = threads._source(sys.platform, threads._machine(), threads._SLEEP)
    threads._Native(source)
    (written,) = [file.stat().st_mtime_ns for file in place.iterdir()]
    team = threads._Native(source)
    assert [file.stat().st_mtime_ns for file in place.iterdir()] == [written]
    assert team.run


def made(value: object = "value", key: str = "key") -> tuple[object, bool]:
    """What is remembered, and whether it was made now."""
    calls: list[int] = []

    def make() -> object:
        calls.append(1)
        return value

    return _cache.remembered("test", key, make), bool(calls)


def only_file(place: Path) -> Path:
    (file,) = place.iterdir()
    return file


def test_what_was_made_is_read(place: Path) -> None:
    assert made({"a": (1, b"2")}) == ({"a": (1, b"2")}, True)
    assert made("another") == ({"a": (1, b"2")}, False)
    assert made("another", "another key") == ("another", True)


def test_every_source_of_the_package_counts(tmp_path: Path) -> None:
    (tmp_path / "folder" / "__pycache__").mkdir(parents=True)
    files = [tmp_path / name for name in ("a.py", "folder/b.py", "folder/c.ll")]
    for file in (*files, tmp_path / "folder" / "__pycache__" / "b.py", tmp_path / "d.txt"):
        file.write_text("1")
    before = sorted(_cache._stamps(tmp_path))
    assert [stamp.partition(" ")[0] for stamp in before] == [str(file) for file in files]
    files[1].write_text("12")
    assert [a == b for a, b in zip(before, sorted(_cache._stamps(tmp_path)), strict=True)] == [True, False, True]


@posix
def test_the_folder_is_the_users_alone(place: Path) -> None:
    made()
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_package_in_an_archive_runs_and_keeps_nothing(place: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", Path(anyrnn.__file__).parent.parent, "anyrnn")
    found = answers([start(place, f"import sys; sys.path.insert(0, {archive!r})\n"), start(place)])
    assert len(found) == 1
    assert len(list(place.iterdir())) == 3  # of the second


def test_a_link_to_nowhere_beside_the_sources_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = list(_cache._stamps(tmp_path))
    (tmp_path / ".#b.py").symlink_to("nowhere")
    assert list(_cache._stamps(tmp_path)) == before
    assert not list(_cache._stamps(tmp_path / "nowhere"))


@posix
def test_a_folder_that_others_may_write_to_is_not_used(place: Path) -> None:
    made()
    place.chmod(0o777)
    assert made("new") == ("new", True)
    assert _cache.describe() == f"not used: others may write to {place}: chmod go-w {place}"


@posix
def test_a_folder_of_another_user_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    monkeypatch.setattr(os, "geteuid", lambda: 12345678)
    assert made("new") == ("new", True)
    assert _cache.describe() == f"not used: {place} belongs to another user"


def test_without_a_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_cache.VARIABLE, "")
    assert made() == ("value", True)
    assert made() == ("value", True)
    assert _cache.describe() == "none: ANYRNN_CACHE is empty"
    assert _cache.clear() == "nothing to clear"


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(_cache.VARIABLE, str(tmp_path / "file" / "cache"))
    assert made() == ("value", True)


@pytest.mark.parametrize("harm", ["cut off", "empty", "altered", "foreign"])
def test_a_damaged_file_is_told_of_once_and_made_anew(place: Path, harm: str) -> None:
    made()
    file = only_file(place)
    content = bytearray(file.read_bytes())
    if harm == "cut off":
        content = content[:-7]
    elif harm == "empty":
        content = bytearray()
    elif harm == "altered":
        content[len(content) // 2] ^= 1
    else:
        made("foreign", "another key")
        (other,) = [f for f in place.iterdir() if f != file]
        content = bytearray(other.read_bytes())
        other.unlink()
    file.write_bytes(content)
    why = "it is for something else" if harm == "foreign" else "it is not what was written"
    with pytest.warns(RuntimeWarning, match=f"^anyrnn: {file} is not used, {why}; it is made anew$"):
        assert made("new") == ("new", True)
    assert made("newer") == ("new", False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_not_waited_for(place: Path) -> None:
    made()
    file = only_file(place)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.warns(RuntimeWarning, match=f"^anyrnn: {file} is not used, it is no file; it is made anew$"):
        assert made("new") == ("new", True)
    assert made("newer") == ("new", False)


@posix
def test_a_file_that_others_may_write_to_is_told_of_and_made_anew(place: Path) -> None:
    before = os.umask(0o002)
    try:
        made()
    finally:
        os.umask(before)
    file = only_file(place)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o620)
    with pytest.warns(RuntimeWarning, match=f"^anyrnn: {file} is not used, others may write to it; it is made anew$"):
        assert made("new") == ("new", True)
    assert made("newer") == ("new", False)


def test_a_process_killed_while_it_wrote_leaves_nothing_that_matters(place: Path) -> None:
    made()
    file = only_file(place)
    left = file.with_name(f".{file.name}.1-abc.partial")
    left.write_bytes(file.read_bytes()[:50])
    assert made("new") == ("value", False)
    os.utime(left, (0, time.time() - 2 * _cache.DAY))
    made("x", "a new key")
    assert not left.exists()


def test_the_oldest_goes_when_there_is_too_much(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(b"x" * 1000, "first")
    first = only_file(place)
    monkeypatch.setattr(_cache, "MOST_BYTES", 3 * first.stat().st_size + 10)
    for key in ["other", "third", "final"]:
        for file in place.iterdir():
            os.utime(file, (0, file.stat().st_mtime - 100))
        made(b"x" * 1000, key)
    assert len(list(place.iterdir())) == 3
    assert not first.exists()


def test_what_is_used_stays_young(place: Path) -> None:
    made()
    file = only_file(place)
    os.utime(file, (0, time.time() - 3 * _cache.DAY))
    made()
    assert time.time() - file.stat().st_mtime < _cache.DAY


def test_it_is_described_and_cleared(place: Path) -> None:
    place.mkdir(parents=True, mode=0o700)
    assert _cache.describe() == f"{place}: 0 files, 0.0 MiB of at most 256"
    made(b"x" * 2**20)
    (place / "of the user").write_text("stays")
    assert _cache.describe() == f"{place}: 1 file, 1.0 MiB of at most 256"
    assert _cache.clear() == f"{place}: 1 file removed, 1.0 MiB"
    assert [file.name for file in place.iterdir()] == ["of the user"]


def test_files_of_the_user_stay_whatever_their_names(place: Path) -> None:
    made()
    own = [place / name for name in ("model.compiled.pt", "mine.compiled", f"{'0' * 32}.compiled.bak")]
    for file in own:
        file.write_text("of the user")
        os.utime(file, (0, 0))
    (place / "folder.compiled").mkdir()
    made("x", "a new key")
    _cache.clear()
    assert all(file.exists() for file in own)
    assert not list(place.glob(f"{'[0-9a-f]' * 32}.compiled"))


def test_looking_makes_no_folder(place: Path) -> None:
    assert _cache.describe() == f"{place}: empty"
    assert not place.exists()


def test_a_file_in_the_place_of_the_folder_is_told_of(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("of the user")
    assert _cache.describe() == f"not used: {place}: File exists"
    assert _cache.clear() == "nothing to clear"
    assert place.read_text() == "of the user"


def test_a_place_where_no_folder_can_be_is_told_of(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("of the user")
    monkeypatch.setenv(_cache.VARIABLE, str(place / "folder"))
    assert _cache.describe() == f"not used: {place / 'folder'}: Not a directory"


def test_a_home_folder_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(_cache.VARIABLE, "~/kept")
    assert _cache.folder() == tmp_path / "kept"


@pytest.mark.parametrize(("variable", "expected"), [("XDG_CACHE_HOME", "{}/anyrnn"), ("HOME", "{}/.cache/anyrnn")])
@pytest.mark.skipif(sys.platform != "linux", reason="each system has its own place")
def test_where_it_is(variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (_cache.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert _cache.folder() == Path(expected.format(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="each system has its own place")
def test_a_relative_place_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _cache.folder() == tmp_path / ".cache" / "anyrnn"


# kernels


def forget() -> None:
    """As in a new process."""
    run.compiled.cache_clear()
    run.POOLS.known.clear()
    passes._plan.cache_clear()


def trained(cell: Any = "gru") -> list[np.ndarray]:
    layer = anyrnn.Recurrent(cell, 3, 5, seed=0, backend="llvm")
    x = np.ones((4, 2, 3), np.float32)
    output, _, reserve = layer.forward_training(x)
    return [output, *layer.backward(reserve, output)[2].values()]


def test_kernels_come_from_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("something was compiled")

    forget()
    expected = trained()
    assert len(list(place.iterdir())) == 3, "a plan, the training program and the backward one"
    forget()
    monkeypatch.setattr(target, "object_code", never)
    monkeypatch.setattr(passes, "make_plan", never)
    assert all(np.array_equal(a, b) for a, b in zip(expected, trained(), strict=True))


@pytest.mark.parametrize("changed", ["machine", "package"])
def test_kernels_of_another_machine_or_version_are_not_used(place: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    forget()
    trained()
    forget()
    before = len(list(place.iterdir()))
    if changed == "package":
        monkeypatch.setattr(_cache, "BUILD", "another")
    else:
        monkeypatch.setattr(target, "identity", lambda: "another")
    trained()
    assert len(list(place.iterdir())) == before + (3 if changed == "package" else 2)
    forget()


def test_a_package_that_changes_after_its_import_leaves_nothing_for_the_next_process(place: Path, tmp_path: Path) -> None:
    """It runs what it has imported, and what it compiles is not what the files on disk would."""
    package = tmp_path / "anyrnn"
    shutil.copytree(Path(anyrnn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    changes = f"import anyrnn, pathlib; pathlib.Path({str(package / 'show.py')!r}).open('a').write('#')\n"
    counts = []
    for before in (changes, ""):
        answers([start(place, before, PYTHONPATH=str(tmp_path))])
        counts.append(len(list(place.iterdir())))
    assert counts == [3, 6]


def test_a_cell_with_other_names_shows_its_own(place: Path) -> None:
    def one(x, h):  # type: ignore[no-untyped-def]
        first_name = anyrnn.tanh(anyrnn.affine("a", x, h))
        return first_name, anyrnn.State(h=first_name)

    def other(x, h):  # type: ignore[no-untyped-def]
        second_name = anyrnn.tanh(anyrnn.affine("a", x, h))
        return second_name, anyrnn.State(h=second_name)

    for body, name in ((one, "first_name"), (other, "second_name")):
        forget()
        cell = anyrnn.cell(body)
        assert name in {node.name for node in passes.plan(cell.trace()).graph.nodes}
        trained(cell)


def test_code_of_a_cell_with_other_names_is_not_used(place: Path) -> None:
    """Where things stand in memory goes by names: those of two gates are exchanged here, one gate has another name."""

    def one(x, h, c):  # type: ignore[no-untyped-def]
        i, f = anyrnn.sigmoid(anyrnn.affine("i", x, h)), anyrnn.sigmoid(anyrnn.affine("f", x, h))
        g = anyrnn.tanh(anyrnn.affine("g", x, h))
        c = f * c + i * g
        h = anyrnn.tanh(c)
        return h, anyrnn.State(h=h, c=c)

    def other(x, h, c):  # type: ignore[no-untyped-def]
        f, i = anyrnn.sigmoid(anyrnn.affine("i", x, h)), anyrnn.sigmoid(anyrnn.affine("f", x, h))
        candidate = anyrnn.tanh(anyrnn.affine("g", x, h))
        c = i * c + f * candidate
        h = anyrnn.tanh(c)
        return h, anyrnn.State(h=h, c=c)

    results = []
    for body in (one, other):
        forget()
        results.append(trained(anyrnn.cell(body)))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


PROCESS = """
import numpy as np, anyrnn
layer = anyrnn.Recurrent("rnn_tanh", 3, 5, seed=0, backend="llvm")
output, _, reserve = layer.forward_training(np.ones((4, 2, 3), np.float32))
print(float(np.abs(layer.backward(reserve, output)[2]["weight_hh_l0"]).sum()))
"""


KILLED_AT = """
import os, pathlib, signal
written, whole = 0, pathlib.Path.write_bytes

def write_half(path, content):
    global written
    written += 1
    if written == NUMBER:
        whole(path, content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(path, content)

pathlib.Path.write_bytes = write_half
"""


def start(place: Path, before: str = "", **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", before + PROCESS],
        env={**os.environ, _cache.VARIABLE: str(place), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(processes: list[subprocess.Popen[str]]) -> set[str]:
    found = set()
    for process in processes:
        output, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        found.add(output)
    return found


@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_many_processes_start_at_once_with_nothing_on_disk(place: Path, count: int) -> None:
    assert len(answers([start(place) for _ in range(count)])) == 1
    assert len(list(place.iterdir())) == 3


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_process_killed_while_it_writes_breaks_nothing(place: Path, number: int) -> None:
    """Children warn by raising."""
    killed = start(place, KILLED_AT.replace("NUMBER", str(number)))
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert any(file.suffix == ".partial" for file in place.iterdir())
    assert len(answers([start(place), start(place)])) == 1


@pytest.mark.slow
def test_processes_killed_at_any_moment_break_nothing(place: Path) -> None:
    for after in np.linspace(0.2, 1.5, 14):
        process = start(place)
        time.sleep(float(after))
        process.kill()
        process.communicate()
    assert len(answers([start(place), start(place)])) == 1
