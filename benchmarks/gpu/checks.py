"""What is right: kernels against the interpreter on the same device, and against torch's own networks."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import anyrnn.torch
from anyrnn import cells
from anyrnn.backends import tf32
from anyrnn.backends.cudnn import run as cudnn
from anyrnn.backends.triton import choosing, tape
from anyrnn.backends.triton.device import device_of
from benchmarks.gpu.items import Items, NotHereError

DEVICE = "cuda"
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
SHAPES = ((5, 3, 4, 6), (9, 33, 7, 70), (20, 16, 64, 256), (12, 40, 28, 768))
"""T, N, D, H"""
LONG = (200, 2, 8, 32)
"""So long that loops are scans, where they can be."""
RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Of the largest magnitude, how far kernels and the interpreter on the same device may differ."""
TF32 = 1e-2
"""The same of products in TF32."""
CALLS = 4
"""So many that the last ones are made as a tape has them."""


def check_reading(*how: Any) -> str:
    """The same of programs that hold no weights."""
    device = replace(device_of(torch.device(DEVICE)), shared_bytes=0)
    tape.forget()  # calls of programs that may hold weights
    try:
        with patch.object(choosing, "device_of", return_value=device):
            return check(*how)
    finally:
        tape.forget()


def check(
    cell: str,
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    call: dict[str, Any],
    ours: str = "triton",
    most: float | None = None,
    **options: Any,
) -> str:
    """A backend against the interpreter on the same device: outputs, states and every gradient, within `most`. The last of some
    calls is looked at, and has the bits of the first.
    """
    steps, samples, features, hidden = shape
    graph = cells.load(cell).trace()
    sizes = graph.other_sizes(hidden)
    results = []
    for backend, calls in ((ours, CALLS), ("reference", 1)):
        torch.manual_seed(0)
        module = anyrnn.torch.Recurrent(cell, features, hidden, backend=backend, dtype=dtype, device=DEVICE, **sizes, **options)
        x = torch.randn(steps, samples, features, dtype=dtype, device=DEVICE, requires_grad=True)
        further = {name: torch.rand(steps, samples, n, dtype=dtype, device=DEVICE) for name, n in module.network.further_inputs}
        for _ in range(calls):
            torch.manual_seed(1)
            module.zero_grad()
            x.grad = None
            output, last = module(x, **further, **call)
            made = [output, *(last if isinstance(last, tuple) else (last,))]
            torch.autograd.backward(made, [torch.cos(t.detach()) for t in made])
            named = {f"result {k}": t.detach() for k, t in enumerate(made)} | {"d x": x.grad}
            results.append(named | {name: p.grad for name, p in module.named_parameters() if p.grad is not None})
    first, *_, found, expected = results
    worst = max((distance(found[name], value), name) for name, value in expected.items())
    if ours == "triton" and not all(torch.equal(found[name], value) for name, value in first.items()):
        return "WRONG: other bits in a later call"
    return f"{'ok' if worst[0] <= (most or RELATIVE[dtype]) else 'WRONG'} {worst[0]:.1e} of the largest ({worst[1]})"


def check_inference(cell: str, shape: tuple[int, int, int, int], dtype: torch.dtype) -> str:
    """Without gradients, the same of outputs and states."""
    steps, samples, features, hidden = shape
    results = []
    for backend, calls in (("triton", CALLS), ("reference", 1)):
        torch.manual_seed(0)
        module = anyrnn.torch.Recurrent(cell, features, hidden, backend=backend, dtype=dtype, device=DEVICE)
        x = torch.randn(steps, samples, features, dtype=dtype, device=DEVICE)
        with torch.no_grad():
            for _ in range(calls):
                output, last = module(x)
                results.append([output, *(last if isinstance(last, tuple) else (last,))])
    first, *_, found, expected = results
    worst = max(map(distance, found, expected))
    if not all(map(torch.equal, found, first)):
        return "WRONG: other bits in a later call"
    return f"{'ok' if worst <= RELATIVE[dtype] else 'WRONG'} {worst:.1e} of the largest"


def check_tf32(cell: str, shape: tuple[int, int, int, int]) -> str:
    """With TF32, against the interpreter's products, which are made in it too."""
    torch.set_float32_matmul_precision("high")
    try:
        return check(cell, shape, torch.float32, {}, most=TF32)
    finally:
        torch.set_float32_matmul_precision("highest")


