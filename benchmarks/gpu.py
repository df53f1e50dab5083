"""Checks and measures on a CUDA device: `python -m benchmarks.gpu`, or `make gpu`. Needs torch and Triton, and nothing of LLVM.

First what is right, then what is fast; within MINUTES, after which what is left is named. The file is written after every item,
so that what was found stays when a run is stopped.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

try:
    import torch
    import triton
    from torch import Tensor
except ImportError as error:
    raise SystemExit(
        f"python -m benchmarks.gpu: {error}. It needs torch for CUDA and Triton in the Python that runs it: "
        "make gpu PYTHON=/path/to/python"
    ) from None

import anyrnn.torch
from anyrnn import cells
from anyrnn.backends.cudnn import run as cudnn
from anyrnn.backends.triton import launch, split, unit
from anyrnn.backends.triton.device import device_of
from anyrnn.backends.triton.split import Blocks
from benchmarks.machine import versions
from benchmarks.suite import DIGITS, Row, rows_of

MINUTES = 8.5
ROUNDS, SECONDS = 5, 0.02
"""Of the timing of a call: blocks, and how long each is at least."""
MODULES = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn_tanh": torch.nn.RNN,
    "rnn_relu": partial(torch.nn.RNN, nonlinearity="relu"),
}
CHECKED = (
    *("rnn_tanh", "gru", "lstm", "gru_before", "lstm_layernorm", "mgu", "indrnn", "mingru", "lru", "slstm", "lstm_heads"),
    "cornn",
)
SHAPES = ((5, 3, 4, 6), (9, 33, 7, 70), (20, 16, 64, 256))
"""T, N, D, H"""
FAILED = "FAILED"
"""Begins what is said of an item that raised."""
RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Of the largest magnitude, how far kernels and the interpreter on the same device may differ; TF32 does by more."""


@dataclass
class Report:
    """What was found, in a file."""

    file: Path
    deadline: float
    data: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.data, indent=1) + "\n", encoding="utf-8")

    def items(self, what: str, wanted: Callable[[], Iterator[tuple[str, Callable[[], Any]]]]) -> None:
        """Each by name; what raises is told, and what comes too late is named."""
        found = self.data.setdefault(what, {})
        late = self.data.setdefault("not_measured", [])
        try:
            items = list(wanted())
        except Exception as error:  # noqa: BLE001  a part that breaks must not take the others with it
            items = [("all of it", partial(_raise, error))]
        for name, make in items:
            if time.monotonic() > self.deadline:
                late.append(f"{what}: {name}")
                continue
            try:
                found[name] = make()
            except Exception as error:  # noqa: BLE001  nor an item
                found[name] = failed(error)
            print(f"{what}: {name}: {found[name]}", flush=True)
            self.write()

    @property
    def broken(self) -> list[str]:
        """What raised, in whole or of a row one system."""
        named = [(f"{what}: {name}", found) for what in PARTS for name, found in self.data[what].items()]
        return [name for name, found in named if any(str(v).startswith(FAILED) for v in _values(found))]


def _values(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, dict) else [found]


def _raise(error: Exception) -> None:
    raise error


def failed(error: Exception) -> str:
    return f"{FAILED} {type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1][:300]}"


# what is right


def check_reading(*how: Any) -> str:
    """The same of programs that hold no weights."""
    device = replace(device_of(torch.device("cuda")), shared_bytes=0)
    with patch.object(unit, "device_of", return_value=device):
        return check(*how)


def check(
    cell: str,
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    call: dict[str, Any],
    ours: str = "triton",
    **options: Any,
) -> str:
    """A backend against the interpreter on the same device: outputs, states and every gradient."""
    steps, samples, features, hidden = shape
    graph = cells.load(cell).trace()
    sizes = graph.other_sizes(hidden)
    results = []
    for backend in (ours, "reference"):
        torch.manual_seed(0)
        module = anyrnn.torch.Recurrent(cell, features, hidden, backend=backend, dtype=dtype, device="cuda", **sizes, **options)
        x = torch.randn(steps, samples, features, dtype=dtype, device="cuda", requires_grad=True)
        further = {name: torch.rand(steps, samples, n, dtype=dtype, device="cuda") for name, n in module.network.further_inputs}
        torch.manual_seed(1)
        output, last = module(x, **further, **call)
        made = [output, *(last if isinstance(last, tuple) else (last,))]
        torch.autograd.backward(made, [torch.cos(t.detach()) for t in made])
        named = {f"result {k}": t.detach() for k, t in enumerate(made)} | {"d x": x.grad}
        results.append(named | {name: p.grad for name, p in module.named_parameters() if p.grad is not None})
    found, expected = results
    worst = max((_distance(found[name], value), name) for name, value in expected.items())
    return f"{'ok' if worst[0] <= RELATIVE[dtype] else 'WRONG'} {worst[0]:.1e} of the largest ({worst[1]})"


