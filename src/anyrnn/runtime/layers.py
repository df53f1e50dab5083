"""The layers of which a network at run time is made. Each checks what it is given when the network is made, and works on NumPy
arrays: sequences [T, N, features], or vectors [N, features] of whole samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anyrnn.ir.graph import Graph
from anyrnn.ir.symbol import Symbol
from anyrnn.numpy.arrays import Arrays
from anyrnn.numpy.parameters import taken
from anyrnn.numpy.recurrent import Recurrent as Runner
from anyrnn.numpy.state import RecurrentState
from anyrnn.numpy.stream import Stream
from anyrnn.runtime.functions import FUNCTIONS
from anyrnn.sequence.network import Network
from anyrnn.trace import Scalar, State, cell
from anyrnn.trace.language import affine, vector

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Kind:
    """What a layer gets or gives, for each step or once a sample: `size` features, or None for an integer, a class's number."""

    size: int | None
    steps: bool = True

    def __str__(self) -> str:
        features = ["T", "N"] if self.steps else ["N"]
        return f"[{', '.join(features if self.size is None else [*features, str(self.size)])}]"


@dataclass
class Call:
    """What layers of one call share: how long its samples are, the states before it, the layers whose results nobody wants, and
    the states after it.
    """

    lengths: Array | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    after: dict[str, RecurrentState] = field(default_factory=dict)

    def there(self, steps: int) -> Array | None:
        """Which steps the samples have, bool [T, N, 1]; None for all."""
        return None if self.lengths is None else (np.arange(steps)[:, None] < self.lengths)[..., None]


