"""`@cell`: from a Python function to a Cell, which can be traced."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Any, Literal

from anyrnn.errors import CellError, meant
from anyrnn.ir import graph as ir
from anyrnn.ir.dims import Dim, shape_text
from anyrnn.ir.symbol import Symbol
from anyrnn.trace.initial import Maker, check_init
from anyrnn.trace.signature import LAYER_ARGUMENTS, Place, Signature, counts_of, names_of, place, signature_of
from anyrnn.trace.tracer import CURRENT, INPUT, Tracer, current, tracing


class State:
    """The new states that a cell returns, by name: `State(h=h, c=c)`. A tuple is several states, see `Several`."""

    def __init__(self, /, *unnamed: Any, **values: Any) -> None:
        if unnamed:
            raise TypeError("State takes the new states by name: State(h=h, c=c)")
        tracer = CURRENT.get(None)
        if tracer is not None:
            tracer.look_up()
        self.values: dict[str, Any] = {}
        for name, value in values.items():
            several = isinstance(value, (tuple, list))
            given = dict(zip(names_of(name, len(value)), value, strict=True)) if several else {name: value}
            twice = [one for one in given if one in self.values]
            if twice:
                where = str if tracer is None else tracer.located
                raise CellError(where(f"State is given {twice[0]!r} twice, by its name and as one of several"))
            self.values |= given

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__["values"]
        if name in values:
            return values[name]
        several = tuple(takewhile(lambda one: one is not None, (values.get(f"{name}{k}") for k in count(1))))
        if several:
            return several
        raise AttributeError(f"no state {name!r}; there are {', '.join(values)}")


@dataclass(frozen=True, eq=False)
class Cell:
    """A recurrent cell: one step, written as a Python function of the input and the states.

    Made by `@cell`. `name` and `paper` say what it is; `signature` holds its inputs, states and hyper-parameters.
    """

    function: Callable[..., Any]
    name: str
    paper: str
    signature: Signature
    init: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What parameters of `affine` begin as, see `cell`."""
    made_by: tuple[Callable[..., Cell], tuple[Any, ...]] | None = field(default=None, repr=False)
    """The wrapper, and what it was given."""
    changed: tuple[Cell, Mapping[str, Any]] | None = field(default=None, repr=False)
    """Of which cell it is one with other defaults, and these."""
    _graphs: dict[Any, ir.Graph] = field(default_factory=dict, repr=False)
    """The last of each kind: equal ones are one object."""

    def __repr__(self) -> str:
        return f"<cell {self.name}>"

    def show(self, what: Literal["text", "plan", "latex", "llvm", "assembly"] = "text") -> str:
        """Its equations and their gradient, or whatever else `anyrnn show` prints of it; see `anyrnn.show.render`.

        Example:
            >>> from anyrnn import cells
            >>> print(cells.rnn_tanh.show().splitlines()[0])
            rnn_tanh
        """
        from anyrnn.show import render

        return render(self, what)

    def _repr_latex_(self) -> str:
        """The equations, in a notebook; nothing of a cell that cannot be traced."""
        from anyrnn.ir.show import latex

        try:
            return f"$${latex(self.trace())}$$"
        except Exception:  # noqa: BLE001 (whatever the cell's function raises; `_repr_html_` tells it)
            return ""

    def _repr_html_(self) -> str:
        """What it is, its equations and its data flow, in a notebook, or why it cannot be traced."""
        from anyrnn.workbench.notebook import html

        return html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its place, as functions are, or by what it was made of."""
        if self.changed is not None:
            return _with_defaults, self.changed
        if self.made_by is not None:
            return self.made_by
        module, name = self.function.__module__, self.function.__qualname__
        if getattr(sys.modules.get(module), name, None) is not self:
            raise pickle.PicklingError(
                f"cell {self.name!r} is not found as {module}.{name}; only a module's own cells can be pickled"
            )
        return _cell_at, (module, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Cell:
        return self

    def __copy__(self) -> Cell:
        return self

    def with_defaults(self, /, **hypers: Any) -> Cell:
        """The same equations with other defaults of hyper-parameters.

        Args:
            hypers: the defaults by name. The others stay as they are.

        Returns: a cell called `name(hyper=value, ...)`, in the order of the cell's own; this one where nothing is given.

        Raises: TypeError for one that there is not, or of another kind; CellError for a number of states that cannot be.

        Example:
            >>> from anyrnn import cells
            >>> cells.ctrnn.with_defaults(dt=0.5)
            <cell ctrnn(dt=0.5)>
        """
        if not hypers:
            return self
        like, before = self.changed or (self, {})
        values = like.values({**before, **hypers})
        given = {name: value for name, value in values.items() if name in before or name in hypers}
        told = ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in given.items())
        signature = replace(like.signature_with(values), hypers=tuple(values.items()))
        return replace(like, name=f"{like.name}({told})", signature=signature, changed=(like, given), _graphs={})

    def trace(self, bias: bool | str = True, skip_input: bool = False, **hypers: Any) -> ir.Graph:
        """The graph of one step, of the function as it is now: what it reads from outside (a number, another function, a cell)
        may have changed since it was traced before.

        Args:
            bias: which operands of `affine` have a bias: `both` or True for all, `input` or `recurrent` for the input alone or
                all others, `none` or False.
            skip_input: the input enters gates as it is, without a product.
            hypers: values for the cell's keyword-only arguments. Floats stay run-time scalars; the others become structure.

        Raises: CellError when the function cannot be traced, naming the line; ValueError for a `bias` that is none of these.
        """
        values = self.values(hypers)
        check_bias(bias)
        structure = tuple((name, type(v), None if isinstance(v, float) else v) for name, v in sorted(values.items()))
        biases = bias if isinstance(bias, str) else "both" if bias else "none"
        key = biases, skip_input, structure
        graph, known = _trace(self, biases, skip_input, values), self._graphs.get(key)
        if graph != known:
            self._graphs[key] = known = graph
        return known

    def values(self, hypers: Mapping[str, Any]) -> dict[str, Any]:
        """All hyper-parameters: those given, and the defaults of the others. Raises TypeError for one that there is not, or of
        another kind than it should be.
        """
        defaults = dict(self.signature.hypers)
        for name in hypers:
            if name not in defaults:
                known = f"{meant(name, defaults)}; it has: {', '.join(defaults) or 'none'}"
                raise TypeError(f"cell {self.name!r} has no hyper-parameter {name!r}{known}")
        values = {**defaults, **hypers}
        for name, default in defaults.items():
            value = values[name]
            if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not getattr(value, "requires_grad", False):
                value = value.item()  # a number of NumPy or torch, unless it is one to be trained
            if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
                with suppress(OverflowError):
                    value = float(value)
            wanted = _wanted(default, value)
            if wanted:
                got = repr(value) if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
                raise TypeError(f"hyper-parameter {name!r} of cell {self.name!r} should be {wanted}, got {got}")
            values[name] = value
        return values

    def __call__(self, *arguments: Symbol | None, **hypers: Any) -> tuple[Symbol, State]:
        """One step inside another cell, on traced values. Its weights have the names of its own arguments; None in the place of
        the input is for cells that have it in `affine` alone, which then leaves it out.
        """
        if not tracing():
            raise CellError(
                f"cell {self.name!r} was called outside of a trace; make a layer of it: "
                f"anyrnn.Recurrent({self.name}, input_size, hidden_size)"
            )
        values = {**dict(self.signature.hypers), **hypers}
        signature = self.signature_with(values)
        tracer, names = current(f"cell {self.name!r}"), signature.order
        if len(arguments) != len(names):
            takes = f"cell {self.name!r} takes {', '.join(names)}"
            raise CellError(tracer.located(f"{takes}; got {len(arguments)} argument{'' if len(arguments) == 1 else 's'}"))
        given = {
            name: None if value is None else tracer.lift(value, f"{name!r} of cell {self.name!r}")
            for name, value in zip(names, arguments, strict=True)
        }
        shapes = dict(signature.inputs) | {state.name: state.shape for state in signature.states}
        tracer.note_call(self.name)
        with tracer.called(self.name, given, shapes, self.init, counts_of(values)):
            return _returned(self, signature, self.function(*given.values(), **values))

    def signature_with(self, hypers: Mapping[str, Any]) -> Signature:
        """What the function takes with these hyper-parameters."""
        return signature_of(self.function, hypers) if self.signature.counted else self.signature


def _with_defaults(like: Cell, hypers: Mapping[str, Any]) -> Cell:
    return like.with_defaults(**hypers)


def _wanted(default: Any, value: Any) -> str | None:
    """What the value of a hyper-parameter should be, by its default, where it is something else."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "True or False"
    if isinstance(default, int):
        return None if type(value) is int else "a whole number"
    if isinstance(default, float):
        return None if isinstance(value, float) else "a number"
    if isinstance(default, str):
        return None if isinstance(value, str) else "text"
    if callable(default) and not isinstance(default, Cell):
        return None if callable(value) and not isinstance(value, Cell) else "a function"
    try:
        hash(value)
    except TypeError:
        return "hashable (as tuples of numbers are)"
    return None


