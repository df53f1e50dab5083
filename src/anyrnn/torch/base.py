"""What torch modules of any cell have in common: parameters, and calls of the operators with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn.utils import parametrize

from anyrnn import backends, cells
from anyrnn.backends import bfloat16
from anyrnn.backends.cudnn import run as cudnn
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.triton import run as triton
from anyrnn.errors import UnsupportedError
from anyrnn.explanation import Seen
from anyrnn.numpy.parameters import own_initial_values
from anyrnn.sequence.layer import Layer, described
from anyrnn.sequence.network import (
    Network,
    check_arguments,
    check_budget,
    check_counters,
    counted_to,
    merged,
    traced,
)
from anyrnn.sequence.options import copied
from anyrnn.sequence.packing import Packing
from anyrnn.torch import autograd, interpreted, packed_weights, plain
from anyrnn.torch.arguments import Arguments, is_autocast, is_cast
from anyrnn.torch.calls import DTYPES, WIDE, Call, MadeOf, handle
from anyrnn.torch.explained import seen
from anyrnn.torch.kept import Lasting, as_parameter
from anyrnn.torch.phase import Phase
from anyrnn.torch.repeated import IS_NESTED, Earlier
from anyrnn.torch.rows import Scatter
from anyrnn.trace import Cell

if TYPE_CHECKING:
    from typing_extensions import Self

DERIVED = (
    "network",
    "_modes",
    "_held_modes",
    "_parameter_names",
    "_no_kernels",
    "_arguments",
    "_further_inputs",
    "_learned_state",
    "_as_before",
    "_likenesses",
    "_earlier",
)
"""Attributes of a module that `_derive` sets, and that copies and pickles leave out."""
MOST_LIKENESSES = 16
"""How often a module remembers anew what its parameters are like, which takes longer than looking at each. Usually once; where
they change with every call, it stops.
"""


T = TypeVar("T")


def put(module: torch.nn.Module, values: Mapping[str, Any]) -> None:
    """Give a module's own parameters by name these values, parametrised ones what gives them.

    Raises: TypeError, before any change, for one that is computed by a hook, or by a parametrisation that has no inverse.
    """
    for name in values:
        if name in module._parameters:
            continue
        if not parametrize.is_parametrized(module, name):
            by = "a hook of the module (pruning, weight_norm)"
            raise TypeError(f"{name} is computed by {by}: what is put there would be lost")
        of_name: Any = getattr(module.parametrizations, name)
        for one in of_name:
            if not hasattr(one, "right_inverse"):
                by = f"{type(one).__name__}, which has no right_inverse"
                raise TypeError(f"{name} is parametrised by {by}: no numbers can be put there")
    with torch.no_grad():
        for name, value in values.items():
            parameter = getattr(module, name)
            if name in module._parameters:
                parameter.copy_(torch.as_tensor(value, device=parameter.device))
            else:
                setattr(module, name, torch.as_tensor(value, dtype=parameter.dtype, device=parameter.device))


class Which(NamedTuple):
    """Of the calls of a network: whether steps give all states, whether the last call gives outputs of ends alone, and what
    products are made of, see `Call`.
    """

    all_states: bool
    ends: bool
    products: MadeOf


@dataclass(frozen=True)
class Mode:
    """What calls run that train, or those that do not."""

    network: Network
    with_all_states: Network
    """the same, whose steps give all states"""
    draws: bool
    """whether there are random choices"""
    numbers: dict[Which, list[int]]
    """of the calls that the network is, one after the other; they hold in this process only"""
    phase: Phase | None
    """what makes that which steps read beside parameters as they are"""
    widened: Lasting[list[Tensor]]
    """parameters of 16 bits as kernels read them, by the layer of the call"""
    source_names: list[str]
    source_shapes: list[tuple[int, ...]]

    @property
    def number(self) -> int:
        """Of its usual call, the first of several, with products of numbers as they are."""
        return self.numbers[Which(all_states=False, ends=False, products="")][0]


def _generator() -> np.random.Generator:
    """Seeded by torch's."""
    return np.random.default_rng(int(torch.randint(2**62, (), device="cpu")))


