"""`anyrnn train` by two processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anyrnn.train.checkpoint import CHECKPOINT
from anyrnn.train.options import Options
from anyrnn.train.program import run
from tests.torch.test_distributed import free_port

pytestmark = pytest.mark.filterwarnings("error")


def torchrun(*arguments: object) -> subprocess.Popen[str]:
    """`anyrnn train digits` of a small network, in two processes."""
    where = ["--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command = [sys.executable, "-m", "torch.distributed.run", *where, "-m", "anyrnn", "train", "digits", "--hidden", "24"]
    return subprocess.Popen(
        [*command, "--batch", "33", "--lr", "0.01", "--json", *map(str, arguments)],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def losses(folder: Path) -> list[float]:
    found: list[float] = torch.load(folder / CHECKPOINT, weights_only=True)["record"]["losses"]
    return found


def check_like_one_process(folder: Path, alone: Options) -> None:
    run(replace(alone, steps=len(losses(folder))))
    assert losses(folder) == pytest.approx(losses(alone.output), rel=1e-4)


@pytest.mark.slow
def test_two_processes_learn_as_one(options: Callable[..., Options], tmp_path: Path) -> None:
    """With batches that they cannot share evenly. One of them speaks, and saves."""
    output, errors = torchrun("--steps", 12, "--output", tmp_path / "two").communicate(timeout=200)
    summary = json.loads(output)
    assert summary["steps"] == 12
    assert sorted(file.name for file in (tmp_path / "two").iterdir()) == [
        "checkpoint.pt", "confusion-matrix.png", "learning-curve.png", "model.safetensors", "summary.json",
    ], errors  # fmt: skip
    check_like_one_process(tmp_path / "two", options(batch=33, output=tmp_path / "one"))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the workers in /proc")
def test_when_one_of_two_is_killed_the_other_ends_and_the_run_goes_on_later(
    options: Callable[..., Options], tmp_path: Path
) -> None:
    folder = tmp_path / "two"
    running = torchrun("--steps", 10**6, "--save-every", 5, "--output", folder)
    deadline = time.monotonic() + 200
    while not (folder / CHECKPOINT).exists():
        assert time.monotonic() < deadline
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    workers = children(running.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    _, errors = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "ChildFailedError" in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    done = len(losses(folder))
    output, errors = torchrun("--steps", done + 7, "--save-every", 5, "--resume", "--output", folder).communicate(timeout=200)
    assert json.loads(output)["steps"] == done + 7, errors
    check_like_one_process(folder, options(batch=33, output=tmp_path / "one"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--cell", "nothing"), "anyrnn train: error: --cell: unknown cell 'nothing'"),
        (("--batch", "1"), "anyrnn train: error: --batch 1: there are 2 processes, and each takes a part"),
        (("--lr", "1e30", "--cell", "rnn_relu"), "try a smaller --lr"),
    ],
    ids=str,
)
def test_an_error_that_all_meet_is_told_once(tmp_path: Path, wrong: tuple[str, ...], message: str) -> None:
    running = torchrun(*wrong, "--output", tmp_path / "two")
    output, errors = running.communicate(timeout=200)
    assert (running.returncode, output, errors.count(message)) == (1, "", 1), errors
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
def test_ctrl_c_saves_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    running = torchrun("--steps", 10**6, "--save-every", 5, "--output", folder)
    deadline = time.monotonic() + 200
    while not (folder / CHECKPOINT).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=200)
    summary = json.loads(output)
    assert summary["interrupted"] is True, errors
    assert len(losses(folder)) == summary["steps"]
    assert errors.count("saving what there is") == 1
