"""What `anyrnn show` prints of a cell: its equations, its plan, its code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from anyrnn.errors import MissingExtraError, UnsupportedError
from anyrnn.ir import show
from anyrnn.ir.dims import Dim, shape_text
from anyrnn.ir.graph import Graph, Node, reachable
from anyrnn.ir.names import LEAVES, Names, gate_rows, written_inputs
from anyrnn.ir.notation import Name, Text
from anyrnn.passes.adjoint import adjoint
from anyrnn.passes.compile import Plan, plan
from anyrnn.passes.plan import Kernel, Program, Stage
from anyrnn.trace import Cell

PROGRAMS = ("inference", "training", "backward")


def render(cell: Cell, what: Literal["text", "plan", "latex", "llvm", "assembly"] = "text") -> str:
    """What a cell becomes, as text.

    Args:
        what: `text` for its sizes, parameters, states and equations, `latex` for the equations as a LaTeX block, `plan` for the
            stages of its programs, `llvm` for the code of its float32 kernels on this machine, `assembly` for their instructions.

    Raises: CellError when the cell cannot be traced; UnsupportedError for an equation of too many ops; ValueError for another
    `what`.

    Example:
        >>> from anyrnn import cells
        >>> print(render(cells.rnn_tanh, "latex"))
        \\begin{aligned}
          h_t &= \\tanh(W_{hx} x_t + W_{hh} h_{t-1} + b_{hx} + b_{hh}) \\\\
          y_t &= h_t
        \\end{aligned}
    """
    if what not in ("text", "plan", "latex", "llvm", "assembly"):
        raise ValueError(f"what should be text, plan, latex, llvm or assembly, got {what!r}")
    graph = cell.trace()
    if what == "plan":
        return plan_text(plan(graph))
    if what in ("llvm", "assembly"):
        return code_text(plan(graph), what == "assembly")
    try:
        return show.latex(graph) if what == "latex" else _description(cell, graph)
    except RecursionError:
        long = "has an equation of too many ops to be written: give some of its values names"
        raise UnsupportedError(f"cell {cell.name!r} {long}") from None


def _description(cell: Cell, graph: Graph) -> str:
    def shaped(named: Iterable[tuple[str, tuple[Dim, ...]]]) -> str:
        return ", ".join(f"{name} {shape_text(shape)}" if shape else name for name, shape in named)

    rows = [
        ("paper", cell.paper),
        ("sizes", ", ".join(graph.size_names)),
        ("input", shaped(graph.inputs)),
        ("states", ", ".join(shaped([(s.name, s.shape)]) + (f" (first {s.init:g})" if s.init else "") for s in graph.states)),
        ("output", shaped([("y", graph.nodes[graph.output("y")].shape)])),
        ("hyper-parameters", ", ".join(f"{k} = {getattr(v, '__name__', repr(v))}" for k, v in cell.signature.hypers)),
    ]
    width = max(len(label) for label, value in rows if value)
    lines = [cell.name, *(f"  {label:<{width}}  {value}" for label, value in rows if value), "", "parameters"]
    names = max((len(p.name) for p in graph.parameters), default=0)
    lines += [f"  {p.name:<{names}}  {shape_text(p.shape) if p.shape else 'one number'}" for p in graph.parameters] or ["  none"]
    state = graph.states[0].name
    lines += ["", f"one step ({state}' is the new value of {state})"]
    lines += _indented(show.text(graph).splitlines(), 2)
    lines += ["", "its gradient (d_v is that of v; sums are over all steps and samples)"]
    lines += _indented(show.gradient_text(adjoint(show.with_single_names(graph)), graph).splitlines(), 2)
    return "\n".join(lines)


def _indented(lines: Iterable[str], by: int) -> list[str]:
    return [" " * by + line if line else line for line in lines]


def plan_text(plan: Plan) -> str:
    """What the programs of a plan do: stage by stage, kernel by kernel. `v(t+1)` is v one step later than the current one; of a
    state, the value before the current step is at t.
    """
    lines = [plan.graph.name]
    for weight in plan.phase.computed:
        if plan.phase.nodes[weight.node].op in LEAVES:  # a hyper-parameter, as it is
            continue
        names = Names(plan.phase.nodes, [("", weight.node)], ()).names
        writer = show.Writer(plan.phase.nodes, names, Text(), gate_rows(plan.graph.parameters))
        lines.append(f"  once a call: {weight.name} = {writer.formula(weight.node).text}")
    for name in PROGRAMS:
        lines += ["", *_program(name, getattr(plan, name))]
        if name == "training":
            lines += _saves(plan)
    lines += _gradients(plan)
    return "\n".join(lines)


def _program(title: str, program: Program) -> Iterator[str]:
    barriers = len(program.body) if program.waits else 0
    direction = ", from the last step to the first" if program.reverse else ""
    yield f"{title}{direction}: {_count(program.stages, 'stage')}, {_count(barriers, 'barrier')} a step where columns are split"
    early = _known_before(program)
    if early:
        yield f"  products of {', '.join(early)} need not wait for the steps"
    sections = [
        ("before the steps, for a chunk at once", program.before),
        ("first step, in place of its first stage", (program.entry,) if program.entry else ()),
        ("each step", program.body),
        ("after the last step", (program.exit,) if program.exit else ()),
        ("after the steps, for a chunk at once", program.after),
    ]
    for heading, stages in sections:
        for number, stage in enumerate(stages):
            yield f"  {heading}" + (f", stage {number + 1} of {len(stages)}" if len(stages) > 1 else "")
            for kernel in stage.kernels:
                yield from _indented(_kernel(kernel), 4)
    yield "  memory"
    yield from _indented(_memory(program), 4)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _known_before(program: Program) -> list[str]:
    """Operands of the loop's products that are known before the loop."""
    known = {b.name for b in program.buffers if b.role in ("stream", "cotangent")} | _stored(program.before)
    return [name for name in dict.fromkeys(_operands(program.body)) if name in known]


