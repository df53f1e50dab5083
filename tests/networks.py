"""One problem (a network, its parameters and inputs, cotangents for its results) and what runs it: reference, llvm, torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from anyrnn import cells
from anyrnn._memory import aligned
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.llvm import target
from anyrnn.backends.reference import run as reference
from anyrnn.ir.interpret import Interpreter
from anyrnn.sequence.network import Network, check_sizes
from anyrnn.torch.namespace import NAMESPACE
from anyrnn.trace import Cell
from tests.budget import rounded
from tests.zoo import input_size, occurring, sizes_of

Array = np.ndarray[Any, np.dtype[Any]]
Results = dict[str, Array]
"""By name: `output`, `last c l0`, and the gradients `d x`, `d first c l0`, `d weight_ih_l0`."""

NO_PAIRS = pytest.mark.skipif(not target.machine().has_pairs, reason="the processor has no products of pairs (AVX512-BF16)")
GAIN = 0.5
"""Of what a cell says a parameter begins with. With gains of one, layer-normalised networks magnify every rounding."""
NAN_BYTE = 0xFF
"""Memory full of these bytes reads as NaN."""
SENTINEL = -7.25e18
"""What stands around the arrays that a program writes."""


def on_processor(monkeypatch: pytest.MonkeyPatch, **measured: Any) -> None:
    """As if something else had been measured of this one."""
    machine = target.machine()
    monkeypatch.setitem(target.PROCESSORS, machine.cpu, replace(machine.processor, **measured))


@dataclass(frozen=True)
class Problem:
    """Arrays are float64 and hold float32 numbers, so that it is the same problem in both precisions."""

    network: Network
    inputs: list[Array]
    """[T, N, features] each"""
    parameters: list[dict[str, Array]]
    """for each unit (layer and direction), by name"""
    first: list[list[Array]]
    """for each unit and state, [N, size]"""
    d_output: Array
    d_last: list[list[Array]]

    @property
    def steps(self) -> int:
        return len(self.inputs[0])

    @property
    def rows(self) -> int:
        return self.inputs[0].shape[1]

    def rounded(self, random: np.random.Generator) -> Problem:
        """The same of neighbouring numbers."""
        return replace(
            self,
            inputs=[rounded(a, random) for a in self.inputs],
            parameters=[{name: rounded(a, random) for name, a in unit.items()} for unit in self.parameters],
        )

    def of_samples(self, rows: slice) -> Problem:
        """The same for some of the samples."""
        return replace(
            self, inputs=[a[:, rows] for a in self.inputs], first=[[a[rows] for a in unit] for unit in self.first],
            d_output=self.d_output[:, rows], d_last=[[a[rows] for a in unit] for unit in self.d_last],
        )  # fmt: skip

    def of_steps(self, steps: slice, first: list[list[Array]]) -> Problem:
        """The same for some of the steps, from other first states on."""
        return replace(self, inputs=[a[steps] for a in self.inputs], first=first, d_output=self.d_output[steps])


def problem(
    cell: Cell | str, T: int, N: int, D: int, H: int, layers: int = 1, bidirectional: bool = False, bias: bool = True,
    seed: int = 0, **options: Any,
) -> Problem:  # fmt: skip
    """A problem of random numbers, but for parameters that are not trained, where the cell has a function for these. `options`:
    the cell's hyper-parameters and named sizes; a size not given is half of H.
    """
    cell = cells.load(cell)
    hypers = {name: value for name, value in options.items() if name in dict(cell.signature.hypers)}
    sizes = {"input": D, "hidden": H} | {name: value for name, value in options.items() if name not in hypers}
    graph = cell.trace(bias=bias, **hypers)
    sizes = {name: max(1, H // 2) for name in graph.size_names} | sizes
    values = cell.values(hypers)
    numbers = tuple((name, values[name]) for name in graph.hypers)
    network = Network(graph, tuple(sorted(sizes.items())), layers, bidirectional, numbers)
    check_sizes(network)
    random = np.random.default_rng([seed, T, N, D, H])

    def normal(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32).astype(np.float64)

    parameters = []
    for layer, _ in network.units:
        unit = {}
        for parameter, shape in network.parameters(layer):
            scale = 1 / np.sqrt(max(3, shape[-1] if len(shape) == 2 else 4))
            start = GAIN * parameter.init if isinstance(parameter.init, (int, float)) else 0.0
            value = start + scale * random.uniform(-1, 1, shape)
            if callable(parameter.init) and not parameter.trained:
                value = np.asarray(parameter.init(shape, random))
            unit[parameter.name] = value.astype(np.float32).astype(np.float64)
        parameters.append(unit)
    names = [state.name for state in graph.states]
    drawn = [{n: 0.5 * normal(N, size) for n, size in zip(names, network.state_sizes, strict=True)} for _ in network.units]
    states = [[a.astype(np.float32).astype(np.float64) for a in occurring(cell, unit).values()] for unit in drawn]
    d_states = [[normal(N, size) for size in network.state_sizes] for _ in network.units]
    features = [D, *(shape[0].evaluate(sizes) for _, shape in network.graph.inputs[1:])]
    inputs = [normal(T, N, size) for size in features]
    d_output = normal(T, N, network.directions * network.output_size)
    return Problem(network, inputs, parameters, states, d_output, d_states)


def fitting(
    cell: Cell | str, T: int, N: int, D: int, H: int, layers: int = 1, bidirectional: bool = False, **options: Any
) -> Problem:
    """A problem of a cell that may ask something of its sizes: then D is as in a stack, and there are several heads."""
    sizes = sizes_of(cell, max(1, H // 2), H) | options
    graph = cells.load(cell).trace()
    width = graph.nodes[graph.output("y")].shape[0].evaluate({"input": D, "hidden": H, **sizes}) * (2 if bidirectional else 1)
    return problem(cell, T, N, input_size(cell, D, width) if layers > 1 else D, H, layers, bidirectional, **sizes)


def _results(
    p: Problem,
    output: Array,
    last: Sequence[Sequence[Array]],
    d_inputs: Sequence[Array] = (),
    d_parameters: Sequence[Mapping[str, Array]] = (),
    d_first: Sequence[Sequence[Array]] = (),
) -> Results:
    network = p.network
    suffixes = [network.suffix(*unit) for unit in network.units]
    states = [f"{state.name}{suffix}" for suffix in suffixes for state in network.graph.states]
    found = {"output": output}
    found |= {f"last {name}": a for name, a in zip(states, _flat(last), strict=False)}
    found |= {f"d {name}": a for (name, _), a in zip(network.graph.inputs, d_inputs, strict=False)}
    found |= {f"d first {name}": a for name, a in zip(states, _flat(d_first), strict=False)}
    for suffix, unit in zip(suffixes, d_parameters, strict=False):
        found |= {f"d {name}{suffix}": a for name, a in unit.items()}
    return found


# the reference backend


def on_reference(p: Problem, dtype: Any = np.float64) -> Results:
    """Forward and every gradient, by the reference backend on NumPy."""
    inputs, first, d_last = _cast(p.inputs, dtype), _cast(p.first, dtype), _cast(p.d_last, dtype)
    parameters = [{name: a.astype(dtype) for name, a in unit.items()} for unit in p.parameters]
    values = [reference.parameter_values(p.network, dtype, unit) for unit in parameters]
    output, last, _ = reference.forward(p.network, np, dtype, inputs, values, first)
    gradients = reference.backward(p.network, inputs, parameters, first, p.d_output.astype(dtype), d_last)
    return _results(p, output, last, *gradients)


def _cast(arrays: Any, dtype: Any) -> Any:
    return [_cast(a, dtype) for a in arrays] if isinstance(arrays, list) else arrays.astype(dtype)


# torch's autograd: of the interpreter, or of a module


def on_torch(p: Problem, dtype: torch.dtype = torch.float64) -> Results:
    """Forward and every gradient, by torch's autograd through the interpreter."""
    inputs, first, d_last = _leaves(p.inputs, dtype), _leaves(p.first, dtype), _leaves(p.d_last, dtype)
    parameters = [dict(zip(unit, _leaves(list(unit.values()), dtype), strict=True)) for unit in p.parameters]

    def number(value: float) -> torch.Tensor:
        return torch.tensor(value, dtype=dtype)

    values = [reference.parameter_values(p.network, number, unit) for unit in parameters]
    output, last, _ = reference.forward(p.network, NAMESPACE, number, inputs, values, first)
    pairs = zip([output, *_flat(last)], [torch.tensor(p.d_output, dtype=dtype), *_flat(d_last)], strict=True)
    leading = [(result, cotangent) for result, cotangent in pairs if result.requires_grad]  # a cell may stop its gradients
    torch.autograd.backward([r for r, _ in leading], [c for _, c in leading])
    return _arrays(
        _results(p, output, last, _gradients(inputs), [_gradients_by_name(u) for u in parameters], [_gradients(u) for u in first])
    )


