"""One step of every built-in cell in plain NumPy, written from its paper and not from our cell: a module for each of `cells/`.

    @worked("mgu", torchrecurrent="MGUCell")
    def mgu(w, x, h):
        f = sigmoid(w.weight_ih["f"] @ x + w.weight_hh["f"] @ h + w.bias_ih["f"] + w.bias_hh["f"])
        ...
        return h, (h,)

`w` has the parameters by name, stacked ones as a dict by gate; then come the input and the states of one sample, as vectors, and
the hyper-parameters by name. What is returned are the output and the new states in order.

Parameters that are not trained are part of what a cell is, so that these are worked out too, `fixed={"B": of_b}`: the numbers are
`of_b(made, **hypers)`, where `made` is the array that a layer has, for its shape, and for its numbers where these are drawn.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Worked:
    """A cell's step in NumPy, and what else computes it."""

    name: str
    step: Callable[..., tuple[Array, tuple[Any, ...]]]
    hypers: Mapping[str, Any]
    torchrecurrent: str
    """The class of torchrecurrent with the same equations; empty where there is none."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What that class is made with."""
    theirs: Callable[[Any], Mapping[str, Array]] | None = None
    """Their parameters, from ours (`w`)."""
    ours: Callable[[Any, Array, Array], tuple[Array, ...]] | None = None
    """Our states of one sample, from `w`, the first of our states and the input before: where theirs are these two."""
    run: Callable[[Any, Any, tuple[Any, ...]], tuple[Any, ...]] | None = None
    """One step of theirs (cell, input, states) where the cell itself does not take and give all states."""
    fixed: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """What the parameters that are not trained are, by name."""

    def __str__(self) -> str:
        given = ", ".join(f"{k}={getattr(v, '__name__', v)}" for k, v in self.hypers.items())
        return f"{self.name}({given})" if given else self.name


WORKED: list[Worked] = []


def worked(
    name: str,
    torchrecurrent: str = "",
    options: Mapping[str, Any] | None = None,
    theirs: Callable[[Any], Mapping[str, Array]] | None = None,
    ours: Callable[[Any, Array, Array], tuple[Array, ...]] | None = None,
    run: Callable[[Any, Any, tuple[Any, ...]], tuple[Any, ...]] | None = None,
    fixed: Mapping[str, Callable[..., Any]] | None = None,
    **hypers: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a step. May be put above one function several times, for other hyper-parameters.

    Args:
        name: of the cell.
        torchrecurrent: the class there, if it computes the same.
        options: what that class is made with, beside the sizes.
        theirs: its parameters by its names, from `w`.
        ours: our states of one sample from `w` and from theirs, where these are the first of ours and the input before.
        run: one step of it, from the cell, the input and all states to the new states, where calling the cell is not that.
        fixed: the parameters that are not trained, each from the array that a layer has and the hyper-parameters.
        hypers: values for the cell's hyper-parameters.
    """

    def register(step: Callable[..., Any]) -> Callable[..., Any]:
        WORKED.append(Worked(name, step, hypers, torchrecurrent, options or {}, theirs, ours, run, fixed or {}))
        return step

    return register


def all_worked() -> list[Worked]:
    """Those of all modules of this folder."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return WORKED


def by_gate(graph: Any, sizes: Mapping[str, int], parameters: Mapping[str, Array]) -> SimpleNamespace:
    """`w`: stacked parameters as a dict by gate."""

    def parts() -> Iterator[tuple[str, Any]]:
        for parameter in graph.parameters:
            value = parameters[parameter.name]
            if not parameter.gates:
                yield parameter.name, value
                continue
            ends = np.cumsum([rows.evaluate(sizes) for _, rows in parameter.gates])
            names = [gate for gate, _ in parameter.gates]
            yield parameter.name, dict(zip(names, np.split(value, ends[:-1]), strict=True))

    return SimpleNamespace(**dict(parts()))


def stack(parts: Mapping[str, Array], gates: str) -> Array:
    """Gates in an order of one's own, `stack(w.weight_ih, "r z n")`."""
    return np.concatenate([parts[gate] for gate in gates.split()])


def stacks(order: str) -> Callable[[Any], Mapping[str, Array]]:
    """For `theirs`, where all names are the same and the gates have this order."""

    def theirs(w: Any) -> Mapping[str, Array]:
        return {name: stack(value, order) if isinstance(value, dict) else value for name, value in vars(w).items()}

    return theirs


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))
