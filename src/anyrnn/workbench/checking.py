"""`anyrnn check`: what is wrong with a cell, how near its kernels are to the reference, how fast it is, and what limits it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from statistics import median
from typing import Any

import numpy as np

from anyrnn import cells
from anyrnn.errors import CellError, UnsupportedError, meant
from anyrnn.ir.graph import Graph, affine_parts
from anyrnn.ir.names import Names, gate_rows, mean_of, written_inputs
from anyrnn.ir.notation import Text
from anyrnn.ir.show import Writer
from anyrnn.numpy import Recurrent
from anyrnn.passes.compile import plan
from anyrnn.sequence.network import check_size
from anyrnn.trace import Cell
from anyrnn.trace.signature import place
from anyrnn.workbench.faults import Fault, faults
from anyrnn.workbench.trials import GRADIENT_ERROR, Trial

STEPS, SAMPLES = 28, 200
"""Of the calls that are timed."""
ROUNDS, CALLS = 5, 3
KERNEL_ERROR = 1e-10
"""Of the kernels in float64 against the reference, as a part of the largest magnitude."""


@dataclass(frozen=True)
class Speed:
    """Milliseconds of a call of a layer and of an LSTM's of the same sizes, timed in turn."""

    milliseconds: float
    lstm: float
    flops: int
    """Of the products with matrices."""
    lstm_flops: int

    def __str__(self) -> str:
        share = self.milliseconds / self.lstm
        rate = self.flops / self.lstm_flops / share
        return f"{self.milliseconds:.2f} ms, {share:.2f} of an LSTM's time; its products at {rate:.2f} of an LSTM's rate"


@dataclass
class Report:
    """What `check` found. It prints as text."""

    name: str
    faults: list[Fault] = field(default_factory=list)
    gradient_error: float | None = None
    not_compared: str = ""
    """The ops because of which the gradient is not held against differences."""
    kernel_error: float | None = None
    no_kernels: str = ""
    """Why there are none."""
    limits: list[str] = field(default_factory=list)
    compile_seconds: float | None = None
    inference: Speed | None = None
    training: Speed | None = None
    about: str = ""

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return not any(fault.severity == "error" for fault in self.faults)

    def __str__(self) -> str:
        lines = [self.name, *(f"  {fault}" for fault in self.faults)]
        if self.gradient_error is not None:
            lines.append(f"  gradient   within {self.gradient_error:.1e} of central differences, in float64")
        elif self.not_compared:
            lines.append(f"  gradient   not compared: {self.not_compared} has not the derivative of its values")
        if self.kernel_error is not None:
            lines.append(f"  kernels    within {self.kernel_error:.1e} of the reference, forward and backward, in float64")
        if self.no_kernels:
            lines.append(f"  kernels    none: {self.no_kernels}")
        if self.limits:
            lines += [f"  {'stages' if not k else '':<9}  {line}" for k, line in enumerate(self.limits)]
        if self.compile_seconds is not None:
            lines.append(f"  compiled   in {self.compile_seconds:.2f} s, forward and backward")
        for label, speed in (("inference", self.inference), ("training", self.training)):
            if speed is not None:
                lines.append(f"  {label:<9}  {speed}")
        if self.about:
            lines.append(f"  ({self.about})")
        if not self.faults:
            lines.append("  no faults found")
        return "\n".join(lines)


