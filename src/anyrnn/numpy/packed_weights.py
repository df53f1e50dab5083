"""What is made of parameters, kept from one inference call of their layer to the next."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from anyrnn import backends
from anyrnn.numpy.arguments import Array
from anyrnn.sequence.network import Network


class Packs:
    """Of one layer, the weights packed for the kernels, which look whether they have changed: that is far less work than packing
    them.
    """

    def __init__(self) -> None:
        self._packed: dict[tuple[Network, str], Any] = {}

    def __reduce__(self) -> tuple[type[Packs], tuple[()]]:
        """Copies and pickles begin with nothing."""
        return type(self), ()

    def memory(self, network: Network, dtype: str) -> Callable[[int], Any]:
        """What gives the memory of at least so many bytes for a network's packed weights, with what was packed there before."""
        place = network, dtype

        def of_bytes(bytes: int) -> Any:
            found = self._packed.get(place)
            if found is None or found.bytes < bytes:
                found = self._packed[place] = backends.native().Packed(bytes)
            return found

        return of_bytes


class Kept(Packs):
    """Of a layer whose parameters nobody changes: also the arrays that steps read. Kernels look at no packed weights again."""

    def __init__(self, parameters: Iterable[Array] = ()) -> None:
        """`parameters`: what all is made of, where others may take their place."""
        super().__init__()
        self._parameters = tuple(parameters)
        self._sources: dict[tuple[Network, Any], list[Array]] = {}

    def holds(self, parameters: Sequence[Array]) -> bool:
        """Whether it is made of these, which nobody can write to."""
        same = len(parameters) == len(self._parameters) and all(map(operator.is_, parameters, self._parameters))
        return same and not any(array.flags.writeable for array in parameters)

    def sources(self, network: Network, dtype: np.dtype[Any], make: Callable[[], list[Array]]) -> list[Array]:
        """The arrays that the steps of a network read, which draws nothing."""
        found = self._sources.get((network, dtype))
        if found is None:
            found = self._sources[network, dtype] = make()
        return found
