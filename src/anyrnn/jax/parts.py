"""Calls of networks between whose layers something happens that no kernel does: layer after layer, as `Network.parts` says. Other
networks are one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
from jax import Array

from anyrnn import backends
from anyrnn.errors import UnsupportedError
from anyrnn.jax import interpreted
from anyrnn.jax.call import Call, Operands
from anyrnn.jax.primitives import alike, forward_p, why_interpreted
from anyrnn.sequence.network import Network, merged


def run(call: Call, given: Operands) -> tuple[Array, list[Array]]:
    """The output and the states of a call of any network. It may have a seed that nothing asks for."""
    network, units = call.network, call.network.directions
    named = call.named(given.parameters)
    (x, *further), found = given.inputs, []
    for layer, (part, budget) in enumerate(zip(network.parts, _budgets(call, given.inputs[0]), strict=True)):
        draws, top = call.draws and bool(part.probabilities), layer == len(network.parts) - 1
        own = replace(call, network=replace(part, merge="concat"), ends=call.ends and top, draws=draws, budget=budget)
        first = given.first if network.is_one_call else [a[layer * units : (layer + 1) * units] for a in given.first]
        of_part = [named[name] for name in part.parameter_names]
        seed = given.seed if draws else None
        y, *states = _run(own, Operands([x, *further], first, of_part, seed, given.there, given.reset))
        found.append(states)
        if network.is_one_call:
            return y, states
        adds = network.residual and layer > 0
        if adds and own.ends:
            x, adds = _ends(network, x, given.there, call.batch_first), network.adds_ends
        y = merged(y, network.merge)
        x = x + y if adds else y
    return x, [jnp.concatenate(of_state) for of_state in zip(*found, strict=True)]


def _budgets(call: Call, x: Array) -> list[int | None]:
    if call.budget is None:
        return [None] * len(call.network.parts)
    if reason := why_interpreted(call, x.dtype):
        raise UnsupportedError(
            f"memory_budget is for native kernels, and none run this ({reason}); jax.checkpoint is for programs"
        )
    if call.resets:
        raise UnsupportedError("memory_budget: with resets it is known only when a call runs how much it has to keep")
    shares: list[int | None] = backends.native().shares(call.network.parts, call.budget)
    return shares


def _run(call: Call, given: Operands) -> Sequence[Array]:
    """One call, by a primitive where kernels can run it; elsewhere there is nothing between JAX and the operators of the scan."""
    operands = alike(given.in_order())
    reason = why_interpreted(call, operands[0].dtype)
    if call.backend == "llvm" and reason:
        raise UnsupportedError(f"backend 'llvm' cannot run this: {reason}")
    if reason:
        return interpreted.forward(*operands, call=call)
    results: Sequence[Array] = forward_p.bind(*operands, call=call)
    return results


def _ends(network: Network, sequence: Array, there: Array | None, batch_first: bool) -> Array:
    """Of a sequence, the last step that each direction takes, [N, width]; zero for a sample without steps."""
    by_step = sequence.swapaxes(0, 1) if batch_first else sequence
    if there is None:
        return jnp.concatenate([features[step] for step, features in network.by_way(by_step)], -1)
    has = (there.T if batch_first else there)[..., None]
    found = []
    for step, features in network.by_way(by_step):
        seen = jnp.cumsum(has, 0, dtype=jnp.int32) if step == 0 else jnp.cumsum(has[::-1], 0, dtype=jnp.int32)[::-1]
        found.append(jnp.where(has & (seen == 1), features, 0).sum(0))
    return jnp.concatenate(found, -1)
