from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.mathtext import MathTextParser

from anyrnn import cells
from anyrnn.ir.dims import Dim
from anyrnn.ir.graph import Graph
from anyrnn.ir.interpret import Interpreter
from anyrnn.ir.names import gate_rows
from anyrnn.ir.notation import Latex, Name, Rows
from anyrnn.ir.show import gradient_text, latex, text
from anyrnn.ir.symbol import Symbol
from anyrnn.passes.adjoint import adjoint
from anyrnn.passes.simplify import simplify
from anyrnn.trace import Scalar, State, Vec, cell
from anyrnn.trace.language import (
    affine,
    concat,
    cos,
    equal,
    exp,
    floor,
    matrix,
    maximum,
    norm,
    sigmoid,
    split,
    stop_gradient,
    tanh,
    total,
    vector,
    where,
)
from tests.zoo import EVERY, FEW, sizes_of

HIDDEN = (Dim.of("hidden"),)

# Cells that use what the built-in ones do not.


@cell
def antisymmetric(x, h, *, eps=0.25, gamma=0.125):
    W = matrix("W")
    W = W - W.T
    h = h + eps * tanh(W @ h - gamma * h + affine("h", x))
    return h, State(h=h)


@cell
def highway(x, h, *, depth=3):
    for k in range(depth):
        s = matrix(f"V_{k}") @ h
        t = sigmoid(s) if k else sigmoid(s + affine("t", x))
        h = h * (1 - t) + tanh(s) * t
    return h, State(h=h)


