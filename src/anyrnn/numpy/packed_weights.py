"""What is made of parameters, kept from one inference call of their layer to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anyrnn import backends
from anyrnn.numpy.arguments import Array
from anyrnn.sequence.network import Network


class Packs:
    """Of one layer: the memory in which weights stay packed. Kernels look whether they have changed, which is far less work than
    packing them.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[Network, str], Any] = {}

    def of(self, network: Network, dtype: str) -> Any:
        """That of a network's calls in what native calls say for a dtype."""
        return self._of.get((network, dtype)) or self._of.setdefault((network, dtype), backends.native().Packs())

    @property
    def bytes(self) -> int:
        return sum(packs.bytes for packs in list(self._of.values()))


class Kept:
    """Of one layer whose parameters nobody changes: the arrays that steps read, and these packed for the kernels."""

    def __init__(self, parameters: Mapping[str, Array] | None = None) -> None:
        """`parameters`: what they are made of, where others may take their place."""
        self._parameters = {name: (array, array.shape) for name, array in (parameters or {}).items()}
        self._sources: dict[tuple[Network, Any], list[Array]] = {}
        self._packed: dict[Network, Any] = {}

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        """Copies and pickles begin with nothing."""
        return Kept, ()

    def holds(self, parameters: Mapping[str, Array]) -> bool:
        """Whether it is made of these, which nobody can write to."""
        if len(parameters) != len(self._parameters):
            return False
        for name, (array, shape) in self._parameters.items():
            if parameters.get(name) is not array or array.shape != shape or array.flags.writeable:
                return False
        return True

    def sources(self, network: Network, dtype: np.dtype[Any], make: Callable[[], list[Array]]) -> list[Array]:
        """The arrays that the steps of a network read, which draws nothing."""
        found = self._sources.get((network, dtype))
        return self._sources.setdefault((network, dtype), make()) if found is None else found

    def memory(self, network: Network) -> Callable[[int], Any]:
        """What gives the memory of at least so many bytes for a network's packed weights, with what was packed there before."""

        def of_bytes(bytes: int) -> Any:
            found = self._packed.get(network)
            if found is None or found.bytes < bytes:
                found = self._packed[network] = backends.native().Packed(bytes)
            return found

        return of_bytes
