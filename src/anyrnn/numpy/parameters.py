"""A layer's parameters: their first values, what the steps read of them, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn._memory import empty
from anyrnn.backends.reference import run as reference
from anyrnn.ir.graph import Parameter
from anyrnn.ir.interpret import Interpreter
from anyrnn.ir.philox import Randomness
from anyrnn.numpy.arguments import neighbours, overlaps_itself, share
from anyrnn.sequence.network import Network
from anyrnn.sequence.packing import check_unmasked
from anyrnn.trace.initial import Maker

Array = npt.NDArray[Any]


def initial_parameters(network: Network, hidden_size: int, dtype: np.dtype[Any], seed: int | None) -> dict[str, Array]:
    """By name, uniform within 1 / sqrt(H) unless the cell says otherwise."""
    found: dict[str, Array] = {}
    random, bound = np.random.default_rng(seed), 1 / math.sqrt(hidden_size)
    for layer, direction in network.units:
        for parameter, shape in network.parameters(layer):
            value = np.array((2 * random.random(shape) - 1) * bound)
            for part, first in own_initial_values(parameter, value, network.layer_sizes(layer), lambda: random):
                part[...] = first
            found[parameter.name + network.suffix(layer, direction)] = np.asarray(value, dtype)
    return found


def own_initial_values(
    parameter: Parameter, value: Any, sizes: Mapping[str, int], random: Callable[[], np.random.Generator]
) -> Iterator[tuple[Any, float | Array]]:
    """What the cell says of a parameter's first values: parts of `value` (an array or a tensor), and what they begin as.

    Raises: ValueError when a cell's function gives another shape.
    """
    start = 0
    for rows, init in parameter.pieces:
        part = value[start : start + rows.evaluate(sizes)] if value.shape else value
        start += rows.evaluate(sizes)
        if callable(init):
            yield part, _made(init, tuple(part.shape), random(), f"the first values of parameter {parameter.name!r}")
        elif init is not None:
            yield part, float(init)


def _made(init: Maker, shape: tuple[int, ...], random: np.random.Generator, who: str) -> Array:
    try:
        made = np.array(init(shape, random), order="C")
    except Exception as error:
        raise ValueError(f"{who}, of shape {shape}: {type(error).__name__}: {error}") from error
    if made.dtype.kind not in "fiub":
        raise ValueError(f"{who} should be real numbers, got {made.dtype}")
    if made.shape not in ((), shape):
        raise ValueError(f"{who} should have shape {shape}, got {made.shape}")
    return made


def no_layer(found: Any, who: str = "layer") -> TypeError:
    """What to raise for what is no layer of any front-end."""
    kind = type(found).__module__
    hint = "; anyrnn.torch.swap makes ours of torch.nn's" if kind.startswith("torch.nn") else ""
    hint = "; layer.on_numpy(parameters) is one" if kind.startswith("anyrnn.jax") else hint
    return TypeError(f"{who} should be an anyrnn.Recurrent or a layer of anyrnn.torch, got a {type(found).__name__}{hint}")


def taken(layer: Any, who: str = "layer") -> tuple[Network, dict[str, Array]]:
    """The network of a layer, of NumPy's front-end or torch's, and its parameters by name, which are not copied.

    Raises: TypeError for what is no layer, and for parameters that are neither float32 nor float64.
    """
    network = getattr(layer, "network", None)
    named = getattr(layer, "parameters", None) if isinstance(network, Network) else None
    if isinstance(network, Network) and isinstance(named, Mapping):
        return network, dict(named)
    if not isinstance(network, Network) or not all(hasattr(layer, name) for name in network.parameter_names):
        raise no_layer(layer, who)
    tensors = {name: getattr(layer, name).detach().cpu() for name in network.parameter_names}
    for name, tensor in tensors.items():
        if str(tensor.dtype) not in ("torch.float32", "torch.float64"):
            raise TypeError(f"{who}: parameters should be float32 or float64, {name} is {tensor.dtype}")
    return network, {name: tensor.numpy() for name, tensor in tensors.items()}


def own_states(network: Network, parameters: Mapping[str, Any], dtype: Any, xp: Any = np) -> list[Any]:
    """First values of states where none are given, [units, 1, size], in the namespace xp."""
    units, states = len(network.units), network.graph.states
    if not network.learned_state:
        return [xp.full((units, 1, n), s.init, dtype) for s, n in zip(states, network.state_sizes, strict=True)]
    return [xp.stack([parameters[name] for name in names]).reshape(units, 1, -1) for names in network.first_names]


def add_first_gradients(network: Network, d_own: Sequence[Array], gradients: dict[str, Array]) -> None:
    """Add those of learned first values, [units, size] for each state, to the parameters' gradients by name."""
    for names, d in zip(network.first_names, d_own, strict=True):
        for name, of_unit in zip(names, d, strict=True):
            gradients[name] = gradients[name] + of_unit.reshape(gradients[name].shape)


