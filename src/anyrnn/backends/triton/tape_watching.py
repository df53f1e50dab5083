"""What a call does on a device, written down while it is made: operators of torch's and launches of kernels."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

WATCHING = threading.local()


@dataclass(frozen=True)
class Operator:
    """One of torch's that was called."""

    function: Any
    arguments: Sequence[Any]
    options: Mapping[str, Any]
    found: Any

    @property
    def name(self) -> str:
        name: str = self.function._schema.name
        return name.rsplit("::", maxsplit=1)[-1]


@dataclass(frozen=True)
class Launch:
    """Of a kernel. `compiled`: what Triton gave, None in its interpreter; `rest`: what was given by name."""

    function: Any
    compiled: Any
    grid: Sequence[int]
    arguments: Sequence[Any]
    rest: Mapping[str, Any]


class Watched(TorchDispatchMode):
    """Writes down what is done."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Operator | Launch] = []
        """which keeps all tensors, so that no other has the identity or the memory of one that is known"""

    @contextmanager
    def now(self) -> Iterator[None]:
        WATCHING.one = self
        try:
            with self:
                yield
        finally:
            WATCHING.one = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        self.done.append(Operator(func, _copied(args), kwargs, _copied(found)))
        return found


def launched(launch: Launch) -> None:
    """Tell who watches."""
    watched: Watched | None = getattr(WATCHING, "one", None)
    if watched is not None:
        watched.done.append(launch)


@contextmanager
def unwatched() -> Iterator[None]:
    """What Triton itself asks of torch is no part of a call."""
    if getattr(WATCHING, "one", None) is None:
        yield
        return
    with _disable_current_modes():
        yield


def _copied(thing: Any) -> Any:
    """Tuples and lists that nobody changes."""
    return type(thing)([*map(_copied, thing)]) if type(thing) in (tuple, list) else thing


def tensors_of(thing: Any) -> list[Tensor]:
    """All in tuples, lists and dictionaries."""
    if isinstance(thing, Tensor):
        return [thing]
    inside = thing.values() if isinstance(thing, Mapping) else thing if isinstance(thing, (tuple, list)) else ()
    return [tensor for one in inside for tensor in tensors_of(one)]


def read_by(one: Operator | Launch) -> list[Tensor]:
    return tensors_of((one.arguments, one.options if isinstance(one, Operator) else one.rest))
