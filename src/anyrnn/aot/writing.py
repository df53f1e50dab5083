"""A network as an object file and its header."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from anyrnn import backends
from anyrnn._files import written_aside
from anyrnn.aot.header import header, identifier
from anyrnn.aot.module import ObjectModule
from anyrnn.backends.llvm.platforms import platform
from anyrnn.errors import MissingExtraError, UnsupportedError
from anyrnn.numpy.parameters import taken
from anyrnn.runtime.layers import Recurrent
from anyrnn.runtime.network import Input, Network
from anyrnn.sequence.network import check_size

SUFFIXES = (".o", ".obj")
"""Of object files."""
MOST_BYTES = 2**31


def export(
    layer: Any,
    file: str | os.PathLike[str],
    *,
    batch_size: int = 1,
    target: str | None = None,
    cpu: str | None = None,
    name: str | None = None,
) -> Path:
    """Write a network as an object file, and a header beside it, by which C and C++ call it step after step.

    The file holds the parameters and the code of a step. No memory is allocated and no thread is started. It needs `memcpy`, and
    what compilers bring for instructions that a processor has not: `floorf`, `sqrtf`, divisions of 64-bit integers (32-bit ARM),
    floating-point arithmetic. With `cpu="native"` a layer's results have the bits of its `stream`; softmax, norms and functions
    differ from NumPy's by rounding.

    Args:
        layer: `anyrnn.runtime.Network`, `anyrnn.Recurrent`, or a module of `anyrnn.torch`; float32 or float64, of layers that go
            step after step. Of those that give the last step alone a step gives the last so far, as in `Network.stream`.
            Of one that is `in_int8` (or frozen so) matrices take a quarter of the room, and a step a byte of the stack for each
            feature that a product multiplies, of a sample or of as many as 64 KB hold.
        file: the object file, `.o` or `.obj`; the header has the same name with `.h`.
        batch_size: how many sequences go on side by side, N.
        target: the machine, as an LLVM triple: `aarch64-linux-gnu`, `arm64-apple-macos`, `x86_64-pc-windows-msvc`,
            `thumbv7em-none-eabihf`, `riscv64-linux-gnu`, `wasm32-unknown-unknown`. By default this system.
        cpu: LLVM's name of the processor, by default the least of that architecture; or `native`, this one with all that it has.
            Of x86-64 it is one of `x86-64`, `x86-64-v3` (with AVX2) and `x86-64-v4` (with AVX-512), where a step takes about
            half the time.
        name: what the names of the functions begin with; by default the file's name.

    Returns: the header's path.

    Raises: OSError; MissingExtraError without llvmlite; TypeError for what is no layer; ValueError for unknown machines, names
        that C does not take, and networks that need whole sequences; UnsupportedError for layers without kernels.

    Example:
        >>> import anyrnn, anyrnn.aot, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> written = anyrnn.aot.export(anyrnn.Recurrent("gru", 3, 5, seed=0), folder / "gru.o", target="aarch64-linux-gnu")
        >>> [line for line in written.read_text().splitlines() if "gru_step" in line]
        ['int gru_step(gru_stream *stream, const float *in_x, float *out_output);']
    """
    path = Path(file)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: an object file should end in {' or '.join(SUFFIXES)}; compilers make libraries of it")
    for who, text in (("target", target), ("cpu", cpu), ("name", name)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{who} should be text, got a {type(text).__name__}")
    name = named(path, name)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name should be one that C takes, got {name!r}")
    check_size("batch_size", batch_size)
    try:
        backends.native()
    except ImportError as error:
        raise MissingExtraError(f"object files are made by LLVM, and {error}") from None
    network = layer if isinstance(layer, Network) else _network(layer)
    inputs = [given.name for given in network.inputs]
    for output in network.outputs:
        if output in inputs:
            raise UnsupportedError(f"{output} is an input and an output; the outputs of an object file are what layers give")
    widest = max(spec.size or 1 for spec in network.specs.values())
    if batch_size * widest * network.dtype.itemsize >= MOST_BYTES:
        raise ValueError(f"batch_size {batch_size}: a value of {widest} features would take 2 GiB or more")
    module = ObjectModule(name, network, batch_size, platform(target, cpu))
    code, told = module.object_code(), path.with_suffix(".h")
    with written_aside(path) as aside, written_aside(told) as aside_told:
        aside.write_bytes(code)
        aside_told.write_bytes(header(module, network).encode("utf-8", "backslashreplace"))
    return told


def named(path: Path, name: str | None) -> str:
    """What the names of an object file's functions begin with."""
    if name is not None:
        return name
    return identifier(path.stem if any(c.isascii() and c.isalnum() for c in path.stem) else "network")


def _network(layer: Any) -> Network:
    """Of a single layer, whose output is called as no input is."""
    try:
        network, parameters = taken(layer)
    except TypeError as error:
        raise TypeError(f"{error}; several layers are an anyrnn.runtime.Network") from None
    inputs = [name for name, _ in network.graph.inputs]
    name = next(name for name in ("output", "result", "layer") if name not in inputs)
    sizes = [network.input_size, *(size for _, size in network.further_inputs)]
    found = Network([Input(*each) for each in zip(inputs, sizes, strict=True)], [Recurrent.of(name, inputs, layer)])
    if not parameters:
        found.dtype = np.dtype(str(layer.initial_state(1).arrays[0].dtype).removeprefix("torch."))
    return found
