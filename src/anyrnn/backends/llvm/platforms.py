"""Other machines than this one, for which object files are made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anyrnn.backends.llvm import target
from anyrnn.backends.llvm.target import LOCK, OPTIMISATION, Machine


@dataclass(frozen=True)
class Platform:
    """A machine, and how LLVM is told of it: a triple (which says the ABI and the kind of object file), a processor, features."""

    triple: str
    cpu: str
    flags: str
    abi: str
    machine: Machine

    def object_code(self, texts: Sequence[str], hidden: Sequence[str]) -> bytes:
        """Modules as one object file whose code may stand anywhere; functions that are `hidden` are known inside alone."""
        import llvmlite.binding as llvm

        with LOCK.now, target.addresses_as_written():
            made = llvm.Target.from_triple(self.triple).create_target_machine(
                cpu=self.cpu, features=self.flags, opt=OPTIMISATION, reloc="pic", codemodel="default", abiname=self.abi
            )
            first, *others = [self._parsed(text, str(made.target_data)) for text in texts]
            for other in others:
                first.link_in(other)
            for name in hidden:
                first.get_function(name).linkage = "internal"
            return bytes(made.emit_object(first))

    def _parsed(self, text: str, layout: str) -> Any:
        parsed = target.parse(text)
        parsed.triple, parsed.data_layout = self.triple, layout
        return parsed


@dataclass(frozen=True)
class Architecture:
    """Of processors: what kernels are shaped for, and what LLVM is told of the least of them, or of any that has no name.

    `levels` are the processors that can be named where there are such; else LLVM's names of them, `cpu` being the usual one.
    """

    machine: Machine
    cpu: str = ""
    flags: str = ""
    abi: str = ""
    levels: Mapping[str, Machine] = field(default_factory=dict)


_X86 = Machine(frozenset({"sse2"}), vector_bytes=16, registers=16, fused=False)
_X86_LEVELS = {
    "x86-64": _X86,
    "x86-64-v3": replace(_X86, vector_bytes=32, fused=True),
    "x86-64-v4": replace(_X86, vector_bytes=64, registers=32, fused=True),
}
_NEON = Architecture(Machine(frozenset({"neon"}), vector_bytes=16, registers=32, fused=True), flags="+neon")
_ARM = Architecture(Machine(frozenset(), vector_bytes=16, registers=16, fused=False), flags="+neon")
_CORTEX_M = Machine(frozenset(), vector_bytes=16, registers=8, fused=False)  # which has single numbers, 32 of them
_RISCV = Machine(frozenset(), vector_bytes=16, registers=8, fused=True)  # likewise
_WASM = Machine(frozenset(), vector_bytes=16, registers=16, fused=False)
ARCHITECTURES = {
    "x86_64": Architecture(_X86, "x86-64", "-prefer-256-bit", levels=_X86_LEVELS),
    "aarch64": _NEON,
    "arm64": _NEON,
    "armv7": _ARM,
    "armv7a": _ARM,
    "thumbv7em": Architecture(_CORTEX_M, cpu="cortex-m4"),
    "thumbv8m.main": Architecture(_CORTEX_M, cpu="cortex-m33"),
    "riscv64": Architecture(_RISCV, flags="+m,+a,+f,+d,+c", abi="lp64d"),
    "wasm32": Architecture(_WASM, flags="+simd128,+bulk-memory"),
}
"""By the first part of a triple."""
VENDORS = ("unknown", "pc", "apple")


def platform(triple: str | None = None, cpu: str | None = None) -> Platform:
    """That of a triple such as `aarch64-linux-gnu` and of a processor, by default this machine with all that its processor has.

    Raises: ImportError where llvmlite is missing; ValueError for architectures and processors that are not known.
    """
    import llvmlite.binding as llvm

    here = target.machine()
    if triple is None and cpu is None:
        return Platform(llvm.get_default_triple(), "", target.host_flags(), "", replace(here, one_thread=True))
    first, *others = (triple or llvm.get_default_triple()).split("-")
    if first not in ARCHITECTURES:
        raise ValueError(f"target {triple!r}: the first part should be one of {', '.join(ARCHITECTURES)}")
    found = ARCHITECTURES[first]
    if found.levels and cpu and cpu not in found.levels:
        raise ValueError(f"cpu {cpu!r}: of {first} it should be one of {', '.join(found.levels)}")
    # compilers let one leave out the vendor; LLVM would take what is next for one
    whole = "-".join([first, *([] if others and others[0] in VENDORS else ["unknown"]), *others])
    with LOCK.now:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    if cpu and not found.levels:
        _check_processor(whole, cpu)
    machine = found.levels.get(cpu or "", found.machine)
    return Platform(whole, cpu or found.cpu, found.flags, found.abi, replace(machine, one_thread=True))


def _check_processor(triple: str, cpu: str) -> None:
    """Raises ValueError for names that LLVM does not know: it would tell a terminal, and then end the process or go on."""
    code = "import sys, llvmlite.binding as llvm; llvm.initialize_all_targets(); llvm.initialize_all_asmprinters(); "
    code += "llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu=sys.argv[2]).emit_object(llvm.parse_assembly(''))"
    asked = subprocess.run([sys.executable, "-c", code, triple, cpu], capture_output=True, text=True, check=False)
    if asked.returncode or "is not a recognized processor" in asked.stderr:
        raise ValueError(f"cpu {cpu!r}: LLVM knows no such processor of {triple}")
