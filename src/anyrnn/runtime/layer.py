"""What layers of a network at run time have in common. Each checks what it is given when the network is made, and works on NumPy
arrays: sequences [T, N, features], or vectors [N, features] of whole samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anyrnn.numpy.arguments import may_change
from anyrnn.numpy.state import RecurrentState
from anyrnn.sequence.packing import check_unmasked

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Spec:
    """What a layer gets or gives, for each step or once a sample: `size` features, or None for an integer, a class's number."""

    size: int | None
    steps: bool = True

    def __str__(self) -> str:
        return self.shown(batch_first=False)

    def shown(self, batch_first: bool) -> str:
        """As the caller has it."""
        features = ["N"] if not self.steps else ["N", "T"] if batch_first else ["T", "N"]
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

    def masked(self, x: Array) -> Array:
        """A sequence [T, N, features], or [T, N] of classes, that is zero where samples have no steps."""
        there = self.there(len(x))
        return x if there is None else np.where(there if x.ndim == 3 else there[..., 0], x, np.zeros_like(x))


def kept(array: Any) -> Array:
    """A layer's own array, of an array or a tensor, that nobody writes to: kernels and tables are made of it."""
    check_unmasked(array, "a layer's array")
    if hasattr(array, "named_modules"):
        raise TypeError(f"a layer's array should be an array or a tensor, got the module {array}: give its weight and its bias")
    found: Array = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    if may_change(found):
        found = found.copy()
        found.flags.writeable = False
    return found


def let_nobody_write(array: Array) -> None:
    """To an array, nor to those that it is a view of."""
    below: Any = array
    while isinstance(below, np.ndarray):
        below.flags.writeable = False
        below = below.base


class Layer(ABC):
    """One layer. Its parameters are its own: arrays and tensors that it is given are copied.

    Args:
        name: unlike that of any other layer or input of the network.
        inputs: the names of the layers, or inputs of the network, whose results it gets; or the only one.
    """

    kind: ClassVar[str]
    """What files call it."""

    def __init__(self, name: str, inputs: Sequence[str] | str) -> None:
        self.name, self.inputs = name, (inputs,) if isinstance(inputs, str) else tuple(inputs)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Its parameters by name."""
        return {}

    def settings(self) -> dict[str, Any]:
        """What files keep of it beside its name, inputs and parameters."""
        return {}

    @abstractmethod
    def gives(self, *given: Spec) -> Spec:
        """What it makes of such inputs. Raises ValueError for those that it cannot have."""

    @abstractmethod
    def run(self, call: Call, *given: Array) -> Array:
        """Its result."""

    @property
    def why_whole(self) -> str:
        """Why it needs whole sequences; empty for a layer that can be called step after step."""
        return ""

    def streamed(self, batch_size: int) -> Callable[..., Array]:
        """The same for one step of so many samples, [N, features]."""
        return lambda *given: self.run(Call(), *given)

    @property
    def as_code(self) -> str:
        """What it does, for people."""
        return ", ".join([self.does, *(f"{name} {value}" for name, value in self.settings().items())])

    @property
    def does(self) -> str:
        """The same in a word or two."""
        return self.kind

    def _one(self, given: tuple[Spec, ...]) -> tuple[int, bool]:
        """Of a single input: its features, and whether it has steps."""
        if len(given) != 1:
            raise ValueError(f"{self.name}: expected one input, got {len(given)}")
        if given[0].size is None:
            raise ValueError(f"{self.name}: expected features, got integers {given[0]}; an embedding makes features of them")
        return given[0].size, given[0].steps

    def _fits(self, size: int, given: tuple[Spec, ...]) -> Spec:
        """The single input's, if it has so many features."""
        found, steps = self._one(given)
        if found != size:
            raise ValueError(f"{self.name}: expected {size} features, got {found}")
        return Spec(size, steps)

    def _sequence(self, given: tuple[Spec, ...]) -> int:
        size, steps = self._one(given)
        if not steps:
            raise ValueError(f"{self.name}: expected a sequence, got {given[0]}")
        return size
