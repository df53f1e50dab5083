"""What is wrong with a cell, as far as its graph shows: nothing is computed here."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from anyrnn.ir.graph import Graph, Node, reachable
from anyrnn.ir.names import gate_rows
from anyrnn.trace import Cell, Several
from anyrnn.trace.signature import place


@dataclass(frozen=True)
class Fault:
    """`error`: what is computed is not what was meant, or nothing can be. `warning`: it may be meant."""

    severity: Literal["error", "warning"]
    where: str
    """file:line, or empty"""
    what: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where + ': ' if self.where else ''}{self.what}"


def faults(cell: Cell, graph: Graph) -> Iterator[Fault]:
    """Those of a cell's graph, in the order of the file."""
    found = [*_unread(cell, graph), *_states(cell, graph), *_without_gradient(graph), *_gains(graph)]
    found += [Fault("warning", where, what) for where, what in dict.fromkeys(graph.warnings)]
    return iter(sorted(found, key=lambda fault: _line(fault.where)))


def _line(where: str) -> tuple[str, int]:
    path, _, line = where.rpartition(":")
    return path, int(line) if line.isdigit() else 0


def _outputs(graph: Graph) -> list[int]:
    return [i for _, i in graph.outputs]


def _unread(cell: Cell, graph: Graph) -> Iterator[Fault]:
    """What was made or given, and nothing reads."""
    live = reachable(graph.nodes, _outputs(graph))
    read = {graph.nodes[i].attributes[0] for i in live if graph.nodes[i].op in ("parameter", "input", "state")}
    sources = {n.attributes[0]: n.source for n in graph.nodes if n.op == "parameter"}
    for parameter in graph.parameters:
        if parameter.name not in read:
            yield Fault("error", sources.get(parameter.name, ""), f"parameter {parameter.name!r} is not used")
            continue
        yield from _unread_gates(graph, live, parameter.name)
    for name, _ in graph.inputs:
        if name not in read:
            yield Fault("error", place(cell.function), f"the input {name!r} is not used")
    for name in _unread_names(cell):
        yield Fault("error", place(cell.function), f"hyper-parameter {name!r} is not used")
    used = {s for node in graph.nodes for s in node.inputs}
    for i, node in enumerate(graph.nodes):
        if i not in live and i not in used and node.per_sample and node.name and node.row.kind != "leaf":
            yield Fault("warning", node.source, f"{node.name.removesuffix('_pre')!r} is computed and not used")


def _unread_names(cell: Cell) -> list[str]:
    """The hyper-parameters that the function does not read: with other values of one it may use another."""
    code = getattr(cell.function, "__code__", None)
    if code is None or cell.made_by is not None:
        return []
    loads = [i.argval for i in dis.get_instructions(code) if "LOAD_" in i.opname]
    read = {name for names in loads for name in (names if isinstance(names, tuple) else (names,))} | set(code.co_cellvars)
    notes = inspect.get_annotations(cell.function, eval_str=True).values()
    read |= {note.count for note in notes if isinstance(note, Several)}
    return [name for name, _ in cell.signature.hypers if name not in read]


def _unread_gates(graph: Graph, live: set[int], parameter: str) -> Iterator[Fault]:
    """Rows of a stacked parameter that nothing reads."""
    leaf = next(i for i, n in enumerate(graph.nodes) if n.op == "parameter" and n.attributes[0] == parameter)
    for i, node in enumerate(graph.nodes):
        if node.op == "slice" and node.inputs[0] == leaf and i not in live:
            gate = gate_rows(graph.parameters).get((parameter, *node.attributes), "?")
            yield Fault("error", node.source, f"the rows of gate {gate!r} in {parameter!r} are not used")


def _states(cell: Cell, graph: Graph) -> Iterator[Fault]:
    nodes = graph.nodes
    leaves = {n.attributes[0]: i for i, n in enumerate(nodes) if n.op == "state"}
    live = reachable(nodes, _outputs(graph))
    for state in graph.states:
        new = graph.output(state.name)
        if new == leaves.get(state.name):
            yield Fault("error", place(cell.function), f"state {state.name!r} is returned as it came: it never changes")
        elif leaves.get(state.name) not in live:
            forgotten = "what is returned for it is forgotten, unless return_states='all' asks for it"
            yield Fault("warning", nodes[new].source, f"state {state.name!r} is never read: {forgotten}")
        elif state.shape and not any(nodes[i].op == "input" for i in reachable(nodes, [*_closure(graph, state.name)])):
            yield Fault("warning", nodes[new].source, f"no input ever reaches state {state.name!r}")
    of_y = reachable(nodes, [graph.output("y")])
    if not any(nodes[i].op == "state" for i in of_y):
        where = nodes[graph.output("y")].source or place(cell.function)
        yield Fault("error", where, "the output depends on no state: it remembers nothing")
    needed = _reaching_output(graph)
    for state in graph.states:
        if state.name not in needed and leaves.get(state.name) in live:
            yield Fault("error", nodes[graph.output(state.name)].source, f"state {state.name!r} never reaches the output")