def _distance(found: Tensor, expected: Tensor) -> float:
    distance = (found - expected).abs().max().item() / max(1.0, expected.abs().max().item())
    return distance if distance == distance else float("inf")


def check_repeats(shape: tuple[int, int, int, int]) -> str:
    """Twice the same call has the same bits."""
    steps, samples, features, hidden = shape
    module = anyrnn.torch.LSTM(features, hidden, device="cuda", backend="triton")
    x = torch.randn(steps, samples, features, device="cuda")
    found = []
    for _ in range(2):
        module.zero_grad()
        module(x)[0].square().sum().backward()
        found.append([p.grad.clone() for p in module.parameters()])
    same = all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    return "ok" if same else "WRONG: other bits"


def check_budget(shape: tuple[int, int, int, int]) -> str:
    """What is computed again has the bits that it has when it is kept."""
    steps, samples, features, hidden = shape
    x, found = torch.randn(steps, samples, features, device="cuda"), []
    for share in (None, 0.7):
        torch.manual_seed(0)
        module = anyrnn.torch.LSTM(features, hidden, device="cuda", backend="triton")
        if share is not None:
            module.memory_budget = int(share * anyrnn.explain(module, x).kept_bytes)
        module(x)[0].square().sum().backward()
        found.append([p.grad for p in module.parameters()])
    same = all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    return "ok" if same else "WRONG: other bits"


def check_captured(**options: Any) -> str:
    """A training step in a CUDA graph makes other random choices whenever it is replayed; without any, it has the same bits."""
    torch.manual_seed(0)
    module = anyrnn.torch.LSTM(16, 32, device="cuda", backend="triton", **options)
    x = torch.randn(20, 8, 16, device="cuda")

    def step() -> Tensor:
        for parameter in module.parameters():
            parameter.grad = None
        output: Tensor = module(x)[0]
        output.square().sum().backward()
        return output

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()
    found = []
    for _ in range(3):
        graph.replay()
        found.append([output.detach().clone(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)])
    alike = [torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True)]
    if not options:
        return "ok" if all(alike) else "WRONG: other bits"
    finite = all(t.isfinite().all() for t in found[2])
    return "ok" if finite and not any(alike) else "WRONG: the same choices again"


def check_choice() -> str:
    """A layer whose backend is not said runs on what was quicker, and `explain` says so."""
    chosen = check("lstm", SHAPES[1], torch.float32, {}, "auto")
    _, samples, features, hidden = SHAPES[1]
    layer = anyrnn.torch.LSTM(features, hidden, device="cuda")
    return f"{chosen}; {anyrnn.explain(layer, torch.zeros(SHAPES[1][0], samples, features, device='cuda')).choice}"


def check_cudnn(kind: str) -> str:
    """cuDNN through our backend against torch.nn's module."""
    torch.manual_seed(0)
    theirs: Any = MODULES[kind](12, 20, num_layers=2, bidirectional=True, device="cuda")
    ours = anyrnn.torch.Recurrent(kind, 12, 20, num_layers=2, bidirectional=True, device="cuda")
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(9, 5, 12, device="cuda", requires_grad=True)
    reason = cudnn.why_not(ours.network, x.dtype, x.device, uneven=False)
    if reason:
        return f"WRONG: {reason}"
    first = [torch.zeros(4, 5, 20, device="cuda") for _ in ours.network.state_sizes]
    sources = list(ours.parameters())
    with torch.no_grad():
        output, last, reserve = cudnn.forward(ours.network, x, first, sources, None, True)
        d_x, _, d_sources = cudnn.backward(
            ours.network, x, first, sources, None, reserve, torch.cos(output), [None] * len(last), (True, True, True)
        )
    expected = theirs(x)[0]
    expected.backward(torch.cos(output))
    pairs = [(output, expected), (d_x[0], x.grad), *zip(d_sources, (p.grad for p in theirs.parameters()), strict=True)]
    worst = max(_distance(a, b.detach()) for a, b in pairs)
    return f"{'ok' if worst <= 1e-3 else 'WRONG'} {worst:.1e} of the largest"


