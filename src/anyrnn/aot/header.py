"""The header of an object file, for C and C++."""

from __future__ import annotations

from collections.abc import Iterable

from anyrnn.aot.module import ObjectModule

TYPES = {"float32": "float", "float64": "double"}


def header(module: ObjectModule, described: str) -> str:
    """`described`: the network, for people."""
    name, rows, type = module.name, module.rows, TYPES[module.dtype.name]
    guard = f"{name.upper()}_H"
    states = identifiers(f"{state.layer}_{state.name}" for state in module.states)
    fields = [f"    {type} {field}{_sides(s.first.shape)};" for field, s in zip(states, module.states, strict=True)]
    arguments, told = [f"{name}_stream *stream"], []
    outputs: dict[str, int | None] = {output: module.sizes[output] for output in module.outputs}
    for direction, sizes in (("in", module.inputs), ("out", outputs)):
        for argument, size in zip(identifiers(f"{direction}_{n}" for n in sizes), sizes.values(), strict=True):
            kind = "int32_t" if size is None else type
            arguments.append(f"{'const ' if direction == 'in' else ''}{kind} *{argument}")
            told.append(f" *   {argument}: {kind} {_sides((rows,) if size is None else (rows, size))}")
    platform = ", ".join(filter(None, (module.platform.triple, module.platform.cpu)))
    lines = [
        f"/* Made by anyrnn for {platform}.",
        " *",
        *(f" * {line.replace('*/', '* /')}" for line in described.splitlines()),
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
        f"/* Sequences that go on from step to step, {rows} side by side: the states, which are all that is kept between",
        " * steps, and room to work in. It may stand anywhere, be copied and be kept in a file; one thread at a time uses it. */",
        "typedef struct {",
        *fields,
        f"    unsigned char work[{module.work_bytes}];",
        f"}} {name}_stream;",
        "",
        "/* Begin new sequences: the states get their first values. */",
        f"void {name}_begin({name}_stream *stream);",
        "",
        "/* The next step, of arrays whose last index changes fastest:",
        *told,
        " * Returns 0; or 1 for an integer that is no class, before it does anything. */",
        f"int {name}_step({', '.join(arguments)});",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {guard} */",
    ]
    return "\n".join(lines) + "\n"


def identifier(text: str) -> str:
    """A name as C takes it."""
    found = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
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