def on_module(p: Problem, module: torch.nn.Module) -> Results:
    """Forward and every gradient of a module with torch.nn's parameter names and states; its parameters are set."""
    set_parameters(module, p)
    dtype = next(module.parameters()).dtype
    network, units = p.network, len(p.network.units)
    (x,), states = _leaves(p.inputs, dtype), range(len(network.graph.states))
    first = [torch.tensor(np.stack([p.first[u][k] for u in range(units)]), dtype=dtype, requires_grad=True) for k in states]
    d_last = [torch.tensor(np.stack([p.d_last[u][k] for u in range(units)]), dtype=dtype) for k in states]
    output, last = module(x, tuple(first) if len(first) > 1 else first[0])
    ends = last if isinstance(last, tuple) else (last,)
    module.zero_grad()
    torch.autograd.backward([output, *ends], [torch.tensor(p.d_output, dtype=dtype), *d_last])
    parameters = [
        {name: getattr(module, name + network.suffix(*unit)).grad for name in values}
        for unit, values in zip(network.units, p.parameters, strict=True)
    ]
    d_first = [[_gradients([a])[0][u] for a in first] for u in range(units)]
    return _arrays(_results(p, output, [[e[u] for e in ends] for u in range(units)], _gradients([x]), parameters, d_first))