def distance(found: Tensor, expected: Tensor) -> float:
    distance = (found.double() - expected.double()).abs().max().item() / (expected.abs().max().item() or 1.0)
    return distance if distance == distance else float("inf")


def check_accuracy(kind: str, shape: tuple[int, int, int, int]) -> str:
    """Products of float32 are as exact as torch's: the distance of outputs and gradients from float64."""
    steps, samples, features, hidden = shape
    torch.manual_seed(0)
    exact: Any = MODULES[kind](features, hidden, device=DEVICE, dtype=torch.float64)
    theirs = MODULES[kind](features, hidden, device=DEVICE)
    ours = anyrnn.torch.Recurrent(kind, features, hidden, device=DEVICE, backend="triton")
    theirs.load_state_dict(exact.state_dict())
    ours.load_state_dict(exact.state_dict())
    x, found = torch.randn(steps, samples, features, device=DEVICE), []
    with tf32.AsInProducts(torch.float32):
        for module in (exact, theirs, ours):
            output, d_x, *_ = trained(module, x.to(module.weight_ih_l0.dtype))
            found.append([output, d_x, *(module.get_parameter(name).grad for name, _ in exact.named_parameters())])
    expected, *found = found
    of_theirs, of_ours = (max(distance(a, b) for a, b in zip(one, expected, strict=True)) for one in found)
    return f"{'ok' if of_ours <= 3 * of_theirs else 'WRONG'} {of_ours:.1e} of the largest, cuDNN without TF32 {of_theirs:.1e}"


def check_repeats(shape: tuple[int, int, int, int]) -> str:
    """The same call has the same bits each time."""
    steps, samples, features, hidden = shape
    module = anyrnn.torch.LSTM(features, hidden, device=DEVICE, backend="triton")
    x = torch.randn(steps, samples, features, device=DEVICE)
    first, *others = (trained(module, x) for _ in range(CALLS))
    return same_bits([t for one in others for t in one], first * len(others))


def check_budget(shape: tuple[int, int, int, int]) -> str:
    """What is computed again has the bits that it has when it is kept."""
    steps, samples, features, hidden = shape
    x, found = torch.randn(steps, samples, features, device=DEVICE), []
    for share in (None, 0.7):
        torch.manual_seed(0)
        module = anyrnn.torch.LSTM(features, hidden, device=DEVICE, backend="triton")
        if share is not None:
            module.memory_budget = int(share * anyrnn.explain(module, x).kept_bytes)
        module(x)[0].square().sum().backward()
        found.append([p.grad for p in module.parameters()])
    same = all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    return "ok" if same else "WRONG: other bits"


def check_captured(**options: Any) -> str:
    """A training step in a CUDA graph makes other random choices whenever it is replayed; without any, it has the same bits."""
    torch.manual_seed(0)
    module = anyrnn.torch.LSTM(16, 32, device=DEVICE, backend="triton", **options)
    x = torch.randn(20, 8, 16, device=DEVICE)

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
    steps, samples, features, hidden = SHAPES[1]
    found = check("lstm", SHAPES[1], torch.float32, {}, "auto")
    layer = anyrnn.torch.LSTM(features, hidden, device=DEVICE)
    return f"{found}; {anyrnn.explain(layer, torch.zeros(steps, samples, features, device=DEVICE)).choice}"


def trained(module: Any, x: Tensor, run: Callable[[Tensor], Any] | None = None) -> list[Tensor]:
    """The output and all gradients."""
    x = x.clone().requires_grad_()
    for parameter in module.parameters():
        parameter.grad = None
    output = (module if run is None else run)(x)[0]
    output.square().sum().backward()
    torch.cuda.synchronize()
    return [output.detach(), x.grad, *(p.grad for p in module.parameters() if p.grad is not None)]  # type: ignore[list-item]


def same_bits(found: list[Tensor], expected: list[Tensor]) -> str:
    return "ok" if all(map(torch.equal, found, expected)) else "WRONG: other bits"


def check_compiled() -> str:
    """In a program that torch.compile has taken in."""
    module, x = anyrnn.torch.LSTM(16, 32, device=DEVICE, backend="triton"), torch.randn(20, 8, 16, device=DEVICE)
    return same_bits(trained(module, x, torch.compile(module, fullgraph=True, backend="aot_eager")), trained(module, x))


