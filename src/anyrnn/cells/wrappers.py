"""Functions from cells to cells: a cell with another way of summing its products, with a way around it, or several as one.

>>> from anyrnn import cells
>>> from anyrnn.cells.wrappers import independent, residual
>>> residual(independent(cells.lstm))
<cell residual(independent(lstm))>
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Literal

from anyrnn.errors import CellError
from anyrnn.ir import graph as ir
from anyrnn.ir.dims import Dim, Shape, shape_text
from anyrnn.ir.graph import reachable
from anyrnn.ir.symbol import Symbol
from anyrnn.trace.cell import Cell, State
from anyrnn.trace.language import affine, concat, norm, products, rms_norm, scope, sigmoid, vector
from anyrnn.trace.signature import Signature
from anyrnn.trace.tracer import INPUT, ProductRule, current


def residual(cell: Cell) -> Cell:
    """What goes in is added to what comes out: y + x. Its input has the output's size.

    Source: He et al. 2016, Deep Residual Learning for Image Recognition, arXiv 1512.03385.
    """

    def step(x: Symbol, *states: Symbol, **hypers: Any) -> tuple[Symbol, State]:
        y, state = cell(x, *states, **hypers)
        _check_same(residual, cell, y, x)
        return y + x, state

    return _around(residual, cell, step)


def highway(cell: Cell) -> Cell:
    """A gate chooses between what comes out and what goes in: t * y + (1 - t) * x, where t = sigmoid(W x + b). Its input has the
    output's size; at first most of the input goes through, b being -2.

    Source: Srivastava, Greff & Schmidhuber 2015, Highway Networks, arXiv 1505.00387.
    """

    def step(x: Symbol, *states: Symbol, **hypers: Any) -> tuple[Symbol, State]:
        y, state = cell(x, *states, **hypers)
        _check_same(highway, cell, y, x)
        with scope(_own_scope("highway", step), init={"bias_ih": -2.0}):
            t = sigmoid(affine("transform", x))
        return t * y + (1 - t) * x, state

    return _around(highway, cell, step)


def multiplicative_integration(cell: Cell) -> Cell:
    """A gate of the input and one state multiplies both products: a * Wx * Uh + b1 * Uh + b2 * Wx, with vectors a, b1 and b2 for
    each gate. Other gates stay as they are.

    Source: Wu et al. 2016, On Multiplicative Integration with Recurrent Neural Networks, arXiv 1606.06630.
    """

    def combined(gate: str, made: Mapping[str, Symbol]) -> Symbol | None:
        if len(made) != 2 or INPUT not in made:
            return None
        ((key, of_state),) = [(key, product) for key, product in made.items() if key != INPUT]
        if not _depends_on_state(of_state):
            return None
        of_input, size = made[INPUT], of_state.shape[0]
        both = vector(_joined("alpha", gate), size, init=1.0) * of_input * of_state
        beta_of_state, beta = (vector(_joined("beta", *of), size, init=1.0) for of in ((key, gate), (gate,)))
        return both + beta_of_state * of_state + beta * of_input

    changes = "affine(gate, x, h) of the input and one state"
    return _with_rule(multiplicative_integration, cell, ProductRule(combined=combined), changes)


def _joined(*parts: str) -> str:
    """The name of a parameter of a wrapper, see `Tracer.joined`."""
    return current("a wrapper").joined(*parts)


def _depends_on_state(value: Symbol) -> bool:
    nodes = value.builder.nodes
    return any(nodes[i].op == "state" for i in reachable(nodes, [value.index]))


def independent(cell: Cell) -> Cell:
    """Each feature of a state meets itself alone: in place of matrices for states and what depends on them there is a vector for
    each gate of the state's size.

    Source: Li et al. 2018, Independently Recurrent Neural Network, arXiv 1803.04831.
    """

    def product(gate: str, key: str, operand: Symbol, gates: int) -> Symbol | None:
        if key == INPUT or not _depends_on_state(operand):
            return None
        repeated = operand if gates == 1 else concat(*[operand] * gates)
        return vector(_joined("recurrent", key, gate), operand.shape[0] * gates) * repeated

    return _with_rule(independent, cell, ProductRule(product=product), "affine of a state of the gate's size")


def normalised(cell: Cell, kind: Literal["layer", "rms"] = "layer") -> Cell:
    """Every product is normalised over its features, and has a gain; biases are added after it.

    Source: Ba, Kiros & Hinton 2016, Layer Normalization, arXiv 1607.06450; `rms`: Zhang & Sennrich 2019, arXiv 1910.07467.
    Raises: ValueError for another kind.
    """
    kinds: dict[str, Callable[[Symbol], Symbol]] = {"layer": norm, "rms": rms_norm}
    if kind not in kinds:
        raise ValueError(f"kind should be 'layer' or 'rms', got {kind!r}")

    def each(gate: str, key: str, product: Symbol) -> Symbol:
        return vector(_joined("gain", key, gate), product.shape[0], init=1.0) * kinds[kind](product)

    return _with_rule(normalised, cell, ProductRule(each=each), "affine", kind)


def stacked(*cells: Cell) -> Cell:
    """Several cells as one, each the input of the next, within one step. Parameters and states of the k-th (from 0) begin with
    `level{k}_`; hyper-parameters are at their defaults. A layer with `num_layers` has one kind of cell and needs less time.

    Source: Pascanu et al. 2014, How to Construct Deep Recurrent Neural Networks, arXiv 1312.6026.
    """
    if not cells:
        raise ValueError("stacked takes at least one cell")
    states = [s for k, cell in enumerate(cells) for s in _named(_states(stacked, cell, k > 0), f"level{k}")]
    levels = [f"level{k}" for k in range(len(cells))]

    def step(x: Symbol, *states: Symbol) -> tuple[Symbol, State]:
        found: dict[str, Symbol] = {}
        for level, cell in zip(levels, cells, strict=True):
            own, states = states[: len(cell.signature.states)], states[len(cell.signature.states) :]
            with scope(level):
                x, state = cell(x, *own)
            found |= {f"{level}_{name}": value for name, value in state.values.items()}
        return x, State(**found)

    return _made(stacked, cells, step, cells[0].signature.inputs, states)


def fast_slow(fast: Cell, slow: Cell, depth: int = 4) -> Cell:
    """`depth` fast cells, one after the other, share their states, each with parameters of its own; a slow one between the first
    and the second sees a step through the whole of them. The input goes to the first, the slow one's output to the second; the
    others have none, so that a fast cell should have its input in `affine` alone.

    Source: Mujika, Meier & Steger 2017, Fast-Slow Recurrent Neural Networks, arXiv 1705.08639.
    Raises: ValueError for a depth below 2.
    """
    if not isinstance(depth, int):
        raise TypeError(f"depth should be a whole number, got {depth!r}")
    if depth < 2:
        raise ValueError(f"depth should be at least 2: the slow cell is between the first and the second fast one; got {depth}")
    both = [*_named(_states(fast_slow, fast), "fast"), *_named(_states(fast_slow, slow, above=True), "slow")]
    names = [state.name for state in fast.signature.states]
    own = len(names)

    def step(x: Symbol, *states: Symbol) -> tuple[Symbol, State]:
        with scope("fast0"):
            y, state = fast(x, *states[:own])
        with scope("slow"):
            between, later = slow(y, *states[own:])
        for level in range(1, depth):
            with scope(f"fast{level}"):
                own_states = [state.values[name] for name in names]
                y, state = fast(between, *own_states) if level == 1 else _without_input(fast, own_states)
        fast_states = {f"fast_{name}": value for name, value in state.values.items()}
        return y, State(**fast_states, **{f"slow_{name}": value for name, value in later.values.items()})

    return _made(fast_slow, (fast, slow, depth), step, fast.signature.inputs, both)


def _without_input(fast: Cell, states: Sequence[Symbol]) -> tuple[Symbol, State]:
    try:
        return fast(None, *states)
    except (CellError, LookupError, AttributeError, TypeError) as error:  # the same call with an input has succeeded
        needs = f"fast_slow: the fast cell {fast.name!r} cannot do without its input, as those above the second must"
        raise CellError(f"{needs}: {error}") from None


def _check(wrapper: Callable[..., Cell], cell: Any) -> None:
    if not isinstance(cell, Cell):
        raise TypeError(f"{wrapper.__name__} takes a Cell, got a {type(cell).__name__} (cells.load finds one by its name)")


def _check_same(wrapper: Callable[..., Cell], cell: Cell, output: Symbol, input: Symbol | None) -> None:
    if input is None:
        raise CellError(f"{wrapper.__name__} of cell {cell.name!r} needs an input at every step, and here is none")
    if output.shape != input.shape:
        sides = f"cell {cell.name!r} makes {shape_text(output.shape)} of {shape_text(input.shape)}"
        raise CellError(f"{wrapper.__name__} needs an output of the input's size, and {sides}")


def _own_scope(name: str, owner: object) -> str:
    """A scope for a wrapper's own parameters: its name, or that with a number, which nothing else has taken."""
    tracer = current(name)
    candidates = (name if k == 1 else f"{name}{k}" for k in count(1))
    return next(c for c in candidates if tracer.scopes.setdefault(f"{tracer.prefix}{c}_", owner) is owner)


