"""`explain`: how a layer's call runs, and why no faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyrnn import backends

if TYPE_CHECKING:
    from anyrnn.sequence.network import Network

PASSES = {"inference": "inference", "training": "forward", "backward": "backward"}
"""Programs, and what they are called here."""


@dataclass(frozen=True)
class Seen:
    """What a call is to its layer."""

    layer: str
    network: Network
    dtype: str
    steps: int
    rows: int
    programs: tuple[str, ...]
    """that are run: inference, or training and backward, or all that may be"""
    why_not_native: str | None
    interpreter: str
    """what runs where no kernels do"""
    beside: str
    """what is always run by it"""
    memory_budget: int | None
    counts: tuple[int, ...] | None = None
    """samples that have each step, where not all have"""


@dataclass(frozen=True)
class Pass:
    """How native kernels run one pass over a network.

    Args:
        name: inference, forward (of a training call) or backward.
        threads: how many work.
        split: what is divided among them: `columns` of the weights, `samples`, or either by layer; None for one thread.
        barriers: how often they wait for each other in a step of a layer.
        work_bytes: memory that is needed while it runs.
    """

    name: str
    threads: int
    split: str | None
    barriers: int
    work_bytes: int

    def __str__(self) -> str:
        if self.split is None:
            return "1 thread"
        waits = f"{self.barriers} barrier{'s' * (self.barriers != 1)} a step" if self.barriers else "no barriers"
        return f"{self.threads} threads, each with its {self.split}: {waits}"


@dataclass(frozen=True)
class Explanation:
    """How a layer's call runs; `print` shows it.

    Args:
        call: the layer and the sizes of the call.
        backend: `llvm` or `reference`.
        why_not_native: why no native kernels run, or None.
        passes: of native kernels, one after the other.
        kept_bytes: what a training call keeps for its backward pass.
        interpreter: what runs where no kernels do.
        beside: what it always runs.
    """

    call: str
    backend: str
    why_not_native: str | None
    passes: tuple[Pass, ...]
    kept_bytes: int
    interpreter: str
    beside: str

    def __str__(self) -> str:
        if self.why_not_native:
            rows = [("backend", f"{self.backend}: {self.interpreter}, because {self.why_not_native}")]
        else:
            rows = [("backend", f"{self.backend}: native kernels"), *((p.name, str(p)) for p in self.passes)]
            rows += [("kept", f"{_bytes(self.kept_bytes)} for the backward pass")] if self.kept_bytes else []
            rows += [("work", f"{_bytes(max(p.work_bytes for p in self.passes))} while it runs")]
            rows += [("beside", f"{self.beside} run on {self.interpreter}")] if self.beside and self.kept_bytes else []
        return "\n".join([self.call, *(f"  {name:<10}{text}" for name, text in rows)])


def explain(layer: Any, input: Any) -> Explanation:
    """How a call of a layer with an input would run now, and why no faster. Nothing is computed, but kernels are compiled.

    Args:
        layer: a layer or module of anyrnn, for NumPy or torch.
        input: what it would be called with. Of torch's, whether gradients are asked for counts.

    Raises: what a call with this input would raise for its shape or dtype; TypeError for a layer that is none of ours.

    Example:
        >>> import anyrnn, numpy as np
        >>> layer = anyrnn.Recurrent("lstm", 3, 5, backend="reference")
        >>> print(anyrnn.explain(layer, np.zeros((7, 2, 3), np.float32)))
        Recurrent(lstm, 3, 5, backend='reference'), 7 steps of 2 samples, float32
          backend   reference: the interpreter on NumPy, because backend='reference' was asked for
    """
    look = getattr(layer, "_seen", None)
    if look is None:
        kind, of_torch = type(layer), type(layer).__module__.startswith("torch.nn")
        hint = " of torch.nn; see anyrnn.torch.swap" if of_torch else ""
        raise TypeError(f"explain is for layers of anyrnn, got {kind.__name__}{hint}")
    seen: Seen = look(input)
    samples = f"{'up to ' * (seen.counts is not None)}{seen.rows} sample{'s' * (seen.rows != 1)}"
    call = f"{seen.layer}, {seen.steps} step{'s' * (seen.steps != 1)} of {samples}, {seen.dtype}"
    if seen.why_not_native:
        return Explanation(call, "reference", seen.why_not_native, (), 0, seen.interpreter, seen.beside)
    return Explanation(call, "llvm", None, _passes(seen), _kept(seen), seen.interpreter, seen.beside)


def _passes(seen: Seen) -> tuple[Pass, ...]:
    native, found = backends.native(), []
    extent = native.Extent(seen.steps, seen.rows, counts=seen.counts)
    for program in seen.programs:
        ways = [native.way(part, program, seen.dtype, extent) for part in seen.network.parts]
        threads, columns = max(w.threads for w in ways), {c for w in ways for c in w.columns}
        split = {(True,): "columns", (False,): "samples"}.get(tuple(columns), "columns or samples") if threads > 1 else None
        barriers = max(w.barriers for w in ways) if True in columns else 0
        found.append(Pass(PASSES[program], threads, split, barriers, max(w.work_bytes for w in ways)))
    return tuple(found)


def _kept(seen: Seen) -> int:
    if "training" not in seen.programs:
        return 0
    native = backends.native()
    total = seen.steps * seen.rows if seen.counts is None else sum(seen.counts)
    budgets = native.shares(seen.network.parts, seen.memory_budget)
    parts = zip(seen.network.parts, budgets, strict=True)
    return sum(native.kept_bytes(part, seen.dtype, total, seen.rows, budget) for part, budget in parts)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
