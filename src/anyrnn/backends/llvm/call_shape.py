"""What calls that are alike have in common: everything but the addresses of their arrays."""

from __future__ import annotations

from dataclasses import dataclass

from anyrnn.backends.llvm.extent import Extent
from anyrnn.sequence.windows import Windows

Strides = tuple[int, int]
"""Of a sequence: bytes from step to step and from row to row; the latter twice where steps have different rows, one after the
other. Of states: from unit to unit and from row to row. Features lie
next to each other."""


@dataclass(frozen=True)
class CallShape:
    """Everything of a call but addresses. In a backward call `output` is the output's cotangent, `first` the last states'
    cotangents, and `last` the first states' gradients; `more` are what steps give beside the output, or its cotangents.

    `which` is `inference`, `training` or `backward`; `dtype`, what numbers and products are made of, one of `run.KINDS`. Strides
    are in bytes.

    The addresses of a call come in the order: inputs, output, first, last, more, d_inputs (each only where it is there), the
    table of rows where the output has one, sources of every unit, their gradients if wanted, the reserve if there is one.
    """

    which: str
    dtype: str
    extent: Extent
    """of the call, or one that has room for it and for others (`Extent.room`)"""
    inputs: tuple[Strides, ...]
    output: Strides | None
    first: tuple[Strides | None, ...]
    last: tuple[Strides | None, ...]
    output_steps: tuple[int, int] = (0, 0)
    d_inputs: tuple[Strides | None, ...] = ()
    gradients: bool = False
    more: tuple[tuple[int, int, int], ...] = ()
    """bytes from unit to unit, from step to step and from row to row"""
    ends: bool = False
    """the output has only the last step that each direction takes; then its strides are from row to row, twice"""
    windows: Windows | None = None
    """of which a training call keeps some; one without an output does some of them again, for a backward call"""
    anywhere: bool = False
    """the output's rows stand anywhere: a table says, of each packed row, how many rows further than packed"""
    no_first: bool = False
    """of a backward call: its forward call was given no first states"""
    packed: bool = False
    """of inference: weights are packed in any case, as they stay so for later calls without a look"""
    shares: bool = False
    """of a backward call of one step: its weights stay packed for others, so only few rows multiply them where they stand"""
    constant: bool = False
    """the sums of biases stay where packed weights do"""
