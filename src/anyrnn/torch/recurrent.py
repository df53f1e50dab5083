"""The torch module for any cell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as are_functorch_transforms_active
from torch.compiler import is_compiling
from torch.nn.utils.rnn import PackedSequence

from anyrnn import backends, cells
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.reference import run as reference
from anyrnn.errors import UnsupportedError
from anyrnn.ir.interpret import Interpreter
from anyrnn.sequence.layer import Layer, described
from anyrnn.sequence.network import (
    Network,
    Networks,
    check_arguments,
    check_budget,
    check_size,
    check_wanted,
    make_networks,
    merged,
)
from anyrnn.sequence.options import copied
from anyrnn.sequence.packing import Packing, StepsGiven, steps_given
from anyrnn.torch import autograd, operators, packed, plain, uneven
from anyrnn.torch.namespace import NAMESPACE
from anyrnn.torch.rows import Scatter
from anyrnn.torch.state import RecurrentState
from anyrnn.torch.tensors import States, Tensors
from anyrnn.trace import Cell

if TYPE_CHECKING:
    from typing_extensions import Self

DERIVED = (
    "network",
    "_modes",
    "_parameter_names",
    "_no_kernels",
    "_tensors",
    "_further_inputs",
    "_learned_state",
    "_as_before",
    "_likenesses",
)
"""Attributes of a module that `_derive` sets, and that copies and pickles leave out."""
MOST_LIKENESSES = 16
"""How often a module remembers anew what its parameters are like, which takes longer than looking at each. Usually once; where
they change with every call, it stops.
"""


T = TypeVar("T")


@dataclass(frozen=True)
class Mode:
    """What calls run that train, or those that do not."""

    network: Network
    draws: bool
    """whether there are random choices"""
    numbers: dict[tuple[bool, bool], list[int]]
    """of the calls that the network is, one after the other: by whether steps give all states, and whether the last call gives
    outputs of ends alone; they hold in this process only"""
    plain: bool
    """whether steps read parameters as they are"""
    source_names: list[str]
    source_shapes: list[tuple[int, ...]]


def _drawn(*what: int) -> Tensor:
    """A mask of weights."""
    return torch.from_numpy(llvm.draw(*what))


class Recurrent(Layer, torch.nn.Module):
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
        backend: `auto`, `llvm` (native kernels, CPU, float32 and float64) or `reference` (the interpreter on torch). A call that
            an explicit one cannot run raises UnsupportedError; `auto` falls back to the interpreter.
        memory_budget: bytes that a call of native kernels may keep for its backward pass. The states before parts of the sequence
            are kept instead of what does not fit, which the backward pass computes again: up to two fifths more time, the same
            bits. Features count in multiples of 64 (float32), and a part is 1024 rows or more, so short calls need all. Under
            vmap and in forward mode the interpreter keeps what it needs. By default everything is kept.
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
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.cell = cells.load(cell)
        check_arguments(bias, batch_first, input_size, hidden_size, num_layers, dropout)
        if backend not in ("auto", "llvm", "reference"):
            raise ValueError(f"backend should be 'auto', 'llvm' or 'reference', got {backend!r}")
        if dropout and num_layers == 1:
            warnings.warn(
                f"dropout acts between layers, and dropout={dropout} has no effect with num_layers=1", UserWarning, stacklevel=2
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self._dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.backend = backend
        check_budget(memory_budget)
        self._memory_budget = memory_budget
        self.options = copied(options)
        self._frozen = False
        self._derive()
        for unit, names in zip(self.network.units, self._parameter_names, strict=True):
            for (_, shape), name in zip(self.network.parameters(unit[0]), names, strict=True):
                self.register_parameter(name, torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _derive(self) -> None:
        """Set the attributes that follow from the others."""
        self._modes = self._made_modes(self.dropout)
        self.network = network = self._modes[False].network
        self._parameter_names = [[p.name + network.suffix(*unit) for p in network.graph.parameters] for unit in network.units]
        self._no_kernels = {dtype: backends.why_not_native(network, name) for dtype, name in operators.DTYPES.items()}
        self._tensors = Tensors(network, self.input_size, self.batch_first, self._label)
        self._further_inputs, self._learned_state = network.further_inputs, network.learned_state
        self._as_before, self._likenesses = plain.unknown, MOST_LIKENESSES

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in DERIVED}

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        packed.forget(self.parameters())  # torch exchanges no tensor that somebody refers to weakly
        self._as_before = plain.unknown
        super()._apply(fn, recurse)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._derive()

    def _made_modes(self, dropout: float) -> dict[bool, Mode]:
        """By whether a call trains."""
        networks = self._networks(dropout)
        found = {}
        for trains, network in ((False, networks.evaluation), (True, networks.training)):
            names = [n + network.suffix(*unit) for unit in network.units for n in network.sources]
            shapes = [shape for layer, _ in network.units for shape in network.source_shapes(layer)]
            # made now, since torch.compile cannot make a cached property
            _ = network.state_sizes, network.output_size, network.first_names, network.is_one_call
            draws = trains and network != networks.evaluation
            found[trains] = Mode(network, draws, self._handles(network), not network.plan.phase.computed, names, shapes)
        return found

    def _handles(self, network: Network) -> dict[tuple[bool, bool], list[int]]:
        """See `Mode.numbers`."""
        found = {}
        for all_states, net in enumerate((network, network.with_all_states)):
            budgets = llvm.shares(net.parts, self.memory_budget)
            for ends in (False, True):
                last = [*[False] * (len(net.parts) - 1), ends]
                given = zip(net.parts, last, budgets, strict=True)
                calls = [operators.Call(part, self.batch_first, of_ends, budget) for part, of_ends, budget in given]
                found[bool(all_states), ends] = [operators.handle(call) for call in calls]
        return found

    def _networks(self, dropout: float) -> Networks:
        sizes = (self.input_size, self.hidden_size, self.num_layers)
        return make_networks(self.cell, *sizes, self.bias, self.bidirectional, self.options, dropout)

    def _changed(self) -> None:
        self._modes = self._made_modes(self.dropout)

    def reset_parameters(self) -> None:
        """Draw new initial values, in the order of torch.nn's modules."""
        bound = 1 / math.sqrt(self.hidden_size)
        with torch.no_grad():
            for unit, (layer, _) in enumerate(self.network.units):
                for (parameter, _), name in zip(self.network.parameters(layer), self._parameter_names[unit], strict=True):
                    tensor = getattr(self, name)
                    if parameter.init is None:
                        tensor.uniform_(-bound, bound)
                    elif callable(parameter.init):
                        tensor.copy_(torch.as_tensor(parameter.init(torch.rand(tensor.shape, dtype=torch.float64).numpy())))
                    else:
                        tensor.fill_(parameter.init)

    @property
    def all_weights(self) -> list[list[torch.nn.Parameter]]:
        """The parameters, a list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._parameter_names]

    def flatten_parameters(self) -> None:
        """Does nothing: there is no flat copy of the parameters. For code that calls it on torch.nn's modules."""

    def freeze(self) -> Self:
        """Promise that the parameters' numbers stay as they are, so that calls without gradients need not look at them.

        Such calls keep the parameters packed for the kernels, and look at every number to see whether it changed: of a few
        samples and steps that may take half of the call. Of a frozen module they see what torch counts (`load_state_dict`,
        operations in place) and parameters that are replaced, but not what is written through `.data`, through a NumPy array that
        shares the memory, or by a fused optimiser. `train()` ends it, and so does a call that parameters get gradients of.

        Returns: the module. Raises: RuntimeError in training mode.
        """
        if self.training:
            raise RuntimeError(f"{self._label}: freeze() is for evaluation; call eval() first")
        self._frozen = True
        return self

    def train(self, mode: bool = True) -> Self:
        """As in torch.nn; a module that trains is not frozen."""
        self._frozen = self._frozen and not mode
        return super().train(mode)

    @property
    def backend_name(self) -> str:
        """The backend that a call runs on: `llvm` or `reference`."""
        return "reference" if self._why_not_native(next(self.parameters(), torch.empty(0))) else "llvm"

    def _why_not_native(self, tensor: Tensor) -> str | None:
        if self.backend == "reference":
            return "backend='reference' was asked for"
        if not tensor.is_cpu:
            return f"device {tensor.device} has no kernels (cpu has)"
        dtype = tensor.dtype
        if dtype not in self._no_kernels:
            return f"dtype {dtype} has no kernels (float32 and float64 have)"
        return self._no_kernels[dtype]

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
                device. Nothing beyond is read, nor computed. Each direction begins at its own end of a sample.
            cu_seqlens: N + 1 integers from 0 to the rows of the input; sample n has those from `cu_seqlens[n]` up to
                `cu_seqlens[n + 1]`, maybe none.
            mask: bool, [T, N] in the layout of the input ([T] without a batch, [rows] with `cu_seqlens`): False for steps that a
                sample does not have. They are as if they were cut out.
            mask_value: steps that a sample does not have are those where all features of the input have this value.
            reset: bool, of the shape of a mask: True for steps that begin a new sequence, from the cell's own first values. No
                direction sees across; `hx` goes to, and the last states come from, the ends of the sample. At a step
                that is not there, it is for the next one that is.
            padding: what outputs hold where a sample has no step: a number, or `last` for the output of the latest step that it
                had since a reset (whatever the direction), or zero.
            return_outputs: `all`; or `last` for the output [N, directions * H] of the last step that each direction takes of a
                sample, which of one that reads backwards is its first (a sample without steps has a `padding` that is a number,
                or zero); or `none`, which gives None. The others are not kept.
            return_states: `last`, or `all` for the states after every step.
            steps: the cell's further per-step inputs, by name, [T, N, size] in the layout of the input; every layer gets them.

        Returns: the output [T, N, directions * H] in the layout of the input, and the last states, formed as `hx`: those after
        a sample's own last step, and of a sample without steps the initial ones. All states are [layers * directions, T, N, size]
        each, the last three in the layout of the input and padded as the output is; for a PackedSequence they are one whose
        data is [rows, layers * directions, size].

        Raises: ValueError, RuntimeError or TypeError, as torch.nn's modules do, when shapes or dtypes do not fit;
        UnsupportedError when an explicit backend or a `memory_budget` cannot be had.
        """
        check_wanted(self.network, f"{self._label}: ", return_outputs, return_states)
        all_states, of_ends = return_states == "all", return_outputs != "all"
        which = steps_given(lengths, cu_seqlens, mask, mask_value, reset, padding)
        if which is not None or not isinstance(input, Tensor):
            found: tuple[Any, Any] = self._forward_unevenly(input, hx, which, return_outputs, return_states, steps)
            return found
        state = hx if isinstance(hx, RecurrentState) else None
        weight = self._weight(input)
        batched = self._tensors.check_input(input, weight)
        x = self._tensors.time_major(input, batched, weight)
        first = self._tensors.states(hx, x.size(1), x, batched)
        if self._learned_state and not first:
            first = [own.expand(-1, x.size(1), -1) for own in self._own_states(x)]
        inputs = [x]
        if steps or self._further_inputs:
            inputs += [self._tensors.time_major(t, batched, weight) for t in self._tensors.further(steps, input, weight)]
        sources, seed, plain_sources = self._checked_sources(input, weight)
        ends = partial(operators.ends, self.network) if of_ends else None
        output, last = self._run(inputs, first, sources, seed, None, plain_sources, all_states, ends)
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
            return tuple(output._replace(data=half) for half in output.data.chunk(2, -1))
        return output.chunk(2, -1)

    @torch.compiler.disable
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
        tensors, packed = self._tensors, isinstance(input, PackedSequence)
        given = input.data if packed else input
        if not isinstance(given, Tensor):
            raise tensors.no_tensor(input)
        if packed and which is not None:
            what = "lengths, cu_seqlens, mask, mask_value, reset or padding"
            sides = (
                f"give no {what} with it; `torch.nn.utils.rnn.pad_packed_sequence` gives an input and lengths that go with them"
            )
            raise ValueError(f"{self._label}: a PackedSequence says which steps there are; {sides}")
        weight = self._weight(given)
        if which is not None:
            self._labelled(which.check, weight.dtype, torch.finfo(weight.dtype).max)
        batch: uneven.Batch | None
        batched = True
        if which is None:
            tensors.check_rows(given, weight, "of a PackedSequence")
            batch = uneven.in_packed_sequence(input, self._label)
        elif which.cu_seqlens is not None:
            tensors.check_rows(given, weight, "with cu_seqlens")
            batch = self._labelled(uneven.in_joined_rows, given, which)
        else:
            batched = tensors.check_input(given, weight)
            batch = self._labelled(uneven.in_tensor, given, which, self.batch_first)
            if batch is None:
                return Recurrent.forward(self, input, hx, return_outputs=return_outputs, return_states=return_states, **steps)
        steps = {name: batch.unpacked(name, value, self._label) for name, value in steps.items()}
        further = tensors.further(steps, given, weight) if steps or self._further_inputs else []
        first = tensors.states(hx, batch.segments.samples, weight, batched)
        sources, seed, plain_sources = self._checked_sources(given, weight)
        inputs = [batch.rows(t).to(weight.dtype) for t in (given, *further)]
        states_of = uneven.StatesOfSegments(self.network, batch.segments, self._own_states(weight))
        kept, packing = states_of.entering(first), batch.segments.packing
        ends = partial(uneven.ends, self.network, batch.segments) if of_ends else None
        scatter = None if of_ends or not packing.counts else batch.scatter_of_output
        if packing.counts:
            output, last = self._run(inputs, kept, sources, seed, packing, plain_sources, all_states, ends, scatter)
        else:
            output, last = uneven.nothing(self.network, inputs, kept, sources, batch.segments.samples if of_ends else 0)
        shown: Any = output
        if not of_ends:
            shown = batch.sequence(output, scatter is not None)
        elif which is not None:
            shown = uneven.padded_ends(self.network, batch.segments, output, which.number)
        states = [uneven.of_units(batch, s) for s in last] if all_states else states_of.leaving(last, first)
        if not batched:
            states = states if all_states else [s.squeeze(1) for s in states]
            shown = shown.squeeze(0) if of_ends else shown
        state = hx if isinstance(hx, RecurrentState) else None
        return self._shown(shown, return_outputs), self._shown_states(states, state, all_states)

    def initial_state(self, batch_size: int | None = None) -> RecurrentState:
        """The states that sequences begin with, on the device and of the dtype of the parameters: learned ones if the module has
        them, else the cell's own initial values.

        Args: batch_size: N; without it the states of one sequence without a batch.

        Raises: TypeError, ValueError for what is no size.
        """
        own = self._own_states(next(self.parameters(), torch.empty(0)))
        names = self.network.graph.state_names
        if batch_size is None:
            return RecurrentState(names, tuple(s.squeeze(1) for s in own))
        check_size("batch_size", batch_size)
        return RecurrentState(names, tuple(s.repeat(1, batch_size, 1) for s in own))

    def _own_states(self, like: Tensor) -> list[Tensor]:
        """The first values of states where a call gives none, [units, 1, size]."""
        network = self.network
        if not self._learned_state:
            return operators.first_values(network, like, 1)
        found = []
        for state, names, size in zip(network.graph.states, network.first_names, network.state_sizes, strict=True):
            of_units = [getattr(self, name) for name in names]
            shape = (size,) if state.shape else ()
            for name, tensor in zip(names, of_units, strict=True):
                if tensor.shape != shape or tensor.dtype != like.dtype or tensor.device != like.device:
                    came = f"{list(tensor.shape)} of {tensor.dtype} on {tensor.device}"
                    expected = f"{list(shape)} of {like.dtype} on {like.device}"
                    raise RuntimeError(f"{self._label}: {name}: expected {expected}, got {came}")
            found.append(torch.stack(of_units).view(len(network.units), 1, size))
        return found

    def _weight(self, input: Tensor) -> Tensor:
        """A parameter, which tells dtype and device."""
        names = self._parameter_names[0]
        if not names:
            return self._without_parameters(input)
        weight = self._parameters.get(names[0])  # quicker than the attribute
        return weight if weight is not None else getattr(self, names[0])  # a parametrisation has taken its place

    def _labelled(self, function: Callable[..., T], *arguments: Any) -> T:
        """Its errors name the layer."""
        try:
            return function(*arguments)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self._label}: {error}") from None

    def _checked_sources(self, input: Tensor, weight: Tensor) -> tuple[Sequence[Tensor], Tensor | None, bool]:
        """What the steps read of the parameters; the seed of random choices; whether all sources are known to be plain and
        contiguous. Last of all checks, as it draws and computes.
        """
        mode = self._modes[self.training]
        seed = torch.randint(2**63 - 1, (), dtype=torch.int64) if mode.draws else None
        sources = self._sources(mode, seed, input)
        plain_sources = mode.plain and not is_compiling() and self._as_before(*sources)
        if not plain_sources:
            self._check_sources(mode, sources, weight)
        return sources, seed, plain_sources

    def _check_sources(self, mode: Mode, sources: Sequence[Tensor], weight: Tensor) -> None:
        """Refuse parameters that were replaced by others of another form; remember what they are like."""
        dtype = weight.dtype
        if [s.shape for s in sources] == mode.source_shapes and [s.dtype for s in sources].count(dtype) == len(sources):
            if mode.plain and not is_compiling() and self._likenesses:
                self._likenesses -= 1
                known = plain.direct(*sources) and all(map(Tensor.is_contiguous, sources))
                self._as_before = plain.likeness(*sources) if known else plain.unknown
            return
        for name, shape, source in zip(mode.source_names, mode.source_shapes, sources, strict=True):
            if source.shape != shape or source.dtype is not dtype:
                sides = f"expected {list(shape)} of {dtype}, got {list(source.shape)} of {source.dtype}"
                raise RuntimeError(f"{self._label}: {name}: {sides}")

    @property
    def _label(self) -> str:
        return type(self).__name__

    def _without_parameters(self, input: Tensor) -> Tensor:
        """What tells the dtype and the device where no parameter does: the input."""
        if not input.is_floating_point():
            raise ValueError(f"{self._label}: input should be of a floating-point dtype, got {input.dtype}")
        return input

    def _sources(self, mode: Mode, seed: Tensor | None, input: Tensor) -> list[Tensor]:
        """What the step reads of the parameters, for each unit: as they are, or through the parameter phase."""
        if mode.plain:
            parameters: Any = self._parameters
            try:
                return [parameters[name] for name in mode.source_names]
            except KeyError:  # a parametrisation has taken a parameter's place
                return [getattr(self, name) for name in mode.source_names]
        return [t for unit in mode.network.units for t in self._computed(mode.network, unit, seed, input)]

    def _computed(self, network: Network, unit: tuple[int, int], seed: Any, input: Tensor) -> list[Tensor]:
        layer, direction = unit
        parameters = {p.name: getattr(self, p.name + network.suffix(layer, direction)) for p in network.graph.parameters}
        like = next(iter(parameters.values())) if parameters else self._without_parameters(input)
        number = operators.number_like(like)
        chances = None
        if seed is not None:
            memory = plain.direct(like, seed) and not are_functorch_transforms_active()
            native = memory and self._why_not_native(like) is None
            random = network.randomness(int(seed), None, _drawn) if native else network.randomness(seed, None)
            chances = None if random is None else random.at(layer, direction, 0)
        interpreter = Interpreter(NAMESPACE, number, network.layer_sizes(layer), chances)
        phase = network.plan.phase
        values = reference.parameter_values(network, number, parameters)
        interpreter.run(phase.nodes, values, [w.node for w in phase.computed])
        computed = {w.name: values[w.node] for w in phase.computed}
        return [parameters[name] if name in parameters else computed[name] for name in network.sources]

    def _run(
        self,
        inputs: Sequence[Tensor],
        first: Sequence[Tensor],
        sources: Sequence[Tensor],
        seed: Tensor | None,
        packing: Packing | None,
        plain_sources: bool,
        all_states: bool,
        ends: Callable[[Tensor], Tensor] | None,
        scatter: Scatter | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The output and the last or all states, of sequences or of packed rows. `ends`: what takes from an output what is wanted
        of it, if that is not all. With a `scatter` the output is all rows of the caller.
        """
        mode = self._modes[self.training]
        network, numbers = mode.network, mode.numbers[all_states, ends is not None and packing is None]
        rest = (seed, packing, plain_sources)
        wanted = slice(len(network.state_sizes), None) if all_states else slice(None)
        if network.is_one_call:
            output, found = self._call(numbers[0], inputs, first, sources, *rest, scatter)
            return ends(output) if ends and packing is not None else output, found[wanted]
        x, *further = inputs
        found_last, units, per_layer = [], network.directions, network.directions * len(network.sources)
        for layer, number in enumerate(numbers):
            begin = [state[layer * units : (layer + 1) * units] for state in first]
            y, last = self._call(number, [x, *further], begin, sources[layer * per_layer : (layer + 1) * per_layer], *rest)
            adds = network.residual and layer
            if ends and layer == network.layers - 1:
                y, adds = ends(y) if packing is not None else y, adds and network.adds_ends
                x = ends(x) if adds else x
            y = merged(y, network.merge)
            x = x + y if adds else y
            found_last.append(last[wanted])
        x = x if scatter is None else scatter.put(x)
        return x, [torch.cat(of_state) for of_state in zip(*found_last, strict=True)]

    def _call(
        self,
        number: int,
        inputs: Sequence[Tensor],
        first: Sequence[Tensor],
        sources: Sequence[Tensor],
        seed: Tensor | None,
        packing: Packing | None,
        plain_sources: bool,
        scatter: Scatter | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """One call of the operators, or of the interpreter in their place."""
        reason = self._why_not_native(inputs[0])
        if self._frozen and torch.is_grad_enabled() and any(s.requires_grad for s in sources):
            self._frozen = False  # an optimiser may follow
        if reason is None:
            return autograd.call_network(number, inputs, first, sources, seed, packing, plain_sources, self._frozen, scatter)
        if self.backend == "llvm":
            raise UnsupportedError(f"{self._label}: backend 'llvm' cannot run this: {reason}")
        if self.memory_budget is not None and torch.is_grad_enabled():
            raise UnsupportedError(f"{self._label}: memory_budget is for native kernels, and none run this: {reason}")
        output, *last = operators.interpreted(number, inputs, first, sources, seed, packing)
        return output if scatter is None else scatter.put(output), last

    def extra_repr(self) -> str:
        names = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "backend", "memory_budget")
        given = {**self._repr_options(), **{name: getattr(self, name) for name in names}}
        return described((*self._repr_first(), self.input_size, self.hidden_size), given)

    def _repr_first(self) -> list[str]:
        return [self.cell.name]

    def _repr_options(self) -> dict[str, Any]:
        return self.options