def check(spec: Cell | str, *, timed: bool = True, input_size: int = 28, hidden_size: int = 256, **sizes: int) -> Report:
    """Look at a cell: its equations for what is not used or has no gradient, one step at zero and 1000 steps of unit noise for
    what is not finite or grows, its gradient against differences, its kernels against the reference; then time it beside an LSTM.

    Args:
        spec: a Cell, the name of a built-in one, or `my_file.py:my_cell`.
        timed: whether to time it; T = 28 steps of N = 200 samples.
        input_size, hidden_size: features of what is timed.
        sizes: the cell's other named sizes; half of `hidden` where they are not given.

    Raises: ValueError, FileNotFoundError, TypeError when `spec` is no cell, ValueError for a size that the cell has not; what is
    wrong with a cell is in the report.

    Example:
        >>> from anyrnn.workbench import check
        >>> print(check("rnn_tanh", timed=False))  # doctest: +ELLIPSIS
        rnn_tanh
          gradient   within ... of central differences, in float64
          kernels    within ... of the reference, forward and backward, in float64
          stages     1 forward, 1 backward
                     weight_hh·h needs all of h
          no faults found
    """
    try:
        cell = cells.load(spec)
    except CellError as error:
        return Report(str(spec), [_told(error)])
    report = Report(cell.name)
    try:
        graph = cell.trace()
    except Exception as error:  # noqa: BLE001 (whatever the cell's function raises is what is asked for)
        report.faults.append(_told(error) if isinstance(error, CellError) else _raised(cell, error))
        return report
    others = list(graph.other_sizes(hidden_size))
    for name in sizes:
        if name not in others:
            known, slip = ", ".join(others) or "no others", meant(name, [*others, "timed", "input_size", "hidden_size"])
            raise ValueError(f"cell {cell.name!r} has no size {name!r}{slip}; it has {known}")
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size), *sizes.items()):
        check_size(name, size)
    report.faults = list(faults(cell, graph))
    try:
        trial = Trial(cell, graph, input_size, hidden_size, sizes)
    except ValueError as error:  # sizes that do not go together
        report.faults.append(_told(error))
        return report
    try:
        report.faults += trial.faults()
        if not report.ok:
            return report
        _compare(cell, trial, report)
        report.limits = limits(graph)
    except UnsupportedError as error:  # no backend runs it
        report.faults.append(_told(error))
        return report
    if timed and not report.no_kernels:
        _time(cell, graph, input_size, hidden_size, sizes, report)
    return report


def _told(error: Exception) -> Fault:
    """A message that begins with its place."""
    text = str(error)
    path, colon, rest = text.partition(": ")
    place = colon and path.rpartition(":")[2].isdigit()
    return Fault("error", path if place else "", rest if place else text)


def _raised(cell: Cell, error: Exception) -> Fault:
    """Python's own error in the cell's function."""
    file = cell.function.__code__.co_filename
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else place(cell.function)
    return Fault("error", where, f"{type(error).__name__}: {error}")


def _compare(cell: Cell, trial: Trial, report: Report) -> None:
    report.gradient_error = trial.gradient_error()
    report.not_compared = ", ".join(trial.allowed)
    if report.gradient_error is not None and not report.gradient_error <= GRADIENT_ERROR:
        what = f"the gradient differs from central differences by {report.gradient_error:.1e} of its magnitude"
        report.faults.append(Fault("error", place(cell.function), what))
    layer = trial.layer
    inputs, hidden = layer.network.input_size, trial.sizes["hidden"]
    try:
        fast = Recurrent(cell, inputs, hidden, backend="llvm", dtype="float64", seed=0, **trial.others)
    except UnsupportedError as error:
        report.no_kernels = str(error)
        return
    x, further = trial.noise(7)
    results = [_results(one, x, further) for one in (fast, layer)]
    errors = {name: _difference(found, results[1][name]) for name, found in results[0].items()}
    name = max(errors, key=lambda key: (np.isnan(errors[key]), errors[key]))
    report.kernel_error = errors[name]
    if not report.kernel_error <= KERNEL_ERROR:
        report.faults.append(
            Fault(
                "error",
                place(cell.function),
                f"kernels and reference differ in {name} by {report.kernel_error:.1e}: please report it",
            )
        )


def _results(layer: Recurrent, x: Any, further: Any) -> dict[str, Any]:
    forward: Any = layer.forward_training(x, **further)
    y, last, reserve = forward
    backward: Any = layer.backward(reserve, np.cos(y))
    d_inputs, _, gradients = backward
    states, cotangents = (a if isinstance(a, tuple) else (a,) for a in (last, d_inputs))
    return {
        "output": y,
        **{f"state {k}": s for k, s in enumerate(states)},
        **{f"the gradient of input {k}": d for k, d in enumerate(cotangents)},
        **{f"the gradient of {name}": d for name, d in gradients.items()},
    }


def _difference(found: Any, expected: Any) -> float:
    return float(np.abs(found - expected).max(initial=0.0)) / max(1.0, float(np.abs(expected).max(initial=0.0)))


def limits(graph: Graph) -> list[str]:
    """How many all-feature dependencies follow each other in a step, and which they are."""
    made = plan(graph)
    forward, backward = made.inference.stages, made.backward.stages
    own_way = "" if forward else ": each feature goes its own way through the steps"
    return [f"{forward} forward, {backward} backward{own_way}", *chain(graph)]


