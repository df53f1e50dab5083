"""Calls that are made again. What a call asks of torch's library and of Triton follows from shapes alone, but finding it out
takes Python milliseconds, more than a device takes to do most of it. So the second call of a kind is watched, and a function is
written that asks for the same with other tensors, line by line. All memory that is asked for by itself, and is no result, is one
piece then.
"""

from __future__ import annotations

import linecache
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from anyrnn.backends.triton.tape_watching import Watched
from anyrnn.backends.triton.tape_writing import Tape, Writer

MOST = 256
"""Kinds of calls that are known at a time."""
TAPES: OrderedDict[Hashable, Tape | None] = OrderedDict()
"""None for calls that cannot be made again."""
SEEN: OrderedDict[Hashable, None] = OrderedDict()
"""Calls that were made once."""


def repeated(key: Hashable, function: Callable[[Sequence[Tensor]], Any], given: Sequence[Tensor]) -> Any:
    """`function(given)`, tensors in tuples and lists. But for numbers it must follow from `key` and the `form` of all given."""
    whole = key, tuple(map(form, given))
    try:
        tape = TAPES[whole]
        TAPES.move_to_end(whole)
    except KeyError:  # or another thread has forgotten it meanwhile
        return _new(whole, function, given)
    return function(given) if tape is None else tape.call(*given)


def _new(whole: Hashable, function: Callable[[Sequence[Tensor]], Any], given: Sequence[Tensor]) -> Any:
    """A call that is not known: the second of its kind is watched."""
    if whole not in SEEN or len({id(t) for t in given}) < len(given) or not all(t.numel() for t in given):
        SEEN[whole] = None
        if len(SEEN) > MOST:
            SEEN.popitem(last=False)
        return function(given)
    watched = Watched()
    with watched.now():
        found = function(given)
    TAPES[whole] = _written(given, watched, found)
    SEEN.pop(whole, None)
    _keep_latest(MOST)
    return found


def _written(given: Sequence[Tensor], watched: Watched, found: Any) -> Tape | None:
    """The tape of a call; None with a warning where Triton is another one than tapes know, and calls stay as slow as they are."""
    try:
        return Writer(given, watched.done, found).tape()
    except (ImportError, AttributeError, TypeError) as error:
        what = f"with this version of Triton, calls on devices take more of Python ({type(error).__name__}: {error})"
        warnings.warn(f"anyrnn: {what}", RuntimeWarning, stacklevel=2)
        return None


def known(key: Hashable, given: Sequence[Tensor]) -> Tape | None:
    """What `repeated` would make the call by."""
    return TAPES.get((key, tuple(map(form, given))))


def forget() -> None:
    """Know no calls any more: for whoever changes what they follow from in other ways than tensors and settings do."""
    _keep_latest(0)
    SEEN.clear()


def _keep_latest(count: int) -> None:
    while len(TAPES) > count:
        forgotten = TAPES.popitem(last=False)[1]
        if forgotten is not None:
            linecache.cache.pop(forgotten.file, None)


@dataclass(frozen=True)
class Work:
    """What a call comes to: `function(given)`."""

    function: Callable[[Sequence[Tensor]], Any]
    given: Sequence[Tensor]
    key: Hashable | None
    """as in `repeated`; None where the call follows from more than that"""
    around: Callable[[], AbstractContextManager[Any]]
    """within which it is made"""

    def made(self) -> Any:
        with self.around():
            return self.function(self.given) if self.key is None else repeated(self.key, self.function, self.given)

    def made_twice(self) -> Any:
        """After which calls like it are made as they will be later, if they can be."""
        self.made()
        return self.made()

    def again(self) -> Callable[[], object]:
        """What makes it without looking at it."""
        tape = None if self.key is None else known(self.key, self.given)

        def make() -> object:
            if tape is None:
                return self.made()
            with self.around():
                return tape.call(*self.given)

        return make


def form(tensor: Tensor) -> Hashable:
    """What kernels are compiled for, and addresses are reckoned with: all of a tensor but its numbers and where they stand."""
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.data_ptr() & 15