def checks() -> Iterator[tuple[str, Callable[[], Any]]]:
    for cell in CHECKED:
        shape = SHAPES[2 if cell == "lstm_heads" else 0]
        yield f"{cell} float64 {shape}", partial(check, cell, shape, torch.float64, {})
    for cell in ("lstm", "gru_before", "lstm_layernorm"):
        for shape in SHAPES[1:]:
            yield f"{cell} float32 {shape}", partial(check, cell, shape, torch.float32, {})
        yield f"{cell} float32 {SHAPES[1]}, weights read", partial(check_reading, cell, SHAPES[1], torch.float32, {})
    call = {"lengths": [5, 0, 3]}
    yield "lstm lengths", partial(check, "lstm", SHAPES[0], torch.float64, call, bidirectional=True, num_layers=2)
    yield "gru dropout", partial(check, "gru", SHAPES[0], torch.float64, {}, recurrent_dropout=0.3, zoneout=0.2)
    yield "last", partial(check, "lstm", SHAPES[0], torch.float64, {"return_outputs": "last"}, bidirectional=True)
    yield "captured", check_captured
    for options in ({"zoneout": 0.2}, {"weight_dropout": 0.5}, {"num_layers": 2, "dropout": 0.5}):
        yield f"captured {' '.join(options)}", partial(check_captured, **options)
    yield "chosen", check_choice
    yield "the same bits", partial(check_repeats, (50, 16, 64, 512))
    yield "within a budget", partial(check_budget, (800, 64, 16, 128))
    yield from ((f"cudnn {kind}", partial(check_cudnn, kind)) for kind in MODULES)


# what is fast


def milliseconds(call: Callable[[], object]) -> float:
    """The median of blocks, by the device's own clock."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(1, min(200, round(SECONDS / max(1e-6, time.perf_counter() - start))))
    found = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / count)
    return statistics.median(found)


def ceilings() -> Iterator[tuple[str, Callable[[], Any]]]:
    def product(dtype: torch.dtype, tf32: bool) -> float:
        a, b = (torch.randn(4096, 4096, device="cuda", dtype=dtype) for _ in range(2))
        with _tf32(tf32):
            return 2 * 4096**3 / milliseconds(lambda: a @ b) / 1e9

    def copied() -> float:
        a = torch.empty(1 << 28, dtype=torch.float32, device="cuda")
        b = torch.empty_like(a)
        return 2 * a.nbytes / milliseconds(lambda: b.copy_(a)) / 1e6

    yield "float32 product, TFLOP/s", lambda: product(torch.float32, False)
    yield "TF32 product, TFLOP/s", lambda: product(torch.float32, True)
    yield "bfloat16 product, TFLOP/s", lambda: product(torch.bfloat16, False)
    yield "copy, GB/s read and written", copied


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def step_of(blocks: Blocks, hidden: int, samples: int = 16, dtype: torch.dtype = torch.float32) -> float:
    """Microseconds of a step of an LSTM's kernel, from two lengths."""
    module = anyrnn.torch.LSTM(16, hidden, device="cuda", dtype=dtype, backend="triton").eval()
    found = []
    with torch.no_grad(), patch.object(unit, "blocks_of", return_value=blocks):
        for steps in (100, 300):
            x = torch.randn(steps, samples, 16, device="cuda", dtype=dtype)
            found.append(milliseconds(lambda: module(x)))  # noqa: B023 (called at once)
    return (found[1] - found[0]) * 1e3 / 200