class Layer(ABC):
    """One layer.

    Args:
        name: unlike that of any other layer or input of the network.
        inputs: the names of the layers, or inputs of the network, whose results it gets.
    """

    kind: ClassVar[str]
    """What files call it."""

    def __init__(self, name: str, inputs: Sequence[str]) -> None:
        self.name, self.inputs = name, tuple(inputs)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Its parameters by name."""
        return {}

    def settings(self) -> dict[str, Any]:
        """What files keep of it beside its name, inputs and parameters."""
        return {}

    @abstractmethod
    def gives(self, *given: Kind) -> Kind:
        """What it makes of such inputs. Raises ValueError for those that it cannot have."""

    @abstractmethod
    def run(self, call: Call, *given: Array) -> Array:
        """Its result."""

    @property
    def why_whole(self) -> str:
        """Why it needs whole sequences; empty for a layer that can be called step after step."""
        return ""

    def streamed(self, rows: int) -> Callable[..., Array]:
        """The same for one step of so many samples, [N, features]."""
        return lambda *given: self.run(Call(), *given)

    @property
    def as_code(self) -> str:
        """What it does, for people."""
        return ", ".join([self.kind, *(f"{name} {value}" for name, value in self.settings().items())])

    def _one(self, given: tuple[Kind, ...]) -> tuple[int, bool]:
        """Of a single input: its features, and whether it has steps."""
        if len(given) != 1:
            raise ValueError(f"{self.name}: expected one input, got {len(given)}")
        if given[0].size is None:
            raise ValueError(f"{self.name}: expected features, got integers {given[0]}; an embedding makes features of them")
        return given[0].size, given[0].steps

    def _fits(self, size: int, given: tuple[Kind, ...]) -> Kind:
        """The same kind, if the single input has so many features."""
        found, steps = self._one(given)
        if found != size:
            raise ValueError(f"{self.name}: expected {size} features, got {found}")
        return Kind(size, steps)

    def _sequence(self, given: tuple[Kind, ...]) -> int:
        size, steps = self._one(given)
        if not steps:
            raise ValueError(f"{self.name}: expected a sequence, got {given[0]}")
        return size


class Recurrent(Layer):
    """Layers and directions of a cell.

    Args:
        network: what runs, see `anyrnn.sequence.network`; that of a layer is its `network`.
        parameters: by the names that the layer has, `weight_ih_l0` and so on.
        last: give the output of the last step that each direction takes of a sample, [N, features], and not all.
        backend: as of `anyrnn.Recurrent`.
    """

    kind = "recurrent"

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        network: Network,
        parameters: Mapping[str, Array],
        *,
        last: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(name, inputs)
        if network.merge == "separate":
            raise ValueError(f"{name}: merge='separate' gives a pair; two layers give two results")
        self.network, self.last = network, last
        self.runner = Runner.of_network(network, parameters, backend=backend)

    @classmethod
    def of(cls, name: str, inputs: Sequence[str], layer: Any, **options: Any) -> Recurrent:
        """A layer that has been made or trained: `anyrnn.Recurrent`, or a module of `anyrnn.torch`; with its parameters as they
        are now. Raises: TypeError for what is no such layer, and for dtypes other than float32 and float64.
        """
        network, parameters = taken(layer)
        return cls(name, inputs, network, {name: array.copy() for name, array in parameters.items()}, **options)

    @property
    def arrays(self) -> Mapping[str, Array]:
        return self.runner.parameters

    def gives(self, *given: Kind) -> Kind:
        wanted = [self.network.input_size, *(size for _, size in self.network.further_inputs)]
        found = [self._sequence((kind,)) for kind in given]
        if found != wanted:
            raise ValueError(f"{self.name}: expected inputs of {wanted} features, got {found}")
        return Kind(self.network.width, not self.last)

    def run(self, call: Call, *given: Array) -> Array:
        result: Array = self._called(call, given, given[0].shape[1], lengths=call.lengths)
        return result

    def _called(self, call: Call, given: Sequence[Array], rows: int, **which: Any) -> Any:
        state = call.before.get(self.name)
        state = self.runner.initial_state(rows) if state is None else state
        outputs: Any = "none" if self.name in call.unread else "last" if self.last else "all"
        further = _further(self.network, given)
        output, call.after[self.name] = self.runner(given[0], state, return_outputs=outputs, **which, **further)
        return output

    @property
    def why_whole(self) -> str:
        if self.last:
            return "it gives the last step alone"
        return "" if self.network.ways == (0,) else "it reads backwards"

    def streamed(self, rows: int) -> Callable[..., Array]:
        return _Steps(self.runner.stream(rows), [name for name, _ in self.network.further_inputs])

    def check_state(self, state: Any, rows: int) -> None:
        """Raises: TypeError, ValueError for states that are not those of so many samples."""
        if not isinstance(state, RecurrentState):
            raise TypeError(f"{self.name}: its state should be a RecurrentState, got a {type(state).__name__}")
        Arrays(self.network, self.runner.dtype, False).states(state, rows, True, f"{self.name}: its state")


class Formula(Layer):
    """Equations of the features of one step, as those of a cell that remembers nothing; they run as cells do.

    Args:
        network: of such a cell, whose inputs are those of the layer in order. `elementwise` makes one of a function.
        parameters: by the names that they have in a layer, `.._l0`.
        backend: as of `anyrnn.Recurrent`.
    """

    kind = "formula"

    def __init__(
        self, name: str, inputs: Sequence[str], network: Network, parameters: Mapping[str, Array], *, backend: str = "auto"
    ) -> None:
        super().__init__(name, inputs)
        if network.layers > 1 or network.ways != (0,) or any(state.shape for state in network.graph.states):
            raise ValueError(f"{name}: a formula is of one layer that goes forwards and has no states that are vectors")
        self.network = network
        self.runner = Runner.of_network(network, parameters, backend=backend)

    @property
    def arrays(self) -> Mapping[str, Array]:
        return self.runner.parameters

    def gives(self, *given: Kind) -> Kind:
        wanted = [self.network.input_size, *(size for _, size in self.network.further_inputs)]
        found = [self._one((kind,)) for kind in given]
        if [size for size, _ in found] != wanted or len({steps for _, steps in found}) > 1:
            raise ValueError(f"{self.name}: expected inputs of {wanted} features, got {', '.join(map(str, given))}")
        return Kind(self.network.width, given[0].steps)

    def run(self, call: Call, *given: Array) -> Array:
        steps = [x if x.ndim == 3 else x[None] for x in given]
        output = np.asarray(self.runner(steps[0], **_further(self.network, steps))[0])
        return output if given[0].ndim == 3 else output[0]

    def streamed(self, rows: int) -> Callable[..., Array]:
        return _Steps(self.runner.stream(rows), [name for name, _ in self.network.further_inputs])


def elementwise(
    name: str, given: str, size: int, function: Callable[..., Symbol], *, backend: str = "auto", **parameters: Array
) -> Formula:
    """A function of each feature of a layer, in the language of cells.

    Args:
        given: the layer's name.
        size: its features.
        function: of a vector, and of the parameters in order.
        parameters: arrays [features].
    """

    @cell
    def formula(x, unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
        return function(x, *[vector(name, "input") for name in parameters]), State(unused=unused)

    arrays = {f"{name}_l0": array for name, array in parameters.items()}
    sizes = (("hidden", size), ("input", size))
    return Formula(name, [given], Network(formula.trace(), sizes), arrays, backend=backend)


def _further(network: Network, given: Sequence[Array]) -> dict[str, Any]:
    """The further inputs of a cell by name."""
    return dict(zip([name for name, _ in network.further_inputs], given[1:], strict=True))


class _Steps:
    """A stream that is given its further inputs one after the other."""

    def __init__(self, stream: Stream, further: Sequence[str]) -> None:
        self.stream, self.further = stream, further

    def __call__(self, x: Array, *further: Array) -> Array:
        return self.stream(x, **dict(zip(self.further, further, strict=True))) if further else self.stream(x)


@lru_cache(maxsize=2)
def _dense(bias: bool) -> Graph:
    """A product is a cell that remembers nothing, so that it has the kernels of cells, and their bits: the same for a step by
    itself as for a step of a sequence.
    """

    @cell
    def dense(x, unused: Scalar()):  # type: ignore[no-untyped-def,valid-type]
        return affine("y", x), State(unused=unused)

    graph: Graph = dense.trace(bias)
    return graph


class Dense(Layer):
    """A product: weight @ x + bias.

    Args:
        weight: [features out, features in].
        bias: [features out], or None.
    """

    kind = "dense"

    def __init__(
        self, name: str, inputs: Sequence[str], weight: Array, bias: Array | None = None, *, backend: str = "auto"
    ) -> None:
        super().__init__(name, inputs)
        if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
            sides = f"weight {weight.shape}" + ("" if bias is None else f" and bias {bias.shape}")
            raise ValueError(f"{name}: expected a weight [out, in] and a bias [out], got {sides}")
        self.weight, self.bias = weight, bias
        network = Network(_dense(bias is not None), (("hidden", weight.shape[0]), ("input", weight.shape[1])))
        parameters = {"weight_ih_l0": weight} if bias is None else {"weight_ih_l0": weight, "bias_ih_l0": bias}
        self.runner = Runner.of_network(network, parameters, backend=backend)

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {"weight": self.weight} if self.bias is None else {"weight": self.weight, "bias": self.bias}

    def gives(self, *given: Kind) -> Kind:
        rows, columns = self.weight.shape
        return Kind(rows, self._fits(columns, given).steps)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        if x.ndim == 2:
            return np.asarray(self.runner(x[None])[0][0])
        return np.asarray(self.runner(x, lengths=call.lengths)[0])

    def streamed(self, rows: int) -> Callable[..., Array]:
        return self.runner.stream(rows)


class Embedding(Layer):
    """The vectors of classes.

    Args: weight: [classes, features].
    """

    kind = "embedding"

    def __init__(self, name: str, inputs: Sequence[str], weight: Array) -> None:
        super().__init__(name, inputs)
        if weight.ndim != 2:
            raise ValueError(f"{name}: expected a weight [classes, features], got {weight.shape}")
        self.weight = weight

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {"weight": self.weight}

    def gives(self, *given: Kind) -> Kind:
        if len(given) != 1 or given[0].size is not None:
            raise ValueError(f"{self.name}: expected integers, got {', '.join(map(str, given))}")
        return Kind(self.weight.shape[1], given[0].steps)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        check_classes(self.name, x, len(self.weight))
        return np.asarray(self.weight[x])


def check_classes(who: str, x: Array, count: int) -> None:
    """Raises ValueError for integers that are no classes from 0 to below `count`."""
    few = x.size <= FEW
    if few and all(0 <= i < count for i in x.ravel().tolist()):
        return
    if few or (x.min() < 0 or x.max() >= count):
        raise ValueError(f"{who}: expected classes from 0 to {count - 1}, got {x.min()} to {x.max()}")


FEW = 16
"""Numbers that Python looks at sooner than NumPy."""


class LayerNorm(Layer):
    """(x - mean) / sqrt(variance + epsilon) over the features, times the weight, plus the bias.

    Source: Ba, Kiros & Hinton 2016, arXiv 1607.06450.

    Args: weight, bias: [features], or None.
    """

    kind = "layer_norm"

    def __init__(
        self, name: str, inputs: Sequence[str], weight: Array | None = None, bias: Array | None = None, *, epsilon: float = 1e-5
    ) -> None:
        super().__init__(name, inputs)
        self.weight, self.bias, self.epsilon = weight, bias, epsilon
        if any(array.ndim != 1 for array in self.arrays.values()):
            raise ValueError(f"{name}: expected a weight and a bias [features]")

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {name: a for name, a in (("weight", self.weight), ("bias", self.bias)) if a is not None}

    def settings(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def gives(self, *given: Kind) -> Kind:
        size, steps = self._one(given)
        for array in self.arrays.values():
            self._fits(len(array), given)
        return Kind(size, steps)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(self.epsilon))
        scaled = scaled if self.weight is None else scaled * self.weight
        return np.asarray(scaled if self.bias is None else scaled + self.bias)


class Activation(Layer):
    """A function of each feature, or of all features of a step: `softmax`, `log_softmax`.

    Args: function: its name, one of `anyrnn.runtime.functions.FUNCTIONS`.
    """

    kind = "activation"

    def __init__(self, name: str, inputs: Sequence[str], function: str) -> None:
        super().__init__(name, inputs)
        if function not in FUNCTIONS:
            raise ValueError(f"{name}: the function should be one of {', '.join(FUNCTIONS)}, got {function!r}")
        self.function = function

    def settings(self) -> dict[str, Any]:
        return {"function": self.function}

    def gives(self, *given: Kind) -> Kind:
        return Kind(*self._one(given))

    def run(self, call: Call, *given: Array) -> Array:
        return FUNCTIONS[self.function](given[0])


class _Joint(Layer):
    """Of several inputs."""

    def gives(self, *given: Kind) -> Kind:
        sizes = [self._one((kind,))[0] for kind in given]
        if not given or len({kind.steps for kind in given}) > 1:
            raise ValueError(f"{self.name}: expected sequences alone or vectors alone, got {', '.join(map(str, given))}")
        return Kind(self._size(sizes), given[0].steps)

    def _size(self, sizes: list[int]) -> int:
        if len(set(sizes)) > 1:
            raise ValueError(f"{self.name}: expected inputs of one size, got {sizes}")
        return sizes[0]


class Concatenate(_Joint):
    """The features of all inputs, one behind the other."""

    kind = "concatenate"

    def _size(self, sizes: list[int]) -> int:
        return sum(sizes)

    def run(self, call: Call, *given: Array) -> Array:
        return np.concatenate(given, -1)


class Add(_Joint):
    """The sum of all inputs."""

    kind = "add"

    def run(self, call: Call, *given: Array) -> Array:
        return np.asarray(sum(given[1:], given[0]))


class Multiply(_Joint):
    """The product of all inputs, feature by feature."""

    kind = "multiply"

    def run(self, call: Call, *given: Array) -> Array:
        total = given[0]
        for array in given[1:]:
            total = total * array
        return total


class _Whole(Layer):
    """Of all steps of a sample."""

    def gives(self, *given: Kind) -> Kind:
        return Kind(self._sequence(given), steps=False)

    @property
    def why_whole(self) -> str:
        return "it looks at all steps"


class Last(_Whole):
    """The last step of each sample; zeros for a sample without steps."""

    kind = "last"

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        if call.lengths is None:
            return np.asarray(x[-1])
        found: Array = x[np.maximum(call.lengths - 1, 0), np.arange(x.shape[1])]
        return np.where(call.lengths[:, None] > 0, found, np.zeros_like(found))


class Mean(_Whole):
    """The mean of all steps of each sample; zeros for a sample without steps."""

    kind = "mean"

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        there = call.there(len(x))
        if there is None:
            return np.asarray(x.mean(0))
        count = np.maximum(there.sum(0), 1).astype(x.dtype)
        return np.asarray(np.where(there, x, np.zeros_like(x)).sum(0) / count)


class Max(_Whole):
    """The maximum of each feature over all steps of each sample; zeros for a sample without steps."""

    kind = "max"

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        there = call.there(len(x))
        if there is None:
            return np.asarray(x.max(0))
        return np.where(there.any(0), np.where(there, x, -np.inf).max(0), 0).astype(x.dtype)


class AttentionAverage(_Whole):
    """The average of all steps, each weighted with softmax over the steps of x @ weight.

    Args:
        weight: [features].
        epsilon: added to the sum of the exponentials.
    """

    kind = "attention_average"

    def __init__(self, name: str, inputs: Sequence[str], weight: Array, *, epsilon: float = 0.0) -> None:
        super().__init__(name, inputs)
        if weight.ndim != 1:
            raise ValueError(f"{name}: expected a weight [features], got {weight.shape}")
        self.weight, self.epsilon = weight, epsilon

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {"weight": self.weight}

    def settings(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def gives(self, *given: Kind) -> Kind:
        self._fits(len(self.weight), given)
        return super().gives(*given)

    def run(self, call: Call, *given: Array) -> Array:
        (x,) = given
        there = call.there(len(x))
        scores = (x @ self.weight)[..., None]  # [T, N, 1]
        scores = scores if there is None else np.where(there, scores, -np.inf)
        e = np.exp(scores - np.maximum(scores.max(0), np.finfo(x.dtype).min))
        shares = e / np.maximum(e.sum(0) + x.dtype.type(self.epsilon), np.finfo(x.dtype).tiny)
        return np.asarray((x * shares).sum(0))


_KINDS: tuple[type[Layer], ...] = (
    Recurrent, Dense, Embedding, LayerNorm, Activation, Formula, Concatenate, Add, Multiply, Last, Mean, Max, AttentionAverage,
)  # fmt: skip
LAYERS = {layer.kind: layer for layer in _KINDS}
"""By what files call them."""
