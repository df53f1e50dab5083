from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import pytest

import anyrnn.torch
from anyrnn import MissingExtraError, UnsupportedError, cells, show
from anyrnn.passes.adjoint import differentiable
from anyrnn.passes.compile import plan
from anyrnn.trace import Scalar, State, Step, Vec, cell
from anyrnn.trace.language import affine, matrix, norm, sigmoid, tanh, vector
from tests.zoo import EVERY, FEW

PROGRAMS = ("inference", "training", "backward")


@pytest.mark.parametrize("name", FEW)
def test_golden_plan(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}_plan", show.render(cells.load(name), "plan"))


@pytest.mark.parametrize("name", FEW)
def test_golden_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(name, show.render(cells.load(name)))


@pytest.mark.parametrize("name", EVERY)
def test_a_plan_says_what_its_programs_hold(name: str) -> None:
    made = plan(cells.load(name).trace())
    text = show.plan_text(made)
    for which in PROGRAMS:
        program = getattr(made, which)
        (heading,) = re.findall(rf"^{which}\b.*", text, re.MULTILINE)
        stages, barriers = re.findall(r"(\d+|no) (?:stage|barrier)", heading)
        assert int(stages.replace("no", "0")) == program.stages
        assert int(barriers.replace("no", "0")) == (len(program.body) if program.waits else 0)
    stores = {buffer for which in PROGRAMS for buffer in getattr(made, which).buffers}
    assert all(re.search(rf"\b{re.escape(buffer.name)}\b", text) for buffer in stores)
    trained = differentiable(made.phase.nodes)
    for weight in made.phase.weights:
        has_gradient = re.search(rf"(?<![\w.]){re.escape(weight.name)}(\[\w+\])?(, .*)? \+= ", text) is not None
        assert has_gradient == trained[weight.node], weight.name


def test_a_plan_has_nothing_of_this_run_in_it() -> None:
    text = "".join(show.render(cells.load(name), "plan") for name in FEW)
    assert not re.search(r"0x[0-9a-f]+|<.* object|Node\(|Dim\(|Fraction\(", text)
    program = f"from anyrnn import cells, show; print(*(show.render(cells.load(n), 'plan') for n in {FEW}), sep='', end='')"
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
        assert run.stdout.decode() == text


@cell(paper="nobody 2000")
def unusual(x, h: Vec("hidden", init=1.5), t: Scalar(), dt: Step(2), *, depth=2, rate=0.5, activation=tanh):
    W = matrix("W")
    A = W - W.T
    h = activation(A @ h + affine("h", x) + affine("h", dt)) * rate + vector("p") * t
    return h, State(h=h, t=t + depth)


def test_the_description_of_a_cell() -> None:
    described = show.render(unusual).splitlines()
    end = described.index("its gradient (d_v is that of v; sums are over all steps and samples)")
    assert described[: end - 1] == [
        "unusual",
        "  paper             nobody 2000",
        "  sizes             input, hidden",
        "  input             x [input], dt [2]",
        "  states            h [hidden] (first 1.5), t",
        "  output            y [hidden]",
        "  hyper-parameters  depth = 2, rate = 0.5, activation = tanh",
        "",
        "parameters",
        "  weight_ih   [hidden, input]",
        "  weight_dth  [hidden, 2]",
        "  bias_ih     [hidden]",
        "  bias_dth    [hidden]",
        "  W           [hidden, hidden]",
        "  p           [hidden]",
        "",
        "one step (h' is the new value of h)",
        "  A  = W - W.T",
        "  h' = tanh(A·h + (weight_ih·x + bias_ih) + (weight_dth·dt + bias_dth)) * rate + p * t",
        "  t' = t + 2",
        "  y  = h'",
    ]


def test_the_plan_of_a_parameter_phase() -> None:
    text = show.render(unusual, "plan")
    assert "  once a call: A = W - W.T\n" in text
    assert "A += " in text


def test_latex_of_a_cell() -> None:
    assert show.render(cells.lstm, "latex").splitlines()[1:3] == [
        r"  i_t &= \sigma(W_{ix} x_t + W_{ih} h_{t-1} + b_{ix} + b_{ih}) \\",
        r"  f_t &= \sigma(W_{fx} x_t + W_{fh} h_{t-1} + b_{fx} + b_{fh}) \\",
    ]


@pytest.mark.parametrize("name", ["lstm", "lstm_layernorm"])
def test_the_code_of_a_cell_is_llvm_ir(name: str) -> None:
    text = show.render(cells.load(name), "llvm")
    parts = re.split(rf"^; {name}, (\w+)\n", text, flags=re.MULTILINE)[1:]
    assert tuple(parts[::2]) == PROGRAMS
    for code in parts[1::2]:
        llvm.parse_assembly(code).verify()