def _stored(stages: Iterable[Stage]) -> set[str]:
    return {buffer for stage in stages for kernel in stage.kernels for _, buffer, _ in kernel.stores}


def _operands(stages: Iterable[Stage]) -> Iterator[str]:
    for stage in stages:
        for kernel in stage.kernels:
            for i in kernel.affines:
                yield from (kernel.nodes[s].attributes[0] for s in kernel.nodes[i].inputs if kernel.nodes[s].op == "load")


def at(buffer: str, later: int) -> str:
    """A value in memory, of the current step or of another."""
    return f"{buffer}(t{later:+})" if later else buffer


def _kernel(kernel: Kernel) -> Iterator[str]:
    nodes = kernel.nodes
    yield f"{kernel.name} [{kernel.dim}]" if kernel.dim is not None else f"{kernel.name}, one number a sample"
    names = {i: Name(at(*n.attributes) if n.op == "load" else n.attributes[0], "now") for i, n in enumerate(nodes) if _named(n)}
    writer = show.Writer(nodes, names, Text(), {})
    written = [(nodes[i].name, writer.formula(i).text) for i in kernel.affines]
    products = [f"{name} = {formula}" if name else formula for name, formula in written]
    sums = [writer.formula(i).text for i, n in enumerate(nodes) if n.row.kind == "reduction"]
    read = {s for n in nodes if n.op != "affine" for s in n.inputs} | {i for i, _, _ in kernel.stores}
    reads = [at(buffer, later) for i, buffer, later in kernel.loads if i in read]
    stores = [at(buffer, later) for _, buffer, later in kernel.stores]
    for label, values, apart in (("products", products, "\n"), ("sums", sums, "\n"), ("reads", reads, ", ")):
        if values:
            yield from _labelled(label, apart.join(values).splitlines())
    yield from _labelled("computes", [_ops(nodes)] if _ops(nodes) else [])
    yield from _labelled("stores", [", ".join(stores)])


def _named(node: Node) -> bool:
    return node.op == "load" or node.op in LEAVES


def _labelled(label: str, lines: Sequence[str]) -> Iterator[str]:
    for k, line in enumerate(lines):
        yield f"  {label if k == 0 else '':<8}  {line}"


def _ops(nodes: Sequence[Node]) -> str:
    """How many elementwise ops there are, the costly ones by name."""
    ops = [n.row for n in nodes if n.row.kind == "elementwise" and n.per_sample]
    costly = sorted({op.name for op in ops if op.costly})
    counted = [f"{sum(op.name == name for op in ops)} {name}" for name in costly]
    cheap = sum(not op.costly for op in ops)
    return ", ".join(counted + ([f"{cheap} cheap op{'' if cheap == 1 else 's'}"] if cheap else []))