def set_parameters(module: torch.nn.Module, p: Problem) -> None:
    with torch.no_grad():
        for unit, values in zip(p.network.units, p.parameters, strict=True):
            for name, value in values.items():
                getattr(module, name + p.network.suffix(*unit)).copy_(torch.tensor(value))


def _leaves(arrays: Any, dtype: torch.dtype) -> Any:
    if isinstance(arrays, list):
        return [_leaves(a, dtype) for a in arrays]
    return torch.tensor(arrays, dtype=dtype, requires_grad=True)


def _flat(units: Sequence[Sequence[Any]]) -> list[Any]:
    return [a for unit in units for a in unit]


def _gradients(leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.zeros_like(a) if a.grad is None else a.grad for a in leaves]


def _gradients_by_name(leaves: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(zip(leaves, _gradients(list(leaves.values())), strict=True))


def _arrays(results: Mapping[str, Any]) -> Results:
    return {name: a.detach().numpy() for name, a in results.items()}


# llvm


def poisoned(size: int) -> Array:
    """Memory that reads as NaN, for the reserve; tests put it in the place of `aligned`, which makes scratch memory."""
    memory = aligned(size)
    memory[:] = NAN_BYTE
    return memory


class Around:
    """Arrays for the caller's side of a call: rows at any distance, with sentinels (or NaN) around what belongs to the array.

    With padding 0 they are contiguous.
    """

    def __init__(self, dtype: Any, padding: int) -> None:
        self.dtype, self.padding = np.dtype(dtype), padding
        self.made: list[tuple[Array, Array]] = []

    def array(self, shape: tuple[int, ...], fill: float) -> Array:
        padding = self.padding
        whole = np.full([n + 2 * padding for n in shape], fill, self.dtype)
        inner = whole[tuple(slice(padding, n + padding) for n in shape)]
        self.made.append((whole, inner))
        return inner

    def of(self, values: Array) -> Array:
        """A copy of values, in the middle of NaN."""
        inner = self.array(values.shape, np.nan)
        inner[...] = values
        return inner

    def result(self, shape: tuple[int, ...]) -> Array:
        return self.array(shape, SENTINEL)

    def check(self) -> None:
        """That nothing outside of the arrays was written, and everything inside of the results was."""
        for whole, inner in self.made:
            outside = np.ones(whole.shape, bool)
            outside[tuple(slice(self.padding, n - self.padding) for n in whole.shape)] = False
            border = whole[outside]
            assert (np.isnan(border) | (border == self.dtype.type(SENTINEL))).all(), "the program wrote outside of its arrays"
            assert not (inner == self.dtype.type(SENTINEL)).any(), "the program left a part of its results unwritten"


def _strides(arrays: Sequence[Array]) -> tuple[tuple[int, int], ...]:
    return tuple((a.strides[0], a.strides[1]) for a in arrays)


def _stacked(units: Sequence[Sequence[Array]]) -> list[Array]:
    """From states for each unit to one array [units, N, size] for each state."""
    return [np.stack(states) for states in zip(*units, strict=True)]


def _unstacked(states: Sequence[Array]) -> list[list[Array]]:
    return [list(unit) for unit in zip(*states, strict=True)]


def on_llvm(
    p: Problem, dtype: Any = np.float64, training: bool = True, padding: int = 0, without: Sequence[str] = (),
    cotangent_steps: tuple[int, int] | None = None, numbers: str | None = None,
) -> Results:  # fmt: skip
    """Forward and, when training, every gradient, by the llvm backend, in memory that reads as NaN before.

    Args:
        padding: how many numbers, rows and steps lie around the caller's arrays.
        without: what is not given or not asked for, of `d_output`, `d_last`, `first`, `last`, `d_inputs`, `d_first`, `d_sources`.
        cotangent_steps: the steps of d_output that are looked at; what the others hold is NaN.
        numbers: what calls say for their dtype, where it is not that of the arrays.
    """
    network, name = p.network, numbers or np.dtype(dtype).name
    around, extent = Around(dtype, padding), llvm.Extent(p.steps, p.rows)
    absent = (None,) * len(network.graph.states)
    x = [around.of(a) for a in p.inputs]
    first = [around.of(a) for a in _stacked(p.first)] if "first" not in without else []
    parameters = [{k: a.astype(dtype) for k, a in unit.items()} for unit in p.parameters]
    read = [_parameter_phase(network, np, dtype, layer, unit) for (layer, _), unit in zip(network.units, parameters, strict=True)]
    sources = [np.array(unit[s], order="C") for unit in read for s in network.sources]
    output = around.result((p.steps, p.rows, network.directions * network.output_size))
    last = [around.result(a.shape) for a in _stacked(p.first)] if "last" not in without else []
    reserve = [poisoned(llvm.reserve_bytes(network, name, p.steps * p.rows, p.rows))] if training else []
    forward = llvm.CallShape(
        "training" if training else "inference", name, extent, _strides(x), *_strides([output]),
        _strides(first) or absent, _strides(last) or absent,
    )  # fmt: skip
    llvm.call(network, forward, [a.ctypes.data for a in (*x, output, *first, *last, *sources, *reserve)])
    if not training:
        around.check()
        return _results(p, output, _unstacked(last))
    begin, end = cotangent_steps or (0, p.steps)
    d_output = around.of(np.full_like(p.d_output, np.nan))
    d_output[begin:end] = p.d_output[begin:end]
    d_outputs = [d_output] if "d_output" not in without else []
    d_last = [around.of(a) for a in _stacked(p.d_last)] if "d_last" not in without else []
    d_x = [around.result(a.shape) for a in p.inputs] if "d_inputs" not in without else []
    d_first = [around.result(a.shape) for a in _stacked(p.first)] if "d_first" not in without else []
    names = network.sources * len(network.units)
    summed = network.plan.summed  # the caller's part is to set them to zero
    d_sources = [np.full_like(a, 0.0 if n in summed else SENTINEL) for n, a in zip(names, sources, strict=True)]
    if "d_sources" in without:
        d_sources = []
    backward = llvm.CallShape(
        "backward", name, extent, _strides(x), _strides(d_outputs)[0] if d_outputs else None, _strides(d_last) or absent,
        _strides(d_first) or absent, (begin, end), _strides(d_x) or (None,) * len(x), bool(d_sources),
        no_first="first" in without,
    )  # fmt: skip
    arrays = (*x, *d_outputs, *d_last, *d_first, *d_x, *sources, *d_sources, *reserve)
    llvm.call(network, backward, [a.ctypes.data for a in arrays])
    around.check()
    for source, d in zip(names, d_sources, strict=False):
        assert not (d == dtype(SENTINEL)).any(), f"the program left a part of the gradient of {source} unwritten"
    count = len(network.sources)
    d_units = [d_sources[count * u : count * (u + 1)] for u in range(len(network.units) if d_sources else 0)]
    d_parameters = [_parameter_gradients(p, u, parameters[u], d) for u, d in enumerate(d_units)]
    return _results(p, output, _unstacked(last), d_x, d_parameters, _unstacked(d_first))


def _parameter_phase(network: Network, xp: Any, number: Any, layer: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the step reads, by name: parameters, and what is computed of them."""
    phase = network.plan.phase
    values = reference.parameter_values(network, number, parameters)
    Interpreter(xp, number, network.layer_sizes(layer)).run(phase.nodes, values, [w.node for w in phase.computed])
    return {**parameters, **{w.name: values[w.node] for w in phase.computed}}


def _parameter_gradients(p: Problem, unit: int, parameters: Mapping[str, Array], d_sources: Sequence[Array]) -> dict[str, Array]:
    """From the gradients of what the step reads to those of the parameters, by torch's autograd through the parameter phase."""
    network = p.network
    if not network.plan.phase.computed:
        found = {name: np.zeros_like(a) for name, a in parameters.items()}
        return {**found, **dict(zip(network.sources, d_sources, strict=True))}
    if not parameters:
        return {}
    leaves = {name: torch.tensor(a, requires_grad=True) for name, a in parameters.items()}
    dtype = next(iter(leaves.values())).dtype
    layer, _ = network.units[unit]
    read = _parameter_phase(network, NAMESPACE, lambda value: torch.tensor(value, dtype=dtype), layer, leaves)
    pairs = [(read[s], torch.from_numpy(d)) for s, d in zip(network.sources, d_sources, strict=True) if read[s].requires_grad]
    torch.autograd.backward([r for r, _ in pairs], [d for _, d in pairs])
    return {name: a.numpy() for name, a in _gradients_by_name(leaves).items()}
