"""What a cell's function takes: its inputs, states and hyper-parameters, from its arguments and their annotations."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyrnn.errors import CellError, meant
from anyrnn.ir import graph as ir
from anyrnn.ir.dims import Dim, Shape, features
from anyrnn.trace.initial import check_number
from anyrnn.trace.tracer import INPUT

AREA = re.compile(r"[^\W\d]\w*\s*\*\s*[^\W\d]")
"""A size times a size, in a text."""


@dataclass(frozen=True)
class Vec:
    """Annotation: a vector of a named size (or a number of features, or a sum such as `"hidden - 1"`), with an initial value if
    it is a state: `def projected(x, h: Vec("proj"), c)`, `def counting(x, h, n: Vec(init=1.0))`.
    """

    size: str | int | Dim = "hidden"
    init: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.size, (str, int, Dim)) or AREA.search(str(self.size)):
            raise CellError(f"Vec({self.size!r}): matrix-valued and spatial states (mLSTM, ConvLSTM) are outside the language")
        _check_size(self.size, "Vec")
        check_number(self.init, "Vec: init")


@dataclass(frozen=True)
class Scalar:
    """Annotation: a state of one number a sample, such as a step counter: `def counted(x, h, t: Scalar())`."""

    init: float = 0.0

    def __post_init__(self) -> None:
        check_number(self.init, "Scalar: init")


@dataclass(frozen=True)
class Several:
    """Annotation of a starred argument, `*past: Several("delay")`: as many states as a hyper-parameter says (a whole number), or
    as the number given, each a vector. The cell has them as a tuple, and returns as many, `State(past=...)`; in layers they are
    called past1, past2 and so on.

    >>> from anyrnn import Recurrent, Several, State, affine, cell, tanh
    >>> @cell
    ... def delayed(x, h, *past: Several("delay"), delay=3):
    ...     new = tanh(affine("n", x, h=past[-1]))
    ...     return new, State(h=new, past=(h, *past[:-1]))
    >>> Recurrent(delayed, 3, 4, delay=2).initial_state(5)
    RecurrentState(h=[1, 5, 4], past1=[1, 5, 4], past2=[1, 5, 4])
    """

    count: str | int
    size: str | int | Dim = "hidden"
    init: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.count, (str, int)) or isinstance(self.count, bool):
            raise CellError(f"Several: count should be a hyper-parameter's name or a whole number, got {self.count!r}")
        _check_size(self.size, "Several")
        check_number(self.init, "Several: init")


@dataclass(frozen=True)
class Step:
    """Annotation: an extra per-step input of `size` features (a number, a named size, or a sum of them as text). One of a single
    feature counts as that number beside longer vectors: `def timed(x, h, dt: Step(1))`, called as `layer(x, dt=dt)` with
    [T, N, 1].
    """

    size: str | int | Dim = 1

    def __post_init__(self) -> None:
        _check_size(self.size, "Step")


def _check_size(size: str | int | Dim, who: str) -> None:
    try:
        features(size, who)
    except (TypeError, ValueError) as error:
        raise CellError(str(error)) from None


@dataclass(frozen=True)
class Signature:
    """What a cell's function takes, with its hyper-parameters at their defaults."""

    inputs: tuple[tuple[str, Shape], ...]
    states: tuple[ir.State, ...]
    hypers: tuple[tuple[str, Any], ...]
    order: tuple[str, ...]
    """The names of inputs and states, as the function takes them."""
    counted: bool = False
    """Whether hyper-parameters say how many states there are, or of what size."""


def names_of(name: str, count: int) -> list[str]:
    """Of several states."""
    return [f"{name}{k}" for k in range(1, count + 1)]


def place(function: Callable[..., Any]) -> str:
    """Where a function begins, as file:line: below its decorators."""
    code = function.__code__
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith(("@", "#")):
        line += 1
    return f"{code.co_filename}:{line}"


@dataclass(frozen=True)
class Place:
    """A function's place for messages. The file is read when one is written, not for every cell that is imported."""

    function: Callable[..., Any]
    more: str = ""

    def __format__(self, form: str) -> str:
        return place(self.function) + self.more


LAYER_ARGUMENTS = frozenset(
    [
        "cell",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "backend",
        "memory_budget",
        "device",
        "dtype",
        "seed",
        "merge",
        "residual",
        "reverse",
        "learned_state",
        "skip_input",
        "input_dropout",
        "recurrent_dropout",
        "weight_dropout",
        "output_dropout",
        "zoneout",
        "clip_state",
        "activations",
        "clip_preactivation",
        "clip_gradient",
        "cut_gradient",
    ]
)
"""What layers of any cell take, in every front-end."""
CALL_KEYWORDS = ("lengths", "cu_seqlens", "mask", "mask_value", "reset", "padding", "return_outputs", "return_states")
"""Keyword arguments of calls of layers, beside a cell's further per-step inputs."""
CALL_ARGUMENTS = frozenset(("self", "x", "input", "hx", "state", "out", "memory", "seed", *CALL_KEYWORDS))
"""What calls of layers take beside the cell's per-step inputs."""
STATES = ("state", "states", "hx", "hc", "h0", "h_0", "hidden", "hidden_state", "initial_state", "initial_states")
"""What libraries call the states that a call begins with."""


def no_such_input(who: str, unknown: Collection[str], known: Sequence[str], state: str) -> TypeError:
    """Of keyword arguments that are no per-step inputs. `state`: what a call's states are called there."""
    name = min(unknown)
    slip = meant(name, [other for other in (*known, *CALL_KEYWORDS) if other not in unknown])
    slip = f" (the states are given as {state}=, or as the argument after the input)" if name in STATES else slip
    return TypeError(f"{who} has no per-step input {name!r}{slip}; it has: {', '.join(known) or 'none'}")


