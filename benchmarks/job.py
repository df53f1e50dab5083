"""A row made real: the network with its weights, the input, the output's gradient, and how much work that is."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from math import prod

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from anyrnn import UnsupportedError, cells
from anyrnn.ir.graph import Node, reachable
from anyrnn.torch import Recurrent
from anyrnn.torch.calls import WIDE
from benchmarks.suite import Row

NOTHING = ("norm", "stop_gradient", "clip_gradient")
"""Ops whose result is there already."""


def other_sizes(cell: str, hidden: int) -> dict[str, int]:
    """What a cell has beside `input` and `hidden`: half of the latter."""
    return cells.load(cell).trace().other_sizes(hidden)


class Job:
    """What all systems are given for a row, the same numbers in every process."""

    def __init__(self, row: Row, dtype: torch.dtype, threads: int) -> None:
        torch.manual_seed(0)
        self.row, self.dtype, self.threads = row, dtype, threads
        self.module = self.make_module("auto" if dtype.itemsize < WIDE.itemsize else "llvm")  # numbers of 16 bits are widened
        self.network = self.module.network
        x = torch.randn(row.steps, row.samples, row.features, dtype=dtype)
        lengths = _lengths(row)
        steps = row.steps, row.samples
        self.further = {name: torch.rand(*steps, n, dtype=dtype) for name, n in self.network.further_inputs}
        """The cell's other per-step inputs, by name."""
        self.packed = pack_padded_sequence(x, lengths) if row.lengths else None
        self.data = self.packed.data if self.packed is not None else x  # [T, N, D]; packed: [sum of lengths, D]
        self.sample_steps = int(lengths.sum())
        width = self.network.directions * self.network.output_size
        graded = (row.samples, width) if row.loss == "last" else (*self.data.shape[:-1], width)
        self.d_output = torch.randn(graded, dtype=dtype)

    def make_module(self, backend: str) -> Recurrent:
        """anyrnn's module. Raises: UnsupportedError where the interpreter would run in the place of kernels."""
        row = self.row
        make = partial(Recurrent, bidirectional=row.bidirectional, backend=backend, dtype=self.dtype)
        module = make(row.cell, row.features, row.hidden, row.layers, **other_sizes(row.cell, row.hidden))
        if module.why_not_native is not None and backend != "reference":
            raise UnsupportedError(module.why_not_native)
        return module

    def in_double_precision(self) -> Job:
        """The same numbers."""
        other = copy(self)
        other.dtype, other.data, other.d_output = torch.float64, self.data.double(), self.d_output.double()
        other.further = {name: values.double() for name, values in self.further.items()}
        return other

    def input(self, data: Tensor) -> Tensor | PackedSequence:
        """What a module is called with, of a tensor like `self.data`."""
        return PackedSequence(data, self.packed.batch_sizes) if self.packed is not None else data

    def parameters(self) -> dict[str, Tensor]:
        """Copies of the weights by name, for instance `weight_ih_l0`."""
        return {name: p.detach().clone() for name, p in self.module.named_parameters()}

    def layer_parameters(self) -> dict[str, Tensor] | None:
        """The same without `_l0`; None for a network of more than one layer or direction."""
        if len(self.network.units) > 1:
            return None
        return {name.removesuffix("_l0"): tensor for name, tensor in self.parameters().items()}

    @property
    def kinks(self) -> bool:
        """Whether the gradient jumps somewhere: it is chosen by a test, or by a sign."""
        return any(node.row.jumps for node in self.network.plan.adjoint.nodes)

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each element of a matrix, sample and step; in training three times that."""
        return self._flops(of_input=False) + self.input_flops

    @property
    def input_flops(self) -> int:
        """Those of the matrices that multiply the layers' inputs."""
        return self._flops(of_input=True)

    def _flops(self, of_input: bool) -> int:
        units = self.network.units
        elements = sum(prod(shape) for layer, _ in units for which, shape in self._matrices(layer) if which == of_input)
        return 2 * elements * self.sample_steps * (3 if self.row.mode == "training" else 1)

    @property
    def weight_bytes(self) -> int:
        """Read of the matrices: the recurrent ones in every step but the first, which begins with zeros, once those of the input;
        in training forward and backward.
        """
        elements = 0
        for layer, _ in self.network.units:
            for of_input, shape in self._matrices(layer):
                elements += prod(shape) * (1 if of_input else self.row.steps - 1)
        return elements * self.dtype.itemsize * (2 if self.row.mode == "training" else 1)

    @property
    def array_bytes(self) -> int:
        """Of input and output; in training of their gradients too, of one read more of each for the backward pass, and of the
        states of all steps that are no output, which are written and read.
        """
        network, width = self.network, self.network.directions * self.network.output_size
        elements = self.sample_steps * (self.row.features + width)
        if self.row.mode == "training":
            graph = network.graph
            states = zip(graph.states, network.state_sizes, strict=True)
            kept = sum(size for state, size in states if graph.output(state.name) != graph.output("y"))
            elements = 3 * elements + 2 * self.sample_steps * len(network.units) * kept
        return elements * self.dtype.itemsize

    @property
    def elements(self) -> dict[str, int]:
        """Of the ops that are no products, by name: forward, and in training those of the gradient's equations."""
        plan, found = self.network.plan, dict[str, int]()
        nodes: Sequence[Node] = plan.adjoint.nodes if self.row.mode == "training" else plan.graph.nodes
        outputs = [i for _, i in plan.graph.outputs]
        if self.row.mode == "training":
            outputs += plan.adjoint.roots
        for layer, _ in self.network.units:
            sizes = self.network.layer_sizes(layer)
            for i in reachable(nodes, outputs):
                node = nodes[i]
                of = nodes[node.inputs[0]] if node.row.kind == "reduction" else node
                if node.per_sample and node.row.kind in ("elementwise", "reduction") and node.op not in NOTHING and of.shape:
                    found[node.op] = found.get(node.op, 0) + of.shape[0].evaluate(sizes) * self.sample_steps
        return found

    @property
    def step_bytes(self) -> int:
        """Of the recurrent matrices, forward."""
        units = self.network.units
        elements = sum(prod(shape) for layer, _ in units for of_input, shape in self._matrices(layer) if not of_input)
        return elements * self.dtype.itemsize

    def _matrices(self, layer: int) -> list[tuple[bool, tuple[int, ...]]]:
        """The shapes of what each product of a layer's step multiplies by, and whether it multiplies the input."""
        nodes, sizes = self.network.graph.nodes, self.network.layer_sizes(layer)
        products = self.network.graph.products
        return [(nodes[v].op == "input", tuple(d.evaluate(sizes) for d in nodes[m].shape)) for m, v in products]


def _lengths(row: Row) -> Tensor:
    """Of each sample, longest first. [N]"""
    if row.lengths is None:
        return torch.full((row.samples,), row.steps)
    shortest, longest = row.lengths
    return torch.linspace(longest, shortest, row.samples).round().long()
