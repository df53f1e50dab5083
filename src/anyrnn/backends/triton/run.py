"""Calls of a network on tensors: generated kernels for the steps, torch's library for the large products beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from anyrnn._locks import ForkedLock
from anyrnn.backends.triton.device import interpreted
from anyrnn.backends.triton.memory import Extent, Layout, layout_of, of_states, run_of
from anyrnn.backends.triton.products import converted, new_gradients
from anyrnn.backends.triton.spelling import unsupported
from anyrnn.backends.triton.unit import Choices, Unit
from anyrnn.errors import UnsupportedError
from anyrnn.ir.philox import Randomness
from anyrnn.passes.compile import Plan
from anyrnn.sequence.network import Network
from anyrnn.sequence.windows import Windows

Tensors = Sequence[Tensor]
LOCK = ForkedLock()
"""Around backward calls that do windows again: two over one forward call would write to the memory that these share."""
DTYPES = {torch.float64: "float64", torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


LEAST_CAPABILITY = (7, 5)
"""The least of the compute capabilities that tests make machine code for."""


def why_not(network: Network, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why this backend cannot run a network, or None."""
    if device.type != "cuda" and not (interpreted() and device.type == "cpu"):
        return f"device {device} has no Triton kernels (cuda has, and with TRITON_INTERPRET=1 in the environment, cpu)"
    compiles = torch.compiler.is_compiling()  # a compiler warns of caches
    if device.type == "cuda" and (reason := (_why_not_device if compiles else _known_why_not_device)(device.index)):
        return reason
    try:
        import triton  # noqa: F401
    except ImportError as error:
        return f"triton cannot be imported ({error}): pip install triton (torch for CUDA brings it)"
    if dtype not in DTYPES:
        return f"dtype {dtype} has no Triton kernels ({', '.join(DTYPES.values())} have)"
    return (_why_not_cell if compiles else _known_why_not_cell)(network.plan)


def _why_not_device(index: int | None) -> str | None:
    """Devices that torch calls `cuda`, for which no kernel has ever been made."""
    if torch.version.hip:
        return f"ROCm {torch.version.hip} has no Triton kernels (CUDA has)"
    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(index)
        if (found.major, found.minor) < LEAST_CAPABILITY:
            least = "{}.{}".format(*LEAST_CAPABILITY)
            return f"compute capability {found.major}.{found.minor} has no Triton kernels ({least} and later have)"
    return None


_known_why_not_device = lru_cache(maxsize=64)(_why_not_device)


def _why_not_cell(plan: Plan) -> str | None:
    return plan.why_not(unsupported)


_known_why_not_cell = lru_cache(maxsize=256)(_why_not_cell)


def of_unit(network: Network, sources: Tensors, unit: int) -> dict[str, Tensor]:
    """The sources of a unit by name."""
    names = network.sources
    return dict(zip(names, sources[unit * len(names) : (unit + 1) * len(names)], strict=True))


def part_of(sequence: Tensor, position: int, size: int) -> Tensor:
    """The features of a direction."""
    return sequence[..., position * size : (position + 1) * size]


def forward(
    network: Network,
    inputs: Tensors,
    first: Tensors,
    sources: Tensors,
    extent: Extent,
    randomness: Randomness | None,
    output: Tensor,
    more: Tensors,
    reserve: Tensor | None,
    windows: Windows | None,
    ends: bool,
) -> list[Tensor]:
    """Run a network. Sequences are [T, N, F], or [rows, F] where steps have different rows; states [units, N, F].

    Args:
        first: states before the first step; none for the cell's own.
        output: is written, [T, N, S * H]; with `ends` the last step that each direction takes, [N, S * H].
        more: what steps give beside the output, [units, T, N, F] each, is written.
        reserve: what is kept for a backward call; None for inference.
        windows: of which steps, if not of all.

    Returns: the last states, [units, N, F] each.
    """
    x, which = inputs[0], "inference" if reserve is None else "training"
    dtype, device = x.dtype, x.device
    choices = _choices(randomness, device, forward=True)
    layout = layout_of(network, dtype, extent.steps, extent.total, extent.rows, windows)
    last = _new_states(network, extent, x)
    sequence = x
    for layer in range(network.layers):
        top = layer == network.layers - 1
        whole = output if top and not ends else _between(network, layer, layout, reserve, sequence, extent)
        for position, direction in enumerate(network.ways):
            number = layer * network.directions + position
            run = run_of(extent, bool(direction), device)
            unit = Unit(network, which, layer, direction, run, dtype, of_unit(network, sources, number), randomness, choices)
            unit.tensors = {n: s for (n, _), s in zip(network.graph.inputs, (sequence, *inputs[1:]), strict=True)}
            unit.tensors["y"] = part_of(whole, position, network.output_size)
            for (name, _), tensor in zip(network.graph.more_outputs, more, strict=True):
                unit.tensors[name] = tensor[number]
            for k, (state, size) in enumerate(zip(network.graph.states, network.state_sizes, strict=True)):
                unit.states[state.name] = first[k][number] if first else float(state.init)
                unit.last[state.name] = last[k][number]
                if reserve is None:
                    unit.tensors[state.name] = unit.new_states(size, extent.steps)
            for place, window in enumerate(run.windows(windows)):
                if reserve is not None:
                    unit.tensors |= layout.of_window(reserve, number, place)
                    for name, room in layout.before_window(reserve, number, place).items():
                        room[:] = unit.states[name]
                unit.run_window(window)
            unit.finish()
            if top and ends:
                step = 0 if direction else -1
                part_of(output, position, network.output_size).copy_(part_of(whole, position, network.output_size)[step])
        sequence = whole
    return last


