"""States that go from call to call of torch modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from anyrnn._files import written_aside
from anyrnn.errors import MissingExtraError
from anyrnn.sequence.state import StateBase

if TYPE_CHECKING:
    import os

    from typing_extensions import Self


@dataclass(frozen=True, eq=False, repr=False)
class RecurrentState(StateBase):
    """The states of a batch of a module, of each a tensor [layers * directions, N, size] by the cell's name for it: `state.h`.

    A module's `initial_state` makes one, and a call that is given one gives one. `detach`, `clone` and `to` are the tensors';
    `index`, `gather` and `concatenate` choose and join samples, `save` and `load` keep them in a safetensors file; `h, c = state`
    unpacks it. Gradients go through all but `detach` and files.

    Example: backpropagation through time, truncated to chunks of a sequence.
        >>> import torch, anyrnn.torch
        >>> layer = anyrnn.torch.LSTM(3, 5)
        >>> state = layer.initial_state(2)
        >>> for chunk in torch.zeros(40, 2, 3).split(10):
        ...     output, state = layer(chunk, state)
        ...     output.square().mean().backward()
        ...     state = state.detach()
        >>> state
        RecurrentState(h=[1, 2, 5], c=[1, 2, 5])
    """

    def detach(self) -> Self:
        """The same numbers; no gradient goes back beyond them."""
        return self._mapped(torch.Tensor.detach)

    def clone(self) -> Self:
        """Copies of the tensors, as `torch.Tensor.clone` makes them."""
        return self._mapped(torch.Tensor.clone)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """On another device or of another dtype, as `torch.Tensor.to`."""
        return self._mapped(lambda t: t.to(*args, **kwargs))

    @staticmethod
    def _array(numbers: Any) -> Any:
        found = torch.as_tensor(numbers, device=numbers.device if isinstance(numbers, torch.Tensor) else "cpu")
        short = found.dtype in (torch.uint8, torch.int8, torch.int16)  # which Python's numbers are cut to fit
        return found.long() if short else found

    @staticmethod
    def _are_integers(array: Any) -> bool:
        return array.dtype != torch.bool and not array.is_floating_point() and not array.is_complex()

    @staticmethod
    def _joined(arrays: Sequence[Any]) -> Any:
        return torch.cat(list(arrays), 1)

    @staticmethod
    def _write(path: str | os.PathLike[str], arrays: dict[str, Any], metadata: dict[str, str]) -> None:
        library = _safetensors()
        apart = {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in arrays.items()}  # may share memory
        with written_aside(path) as aside:
            aside.write_bytes(library.torch.save(apart, metadata))

    @staticmethod
    def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
        library = _safetensors()
        try:
            with library.safe_open(path, "pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118  (no mapping)
        except library.SafetensorError as error:
            raise ValueError(str(error)) from None


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingExtraError('states are saved with safetensors: pip install "anyrnn[torch]"') from error
    return safetensors


pytree.register_pytree_node(
    RecurrentState,
    lambda state: (list(state.arrays), state.names),
    lambda arrays, names: RecurrentState(names, tuple(arrays)),
    flatten_with_keys_fn=lambda state: (
        [(pytree.GetAttrKey(name), array) for name, array in zip(state.names, state.arrays, strict=True)],
        state.names,
    ),
    serialized_type_name="anyrnn.torch.RecurrentState",
    to_dumpable_context=list,
    from_dumpable_context=tuple,
)
torch.serialization.add_safe_globals([RecurrentState])
