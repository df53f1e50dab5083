"""The parameter phase of a module: what its steps read that is no parameter, but made of them or of hyper-parameters.

Where nobody differentiates it, what is made is kept for the calls to come: it holds while the parameters have the same numbers.
Torch does not count every change (`p.data`, fused optimisers), so the numbers are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyrnn.backends.reference import run as reference
from anyrnn.ir.graph import reachable
from anyrnn.ir.interpret import Interpreter
from anyrnn.ir.ops import RANDOM
from anyrnn.ir.philox import Chances
from anyrnn.sequence.network import Network
from anyrnn.torch import interpreted
from anyrnn.torch.namespace import NAMESPACE
from anyrnn.torch.packed import VERSION
from anyrnn.torch.plain import is_plain

Unit = tuple[int, int]
Made = dict[str, Tensor]
BITS = {torch.float32: np.int32, torch.float64: np.int64}


@dataclass
class Kept:
    """What was made for one unit, and of what."""

    made: Made
    bits: list[np.ndarray[Any, Any]]
    """of the parameters"""
    promise: int
    """under which the numbers were looked at last (see `freeze`), of these parameters with these versions:"""
    seen: list[tuple[Tensor, int]]

    def holds(self, parameters: Sequence[Tensor], promise: int) -> bool:
        """Whether these would give the same."""
        seen = [(p, VERSION(p)) for p in parameters]
        if promise and promise == self.promise and all(p is q and v == w for (p, v), (q, w) in zip(seen, self.seen, strict=True)):
            return True
        if not all(map(np.array_equal, map(bits, parameters), self.bits)):
            return False
        self.promise, self.seen = promise, seen
        return True


def _has_bits(parameter: Tensor) -> bool:
    """Whether its numbers can be looked at, and torch counts changes of it."""
    if parameter.is_nested or parameter.is_inference():
        return False
    return parameter.is_cpu and parameter.dtype in BITS and parameter.is_contiguous()


def bits(parameter: Tensor) -> np.ndarray[Any, Any]:
    """Those of its numbers; NaN is equal to itself then."""
    return parameter.detach().numpy().view(BITS[parameter.dtype])


class Phase:
    """Of the network that a module runs in one of its modes."""

    def __init__(self, network: Network) -> None:
        self.network = network
        nodes, computed = network.plan.phase.nodes, network.plan.phase.computed
        below = [nodes[i] for i in reachable(nodes, [w.node for w in computed])]
        self.reads = [n.attributes[0] for n in below if n.op == "parameter"]
        """the parameters that it is made of"""
        self.draws = any(n.op in RANDOM for n in below)
        self._kept: dict[tuple[Unit, torch.dtype, torch.device], Kept] = {}

    def forget(self) -> None:
        """Let go of all that is kept, and of the parameters."""
        self._kept.clear()

    def make(self, unit: Unit, parameters: Mapping[str, Tensor], like: Tensor, chances: Chances | None) -> Made:
        """By name. `like` tells dtype and device."""
        number, phase = interpreted.number_like(like), self.network.plan.phase
        interpreter = Interpreter(NAMESPACE, number, self.network.layer_sizes(unit[0]), chances)
        values = reference.parameter_values(self.network, number, parameters)
        with interpreted.without_autocast(like):
            interpreter.run(phase.nodes, values, [w.node for w in phase.computed])
        return {w.name: values[w.node] for w in phase.computed}

    def lasting(self, unit: Unit, parameters: Mapping[str, Tensor], like: Tensor, promise: int) -> Made | None:
        """The same, kept from call to call; None where it has to be made for each. `promise`: that under which the numbers of the
        parameters are looked at once.
        """
        given = [parameters[name] for name in self.reads]
        if self.draws or (torch.is_grad_enabled() and any(p.requires_grad for p in given)):
            return None
        if not (is_plain(*given) and all(map(_has_bits, given))):
            return None
        key = unit, like.dtype, like.device
        kept = self._kept.get(key)
        if kept is None or not kept.holds(given, promise):
            with torch.inference_mode(False), torch.no_grad():
                made = self.make(unit, parameters, like, None)
                made = {name: torch.nn.Parameter(t.detach().contiguous(), requires_grad=False) for name, t in made.items()}
            seen = [(p, VERSION(p)) for p in given]
            kept = self._kept[key] = Kept(made, [bits(p).copy() for p in given], promise, seen)
        return kept.made
