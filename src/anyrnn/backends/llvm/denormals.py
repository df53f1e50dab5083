"""Emits what makes numbers too small for a full mantissa count as zero while kernels run: a state that decays into them would
make a step many times slower on some processors. The caller's mode comes back afterwards.
"""

from __future__ import annotations

from anyrnn.backends.llvm.builder import I64, PTR, Function, Value, i64
from anyrnn.backends.llvm.target import Machine

X86_BITS = 1 << 15 | 1 << 6
"""of MXCSR: results, and operands"""
ARM_BITS = 1 << 24
"""of FPCR: both"""


def flush_denormals(b: Function, machine: Machine) -> Value | None:
    """Set the mode of this thread; what it was, for `restore_mode`."""
    if "sse2" in machine.features:
        b.module.declare("llvm.x86.sse.stmxcsr", "void", [PTR])
        place = b.value(PTR, "alloca i32, align 4", "mode")
        b.line(f"call void @llvm.x86.sse.stmxcsr({place.typed})")
        mode = b.load("i32", place, "mode")
        _load_mode(b, b.binary("or", mode, Value(str(X86_BITS), "i32"), "flushing"))
        return mode
    if "neon" in machine.features:
        b.module.declare("llvm.aarch64.get.fpcr", I64, [])
        mode = b.value(I64, "call i64 @llvm.aarch64.get.fpcr()", "mode")
        _set_fpcr(b, b.binary("or", mode, i64(ARM_BITS), "flushing"))
        return mode
    return None


def restore_mode(b: Function, machine: Machine, mode: Value | None) -> None:
    """Give this thread the mode that it had."""
    if mode is not None:
        (_load_mode if "sse2" in machine.features else _set_fpcr)(b, mode)


def _load_mode(b: Function, mode: Value) -> None:
    b.module.declare("llvm.x86.sse.ldmxcsr", "void", [PTR])
    place = b.value(PTR, "alloca i32, align 4", "mode")
    b.store(mode, place)
    b.line(f"call void @llvm.x86.sse.ldmxcsr({place.typed})")


def _set_fpcr(b: Function, mode: Value) -> None:
    b.module.declare("llvm.aarch64.set.fpcr", "void", [I64])
    b.line(f"call void @llvm.aarch64.set.fpcr({mode.typed})")