def _around(wrapper: Callable[..., Cell], cell: Cell, step: Callable[..., Any]) -> Cell:
    """A cell whose input has the size of its output, hidden."""
    _check(wrapper, cell)
    (name, (size,)), *further = cell.signature.inputs
    hidden = {str(size): Dim.of("hidden")}
    inputs = [(name, (Dim.of("hidden"),)), *((n, tuple(d.within(hidden) for d in shape)) for n, shape in further)]
    return _made(wrapper, (cell,), step, inputs, _of_sizes(cell.signature.states, hidden), cell)


def _with_rule(wrapper: Callable[..., Cell], cell: Cell, rule: ProductRule, changes: str, *options: str) -> Cell:
    """`changes`: what the rule is for, in the message for a cell that has none of it."""
    _check(wrapper, cell)

    def step(*arguments: Symbol, **hypers: Any) -> tuple[Symbol, State]:
        with products(rule):
            result = cell(*arguments, **hypers)
        if rule not in current(wrapper.__name__).applied:
            raise CellError(f"{wrapper.__name__} changes nothing of cell {cell.name!r}, which has no {changes}")
        return result

    return _made(wrapper, (cell, *options), step, cell.signature.inputs, cell.signature.states, cell)


def _made(
    wrapper: Callable[..., Cell],
    arguments: Sequence[Any],
    step: Callable[..., Any],
    inputs: Sequence[tuple[str, Shape]],
    states: Sequence[ir.State],
    like: Cell | None = None,
) -> Cell:
    """`like` gives the order of inputs and states, and the hyper-parameters."""
    described = [a.name if isinstance(a, Cell) else repr(a) for a in arguments]
    order = like.signature.order if like else (inputs[0][0], *(state.name for state in states))
    hypers = tuple(pair for pair in like.signature.hypers if not _counts(like, *pair)) if like else ()
    papers = [a.paper for a in arguments if isinstance(a, Cell) and a.paper]
    source = (inspect.getdoc(wrapper) or "").partition("Source: ")[2].partition("\n")[0]  # none under `python -OO`
    return Cell(
        step,
        f"{wrapper.__name__}({', '.join(described)})",
        "; ".join(dict.fromkeys([*papers, source.rstrip(".")])),
        Signature(tuple(inputs), tuple(states), hypers, order),
        made_by=(wrapper, tuple(arguments)),
    )