def reading(hidden: int, columns: int) -> Blocks:
    """Programs that read their weights in every step."""
    return Blocks(features=32 if hidden // 32 >= columns else 16, columns=columns)


def holding(hidden: int, dtype: torch.dtype = torch.float32, samples: int = 16) -> list[Blocks]:
    """Programs that hold their weights, in all ways that there are."""
    plan, sizes = anyrnn.torch.LSTM(16, hidden).network.plan, {"input": 16, "hidden": hidden}
    weights = split.step_weights(launch.lowered(plan, "inference"), plan.phase.weights, sizes, dtype)
    return list(split.holding(weights, hidden, samples, device_of(torch.device("cuda"))))


def step_in(precision: str, blocks: Blocks, hidden: int) -> float:
    """A step with products of another kind than torch's setting says."""
    with patch.object(unit, "precision_of", return_value=precision):
        return step_of(blocks, hidden)


def kernels() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The cost of a step of each shape of kernel; with few features nearly all of it is the barrier."""
    yield "what the model knows", lambda: str(device_of(torch.device("cuda")))
    yield "barrier of 2, us", lambda: step_of(reading(32, 2), 32) - step_of(reading(32, 1), 32)
    yield "barrier of 64, us", lambda: step_of(reading(1024, 64), 1024) - step_of(reading(16, 1), 16)
    for precision in ("ieee", "tf32x3", "tf32"):
        yield (
            f"LSTM step, N 16, H 512, 16 programs, products in {precision}, us",
            partial(step_in, precision, reading(512, 16), 512),
        )
    for hidden in (64, 128, 256, 512, 1024):
        for columns in (1, 4, 16, 64):
            if columns <= max(1, hidden // 16):
                yield f"LSTM step, N 16, H {hidden}, {columns} programs, us", partial(step_of, reading(hidden, columns), hidden)
        for dtype in (torch.float32, torch.bfloat16):
            for blocks in holding(hidden, dtype):
                how = f"{blocks.columns} programs of {blocks.rows} rows that hold {dtype} weights"
                yield f"LSTM step, N 16, H {hidden}, {how}, us", partial(step_of, blocks, hidden, dtype=dtype)


def row_times(row: Row, dtype: torch.dtype, tf32: bool) -> dict[str, float]:
    """Milliseconds of each system."""
    torch.manual_seed(0)
    x = torch.randn(row.steps, row.samples, row.features, device="cuda", dtype=dtype)
    training = row.mode == "training"
    how = {"num_layers": row.layers, "bidirectional": row.bidirectional, "device": "cuda", "dtype": dtype}
    systems: dict[str, Any] = {"triton": anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, backend="triton", **how)}
    if row.cell in MODULES:
        systems["cudnn"] = MODULES[row.cell](row.features, row.hidden, **how)
    else:
        systems["eager"] = anyrnn.torch.Recurrent(row.cell, row.features, row.hidden, backend="reference", **how)
    found = {}
    with _tf32(tf32):
        for name, module in systems.items():
            module.train(training)

            def call(module: Any = module) -> None:
                if not training:
                    with torch.no_grad():
                        module(x)
                    return
                module.zero_grad(set_to_none=True)
                module(x)[0].sum().backward()

            try:
                found[name] = milliseconds(call)
            except Exception as error:  # noqa: BLE001
                found[name] = failed(error)  # type: ignore[assignment]
    return found


def rows() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The rows of the suite that fill no more than a few seconds, those of the targets first."""
    wanted = [row for cell in ("lstm", "gru", "rnn_tanh") for row in _both(Row(cell, *DIGITS))]
    wanted += [row for cell in ("lstm", "gru") for n in (16, 64) for row in _both(Row(cell, 100, n, 512, 512))]
    wanted += _both(Row("lstm", 1024, 16, 768, 768))
    wanted += [row for cell in ("lstm_layernorm", "gru_before", "mingru") for row in _both(Row(cell, *DIGITS))]
    for dtype, tf32, name in (
        (torch.float32, False, "float32"),
        (torch.bfloat16, False, "bfloat16"),
        (torch.float32, True, "TF32"),
    ):
        for row in wanted:
            yield f"{row.name} {name}, ms", partial(row_times, row, dtype, tf32)
    done = set(wanted)
    for row in rows_of("all"):
        if row.mode in ("inference", "training") and row.loss == "all" and row not in done and not row.lengths:
            yield f"{row.name} float32, ms", partial(row_times, row, torch.float32, False)


def _both(row: Row) -> list[Row]:
    return [row, replace(row, mode="training")]


PARTS = {"checks": checks, "ceilings": ceilings, "kernels": kernels, "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to (default: benchmarks/results/gpu-<device>.json)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which nothing is begun (default: %(default)s)")
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"there is no CUDA device that torch {torch.__version__} finds", file=sys.stderr)
        return 1
    device = torch.cuda.get_device_name()
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    file = chosen.json or Path(__file__).parent / "results" / f"gpu-{slug}.json"
    report = Report(file, time.monotonic() + 60 * chosen.minutes)
    report.data |= {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": device,
        "capability": list(torch.cuda.get_device_capability()),
        "system": platform.platform(),
        "versions": versions()
        | {
            "anyrnn": anyrnn.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        },
    }
    for what, items in PARTS.items():
        report.items(what, items)
    checked = report.data["checks"]
    wrong = [name for name, found in checked.items() if not str(found).startswith("ok")]
    report.data |= {"wrong": wrong, "failed": report.broken}
    report.write()
    print(
        f"{file}: {len(checked)} checks, {len(wrong)} wrong; {len(report.broken)} items failed; "
        f"{len(report.data['not_measured'])} not measured"
    )
    return bool(wrong or report.broken or not checked)


if __name__ == "__main__":
    raise SystemExit(main())
