"""What a run found, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from benchmarks.measure import Timing, geometric_mean
from benchmarks.prove import Proof
from benchmarks.result import OURS, Ceilings, Result, middle
from benchmarks.run import Settings
from benchmarks.suite import STREAMS
from benchmarks.targets import Run, missed

NOTHING = "-"


@dataclass(frozen=True)
class Report:
    """A whole run."""

    settings: Settings
    results: Sequence[Result]
    ceilings: Ceilings
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    compiles: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds of compiling by cell: with nothing on disk, with everything."""
    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Bytes that a call needs beside what it is given, at the most, by row and system."""
    proofs: Sequence[Proof] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Peers that were asked for and are not here, and why."""
    failures: Sequence[str] = ()
    """What could not be measured, beside rows."""

    @property
    def sound(self) -> bool:
        """No row is wrong or failed, nor anything else, and the proofs hold."""
        rows = all(r.status in ("ok", "declined") for r in self.results)
        return rows and not self.failures and all(p.holds for p in self.proofs)

    @property
    def missed(self) -> list[str]:
        run = Run(self.results, self.ceilings, self.settings.threads, self.machine["second_cache_bytes"])
        return [*missed(run, self.compiles), *self._memory_missed()]

    def _memory_missed(self) -> Iterator[str]:
        training = [result.row.name for result in self.results if result.row.mode == "training"]
        for row, found in self.memory.items():
            if row in training and found.keys() >= {OURS, "torch"} and found["torch"] < found[OURS]:
                ours, torch = found[OURS] / 2**20, found["torch"] / 2**20
                yield f"{row}: a step takes {ours:.1f} MiB at the most, should be no more than torch's {torch:.1f} MiB"

    def geometric_means(self) -> dict[str, dict[str, float]]:
        """For each mode, of the ratios to each peer and to the best."""
        found: dict[str, dict[str, float]] = {}
        for mode in dict.fromkeys(r.row.mode for r in self.results):
            rows = [r for r in self.results if r.row.mode == mode]
            columns = {peer: [r.ratios[peer] for r in rows if peer in r.ratios] for peer in self.settings.peers}
            columns["best"] = [r.ratio_to_best for r in rows if r.ratio_to_best is not None]
            means = {name: geometric_mean(ratios) for name, ratios in columns.items()}
            found[mode] = {name: mean for name, mean in means.items() if mean is not None}
        return found


LEGEND = """\
of peak: of the rate of a library's large product, timed in turn with the row; of arithmetic: of what the registers allow
of read: for few samples, the time to read the weights (or to multiply by them) as often as the row must, over ours
ratio: the peer's time over ours, above 1 anyrnn is faster; best: against the quickest peer"""


def text(report: Report) -> str:
    """Everything, for reading."""
    parts = [_head(report), _table(report), LEGEND]
    parts += ["\n".join(lines)] if (lines := _remarks(report)) else []
    parts += [_means(report)]
    if report.compiles:
        lines = [["compile, forward and backward", "cold s", "from disk s"]]
        lines += [[cell, f"{cold:.3f}", f"{cached:.3f}"] for cell, (cold, cached) in report.compiles.items()]
        parts.append(aligned(lines))
    if report.memory:
        systems = list(dict.fromkeys(system for found in report.memory.values() for system in found))
        lines = [["memory of a call at the most, MiB", *systems]]
        for row, found in report.memory.items():
            lines.append([row, *(f"{found[s] / 2**20:.1f}" if s in found else NOTHING for s in systems)])
        parts.append(aligned(lines))
    if report.proofs:
        parts.append(_proofs(report.proofs))
    parts.append("\n".join(["below target:", *(f"  {line}" for line in report.missed or ["nothing"])]))
    return "\n\n".join(part for part in parts if part)


def _head(report: Report) -> str:
    machine, ceilings, settings = report.machine, report.ceilings, report.settings
    peak = f"{settings.dtype} at most {ceilings.arithmetic / 1e9:.0f} GF/s" if ceilings.arithmetic else "no row timed"
    read = f"; memory is read at {ceilings.memory / 1e9:.0f} GB/s" if ceilings.memory else ""
    load = f"; load {machine['load']:.1f} at the start" if machine["load"] is not None else ""
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores; {settings.threads} threads; {peak}{read}{load}",
        ", ".join(f"{name} {number}" for name, number in report.versions.items()),
    ]
    lines += [f"peer {name}: {reason}" for name, reason in report.missing.items()]
    return "\n".join(lines)


def _table(report: Report) -> str:
    peers = report.settings.peers
    streams = any(r.row.mode in STREAMS for r in report.results)
    head = ["T x N x D x H", "ms", "p10 - p90", *(["p50 us", "p99 us"] if streams else [])]
    head += ["us/step", "GF/s", "of peak", "of arithmetic", "of read"]
    head += [*(title for peer in peers for title in (f"{peer} ms", "ratio")), "best"]
    lines = [head]
    for result in report.results:
        if result.status != "ok":
            lines.append([result.row.name, result.status.upper()])
            continue
        ours = result.timings[OURS]
        line = [result.row.name, _milliseconds(ours), f"{ours.percentile(10) * 1e3:.3f} - {ours.percentile(90) * 1e3:.3f}"]
        if streams:
            line += [f"{ours.percentile(p) * 1e6:.1f}" if result.row.mode in STREAMS else NOTHING for p in (50, 99)]
        line += [f"{ours.median * 1e6 / result.row.steps:.1f}", f"{(result.rate or 0) / 1e9:.1f}"]
        fractions = [result.peak_fraction, result.arithmetic_fraction(report.ceilings), result.bandwidth_fraction]
        line += map(_number, fractions)
        for peer in peers:
            timing = result.timings.get(peer)
            line += [_milliseconds(timing), _number(result.ratios.get(peer))] if timing else [NOTHING, NOTHING]
        lines.append([*line, _number(result.ratio_to_best)])
    return aligned(lines)


