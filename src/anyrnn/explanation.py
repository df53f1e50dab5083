"""`explain`: how a layer's call runs, and why no faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyrnn import backends

if TYPE_CHECKING:
    from anyrnn.sequence.network import Network

PASSES = {"inference": "inference", "training": "forward", "backward": "backward"}
"""Programs, and what they are called here."""


@dataclass(frozen=True)
class Launches:
    """How a device's kernels run the steps of one pass.

    Args:
        name: inference, forward (of a training call) or backward.
        blocks, samples: in how many blocks of how many samples the batch is taken.
        columns: how many programs share the features of each block.
        barriers: how often these wait for each other in a step.
        multiprocessors: of the device.
        scans: whether there is no loop, but scans over time.
        weights: where programs have those that they multiply by in every step, and why; empty where there are none.
        again: as of `Pass`.
    """

    name: str
    blocks: int
    samples: int
    columns: int
    barriers: int
    multiprocessors: int
    scans: bool = False
    weights: str = ""
    again: float = 0.0

    def __str__(self) -> str:
        if self.scans:
            return f"all steps at once: states by a parallel scan over time, as they are affine in themselves{_told(self.again)}"
        samples = f"{self.blocks} block{'s' * (self.blocks != 1)} of {self.samples} samples on {self.multiprocessors}"
        of_device = f"{samples} multiprocessor{'s' * (self.multiprocessors != 1)}"
        rest = f"{self.weights and f'; {self.weights}'}{_told(self.again)}"
        if self.columns == 1:
            return f"{of_device}, a program for each: no barriers{rest}"
        waits = f"{self.barriers} barrier{'s' * (self.barriers != 1)} a step" if self.barriers else "no barriers"
        return f"{of_device}, {self.columns} programs for each, with their columns: {waits}{rest}"


@dataclass(frozen=True)
class Seen:
    """What a call is to its layer."""

    layer: str
    programs: Mapping[str, Network]
    """that the call may run, each with the network that it runs: inference, or training and backward, or all three; none where
    no sample has a step"""
    dtype: str
    """that is computed in"""
    steps: int
    rows: int
    counts: tuple[int, ...] | None
    """samples that have each step, where not all have"""
    memory_budget: int | None
    why_not_native: str | None
    interpreter: str
    """what runs where no kernels do"""
    beside: str
    """what is always run by it"""
    batch: str = ""
    """how samples that have different steps are taken"""
    launches: tuple[Launches, ...] = ()
    """of a device's kernels, one for each program; else those of the CPU run"""
    kept_bytes: int = 0
    """what a device's training call keeps for its backward pass"""
    choice: str = ""
    """between a device's backends, and why"""
    on_cudnn: bool = False
    """whether calls like it are run by cuDNN"""
    faster: str = ""
    """what would make a device's kernels faster"""
    widened: str = ""
    """the dtype of what is given, if it is another"""
    products: str = ""
    """what those of float32 are made of, if that is something else: `bfloat16` or `int8`"""
    roomy: Sequence[str] = ()
    """the programs whose native calls have room for other batches of about this size"""

    @property
    def native_dtype(self) -> str:
        """What the native backend calls it."""
        return str(backends.native().said(self.dtype, self.products))

    @property
    def total(self) -> int:
        """Rows of all steps."""
        return self.steps * self.rows if self.counts is None else sum(self.counts)

    @property
    def extent(self) -> Any:
        """The native backend's."""
        return backends.native().Extent(self.steps, self.rows, self.counts)

    def room(self, program: str) -> Any:
        """The extent that memory is for."""
        return self.extent.room if program in self.roomy else self.extent


class Stopped(BaseException):
    """Ends a call that is made to be seen alone, before its first step; nothing on the way that catches exceptions takes it."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen


def told_of_packing(steps: int, segments: int) -> str:
    """What `explain` says of a batch whose samples' steps are run as packed rows."""
    return f"packed: {steps} steps in {segments} segment{'s' * (segments != 1)}"