def test_what_is_printed_can_be_printed_anywhere() -> None:
    """Windows' western code page and Latin-1 have all its characters."""
    for name in cells.names():
        for what in ("text", "plan", "latex"):
            show.render(cells.load(name), what).encode("latin-1")  # type: ignore[arg-type]


def test_showing_equations_needs_no_compiler() -> None:
    program = (
        "import sys; from anyrnn import cells, show; [show.render(cells.lstm, what) for what in ('text', 'plan', 'latex')]; "
        "print([m for m in ('llvmlite', 'torch', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", cells.names())
def test_a_gradient_is_made_of_what_is_printed(name: str) -> None:
    """Every name on the right is one on the left of a line above, or of an argument, a parameter, a size or a function."""
    graph = cells.load(name).trace()
    text = show.render(cells.load(name)).partition("\none step")[2].partition("\n")[2]
    known = {n for n, _ in graph.inputs} | {s.name for s in graph.states} | {p.name for p in graph.parameters}
    known |= {*graph.size_names, *graph.hypers, "d_y", "T", "sum", "of"} | {f"d_{s.name}'" for s in graph.states}
    known |= {gate for p in graph.parameters for gate, _ in p.gates}
    for line in text.splitlines():
        left, equals, right = line.partition(" = ")
        if not equals:
            continue
        bound = set(re.findall(r"^norm\d*\((\w+)\)", left.strip()))
        used = set(re.findall(r"[^\W\d][\w']*(?!\()(?![\w'])", re.sub(r"\[[^\]]*\]|\d[\d.]*e[-+]\d+", "", right)))
        assert used <= known | bound, line
        known |= set(re.split(r", (?=d_)", left.strip()))


def test_a_gradient_reads_the_values_that_the_forward_lines_name() -> None:
    @cell
    def renamed(x, h):  # type: ignore[no-untyped-def]
        u = affine("a", x)
        u = u + affine("b", h)
        u = tanh(u)
        u = u * vector("g")
        return u, State(h=u)

    lines = show.render(renamed).splitlines()
    assert any(re.fullmatch(r" *u_3 *= tanh\(u_2\)", line) for line in lines)
    assert any(re.fullmatch(r" *d_u_2 *= d_u_3 \* \(1 - u_3\*\*2\)", line) for line in lines), lines
    assert any(re.fullmatch(r" *d_g *= sum of .* \* u_3", line) for line in lines), lines


def test_an_equation_without_end() -> None:
    @cell
    def endless(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("u", x, h) + sum([h * (0.001 * k) for k in range(1, 1000)]))
        return h, State(h=h)

    for what in ("text", "latex"):
        with pytest.raises(UnsupportedError, match="give some of its values names"):
            show.render(endless, what)


def test_what_cannot_be_shown() -> None:
    with pytest.raises(ValueError, match="what should be text, plan, latex, llvm or assembly, got 'latx'"):
        show.render(cells.lstm, "latx")  # type: ignore[arg-type]


def test_the_barriers_of_numbers_that_threads_share() -> None:
    @cell
    def counted(x, h, t: Scalar()):  # type: ignore[no-untyped-def]
        h = sigmoid(vector("a")) * h + affine("g", x) / (1 + t)
        return h, State(h=h, t=t + 1)

    assert "inference: no stages, 1 barrier a step where columns are split" in show.render(counted, "plan")


@pytest.mark.parametrize("what", ["llvm", "assembly"])
def test_code_of_a_cell_without_kernels(what: Any) -> None:
    @cell
    def beside(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("n", x, h, vector("v"), heads=2))
        return h, State(h=h)

    with pytest.raises(UnsupportedError, match=r"^cell 'beside' has no kernels: the cell uses a product in blocks"):
        show.render(beside, what)


@pytest.mark.parametrize("what", ["llvm", "assembly"])
def test_code_without_llvmlite(what: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    monkeypatch.setattr("anyrnn.backends.llvm.target.machine", import_llvmlite)
    with pytest.raises(MissingExtraError, match="pip install llvmlite"):
        show.render(cells.lstm, what)


def test_numbers_that_are_given_are_called_by_their_names() -> None:
    @cell
    def of_eps(x, h, *, eps=1e-5, leak=0.5):  # type: ignore[no-untyped-def]
        h = leak * h + tanh(norm(affine("n", x, h), eps))
        return h, State(h=h)

    for what in ("text", "latex", "plan"):
        text = show.render(of_eps, what)  # type: ignore[arg-type]
        assert "hyper()" not in text
        assert "eps" in text or what == "plan"


def test_a_budget_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are made, as of devices, and tell what is missing when kernels are to run."""
    monkeypatch.setattr("anyrnn.backends.llvm.target.machine", import_llvmlite)
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    for options in ({}, {"num_layers": 2, "residual": True}):
        layer = anyrnn.torch.GRU(4, 4, memory_budget=10**6, **options)  # type: ignore[arg-type]
        layer.memory_budget = 10**7


def import_llvmlite() -> None:
    import llvmlite.binding  # noqa: F401
