"""Calls of a layer's network in Keras's backend: by our layers for JAX or for torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras

import anyrnn.numpy
from anyrnn._locks import ForkedLock
from anyrnn.explanation import Seen
from anyrnn.trace import Cell

BACKENDS = ("jax", "torch")


def why_not() -> str | None:
    """Why no layers of ours run in Keras's backend, or None."""
    name, known = keras.backend.backend(), " and ".join(BACKENDS)
    if name not in BACKENDS:
        return f"Keras's backend {name} has no kernels ({known} have)"
    if name == "torch":
        import torch

        if torch._C._is_tracing():
            return "torch.jit.trace does not record what kernels do"
    return None


class Runner:
    """One layer of a cell over sequences that have the batch first. It has no parameters: a call is given them.

    Args:
        cell, sizes, options: as of `anyrnn.Recurrent`; sizes are those of the input and the hidden state.
    """

    def __init__(self, cell: Cell, *sizes: int, **options: Any) -> None:
        self._cell, self._sizes, self._options = cell, sizes, {**options, "batch_first": True}
        self.layer: Any
        if keras.backend.backend() == "jax":
            import anyrnn.jax

            self.layer = anyrnn.jax.Recurrent(cell, *sizes, **self._options)
        else:
            import anyrnn.torch

            self.layer = anyrnn.torch.Recurrent(cell, *sizes, **self._options, device="meta")
        self.network = self.layer.network
        self.made_of: Any = None
        self._lock = ForkedLock()

    def __call__(
        self, parameters: Mapping[str, Any], x: Any, states: Sequence[Any], mask: Any, *, last: bool, padding: Any
    ) -> tuple[Any, list[Any]]:
        """The output [N, T, features], or the `last` one [N, features], and the last states [N, size]."""
        first = tuple(s[None] for s in states)
        given = (x, first if len(first) > 1 else first[0])
        call: dict[str, Any] = {"return_outputs": "last" if last else "all"}
        if mask is not None:
            call |= {"mask": mask, "padding": 0.0 if last else padding}
        if keras.backend.backend() == "jax":
            y, after = self.layer.apply(self._named(parameters), *given, **call)
        else:
            from torch.func import functional_call

            with self._lock.now:  # it puts the parameters into the module, which threads have in common
                y, after = functional_call(self.layer, self._named(parameters), given, call)
        return y, [s[0] for s in (after if isinstance(after, tuple) else (after,))]

    def _named(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """As a layer has them."""
        return {f"{name}_l0": array for name, array in parameters.items()}

    def seen(self, parameters: Mapping[str, Any], x: Any, who: str) -> Seen:
        """For `explain`."""
        if keras.backend.backend() == "jax":
            seen: Seen = self.layer._seen(self._named(parameters), x)
            return replace(seen, layer=who)
        arrays = {name: keras.ops.convert_to_numpy(array) for name, array in self._named(parameters).items()}
        dtype = "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"
        layer = anyrnn.numpy.Recurrent(self._cell, *self._sizes, **self._options, dtype=dtype)
        layer.parameters = {name: array.astype(dtype) for name, array in arrays.items()}
        return replace(layer._seen(keras.ops.convert_to_numpy(x).astype(layer.dtype)), layer=who)