def _remarks(report: Report) -> list[str]:
    lines = [f"{r.status.upper()} {r.row.name}: {r.reason}" for r in report.results if r.status != "ok"]
    lines += [f"{result.row.name}: {note}" for result in report.results for note in result.notes]
    return lines + [f"FAILED {failure}" for failure in report.failures]


def _means(report: Report) -> str:
    means = report.geometric_means()
    columns = [*report.settings.peers, "best"]
    lines = [["geometric mean of ratios", *columns]]
    lines += [[mode, *(_number(found.get(column)) for column in columns)] for mode, found in means.items() if found]
    return aligned(lines) if len(lines) > 1 else ""


def _proofs(proofs: Sequence[Proof]) -> str:
    lines = [["in blocks / alone", "system", "ms in blocks", "ms alone", "ratio", ""]]
    for proof in proofs:
        verdict = "" if proof.holds else "NOT WITHIN 10 %"
        lines.append(
            [proof.row, proof.system, f"{proof.together * 1e3:.3f}", f"{proof.alone * 1e3:.3f}", f"{proof.ratio:.2f}", verdict]
        )
    return aligned(lines)


def _milliseconds(timing: Timing) -> str:
    return f"{timing.median * 1e3:.3f}"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns under each other: the first to the left, numbers to the right."""
    widths = [0] * max(map(len, lines))
    for line in lines:
        for column, cell in enumerate(line):
            widths[column] = max(widths[column], len(cell))
    return "\n".join(
        "  ".join(c.rjust(w) if k else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=False))).rstrip()
        for line in lines
    )


def data(report: Report) -> dict[str, Any]:
    """Everything, for programs. Times are in milliseconds."""
    settings = report.settings
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": dict(report.machine),
        "versions": dict(report.versions),
        "settings": asdict(settings),
        "arithmetic_gflops": report.ceilings.arithmetic and report.ceilings.arithmetic / 1e9,
        "memory_gigabytes_per_second": report.ceilings.memory and report.ceilings.memory / 1e9,
        "picoseconds_of_an_element": {op: seconds * 1e12 for op, seconds in report.ceilings.ops.items()},
        "missing_peers": dict(report.missing),
        "rows": [_row(result, report.ceilings) for result in report.results],
        "geometric_means": report.geometric_means(),
        "compile_seconds": {cell: {"cold": cold, "cached": cached} for cell, (cold, cached) in report.compiles.items()},
        "memory_bytes": {row: dict(found) for row, found in report.memory.items()},
        "proofs": [{**asdict(proof), "ratio": proof.ratio, "holds": proof.holds} for proof in report.proofs],
        "failures": list(report.failures),
        "below_target": report.missed,
    }


def _row(result: Result, ceilings: Ceilings) -> dict[str, Any]:
    found: dict[str, Any] = {"name": result.row.name, **asdict(result.row), "status": result.status, "reason": result.reason}
    found["notes"] = list(result.notes)
    found["first_call_seconds"] = dict(result.first_seconds)
    if result.status != "ok":
        return found
    seconds = result.timings[OURS].median
    return found | {
        "systems": {name: _timing(timing) for name, timing in result.timings.items()},
        "flops": result.flops,
        "weight_bytes": result.weight_bytes,
        "microseconds_per_step": seconds * 1e6 / result.row.steps,
        "gflops": (result.rate or 0) / 1e9,
        "step_bytes": result.step_bytes,
        "array_bytes": result.array_bytes,
        "elements": dict(result.elements),
        "input_flops": result.input_flops,
        "product_gflops": _billions(result.product_rates),
        "lstm_gflops": _billions(result.lstm_rates),
        "input_gflops": _billions(result.input_rates),
        "read_gigabytes_per_second": _billions(result.read_rates),
        "peak_fraction": result.peak_fraction,
        "arithmetic_fraction": result.arithmetic_fraction(ceilings),
        "bandwidth_fraction": result.bandwidth_fraction,
        "ratios": result.ratios,
        "ratio_to_best": result.ratio_to_best,
    }


def _billions(rates: Sequence[float]) -> float | None:
    """The rate of the middle round."""
    rate = middle(rates)
    return rate and rate / 1e9


def _timing(timing: Timing) -> dict[str, Any]:
    return {
        "median_ms": timing.median * 1e3,
        **{f"p{percent}_ms": timing.percentile(percent) * 1e3 for percent in (10, 90, 99)},
        "block_medians_ms": [block * 1e3 for block in timing.block_medians],
        "calls": len(timing.samples),
    }