def _closure(graph: Graph, state: str) -> set[int]:
    """The new values of a state and of all states that it depends on."""
    known, pending = set[str](), [state]
    while pending:
        name = pending.pop()
        if name not in known:
            known.add(name)
            below = reachable(graph.nodes, [graph.output(name)])
            pending += [graph.nodes[i].attributes[0] for i in below if graph.nodes[i].op == "state"]
    return {graph.output(name) for name in known}


def _reaching_output(graph: Graph) -> set[str]:
    """The states on which the output of this step or of a later one depends."""
    known: set[str] = set()
    pending = [graph.output("y")]
    while pending:
        for i in reachable(graph.nodes, [pending.pop()]):
            node = graph.nodes[i]
            if node.op == "state" and node.attributes[0] not in known:
                known.add(node.attributes[0])
                pending.append(graph.output(node.attributes[0]))
    return known


def _without_gradient(graph: Graph) -> Iterator[Fault]:
    """Parameters, inputs and states that matter, but to which no gradient comes."""
    nodes = graph.nodes
    live, smooth = reachable(nodes, _outputs(graph)), _differentiably(graph)
    trained = {p.name: p.trained for p in graph.parameters}
    for i in sorted(live - smooth):
        node = nodes[i]
        if node.op == "parameter" and trained[node.attributes[0]]:
            who = f"parameter {node.attributes[0]!r}"
        elif node.op == "state":
            who = f"state {node.attributes[0]!r}"
        elif node.op == "input" and node.attributes[0] == graph.inputs[0][0]:
            who = f"the input {node.attributes[0]!r}"
        else:
            continue
        blocks = sorted(_blocks(nodes, i, live), key=lambda k: _line(nodes[k].source))
        through = " and ".join(dict.fromkeys(_called(nodes[k]) for k in blocks))
        where = nodes[blocks[0]].source if blocks else node.source
        severity: Literal["error", "warning"] = "warning" if all(nodes[k].op == "stop_gradient" for k in blocks) else "error"
        yield Fault(severity, where, f"no gradient reaches {who}: all that reads it goes through {through}")


def _gains(graph: Graph) -> Iterator[Fault]:
    """Vectors that a normalised value is multiplied by, and that begin where the layer's other parameters do."""
    nodes, usual = graph.nodes, {p.name for p in graph.parameters if p.init is None and len(p.shape) == 1}
    for node in nodes:
        for gain, value in (node.inputs, node.inputs[::-1]) if node.op == "mul" else ():
            name = nodes[gain].attributes[0] if nodes[gain].op == "parameter" else ""
            if name in usual and _is_normalised(nodes, value):
                begins = "begins within 1 / sqrt(hidden) of zero, and shrinks what was normalised"
                yield Fault("warning", node.source, f"the gain {name!r} {begins}: begin at one, vector({name!r}, init=1.0)")


def _is_normalised(nodes: Sequence[Node], i: int) -> bool:
    """Whether it is a `norm`, or divided by a root as in `rms_norm`."""
    node = nodes[i]
    return node.op == "norm" or (node.op == "div" and nodes[node.inputs[1]].op == "sqrt")


def _called(node: Node) -> str:
    return {"less": "a test (< or >)", "equal": "a test (equal)"}.get(node.op, node.op)


def _ends_gradient(node: Node) -> bool:
    return node.row.jumps or node.op == "stop_gradient"


def _differentiably(graph: Graph) -> set[int]:
    """What the outputs depend on through derivatives."""
    seen: set[int] = set()
    stack = _outputs(graph)
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        node = graph.nodes[i]
        if not _ends_gradient(node):
            stack += node.inputs[1:] if node.op == "where" else node.inputs
    return seen


def _blocks(nodes: tuple[Node, ...], start: int, live: set[int]) -> Iterator[int]:
    """The ops behind a value at which its gradient ends."""
    seen, pending = set[int](), [start]
    while pending:
        i = pending.pop()
        for k in live:
            if i in nodes[k].inputs and k not in seen:
                seen.add(k)
                if _ends_gradient(nodes[k]):
                    yield k
                else:
                    pending.append(k)
