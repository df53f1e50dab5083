"""The machine that the kernels run on, and how text becomes code there. Without llvmlite it can be imported, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from anyrnn._locks import AwaitedLock
from anyrnn.backends.llvm.builder import Module

LOCK = AwaitedLock()
"""Around all that LLVM does."""


FAR_BYTES = 2**23
"""Weights of more bytes come from memory in every step, or from a last cache that others use too."""


@dataclass(frozen=True)
class Fetching:
    """How many bytes `ahead` weights are fetched. Not where recurrent ones have no more bytes than `near`, or than `near_few` for
    few rows: those arrive soon enough unasked. `few_in_two`: few rows multiply two blocks at once of what they would fetch,
    instead of fetching it, see `few_rows` (but of int8).
    """

    ahead: int
    near: int = FAR_BYTES
    near_few: int = FAR_BYTES
    few_in_two: bool = False


@dataclass(frozen=True)
class Processor:
    """What was measured of a processor. Of one that nothing was measured of, what is here by default."""

    fetching: Fetching | None = None
    """how far ahead which weights are fetched; None: not at all"""
    tile_ahead: bool = False
    """Short products fetch what the next tile touches, and not what their own does: cells without other products gain by it on
    Zen 4, and lose on Emerald Rapids.
    """
    strips_of_a_block: bool = False
    """Strips of several tiles pay also where a group has a single block of weights, which stays in the first cache anyway: cells
    without other products gain by it on Zen 5, and lose on Emerald Rapids, where a tile's stores drain while the next one's
    products are made.
    """
    halved: bool = False
    """a vector of 64 bytes is multiplied in halves"""
    multiplies_pairs: bool = False
    """Pairs of bfloat16 numbers are multiplied at the rate of single float32 ones, so that products take half the time."""


PROCESSORS = {
    "znver3": Processor(Fetching(8192)),
    "znver4": Processor(tile_ahead=True, halved=True, multiplies_pairs=True),  # reads what is fetched more slowly
    "znver5": Processor(Fetching(12288, few_in_two=True), strips_of_a_block=True),
    "emeraldrapids": Processor(Fetching(8192, near=2**17)),  # weights in its second cache come too slowly, too
}
"""By LLVM's name. Processors that object files are made for are in `platforms`."""


@dataclass(frozen=True)
class Machine:
    """What kernels are shaped for."""

    features: frozenset[str]
    vector_bytes: int
    registers: int
    fused: bool
    cpu: str = ""
    """LLVM's name of the processor, which can be wrong in a virtual machine: good for speed, and for whether products that may be
    of pairs of bfloat16 numbers are.
    """
    one_thread: bool = False
    """calls are made on one thread, always: nothing waits, and nothing of the system is called"""
    most_rows: int | None = None
    """samples of a step at the most, where that is known: no tile is higher, and no strip longer"""

    single: bool = False
    """the processor has no vectors: it computes with their numbers one by one"""

    @property
    def has_caches(self) -> bool:
        """Whether data and code come through caches: it pays to ask for what comes next, and where loops begin matters."""
        return not self.single

    @property
    def low_tiles(self) -> bool:
        """Whether tiles are so low that the loop around a feature's products takes a good part of their time, that a piece of
        weights takes less time than the next one needs to come, and that weights come too slowly from the second cache.
        """
        return self.registers < 32

    @property
    def wide(self) -> bool:
        """Whether vectors of 64 bytes are multiplied as fast as shorter ones, so that weights come too slowly from the second
        cache, and what outer products read next too late.
        """
        return self.vector_bytes == 64 and not self.processor.halved

    @property
    def has_pairs(self) -> bool:
        """Whether there are products of pairs of bfloat16 numbers."""
        return "avx512bf16" in self.features and self.vector_bytes == 64

    @property
    def multiplies_pairs(self) -> bool:
        """Whether they are worth it."""
        return self.has_pairs and self.processor.multiplies_pairs

    @property
    def unsigned_fours(self) -> bool:
        """Whether one instruction multiplies four unsigned numbers of eight bits by signed ones in each lane."""
        if self.vector_bytes == 64:
            return "avx512vnni" in self.features
        return {"avx512vnni", "avx512vl"} <= self.features or "avxvnni" in self.features

    @property
    def signed_fours(self) -> bool:
        """Whether one instruction multiplies four signed numbers of eight bits by others in each lane."""
        return "dotprod" in self.features and self.vector_bytes == 16

    @property
    def multiplying(self) -> int:
        """Registers for sums and what is multiplied. Without a fused multiply-add a product needs one of its own."""
        return self.registers if self.fused else self.registers - 1

    @property
    def processor(self) -> Processor:
        return PROCESSORS.get(self.cpu, Processor())

    @property
    def far_in_two(self) -> bool:
        """Whether few rows multiply two blocks of far weights at once, instead of fetching them. Not with few registers."""
        fetching = self.processor.fetching
        return fetching is not None and fetching.few_in_two and not self.low_tiles

    @property
    def strips_of_a_block(self) -> bool:
        """Whether rows go in strips of several tiles also where weights are a single block."""
        return self.low_tiles or self.processor.strips_of_a_block

    def lanes(self, element_bytes: int) -> int:
        return self.vector_bytes // element_bytes