def signature_of(function: Callable[..., Any], values: Mapping[str, Any] | None = None) -> Signature:
    """`values`: of hyper-parameters, the defaults if there are none."""
    where, counted = Place(function), False
    parameters = inspect.signature(function).parameters
    known = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY} | dict(values or {})
    counts = counts_of(known)

    def sized(size: str | int | Dim) -> Shape:
        nonlocal counted
        dim = Dim.of(size)
        counted = counted or not dim.names.isdisjoint(counts)
        return (dim.within(counts),)

    try:
        annotations = inspect.get_annotations(function, eval_str=True) if function.__annotations__ else {}
    except Exception as error:  # noqa: BLE001 (whatever the user's annotations raise)
        what = error if isinstance(error, CellError) else f"the annotations of cell {function.__name__!r}: {error}"
        raise CellError(f"{where}: {what}") from None
    inputs: list[tuple[str, Shape]] = []
    states: list[ir.State] = []
    hypers: list[tuple[str, Any]] = []
    for parameter in parameters.values():
        note = annotations.get(parameter.name)
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.name in LAYER_ARGUMENTS:
                message = f"hyper-parameter {parameter.name!r} has the name of a layer's argument; give it another name"
                raise CellError(f"{where}: {message}")
            if isinstance(note, (Vec, Scalar, Step)):
                kind = type(note).__name__
                message = f"is keyword-only, and so a hyper-parameter; {kind} is for inputs and states, which are before the star"
                raise CellError(f"{where}: {parameter.name!r} {message}")
            if parameter.default is parameter.empty:
                raise CellError(f"{where}: hyper-parameter {parameter.name!r} of cell {function.__name__!r} needs a default")
            hypers.append((parameter.name, parameter.default))
        elif parameter.kind is parameter.VAR_POSITIONAL and isinstance(note, Several) and inputs:
            count, counted = _count(note, known, f"{where}: *{parameter.name}"), counted or isinstance(note.count, str)
            states += [ir.State(name, sized(note.size), note.init) for name in names_of(parameter.name, count)]
        elif parameter.default is not parameter.empty:
            fix = f"*, {parameter.name}={parameter.default!r}"
            raise CellError(f"{where}: {parameter.name!r} has a default; hyper-parameters come after a star: {fix}")
        elif parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            several = f"; as many states as a hyper-parameter says are *{parameter.name}: Several('name')"
            what = f"{parameter}{several if parameter.kind is parameter.VAR_POSITIONAL and note is None else ''}"
            raise CellError(f"{where}: cell {function.__name__!r} takes its input and states by name, not as {what}")
        elif note is not None and not isinstance(note, (Vec, Scalar, Step)):
            fix = "with Vec(size, init), Scalar(init) or Step(size), or put it behind a star if it is a hyper-parameter"
            raise CellError(f"{where}: annotate {parameter.name!r} {fix}; got {note!r}")
        elif not inputs:
            if isinstance(note, Scalar):
                raise CellError(f"{where}: the input {parameter.name!r} is a vector; annotate it with Vec(size), not with Scalar")
            size = "input" if note is None else note.size
            if not isinstance(size, str) or not size.isidentifier():
                raise CellError(f"{where}: the size of the input {parameter.name!r} should be a name, got {size}")
            inputs.append((parameter.name, (Dim.of(size),)))
        elif parameter.name == INPUT:
            raise CellError(f"{where}: an argument called i would share weight_ih with the input; give it another name")
        elif isinstance(note, Step):
            if parameter.name in CALL_ARGUMENTS:
                message = f"per-step input {parameter.name!r} has the name of a call's argument; give it another name"
                raise CellError(f"{where}: {message}")
            inputs.append((parameter.name, sized(note.size)))
        elif isinstance(note, Scalar):
            states.append(ir.State(parameter.name, (), note.init))
        else:
            vec = note or Vec()
            states.append(ir.State(parameter.name, sized(vec.size), vec.init))
    names = [name for name, _ in inputs] + [state.name for state in states]
    taken = {"y": "the output", **{f"d_{name}": f"the gradient of {name}" for name in (*names, "y")}}
    for name in names:
        if other := taken.get(name):
            raise CellError(f"{where}: an argument called {name} would share its name with {other}; give it another name")
    if any(state.name == "values" for state in states):
        raise CellError(f"{where}: a state called values would share its name with what a State holds; give it another name")
    if not inputs:
        raise CellError(f"{where}: cell {function.__name__!r} has no input; its first argument is the input")
    if not states:
        raise CellError(f"{where}: cell {function.__name__!r} has no state; its arguments after the input are the states")
    if len(set(names)) < len(names):
        raise CellError(f"{where}: two arguments of cell {function.__name__!r} are called {max(names, key=names.count)}")
    order = [name for name in parameters if name in names] + [name for name in names if name not in parameters]
    return Signature(tuple(inputs), tuple(states), tuple(hypers), tuple(order), counted)


def counts_of(hypers: Mapping[str, Any]) -> dict[str, Dim]:
    """The sizes that hyper-parameters are: whole numbers above zero. What is hidden or the input's is the layer's to say."""
    return {name: Dim.of(n) for name, n in hypers.items() if type(n) is int and n > 0 and name not in ("hidden", "input")}


def _count(note: Several, known: Mapping[str, Any], who: str) -> int:
    """How many states there are of `note`. Raises: CellError when that is no number above zero."""
    count: Any = note.count
    if isinstance(count, str):
        if count not in known:
            raise CellError(f"{who} is as many states as the hyper-parameter {count!r} says, which there is not")
        count = known[count]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise CellError(f"{who} should be at least one state; {note.count!r} is {count!r}")
    return count
