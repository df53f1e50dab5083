"""The header of an object file, for C and C++."""

from __future__ import annotations

from collections.abc import Iterable

from anyrnn.aot.module import ObjectModule
from anyrnn.runtime.network import Network

JOINED_KEYWORDS = {
    *("and_eq", "char16_t", "char32_t", "char8_t", "co_await", "co_return", "co_yield", "const_cast", "dynamic_cast", "not_eq"),
    *("or_eq", "reinterpret_cast", "static_assert", "static_cast", "thread_local", "wchar_t", "xor_eq"),
}
"""Those of C++ that have an underscore within, as the names of states have."""
TYPES = {"float32": "float", "float64": "double"}


def header(module: ObjectModule, network: Network) -> str:
    """Its text."""
    name, rows, type = module.name, module.rows, TYPES[module.dtype.name]
    guard = f"ANYRNN_{name}_H"
    states = identifiers(f"{state.layer}_{state.name}" for state in module.states)
    fields = [f"    {type} {field}{_sides(s.first.shape)};" for field, s in zip(states, module.states, strict=True)]
    arguments, told = [f"{name}_stream *stream"], []
    inputs: dict[str, int | None] = {given.name: given.size for given in module.inputs}
    outputs: dict[str, int | None] = {output: module.sizes[output] for output in module.outputs}
    for direction, sizes in (("in", inputs), ("out", outputs)):
        for argument, size in zip(identifiers(f"{direction}_{n}" for n in sizes), sizes.values(), strict=True):
            kind = "int32_t" if size is None else type
            arguments.append(f"{'const ' if direction == 'in' else ''}{kind} *{argument}")
            told.append(f" *   {argument}: {kind} {_sides((rows,) if size is None else (rows, size))}")
    refused = " * Returns 0; or 1 for an integer that is no class, before it does anything. */"
    lines = [
        f"/* Made by anyrnn for {module.platform.triple}: {module.platform.processor}.",
        " *",
        *(f" *   {line}" for line in _described(network, rows)),
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"/* Sequences that go on from step to step, {rows} side by side: their states, [layers][{rows}][features] each,",
        " * which are all that is kept between steps, and room to work in. It may be copied, and the states read, kept in a",
        " * file and written between steps; one thread at a time uses it. */",
        "typedef struct {",
        *fields,
        f"    unsigned char work[{module.work_bytes}];",
        f"}} {name}_stream;",
        "",
        "/* Begin new sequences: the states get their first values. */",
        f"void {name}_begin({name}_stream *stream);",
        "",
        "/* The next step, of arrays whose last index changes fastest, and of which none overlaps another one:",
        *told,
        refused if None in inputs.values() else " * Returns 0. */",
        f"int {name}_step({', '.join(arguments)});",
        "",
        "/* sizeof(stream), for other languages than C. */",
        f"int {name}_stream_bytes(void);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {guard} */",
    ]
    return "\n".join(lines) + "\n"


def _described(network: Network, rows: int) -> list[str]:
    """The layers of one step."""
    found = []
    for layer in network.layers:
        sides = _sides((rows, network.specs[layer.name].size or 1))
        found.append(f"{layer.name} = {layer.as_code}({', '.join(layer.inputs)})  {sides}")
    return [line.replace("*/", "* /").replace("/*", "/ *") for line in "\n".join(found).splitlines()]


def identifier(text: str) -> str:
    """A name as C takes it."""
    found = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
    if found in JOINED_KEYWORDS:
        return f"{found}_"
    return f"_{found}" if not found or found[0].isdigit() else found


def identifiers(names: Iterable[str]) -> list[str]:
    """Names as C takes them, each once."""
    found: list[str] = []
    for name in map(identifier, names):
        while name in found:
            name += "_"
        found.append(name)
    return found


def _sides(shape: Iterable[int]) -> str:
    return "".join(f"[{n}]" for n in shape)
