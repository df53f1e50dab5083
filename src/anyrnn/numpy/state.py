"""States that go from call to call of layers on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anyrnn.sequence.state import StateBase

if TYPE_CHECKING:
    import os


@dataclass(frozen=True, eq=False, repr=False)
class RecurrentState(StateBase):
    """The states of a batch of a layer, of each an array [layers * directions, N, size] by the cell's name for it: `state.h`.

    A layer's `initial_state` makes one, and a call that is given one gives one. `index`, `gather` and `concatenate` choose and
    join samples, `save` and `load` keep them in a safetensors file; `h, c = state` unpacks it.

    Example:
        >>> import numpy as np, anyrnn
        >>> layer = anyrnn.Recurrent("lstm", 3, 5, seed=0)
        >>> state = layer.initial_state(2)
        >>> output, state = layer(np.zeros((7, 2, 3), np.float32), state)
        >>> state.index([1, 1, 0])
        RecurrentState(h=[1, 3, 5], c=[1, 3, 5])
    """

    @staticmethod
    def _array(numbers: Any) -> Any:
        return np.asarray(numbers)

    @staticmethod
    def _are_integers(array: Any) -> bool:
        return array.dtype.kind in "iu"

    @staticmethod
    def _joined(arrays: Sequence[Any]) -> Any:
        return np.concatenate(arrays, 1)

    @staticmethod
    def _write(path: str | os.PathLike[str], arrays: dict[str, Any], metadata: dict[str, str]) -> None:
        from anyrnn.files import safetensors

        safetensors.write(path, arrays, metadata)

    @staticmethod
    def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
        from anyrnn.files import safetensors

        return safetensors.read(path)
