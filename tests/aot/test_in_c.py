"""Object files in programs of C and C++: of this machine, and where there are compilers and emulators for them, of others."""

import platform as system
import shutil
import subprocess

import numpy as np
import pytest

from anyrnn import aot
from tests.runtime.test_networks import given, small

ROWS, STEPS = 3, 6
PROGRAM = """
#include "net.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    static int32_t x[3];
    static float shares[3 * 9];
    net_stream *stream = (net_stream *)malloc(sizeof *stream);
    net_begin(stream);
    while (fread(x, sizeof x, 1, stdin) == 1) {
        if (net_step(stream, x, shares)) return 1;
        fwrite(shares, sizeof shares, 1, stdout);
    }
    printf("%.9g", stream->rnn_h[1][2][6]);
    free(stream);
    return 0;
}
"""
SOFT = """
#include <math.h>
__attribute__((pcs("aapcs"))) float soft_sqrtf(float x);
float soft_sqrtf(float x) { return sqrtf(x); }
"""
"""For code that passes numbers as where there are no registers for them."""
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")


def tools(*names):
    missing = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not found")


def check(tmp_path, compiler, runner=(), int8=False, **machine):
    """A program's outputs and states, beside the network's."""
    network = small("lstm").in_int8() if int8 else small("lstm")
    aot.export(network, tmp_path / "net.o", batch_size=ROWS, **machine)
    program, target = PROGRAM, machine.get("target", "")
    if target.startswith("thumb"):  # the linker would refuse it beside code for another profile
        objcopy = [compiler[0].replace("gcc", "objcopy"), "--remove-section", ".ARM.attributes"]
        subprocess.run([*objcopy, "--redefine-sym", "sqrtf=soft_sqrtf", tmp_path / "net.o"], check=True)
        program += SOFT
    source = tmp_path / ("main.cpp" if "++" in compiler[0] else "main.c")
    source.write_text(program)
    subprocess.run([*compiler, *STRICT, source, tmp_path / "net.o", "-lm", "-o", tmp_path / "main"], check=True)
    x = given(network, STEPS, ROWS)
    ran = subprocess.run([*runner, tmp_path / "main"], input=x["x"].astype(np.int32).tobytes(), capture_output=True, check=True)
    numbers = STEPS * ROWS * 9 * 4
    output = np.frombuffer(ran.stdout[:numbers], np.float32).reshape(STEPS, ROWS, 9)
    wanted, after = network.run(x)
    np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)
    assert float(ran.stdout[numbers:]) == pytest.approx(after["rnn"].h[1, 2, 6], rel=1e-5)
    wrong = subprocess.run([*runner, tmp_path / "main"], input=np.int32([1, 99, 1]).tobytes(), capture_output=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, b"")


@pytest.mark.skipif(system.system() == "Windows", reason="compilers have other options there")
@pytest.mark.parametrize("options", [pytest.param(o, marks=tools(o[0])) for o in (("cc", "-std=c99"), ("c++", "-std=c++11"))])
def test_here(options, tmp_path):
    check(tmp_path, options)


@pytest.mark.parametrize(
    ("target", "compiler", "emulator"),
    [
        pytest.param(target, compiler, emulator, marks=tools(compiler, emulator), id=target)
        for target, compiler, emulator in (
            ("aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64"),
            ("armv7-linux-gnueabihf", "arm-linux-gnueabihf-gcc", "qemu-arm"),
            ("riscv64-linux-gnu", "riscv64-linux-gnu-gcc", "qemu-riscv64"),
        )
    ],
)
@pytest.mark.parametrize("int8", [False, True])
def test_elsewhere(target, compiler, emulator, int8, tmp_path):
    check(tmp_path, (compiler, "-static"), (emulator,), int8, target=target)


@tools("arm-linux-gnueabihf-gcc", "qemu-arm")
@pytest.mark.parametrize("target", ["thumbv6m-none-eabi", "thumbv7em-none-eabihf"])
@pytest.mark.parametrize("int8", [False, True])
def test_microcontrollers(target, int8, tmp_path):
    """Their code, in a program for a processor that has all of their instructions."""
    check(tmp_path, ("arm-linux-gnueabihf-gcc", "-static"), ("qemu-arm",), int8, target=target)
    told = subprocess.run(["arm-linux-gnueabihf-objdump", "-d", tmp_path / "net.o"], capture_output=True, text=True, check=True)
    assert ("smlad\t" in told.stdout) == (int8 and "v7em" in target)


@tools("aarch64-linux-gnu-gcc", "qemu-aarch64")
def test_products_of_signed_numbers(tmp_path):
    """One instruction for four of them."""
    check(tmp_path, ("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64",), True, target="aarch64-linux-gnu", cpu="neoverse-n1")
    told = subprocess.run(["aarch64-linux-gnu-objdump", "-d", tmp_path / "net.o"], capture_output=True, text=True, check=True)
    assert "sdot\t" in told.stdout


@tools("wasm-ld", "node")
def test_in_web_assembly(tmp_path):
    """Which imports nothing."""
    network = small("lstm")
    aot.export(network, tmp_path / "net.o", batch_size=ROWS, target="wasm32-unknown-unknown")
    names = [f"--export={name}" for name in ("net_begin", "net_step", "__heap_base")]
    linked = ["wasm-ld", "--no-entry", "--initial-memory=2097152", *names, tmp_path / "net.o", "-o", tmp_path / "net.wasm"]
    subprocess.run(linked, check=True)
    (tmp_path / "main.mjs").write_text(SCRIPT)
    x = given(network, STEPS, ROWS)
    (tmp_path / "x").write_bytes(x["x"].astype(np.int32).tobytes())
    ran = subprocess.run(["node", "main.mjs"], cwd=tmp_path, capture_output=True, check=True)
    output = np.frombuffer(ran.stdout, np.float32).reshape(STEPS, ROWS, 9)
    np.testing.assert_allclose(output, network.run(x)[0], rtol=1e-5, atol=1e-6)


SCRIPT = """
import fs from "node:fs";
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync("net.wasm")), {});
const x = new Int32Array(new Uint8Array(fs.readFileSync("x")).buffer);
const shares = exports.__heap_base.value, classes = shares + 1024, stream = classes + 1024;
exports.net_begin(stream);
for (let t = 0; t < x.length; t += 3) {
    new Int32Array(exports.memory.buffer, classes, 3).set(x.subarray(t, t + 3));
    if (exports.net_step(stream, classes, shares)) throw "refused";
    process.stdout.write(new Uint8Array(exports.memory.buffer.slice(shares, shares + 3 * 9 * 4)));
}
"""