@cell
def stacked(x, h, c):
    v = norm(affine("i f g o", x, bias=False)) + norm(affine("i f g o", h, bias=False), eps=0.5)
    i, f, g, o = split(v, 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(norm(c))
    return h, State(h=h, c=c)


@cell
def heads(x, h, c, n: Vec(init=1), m):
    i = affine("i", x) + affine("i", h, heads=2, bias=False)
    f = affine("f", x) + affine("f", h, heads=2, bias=False)
    m_new = maximum(f + m, i)
    i, f = exp(i - m_new), exp(f + m - m_new)
    c = f * c + i * tanh(affine("z", x))
    n = f * n + i
    h = c / n
    return h, State(h=h, c=c, n=n, m=m_new)


@cell
def ticking(x, h, t: Scalar()):
    k = t / vector("period")
    on = equal(k - floor(k), 0.0)
    h = where(on, tanh(affine("h", x, h)), h)
    h_tilde = abs(-h) ** 2
    return 2.5e-7 * h_tilde - 3, State(h=h, t=t + 1)


@cell
def complex_state(x, re, im):
    r, theta = exp(-exp(vector("nu"))), exp(vector("theta"))
    a, b = r * cos(theta), r * -theta
    u = affine("u", x)
    re, im = a * re - b * im + u, a * im + b * re - u
    return matrix("C") @ re - matrix("D").T @ (im / total(re)), State(re=re, im=im)


@cell
def twice(x, h):
    u = affine("u", x, h)
    y = concat(u * tanh(u), -(u / h))
    return y, State(h=tanh(u) - (u - h))


OTHERS = {c.name: c for c in (antisymmetric, highway, stacked, heads, ticking, complex_state, twice)}
ALL = {name: cells.load(name) for name in cells.names()} | OTHERS
NAMES = [*EVERY, *OTHERS]


@pytest.fixture(params=NAMES, scope="module")
def graph(request: pytest.FixtureRequest) -> Graph:
    return ALL[request.param].trace()


@pytest.mark.parametrize("name", [*FEW, *OTHERS])
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    graph = ALL[name].trace()
    golden(name, f"{text(graph)}\n\n{latex(graph)}")


# The text means what it says: it is run as Python and gives the numbers that the graph gives, bit by bit.


class Value:
    """An array with the operators of the text."""

    def __init__(self, array: Any, rows: Callable[[str], Any] | None = None) -> None:
        self.array, self.rows = np.asarray(array), rows

    def __getitem__(self, key: str) -> Value:
        if self.rows:
            return Value(self.rows(key))
        begin, end = (eval(side, {}, SIZES) for side in key.split(":"))
        return Value(self.array[..., begin:end])

    def __matmul__(self, other: Value) -> Value:
        return Value(other.array @ self.array.T)

    def __add__(self, other: Any) -> Value:
        return Value(self.array + Value.of(other))

    def __radd__(self, other: Any) -> Value:
        return Value(other + self.array)

    def __sub__(self, other: Any) -> Value:
        return Value(self.array - Value.of(other))

    def __rsub__(self, other: Any) -> Value:
        return Value(other - self.array)

    def __mul__(self, other: Any) -> Value:
        return Value(self.array * Value.of(other))

    def __rmul__(self, other: Any) -> Value:
        return Value(other * self.array)

    def __truediv__(self, other: Any) -> Value:
        return Value(self.array / Value.of(other))

    def __rtruediv__(self, other: Any) -> Value:
        return Value(other / self.array)

    def __pow__(self, other: int) -> Value:
        return Value(self.array * self.array)

    def __neg__(self) -> Value:
        return Value(-self.array)

    def __lt__(self, other: Any) -> Value:
        return Value(self.array < Value.of(other))

    def __gt__(self, other: Any) -> Value:
        return Value(self.array > Value.of(other))

    def __eq__(self, other: object) -> Any:
        return Value(self.array == Value.of(other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def T(self) -> Value:
        return Value(self.array.T)

    @staticmethod
    def of(value: Any) -> Any:
        return value.array if isinstance(value, Value) else value


def blocks(matrix: Value, heads: int) -> Value:
    parts = np.split(matrix.array, heads)
    rows, columns = parts[0].shape
    whole = np.zeros((rows * heads, columns * heads))
    for k, part in enumerate(parts):
        whole[k * rows : (k + 1) * rows, k * columns : (k + 1) * columns] = part
    return Value(whole)


def functions() -> dict[str, Any]:
    from anyrnn.ir.ops import ELEMENTWISE

    def lifted(meaning: Callable[..., Any]) -> Callable[..., Value]:
        return lambda *values: Value(meaning(np, *(np.asarray(Value.of(v)) for v in values)))

    named = {op.name: lifted(op.meaning) for op in ELEMENTWISE if op.meaning}
    named["sum"] = lambda v: Value(v.array.sum(-1)[..., None])
    named["mean"] = lambda v: Value(v.array.sum(-1)[..., None] / v.array.shape[-1])
    named["concat"] = lambda *parts: Value(np.concatenate([p.array for p in parts], -1))
    return named | {"blockdiag": blocks}


def run_text(graph: Graph, leaves: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """The values of all lines of a graph's text."""
    gates = gate_rows(graph.parameters)

    def part(name: str, key: str) -> Any:
        array = leaves[name] if name in leaves else scope[name].array
        if ":" in key:
            begin, end = (eval(side, {}, sizes) for side in key.split(":"))
            return array[begin:end] if name in leaves else array[..., begin:end]
        ((offset, size),) = [(o, s) for (parameter, o, s), gate in gates.items() if (parameter, gate) == (name, key)]
        return array[offset.evaluate(sizes) : (offset + size).evaluate(sizes)]

    scope: dict[str, Any] = {**sizes, **functions()}
    scope |= {name: Value(array, lambda key, name=name: part(name, key)) for name, array in leaves.items()}
    lines = [line.split(" = ", 1) for line in text(graph).splitlines()]
    norms = re.compile(r"(norm\d*)\((\w)\)")
    for left, right in sorted(lines, key=lambda line: not norms.fullmatch(line[0].strip())):
        code = re.sub(r"\[([^\]]+)\]", r'["\1"]', right).replace("·", " @ ").replace("'", "_new")
        name = left.strip().replace("'", "_new")
        if norm_of := norms.fullmatch(name):
            scope[norm_of[1]] = eval(f"lambda {norm_of[2]}: {code}", scope)
        else:
            value = eval(code, scope)
            scope[name] = Value(Value.of(value), lambda key, name=name: part(name, key))
    return {name: value.array for name, value in scope.items() if isinstance(value, Value)}


SIZES = {"input": 3, "hidden": 4} | {name: 2 for cell in ALL.values() for name in sizes_of(cell)}


def drawn(graph: Graph) -> dict[str, Any]:
    random = np.random.default_rng(7)
    shapes = [((5,), name, shape) for name, shape in graph.inputs] + [((5,), s.name, s.shape) for s in graph.states]
    shapes += [((), p.name, p.shape) for p in graph.parameters]
    arrays = {
        name: random.normal(size=(*batch, *(d.evaluate(SIZES) for d in (shape or ((Dim.of(1),) if batch else ())))))
        for batch, name, shape in shapes
    }
    return arrays | {name: np.asarray(0.3) for name in graph.hypers}


def run_graph(graph: Graph, leaves: dict[str, Any]) -> dict[str, Any]:
    values = {
        i: leaves[n.attributes[0]] for i, n in enumerate(graph.nodes) if n.row.kind == "leaf" and n.op not in ("constant", "size")
    }
    Interpreter(np, np.asarray, SIZES).run(graph.nodes, values, [i for _, i in graph.outputs])
    return {name: values[i] for name, i in graph.outputs}


def test_the_text_is_what_is_computed(graph: Graph) -> None:
    leaves = drawn(graph)
    written, meant = run_text(graph, leaves, SIZES), run_graph(graph, leaves)
    for name, value in meant.items():
        found = written[name if name == "y" else f"{name}_new"]
        if any(heads > 1 for n in graph.nodes if n.op == "affine" for _, heads in n.attributes):
            np.testing.assert_allclose(found, value, rtol=1e-13)
        else:
            np.testing.assert_array_equal(found, value)


BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: maximum(a, b),
    lambda a, b: where(a > b, a, b),
    lambda a, b: matrix("M") @ a + b,
]
UNARY: list[Callable[[Any], Any]] = [lambda a: -a, abs, tanh, norm, lambda a: a**2, lambda a: a - 1, lambda a: -2.5 * a]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=12))
def test_parentheses_are_right(choices: list[tuple[int, int, int]]) -> None:
    def drawn_cell(x: Any, h: Any) -> Any:
        values: list[Symbol] = [x, h, vector("p")]
        for op, first, second in choices:
            a, b = values[first % len(values)], values[second % len(values)]
            made = BINARY[op](a, b) if op < len(BINARY) else UNARY[op - len(BINARY)](a) if op < 13 else a
            values.append(made if isinstance(made, Symbol) and made.shape == h.shape else values[0])
        return values[-1] + 0 * x, State(h=values[-1] * x)

    drawn_cell.__annotations__ = {"x": Vec("hidden")}
    graph = cell(drawn_cell).trace()
    leaves = drawn(graph)
    with np.errstate(all="ignore"):
        written, meant = run_text(graph, leaves, SIZES), run_graph(graph, leaves)
    np.testing.assert_array_equal(written["h_new"], meant["h"])


def test_no_parentheses_that_do_nothing() -> None:
    @cell
    def one(x: Vec("hidden"), h):
        return (x + h) * x - (x * h) - (x - h) / (x * h) + (-x), State(h=x * (h * x) * h + (x + h))

    assert text(one.trace()) == "h' = x * (h * x) * h + (x + h)\ny  = (x + h) * x - x * h - (x - h) / (x * h) - x"


# names


def test_names_follow_the_function() -> None:
    lines = dict(re.split(r"\s*= ", line, maxsplit=1) for line in text(highway.trace()).splitlines())
    assert list(lines) == ["s_1", "t_1", "h_1", "s_2", "t_2", "h_2", "s_3", "t_3", "h'", "y"]
    assert lines["h_2"] == "h_1 * (1 - t_2) + tanh(s_2) * t_2"
    assert lines["h'"] == "h_2 * (1 - t_3) + tanh(s_3) * t_3"


def test_a_name_that_looks_like_a_version_is_kept() -> None:
    @cell
    def mine(x: Vec("hidden"), h):
        t_1 = x * 2
        t = t_1 + h
        t = tanh(t) + t_1
        return t, State(h=t)

    assert text(mine.trace()) == "t_1 = x * 2\nt   = t_1 + h\nh'  = tanh(t) + t_1\ny   = h'"

    @cell
    def more(x: Vec("hidden"), h):
        t_1 = x * 2
        t = t_1 + h
        t = tanh(t) + t_1
        u = t - 1
        return u, State(h=u)

    assert [line.split(" ")[0] for line in text(more.trace()).splitlines()] == ["t_1", "t_2", "t_3", "h'", "y"]


def test_outputs_that_are_called_something_else() -> None:
    @cell
    def shared(x: Vec("hidden"), h, last):
        u = tanh(x + h)
        return u, State(h=u, last=x)

    @cell
    def out(x: Vec("hidden"), h):
        result = x * h
        return result, State(h=h)

    assert text(shared.trace()) == "h'    = tanh(x + h)\nlast' = x\ny     = h'"
    assert text(out.trace()) == "result = x * h\nh'     = h\ny      = result"


def test_no_value_shares_its_name_with_an_output_that_is_called_something_else() -> None:
    @cell
    def renamed(x, h):
        y = tanh(affine("a", x))
        h = tanh(affine("b", y, h))
        return h, State(h=h)

    left = [line.split(" = ")[0].strip() for line in text(renamed.trace()).splitlines()]
    assert len(left) == len(set(left)), left


def test_an_unnamed_value_that_is_used_twice_has_a_line_when_it_is_long() -> None:
    @cell
    def short(x: Vec("hidden"), h):
        return (1 - x) * h + tanh(1 - x), State(h=h)

    @cell
    def long(x: Vec("hidden"), h):
        return exp(-abs(x)) * tanh(exp(-abs(x))), State(h=h)

    assert text(short.trace()).splitlines()[0] == "y  = (1 - x) * h + tanh(1 - x)"
    assert re.search(r"^(v\d+) += exp\(-abs\(x\)\)$", text(long.trace()), re.MULTILINE)


def test_norms_of_different_eps_are_told_apart() -> None:
    lines = text(stacked.trace()).splitlines()
    assert [line.split(" ")[0] for line in lines if "(" in line.split("=")[0]] == ["norm(u)", "norm2(u)"]
    assert lines[0].endswith("= norm(weight_ih·x) + norm2(weight_hh·h)")


@cell
def fixed(x, h):
    W = matrix("W", trained=False)
    h = tanh(W @ h + affine("h", x) + vector("b", trained=False) * stop_gradient(vector("c")) * vector("c"))
    return h, State(h=h)


def test_parameters_that_are_not_trained_are_written_as_they_are() -> None:
    assert text(fixed.trace()).splitlines()[0] == "h' = tanh(W·h + (weight_ih·x + bias_ih) + b * stop_gradient(c) * c)"
    assert latex(fixed.trace()).splitlines()[1].startswith("  h_t &= \\tanh(W h_{t-1} + ")


def test_no_gradient_of_them_is_made() -> None:
    lines = gradient_text(adjoint(simplify(fixed.trace())), fixed.trace()).splitlines()
    lefts = [line.split(" = ")[0].strip() for line in lines]
    assert lefts == ["d_h_1", "d_h_pre", "d_h", "d_x", "d_weight_ih", "d_bias_ih, d_(b * stop_gradient(c) * c)"]


# LaTeX


def mathtext(equation: str) -> None:
    """Have matplotlib parse an equation; it knows neither alignment nor cases."""
    part = r"((?:(?!\\begin).)*?)"  # those within others come first
    cases = rf"\\begin\{{cases\}} {part} & \\text\{{if \}} {part} \\\\ {part} & \\text\{{otherwise\}} \\end\{{cases\}}"
    plain, more = equation, 1
    while more:
        plain, more = re.subn(cases, r"{\1 if \2 else \3}", plain)
    MathTextParser("path").parse(f"${plain.replace('&=', '=')}$")


def equations_of(block: str) -> list[str]:
    begin, *lines, end = block.splitlines()
    assert (begin, end) == (r"\begin{aligned}", r"\end{aligned}")
    assert all(line.endswith(r" \\") for line in lines[:-1])
    return [line.removesuffix(r" \\") for line in lines]


def test_latex_is_valid(graph: Graph) -> None:
    for equation in equations_of(latex(graph)):
        assert equation.count("&=") == 1
        assert len(re.findall(r"(?<!\\)\{", equation)) == len(re.findall(r"(?<!\\)\}", equation))
        assert equation.count(r"\left") == equation.count(r"\right")
        mathtext(equation)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        (Name("h", "before"), "h_{t-1}"),
        (Name("h", "new"), "h_t"),
        (Name("h", "now", 2), "h_t^{(2)}"),
        (Name("h_tilde", "now"), r"\tilde{h}_t"),
        (Name("u2", "now"), "u_{2,t}"),
        (Name("alpha", "always"), r"\alpha"),
        (Name("alpha_x", "now"), r"\alpha_{x,t}"),
        (Name("Gamma", "always"), r"\mathrm{Gamma}"),
        (Name("peephole_i", "always"), r"\mathrm{peephole}_i"),
        (Name("weight_hr", "always"), r"W_{\mathrm{hr}}"),
        (Name("_", "now"), r"\__t"),
    ],
)
def test_latex_names(name: Name, written: str) -> None:
    assert Latex("x").name(name) == written
    mathtext(written)