def of_unit(
    network: Network, parameters: Mapping[str, Array], layer: int, direction: int, dtype: np.dtype[Any]
) -> dict[str, Array]:
    """Those of one layer in one direction, by the names that the cell knows. Raises: TypeError, ValueError."""
    result = {}
    for parameter, shape in network.parameters(layer):
        name = parameter.name + network.suffix(layer, direction)
        array = parameters[name]
        if not isinstance(array, np.ndarray):
            raise TypeError(f"parameter {name} should be a NumPy array, got {type(array).__name__}")
        check_unmasked(array, f"parameter {name}")
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"parameter {name} should be {dtype} {shape}, got {array.dtype} {array.shape}")
        result[parameter.name] = np.asarray(array)  # `*` of matrices is another product
    return result


def sources(
    network: Network, parameters: Mapping[str, Array], dtype: np.dtype[Any], randomness: Randomness | None = None
) -> list[Array]:
    """What the steps of all units read: the parameters as they are, or through the parameter phase."""
    phase = network.plan.phase
    found: list[Array] = []
    if parameters.keys() != set(network.parameter_names):
        wrong, known = sorted(parameters.keys() ^ set(network.parameter_names)), ", ".join(network.parameter_names)
        raise ValueError(f"parameters should be {known}; unknown or missing: {', '.join(wrong)}")
    for layer, direction in network.units:
        own = of_unit(network, parameters, layer, direction, dtype)
        values: dict[int, Any] = {}
        if phase.computed:
            values = reference.parameter_values(network, dtype.type, own)
            chances = None if randomness is None else randomness.at(layer, direction, 0)
            interpreter = Interpreter(np, dtype.type, network.layer_sizes(layer), chances)
            with np.errstate(all="ignore"):  # as the steps are
                interpreter.run(phase.nodes, values, [w.node for w in phase.computed])
        computed = {w.name: values[w.node] for w in phase.computed}
        found += [np.asarray(own.get(name, computed.get(name)), dtype, "C") for name in network.sources]
    return found


def check_gradients(
    parameters: Mapping[str, Array],
    gradients: Mapping[str, Array] | None,
    dtype: np.dtype[Any],
    add: bool,
    inputs: Sequence[Array],
    now: Mapping[str, Array],
) -> None:
    """That there is a fitting array for each parameter, with memory of its own, or nothing that could be added to. `inputs` are
    read by further backward calls, `now` are the parameters that the layer may have got meanwhile. Raises: TypeError, ValueError.
    """
    if gradients is None:
        if add:
            raise ValueError("add=True is for gradients=, the arrays to add to")
        return
    for name, parameter in parameters.items():
        array = gradients.get(name)
        if not isinstance(array, np.ndarray):
            kind = "nothing" if array is None else f"a {type(array).__name__}"
            raise TypeError(f"gradients should hold a NumPy array for each parameter, got {kind} for {name}")
        check_unmasked(array, f"gradients: {name}")
        if not array.flags.writeable:
            raise ValueError(f"gradients: {name} should be writable")
        if array.shape != parameter.shape or array.dtype != dtype:
            sides = f"should be {dtype} {parameter.shape}, got {array.dtype} {array.shape}"
            raise ValueError(f"gradients: {name} {sides}")
    for name in parameters:
        if overlaps_itself(gradients[name]):
            raise ValueError(f"gradients: {name} has several numbers in one place")
    read = {f"parameter {name}": array for name, array in parameters.items()}
    read |= {f"the layer's {name}": array for name, array in now.items() if array is not parameters.get(name)}
    read |= {f"the input {k}" if k else "the input": array for k, array in enumerate(inputs)}
    for name, other in neighbours({name: gradients[name] for name in parameters} | read):
        one, two = (name, other) if name in parameters else (other, name)
        if one in parameters and share(gradients[one], gradients[two] if two in parameters else read[two]):
            raise ValueError(f"gradients: {one} and {two} should be two arrays, they share memory")


def new_gradients(network: Network, of_sources: Sequence[Array]) -> list[Array]:
    """Of the sources of all units; zeros where several terms are added."""
    names, summed = network.sources * len(network.units), network.plan.summed
    return [np.zeros_like(a) if n in summed else empty(a.shape, a.dtype) for n, a in zip(names, of_sources, strict=True)]


def gradients_by_name(
    network: Network,
    parameters: Mapping[str, Array],
    d_sources: Sequence[Array],
    dtype: np.dtype[Any],
    randomness: Randomness | None = None,
) -> dict[str, Array]:
    """The parameters' gradients from those of the sources, through the parameter phase where there is one."""
    per_unit = len(network.sources)
    named: dict[str, Array] = {}
    for u, (layer, direction) in enumerate(network.units):
        by_source = dict(zip(network.sources, d_sources[u * per_unit : (u + 1) * per_unit], strict=True))
        suffix, of_this = network.suffix(layer, direction), of_unit(network, parameters, layer, direction, dtype)
        own = {name: by_source.get(name) for name in of_this}
        if network.plan.phase.computed:
            with np.errstate(all="ignore"):
                own = reference.through_parameter_phase(network, (layer, direction), of_this, by_source, randomness)
        named |= {name + suffix: d if d is not None else np.zeros_like(of_this[name]) for name, d in own.items()}
    return named


def put(made: Mapping[str, Array], gradients: dict[str, Array] | None, add: bool) -> dict[str, Array]:
    """Gradients where the caller wants them: in a new dict, or in arrays that are there, added or not."""
    if gradients is None:
        return dict(made)
    for name, d in made.items():
        if add:
            gradients[name] += d
        else:
            gradients[name][...] = d
    return gradients
