"""What layers of all front-ends have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from anyrnn.sequence.network import check_budget, check_dropout
from anyrnn.sequence.options import OPTIONS

DEFAULTS = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False, "backend": "auto"}
DEFAULTS |= {"memory_budget": None, "dtype": "float32"}
FIXED = ("cell", "input_size", "hidden_size", "num_layers", "bias", "bidirectional", "options", "nonlinearity", "proj_size")
"""Attributes that calls do not look at again, beside `OPTIONS`."""


def described(first: Sequence[Any], given: Mapping[str, Any]) -> str:
    """The arguments of a layer that are not what they are by default, as a call has them."""
    unusual = {name: value for name, value in given.items() if name not in DEFAULTS or value != DEFAULTS[name]}
    return ", ".join([*map(str, first), *(f"{name}={value!r}" for name, value in unusual.items())])


class Layer:
    """Its dropout, memory budget and backend, and whether the batch comes first, may be changed; the rest is fixed once it is
    made.
    """

    _backend: str
    _dropout: float
    _memory_budget: int | None
    _int8 = False

    @property
    def int8(self) -> bool:
        """Whether matrices are multiplied as integers of eight bits."""
        return self._int8

    @property
    def dropout(self) -> float:
        """The probability of zeroing each output between layers, in training calls; it may be changed."""
        return self._dropout

    @dropout.setter
    def dropout(self, value: float) -> None:
        check_dropout(value)
        if float(value) != self._dropout:
            self._dropout = float(value)
            self._changed()

    @property
    def memory_budget(self) -> int | None:
        """Bytes that a training call may keep; None for all that there is. It may be changed."""
        return self._memory_budget

    @memory_budget.setter
    def memory_budget(self, value: int | None) -> None:
        check_budget(value)
        self._memory_budget = value
        self._changed()

    @property
    def backend(self) -> str:
        """What calls should run on; it may be changed. What they do run on says `backend_name`."""
        return self._backend

    @backend.setter
    def backend(self, value: str) -> None:
        self._check_backend(value)
        self._backend = value
        self._changed()

    @abstractmethod
    def _check_backend(self, name: str) -> None:
        """Raises: ValueError for what is none, UnsupportedError for one that cannot run this."""

    @abstractmethod
    def _changed(self) -> None:
        """Make anew what follows from them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OPTIONS or (name in FIXED and name in self.__dict__):
            raise AttributeError(f"{name} is fixed when a layer is made: make another one, and give it this one's parameters")
        super().__setattr__(name, value)