ROLES = {
    "stream": "given",
    "cotangent": "given",
    "output": "wanted",
    "state": "carried",
    "saved": "saved",
    "cross": "from stage to stage",
    "chunk": "for a chunk",
    "sum": "added up over steps",
}


def _memory(program: Program) -> Iterator[str]:
    """The buffers by what they are for and by size."""
    by_use: dict[str, dict[str, list[str]]] = {}
    for buffer in program.buffers:
        size = f"[{buffer.dim}]" if buffer.dim is not None else "one number"
        by_use.setdefault(ROLES[buffer.role], {}).setdefault(size, []).append(buffer.name)
    width = max(map(len, by_use))
    for use, sizes in by_use.items():
        yield f"{use:<{width}}  " + "; ".join(f"{', '.join(names)} {size}" for size, names in sizes.items())


def _saves(plan: Plan) -> Iterator[str]:
    kept = [name for name, _ in plan.saves.kept]
    states = [s.name for s in plan.graph.states]
    yield f"  kept for backward: {', '.join(states)} of every step" + (f", and {', '.join(kept)}" if kept else "")
    again = recomputed(plan)
    yield "  made again in backward: " + (again[0] if again else "nothing")
    yield from _indented(again[1:], 26)


def recomputed(plan: Plan) -> list[str]:
    """What the backward pass computes again, in terms of what is kept."""
    joint, count = plan.adjoint, len(plan.graph.nodes)
    memory = dict(plan.saves.in_memory)
    states = {s.name for s in plan.graph.states}
    names = {i: Name(buffer, "new" if buffer in states and later else "now") for i, (buffer, later) in memory.items()}
    names |= {i: Name(n.attributes[0], "always") for i, n in enumerate(joint.nodes) if n.op in LEAVES and not n.per_sample}
    writer = show.Writer(joint.nodes, names, Text(), gate_rows(plan.graph.parameters))
    roots = joint.roots
    live = reachable(joint.nodes, roots)
    needed = {s for i in live if i >= count for s in written_inputs(joint.nodes, i) if s < count} | {
        r for r in roots if r < count
    }
    again = [i for i in sorted(needed) if i not in memory and joint.nodes[i].per_sample]
    named = [(joint.nodes[i].name, writer.formula(i).text) for i in again]
    return [f"{name} = {formula}" if name else formula for name, formula in named]


def _gradients(plan: Plan) -> Iterator[str]:
    """Which weight gradients are made together: products that share their right side and number of rows, sums of one value."""
    program, shapes = plan.backward, {w.name: w.shape for w in plan.phase.weights}
    together: dict[tuple[str, Dim], list[tuple[str, str]]] = {}
    for product in program.products:
        key = (at(*product.right) + (f", {product.heads} heads" if product.heads > 1 else ""), shapes[product.weight][0])
        together.setdefault(key, []).append((at(*product.left), product.weight))
    sums: dict[str, list[str]] = {}
    for total in program.sums:
        sums.setdefault(at(*total.value), []).append(total.weight)
    if together or sums:
        yield "  gradients, over all steps and samples"
    for (right, _), pairs in together.items():
        yield f"    outer products with {right}"
        yield from (f"      {weight} += {left}" for left, weight in pairs)
    if sums:
        yield "    sums"
        yield from (f"      {', '.join(weights)} += {value}" for value, weights in sums.items())


def code_text(plan: Plan, assembly: bool = False) -> str:
    """The LLVM IR of a plan's programs in float32, for this machine, or their instructions. Raises: UnsupportedError when the
    cell has no kernels.
    """
    try:
        from anyrnn.backends.llvm import target
        from anyrnn.backends.llvm.run import write_code
        from anyrnn.backends.llvm.spelling import unsupported

        target.machine()
    except ImportError as error:
        raise MissingExtraError("the code of kernels is LLVM's, and llvmlite is not installed: pip install llvmlite") from error
    why = plan.why_not(unsupported)
    if why:
        raise UnsupportedError(f"cell {plan.graph.name!r} has no kernels: {why}")
    codes = {name: write_code(plan, name, "float32").text for name in PROGRAMS}
    texts = {name: target.assembly(code) if assembly else code for name, code in codes.items()}
    return "\n".join(f"{'#' if assembly else ';'} {plan.graph.name}, {name}\n{text.rstrip()}\n" for name, text in texts.items())