@dataclass(frozen=True)
class Pass:
    """How native kernels run one pass over a network.

    Args:
        name: inference, forward (of a training call) or backward.
        threads: how many work.
        split: what is divided among them: `columns` of the weights, `samples`, or either by layer; `direction` where each thread
            does one, and both where several threads do each; None for one thread.
        barriers: how often they wait for each other in a step of a layer.
        work_bytes: memory that is needed while it runs.
        again: the share of the steps that a backward pass computes again, within a memory budget.
    """

    name: str
    threads: int
    split: str | None
    barriers: int
    work_bytes: int
    again: float = 0.0

    def __str__(self) -> str:
        if self.split is None:
            return f"1 thread{_told(self.again)}"
        waits = f"{self.barriers} barrier{'s' * (self.barriers != 1)} a step" if self.barriers else "no barriers"
        return f"{self.threads} threads, each with its {self.split}: {waits}{_told(self.again)}"


def _told(again: float) -> str:
    return f"; {again:.0%} of the steps are computed again" if again else ""


@dataclass(frozen=True)
class Explanation:
    """How a layer's call runs; `print` shows it.

    Args:
        call: the layer and the sizes of the call.
        backend: `llvm`, `triton`, `cudnn` or `reference`.
        why_not_native: why no native kernels run, or None.
        passes: of native kernels or a device's, one after the other.
        kept_bytes: what a training call keeps for its backward pass; 0 where no gradient is asked for.
        interpreter: what runs where no kernels do.
        beside: what it always runs.
        batch: how samples that have different steps are taken; empty where all have all steps.
        choice: between a device's backends, and why; empty on a CPU.
        faster: what would make a device's kernels faster, if anything is known.
    """

    call: str
    backend: str
    why_not_native: str | None
    passes: tuple[Pass | Launches, ...]
    kept_bytes: int
    interpreter: str
    beside: str
    batch: str = ""
    choice: str = ""
    faster: str = ""

    def __str__(self) -> str:
        if self.why_not_native:
            rows = [("backend", f"{self.backend}: {self.interpreter}, because {self.why_not_native}")]
        elif self.backend == "cudnn":
            rows = [("backend", "cudnn: cuDNN's own network, through torch"), ("choice", self.choice)]
            rows += [("batch", self.batch)] if self.batch else []
        elif not self.passes:
            rows = [("backend", f"{self.backend}: nothing to compute, as no sample has a step")]
        else:
            rows = [("backend", f"{self.backend}: {'generated' if self.backend == 'triton' else 'native'} kernels")]
            rows += [("choice", self.choice)] if self.choice else []
            rows += [("batch", self.batch)] if self.batch else []
            rows += [(p.name, str(p)) for p in self.passes]
            rows += [("faster", self.faster)] if self.faster else []
            rows += [("kept", f"{_bytes(self.kept_bytes)} for the backward pass")] if self.kept_bytes else []
            work = [p.work_bytes for p in self.passes if isinstance(p, Pass)]
            rows += [("work", f"{_bytes(max(work))} while it runs")] if work else []
            rows += [("beside", f"{self.beside} run on {self.interpreter}")] if self.beside and self.kept_bytes else []
        return "\n".join([self.call, *(f"  {name:<10}{text}" for name, text in rows)])


