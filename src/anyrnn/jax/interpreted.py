"""A call by the interpreter on JAX's own operators, a scan over the steps: what kernels do not compute, and what devices without
kernels run. JAX differentiates it as often as asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anyrnn.backends.reference import run as reference
from anyrnn.ir.interpret import Interpreter, evaluation_order
from anyrnn.ir.philox import Chances, Randomness, Words, kind_of
from anyrnn.jax.call import Call
from anyrnn.jax.namespace import NAMESPACE
from anyrnn.numpy.parameters import own_states
from anyrnn.sequence.network import Network


def forward(*operands: Array, call: Call) -> list[Array]:
    """The output and the states."""
    with jax.numpy_rank_promotion("allow"):  # cells have NumPy's rules, whatever users have chosen for their own code
        return _forward(operands, call)


def _forward(operands: Sequence[Array], call: Call) -> list[Array]:
    given, network = call.split(operands), call.network
    by_step = [_turned(a, call.batch_first) for a in given.inputs]
    rows, dtype = by_step[0].shape[1], by_step[0].dtype
    parameters = call.named(given.parameters)
    own = own_states(network, parameters, dtype, jnp)
    first = given.first or [jnp.broadcast_to(a, (len(a), rows, a.shape[2])) for a in own]
    seed = jnp.zeros(2, jnp.uint32) if given.seed is None else given.seed
    randomness = _InWords(seed, dict(network.probabilities), None, network.first_layer) if network.probabilities else None
    there, reset = (None if m is None else _turned(m, call.batch_first)[..., None] for m in (given.there, given.reset))
    if there is not None:  # what is not there may be anything, NaN too, and meets no gradient
        network, by_step = network.held, [*(jnp.where(there, a, 0) for a in by_step), there.astype(dtype)]
        has_steps, whole = there.any(0), first
        first = [jnp.where(has_steps, a, 0) for a in first]
    output, found = by_step[0], []
    ends: list[Array] = []
    for layer in range(network.layers):
        of_layer, ends = [], []
        for position, direction in enumerate(network.ways):
            unit = layer * network.directions + position
            run = _Unit(network, layer, direction, dtype, parameters, randomness)
            begin, anew = ([a[unit] for a in states] for states in (first, own))
            y, last_y, states = run([output, *by_step[1:]], begin, anew, there, reset, call.all_states)
            of_layer.append(y)
            ends.append(last_y)
            found.append(states)
        output = jnp.concatenate(of_layer, -1)
    shown = jnp.concatenate(ends, -1) if call.ends else _turned(output, call.batch_first)
    states = [jnp.stack(of_state) for of_state in zip(*found, strict=True)]
    if there is not None and not call.all_states:
        states = [jnp.where(has_steps, last, given) for last, given in zip(states, whole, strict=True)]
    return [shown, *(a.swapaxes(1, 2) if call.all_states and call.batch_first else a for a in states)]


class _Unit:
    """One layer in one direction."""

    def __init__(
        self,
        network: Network,
        layer: int,
        direction: int,
        dtype: Any,
        parameters: Any,
        randomness: Randomness | None,
    ) -> None:
        self.network, self.layer, self.direction, self.randomness = network, layer, direction, randomness
        self.number: Callable[[float], Array] = lambda value: jnp.asarray(value, dtype)
        suffix = network.suffix(layer, direction)
        own = {p.name: parameters[p.name + suffix] for p in network.graph.parameters}
        phase, values = network.plan.phase, reference.parameter_values(network, self.number, own)
        self._interpreter(0).run(phase.nodes, values, [w.node for w in phase.computed])
        made = {w.name: values[w.node] for w in phase.computed}
        sources = [own[name] if name in own else made[name] for name in network.sources]
        self.once = reference.source_values(network, layer, sources)
        graph = network.plan.graph
        self.leaves = reference.leaves(graph.nodes, ("input", "state"))
        known = {*self.once, *(i for i, _, _ in self.leaves)}
        self.order = evaluation_order(graph.nodes, known, [i for _, i in graph.outputs])

    def _interpreter(self, step: Any, masks: Mapping[tuple[str, int], Array] | None = None) -> Interpreter:
        chances = None
        if self.randomness is not None:
            chances = _Lasting(self.randomness, self.layer, self.direction, step, 0, masks or {})
        return Interpreter(NAMESPACE, self.number, self.network.layer_sizes(self.layer), chances)

    def masks(self, rows: int) -> Mapping[tuple[str, int], Array]:
        """Of random choices that are alike in all steps."""
        nodes, found = self.network.plan.graph.nodes, {}
        for node in (nodes[i] for i in self.order if nodes[i].op == "choose"):
            choice, features = (
                node.attributes[0],
                node.shape[0].evaluate(self.network.layer_sizes(self.layer)) if node.shape else 1,
            )
            if not kind_of(choice).each_step:
                chances = self._interpreter(0).chances
                assert chances is not None
                found[choice, features] = chances.kept(NAMESPACE, NAMESPACE.arange, choice, rows, features)
        return found

    def step(
        self, streams: Sequence[Array], states: Sequence[Array], t: Array, masks: Mapping[tuple[str, int], Array]
    ) -> tuple[Array, list[Array]]:
        graph = self.network.plan.graph
        given = {
            "input": {name: a for (name, _), a in zip(graph.inputs, streams, strict=True)},
            "state": {s.name: a for s, a in zip(graph.states, states, strict=True)},
        }
        leaves = {i: given[op][name] for i, op, name in self.leaves}
        values = self._interpreter(t, masks).run_in(self.order, graph.nodes, {**self.once, **leaves})
        after = [values[graph.output(s.name)] for s in graph.states]
        y = values[graph.output("y")]
        return jnp.broadcast_to(y, (streams[0].shape[0], self.network.output_size)), [
            jnp.broadcast_to(new, old.shape) for new, old in zip(after, states, strict=True)
        ]

    def __call__(
        self,
        streams: Sequence[Array],
        first: Sequence[Array],
        anew: Sequence[Array],
        there: Array | None,
        reset: Array | None,
        all_states: bool,
    ) -> tuple[Array, Array, list[Array]]:
        """The output, zero where a sample has no step; what its last step was; the states, last or after all steps."""
        steps, rows = streams[0].shape[:2]
        masks = self.masks(rows)

        def body(carry: Any, at: Any) -> Any:
            states, last_y, started, pending = carry
            t, streams, is_there, resets = at
            if resets is not None and not self.direction:
                pending = pending | resets
            before = states
            if resets is not None:
                before = [jnp.where(pending, new, old) for new, old in zip(anew, states, strict=True)]
            y, after = self.step(streams, before, t, masks)
            if is_there is None:
                last_y = y
            else:  # states are held by the step itself, if not those from before a reset
                after = [jnp.where(is_there, new, old) for new, old in zip(after, states, strict=True)]
                last_y = jnp.where(is_there, y, last_y)
                y = jnp.where(is_there, y, 0)
            if resets is not None:
                taken = True if is_there is None else is_there
                started, pending = started | taken, pending & ~taken if is_there is not None else jnp.zeros_like(pending)
                if self.direction:
                    pending = pending | (resets & started)
            shown = [jnp.where(is_there, a, 0) if is_there is not None else a for a in after] if all_states else []
            return (after, last_y, started, pending), (y, shown)

        flags = jnp.zeros_like(streams[0], bool, shape=(rows, 1))  # which vary over devices as x does
        nothing = jnp.zeros_like(streams[0], shape=(rows, self.network.output_size))
        each = jnp.arange(steps, dtype=jnp.uint32), list(streams), there, reset
        carry = [jnp.where(flags, 0, a) for a in first], nothing, flags, flags
        (last, last_y, *_), (output, all_of_them) = jax.lax.scan(body, carry, each, reverse=bool(self.direction))
        return output, last_y, all_of_them if all_states else last


def _turned(sequence: Array, batch_first: bool) -> Array:
    return sequence.swapaxes(0, 1) if batch_first else sequence


def _product(word: Any, multiplier: int) -> tuple[Any, Any]:
    """The upper and the lower word of a product of two, by halves: nothing on the way has more than 32 bits."""
    low, high, of_low, of_high = word & 0xFFFF, word >> 16, multiplier & 0xFFFF, multiplier >> 16
    lowest = low * of_low
    one = high * of_low + (lowest >> 16)
    other = low * of_high + (one & 0xFFFF)
    return high * of_high + (one >> 16) + (other >> 16), (other & 0xFFFF) << 16 | lowest & 0xFFFF


IN_32_BITS = Words(np.uint32, _product)
"""Without a sign: JAX's integers have no more bits unless told otherwise."""


