"""Other machines than this one, for which object files are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anyrnn.backends.llvm import target
from anyrnn.backends.llvm.target import LOCK, Machine


@dataclass(frozen=True)
class Platform:
    """A machine, and how LLVM is told of it: a triple (which says the ABI and the kind of object file), a processor, features."""

    triple: str
    processor: str
    """for people"""
    cpu: str
    flags: str
    abi: str
    machine: Machine

    def object_code(self, text: str, programs: Mapping[str, str]) -> bytes:
        """A module as an object file whose code may stand anywhere, and in it programs whose `stack` it calls by their names."""
        import llvmlite.binding as llvm

        with LOCK.now, target.addresses_as_written():
            made = llvm.Target.from_triple(self.triple).create_target_machine(
                cpu=self.cpu, features=self.flags, opt=target.OPTIMISATION, reloc="pic", codemodel="default", abiname=self.abi
            )
            layout = str(made.target_data)
            whole = self._parsed(text, layout)
            for name, program in programs.items():
                parsed = self._parsed(program, layout)
                parsed.get_function("stack").name = name
                whole.link_in(parsed)
                whole.get_function(name).linkage = "internal"
            return bytes(made.emit_object(whole))

    def _parsed(self, text: str, layout: str) -> Any:
        parsed = target.parse(text)
        parsed.triple, parsed.data_layout = self.triple, layout
        return parsed


@dataclass(frozen=True)
class Architecture:
    """Of processors: what kernels are shaped for, and what LLVM is told of the least of them; `others` may be named, some of
    which want other `shapes`.
    """

    machine: Machine
    cpu: str = ""
    flags: str = ""
    abi: str = ""
    others: tuple[str, ...] = ()
    shapes: Mapping[str, Machine] = field(default_factory=dict)


_SSE2 = Machine(frozenset({"sse2"}), vector_bytes=16, registers=16, fused=False)
_AVX2 = replace(_SSE2, vector_bytes=32, fused=True)
_X86 = {"x86-64-v3": _AVX2, "x86-64-v4": replace(_AVX2, vector_bytes=64, registers=32)}
_NEON = Machine(frozenset({"neon"}), vector_bytes=16, registers=32, fused=True)
_DOTPROD = (
    *("apple-m1", "apple-m2", "apple-m3", "apple-m4", "cortex-a55", "cortex-a76", "cortex-a78"),
    *("neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2"),
)
"""Processors that multiply numbers of eight bits, four in a lane."""
_AARCH64 = Architecture(
    _NEON,
    flags="+neon",
    others=(*_DOTPROD, "cortex-a53", "cortex-a72"),
    shapes=dict.fromkeys(_DOTPROD, replace(_NEON, features=frozenset({"neon", "dotprod"}))),
)
_ARMV7 = Architecture(
    Machine(frozenset(), vector_bytes=16, registers=16, fused=False),
    flags="+neon",
    others=("cortex-a7", "cortex-a9", "cortex-a15"),
)
_SINGLE = Machine(frozenset(), vector_bytes=16, registers=8, fused=False, single=True)  # of numbers, 32 of them
_DSP = replace(_SINGLE, features=frozenset({"dsp"}))
ARCHITECTURES = {
    "x86_64": Architecture(_SSE2, "x86-64", "-prefer-256-bit", others=tuple(_X86), shapes=_X86),
    "aarch64": _AARCH64,
    "arm64": _AARCH64,
    "armv7": _ARMV7,
    "armv7a": _ARMV7,
    "thumbv6m": Architecture(_SINGLE, "cortex-m0", others=("cortex-m0plus",)),
    "thumbv7m": Architecture(_SINGLE, "cortex-m3"),
    "thumbv7em": Architecture(_DSP, "cortex-m4", others=("cortex-m7",)),
    "thumbv8m.main": Architecture(_DSP, "cortex-m33", others=("cortex-m35p",)),
    "riscv32": Architecture(_SINGLE, flags="+m,+c", abi="ilp32"),
    "riscv64": Architecture(replace(_SINGLE, fused=True), flags="+m,+a,+f,+d,+c", abi="lp64d", others=("sifive-u74",)),
    "wasm32": Architecture(replace(_SINGLE, registers=16, single=False), flags="+simd128,+bulk-memory"),
}
"""By the first part of a triple."""
NATIVE = "native"


def platform(triple: str | None = None, cpu: str | None = None) -> Platform:
    """That of a triple such as `aarch64-linux-gnu`, by default this system's, and of a processor, by default the least of its
    architecture. `native` is this very processor.

    Raises: ImportError where llvmlite is missing; ValueError for systems and processors that are not known.
    """
    import llvmlite.binding as llvm

    here = target.machine()
    with LOCK.now:
        own, flags = str(llvm.get_default_triple()), target.host_flags()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    if cpu == NATIVE:
        if triple not in (None, own):
            raise ValueError(f"cpu {cpu!r} is this processor, for {own} alone; got target {triple!r}")
        told = f"{here.cpu}, which others may not be like"
        return Platform(own, told, "", flags, "", replace(here, one_thread=True))
    if triple is not None and not re.fullmatch(r"[A-Za-z0-9_.]+(-[A-Za-z0-9_.]+)*", triple):
        raise ValueError(f"target {triple!r}: expected words with hyphens between them, such as aarch64-linux-gnu")
    first = (triple or own).split("-")[0]
    if first not in ARCHITECTURES:
        hint = "; a Cortex-M4 is thumbv7em-none-eabihf, and Linux armv7-linux-gnueabihf" if first.startswith("arm") else ""
        raise ValueError(f"target {triple or own!r}: the first part should be one of {', '.join(ARCHITECTURES)}{hint}")
    found = ARCHITECTURES[first]
    known = tuple(filter(None, (found.cpu, *found.others, NATIVE)))
    if cpu is not None and cpu not in known:
        raise ValueError(f"cpu {cpu!r}: of {first} it should be one of {', '.join(known)}")
    machine = replace(found.shapes.get(cpu or "", found.machine), one_thread=True)
    cpu = cpu or found.cpu
    return Platform(_whole(triple or own), cpu or f"any {first}", cpu, found.flags, found.abi, machine)


_COMPUTERS = ("x86_64", "aarch64", "arm64")
SYSTEMS = {
    "linux": (*_COMPUTERS, "armv7", "armv7a", "riscv32", "riscv64"),
    "windows": _COMPUTERS,
    "macosx": _COMPUTERS,
    "darwin": _COMPUTERS,
    "wasi": ("wasm32",),
    "unknown": tuple(ARCHITECTURES),
}
"""As LLVM calls them, and what they run on; `unknown` is a machine without one."""
SPELLED = ("linux", "windows", "mingw32", "macos", "darwin", "wasi", "unknown", "none", "elf", "pc")
"""What the parts of triples begin with that name systems, or none; `pc` is a vendor whatever the system."""


def _whole(triple: str) -> str:
    """A triple with all its parts. Raises: ValueError for what LLVM does not know, and would take for another system."""
    import llvmlite.binding as llvm

    first, *others = triple.split("-")
    with LOCK.now:
        parts = llvm.get_triple_parts(triple)
    vendor = others[:1] if parts.OS != "unknown" else []  # which is any word
    known = all(part.startswith(SPELLED) or part in (parts.Env, *vendor) for part in others)
    if not known or parts.Env == "gnux32" or first not in SYSTEMS.get(parts.OS, ()):
        raise ValueError(f"target {triple!r}: LLVM has no such system; such are linux-gnu, windows-msvc, apple-macos and none")
    if parts.Vendor == "apple":
        return triple  # with the version of the system, which the parts have not
    return "-".join([first, parts.Vendor, parts.OS, *([] if parts.Env == "unknown" else [parts.Env])])