def _new_states(network: Network, extent: Extent, like: Tensor) -> list[Tensor]:
    """Room for the first or last states, [units, N, F] each."""
    shapes = [(len(network.units), extent.rows, size) for size in network.state_sizes]
    return [torch.empty(shape, dtype=like.dtype, device=like.device) for shape in shapes]


def _choices(randomness: Randomness | None, device: torch.device, forward: bool) -> Choices | None:
    """What kernels read. `forward`: choices are made, not those of a forward call again.

    Raises: UnsupportedError for a seed that the CPU knows, while a graph of launches is captured that would make the same choices
    whenever it is replayed.
    """
    if randomness is None:
        return None
    seed, places = randomness.seed, randomness.places
    if not isinstance(seed, Tensor):
        if forward and device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            what = "a compiled program draws its seeds on the CPU, so that a CUDA graph would drop the same at every replay"
            raise UnsupportedError(f"{what}; capture the module itself, or in eval() mode")
        seed = torch.full((), seed - (seed >> 63 << 64), dtype=torch.int64, device=device)  # the same bits with a sign
    if places is None:
        return Choices(seed, None)
    sample, step = (torch.as_tensor(place, device=device) for place in places)
    return Choices(seed, (sample, step))


def _between(network: Network, layer: int, layout: Layout, reserve: Tensor | None, like: Tensor, extent: Extent) -> Tensor:
    """Room for what passes from a layer to the next."""
    shape = (extent.steps, extent.rows) if extent.counts is None else (extent.total,)
    if reserve is None or layer == network.layers - 1:
        return torch.empty((*shape, network.width), dtype=like.dtype, device=like.device)
    return layout.between[layer].of(reserve).view(*shape, network.width)


def backward(
    network: Network,
    inputs: Tensors,
    sources: Tensors,
    extent: Extent,
    randomness: Randomness | None,
    reserve: Tensor,
    windows: Windows | None,
    d_output: Tensor | None,
    d_last: Sequence[Tensor | None],
    d_more: Tensors,
    d_inputs: Tensors,
    wanted: Sequence[bool],
    ends: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of the first states and the sources, if they are `wanted`; those of the inputs are written to `d_inputs`, which
    are none if they are not.
    """
    x = inputs[0]
    dtype, device = x.dtype, x.device
    layout = layout_of(network, dtype, extent.steps, extent.total, extent.rows, windows)
    choices = _choices(randomness, device, forward=False)
    gradients, vectors = new_gradients(sources if wanted[1] else (), of_states(dtype), device)
    d_first = _new_states(network, extent, x) if wanted[0] else []
    begun: dict[int, Tensor] = {}  # by identity; kept, for that of a tensor that is gone may be given to another
    d_sequence = d_output
    for layer in reversed(range(network.layers)):
        sequence = x if layer == 0 else _between(network, layer - 1, layout, reserve, x, extent)
        d_below = [torch.empty(sequence.shape, dtype=dtype, device=device)] if layer else d_inputs[:1]
        for position, direction in enumerate(network.ways):
            number = layer * network.directions + position
            run = run_of(extent, bool(direction), device)
            unit = Unit(network, "backward", layer, direction, run, dtype, of_unit(network, sources, number), randomness, choices)
            names = [name for name, _ in network.graph.inputs]
            given = dict(zip(names, (sequence, *inputs[1:]), strict=True))
            unit.tensors |= given
            unit.tensors |= {f"d_{name}": d[number] for (name, _), d in zip(network.graph.more_outputs, d_more, strict=True)}
            if d_sequence is not None:
                part = part_of(d_sequence, position, network.output_size)
                last_only = ends and layer == network.layers - 1
                unit.tensors["d_y"] = part.expand(extent.steps, *part.shape) if last_only else part
                unit.cotangent = (extent.steps - 1, extent.steps) if last_only else (0, extent.steps)
            named = zip(names, (*d_below, *d_inputs[1:]), strict=False)  # some may not be wanted
            outputs = {f"d_{name}": d for name, d in named if f"d_{name}" in unit.program.outputs}
            unit.tensors |= outputs
            unit.adds = {name for name, d in outputs.items() if id(d) in begun}
            begun |= {id(d): d for d in outputs.values()}
            parts = run.windows(windows)
            for d, state, size in zip(d_last, network.graph.states, network.state_sizes, strict=True):
                unit.states[f"d_{state.name}"] = 0.0 if d is None else d[number]
                unit.tensors[f"d_{state.name}"] = unit.new_states(size, parts[0].end)
            unit.last = {f"d_{state.name}": d[number] for state, d in zip(network.graph.states, d_first, strict=False)}
            unit.gradients = of_unit(network, gradients, number) if wanted[1] else None
            for place, window in reversed(list(enumerate(parts))):
                kept = layout.of_window(reserve, number, place)
                if windows is not None and windows.again(place):
                    again = Unit(network, "training", layer, direction, run, dtype, unit.sources, randomness, choices)
                    again.tensors, again.states = given | kept, dict(layout.before_window(reserve, number, place))
                    again.run_window(window)
                unit.tensors |= kept
                unit.run_window(window)
            unit.finish()
        d_sequence = d_below[0] if layer else None
    for d in d_inputs:
        if id(d) not in begun:
            d.zero_()  # of what is one number a sample
    if gradients and gradients[0].dtype is not dtype:
        gradients = converted(gradients, vectors, dtype)
    return d_first, gradients