class _InWords(Randomness):
    """Of a seed that is two words, in arrays of words."""

    @property
    def words(self) -> Words:
        return IN_32_BITS

    @property
    def key(self) -> tuple[Array, Array]:
        return self.seed[0], self.seed[1]


@dataclass(frozen=True)
class _Lasting(Chances):
    """Whose masks that are alike in all steps are made once."""

    known: Mapping[tuple[str, int], Array]
    """by choice and features"""

    def kept(self, xp: Any, integers: Any, choice: str, rows: int, features: int) -> Any:
        mask = self.known.get((choice, features))
        return super().kept(xp, integers, choice, rows, features) if mask is None else mask


def replaced(arrays: Sequence[Any], places: Sequence[int], others: Sequence[Any]) -> list[Any]:
    """The same arrays, with others in some places."""
    found = list(arrays)
    for k, array in zip(places, others, strict=True):
        found[k] = array
    return found


def tangent(*arrays: Array, call: Call, active: tuple[bool, ...]) -> list[Array]:
    """Tangents of the results: of operands, a reserve that is not read, and the tangents of those operands that are active.

    Raises: TypeError where gradients are clipped.
    """
    if any(node.op == "clip_gradient" for node in call.network.graph.nodes):
        raise TypeError("clip_gradient: in forward mode there is no gradient to clip")
    operands, given = arrays[: call.operands], iter(arrays[call.operands + 1 :])
    changing = [k for k, is_active in enumerate(active) if is_active]

    _, tangents = jax.jvp(
        lambda *some: forward(*replaced(operands, changing, some), call=call), [operands[k] for k in changing], list(given)
    )
    found: list[Array] = tangents
    return found


def backward(*arrays: Array, call: Call, present: tuple[bool, ...], weights: bool) -> list[Array]:
    """Gradients of the operands that have any, without `weights` of inputs and first states alone: of operands, a reserve that is
    not read, and the cotangents of those results that have one.
    """
    operands, given = arrays[: call.operands], iter(arrays[call.operands + 1 :])
    wanted = call.floats if weights else sum(call.counts[:2])
    results, pull = jax.vjp(lambda *some: forward(*some, *operands[wanted:], call=call), *operands[:wanted])
    cotangents = [next(given) if there else jnp.zeros_like(r) for r, there in zip(results, present, strict=True)]
    return list(pull(cotangents))
