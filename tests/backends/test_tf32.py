"""Torch's settings of TF32, set in either of its two ways; each in a process of its own, as they are the process's."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import threading
import torch
from anyrnn.backends import tf32
from anyrnn.backends.triton.device import Device
from anyrnn.backends.triton.split import precision_of
b = torch.backends
{setting}
def cudnn(): return tf32._cudnn_setting() == "tf32"
before = cudnn()
with tf32.AsInProducts(torch.float32):
    within = [cudnn()]
    with tf32.AsInProducts(torch.float32):
        within.append(cudnn())
    within.append(cudnn())
assert cudnn() == before
first, second = threading.Event(), threading.Event()
def other():
    with tf32.AsInProducts(torch.float32):
        first.set()
        second.wait()
thread = threading.Thread(target=other)
thread.start()
first.wait()
with tf32.AsInProducts(torch.float32):  # which ends before the other does
    second.set()
    thread.join()
    within.append(cudnn())
assert cudnn() == before
print(precision_of(torch.float32, Device(1)), before, *within, tf32.settings(torch.float32)[1])
"""


@pytest.mark.parametrize(
    ("setting", "kernels", "before", "called"),
    [
        ("", "bf16x6", True, False),
        ("torch.set_float32_matmul_precision('high')", "tf32", True, True),
        ("b.cuda.matmul.allow_tf32 = True", "tf32", True, True),
        ("b.cuda.matmul.allow_tf32 = True; b.cudnn.allow_tf32 = False", "tf32", False, False),
        ("b.cudnn.allow_tf32 = False", "bf16x6", False, False),
        ("b.fp32_precision = 'tf32'", "tf32", True, True),
        ("b.fp32_precision = 'ieee'", "bf16x6", False, False),
        ("b.cuda.matmul.fp32_precision = 'ieee'", "bf16x6", True, False),
        ("b.cuda.matmul.fp32_precision = 'tf32'", "tf32", True, True),
        ("b.cuda.matmul.fp32_precision = 'tf32'; b.cudnn.rnn.fp32_precision = 'ieee'", "tf32", False, False),
    ],
)
def test_cudnn_has_it_only_where_products_have(setting: str, kernels: str, before: bool, called: bool) -> None:
    program = [sys.executable, "-c", PROGRAM.format(setting=setting)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [kernels, *map(str, [before, *[called] * 4, called])]
