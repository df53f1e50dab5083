"""The parameter phase of a module: what its steps read that is no parameter, but made of them or of hyper-parameters.

Where nobody differentiates it, what is made is kept for the calls to come, see `kept`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from anyrnn.backends.reference import run as reference
from anyrnn.ir.interpret import Arrays, Interpreter, evaluation_order
from anyrnn.ir.ops import RANDOM
from anyrnn.ir.philox import Chances
from anyrnn.sequence.network import Network
from anyrnn.torch import interpreted
from anyrnn.torch.kept import Lasting, as_parameter
from anyrnn.torch.namespace import NAMESPACE
from anyrnn.torch.plain import is_plain

Unit = tuple[int, int]
Place = tuple[Unit, torch.dtype, torch.device]
Made = dict[str, Tensor]


def _finish(like: Tensor) -> None:
    """Wait for what was made on a device: it is kept for calls on other streams too."""
    if like.is_cuda:
        torch.cuda.current_stream(like.device).synchronize()


class Phase:
    """Of the network that a module runs in one of its modes."""

    def __init__(self, network: Network) -> None:
        self.network = network
        nodes, computed = network.plan.phase.nodes, network.plan.phase.computed
        leaves = reference.leaves(nodes, ("parameter", "hyper"))
        order = evaluation_order(nodes, {i for i, *_ in leaves}, [w.node for w in computed])
        below = {*order, *(s for i in order for s in nodes[i].inputs), *(w.node for w in computed)}
        self._parameters = {i: name for i, op, name in leaves if i in below and op == "parameter"}
        self._hypers = {i: name for i, op, name in leaves if i in below and op == "hyper"}
        self.reads = list(self._parameters.values())
        """the parameters that it is made of"""
        self.draws = any(nodes[i].op in RANDOM for i in order)
        changing = set(self._parameters)
        for i in order:
            if nodes[i].op in RANDOM or not changing.isdisjoint(nodes[i].inputs):
                changing.add(i)
        self._once, self._each_time = [i for i in order if i not in changing], [i for i in order if i in changing]
        self._constants: dict[Place, Arrays] = {}
        self._kept = Lasting[Made]()

    def __reduce__(self) -> tuple[type[Phase], tuple[Network]]:
        """A copy keeps nothing: what is kept is of the parameters that were copied. (Modules make theirs anew, but torch copies
        those with parametrisations whole.)
        """
        return Phase, (self.network,)

    def forget(self) -> None:
        """Let go of all that is kept, and of the parameters."""
        self._constants.clear()
        self._kept.forget()

    def make(
        self, unit: Unit, parameters: Mapping[str, Tensor], like: Tensor, chances: Chances | None, *, keep: bool = False
    ) -> Made:
        """By name. `like` tells dtype and device. `keep`: whether what follows from no parameter may be kept."""
        phase = self.network.plan.phase
        interpreter = Interpreter(NAMESPACE, interpreted.number_like(like), self.network.layer_sizes(unit[0]), chances)
        with interpreted.without_autocast(like):
            values = self._lasting_constants(interpreter, unit, like) if keep else self._made_constants(interpreter)
            values = values | {i: parameters[name] for i, name in self._parameters.items()}
            interpreter.run_in(self._each_time, phase.nodes, values)
        return {w.name: values[w.node] for w in phase.computed}

    def _made_constants(self, interpreter: Interpreter) -> Arrays:
        """What follows from no parameter, by node."""
        hypers = dict(self.network.hypers)
        values = {i: interpreter.number(hypers[name]) for i, name in self._hypers.items()}
        return interpreter.run_in(self._once, self.network.plan.phase.nodes, values)

    def _lasting_constants(self, interpreter: Interpreter, unit: Unit, like: Tensor) -> Arrays:
        """The same, made once."""
        place = unit, like.dtype, like.device
        found = self._constants.get(place)
        if found is None:
            with torch.inference_mode(False), torch.no_grad():
                found = self._made_constants(interpreter)
            _finish(like)
            self._constants[place] = found
        return found

    def lasting(self, unit: Unit, parameters: Mapping[str, Tensor], like: Tensor, promise: int) -> Made | None:
        """The same, kept from call to call; None where it has to be made for each. `promise`: that under which the numbers of the
        parameters are looked at once.
        """
        given, place = [parameters[name] for name in self.reads], (unit, like.dtype, like.device)
        if self.draws or not is_plain(*given):
            return None

        def make(copies: list[Tensor]) -> Made:
            made = self.make(unit, dict(zip(self.reads, copies, strict=True)), like, None, keep=True)
            _finish(like)
            return {name: as_parameter(t) for name, t in made.items()}

        return self._kept.get(place, given, promise, make)