def explain(layer: Any, /, *given: Any, **call: Any) -> Explanation:
    """How a call of a layer would run now, and why no faster. No step is computed, but kernels are compiled.

    Args:
        layer: a layer or module of anyrnn, for NumPy, torch, JAX or Keras.
        given, call: what it would be called with, a layer for JAX with parameters first. For torch's modules it matters whether
            gradients are enabled.

    Returns: an Explanation; print it. Raises: what such a call would raise before its first step, and UnsupportedError for a
    memory_budget that is too small to train, whatever the call; TypeError for a layer that is none of ours.

    Example:
        >>> import anyrnn, numpy as np
        >>> layer = anyrnn.Recurrent("lstm", 3, 5, backend="reference")
        >>> print(anyrnn.explain(layer, np.zeros((7, 2, 3), np.float32)))
        Recurrent(lstm, 3, 5, backend='reference'), 7 steps of 2 samples, float32
          backend   reference: the interpreter on NumPy, because backend='reference' was asked for
    """
    if type(layer).__module__ == "anyrnn.runtime.recurrent":
        layer = layer.runner
    look = None if isinstance(layer, type) else getattr(layer, "_seen", None)
    if look is None:
        kind = layer if isinstance(layer, type) else type(layer)
        hints = {
            "torch.nn.modules.rnn": " of torch.nn; see anyrnn.torch.swap",
            "anyrnn.runtime.network": " of anyrnn.runtime; its layers can be told of, each as network.recurrent[name]",
        }
        hint = hints.get(kind.__module__, " (the class)" if kind is layer else "")
        if not hint and hasattr(layer, "named_modules"):
            inside = ", ".join(name for name, part in layer.named_modules() if hasattr(part, "_seen"))
            hint = f"; those in it are {inside} (its get_submodule gives them)" * bool(inside)
        raise TypeError(f"explain is for layers of anyrnn, got {kind.__name__}{hint}")
    seen: Seen = look(*given, **call)
    samples = f"{'up to ' * (seen.counts is not None)}{seen.rows} sample{'s' * (seen.rows != 1)}"
    steps = f"{seen.steps} step{'s' * (seen.steps != 1)} of {samples}" if seen.programs else "no steps"
    computed_in = (
        seen.dtype + f" with products of {seen.products}" * bool(seen.products) + f" for {seen.widened}" * bool(seen.widened)
    )
    told = f"{seen.layer}, {steps}, {computed_in}"
    if seen.why_not_native:
        return Explanation(told, "reference", seen.why_not_native, (), 0, seen.interpreter, seen.beside, seen.batch)
    if seen.launches:
        rest = (seen.interpreter, seen.beside, seen.batch, seen.choice)
        if seen.on_cudnn:
            return Explanation(told, "cudnn", None, (), 0, *rest)
        return Explanation(told, "triton", None, seen.launches, seen.kept_bytes, *rest, seen.faster)
    passes = tuple(_pass(seen, program, network) for program, network in seen.programs.items())
    kept = 0
    if "training" in seen.programs:
        of_training, sizes = seen.programs["training"], (seen.room("training").total, seen.rows)
        kept = backends.native().kept_by_parts(of_training, seen.native_dtype, *sizes, seen.memory_budget)
    return Explanation(told, "llvm", None, passes, kept, seen.interpreter, seen.beside, seen.batch)


def _pass(seen: Seen, program: str, network: Network) -> Pass:
    native = backends.native()
    budgets = native.shares(network.parts, seen.memory_budget if program != "inference" else None)
    parts = list(zip(network.parts, budgets, strict=True))
    ways = [native.way(part, program, seen.native_dtype, seen.extent, budget, seen.room(program)) for part, budget in parts]
    threads, columns = max(w.threads for w in ways), {c for w in ways for c in w.columns}
    split = None
    if threads > 1:
        split = "columns or samples" if len(columns) > 1 else "columns" if columns == {True} else "samples"
        if all(w.abreast > 1 for w in ways):
            split = "direction" if all(w.abreast == w.threads for w in ways) else f"direction and its {split}"
    again = sum(w.again for w in ways) / len(ways) if program == "backward" else 0.0
    return Pass(PASSES[program], threads, split, max(w.barriers for w in ways), max(w.work_bytes for w in ways), again)


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "kB", "MB"):
        if value < 999.5:
            return f"{value:.3g} {unit}" if count != 1 else "1 byte"
        value /= 1000
    return f"{value:.3g} GB"
