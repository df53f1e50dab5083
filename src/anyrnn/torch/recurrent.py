"""The torch module for sequences of any cell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.compiler import is_compiling
from torch.nn.utils.rnn import PackedSequence

from anyrnn.errors import UnsupportedError
from anyrnn.sequence.network import check_size, check_wanted
from anyrnn.sequence.packing import StepsGiven, steps_given
from anyrnn.torch import interpreted, uneven
from anyrnn.torch.arguments import States
from anyrnn.torch.base import RecurrentBase
from anyrnn.torch.state import RecurrentState


class Recurrent(RecurrentBase):
    """A recurrent network of any cell.

    Args:
        cell: a cell, the name of a built-in one, or `my_file.py:my_cell`.
        input_size: features of the input, D.
        hidden_size: features of the hidden state, H.
        num_layers: layers, each taking the outputs of the one below.
        bias: False (or `none`) leaves out every bias of the cell's products; `input` keeps those of the input alone, `recurrent`
            all others.
        batch_first: inputs and outputs are [N, T, features] instead of [T, N, features]; states are not affected, as in torch.nn.
        dropout: probability of zeroing each output between layers, in training mode.
        bidirectional: a second set of parameters reads the sequence backwards; outputs are concatenated.
        backend: `llvm` (native kernels, CPU, float32 and float64), `triton` (kernels on CUDA devices, also in float16 and
            bfloat16), `reference` (the interpreter on torch), or `auto`: the kernels of the device that the parameters are on, or
            on a CUDA device cuDNN where it computes the same and is measured to be quicker, else the interpreter. Float16 and
            bfloat16 on a CPU are computed in float32 then, between a call's tensors and its results. A call that an explicit
            one cannot run raises UnsupportedError, but derivatives of derivatives, forward mode and vmap are the
            interpreter's whatever is asked for. `explain` says which runs a call and why. On CUDA devices products of
            float32 are made in TF32 if `torch.set_float32_matmul_precision("high")` allows it, by cuDNN too. On CPUs that
            gain by it (AMD Zen 4) products are of numbers rounded to bfloat16, added in float32, in layers of bfloat16, and in
            those of float32 under autocast to bfloat16 or where `"medium"`, or `torch.backends.mkldnn.matmul.fp32_precision`,
            allows it; `torch.compile` does not notice when the latter changes.
        memory_budget: bytes that a call of kernels may keep for its backward pass. The states before parts of the sequence are
            kept instead of what does not fit, which the backward pass computes again: on a CPU about a third more time, the
            same bits. Features count in multiples of four vectors there (64 float32 with AVX-512, 32 with AVX2), and a part is
            1024 rows or more, of a device's kernels 16384, so short calls need all. Under vmap and in forward mode the
            interpreter keeps what it needs. By default everything is kept.
        device, dtype: of the parameters.
        options: the cell's hyper-parameters and named sizes other than input and hidden, and what `anyrnn.LayerOptions` tells of:
            input_dropout, recurrent_dropout, weight_dropout, output_dropout, zoneout, clip_state, clip_preactivation,
            clip_gradient, cut_gradient, activations, merge, residual, reverse, learned_state, skip_input.

    Parameters are named and shaped as torch.nn names them: `weight_ih_l0` [gates * H, D], `weight_hh_l0`, `bias_ih_l0`, ... with
    `_reverse` for the second direction; initial values are uniform within 1 / sqrt(H) unless the cell says otherwise.

    Example:
        >>> import torch, anyrnn.torch
        >>> layer = anyrnn.torch.Recurrent("mgu", 3, 5)
        >>> output, h = layer(torch.zeros(7, 2, 3))
        >>> output.shape, h.shape
        (torch.Size([7, 2, 5]), torch.Size([1, 2, 5]))
    """

    @property
    def all_weights(self) -> list[list[torch.nn.Parameter]]:
        """The parameters, a list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._parameter_names]

    @property
    def batch_first(self) -> bool:
        """Whether sequences are [N, T, features]; it may be changed."""
        return self._batch_first

    @batch_first.setter
    def batch_first(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"{self._label}: batch_first should be a bool, got {value!r}")
        self._batch_first = value
        self._derive()

    def flatten_parameters(self) -> None:
        """Does nothing: there is no flat copy of the parameters. For code that calls it on torch.nn's modules."""

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: States | None = None,
        *,
        lengths: Any = None,
        cu_seqlens: Any = None,
        mask: Any = None,
        mask_value: float | None = None,
        reset: Any = None,
        padding: float | Literal["last"] = 0.0,
        return_outputs: Literal["all", "last", "none"] = "all",
        return_states: Literal["last", "all"] = "last",
        **steps: Any,
    ) -> tuple[Any, Any]:
        """Run over a sequence.

        Args:
            input: [T, N, D], or [N, T, D] with batch_first, or [T, D] without a batch; or a PackedSequence; or, with
                `cu_seqlens`, the rows of all samples one after the other, [sum of lengths, D].
            hx: the initial state [layers * directions, N, H], or a tuple of them for a cell with several states, in the cell's
                order, or a `RecurrentState`; by default the cell's own initial values, mostly zero. Without a batch,
                [layers * directions, H].
            lengths: how many steps each sample has, N integers from 0 to T in any order: a list, an array, a tensor of any
                device. Nothing beyond has an effect. Each direction begins at its own end of a sample.
            cu_seqlens: N + 1 integers from 0 to the rows of the input; sample n has those from `cu_seqlens[n]` up to
                `cu_seqlens[n + 1]`, maybe none.
            mask: bool, [T, N] in the layout of the input ([T] without a batch, [rows] with `cu_seqlens`): False for steps that a
                sample does not have. They are as if they were cut out.
            mask_value: steps that a sample does not have are those where all features of the input have this value.
            reset: bool, of the shape of a mask: True for steps that begin a new sequence, from the cell's own first values. No
                direction sees across; `hx` goes to, and the last states come from, the ends of the sample. At a step
                that is not there, it is for the next one that is.
            padding: what outputs hold where a sample has no step: a number, or `last` for the output of the latest step that it
                had (whatever the direction), or zero.
            return_outputs: `all`; or `last` for the output [N, directions * H] of the last step that each direction takes of a
                sample, which of one that reads backwards is its first (a sample without steps has a `padding` that is a number,
                or zero); or `none`, which gives None. The others are not kept.
            return_states: `last`, or `all` for the states after every step.
            steps: the cell's further per-step inputs, by name, [T, N, size] in the layout of the input; every layer gets them.

        Returns: the output [T, N, directions * H] in the layout of the input, and the last states, a tensor or a tuple of
        several (a RecurrentState where `hx` is one, which has `detach()`: truncated backpropagation begins with
        `layer.initial_state(N)`): those after a sample's own last step, and of a sample without steps the
        initial ones. All states are [layers * directions, T, N, size] each, the last three in the layout of the input and padded
        as the output is; for a PackedSequence they are one whose data is [rows, layers * directions, size]. Under autocast they
        are made in the parameters' dtype and given in the input's.

        Raises: ValueError, RuntimeError or TypeError, as torch.nn's modules do, when shapes or dtypes do not fit;
        UnsupportedError when an explicit backend or a `memory_budget` cannot be had.
        """
        which = steps_given(lengths, cu_seqlens, mask, mask_value, reset, padding)
        usual = which is None and return_outputs == "all" and return_states == "last" and not steps
        if usual and not is_compiling():
            repeated = self._repeated(input, hx)
            if repeated is not None:
                output, last = repeated
                return output, last[0] if len(last) == 1 else tuple(last)
        check_wanted(self.network, f"{self._label}: ", return_outputs, return_states)
        if which is not None or not isinstance(input, Tensor):
            if torch.compiler.is_exporting() and any(isinstance(t, FakeTensor) for t in (lengths, cu_seqlens, mask, reset)):
                what = "lengths, masks and resets of an exported program are those that it is exported with, not its inputs"
                raise UnsupportedError(f"{self._label}: {what}")
            unevenly = self._forward_unevenly_apart if is_compiling() else self._forward_unevenly
            found: tuple[Any, Any] = unevenly(input, hx, which, return_outputs, return_states, steps)
            return found
        return self._forward_evenly(input, hx, return_outputs, return_states, steps)

    def _forward_evenly(
        self,
        input: Tensor,
        hx: States | None,
        return_outputs: Any,
        return_states: Any,
        steps: dict[str, Any],
        there: Tensor | None = None,
    ) -> tuple[Any, Any]:
        """The same of samples that have all steps, or those that are marked `there`, [T, N, 1]."""
        all_states, of_ends = return_states == "all", return_outputs != "all"
        state = hx if isinstance(hx, RecurrentState) else None
        weight = self._weight(input)
        batched = self._arguments.check_input(input, weight)
        x = self._arguments.time_major(input, batched, weight)
        first = self._arguments.states(hx, x.size(1), x, batched)
        if self._learned_state and not first:
            first = [own.expand(-1, x.size(1), -1) for own in self._own_states(x)]
        inputs = [x]
        if steps or self._further_inputs:
            inputs += [self._arguments.time_major(t, batched, weight) for t in self._arguments.further(steps, input, weight)]
        mode = self._mode
        if there is not None:
            mode = self._held_mode
            inputs.append(there)
        sources, seed, plain_sources = self._checked_sources(mode, input, weight)
        ends = partial(interpreted.ends, self.network) if of_ends else None
        output, last = self._run(mode, inputs, first, sources, seed, None, plain_sources, all_states, ends)
        if not (all_states or of_ends or steps or is_compiling()) and there is None and state is None:
            self._earlier.note(self, mode, input, first, sources)
        if input.dtype is not output.dtype:  # under autocast
            output, last = output.to(input.dtype), [s.to(input.dtype) for s in last]
        if batched and self.batch_first:
            output = output if of_ends else output.transpose(0, 1)
            last = [s.transpose(1, 2) for s in last] if all_states else last
        if not batched:
            output, last = output.squeeze(-2), [s.squeeze(-2) for s in last]
        return self._shown(output, return_outputs), self._shown_states(last, state, all_states)

    def _shown_states(self, states: Sequence[Any], given: RecurrentState | None, all_states: bool) -> Any:
        """States as the caller gets them: the last in the form that the first were given in."""
        if given is not None and not all_states:
            return RecurrentState(given.names, tuple(states))
        return states[0] if len(states) == 1 else tuple(states)

    def _shown(self, output: Any, return_outputs: str) -> Any:
        """The output as the caller gets it: of each direction by itself if asked for."""
        if return_outputs == "none":
            return None
        if self.network.merge != "separate":
            return output
        if isinstance(output, PackedSequence):
            return tuple(output._replace(data=half) for half in _halves(output.data))
        return _halves(output)

    def _forward_unevenly(
        self,
        input: Any,
        hx: States | None,
        which: StepsGiven | None,
        return_outputs: Any,
        return_states: Any,
        steps: dict[str, Any],
    ) -> tuple[Any, Any]:
        """The same of samples that have different steps."""
        all_states, of_ends = return_states == "all", return_outputs != "all"
        given, weight, batched, batch = self._batch(input, which, of_ends)
        if isinstance(batch, uneven.Held):
            return self._forward_evenly(batch.sequence, hx, return_outputs, return_states, steps, batch.there)
        if batch is None:
            return self._forward_evenly(input, hx, return_outputs, return_states, steps)
        arguments = self._arguments
        arguments.check_names(steps)
        steps = {name: batch.unpacked(name, value, self._label) for name, value in steps.items()}
        further = arguments.further(steps, given, weight) if steps or self._further_inputs else []
        first = arguments.states(hx, batch.segments.samples, weight, batched)
        mode = self._mode
        sources, seed, plain_sources = self._checked_sources(mode, given, weight, uneven=True)
        inputs = [batch.rows(t).to(weight.dtype) for t in (given, *further)]
        states_of = uneven.StatesOfSegments(self.network, batch.segments, partial(self._own_states, weight))
        kept, packing = states_of.entering(first), batch.segments.packing
        ends = partial(uneven.ends, self.network, batch.segments) if of_ends else None
        scatter = None if of_ends or not packing.counts else batch.scatter_of_output
        if packing.counts:
            output, last = self._run(mode, inputs, kept, sources, seed, packing, plain_sources, all_states, ends, scatter)
        else:
            output, last = uneven.nothing(self.network, inputs, kept, sources, batch.segments.samples if of_ends else 0)
        output = output.to(given.dtype)
        shown: Any = output
        if not of_ends:
            shown = batch.sequence(output, scatter is not None)
        elif which is not None:
            shown = uneven.padded_ends(self.network, batch.segments, output, which.number)
        states = [uneven.of_units(batch, s) for s in last] if all_states else states_of.leaving(last, first)
        states = [s.to(given.dtype) for s in states]
        if not batched:
            states = states if all_states else [s.squeeze(1) for s in states]
            shown = shown.squeeze(0) if of_ends else shown
        state = hx if isinstance(hx, RecurrentState) else None
        return self._shown(shown, return_outputs), self._shown_states(states, state, all_states)

    _forward_unevenly_apart = torch.compiler.disable(
        _forward_unevenly, reason="samples of different lengths are arranged outside of compiled code; leave out fullgraph=True"
    )
    """The same for compiled callers, which run it uncompiled; in eager mode the wrapper takes longer than a small call."""

    def _batch(
        self, input: Any, which: StepsGiven | None, of_ends: bool
    ) -> tuple[Tensor, Tensor, bool, uneven.Batch | uneven.Held | None]:
        """Of samples that have different steps, checked: the tensor of the input, a parameter, whether there is a batch, and how
        it is taken; None where all have all steps.
        """
        arguments, packed = self._arguments, isinstance(input, PackedSequence)
        given = input.data if packed else input
        if not isinstance(given, Tensor):
            raise arguments.no_tensor(input)
        if packed and which is not None:
            what = "lengths, cu_seqlens, mask, mask_value, reset or padding"
            sides = (
                f"give no {what} with it; `torch.nn.utils.rnn.pad_packed_sequence` gives an input and lengths that go with them"
            )
            raise ValueError(f"{self._label}: a PackedSequence says which steps there are; {sides}")
        weight = self._weight(given)
        if which is None:
            arguments.check_rows(given, weight, "of a PackedSequence")
            return given, weight, True, uneven.in_packed_sequence(input, self._label)
        self._labelled(which.check, weight.dtype, torch.finfo(weight.dtype).max)
        if which.cu_seqlens is not None:
            arguments.check_rows(given, weight, "with cu_seqlens")
            return given, weight, True, self._labelled(uneven.in_joined_rows, given, which)
        batched = arguments.check_input(given, weight)
        usual = not of_ends and which.padding == 0.0 and not self._further_inputs and given.dtype is weight.dtype
        may_hold = usual and self._kernels_run(weight) and self.network.held_has_its_bits
        return given, weight, batched, self._labelled(uneven.in_tensor, given, which, self.batch_first, may_hold)

    def initial_state(self, batch_size: int | None = None) -> RecurrentState:
        """The states that sequences begin with, on the device and of the dtype of the parameters: learned ones if the module has
        them, else the cell's own initial values.

        Args: batch_size: N; without it the states of one sequence without a batch.

        Raises: TypeError, ValueError for what is no size.
        """
        own = self._own_states(self._like)
        names = self.network.graph.state_names
        if batch_size is None:
            return RecurrentState(names, tuple(s.squeeze(1) for s in own))
        size: Any = batch_size
        if not isinstance(size, torch.SymInt):  # of an input whose samples an export leaves open
            check_size("batch_size", size)
        return RecurrentState(names, tuple(s.repeat(1, size, 1) for s in own))

    def _own_states(self, like: Tensor) -> list[Tensor]:
        """The first values of states where a call gives none, [units, 1, size]."""
        network = self.network
        if not self._learned_state:
            return interpreted.initial_states(network, like, 1)
        found = []
        for state, names, size in zip(network.graph.states, network.first_names, network.state_sizes, strict=True):
            of_units = [getattr(self, name) for name in names]
            self._check_there(names, of_units)
            shape = (size,) if state.shape else ()
            for name, tensor in zip(names, of_units, strict=True):
                if tensor.shape != shape or tensor.dtype != like.dtype or tensor.device != like.device:
                    came = f"{list(tensor.shape)} of {tensor.dtype} on {tensor.device}"
                    expected = f"{list(shape)} of {like.dtype} on {like.device}"
                    raise RuntimeError(f"{self._label}: {name}: expected {expected}, got {came}")
            found.append(torch.stack(of_units).view(len(network.units), 1, size))
        return found


def _halves(output: Tensor) -> tuple[Tensor, Tensor]:
    """Of each direction. Both may be changed in place, as results of `chunk` may not."""
    half = output.shape[-1] // 2
    return output[..., :half], output[..., half:]
