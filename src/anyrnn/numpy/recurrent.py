"""A layer to call on NumPy arrays, and under it the primitives of training."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import backends, cells
from anyrnn._memory import ALIGNMENT, aligned
from anyrnn.errors import UnsupportedError
from anyrnn.ir.philox import Randomness
from anyrnn.numpy import interpreted
from anyrnn.numpy.arrays import Array, Arrays, States, given_back, readable, strides
from anyrnn.numpy.parameters import check_gradients, first_values, gradients_by_name, new_gradients, of_unit, put, sources
from anyrnn.numpy.stream import Stream
from anyrnn.sequence.network import Network, check_arguments, make_network, with_dropout
from anyrnn.trace import Cell


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
        self.parameters = first_values(self.network, hidden_size, self.dtype, seed)
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
        return sources(self.network, self.parameters, self.dtype)

    def reserve_size(self, steps: int, rows: int) -> int:
        """Bytes that `forward_training` keeps for sequences of so many steps and samples."""
        if self._why_not_native():
            return 0
        size: int = backends.native().reserve_bytes(self.training_network, self.dtype.name, steps * rows, rows)
        return size

    def workspace_size(self, steps: int, rows: int) -> int:
        """Bytes that `backward_data` and `backward_weights` work in."""
        if self._why_not_native():
            return 0
        native = backends.native()
        size: int = native.workspace_bytes(self.training_network, self.dtype.name, native.Extent(steps, rows, True))
        return size

    def _arrays(self) -> Arrays:
        return Arrays(self.network, self.dtype, self.batch_first)

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
        network, arrays = self.training_network if keep else self.network, self._arrays()
        view, batched = arrays.sequence(x, "x", network.input_size)
        inputs = [view, *arrays.further(further, view, batched)]
        first = arrays.states(state, view.shape[1], batched, "state")
        read = (*inputs, *(first or ()), *self.parameters.values(), *([memory] if isinstance(memory, np.ndarray) else []))
        output = arrays.output(out, view, batched, read)
        last = arrays.new_states(view.shape[1])
        drops = network is not self.network
        randomness = Randomness(operator.index(seed), (0.0, *[self.dropout] * (network.layers - 1))) if drops else None
        nothing, inputs = np.empty(0, np.uint8), [readable(a) for a in inputs]
        reserve = Reserve(nothing, network, inputs, first, sources(network, self.parameters, self.dtype), batched, randomness)
        if self._why_not_native():
            interpreted.forward(network, reserve.inputs, reserve.sources, first, output, last, randomness)
        else:
            self._forward_natively(reserve, first, output, last, keep, memory)
        return out if out is not None else arrays.in_layout(output, batched), given_back(last, batched), reserve

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
            strides(reserve.inputs),
            strides([output])[0],
            strides(first) if first else (None,) * len(last),
            strides(last),
        )
        arrays = [*reserve.inputs, output, *(first or ()), *last, *reserve.sources, *([memory] if keep else [])]
        native.call(network, shape, [a.ctypes.data for a in arrays], reserve.randomness)

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
        check_gradients(self.parameters, gradients, self.dtype)
        if workspace.in_two is None:
            return put(workspace.gradients, gradients, add)
        d_sources = new_gradients(workspace.reserve.network, workspace.reserve.sources)
        backends.native().backward_weights(workspace.in_two, workspace.addresses(d_sources))
        return put(self._by_name(workspace.reserve, d_sources), gradients, add)

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
        check_gradients(self.parameters, gradients, self.dtype)
        network, batched, arrays = reserve.network, reserve.batched, self._arrays()
        steps, rows, _ = reserve.inputs[0].shape
        d_y, span = arrays.output_cotangent(d_output, d_last_output, steps, rows, batched)
        d_last = arrays.states(d_state, rows, batched, "d_state")
        work = Workspace(reserve)
        if self._why_not_native():
            parameters = [of_unit(network, self.parameters, *unit, self.dtype) for unit in network.units]
            d_inputs, d_first, named = interpreted.backward(
                network, reserve.inputs, parameters, reserve.first, d_y, span, d_last, reserve.randomness
            )
            work.gradients = put(named, gradients, add)
        else:
            d_inputs, d_first = self._backward_natively(work, d_y, span, d_last, weights)
            if weights:
                work.gradients = put(work.gradients, gradients, add)
        found: Any = tuple(arrays.in_layout(d, batched) for d in d_inputs)
        return found if len(found) > 1 else found[0], given_back(d_first, batched), work

    def _backward_natively(
        self, work: Workspace, d_y: Array | None, span: tuple[int, int], d_last: list[Array] | None, weights: bool
    ) -> tuple[list[Array], list[Array]]:
        """Gradients of the inputs and of the first states; those of the parameters, if wanted, go to the workspace."""
        native, reserve, arrays = backends.native(), work.reserve, self._arrays()
        network, (steps, rows, _) = reserve.network, reserve.inputs[0].shape
        d_inputs = [arrays.new_sequence(steps, rows, a.shape[-1]) for a in reserve.inputs]
        d_first = arrays.new_states(rows)
        shape = native.Shape(
            "backward",
            self.dtype.name,
            native.Extent(steps, rows, not weights),
            strides(reserve.inputs),
            strides([d_y])[0] if d_y is not None else None,
            strides(d_last) if d_last else (None,) * len(d_first),
            strides(d_first),
            span,
            strides(d_inputs),
            gradients=True,
        )
        work.arrays = [*reserve.inputs, *([] if d_y is None else [d_y]), *(d_last or ()), *d_first, *d_inputs, *reserve.sources]
        if weights:
            d_sources = new_gradients(network, reserve.sources)
            native.call(network, shape, work.addresses(d_sources), reserve.randomness)
            work.gradients = self._by_name(reserve, d_sources)
        else:
            work.in_two = native.backward_data(network, shape, work.addresses(reserve.sources), reserve.randomness)
        return d_inputs, d_first

    def _by_name(self, reserve: Reserve, d_sources: Sequence[Array]) -> dict[str, Array]:
        return gradients_by_name(reserve.network, self.parameters, d_sources, self.dtype)

    def _check_reserve(self, reserve: Reserve) -> None:
        if not isinstance(reserve, Reserve):
            raise TypeError(f"reserve should be what forward_training gave, got {type(reserve).__name__}")
        steps, rows, _ = reserve.inputs[0].shape
        native = not self._why_not_native()
        kept = reserve.memory.nbytes >= self.reserve_size(steps, rows) and reserve.memory.ctypes.data % ALIGNMENT == 0
        if reserve.network != self.training_network or reserve.inputs[0].dtype != self.dtype or (native and not kept):
            raise ValueError("reserve should be what forward_training of this layer, or of one like it, gave; not a copy of it")