def check_stream() -> str:
    """On another stream than the default one."""
    module, x = anyrnn.torch.LSTM(16, 32, device=DEVICE, backend="triton"), torch.randn(20, 8, 16, device=DEVICE)
    expected, beside = trained(module, x), torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        found = trained(module, x)
    return same_bits(found, expected)


def check_streams_at_once() -> str:
    """A layer on two streams at the same time: programs of one do not wait for those of the other."""
    module, x = anyrnn.torch.LSTM(16, 256, device=DEVICE, backend="triton").eval(), torch.randn(200, 16, 16, device=DEVICE)
    streams = [torch.cuda.Stream() for _ in range(2)]
    found: list[Tensor] = []
    with torch.no_grad():
        expected = [module(x)[0] for _ in range(3)][-1:]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        for _ in range(20):
            for stream in streams:
                with torch.cuda.stream(stream):
                    found.append(module(x)[0])
    torch.cuda.synchronize()
    return same_bits(found, expected * len(found))


def check_layout() -> str:
    """Batch first: rows that stand apart."""
    module, x = anyrnn.torch.LSTM(16, 32, device=DEVICE, backend="triton"), torch.randn(20, 8, 16, device=DEVICE)
    other = anyrnn.torch.LSTM(16, 32, device=DEVICE, backend="triton", batch_first=True)
    other.load_state_dict(module.state_dict())
    output, d_x, *gradients = trained(other, x.transpose(0, 1))
    return same_bits([output.transpose(0, 1), d_x.transpose(0, 1), *gradients], trained(module, x))


def check_empty(backend: str) -> str:
    """No samples."""
    module = anyrnn.torch.LSTM(16, 32, device=DEVICE, backend=backend)
    output, d_x, *gradients = trained(module, torch.zeros(20, 0, 16, device=DEVICE))
    shapes = (output.shape, d_x.shape) == ((20, 0, 32), (20, 0, 16))
    return "ok" if shapes and not any(g.any() for g in gradients) else "WRONG: shapes, or gradients that are not zero"


def check_memory() -> str:
    """What does not fit is an error that names its bytes and a way out, and leaves nothing behind."""
    gc.collect()
    before, steps = torch.cuda.memory_allocated(), torch.cuda.get_device_properties(0).total_memory // (4096 * 64)
    module, x = anyrnn.torch.LSTM(1, 256, device=DEVICE, backend="triton"), torch.zeros(steps, 64, 1, device=DEVICE)
    try:
        module(x)
    except torch.OutOfMemoryError as error:
        said = str(error)
    else:
        return "WRONG: there was room"
    del module, x
    gc.collect()
    left = torch.cuda.memory_allocated() - before
    return "ok" if "bytes" in said and "memory_budget" in said and left <= 0 else f"WRONG: {left} bytes are left; {said[:200]}"


def check_ddp() -> str:
    """In DistributedDataParallel over NCCL, of one process."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if not dist.is_available() or not dist.is_nccl_available():
        raise NotHereError("this torch has no NCCL")
    module, x = anyrnn.torch.LSTM(16, 32, device=DEVICE, backend="triton"), torch.randn(20, 8, 16, device=DEVICE)
    expected = trained(module, x)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return same_bits(trained(module, x, DistributedDataParallel(module, device_ids=[0])), expected)
    finally:
        dist.destroy_process_group()


def check_second_device() -> str:
    """A layer on another device than the current one."""
    if torch.cuda.device_count() < 2:
        raise NotHereError("there is one device")
    module, x = anyrnn.torch.LSTM(16, 32, device="cuda:0", backend="triton"), torch.randn(20, 8, 16, device="cuda:0")
    expected = trained(module, x)
    found = trained(module.to("cuda:1"), x.to("cuda:1"))
    torch.cuda.synchronize("cuda:1")
    return same_bits([t.to("cuda:0") for t in found], expected)


def check_cudnn(kind: str) -> str:
    """cuDNN through our backend against torch.nn's module."""
    torch.manual_seed(0)
    theirs: Any = MODULES[kind](12, 21, num_layers=2, bidirectional=True, device=DEVICE)
    ours = anyrnn.torch.Recurrent(kind, 12, 21, num_layers=2, bidirectional=True, device=DEVICE)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(9, 5, 12, device=DEVICE, requires_grad=True)
    reason = cudnn.why_not(ours.network, x.dtype, x.device, uneven=False)
    if reason:
        return f"WRONG: {reason}"
    first = [torch.zeros(4, 5, 21, device=DEVICE) for _ in ours.network.state_sizes]
    names = ours._mode.source_names
    sources = [ours.get_parameter(name) for name in names]
    buffer = cudnn.one_buffer(ours.network, sources)
    if buffer is None:
        return "WRONG: parameters do not stand as cuDNN wants them"
    expected = theirs(x)[0]
    expected.backward(torch.cos(expected.detach()))
    worst = 0.0
    for memory, kept in ((buffer, True), (None, True), (buffer, False)):
        with torch.no_grad(), patch.object(cudnn, "is_kept_for_another", return_value=kept):
            output, last, reserve = cudnn.forward(ours.network, x, first, sources, memory, None, True)
            d_x, _, d_sources = cudnn.backward(
                ours.network, x, first, sources, memory, None, reserve, torch.cos(output), [None] * len(last), (True, True, True)
            )
        pairs = [
            (output, expected),
            (d_x[0], x.grad),
            *((d, theirs.get_parameter(n).grad) for n, d in zip(names, d_sources, strict=True)),
        ]
        worst = max(worst, *(distance(a, b.detach()) for a, b in pairs))
    return f"{'ok' if worst <= 1e-3 else 'WRONG'} {worst:.1e} of the largest"


