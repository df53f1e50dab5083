"""What operators know of a layer: the call that it makes of them, by number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from anyrnn._memory import ALIGNMENT
from anyrnn.backends.llvm import run as llvm
from anyrnn.backends.llvm.extent import Extent
from anyrnn.errors import UnsupportedError
from anyrnn.ir.philox import Randomness
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import Packing
from anyrnn.sequence.windows import Windows
from anyrnn.torch import plain

Tensors = Sequence[Tensor]
DTYPES = {torch.float32: "float32", torch.float64: "float64"}
MadeOf = Literal["", "bfloat16", "int8"]
"""What products are made of where that is not the dtype of a call."""
WIDE = torch.float32
"""What calls in 16 bits are computed in on a CPU."""


@dataclass(frozen=True)
class Call:
    """What a call needs to know beside its tensors."""

    network: Network
    batch_first: bool
    ends: bool = False
    """The output has only the last step that each direction takes, [N, width]; not of packed rows."""
    budget: int | None = None
    """Bytes that a training call may keep."""
    backend: str = "auto"
    """`triton` where it was asked for; else the device says."""
    products: MadeOf = ""
    """`bfloat16` where those of float32 may be of numbers rounded to that, on a CPU that gains by it; `int8` where they are."""

    def on_triton(self, like: Tensor) -> bool:
        """Whether Triton's kernels run calls with such tensors. Raises: UnsupportedError for products of int8."""
        found = self.backend == "triton" or not like.is_cpu
        if found and self.products == "int8":
            raise UnsupportedError(f"products of int8 are for a CPU, got a tensor on {like.device}")
        return found

    def native_dtype(self, dtype: torch.dtype) -> str:
        """What the llvm backend calls a call with such tensors."""
        products = self.made_of(dtype)
        return llvm.said(DTYPES[dtype], products)

    def made_of(self, dtype: torch.dtype) -> MadeOf:
        """What products of a call with such tensors are made of, on this processor. Raises: UnsupportedError for those of int8 in
        another dtype than float32.
        """
        if self.products == "int8" and dtype is not WIDE:
            raise UnsupportedError(f"products of int8 are for float32, got {dtype}")
        rounds = self.products != "bfloat16" or (dtype is WIDE and llvm.multiplies_pairs())
        return self.products if rounds else ""

    @cached_property
    def width(self) -> int:
        return self.network.width

    @cached_property
    def units(self) -> int:
        return len(self.network.units)

    @cached_property
    def state_sizes(self) -> tuple[int, ...]:
        return self.network.state_sizes

    @property
    def outputs(self) -> int:
        """How many tensors a call gives."""
        return 1 + len(self.state_sizes) + len(self.more_sizes)

    @cached_property
    def more_sizes(self) -> tuple[int, ...]:
        """Features of what steps give beside the output."""
        nodes = self.network.graph.nodes
        return tuple(self.network.state_size(nodes[i].shape) for _, i in self.network.graph.more_outputs)

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """Which of the sources of all units have gradients that kernels add to."""
        names = self.network.sources * self.units
        return tuple(k for k, name in enumerate(names) if name in self.network.plan.summed)

    @cached_property
    def input_sizes(self) -> list[int]:
        """Features of the inputs."""
        sizes = self.network.layer_sizes(0)
        return [shape[0].evaluate(sizes) if shape else 1 for _, shape in self.network.graph.inputs]

    @cached_property
    def source_shapes(self) -> list[torch.Size]:
        """Of the sources of all units."""
        return [torch.Size(shape) for layer, _ in self.network.units for shape in self.network.source_shapes(layer)]

    @cached_property
    def scatters(self) -> bool:
        """Whether kernels can put the rows of the output anywhere."""
        return llvm.scatters(self.network)

    def more_cotangents(self, x: Tensor, given: Sequence[Tensor | None]) -> list[Tensor]:
        """Those of what steps give beside the output, zeros where none is given."""
        zero, sides = x.new_zeros(()), x.shape[:-1]
        sized = zip(given, self.more_sizes, strict=True)
        return [zero.expand(self.units, *sides, size) if d is None else d for d, size in sized]

    def room(self, extent: Extent) -> Extent:
        """What the memory of a call has room for. It is more than the call's own extent where sequences end at different steps
        and all distances in arrays are the same in other such calls.
        """
        return extent.room if self.has_room else extent

    @property
    def has_room(self) -> bool:
        apart = self.units > 1 and bool(self.more_sizes)  # what each unit gives in all steps stands behind another's
        return not apart and self.budget is None

    def windows(self, x: Tensor, packing: Packing | None) -> Windows | None:
        """What a training call keeps, if not everything."""
        return (
            None
            if self.budget is None
            else llvm.windows(self.network, self.native_dtype(x.dtype), extent_of(x, packing), self.budget)
        )

    def randomness(self, seed: Tensor | None, packing: Packing | None) -> Randomness | None:
        """`seed` is a tensor of one int64, where numbers are drawn."""
        if not self.network.probabilities:
            return None
        places = None if packing is None else packing.places
        if seed is None:
            return self.network.randomness(0, places)
        number: Any = seed if plain.is_batch(seed) or not seed.is_cpu else int(seed) & 0xFFFFFFFFFFFFFFFF
        return self.network.randomness(number, places)


