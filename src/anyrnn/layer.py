"""The NumPy front-end: a layer to call, and under it the primitives of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import backends, cells
from anyrnn._memory import ALIGNMENT, aligned
from anyrnn.backends.reference import run as reference
from anyrnn.errors import UnsupportedError
from anyrnn.ir.interpret import Interpreter
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.network import Network, check_arguments, make_network, with_dropout
from anyrnn.stream import Stream
from anyrnn.trace import Cell

Array = npt.NDArray[Any]
States = Array | Sequence[Array]


@dataclass
class Reserve:
    """What a training forward call keeps for the backward calls: its memory, and references to the inputs and parameters,
    which must not change until then. A backward call does not use it up.
    """

    memory: Array
    network: Network
    inputs: list[Array]
    first: list[Array] | None
    sources: list[Array]
    batched: bool
    randomness: Randomness | None


@dataclass
class Workspace:
    """What `backward_data` leaves for `backward_weights`."""

    reserve: Reserve
    arrays: list[Array] = field(default_factory=list)
    in_two: Any = None
    gradients: dict[str, Array] = field(default_factory=dict)

    def addresses(self, d_sources: Sequence[Array]) -> list[int]:
        """Of a backward call's arrays, with these for the sources' gradients."""
        return [a.ctypes.data for a in (*self.arrays, *d_sources, self.reserve.memory)]


class Recurrent:
    """A recurrent network of any cell on NumPy arrays.

    Args:
        cell: a cell, the name of a built-in one, or `my_file.py:my_cell`.
        input_size: features of the input, D.
        hidden_size: features of the hidden state, H.
        num_layers, bias, batch_first, bidirectional: as in torch.nn's modules.
        dropout: probability of zeroing each output between layers, in training calls.
        backend: `auto`, `llvm` (native kernels) or `reference` (the interpreter). An explicit one that cannot run raises
            UnsupportedError.
        dtype: float32 or float64.
        seed: of the initial parameters, uniform within 1 / sqrt(H) unless the cell says otherwise.
        options: the cell's hyper-parameters and named sizes other than input and hidden.

    `parameters` maps names (`weight_ih_l0`, ... as in torch.nn) to arrays; change their values in place or assign new ones.

    Example:
        >>> import numpy as np, anyrnn
        >>> layer = anyrnn.Recurrent("gru", 3, 5, seed=0)
        >>> output, h = layer(np.zeros((7, 2, 3), np.float32))
        >>> output.shape, h.shape
        ((7, 2, 5), (1, 2, 5))
    """

    def __init__(
        self,
        cell: Cell | str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        backend: str = "auto",
        dtype: npt.DTypeLike = np.float32,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self.cell = cells.load(cell)
        check_arguments(bias, batch_first, input_size, hidden_size, num_layers, dropout)
        if backend not in backends.NAMES:
            raise ValueError(f"backend should be one of {', '.join(backends.NAMES)}, got {backend!r}")
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise TypeError(f"dtype should be float32 or float64, got {self.dtype}")
        self.batch_first, self.backend = batch_first, backend
        self.network = make_network(self.cell, input_size, hidden_size, num_layers, bias, bidirectional, options)
        self.dropout = dropout
        self.parameters: dict[str, Array] = {}
        random = np.random.default_rng(seed)
        bound = 1 / math.sqrt(hidden_size)
        for layer, direction in self.network.units:
            for parameter, shape in self.network.parameters(layer):
                uniform = random.random(shape)
                if callable(parameter.init):
                    value = parameter.init(uniform)
                else:
                    value = (2 * uniform - 1) * bound if parameter.init is None else np.full(shape, parameter.init)
                self.parameters[parameter.name + self.network.suffix(layer, direction)] = np.asarray(value, self.dtype)
        if backend == "llvm" and (reason := self._why_not_native()):
            raise UnsupportedError(f"backend 'llvm' cannot run this: {reason}")

    @property
    def dropout(self) -> float:
        """The probability of zeroing each output between layers, in training calls; it may be changed."""
        return self._dropout

    @dropout.setter
    def dropout(self, value: float) -> None:
        self.training_network = with_dropout(self.network, value)
        self._dropout = float(value)

    def __repr__(self) -> str:
        sizes = dict(self.network.sizes)
        return f"Recurrent({self.cell.name}, {self.network.input_size}, {sizes['hidden']}, num_layers={self.network.layers})"

    @property
    def backend_name(self) -> str:
        """The backend that a call runs on: `llvm` or `reference`."""
        return "reference" if self._why_not_native() else "llvm"

    def _why_not_native(self) -> str | None:
        if self.backend == "reference":
            return "backend='reference' was asked for"
        return backends.why_not_native(self.network, self.dtype.name)

    def __call__(self, x: Array, state: States | None = None, *, out: Array | None = None, **steps: Array) -> tuple[Array, Any]:
        """`forward_inference`."""
        return self.forward_inference(x, state, out=out, **steps)

    def forward_inference(
        self, x: Array, state: States | None = None, *, out: Array | None = None, **steps: Array
    ) -> tuple[Array, Any]:
        """Run over a sequence; keeps nothing for a backward call.

        Args:
            x: [T, N, D], [N, T, D] with batch_first, or [T, D] without a batch; of the layer's dtype.
            state: initial state [layers * directions, N, H], or a sequence of them for a cell with several states; the cell's
            own by default.
            out: where to put the output.
            steps: the cell's further per-step inputs, by name, [T, N, size] in x's layout; every layer gets them.

        Returns: the output [T, N, directions * H] in x's layout, and the last state (a tuple of them for a cell with several).

        Raises: ValueError for wrong shapes, TypeError for wrong dtypes.
        """
        output, last, _ = self._forward(x, steps, state, out, keep=False)
        return output, last

    def forward_training(
        self,
        x: Array,
        state: States | None = None,
        *,
        out: Array | None = None,
        memory: Array | None = None,
        seed: int = 0,
        **steps: Array,
    ) -> tuple[Array, Any, Reserve]:
        """The same, and the reserve for the backward calls.

        `memory`: at least `reserve_size` bytes to keep it in. `seed`: of the dropout; the same seed drops the same features.
        """
        return self._forward(x, steps, state, out, keep=True, memory=memory, seed=seed)

    def stream(self, rows: int = 1) -> Stream:
        """The layer with its parameters as they are now, to be called step after step; see `Stream`.

        Args: rows: how many sequences go on side by side, N.

        Raises: ValueError for a bidirectional layer.
        """
        layer = copy(self)
        layer.parameters = {name: array.copy() for name, array in self.parameters.items()}
        layer.batch_first = False
        return Stream(layer, rows)

    def sources(self) -> list[Array]:
        """The arrays that the steps of all layers and directions read, of the parameters as they are now."""
        return self._sources(self.network)

    def reserve_size(self, steps: int, rows: int) -> int:
        """Bytes that `forward_training` keeps for sequences of so many steps and samples."""
        if self._why_not_native():
            return 0
        size: int = backends.native().reserve_bytes(self.training_network, self.dtype.name, steps, rows)
        return size

    def workspace_size(self, steps: int, rows: int) -> int:
        """Bytes that `backward_data` and `backward_weights` work in."""
        if self._why_not_native():
            return 0
        native = backends.native()
        size: int = native.workspace_bytes(self.training_network, self.dtype.name, native.Extent(steps, rows, True))
        return size

    # arrays in and out

    def _time_major(self, x: Array, who: str, features: int) -> tuple[Array, bool]:
        """A [T, N, features] view and whether there was a batch."""
        if not isinstance(x, np.ndarray) or x.dtype != self.dtype:
            kind = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
            raise TypeError(f"{who} should be a NumPy array of {self.dtype}, got {kind}")
        if x.ndim not in (2, 3):
            raise ValueError(f"{who} should be 2-D [T, {features}] or 3-D, got {x.ndim}-D")
        if x.shape[-1] != features:
            raise ValueError(f"{who} should have {features} features, got {x.shape[-1]}")
        view = x[:, None] if x.ndim == 2 else x.swapaxes(0, 1) if self.batch_first else x
        if view.shape[0] == 0:
            raise ValueError(f"{who} has no steps; a sequence needs at least one")
        return view, x.ndim == 3

    def _further(self, given: Mapping[str, Array], x: Array, batched: bool) -> list[Array]:
        """The cell's further per-step inputs, [T, N, size]."""
        names = dict(self.network.further_inputs)
        unknown = given.keys() - names.keys()
        if unknown:
            known = ", ".join(names) or "none"
            raise TypeError(f"cell {self.cell.name!r} has no per-step input {min(unknown)!r}; it has: {known}")
        found = []
        for name, size in names.items():
            if name not in given:
                raise TypeError(f"cell {self.cell.name!r} needs the per-step input {name} as keyword argument")
            view, has_batch = self._time_major(given[name], name, size)
            if has_batch != batched or view.shape[:2] != x.shape[:2]:
                raise ValueError(f"{name} should have as many steps and samples as x, got shape {given[name].shape}")
            found.append(view)
        return found

    def _stacked(self, state: States | None, rows: int, batched: bool, who: str) -> list[Array] | None:
        """One [units, N, size] array for each state."""
        if state is None:
            return None
        specs = self.network.graph.states
        given = [state] if isinstance(state, np.ndarray) else list(state)
        if len(given) != len(specs):
            names = ", ".join(s.name for s in specs)
            raise ValueError(f"{who} should be {len(specs)} arrays ({names}), got {len(given)}")
        result = []
        for spec, size, array in zip(specs, self.network.state_sizes, given, strict=True):
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{who} {spec.name} should be a NumPy array, got {type(array).__name__}")
            expected = (len(self.network.units), rows, size) if batched else (len(self.network.units), size)
            if array.shape != expected:
                raise ValueError(f"{who} {spec.name} should have shape {expected}, got {array.shape}")
            if array.dtype != self.dtype:
                raise TypeError(f"{who} {spec.name} should be {self.dtype}, got {array.dtype}")
            result.append(_readable(array if batched else array[:, None]))
        return result

    def _unstacked(self, arrays: Sequence[Array], batched: bool) -> Any:
        shaped = [a if batched else a[:, 0] for a in arrays]
        return shaped[0] if len(shaped) == 1 else tuple(shaped)

    def _new_sequence(self, steps: int, rows: int, features: int) -> Array:
        """A new [T, N, features] view, in the layer's layout."""
        if self.batch_first:
            return np.empty((rows, steps, features), self.dtype).swapaxes(0, 1)
        return np.empty((steps, rows, features), self.dtype)

    def _in_layout(self, view: Array, batched: bool) -> Array:
        return view[:, 0] if not batched else view.swapaxes(0, 1) if self.batch_first else view

    def _sources(self, network: Network) -> list[Array]:
        """What the steps read of the parameters: as they are, or through the parameter phase."""
        phase = network.plan.phase
        found: list[Array] = []
        for layer, direction in network.units:
            parameters = self._unit_parameters(layer, direction)
            values: dict[int, Any] = {}
            if phase.computed:
                values = reference.parameter_values(network, self.dtype.type, parameters)
                interpreter = Interpreter(np, self.dtype.type, network.layer_sizes(layer))
                interpreter.run(phase.nodes, values, [w.node for w in phase.computed])
            computed = {w.name: values[w.node] for w in phase.computed}
            found += [np.ascontiguousarray(parameters.get(name, computed.get(name)), self.dtype) for name in network.sources]
        return found

    def _unit_parameters(self, layer: int, direction: int) -> dict[str, Array]:
        result = {}
        for parameter, shape in self.network.parameters(layer):
            name = parameter.name + self.network.suffix(layer, direction)
            array = self.parameters[name]
            if array.shape != shape or array.dtype != self.dtype:
                raise ValueError(f"parameter {name} should be {self.dtype} {shape}, got {array.dtype} {array.shape}")
            result[parameter.name] = array
        return result

    # forward

    def _forward(
        self,
        x: Array,
        further: Mapping[str, Array],
        state: States | None,
        out: Array | None,
        keep: bool,
        memory: Array | None = None,
        seed: int = 0,
    ) -> tuple[Array, Any, Any]:
        network = self.training_network if keep else self.network
        view, batched = self._time_major(x, "x", network.input_size)
        steps, rows, _ = view.shape
        inputs = [view, *self._further(further, view, batched)]
        first = self._stacked(state, rows, batched, "state")
        width = network.directions * network.output_size
        if out is None:
            output = self._new_sequence(steps, rows, width) if batched else np.empty((steps, 1, width), self.dtype)
        else:
            output, _ = self._time_major(out, "out", width)
            if not out.flags.writeable and 0 not in out.strides:
                raise ValueError("out should be writable")
            if any(np.may_share_memory(out, a) for a in (*inputs, *(first or ()))):
                raise ValueError("out should not share memory with x or the initial states")
            if output.shape != (steps, rows, width) or output.strides[-1] != self.dtype.itemsize or 0 in output.strides[:-1]:
                raise ValueError(f"out should have shape {(*self._in_layout(view, batched).shape[:-1], width)}, got {out.shape}")
        drops = network is not self.network
        randomness = Randomness(seed, (0.0, *[self.dropout] * (network.layers - 1))) if drops else None
        last = [np.empty((len(network.units), rows, size), self.dtype) for size in network.state_sizes]
        sources = self._sources(network)
        reserve = Reserve(np.empty(0, np.uint8), network, [_readable(a) for a in inputs], first, sources, batched, randomness)
        if self._why_not_native():
            self._forward_by_reference(reserve, first, output, last)
        else:
            self._forward_natively(reserve, first, output, last, keep, memory)
        return out if out is not None else self._in_layout(output, batched), self._unstacked(last, batched), reserve

    def _forward_natively(
        self, reserve: Reserve, first: list[Array] | None, output: Array, last: list[Array], keep: bool, memory: Array | None
    ) -> None:
        native, network = backends.native(), reserve.network
        steps, rows, _ = output.shape
        if keep:
            needed = self.reserve_size(steps, rows)
            memory = aligned(needed) if memory is None else memory
            if not isinstance(memory, np.ndarray) or not (memory.flags.c_contiguous and memory.flags.writeable):
                raise ValueError("memory should be a contiguous and writable NumPy array")
            if memory.nbytes < needed or memory.ctypes.data % ALIGNMENT:
                message = f"at least {needed} bytes at a multiple of {ALIGNMENT}"
                raise ValueError(f"memory should be {message}, got {memory.nbytes} bytes")
            reserve.memory = memory
        shape = native.Shape(
            "training" if keep else "inference",
            self.dtype.name,
            native.Extent(steps, rows),
            tuple(_strides(a) for a in reserve.inputs),
            _strides(output),
            tuple(_strides(a) for a in first) if first else (None,) * len(last),
            tuple(_strides(a) for a in last),
        )
        arrays = [*reserve.inputs, output, *(first or ()), *last, *reserve.sources, *([memory] if keep else [])]
        native.call(network, shape, [a.ctypes.data for a in arrays], reserve.randomness)

    def _forward_by_reference(self, reserve: Reserve, first: list[Array] | None, output: Array, last: list[Array]) -> None:
        network = reserve.network
        per_unit = len(network.sources)
        values = [
            reference.source_values(network, layer, reserve.sources[u * per_unit : (u + 1) * per_unit])
            for u, (layer, _) in enumerate(network.units)
        ]
        with np.errstate(all="ignore"):
            made, states = reference.forward(
                network, np, self.dtype.type, reserve.inputs, values, self._by_unit(first, output.shape[1]), reserve.randomness
            )
        output[...] = made
        for k, array in enumerate(last):
            array[...] = np.stack([states[u][k] for u in range(len(network.units))])

    def _by_unit(self, stacked: list[Array] | None, rows: int, zero: bool = False) -> list[list[Array]]:
        """States for each unit; the cell's own (or zeros) where none are given."""
        specs = self.network.graph.states
        result = []
        for unit in range(len(self.network.units)):
            own = [
                np.full((rows, size), 0.0 if zero else spec.init, self.dtype)
                for spec, size in zip(specs, self.network.state_sizes, strict=True)
            ]
            result.append([a[unit] for a in stacked] if stacked else own)
        return result

    # backward

    def backward(
        self,
        reserve: Reserve,
        d_output: Array | None = None,
        d_state: States | None = None,
        *,
        d_last_output: Array | None = None,
        gradients: dict[str, Array] | None = None,
        add: bool = False,
    ) -> tuple[Array, Any, dict[str, Array]]:
        """All gradients of a training call.

        Args:
            reserve: from `forward_training`; can be used again.
            d_output: cotangent of the output, in its layout; None when it has none.
            d_state: cotangent of the last states, formed like them; None for zero.
            d_last_output: instead of `d_output`, the cotangent [N, directions * H] of the last step's output alone.
            gradients: arrays to put the parameters' gradients in, by name; new ones by default.
            add: add to what `gradients` holds.

        Returns: gradients of x (a tuple with those of the cell's further inputs, if it has any), of the initial states, and of
        the parameters by name.

        Raises: ValueError and TypeError for what does not fit, before any work.
        """
        d_x, d_first, work = self._backward(reserve, d_output, d_state, d_last_output, gradients, add, weights=True)
        return d_x, d_first, work.gradients

    def backward_data(
        self,
        reserve: Reserve,
        d_output: Array | None = None,
        d_state: States | None = None,
        *,
        d_last_output: Array | None = None,
    ) -> tuple[Array, Any, Workspace]:
        """Gradients of x and of the initial states, and the workspace from which `backward_weights` goes on. See `backward`."""
        return self._backward(reserve, d_output, d_state, d_last_output, None, False, weights=False)

    def backward_weights(
        self, workspace: Workspace, gradients: dict[str, Array] | None = None, *, add: bool = False
    ) -> dict[str, Array]:
        """Gradients of the parameters, after `backward_data`: set, or added to what `gradients` holds."""
        self._check_gradients(gradients)
        if workspace.in_two is None:
            return self._put(workspace.gradients, gradients, add)
        d_sources = self._new_gradients(workspace.reserve)
        backends.native().backward_weights(workspace.in_two, workspace.addresses(d_sources))
        return self._put(self._named(workspace.reserve, d_sources), gradients, add)

    def _backward(
        self,
        reserve: Reserve,
        d_output: Array | None,
        d_state: States | None,
        d_last_output: Array | None,
        gradients: dict[str, Array] | None,
        add: bool,
        weights: bool,
    ) -> tuple[Array, Any, Workspace]:
        self._check_reserve(reserve)
        network, batched = reserve.network, reserve.batched
        self._check_gradients(gradients)
        steps, rows, _ = reserve.inputs[0].shape
        width = network.directions * network.output_size
        d_y, span = self._output_cotangent(d_output, d_last_output, steps, rows, width, batched)
        d_last = self._stacked(d_state, rows, batched, "d_state")
        if self._why_not_native():
            return self._backward_by_reference(reserve, d_y, span, d_last, gradients, add)
        native = backends.native()
        d_inputs = [self._new_sequence(steps, rows, a.shape[-1]) for a in reserve.inputs]
        d_first = [np.empty((len(network.units), rows, size), self.dtype) for size in network.state_sizes]
        shape = native.Shape(
            "backward",
            self.dtype.name,
            native.Extent(steps, rows, not weights),
            tuple(_strides(a) for a in reserve.inputs),
            _strides(d_y) if d_y is not None else None,
            tuple(_strides(a) for a in d_last) if d_last else (None,) * len(d_first),
            tuple(_strides(a) for a in d_first),
            span,
            tuple(_strides(d) for d in d_inputs),
            gradients=True,
        )
        before = [*reserve.inputs, *([] if d_y is None else [d_y]), *(d_last or ()), *d_first, *d_inputs, *reserve.sources]
        work = Workspace(reserve, arrays=before)
        if weights:
            d_sources = self._new_gradients(reserve)
            native.call(network, shape, work.addresses(d_sources), reserve.randomness)
            work.gradients = self._put(self._named(reserve, d_sources), gradients, add)
        else:
            work.in_two = native.backward_data(network, shape, work.addresses(reserve.sources), reserve.randomness)
        return self._d_inputs(d_inputs, batched), self._unstacked(d_first, batched), work

    def _check_reserve(self, reserve: Reserve) -> None:
        if not isinstance(reserve, Reserve):
            raise TypeError(f"reserve should be what forward_training gave, got {type(reserve).__name__}")
        steps, rows, _ = reserve.inputs[0].shape
        native = not self._why_not_native()
        kept = reserve.memory.nbytes >= self.reserve_size(steps, rows) and reserve.memory.ctypes.data % ALIGNMENT == 0
        if reserve.network != self.training_network or reserve.inputs[0].dtype != self.dtype or (native and not kept):
            raise ValueError("reserve should be what forward_training of this layer, or of one like it, gave; not a copy of it")

    def _check_gradients(self, gradients: Mapping[str, Array] | None) -> None:
        for name, parameter in self.parameters.items() if gradients is not None else ():
            array = gradients.get(name) if gradients is not None else None
            if not isinstance(array, np.ndarray):
                kind = "nothing" if array is None else f"a {type(array).__name__}"
                raise TypeError(f"gradients should hold a NumPy array for each parameter, got {kind} for {name}")
            if not array.flags.writeable:
                raise ValueError(f"gradients: {name} should be writable")
            if array.shape != parameter.shape or array.dtype != self.dtype:
                sides = f"should be {self.dtype} {parameter.shape}, got {array.dtype} {array.shape}"
                raise ValueError(f"gradients: {name} {sides}")

    def _output_cotangent(
        self, d_output: Array | None, d_last_output: Array | None, steps: int, rows: int, width: int, batched: bool
    ) -> tuple[Array | None, tuple[int, int]]:
        """[T, N, width] (of stride zero over steps when only the last one has a cotangent), and the steps that have one."""
        if d_output is not None and d_last_output is not None:
            raise ValueError("give d_output or d_last_output, not both")
        if d_last_output is not None:
            if not isinstance(d_last_output, np.ndarray):
                raise TypeError(f"d_last_output should be a NumPy array, got {type(d_last_output).__name__}")
            last = d_last_output if batched else d_last_output[None]
            if last.shape != (rows, width) or last.dtype != self.dtype:
                raise ValueError(f"d_last_output should be {self.dtype} {(rows, width)}, got {last.dtype} {last.shape}")
            return np.broadcast_to(_readable(last), (steps, rows, width)), (steps - 1, steps)
        if d_output is None:
            return None, (0, 0)
        view, _ = self._time_major(d_output, "d_output", width)
        if view.shape != (steps, rows, width):
            raise ValueError(f"d_output should have the output's shape, got {d_output.shape}")
        return _readable(view), (0, steps)

    def _backward_by_reference(
        self,
        reserve: Reserve,
        d_y: Array | None,
        span: tuple[int, int],
        d_last: list[Array] | None,
        gradients: dict[str, Array] | None,
        add: bool,
    ) -> tuple[Array, Any, Workspace]:
        network = reserve.network
        steps, rows, _ = reserve.inputs[0].shape
        full = np.zeros((steps, rows, network.directions * network.output_size), self.dtype)
        if d_y is not None:
            full[span[0] : span[1]] = d_y[span[0] : span[1]]
        parameters = [self._unit_parameters(*unit) for unit in network.units]
        with np.errstate(all="ignore"):
            d_inputs, d_parameters, d_first = reference.backward(
                network,
                reserve.inputs,
                parameters,
                self._by_unit(reserve.first, rows),
                full,
                self._by_unit(d_last, rows, zero=True),
                reserve.randomness,
            )
        named = {
            name + network.suffix(*unit): np.asarray(d)
            for unit, some in zip(network.units, d_parameters, strict=True)
            for name, d in some.items()
        }
        stacked = [np.stack([d_first[u][k] for u in range(len(network.units))]) for k in range(len(network.state_sizes))]
        work = Workspace(reserve, gradients=self._put(named, gradients, add))
        return self._d_inputs(d_inputs, reserve.batched), self._unstacked(stacked, reserve.batched), work

    def _d_inputs(self, gradients: Sequence[Array], batched: bool) -> Any:
        """The gradient of x, or a tuple of it and those of the cell's further inputs."""
        found = tuple(self._in_layout(d, batched) for d in gradients)
        return found if len(found) > 1 else found[0]

    def _new_gradients(self, reserve: Reserve) -> list[Array]:
        network = reserve.network
        names = network.sources * len(network.units)
        summed = network.plan.summed
        return [np.zeros_like(a) if n in summed else np.empty_like(a) for n, a in zip(names, reserve.sources, strict=True)]

    def _named(self, reserve: Reserve, d_sources: Sequence[Array]) -> dict[str, Array]:
        """Gradients of the parameters by name, from those of the sources, through the parameter phase where there is one."""
        network = reserve.network
        per_unit = len(network.sources)
        named: dict[str, Array] = {}
        for u, (layer, direction) in enumerate(network.units):
            by_source = dict(zip(network.sources, d_sources[u * per_unit : (u + 1) * per_unit], strict=True))
            suffix = network.suffix(layer, direction)
            parameters = self._unit_parameters(layer, direction)
            own = {name: by_source.get(name) for name in parameters}
            if network.plan.phase.computed:
                own = reference.through_parameter_phase(network, layer, parameters, by_source)
            named |= {name + suffix: d if d is not None else np.zeros_like(parameters[name]) for name, d in own.items()}
        return named

    def _put(self, made: Mapping[str, Array], gradients: dict[str, Array] | None, add: bool) -> dict[str, Array]:
        if gradients is None:
            return dict(made)
        for name, d in made.items():
            if add:
                gradients[name] += d
            else:
                gradients[name][...] = d
        return gradients


def _readable(array: Array) -> Array:
    """The array itself when its features lie next to each other, else a copy."""
    return array if array.strides[-1] == array.itemsize or array.shape[-1] <= 1 else np.ascontiguousarray(array)


def _strides(array: Array) -> tuple[int, int]:
    return array.strides[0], array.strides[1]