def choice() -> Items:
    """What measures, and so wants the device for itself."""
    yield "chosen", check_choice


def items() -> Items:
    for cell in CHECKED:
        shape = SHAPES[2 if cell == "lstm_heads" else 0]
        yield f"{cell} float64 {shape}", partial(check, cell, shape, torch.float64, {})
    for cell in ("mingru", "lru", "indrnn"):
        yield f"{cell} float64 {LONG}", partial(check, cell, LONG, torch.float64, {})
    for cell in ("lstm", "gru_before", "lstm_layernorm"):
        for shape in SHAPES[1:]:
            yield f"{cell} float32 {shape}", partial(check, cell, shape, torch.float32, {})
        yield f"{cell} float32 {SHAPES[1]}, weights read", partial(check_reading, cell, SHAPES[1], torch.float32, {})
    for cell in ("lstm", "lstm_layernorm", "mingru"):
        for dtype in (torch.bfloat16, torch.float16):
            yield f"{cell} {dtype} {SHAPES[1]}", partial(check, cell, SHAPES[1], dtype, {})
        yield f"{cell} TF32 {SHAPES[2]}", partial(check_tf32, cell, SHAPES[2])
    for cell in ("lstm", "gru_before", "mingru"):
        for steps in (1, 2, 9):
            of = (steps, *SHAPES[1][1:]), torch.float32 if steps > 1 else torch.float64
            yield f"{cell} without gradients {of[1]} {of[0]}", partial(check_inference, cell, *of)
    call = {"lengths": [5, 0, 3]}
    yield "lstm lengths", partial(check, "lstm", SHAPES[0], torch.float64, call, bidirectional=True, num_layers=2)
    yield "gru dropout", partial(check, "gru", SHAPES[0], torch.float64, {}, recurrent_dropout=0.3, zoneout=0.2)
    yield "last", partial(check, "lstm", SHAPES[0], torch.float64, {"return_outputs": "last"}, bidirectional=True)
    yield "batch first", check_layout
    yield from ((f"no samples, {backend}", partial(check_empty, backend)) for backend in ("triton", "auto"))
    yield "captured", check_captured
    for options in ({"zoneout": 0.2}, {"weight_dropout": 0.5}, {"num_layers": 2, "dropout": 0.5}):
        yield f"captured {' '.join(options)}", partial(check_captured, **options)
    yield "compiled", check_compiled
    yield "another stream", check_stream
    yield "two streams", check_streams_at_once
    yield "the same bits", partial(check_repeats, (50, 16, 64, 512))
    for kind in ("lstm", "gru", "rnn_tanh"):
        yield f"{kind} as exact as torch's", partial(check_accuracy, kind, (50, 16, 64, 512))
    yield "within a budget", partial(check_budget, (800, 64, 16, 128))
    yield from ((f"cudnn {kind}", partial(check_cudnn, kind)) for kind in MODULES)
    yield "DDP", check_ddp
    yield "another device", check_second_device
    yield "out of memory", check_memory