class Calls(dict[int, Call]):
    """Calls by number."""

    def __missing__(self, number: int) -> Call:
        message = "this program was compiled or exported with a layer that this process has not made; make the same layer first"
        raise RuntimeError(f"anyrnn: {message} (operator number {number})")


CALLS = Calls()
HANDLES: dict[Call, int] = {}


def handle(call: Call) -> int:
    """The number under which operators know a call (operators take numbers and tensors only).

    It is a digest of all that a call is, the same in every process: compiled and exported programs carry it.
    """
    if call not in HANDLES:
        network = call.network
        of_network = (network.sizes, network.layers, network.ways, network.hypers, network.probabilities, network.first_layer)
        text = (
            f"{network.graph.identity} {of_network} {call.batch_first} {call.ends} {call.budget} {call.backend} {call.products}"
        )
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
        CALLS[number] = call
        HANDLES[call] = number
    return HANDLES[call]


def rows_of(x: Tensor, packing: Packing | None) -> int:
    """The samples of an input [T, N, D], or of packed rows."""
    return x.size(1) if packing is None else packing.rows


def extent_of(x: Tensor, packing: Packing | None) -> Extent:
    if packing is None:
        return Extent(x.size(0), x.size(1))
    return Extent(len(packing.counts), packing.rows, packing.counts)


def is_moved(reserve: Tensor) -> bool:
    """Whether a hook of autograd's has kept a reserve somewhere else meanwhile."""
    return reserve.data_ptr() % ALIGNMENT != 0 or not reserve.is_contiguous()


def check_kept(call: Call, inputs: Tensors, sources: Tensors, reserve: Tensor, bytes: int) -> None:
    """That what the forward call read is still of its shapes, dtype and device, so that it kept so many bytes. Torch does not
    count a change of `p.data`, by which modules are converted too; and an operator's forward call that autograd recorded keeps
    nothing here. Raises: RuntimeError.
    """
    if bytes > 0 and not reserve.numel():
        what = "the forward call kept nothing for it, as gradients are enabled and autograd keeps what it needs itself"
        raise RuntimeError(f"anyrnn: the backward pass cannot run: {what}; a trace of both calls runs under `torch.no_grad()`")
    sizes = [*call.input_sizes, *call.source_shapes]
    found = [*[t.size(-1) for t in inputs], *[t.shape for t in sources]]
    alike = all(t.dtype is inputs[0].dtype and t.device == reserve.device for t in (*inputs, *sources))
    if not alike or found != sizes or reserve.nbytes != bytes:
        raise changed_since()


def changed_since() -> RuntimeError:
    """What to raise where a backward call meets other tensors than the forward call read."""
    what = "an input or a parameter has another shape, dtype or device than in the forward call"
    return RuntimeError(f"anyrnn: the backward pass cannot run: {what} (was the module converted, or `.data` set?)")