def _cell_at(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def cell(
    function: Callable[..., Any] | None = None,
    *,
    paper: str = "",
    name: str | None = None,
    init: Mapping[str, float | Maker] | None = None,
) -> Any:
    """Make a Cell of a function of the input and the states.

    The function takes the input first, then the states; it returns the output and `State(name=new value, ...)`. Annotations
    give what is not the default: `Vec(size, init)`, `Scalar(init)`, `Step(size)`, `*states: Several(count)`. Keyword-only
    arguments are hyper-parameters.

    Args:
        function: one step. Without it, what is returned waits for it, as a decorator.
        paper: where the equations are from.
        name: the function's by default.
        init: what the parameters of `affine` begin as, where that is not the layer's default (uniform within 1/sqrt(hidden)): by
            the parameter's name, which is for each of its gates, or with the name of one behind it, `{"bias_ih f": 1.0,
            "weight_hh": orthogonal}`. A number, or a function of a shape and a `numpy.random.Generator`, as those of
            `anyrnn.weights`.

    Example:
        >>> from anyrnn import State, affine, cell, sigmoid, tanh
        >>> @cell
        ... def minimal(x, h):
        ...     f = sigmoid(affine("f", x, h))
        ...     h = (1 - f) * h + f * tanh(affine("g", x))
        ...     return h, State(h=h)
        >>> minimal.trace().size_names
        ['input', 'hidden']
    """
    if function is not None and not hasattr(function, "__code__"):
        raise TypeError(f"@cell stands above a function, with options by name (`@cell(paper=...)`); got {function!r}")
    if function is None:
        return lambda f: cell(f, paper=paper, name=name, init=init)
    for key, value in (init or {}).items():
        check_init(value, f"cell {name or function.__name__!r}: init of {key!r}")
    return Cell(function, name or function.__name__, paper, signature_of(function), init or {})


BIASES = ("both", "input", "recurrent", "none")


def check_bias(bias: bool | str) -> None:
    """Raises: ValueError for a name that says nothing of biases."""
    if isinstance(bias, str) and bias not in BIASES:
        raise ValueError(f"bias should be a bool or one of {', '.join(BIASES)}, got {bias!r}")


def _trace(cell: Cell, bias: str, skip_input: bool, hypers: Mapping[str, Any]) -> ir.Graph:
    tracer, signature = Tracer(cell.name, bias, cell.init), cell.signature_with(hypers)
    inputs, tracer.sizes = list(signature.inputs), counts_of(hypers)
    if skip_input:
        inputs[0] = inputs[0][0], (Dim.of("hidden"),)
    arguments: list[Symbol] = []
    for position, (name, shape) in enumerate(inputs):
        symbol = tracer.leaf("input", name, shape)
        tracer.operand_keys.append((symbol, INPUT if position == 0 else name))
        arguments.append(symbol)
    if skip_input:
        tracer.skipped = arguments[0].index
    for state in signature.states:
        symbol = tracer.leaf("state", state.name, state.shape)
        tracer.operand_keys.append((symbol, state.name))
        arguments.append(symbol)
    by_name = {tracer.nodes[s.index].attributes[0]: s for s in arguments}
    given: dict[str, Any] = {}
    for name, value in hypers.items():
        is_number = isinstance(value, float)
        given[name] = tracer.leaf("hyper", name, (), per_sample=False) if is_number else value
    with tracer.at_work(), _of_skipped_input(skip_input, inputs[0][0]):
        returned = cell.function(*(by_name[name] for name in signature.order), **given)
        outputs = _outputs(cell, signature, tracer, returned)
    tracer.finish()
    like, _ = cell.changed or (cell, None)
    alike = all(isinstance(hypers[name], float) or hypers[name] == value for name, value in like.signature.hypers)
    if bias == "both" and not skip_input and alike and like.made_by is None:  # others may have fewer parameters
        _check_init(cell, tracer)
    numbers = tuple(name for name, value in hypers.items() if isinstance(value, float))
    warnings = tuple(tracer.warnings)
    graph = ir.Graph(
        tuple(tracer.nodes), outputs, tuple(inputs), signature.states, tracer.parameters(), numbers, cell.name, warnings
    )
    for name in graph.size_names:
        if type(hypers.get(name)) is int and name not in ("hidden", "input"):
            raise CellError(f"{place(cell.function)}: size {name!r}, a hyper-parameter, should be at least 1, got {hypers[name]}")
        if name in {*LAYER_ARGUMENTS, *hypers, "self"}:
            other = "a hyper-parameter" if name in hypers else "a layer's argument"
            fix = f", or {name.removesuffix('_size')!r}" if name in ("hidden_size", "input_size") else ""
            raise CellError(f"{place(cell.function)}: size {name!r} has the name of {other}; give it another name{fix}")
    return graph


@contextmanager
def _of_skipped_input(skip_input: bool, name: str) -> Iterator[None]:
    """Errors say what skip_input changes: where a cell uses its input in other ways than gates do, sizes may not fit then."""
    try:
        yield
    except CellError as error:
        if not skip_input or "skip_input" in str(error):
            raise
        raise CellError(f"{error}; with skip_input, the input {name!r} has the hidden size") from None


def _check_init(cell: Cell, tracer: Tracer) -> None:
    known = [p.name for p in tracer.parameters() if p.gates]
    known += [f"{p.name} {gate}" for p in tracer.parameters() for gate, _ in p.gates]
    for key in cell.init:
        if key not in known:
            where = f"{place(cell.function)}: cell {cell.name!r}"
            raise CellError(f"{where}: init names {key!r}, and affine has made {', '.join(known)}")


def _returned(cell: Cell, signature: Signature, returned: Any) -> tuple[Any, State]:
    """What a cell's function has given back. Raises: CellError when it is no output and the cell's states."""
    where = Place(cell.function, f": cell {cell.name!r}")
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], State)):
        raise CellError(f"{where} must return `output, State(...)`; it returned {_described(returned)}")
    y, state = returned
    expected = [s.name for s in signature.states]
    if sorted(state.values) != sorted(expected):
        what = f"{where} must return the states {', '.join(expected)}; it returned {', '.join(state.values) or 'none'}"
        arguments = cell.function.__code__.co_varnames
        no_state = [name for name in expected if name not in state.values and name in arguments]
        if state.values and no_state and set(state.values) <= set(expected):
            name = no_state[0]
            what += f" (a hyper-parameter stands behind a star: *, {name}=0.1; a further input is annotated: {name}: Step(1))"
        raise CellError(what)
    return y, state