def chain(graph: Graph) -> list[str]:
    """The longest row of products and sums of a state that need each other's results within a step: what each needs all of."""
    nodes = graph.nodes
    writer = Writer(nodes, Names(nodes, graph.outputs, graph.state_names).names, Text(), gate_rows(graph.parameters))
    best: dict[int, tuple[tuple[int, int], ...]] = {}
    """by node, the (op, operand) pairs on its way from the states"""
    for i, node in enumerate(nodes):
        if node.op == "state":
            best[i] = ()
            continue
        if node.op == "affine":
            pairs = [(operand, operand) for _, operand, _, _ in affine_parts(node)[0]]
        else:
            pairs = [(s, s) for s in written_inputs(nodes, i)]
        known = [(best[s], s) for s, _ in pairs if s in best]
        if not known:
            continue
        before, operand = max(known, key=lambda pair: len(pair[0]))
        needs = node.row.kind in ("linear", "reduction") or node.op == "norm" or mean_of(nodes, i) is not None
        best[i] = (*before, (i, operand)) if needs and nodes[operand].shape else before
    ends = [i for name, i in graph.outputs if name in graph.state_names and i in best]
    longest = max((best[i] for i in ends), key=len, default=())
    return [_needs(graph, writer, op, operand) for op, operand in longest]


def _needs(graph: Graph, writer: Writer, op: int, operand: int) -> str:
    node, text = graph.nodes[op], writer.piece(operand).text
    what = writer.formula(op).text
    if node.op == "affine":
        terms = [(m, v, t, h) for m, v, t, h in affine_parts(node)[0] if v == operand]
        matrix, vector, transposed, heads = terms[0]
        what = writer.notation.product(writer.piece(matrix), heads, transposed, writer.piece(vector)).text
    return f"{what} needs all of {text}"


def _time(cell: Cell, graph: Graph, input_size: int, hidden_size: int, sizes: dict[str, int], report: Report) -> None:
    more: dict[str, Any] = dict(graph.other_sizes(hidden_size, sizes))
    width = hidden_size if graph.input_size_name == "hidden" else input_size
    layer = Recurrent(cell, width, hidden_size, backend="llvm", seed=0, **more)
    lstm = Recurrent("lstm", width, hidden_size, backend="llvm", seed=0)
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS, SAMPLES, width)).astype(np.float32)
    further = {name: random.uniform(size=(STEPS, SAMPLES, n)).astype(np.float32) for name, n in layer.network.further_inputs}
    calls = {"inference": (_inference(layer, x, further), _inference(lstm, x, {}))}
    calls["training"] = (_training(layer, x, further), _training(lstm, x, {}))
    start = time.perf_counter()
    calls["training"][0]()
    report.compile_seconds = time.perf_counter() - start
    flops, lstm_flops = (_flops(one) for one in (layer, lstm))
    for name, pair in calls.items():
        ours, theirs = _in_turn(pair)
        factor = 3 if name == "training" else 1
        setattr(report, name, Speed(1e3 * ours, 1e3 * theirs, factor * flops, factor * lstm_flops))
    report.about = (
        f"T = {STEPS}, N = {SAMPLES}, D = {width}, H = {hidden_size}, float32; ratios move where others use the machine"
    )


def _flops(layer: Recurrent) -> int:
    """Of the products of all steps."""
    graph, sizes = layer.network.graph, layer.network.layer_sizes(0)
    return 2 * STEPS * SAMPLES * sum(prod(d.evaluate(sizes) for d in graph.nodes[m].shape) for m, _ in graph.products)


def _inference(layer: Recurrent, x: Any, further: Any) -> Callable[[], object]:
    return lambda: layer(x, **further)


def _training(layer: Recurrent, x: Any, further: Any) -> Callable[[], object]:
    def call() -> object:
        y, _, reserve = layer.forward_training(x, **further)
        return layer.backward(reserve, y)

    return call


def _in_turn(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of each: the median of the fastest call in some rounds, in turn."""
    fastest: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for k, call in enumerate(calls):
            call()
            seconds = []
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
            fastest[k].append(min(seconds))
    return [median(times) for times in fastest]