@lru_cache(maxsize=1)
def machine() -> Machine:
    """The host, from its feature flags. LLVM does not tell them on every system; what 64-bit ARM always has is known without.

    Raises: ImportError where llvmlite is missing.
    """
    import llvmlite.binding as llvm

    with LOCK.now:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        features = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
        triple, cpu = llvm.get_default_triple(), llvm.get_host_cpu_name()
    if triple.startswith(("aarch64", "arm64")):
        features |= {"neon"}
    if "avx512f" in features and "avx512vl" in features:
        return Machine(features, 64, 32, True, cpu)
    if "avx2" in features:
        return Machine(features, 32, 16, "fma" in features, cpu)
    if "neon" in features:
        return Machine(features, 16, 32, True, cpu)
    return Machine(features, 16, 16, "fma" in features, cpu)


OPTIMISATION = 2
"""The code generator's level. 0 compiles four times as fast, for tests."""


def _target_machine() -> Any:
    import llvmlite.binding as llvm

    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu="", features=host_flags(), opt=OPTIMISATION)


def host_flags() -> str:
    """What this processor has, as LLVM is told it."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return ",".join(filter(None, [features.flatten(), *(["-prefer-256-bit"] if features.get("sse2") else [])]))


def parse(module: Module | str) -> Any:
    import llvmlite.binding as llvm

    text = str(module)
    try:
        parsed = llvm.parse_assembly(text)
        parsed.verify()
    except RuntimeError as error:
        raise AssertionError(f"generated code is not LLVM IR: {error}\n{_context(text, str(error))}") from error
    return parsed


def _context(text: str, message: str) -> str:
    """The lines around the one that a parser's message names."""
    words = message.split(":")
    number = next((int(w) for w in words if w.strip().isdigit()), None)
    lines = text.splitlines()
    return "\n".join(lines[max(0, number - 4) : number + 2]) if number else text[:2000]


def identity() -> str:
    """What code depends on beside its text."""
    import llvmlite
    import llvmlite.binding as llvm

    here = machine()
    with LOCK.now:
        built = f"{llvmlite.__version__} {llvm.llvm_version_info} {llvm.get_default_triple()}"
    return f"{built} {OPTIMISATION} {sorted(here.features)} {here.processor}"


@contextmanager
def addresses_as_written() -> Iterator[None]:
    """Meanwhile the code generator does not look for cheaper addresses in loops (loop strength reduction), which takes half of
    its time and gains nothing here. LLVM has no such choice for one module; another user of LLVM in this process gets right
    code meanwhile, and LLVM's default afterwards.
    """
    import llvmlite.binding as llvm

    llvm.set_option("anyrnn", "-disable-lsr=true")
    try:
        yield
    finally:
        llvm.set_option("anyrnn", "-disable-lsr=false")


def object_code(module: Module | str) -> bytes:
    """A module as machine code, to be loaded here or in another process on such a machine.

    No pass of LLVM's middle end runs: the text is written in the form that they would bring it to, and they take five times as
    long as the code generator for no gain in speed.
    """
    machine()
    with LOCK.now, addresses_as_written():
        return bytes(_target_machine().emit_object(parse(module)))


def load(binary: bytes, *names: str) -> list[int]:
    """Machine code for as long as the process lives, for a thread may run in it until then: addresses of what has these names."""
    import llvmlite.binding as llvm

    machine()
    with LOCK.now:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(binary))
        engine.finalize_object()
        addresses = [engine.get_global_value_address(name) for name in names]
        engine.detach()
        return addresses


@lru_cache(maxsize=1)
def _linker() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(_target_machine(), use_jit_link=True)


LINKED: list[Any] = []
"""What was loaded by `link`, for as long as the process lives."""


def link(binary: bytes, *names: str) -> list[int]:
    """The same of an object file, whose parts have to stand near each other as they do in a program: `load` puts them anywhere,
    which in a process with many libraries is too far.
    """
    import llvmlite.binding as llvm

    machine()
    with LOCK.now:
        builder = llvm.JITLibraryBuilder().add_object_img(binary).add_current_process()
        for name in names:
            builder.export_symbol(name)
        LINKED.append(builder.link(_linker(), f"object.{len(LINKED)}"))
        return [LINKED[-1][name] for name in names]


def compile_module(module: Module | str, *names: str) -> list[int]:
    """A module as machine code, likewise."""
    return load(object_code(module), *names)


def assembly(module: Module | str) -> str:
    """The machine code of a module, as text."""
    machine()
    with LOCK.now, addresses_as_written():
        return str(_target_machine().emit_assembly(parse(module)))