def _is_captured(device: torch.device) -> bool:
    """Whether what a call does there becomes a part of a graph of launches."""
    return not is_compiling() and device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _new_seed(device: torch.device) -> Tensor:
    """Of a call's random choices: by the CPU, so that they are the same on all devices; while a graph of launches is captured by
    the device, so that they are others whenever it is replayed.
    """
    return torch.randint(2**63 - 1, (), dtype=torch.int64, device=device if _is_captured(device) else "cpu")


def _widened(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [as_parameter(t.to(WIDE)) for t in tensors]


def _weight_mask(*what: int) -> Tensor:
    return torch.from_numpy(llvm.draw(*what))


class RecurrentBase(Layer, torch.nn.Module):
    """A cell, its options and its parameters. What a call takes and gives is left to subclasses."""

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
        self._check_backend(backend)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self._batch_first, self._dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self._backend = backend
        check_budget(memory_budget)
        self._memory_budget = memory_budget
        self.options = copied(options)
        self._traced = traced(self.cell, input_size, hidden_size, num_layers, bias, bidirectional, self.options)
        self._frozen = 0
        """The number of the promise that parameters stay as they are, see `freeze`; 0 for none."""
        self._derive()
        for unit, names in zip(self.network.units, self._parameter_names, strict=True):
            for (parameter, shape), name in zip(self.network.parameters(unit[0]), names, strict=True):
                if hasattr(self, name):
                    what = f"parameter {name!r} of cell {self.cell.name!r} has the name of an attribute that modules have"
                    raise ValueError(f"{self._label}: {what}; give it another name")
                tensor = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=parameter.trained))
        if next(self.parameters(), None) is None:
            self.register_buffer("_nothing", torch.empty(0, device=device, dtype=dtype), persistent=False)
        self.reset_parameters()
        self._put_in_one_buffer()

    @property
    def _like(self) -> Tensor:
        """What tells dtype and device: a parameter, or in the place of one."""
        registered = next(itertools.chain(self.parameters(), self.buffers()), None)
        return getattr(self, self._parameter_names[0][0]) if registered is None else registered

    @property
    def batch_first(self) -> bool:
        """Whether sequences are [N, T, features]."""
        return self._batch_first

    def _check_backend(self, name: str) -> None:
        if name not in backends.TORCH_NAMES:
            *others, last = map(repr, backends.TORCH_NAMES)
            raise ValueError(f"backend should be {', '.join(others)} or {last}, got {name!r}")

    def _derive(self) -> None:
        """Set the attributes that follow from the others."""
        self._changed()
        self.network = network = self._modes[False].network
        self._parameter_names = [[self._named(network, p.name, unit) for p in network.graph.parameters] for unit in network.units]
        self._no_kernels = {dtype: backends.why_not_native(network, name) for dtype, name in DTYPES.items()}
        self._arguments = Arguments(network, self.input_size, self.batch_first, self._label)
        self._further_inputs, self._learned_state = network.further_inputs, network.learned_state
        self._as_before, self._likenesses = dict[int, Callable[..., bool]](), MOST_LIKENESSES
        self._earlier = Earlier()

    def _named(self, network: Network, parameter: str, unit: tuple[int, int]) -> str:
        """What a parameter of a layer and direction is called in this module."""
        return parameter + network.suffix(*unit)

    def __prepare_scriptable__(self) -> Any:
        """What torch.jit.script asks for before it compiles. Raises: UnsupportedError."""
        others = "torch.export and anyrnn.onnx.export do; layers like torch.nn's can go back by anyrnn.torch.swap_back(model)"
        raise UnsupportedError(f"{self._label}: torch.jit.script does not compile what kernels do; {others}")

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest, and what torch has compiled in place: it would go on with this module."""
        return {k: v for k, v in self.__dict__.items() if k not in (*DERIVED, "_compiled_call_impl")}

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._forget()  # torch exchanges no tensor that somebody refers to weakly
        self._earlier = Earlier()
        self._as_before.clear()
        super()._apply(fn, recurse)
        self._put_in_one_buffer()
        return self

    def _put_in_one_buffer(self) -> None:
        """On CUDA devices: parameters that cuDNN takes as they are stand as it wants them, as those of torch's modules do."""
        mode, own = self._modes[False], self._parameters
        sources = [own.get(name) for name in mode.source_names]
        plain_ones = [s for s in sources if s is not None and s.is_cuda]
        one_by_one = mode.phase is None and mode.network.is_one_call and len(plain_ones) == len(sources)
        if one_by_one and plain_ones and plain.direct(*plain_ones):
            cudnn.put_in_one_buffer(mode.network, plain_ones)

    def _forget(self) -> None:
        """Let go of what is kept of the parameters."""
        packed_weights.forget(self.parameters())
        for mode in (*self._modes.values(), *self._held_modes.values()):
            mode.widened.forget()
            if mode.phase is not None:
                mode.phase.forget()

    def _load_from_state_dict(self, *given: Any) -> None:
        self._forget()  # see `_apply`
        super()._load_from_state_dict(*given)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._frozen = next(packed_weights.PROMISES) if self._frozen else 0  # numbers are those of a process
        self._derive()

    def _made_modes(self, dropout: float) -> dict[bool, Mode]:
        """By whether a call trains."""
        networks = self._traced.with_dropout(dropout)
        draws = networks.training != networks.evaluation
        return {
            False: self._made_mode(networks.evaluation, networks.evaluation.with_all_states, False),
            True: self._made_mode(networks.training, networks.training.with_all_states, draws),
        }

    def _made_mode(self, network: Network, with_all_states: Network, draws: bool) -> Mode:
        names = [self._named(network, n, unit) for unit in network.units for n in network.sources]
        shapes = [shape for layer, _ in network.units for shape in network.source_shapes(layer)]
        # made now, since torch.compile cannot make a cached property
        _ = network.state_sizes, network.output_size, network.first_names, network.is_one_call, network.graph.counters
        phase = Phase(network) if network.plan.phase.computed else None
        return Mode(network, with_all_states, draws, self._handles(network, with_all_states), phase, Lasting(), names, shapes)

    @property
    def _mode(self) -> Mode:
        return self._modes[self.training]

    @property
    def _held_mode(self) -> Mode:
        """The mode of calls whose samples have nearly all steps; made when there is one, as few modules have such calls."""
        mode = self._held_modes.get(self.training)
        if mode is None:
            of_all = self._mode
            mode = self._made_mode(of_all.network.held, of_all.network.with_all_states.held, of_all.draws)
            self._held_modes[self.training] = mode
        return mode

    def _handles(self, network: Network, with_all_states: Network) -> dict[Which, list[int]]:
        """See `Mode.numbers`."""
        found = {}
        backend = "triton" if self.backend == "triton" else "auto"
        for which in itertools.starmap(Which, itertools.product((False, True), (False, True), get_args(MadeOf))):
            parts = (with_all_states if which.all_states else network).parts
            budgets, last = llvm.shares(parts, self.memory_budget), [*[False] * (len(parts) - 1), which.ends]
            given = zip(parts, last, budgets, strict=True)
            calls = [Call(part, self.batch_first, ends, budget, backend, which.products) for part, ends, budget in given]
            found[which] = [handle(call) for call in calls]
        return found

    def _changed(self) -> None:
        self._modes, self._held_modes = self._made_modes(self.dropout), dict[bool, Mode]()

    def reset_parameters(self) -> None:
        """Draw new initial values, in the order of torch.nn's modules; of parametrised parameters what gives these values.

        Raises: TypeError where a parameter is computed by a hook (pruning, weight_norm), which would compute its old values.
        """
        bound, values = 1 / math.sqrt(self.hidden_size), dict[str, Tensor]()
        with torch.no_grad():
            for unit, (layer, _) in enumerate(self.network.units):
                for (parameter, _), name in zip(self.network.parameters(layer), self._parameter_names[unit], strict=True):
                    values[name] = tensor = torch.empty_like(getattr(self, name)).uniform_(-bound, bound)
                    for part, first in own_initial_values(parameter, tensor, self.network.layer_sizes(layer), _generator):
                        part.copy_(torch.as_tensor(first, device=part.device))
        put(self, values)

    def freeze(self, *, int8: bool = False) -> Self:
        """Promise that the parameters' numbers stay as they are, so that calls without gradients need not look at them.

        Such calls keep the parameters packed for the kernels, and look at every number to see whether it changed: of a few
        samples and steps that may take half of the call. Of a frozen module they see what torch counts (`load_state_dict`,
        operations in place) and parameters that are replaced, but not what is written through `.data`, through a NumPy array that
        shares the memory, or by a fused optimiser. `train()` ends it, and so does a call with gradients of the parameters.

        Args:
            int8: matrices are multiplied as integers of eight bits, as are the vectors that they multiply: each in blocks of 512
                features that have a scale of their own, the largest magnitude over 127. That reads a quarter of the memory and
                is less exact; sums, biases and all else stay float32. Calls with gradients are refused then, and do not
                end it.

        Returns: the module. Raises: RuntimeError in training mode; UnsupportedError for int8 where the native kernels, or float32
            parameters on a CPU, are not there.
        """
        self._check_freeze(int8)
        self._frozen, self._earlier = next(packed_weights.PROMISES), Earlier()  # calls that are remembered would not end it
        if bool(int8) is not self.int8:
            self._int8 = bool(int8)
            packed_weights.forget(self.parameters())  # what is packed otherwise
        return self

    def _check_freeze(self, int8: bool) -> None:
        if self.training:
            raise RuntimeError(f"{self._label}: freeze() is for evaluation; call eval() first")
        if int8:
            self._check_int8(self._like)

    def _check_int8(self, like: Tensor, *read: Tensor) -> None:
        """Refuse products of int8 for a call of such tensors."""
        if like.dtype is not torch.float32 or not like.is_cpu or self._on_triton(like):
            reason = f"it is for float32 on a CPU, got {like.dtype} on {like.device} for backend {self.backend!r}"
        else:
            reason = self._why_interpreted(like) or llvm.why_not(self.network, llvm.IN_INT8) or ""
        if reason:
            raise UnsupportedError(f"{self._label}: freeze(int8=True): {reason}")
        if torch.is_grad_enabled() and any(t.requires_grad for t in read):
            what = "a call with gradients: products of int8 have none"
            raise RuntimeError(f"{self._label}: {what}; call it under torch.no_grad(), or thaw it by train()")

    def train(self, mode: bool = True) -> Self:
        """As in torch.nn; a module that trains is not frozen."""
        if mode and self._frozen:
            self._thaw()
        return super().train(mode)

    def _thaw(self) -> None:
        self._frozen, self._earlier, self._int8 = 0, Earlier(), False  # calls that are remembered multiply by packed weights
        packed_weights.forget(self.parameters())

    @property
    def backend_name(self) -> str:
        """The backend that a call runs on: `llvm`, `triton` or `reference`. Where it is `triton`, a call may go to cuDNN, which
        `explain` tells of.
        """
        if self.why_not_native:
            return "reference"
        return "triton" if self._on_triton(self._like) else "llvm"

    @property
    def why_not_native(self) -> str | None:
        """Why calls run no native kernels, as the parameters are now; None where they do."""
        return self._why_interpreted(self._like)

    def _repeated(self, input: Any, hx: Any) -> tuple[Tensor, Sequence[Tensor]] | None:
        """The output and the last states of a call like one that was made before; None where it is none."""
        computed: list[Sequence[Tensor]] = []
        for repeated in self._earlier.find(input, hx):
            found = repeated(self, input, hx, computed)
            if found is not None:
                return found
        return None

    def _seen(self, *given: Any, **call: Any) -> Seen:
        return seen(self, given, call)

    def _why_not_native(self, tensor: Tensor) -> str | None:
        if self.backend == "reference":
            return "backend='reference' was asked for"
        dtype = tensor.dtype
        if self._on_triton(tensor):
            return self._why_not_triton(dtype, tensor.device)
        if dtype not in self._no_kernels:
            return f"dtype {dtype} has no kernels (float32 and float64 have)"
        if not tensor.is_cpu:
            return f"device {tensor.device} has no kernels (cpu and cuda have)"
        return self._no_kernels[dtype]

    def _why_interpreted(self, tensor: Tensor) -> str | None:
        """Why no kernels run calls of such tensors, not in another dtype either."""
        return None if self._is_widened(tensor) else self._why_not_native(tensor)

    def _is_widened(self, tensor: Tensor) -> bool:
        """Whether calls are computed in another dtype than that of their tensors."""
        if self.backend != "auto" or not counted_to(str(tensor.dtype)) or not tensor.is_cpu:
            return False
        return self._no_kernels[WIDE] is None

    def _made_of(self, tensor: Tensor) -> MadeOf:
        """What those of a call of such tensors are made of, see `Call`."""
        if self.int8:
            return "int8"
        if tensor.dtype is torch.bfloat16:
            return "bfloat16" if self._is_widened(tensor) else ""
        may = tensor.dtype is torch.float32 and tensor.is_cpu and self.backend in ("auto", "llvm") and bfloat16.allowed()
        return "bfloat16" if may else ""

    def _on_triton(self, tensor: Tensor) -> bool:
        """Whether Triton's kernels are those for a call."""
        return self.backend == "triton" or (self.backend == "auto" and tensor.device.type == "cuda")

    def _why_not_triton(self, dtype: torch.dtype, device: torch.device) -> str | None:
        return triton.why_not(self.network, dtype, device) or triton.why_not(self._modes[True].network, dtype, device)

    def _kernels_run(self, weight: Tensor) -> bool:
        """Whether native kernels run a call, now and here."""
        return not plain.is_transformed() and not self._on_triton(weight) and self._why_not_native(weight) is None

    def _weight(self, input: Tensor) -> Tensor:
        """A parameter, which tells dtype and device."""
        names = self._parameter_names[0]
        if not names:
            return self._without_parameters(input)
        weight = self._parameters.get(names[0])  # quicker than the attribute
        if weight is not None:
            return weight
        if parametrize.is_parametrized(self, names[0]):  # which may draw numbers, or change what it keeps, when it is asked
            of_name: torch.nn.Module = getattr(self.parametrizations, names[0])
            for original in of_name.parameters():
                return original
        found: Tensor = getattr(self, names[0])
        self._check_there(names[:1], [found])
        return found

    def _check_there(self, names: Sequence[str], tensors: Sequence[Tensor | None]) -> None:
        """Refuse None, which torch lets a module have in the place of a parameter."""
        if [tensor for tensor in tensors if tensor is None]:
            missing = ", ".join(name for name, tensor in zip(names, tensors, strict=True) if tensor is None)
            raise TypeError(f"{self._label}: expected a tensor as parameter {missing}, got None")

    def _labelled(self, function: Callable[..., T], *arguments: Any) -> T:
        """Its errors name the layer."""
        try:
            return function(*arguments)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self._label}: {error}") from None

    def _checked_sources(
        self, mode: Mode, input: Tensor, weight: Tensor, uneven: bool = False
    ) -> tuple[Sequence[Tensor], Tensor | None, bool]:
        """What the steps read of the parameters; the seed of random choices; whether all sources are known to be plain and
        contiguous. Last of all checks, as it draws and computes. `uneven`: samples have different steps.
        """
        if not is_compiling() and torch._C._is_tracing():
            others = "torch.export and anyrnn.onnx.export do"
            raise UnsupportedError(f"{self._label}: torch.jit.trace does not record what kernels do; {others}")
        if uneven and _is_captured(weight.device):
            what = "calls with samples of different steps (lengths, mask, reset) cannot be captured in a CUDA graph"
            raise UnsupportedError(f"{self._label}: {what}; give all samples all steps")
        seed = _new_seed(weight.device) if mode.draws else None
        sources, lasting = self._sources(mode, seed, input)
        plain_sources = False
        if lasting and not is_compiling() and not any(map(IS_NESTED, sources)):
            plain_sources = self._as_before.get(mode.number, plain.unknown)(*sources)
        if not plain_sources:
            if is_autocast(weight):  # parametrisations may have been made in another dtype
                sources = [s.to(weight.dtype) if is_cast(s) else s for s in sources]
            self._check_sources(mode, sources, weight, lasting)
        return sources, seed, plain_sources

    def _check_sources(self, mode: Mode, sources: Sequence[Tensor], weight: Tensor, lasting: bool) -> None:
        """Refuse parameters that were replaced by others of another form; remember what those are like that last."""
        usual = weight.dtype, weight.device, torch.strided
        kinds = [(s.dtype, s.device, s.layout) for s in sources]
        if [s.shape for s in sources] == mode.source_shapes and kinds.count(usual) == len(sources):
            if lasting and not is_compiling() and self._likenesses:
                self._likenesses -= 1
                known = plain.direct(*sources) and all(map(Tensor.is_contiguous, sources))
                self._as_before[mode.number] = plain.likeness(*sources) if known else plain.unknown
            return
        for name, shape, source, kind in zip(mode.source_names, mode.source_shapes, sources, kinds, strict=True):
            if source.shape != shape or kind[0] is not weight.dtype:
                sides = f"expected {list(shape)} of {weight.dtype}, got {list(source.shape)} of {source.dtype}"
                raise RuntimeError(f"{self._label}: {name}: {sides}")
            if kind != usual:
                sides = f"expected a strided tensor on {weight.device}, got one of {source.layout} on {source.device}"
                raise RuntimeError(f"{self._label}: {name}: {sides}")

    @property
    def _label(self) -> str:
        return type(self).__name__

    def _without_parameters(self, input: Tensor) -> Tensor:
        """What tells the dtype and the device where no parameter does: the input."""
        if not input.is_floating_point():
            raise ValueError(f"{self._label}: input should be of a floating-point dtype, got {input.dtype}")
        return input

    def _sources(self, mode: Mode, seed: Tensor | None, input: Tensor) -> tuple[list[Tensor], bool]:
        """What the step reads of the parameters, for each unit: as they are, or through the parameter phase; and whether these
        are tensors that last from call to call.
        """
        if mode.phase is None:
            parameters: Any = self._parameters
            try:
                found = [parameters[name] for name in mode.source_names]
            except KeyError:  # a parametrisation has taken a parameter's place
                found = [getattr(self, name) for name in mode.source_names]
            self._check_there(mode.source_names, found)
            return found, True
        found, lasting = [], True
        for unit, names in zip(mode.network.units, self._parameter_names, strict=True):
            of_unit, lasts = self._through_phase(mode.network, mode.phase, unit, names, seed, input)
            found += of_unit
            lasting = lasting and lasts
        return found, lasting

    def _through_phase(
        self, network: Network, phase: Phase, unit: tuple[int, int], names: Sequence[str], seed: Any, input: Tensor
    ) -> tuple[list[Tensor], bool]:
        layer, direction = unit
        own: Any = self._parameters
        tensors = [own[name] if name in own else getattr(self, name) for name in names]  # a parametrisation may be in its place
        self._check_there(names, tensors)
        parameters: dict[str, Tensor] = {p.name: t for p, t in zip(network.graph.parameters, tensors, strict=True)}
        like = next(iter(parameters.values())) if parameters else self._without_parameters(input)
        direct = plain.direct(like) and not plain.is_transformed()
        if direct and like.is_cuda and torch.cuda.is_current_stream_capturing():
            direct = False  # what is made now has its numbers only when the graph is replayed
        made = phase.lasting(unit, parameters, like, self._frozen) if direct else None
        lasts = made is not None
        if made is None:
            chances = None
            if seed is not None:
                native = direct and like.is_cpu and plain.direct(seed) and self._why_not_native(like) is None
                random = network.randomness(int(seed), None, _weight_mask) if native else network.randomness(seed, None)
                chances = None if random is None else random.at(layer, direction, 0)
            made = phase.make(unit, parameters, like, chances, keep=direct)
        return [parameters[name] if name in parameters else made[name] for name in network.sources], lasts

    def _run(
        self,
        mode: Mode,
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
        network, numbers = mode.network, self._numbers(mode, inputs[0], all_states, ends is not None and packing is None)
        rest = (seed, packing, plain_sources)
        wanted = slice(len(network.state_sizes), None) if all_states else slice(None)
        if network.is_one_call:
            output, found = self._call(mode, 0, numbers[0], inputs, first, sources, *rest, scatter)
            return ends(output) if ends is not None and packing is not None else output, found[wanted]
        x, *further = inputs
        found_last, units, per_layer = [], network.directions, network.directions * len(network.sources)
        for layer, number in enumerate(numbers):
            begin = [state[layer * units : (layer + 1) * units] for state in first]
            of_layer = sources[layer * per_layer : (layer + 1) * per_layer]
            y, last = self._call(mode, layer, number, [x, *further], begin, of_layer, *rest)
            adds = network.residual and layer
            if ends is not None and layer == network.layers - 1:
                y, adds = ends(y) if packing is not None else y, adds and network.adds_ends
                x = ends(x) if adds else x
            y = merged(y, network.merge)
            x = x + y if adds else y
            found_last.append(last[wanted])
        x = x if scatter is None else scatter.put(x)
        return x, [torch.cat(of_state) for of_state in zip(*found_last, strict=True)]

    def _numbers(self, mode: Mode, x: Tensor, all_states: bool, ends: bool) -> list[int]:
        """Of the calls of an input like `x`."""
        return mode.numbers[Which(all_states, ends, self._made_of(x))]

    def _call(
        self,
        mode: Mode,
        layer: int,
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
        if self.int8:
            self._check_int8(inputs[0], *inputs, *first, *sources)
        reason = self._why_not_native(inputs[0])
        if self._frozen and torch.is_grad_enabled() and any(s.requires_grad for s in sources):
            self._thaw()  # an optimiser may follow
        if reason is None:
            of_step = self._is_step(*inputs, *first, *sources)
            if of_step:
                inputs, first = [t.squeeze(0) for t in inputs], [t.squeeze(0) for t in first]
            given = (inputs, first, sources, seed, packing, plain_sources, self._frozen, scatter, of_step)
            return autograd.call_network(number, *given)
        dtype = inputs[0].dtype
        if self._is_widened(inputs[0]):  # gradients of all steps too, whose sums in bfloat16 stop at 256 of what is added
            check_counters(self.network, str(dtype))
            kept = mode.widened.get(layer, sources, self._frozen, _widened) if plain_sources else None
            sources = [t.to(WIDE) for t in sources] if kept is None else kept
            inputs, first = [t.to(WIDE) for t in inputs], [t.to(WIDE) for t in first]
            rest = (kept is not None, 0 if kept is None else self._frozen)
            wide, states = autograd.call_network(number, inputs, first, sources, seed, packing, *rest)
            output, *last = (t.to(dtype) for t in (wide, *states))
        else:
            self._check_fallback(reason, *inputs, *first, *sources)
            output, *last = interpreted.interpreted(number, inputs, first, sources, seed, packing)
        return output if scatter is None else scatter.put(output), last

    def _is_step(self, *tensors: Tensor) -> bool:
        """Whether autograd is to keep tensors, and to give them, without sides of steps and units."""
        return False

    def _check_fallback(self, reason: str, *tensors: Tensor) -> None:
        """Refuse the interpreter where kernels were asked for, or a call of these tensors is to keep no more than a budget."""
        if self.backend in ("llvm", "triton"):
            raise UnsupportedError(f"{self._label}: backend {self.backend!r} cannot run this: {reason}")
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if self.memory_budget is not None and trains:
            raise UnsupportedError(f"{self._label}: memory_budget is for native kernels, and none run this: {reason}")

    def extra_repr(self) -> str:
        names = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "backend", "memory_budget")
        given = {**self._repr_options(), **{name: getattr(self, name) for name in names}}
        return described((*self._repr_first(), self.input_size, self.hidden_size), given) + ", in int8" * self.int8

    def _repr_first(self) -> list[str]:
        return [self.cell.name]

    def _repr_options(self) -> dict[str, Any]:
        return self.options
