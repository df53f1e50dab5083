"""Two processes share a batch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.mark.slow
def test_gradients_are_those_of_one_process() -> None:
    """By DistributedDataParallel, and with parameters in shards (FSDP2)."""
    script = Path(__file__).with_name("two_processes.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    where = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*torchrun, *where, str(script), "ddp", "fsdp"], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for line in ("ddp 0", "ddp 1", "fsdp 0", "fsdp 1"):
        assert done.stdout.count(f"{line} is equal") == 1, done.stdout
