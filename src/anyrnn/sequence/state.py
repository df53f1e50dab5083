"""States that go from call to call, as an object: what every front-end's has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from typing_extensions import Self

NAMES = "states"
"""Under which a file's metadata have the names in order."""


@dataclass(frozen=True, eq=False, repr=False)
class StateBase(ABC):
    """The states of a batch, of each an array [layers * directions, N, size], by the cell's names: `state.h`. A layer's
    `initial_state` makes one; a call that is given one gives one. It unpacks as a tuple does (`h, c = state`), which is the way
    to a state that has the name of a method.
    """

    names: tuple[str, ...]
    arrays: tuple[Any, ...]

    def __getattr__(self, name: str) -> Any:
        names = self.__dict__.get("names", ())  # none yet while a copy is made
        if name in names:
            return self.arrays[names.index(name)]
        raise AttributeError(f"{type(self).__name__} has no {name!r}; its states are: {', '.join(names)}")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.arrays)

    def __len__(self) -> int:
        """How many states the cell has."""
        return len(self.arrays)

    def __repr__(self) -> str:
        shapes = (f"{name}={list(array.shape)}" for name, array in zip(self.names, self.arrays, strict=True))
        return f"{type(self).__name__}({', '.join(shapes)})"

    @property
    def batch_size(self) -> int | None:
        """N, or None without a batch."""
        shape = self.arrays[0].shape
        return shape[1] if len(shape) == 3 else None

    def index(self, samples: Any) -> Self:
        """The states of some samples.

        Args: samples: an integer for one without a batch; a slice, integers (in any order, also repeated) or bools for a batch.

        Raises: IndexError as the arrays do, and for what is not of one dimension; ValueError where there is no batch.
        """
        self._batch("index")
        chosen = self._mapped(lambda a: a[:, samples])
        if chosen.arrays[0].ndim > 3:
            raise IndexError(f"index: samples should be an integer, a slice, or of one dimension, got {samples!r}")
        return chosen

    def gather(self, parents: Any) -> Self:
        """The states of the beams that go on, for beam search over sentences whose beams stand side by side in the batch.

        Args: parents: integers [sentences, beams], for each beam of the next step the beam of this sentence that it comes from,
            from 0.

        Raises: TypeError for other numbers; ValueError when the batch is not made of so many sentences, or there is no such beam.
        """
        samples, parents = self._batch("gather"), self._array(parents)
        if not self._are_integers(parents):
            raise TypeError(f"gather: parents should be integers, got {parents.dtype}")
        if parents.ndim != 2 or not len(parents) or samples % len(parents):
            sides = f"should be [sentences, beams], of a batch of {samples}"
            raise ValueError(f"gather: parents {sides}, got shape {tuple(parents.shape)}")
        beams = samples // len(parents)
        if bool((parents < 0).any()) or bool((parents >= beams).any()):
            raise ValueError(f"gather: parents should be from 0 to {beams - 1}, the beams of a sentence, got others")
        sentences = (parents[:, :1] * 0 + 1).cumsum(0) - 1  # where parents are, on whatever device
        return self.index((parents + beams * sentences).reshape(-1))

    @classmethod
    def concatenate(cls, states: Sequence[Self]) -> Self:
        """The states of several batches as those of one. Raises: ValueError for those of different cells, or without a batch."""
        if not states or len({state.names for state in states}) > 1:
            raise ValueError(f"concatenate: expected states of one cell, got those of {[list(s.names) for s in states]}")
        for state in states:
            state._batch("concatenate")
        joined = zip(*(state.arrays for state in states), strict=True)
        return cls(states[0].names, tuple(cls._joined(of_state) for of_state in joined))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them to a safetensors file, which appears whole or not at all.

        Raises: OSError; for tensors MissingExtraError without the package safetensors.
        """
        self._write(path, dict(zip(self.names, self.arrays, strict=True)), {NAMES: ",".join(self.names)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read them back.

        Raises: OSError; ValueError for another file; for tensors MissingExtraError without the package safetensors.
        """
        try:
            arrays, metadata = cls._read(path)
        except ValueError as error:
            raise ValueError(f"{path} holds no states: {error}") from None
        names = metadata.get(NAMES, "").split(",")
        if sorted(names) != sorted(arrays):
            raise ValueError(f"{path} holds no states")
        return cls(tuple(names), tuple(arrays[name] for name in names))

    def given_to(self, names: tuple[str, ...], who: str) -> tuple[Any, ...]:
        """Its arrays, for a layer whose cell has states of these names. Raises: ValueError for another cell's."""
        if tuple(self.names) != names:
            ours, theirs = ", ".join(names), ", ".join(self.names)
            raise ValueError(f"{who} should be the state of a cell with {ours}, got that of one with {theirs}")
        return self.arrays

    def _batch(self, who: str) -> int:
        size = self.batch_size
        if size is None:
            raise ValueError(f"{who}: these are the states of one sequence without a batch")
        return size

    def _mapped(self, function: Callable[[Any], Any]) -> Self:
        return type(self)(self.names, tuple(function(a) for a in self.arrays))

    # what differs between front-ends

    @staticmethod
    @abstractmethod
    def _array(numbers: Any) -> Any:
        """Of these numbers, on the device where they are."""

    @staticmethod
    @abstractmethod
    def _are_integers(array: Any) -> bool:
        """Whether they are; bools are not."""

    @staticmethod
    @abstractmethod
    def _joined(arrays: Sequence[Any]) -> Any:
        """Along the batch."""

    @staticmethod
    @abstractmethod
    def _write(path: str | os.PathLike[str], arrays: dict[str, Any], metadata: dict[str, str]) -> None:
        """A safetensors file."""

    @staticmethod
    @abstractmethod
    def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Arrays and metadata of one. Raises: ValueError for another file."""