@pytest.mark.parametrize(
    ("rows", "written"),
    [
        (Rows("weight_ih", "i", Dim(), HIDDEN[0], False), "W_{ix}"),
        (Rows("weight_hh", "i", Dim(), HIDDEN[0], True), "W_{ih}"),
        (Rows("bias_mh", "gate", Dim(), HIDDEN[0], False), r"b_{\mathrm{gate},m}"),
        (Rows("weight_ih", "i_f_g_o", Dim(), HIDDEN[0] * 4, True), "W_{ifgo,x}"),
        (Rows("a_weight_hh", "i", Dim(), HIDDEN[0], False), "W_{ih}^{a}"),
        (Rows("low_2_bias_ih", "i", Dim(), HIDDEN[0], False), r"b_{ix}^{\mathrm{low},2}"),
        (Rows("weight_lowh", "i", Dim(), HIDDEN[0], False), r"W_{i,\mathrm{low}}"),
        (Rows("B", None, HIDDEN[0], HIDDEN[0], False), r"{B}_{[\mathrm{hidden}:2 \, \mathrm{hidden}]}"),
    ],
)
def test_latex_rows(rows: Rows, written: str) -> None:
    assert Latex("x").rows(rows) == written
    mathtext(written)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 0.1, 1e-5, 2.5e-7, -1e300, float("inf"), float("-inf"), float("nan")])
def test_latex_numbers(value: float) -> None:
    written = Latex("x").number(value).text
    mathtext(written)
    number = re.fullmatch(r"(?:(-?[\d.]+)(?: \\cdot )?)?(?:10\^\{(-?\d+)\})?", written)
    if np.isfinite(value):
        assert number is not None
        assert float(number[1] or 1) * 10.0 ** int(number[2] or 0) == pytest.approx(value, rel=1e-12)


# gradients


@pytest.mark.parametrize("name", ["rnn_tanh", "lstm", "gru_before", "lstm_layernorm", "stacked"])
def test_golden_gradient(name: str, golden: Callable[[str, str], None]) -> None:
    graph = ALL[name].trace()
    golden(f"{name}_gradient", gradient_text(adjoint(simplify(graph)), graph))


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_has_no_name_that_nothing_explains(name: str) -> None:
    graph = ALL[name].trace()
    written = gradient_text(adjoint(simplify(graph)), graph)
    explained = {
        left.strip() for part in (written, text(graph)) for line in part.splitlines() for left in line.split(" = ")[0].split(",")
    }
    unnamed = set(re.findall(r"\bv\d+\b", written))
    assert unnamed <= explained
