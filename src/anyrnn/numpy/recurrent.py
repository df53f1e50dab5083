"""A layer to call on NumPy arrays, and under it the primitives of training."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from anyrnn import backends
from anyrnn._memory import ALIGNMENT, addresses, empty
from anyrnn.errors import UnsupportedError
from anyrnn.explanation import Seen, Stopped, told_of_packing
from anyrnn.numpy import parts
from anyrnn.numpy.arguments import Arguments, Array, States, given_back, may_change, readable, share
from anyrnn.numpy.calls import Reserve, Workspace, bytes_kept
from anyrnn.numpy.packed_weights import Kept, Packs
from anyrnn.numpy.parameters import add_first_gradients, check_gradients, initial_parameters, own_states, put, sources
from anyrnn.numpy.repeated import Earlier, Settings, settings_of
from anyrnn.numpy.state import RecurrentState
from anyrnn.numpy.stream import Stream
from anyrnn.numpy.uneven import batch_of
from anyrnn.sequence.layer import Layer, described
from anyrnn.sequence.network import (
    Network,
    Networks,
    check_arguments,
    check_size,
    check_wanted,
    traced,
)
from anyrnn.sequence.options import copied
from anyrnn.sequence.packing import StepsGiven, steps_given
from anyrnn.trace import Cell


def _unchanged(network: Network, dropout: float) -> Networks:
    return Networks(network, network)


class Recurrent(Layer):
    """A recurrent network of any cell on NumPy arrays.

    Args:
        cell: a cell, the name of a built-in one, or `my_file.py:my_cell`.
        input_size: features of the input, D.
        hidden_size: features of the hidden state, H.
        num_layers, batch_first, bidirectional: as in torch.nn's modules.
        bias: False (or `none`) leaves out every bias of the cell's products; `input` keeps those of the input alone, `recurrent`
            all others.
        dropout: probability of zeroing each output between layers, in training calls.
        backend: `auto`, `llvm` (native kernels) or `reference` (the interpreter). An explicit one that cannot run raises
            UnsupportedError.
        memory_budget: bytes that a training call of native kernels may keep for its backward call. The states before parts of
            the sequence are kept instead of what does not fit, which `backward` computes again: about a third more time, the
            same bits. Features count in multiples of four vectors (64 float32 with AVX-512, 32 with AVX2), and a part is 1024
            rows or more, so short calls need all. By default everything is kept.
        dtype: float32 or float64.
        seed: of the initial parameters, uniform within 1 / sqrt(H) unless the cell says otherwise, and of the seeds that training
            calls have for their random choices.
        options: the cell's hyper-parameters and named sizes other than input and hidden, and what `anyrnn.LayerOptions` tells of:
            input_dropout, recurrent_dropout, weight_dropout, output_dropout, zoneout, clip_state, clip_preactivation,
            clip_gradient, cut_gradient, activations, merge, residual, reverse, learned_state, skip_input.

    `parameters` maps names (`weight_ih_l0`, ... as in torch.nn) to arrays; change their values in place or assign new ones. Calls
    of several steps without gradients keep the weights as kernels read them for the next such call, as much memory again (for
    `return_states="all"` once more), and look whether they have changed.

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
        bias: bool | str = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        backend: str = "auto",
        memory_budget: int | None = None,
        dtype: npt.DTypeLike = np.float32,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        from anyrnn import cells  # a network that was saved has its equations with it, and needs none of them

        self.cell: Cell | None = cells.load(cell)
        check_arguments(bias, batch_first, input_size, hidden_size, num_layers, dropout)
        options = copied(options)
        self._first = (self.cell.name, input_size, hidden_size)
        self._given = {"num_layers": num_layers, "bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
        self._given |= {"backend": backend, **options}
        networks = traced(self.cell, input_size, hidden_size, num_layers, bias, bidirectional, options).with_dropout
        self._set_up(networks, dtype, batch_first, backend, float(dropout), memory_budget, seed)
        self.parameters = initial_parameters(self.network, hidden_size, self.dtype, seed)

    @classmethod
    def of_network(
        cls,
        network: Network,
        parameters: Mapping[str, Array],
        *,
        batch_first: bool = False,
        backend: str = "auto",
        constant: bool = False,
    ) -> Recurrent:
        """A layer of a network that is there already, as one read from a file; its `cell` is None.

        Args:
            parameters: arrays of one dtype, by name; they are the layer's from now on.
            constant: nobody will write to them, or put others in their place.

        Raises: ValueError, TypeError for parameters that do not fit; UnsupportedError as the constructor does.
        """
        layer = cls.__new__(cls)
        layer.cell = None
        layer._first = (network.graph.name, network.input_size, dict(network.sizes).get("hidden", network.output_size))
        layer._given = {"num_layers": network.layers, "batch_first": batch_first, "bidirectional": network.bidirectional}
        layer._given |= {"backend": backend}
        layer.parameters = dict(parameters)
        dtype = next((array.dtype for array in layer.parameters.values()), np.dtype(np.float32))
        layer._set_up(partial(_unchanged, network), dtype, batch_first, backend, 0.0, None, None)
        layer._kept = Kept() if constant else None
        chances = network.randomness(0, None)  # of a network as it trains
        sources(network, layer.parameters, layer.dtype, chances)  # which looks whether all parameters are there
        return layer

    def _set_up(
        self,
        networks: Callable[[float], Networks],
        dtype: npt.DTypeLike,
        batch_first: bool,
        backend: str,
        dropout: float,
        memory_budget: int | None,
        seed: int | None,
    ) -> None:
        self.dtype, self.batch_first = dtype, batch_first
        self._networks, self._dropout, self.memory_budget = networks, dropout, memory_budget
        self.network: Network = networks(dropout).evaluation
        self._generator = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        self.backend = backend
        self._kept: Kept | None = None
        self._packs, self._earlier = Packs(), Earlier()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the parameters and of what a call takes and gives; may be changed, and then the parameters have to be."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: npt.DTypeLike) -> None:
        try:
            dtype = np.dtype(value)
        except TypeError:
            hint = "; layers of tensors are those of anyrnn.torch" * str(value).startswith("torch.")
            raise TypeError(f"dtype should be float32 or float64, got {value!r}{hint}") from None
        if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise TypeError(f"dtype should be float32 or float64, got {dtype}")
        self._dtype = np.dtype(dtype.type)
        self._packs = Packs()

    @property
    def batch_first(self) -> bool:
        """Whether sequences are [N, T, features]; it may be changed."""
        return self._batch_first

    @batch_first.setter
    def batch_first(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"batch_first should be a bool, got {value!r}")
        self._batch_first = value

    def _check_backend(self, name: str) -> None:
        if name not in backends.NAMES:
            raise ValueError(f"backend should be one of {', '.join(backends.NAMES)}, got {name!r}")
        if name == "llvm" and (reason := backends.why_not_native(self.network, self.dtype.name)):
            raise UnsupportedError(f"backend 'llvm' cannot run this: {reason}")

    def _changed(self) -> None:
        self.training_network: Network = self._networks(self.dropout).training

    def __repr__(self) -> str:
        given = {
            **self._given,
            "batch_first": self.batch_first,
            "backend": self.backend,
            "dropout": self.dropout,
            "memory_budget": self.memory_budget,
            "dtype": self.dtype.name,
        }
        return f"Recurrent({described(self._first, given)})" + ".in_int8()" * self.int8

    @property
    def backend_name(self) -> str:
        """The backend that a call runs on: `llvm` or `reference`."""
        return "reference" if self._why_not_native() else "llvm"

    def _why_not_native(self) -> str | None:
        if self.backend == "reference":
            return "backend='reference' was asked for"
        return backends.why_not_native(self.network, self.dtype.name)

    @property
    def native_dtype(self) -> str:
        """What native calls say for the dtype."""
        return str(backends.native().said(self.dtype.name, "int8")) if self.int8 else self.dtype.name

    def in_int8(self) -> Recurrent:
        """The layer with its parameters as they are now, for calls without gradients, whose matrices are multiplied as integers
        of eight bits, as are the vectors that they multiply: each in blocks of 512 features that have a scale of their own, the
        largest magnitude over 127. Sums, biases and all else stay float32.

        Returns: the layer, whose arrays nobody can write to; others may be put in their place.

        Raises: UnsupportedError where no native kernels run, and for float64; a call does where they do no more.
        """
        self._check_int8()
        layer = copy(self)
        layer.parameters = {n: array.copy() if may_change(array) else array for n, array in self.parameters.items()}
        layer._kept, layer._int8 = Kept(), True
        layer._let_nobody_write()
        return layer

    def __getstate__(self) -> dict[str, Any]:
        """Without what calls of the one that is copied may use now."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_packs", "_earlier")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dtype = self._dtype  # one that was pickled is another object
        self._packs, self._earlier = Packs(), Earlier()
        if self.int8:  # copies can be written to
            self._let_nobody_write()

    def _let_nobody_write(self) -> None:
        for array in self.parameters.values():
            array.flags.writeable = False

    def _check_int8(self) -> None:
        reason = self._why_not_native()
        if reason is None and self.dtype != np.float32:
            reason = f"products of int8 are for float32, got {self.dtype}"
        reason = reason or backends.why_not_native(self.network, backends.native().IN_INT8)
        if reason:
            raise UnsupportedError(f"in_int8: {reason}")

    def _seen(self, *given: Any, **call: Any) -> Seen:
        twin = copy(self)
        twin.__dict__["_fill"] = self._stop
        try:
            twin.forward_inference(*given, **call)
        except Stopped as stopped:
            return stopped.seen
        raise AssertionError("a call fills its output")

    def _stop(self, reserve: Reserve, output: Array, first: Any, all_states: bool, keep: bool, memory: Any) -> None:
        """In the place of `_fill`, for `explain`."""
        reason, batch = self._why_not_native(), reserve.batch
        trained = self.training_network.with_all_states if all_states else self.training_network
        of_training = dict.fromkeys(("training", "backward"), trained)
        if self.int8 or (reason and self.memory_budget is not None):
            of_training = {}  # which are refused
        raise Stopped(
            Seen(
                layer=repr(self),
                programs={"inference": reserve.network, **of_training} if reserve.steps else {},
                dtype=self.dtype.name,
                products="int8" * self.int8,
                steps=reserve.steps,
                rows=reserve.rows,
                counts=reserve.counts,
                memory_budget=self.memory_budget,
                why_not_native=reason,
                interpreter="the interpreter on NumPy",
                beside="",
                batch="" if batch is None else told_of_packing(batch.packing.total, batch.packing.rows),
                roomy=("inference",),
            )
        )

    def _sequence(self, x: Array, joined: bool = False) -> tuple[Array, bool]:
        """The input as [T, N, D], and whether there is a batch. Only where rows of samples are `joined` there may be no step."""
        view, batched = self._arguments().sequence(x, "x", self.network.input_size)
        if not len(view) and not joined:
            raise ValueError("x has no steps; a sequence needs at least one")
        return view, batched

    def forward_inference(
        self,
        x: Array,
        state: States | None = None,
        *,
        out: Array | None = None,
        lengths: Any = None,
        cu_seqlens: Any = None,
        mask: Array | None = None,
        mask_value: float | None = None,
        reset: Array | None = None,
        padding: float | Literal["last"] = 0.0,
        return_outputs: Literal["all", "last", "none"] = "all",
        return_states: Literal["last", "all"] = "last",
        **steps: Array,
    ) -> tuple[Array, Any]:
        """Run over a sequence; keeps nothing for a backward call.

        Args:
            x: [T, N, D], [N, T, D] with batch_first, or [T, D] without a batch; of the layer's dtype. With `cu_seqlens` the rows
                of all samples one after the other, [sum of lengths, D].
            state: initial state [layers * directions, N, H], or a sequence of them for a cell with several states, or a
                `RecurrentState`, and then the last states are one too; the cell's own by default.
            out: where to put the output.
            lengths: how many steps each sample has, N integers from 0 to T in any order. Nothing beyond is read, nor computed.
                Each direction begins at its own end of a sample.
            cu_seqlens: N + 1 integers from 0 to the rows of x; sample n has those from `cu_seqlens[n]` up to
                `cu_seqlens[n + 1]`, maybe none.
            mask: bool, [T, N] in x's layout ([T] without a batch, [rows] with `cu_seqlens`): False for steps that a sample does
                not have. They are as if they were cut out.
            mask_value: steps that a sample does not have are those where all features of the input have this value.
            reset: bool, of the shape of a mask: True for steps that begin a new sequence, from the cell's own first values. No
                direction sees across; the given states go to, and the last come from, the ends of the sample. At a step
                that is not there, it is for the next one that is.
            padding: what outputs hold where a sample has no step: a number, or `last` for the output of the latest step that it
                had (whatever the direction), or zero.
            return_outputs: `all`; or `last` for the output [N, directions * H] of the last step that each direction takes of a
                sample, which of one that reads backwards is its first (a sample without steps has a `padding` that is a number,
                or zero); or `none`, which gives None. The others are not kept.
            return_states: `last`, or `all` for the states after every step.
            steps: the cell's further per-step inputs, by name, [T, N, size] in x's layout; every layer gets them.

        Returns: the output [T, N, directions * H] in x's layout, and the last state (a tuple of them for a cell with several):
        that after a sample's own last step, and of a sample without steps the initial one. All states are
        [layers * directions, T, N, size] each, the last three in x's layout and padded as the output is.

        Raises: before any work, ValueError for wrong shapes and for an `out` that cannot be written, has its features apart or
        shares memory with what is read; TypeError for wrong dtypes.
        """
        which = steps_given(lengths, cu_seqlens, mask, mask_value, reset, padding)
        settings = settings_of(self) if which is None and out is None and return_states == "last" else None
        if settings is not None:
            found = self._earlier.result(self, settings, x, steps, state, return_outputs)
            if found is not None:
                return found
        given = x, steps, state, out, which, return_outputs, return_states
        output, last, _ = self._forward(*given, keep=False, settings=settings)
        return output, last

    __call__ = forward_inference

    def forward_training(
        self,
        x: Array,
        state: States | None = None,
        *,
        out: Array | None = None,
        lengths: Any = None,
        cu_seqlens: Any = None,
        mask: Array | None = None,
        mask_value: float | None = None,
        reset: Array | None = None,
        padding: float | Literal["last"] = 0.0,
        return_outputs: Literal["all", "last", "none"] = "all",
        return_states: Literal["last", "all"] = "last",
        memory: Array | None = None,
        seed: int | None = None,
        **steps: Array,
    ) -> tuple[Array, Any, Reserve]:
        """Run over a sequence, and keep what the backward calls need. What is not told here is as in `forward_inference`.

        Args:
            memory: at least `reserve_size` bytes to keep it in; new ones by default. The interpreter keeps nothing there.
            seed: of random choices (dropout, zoneout), an integer; with the same seed a call makes the same. By default each call
                has another one, from the layer's generator.

        Returns: the output, the last state, and the reserve for `backward`, or for `backward_data` and `backward_weights`. It
        refers to x and to the parameters' arrays, whose numbers should stay as they are until then; the layer may get others.

        Raises: before any work, what `forward_inference` does; ValueError for a `memory` that is too small, cannot be written or
        holds what is read, TypeError for a seed that is no integer; UnsupportedError for a `memory_budget` too small, or where no
        kernels run.
        """
        if seed is None:
            seed = int(self._generator.integers(2**63))
        elif not isinstance(seed, SupportsIndex) or isinstance(seed, bool):
            raise TypeError(f"seed should be an integer, got {seed!r}")
        which = steps_given(lengths, cu_seqlens, mask, mask_value, reset, padding)
        return self._forward(x, steps, state, out, which, return_outputs, return_states, keep=True, memory=memory, seed=seed)

    def initial_state(self, batch_size: int | None = None) -> RecurrentState:
        """The states that sequences begin with: learned ones if the layer has them, else the cell's own initial values.

        Args: batch_size: N; without it the states of one sequence without a batch.

        Raises: TypeError, ValueError for what is no size.
        """
        own, names = own_states(self.network, self.parameters, self.dtype), self.network.graph.state_names
        if batch_size is None:
            return RecurrentState(names, tuple(a[:, 0].copy() for a in own))
        check_size("batch_size", batch_size)
        return RecurrentState(names, tuple(np.repeat(a, batch_size, 1) for a in own))

    def stream(self, batch_size: int = 1) -> Stream:
        """The layer with its parameters as they are now, to be called step after step; see `Stream`.

        Args: batch_size: how many sequences go on side by side, N.

        Raises: ValueError for a bidirectional layer.
        """
        layer = self.in_int8() if self.int8 else copy(self)
        if not self.int8:
            layer.parameters, layer._kept = {name: array.copy() for name, array in self.parameters.items()}, None
        layer.batch_first = False
        return Stream(layer, batch_size)

    def sources(self) -> list[Array]:
        """The arrays that the steps of all layers and directions read, of the parameters as they are now."""
        return sources(self.network, self.parameters, self.dtype)

    def reserve_size(self, steps: int, batch_size: int) -> int:
        """Bytes that `forward_training` keeps for sequences of so many steps and samples; a reset counts as one sample more. Of
        residual and merged layers the inputs [T, N, width] are kept beside them, each in an array of its own.

        Raises: TypeError, ValueError for what is no size.
        """
        check_size("steps", steps)
        check_size("batch_size", batch_size)
        if self._why_not_native():
            return 0
        return bytes_kept(self.training_network, self.dtype.name, steps * batch_size, batch_size, self.memory_budget)

    def _arguments(self) -> Arguments:
        return Arguments(self.network, self.dtype, self.batch_first)

    # forward

    def _forward(
        self,
        x: Array,
        further: Mapping[str, Array],
        state: States | None,
        out: Array | None,
        which: StepsGiven | None,
        return_outputs: str,
        return_states: str,
        keep: bool,
        memory: Array | None = None,
        seed: int = 0,
        settings: Settings | None = None,
    ) -> tuple[Array, Any, Any]:
        """`settings`: what the layer was before a call that may be repeated."""
        if out is not None and return_outputs == "none":
            raise ValueError("out is for the output, and return_outputs='none' asks for none")
        reserve, inputs, first = self._begun(x, further, state, which, return_outputs, return_states, keep, seed)
        arguments, all_states, batched, several = self._arguments(), return_states == "all", reserve.batched, reserve.several
        read = [*inputs, *(first or ()), *self.parameters.values()]
        if isinstance(memory, np.ndarray):
            _check_apart(memory, read)
            read.append(memory)
        of_ends = return_outputs != "all"
        sides = several if of_ends else batched, read, reserve.samples if of_ends else None
        output = arguments.output(out, inputs[0], *sides)
        last, more = self._fill(reserve, output, first, all_states, keep, memory)
        shown = self._shown(reserve, output) if out is None else out
        if return_outputs == "none":
            shown = None
        elif self.network.merge == "separate":
            shown = tuple(np.split(shown, 2, -1))
        if all_states:
            return shown, arguments.all_given_back(more, batched), reserve
        if settings is not None:
            self._earlier.note(self, settings, (x, further, state), reserve, (output, last), shown)
        states = given_back(last, several)
        if isinstance(state, RecurrentState):
            states = RecurrentState(state.names, states if isinstance(states, tuple) else (states,))
        return shown, states, reserve

    def _begun(
        self,
        x: Array,
        further: Mapping[str, Array],
        state: States | None,
        which: StepsGiven | None,
        return_outputs: str,
        return_states: str,
        keep: bool,
        seed: int,
    ) -> tuple[Reserve, list[Array], list[Array] | None]:
        """What a call reads and what its backward call will, checked, before anything is computed; the inputs [T, N, features]
        and the first states as the caller gave them, or as they were learned.
        """
        check_wanted(self.network, "", return_outputs, return_states)
        if self.int8:
            self._check_int8()
            if keep:
                raise UnsupportedError("products of int8 have no gradients; train the layer that this one was made of")
            parameters = dict(self.parameters)
            if self._kept is None or not self._kept.holds(parameters):
                self._kept = None if any(array.flags.writeable for array in parameters.values()) else Kept(parameters)
        if keep and self.memory_budget is not None and (reason := self._why_not_native()):
            raise UnsupportedError(f"memory_budget is for native kernels, and none run this: {reason}")
        arguments, all_states = self._arguments(), return_states == "all"
        network = self.training_network if keep else self.network
        network = network.with_all_states if all_states else network
        view, batched = self._sequence(x, joined=which is not None and which.cu_seqlens is not None)
        inputs = [view, *arguments.further(further, view, batched)]
        draw = None if self._why_not_native() else backends.native().draw
        chances = network.randomness(operator.index(seed), None, draw)
        lasting = None if keep or network.draws else self._kept
        make = partial(sources, network, self.parameters, self.dtype, chances)
        now = make() if lasting is None else lasting.sources(network, self.dtype, make)
        own = own_states(network, self.parameters, self.dtype)
        batch = None if which is None else batch_of(network, view, x.shape[:-1], self.batch_first, which, own)
        several, samples = (batched, view.shape[1]) if batch is None else (batched or batch.joined, batch.samples)
        first = arguments.states(state, samples, several, "state")
        learned = first is None and network.learned_state
        if learned:
            first = [np.repeat(array, samples, 1) for array in own]
        packed = [readable(a) if batch is None else batch.rows(a) for a in inputs]
        kept = first if batch is None else batch.entering(first)
        if keep and batch is None and kept:
            kept = [np.array(a, order="C") for a in kept]  # the caller may write the last states there
        places = None if batch is None else (batch.packing.sample, batch.packing.step)
        randomness = network.randomness(operator.index(seed), places, draw)
        reserve = Reserve(
            network=network,
            native_dtype=self.native_dtype,
            inputs=packed,
            first=kept,
            sources=now,
            parameters=dict(self.parameters),
            batched=batched,
            randomness=randomness,
            batch=batch,
            learned=learned,
            outputs=return_outputs,
            budget=self.memory_budget,
            packs=None if keep else self._packs,
            kept=lasting,
        )
        return reserve, inputs, first

    def _fill(
        self, reserve: Reserve, output: Array, first: list[Array] | None, all_states: bool, keep: bool, memory: Array | None
    ) -> tuple[list[Array], list[Array]]:
        """Run, filling the output; the last states, and those after all steps if asked for. `first`: as the caller gave them."""
        arguments, batch, native = self._arguments(), reserve.batch, not self._why_not_native()
        if batch is None:
            last = arguments.new_states(reserve.rows)
            more = arguments.new_sequences((reserve.steps, reserve.rows)) if all_states else []
            parts.forward(reserve, output, [*last, *more], native, keep, memory)
            return last, more
        of_ends = reserve.outputs != "all"
        rows = output if of_ends else empty((reserve.total, output.shape[-1]), self.dtype)
        after = arguments.new_states(reserve.rows)
        packed_more = arguments.new_sequences((reserve.total,)) if all_states else []
        if reserve.steps:
            parts.forward(reserve, rows, [*after, *packed_more], native, keep, memory)
        if of_ends:
            batch.pad_ends(output)
        else:
            batch.put(rows, output)
        more = arguments.new_sequences(batch.sides) if all_states else []
        for of_rows, of_steps in zip(packed_more, more, strict=True):
            for unit, sequence in zip(of_rows, of_steps, strict=True):
                batch.put(unit, sequence)
        return batch.leaving(after, first), more

    def _shown(self, reserve: Reserve, output: Array) -> Any:
        """The output in the caller's layout."""
        if reserve.outputs == "all":
            return self._arguments().in_layout(output, reserve.batched)
        return output if reserve.several else output[0]

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
            d_output: cotangent of the output, in its layout or of the last steps alone, as it was given; None when it has none.
            d_state: cotangent of the last states, formed like them; None for zero.
            d_last_output: instead of `d_output`, the cotangent [N, directions * H] of `output[-1]` alone (of each sample's own
                last step), which of a direction that reads backwards is its first; for calls that gave all outputs.
            gradients: arrays to put the parameters' gradients in, by name; new ones by default.
            add: add to what `gradients` holds.

        Returns: gradients of x (a tuple with those of the cell's further inputs, if it has any), of the initial states, and of
        the parameters by name, each of the shape, layout and dtype of what it is the gradient of.

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
        """Gradients of x and of the initial states, and the workspace from which `backward_weights` goes on. See `backward`.

        Raises: what `backward` does, and UnsupportedError where a `memory_budget` left out something to be computed again.
        """
        return self._backward(reserve, d_output, d_state, d_last_output, None, False, weights=False)

    def backward_weights(
        self, workspace: Workspace, gradients: dict[str, Array] | None = None, *, add: bool = False
    ) -> dict[str, Array]:
        """Gradients of the parameters by name, after `backward_data`: new arrays, or put into those of `gradients`, or with `add`
        added to what they hold.

        Raises: TypeError for what is no workspace; TypeError, ValueError for `gradients` that do not fit the parameters, before
            any work.
        """
        if not isinstance(workspace, Workspace):
            raise TypeError(f"workspace should be what backward_data gave, got {type(workspace).__name__}")
        self._check_reserve(workspace.reserve)
        check_gradients(workspace.reserve.parameters, gradients, self.dtype, add, workspace.reserve.inputs, self.parameters)
        return put(self._with_first(workspace, parts.backward_weights(workspace)), gradients, add)

    def _with_first(self, work: Workspace, gradients: dict[str, Array]) -> dict[str, Array]:
        """With those of learned first values of states."""
        if work.d_own:
            gradients = dict(gradients)
            add_first_gradients(self.network, work.d_own, gradients)
        return gradients

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
        check_gradients(reserve.parameters, gradients, self.dtype, add, reserve.inputs, self.parameters)
        arguments, batch = self._arguments(), reserve.batch
        d_y, span = self._output_cotangent(reserve, d_output, d_last_output)
        d_last, d_more = self._cotangents_of_states(reserve, d_state)
        work = Workspace(reserve)
        rest = (d_more, weights, not self._why_not_native(), arguments)
        d_all: list[Array] = []
        if batch is None:
            d_inputs, d_first = parts.backward(work, d_y, span, d_last, *rest)
        else:
            d_ends, d_through = (None, None) if d_last is None else batch.cotangents_leaving(d_last)
            d_rows, d_begins = parts.backward(work, d_y, span, d_ends, *rest)
            d_inputs = [arguments.new_sequence(*batch.sides, d.shape[-1]) for d in d_rows]
            for d, rows in zip(d_inputs, d_rows, strict=True):
                d[...] = 0
                d[batch.index] = rows
            d_all = batch.cotangents_entering(d_begins)
            if d_through is not None:
                for d, more in zip(d_all, d_through, strict=True):
                    d[:, :-1] += more
            d_first = [np.ascontiguousarray(d[:, :-1]) for d in d_all]
        if self.network.learned_state:
            work.d_own = [d.sum(1) if reserve.learned else np.zeros((len(d), d.shape[2]), d.dtype) for d in d_first]
            if batch is not None:
                for d, of_all in zip(work.d_own, d_all, strict=True):
                    d += of_all[:, -1]  # of resets
        if weights:
            work.gradients = put(self._with_first(work, work.gradients), gradients, add)
        found: Any = tuple(arguments.in_layout(d, reserve.batched) for d in d_inputs)
        return found if len(found) > 1 else found[0], given_back(d_first, reserve.several), work

    def _cotangents_of_states(self, reserve: Reserve, d_state: States | None) -> tuple[list[Array] | None, list[Array]]:
        """Of the last states, or of the states after all steps where they were given back; of packed rows in the latter."""
        arguments, batch = self._arguments(), reserve.batch
        if not reserve.network.graph.more_outputs:
            return arguments.states(d_state, reserve.rows if batch is None else batch.samples, reserve.several, "d_state"), []
        sides = batch.sides if batch else (reserve.steps, reserve.rows)
        d_all = arguments.all_cotangents(d_state, *sides, reserve.batched)
        return None, d_all if batch is None else [np.stack([batch.rows_of_cotangent(unit) for unit in d]) for d in d_all]

    def _output_cotangent(
        self, reserve: Reserve, d_output: Array | None, d_last_output: Array | None
    ) -> tuple[Array | None, tuple[int, int]]:
        """As kernels take it (of stride zero over steps when only the last one has a cotangent), and the steps that have one."""
        arguments, batch, steps = self._arguments(), reserve.batch, reserve.steps
        if d_output is not None and d_last_output is not None:
            raise ValueError("give d_output or d_last_output, not both")
        if reserve.outputs == "none" and d_output is not None:
            raise ValueError("d_output is the cotangent of an output, and the call gave none")
        if reserve.outputs != "all" and d_last_output is not None:
            raise ValueError("d_last_output is for calls that gave all outputs; give d_output, of those that were given")
        if self.network.merge == "separate":
            d_output, d_last_output = (_joined(d, arguments.dtype) for d in (d_output, d_last_output))
        if reserve.outputs != "all" and d_output is not None:
            return readable(arguments.last_cotangent(d_output, reserve.samples, reserve.several, "d_output")), (0, steps)
        if d_output is not None:
            whole = arguments.output_cotangent(d_output, *(batch.sides if batch else (steps, reserve.rows)))
            return batch.rows_of_cotangent(whole) if batch else readable(whole), (0, steps)
        if d_last_output is None:
            return None, (0, 0)
        last = arguments.last_cotangent(d_last_output, reserve.samples, reserve.several, "d_last_output")
        if batch is not None:
            return batch.rows_of_last(last), (0, steps)
        return np.broadcast_to(readable(last), (steps, *last.shape)), (steps - 1, steps)

    def _check_reserve(self, reserve: Reserve) -> None:
        if not isinstance(reserve, Reserve):
            raise TypeError(f"reserve should be what forward_training gave, got {type(reserve).__name__}")
        native = bool(reserve.steps) and not self._why_not_native()
        kept = not native or all(
            one.memory.nbytes >= one.bytes_kept and addresses([one.memory])[0] % ALIGNMENT == 0
            for one in (reserve, *reserve.parts)
        )
        of_layer = reserve.network in (self.training_network, self.training_network.with_all_states)
        if not of_layer or reserve.inputs[0].dtype != self.dtype or not kept:
            raise ValueError("reserve should be what forward_training of this layer, or of one like it, gave; not a copy of it")


def _check_apart(memory: Array, read: Sequence[Array]) -> None:
    if any(share(memory, a) for a in read):
        raise ValueError("memory should not share memory with x, the initial states or the parameters")


def _joined(pair: Any, dtype: np.dtype[Any]) -> Any:
    """The cotangents of both directions' outputs, one behind the other."""
    if pair is None:
        return None
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(d, np.ndarray) and d.dtype == dtype for d in pair):
        raise TypeError(f"the cotangent of separate outputs should be a pair of NumPy arrays of {dtype}")
    return np.concatenate(pair, -1)
