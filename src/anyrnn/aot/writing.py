"""A network as an object file and its header."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from anyrnn import backends
from anyrnn._files import written_aside
from anyrnn.aot.header import header, identifier
from anyrnn.aot.lowering import lowered
from anyrnn.aot.module import ObjectModule
from anyrnn.backends.llvm.platforms import platform
from anyrnn.errors import MissingExtraError, UnsupportedError
from anyrnn.runtime.layers import Recurrent
from anyrnn.runtime.network import Input, Network
from anyrnn.sequence.network import check_size


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

    The file holds the parameters and the code of a step, for this machine or another one. No memory is allocated and no thread
    is started; of a C library it needs `memcpy`, and `floorf` or `floor` for cells with `floor` on processors without one. On a
    processor such as this one a layer's results have the bits of its `stream`.

    Args:
        layer: `anyrnn.runtime.Network`, `anyrnn.Recurrent`, or a module of `anyrnn.torch`; float32 or float64, of layers that go
            step after step.
        file: the object file; the header has the same name with `.h`.
        batch_size: how many sequences go on side by side, N.
        target: the machine, as an LLVM triple: `aarch64-linux-gnu`, `arm64-apple-macos`, `x86_64-pc-windows-msvc`,
            `thumbv7em-none-eabihf`, `riscv64-linux-gnu`, `wasm32-unknown-unknown`. By default this one with all that its
            processor has, which others may lack.
        cpu: LLVM's name of the processor; by default the least of that architecture. Of x86-64 it is one of `x86-64`,
            `x86-64-v3` (with AVX2) and `x86-64-v4` (with AVX-512).
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
    name = identifier(path.stem) if name is None else name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name should be one that C takes, got {name!r}")
    check_size("batch_size", batch_size)
    try:
        backends.native()
    except ImportError as error:
        raise MissingExtraError(f"object files are made by LLVM, and {error}") from None
    told = path.with_suffix(".h")
    if told == path:
        raise ValueError(
            f"{path} is where the header goes; the object file should end otherwise, such as {path.with_suffix('.o')}"
        )
    network = layer if isinstance(layer, Network) else _network(layer)
    operations, inputs = lowered(network), {given.name: given.size for given in network.inputs}
    for output in network.outputs:
        if output in inputs:
            raise UnsupportedError(f"{output} is an input and an output; the outputs of an object file are what layers give")
    module = ObjectModule(name, operations, inputs, network.outputs, network.dtype, batch_size, platform(target, cpu))
    code = module.platform.object_code(module.texts(), module.hidden)
    with written_aside(path) as aside:
        aside.write_bytes(code)
    with written_aside(told) as aside:
        aside.write_text(header(module, repr(network)))
    return told


def _network(layer: Any) -> Network:
    """Of a single layer."""
    output = Recurrent.of("output", [], layer)
    network = output.network
    output.inputs = tuple(name for name, _ in network.graph.inputs)
    sizes = [network.input_size, *(size for _, size in network.further_inputs)]
    return Network([Input(name, size) for name, size in zip(output.inputs, sizes, strict=True)], [output])