def _outputs(cell: Cell, signature: Signature, tracer: Tracer, returned: Any) -> tuple[tuple[str, int], ...]:
    where = Place(cell.function, f": cell {cell.name!r}")
    y, state = _returned(cell, signature, returned)
    if isinstance(y, (tuple, list)):
        kind = type(y).__name__
        raise CellError(f"{where} returns a {kind} as the output: a cell has one, such as concat(a, b), and others as states")
    output = tracer.lift(y, "the output")
    outputs = [("y", tracer.fill(output, *ir.SINGLE) if output.shape == () and output.per_sample else output)]
    for spec in signature.states:
        value = tracer.lift(state.values[spec.name], f"state {spec.name!r}")
        if value.builder.nodes[value.index].row.boolean:
            raise CellError(f"{where} returns a test as state {spec.name!r}; use where(test, a, b) to make numbers of it")
        if value.shape == () and not value.per_sample:
            value = _of_samples(tracer, value, spec)
        if value.shape == () and spec.shape:
            value = tracer.fill(value, spec.shape[0])
        if value.shape == ir.SINGLE and not spec.shape:
            value = tracer.as_scalar(value)
        if value.shape != spec.shape:
            shapes = f"with shape {shape_text(value.shape)}; it was given as {shape_text(spec.shape)}"
            raise CellError(f"{where} returns state {spec.name!r} {shapes}")
        outputs.append((spec.name, value))
    if len(outputs[0][1].shape) != 1:
        raise CellError(
            f"{where} must return a vector as its output; {outputs[0][1].label} has shape {shape_text(outputs[0][1].shape)}"
        )
    if outputs[0][1].builder.nodes[outputs[0][1].index].row.boolean:
        raise CellError(f"{where} returns a test as the output; use where(test, a, b) to make numbers of it")
    for name, value in outputs:
        if not value.per_sample:
            fix = f"; `{name} * 0 + ..` is of every sample" if name != "y" else ""
            raise CellError(f"{where} returns {name!r} that depends on no input and no state{fix}")
    return tuple((name, value.index) for name, value in outputs)


def _of_samples(tracer: Tracer, number: Symbol, spec: ir.State) -> Symbol:
    """A number as the state of every sample: what the state before, of whatever value, is when it is clipped to it."""
    before = tracer.apply("stop_gradient", tracer.leaf("state", spec.name, spec.shape))
    return tracer.apply("minimum", tracer.apply("maximum", before, number), number)


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} ({', '.join(type(v).__name__ for v in value)})"
    if value is None:
        return "nothing"
    return f"a {type(value).__name__}"