def _counts(cell: Cell, name: str, value: Any) -> bool:
    """Whether a hyper-parameter says how many states a cell has: a wrapper has as many as it has by default."""
    if not cell.signature.counted or type(value) is not int:
        return False
    more = {**dict(cell.signature.hypers), name: value + 1}
    return cell.signature_with(more).states != cell.signature.states


def _states(wrapper: Callable[..., Cell], cell: Cell, above: bool = False) -> list[ir.State]:
    """Those of a cell within others; of one `above` another the input has the size `hidden`. Raises: CellError for a cell whose
    further per-step inputs would have no place.
    """
    _check(wrapper, cell)
    if len(cell.signature.inputs) > 1:
        further = ", ".join(name for name, _ in cell.signature.inputs[1:])
        raise CellError(f"cell {cell.name!r} has per-step inputs ({further}), which cells made of several cells have not")
    size = str(cell.signature.inputs[0][1][0])
    return _of_sizes(cell.signature.states, {size: Dim.of("hidden")} if above else {})


def _of_sizes(states: Sequence[ir.State], sizes: Mapping[str, Dim]) -> list[ir.State]:
    return [replace(state, shape=tuple(dim.within(sizes) for dim in state.shape)) for state in states]


def _named(states: Sequence[ir.State], prefix: str) -> list[ir.State]:
    return [replace(state, name=f"{prefix}_{state.name}") for state in states]
