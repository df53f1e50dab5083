"""Cells from the corners of the language, each once hard for a pass or a backend: reference, autograd and llvm agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import Scalar, State, Step, Vec, cell, cells
from anyrnn.backends.llvm import extent
from anyrnn.backends.llvm import run as llvm
from anyrnn.passes.check import check_phase, check_program
from anyrnn.trace.language import (
    affine,
    clip_gradient,
    concat,
    exp,
    floor,
    matrix,
    maximum,
    mean,
    minimum,
    norm,
    relu,
    scalar,
    scope,
    sigmoid,
    split,
    tanh,
    total,
    vector,
    where,
)
from tests.budget import assert_relative
from tests.networks import on_llvm, on_reference, on_torch, problem


def operand_made_of_a_state(x, h):
    v = -h
    h = tanh(affine("a", x, v))
    return h, State(h=h)


def operand_twice(x, h):
    h = tanh(affine("a", x, x) + affine("b", h))
    return h, State(h=h)


def operand_made_again_elsewhere(x, h, c):
    """The product's stage reads what the operand is made of too, so that it cannot be made later."""
    s = sigmoid(c) * h
    rest = 1 - s
    h = tanh(affine("a", x, h=rest)) * s + 0.1 * c * h
    return h, State(h=h, c=0.5 * c + 0.1 * tanh(h))


def gate_twice(x, h):
    a = tanh(affine("a", x, h))
    half = 0.5 * a
    h = tanh(affine("a", x, h=half))
    return h, State(h=h)


def matrix_twice(x, h):
    w = matrix("w")
    h = tanh(affine("a", x) + w @ tanh(w @ h) + w.T @ h)
    return h, State(h=h)


def vector_twice(x, h):
    v = vector("v")
    h = tanh(affine("a", x, h) + v * h + v)
    return h * v, State(h=h)


def state_not_read(x, h, c):
    c = tanh(affine("a", x, c))
    return c, State(h=0.5 * c, c=c)


def state_that_is_another(x, h, c):
    n = tanh(affine("a", x, c))
    return n, State(h=c, c=n)


def state_that_was_another(x, h, c):
    n = tanh(affine("a", x, h, c))
    return n, State(h=n, c=h)


def state_that_stays(x, h, c):
    h = tanh(affine("a", x, h) + c)
    return h, State(h=h, c=c)


def state_that_is_nothing_but_itself(x, h, c):
    h = tanh(affine("a", x, h))
    return h, State(h=h, c=c)


def states_of_two_sizes(x, h, p: Vec("other")):
    p = tanh(affine("p", x, h, p, size="other"))
    h = tanh(affine("h", x, h, p))
    return h, State(h=h, p=p)


def input_not_read(x, h):
    h = tanh(affine("a", h) + vector("b"))
    return h, State(h=h)


def output_of_the_input_alone(x, h):
    return tanh(affine("y", x)), State(h=tanh(affine("a", x, h)))


def output_of_the_state_before(x, h):
    return sigmoid(h), State(h=tanh(affine("a", x, h)))


def output_is_a_product(x, h):
    h = tanh(affine("a", x, h))
    return affine("y", h, size="other"), State(h=h)


def state_is_a_product(x, h, c):
    c = affine("c", x, h)
    h = tanh(affine("h", x, h)) * 0.5
    return h, State(h=h, c=c)


def output_is_a_product_of_the_state_before(x, h):
    return affine("y", h, size="other"), State(h=tanh(affine("a", x, h)))


def states_change_places(x, h, c):
    n = affine("n", x, h)
    return tanh(n), State(h=c, c=n)


def transposed_product_of_the_input(x, h: Vec("input")):
    w = matrix("w", "input", "input")
    h = tanh(w.T @ x + affine("a", h, size="input"))
    return h, State(h=h)


def transposed_product_is_the_output(x, h):
    w = matrix("w", "hidden", "other")
    h = tanh(affine("a", x, h))
    return w.T @ h, State(h=h)


def a_gate_and_a_part_of_it(x, h):
    a = affine("a b", x, h)
    b, c = split(a, 2)
    h = tanh(b) * sigmoid(c) + mean(a)
    return h, State(h=h)


def output_of_several_parts(x, h, p: Vec("other")):
    h, p = tanh(affine("h", x, h)), tanh(affine("p", x, p, size="other"))
    return concat(p, h), State(h=h, p=p)


def bias_of_some_gates(x, h):
    h = tanh(affine("a", x, h, bias=False)) * sigmoid(affine("b", x, h))
    return h, State(h=h)


def parameter_added_to_an_operand(x, h, c):
    v = c + vector("b")
    h = tanh(affine("a", x, h, v))
    return h, State(h=h, c=tanh(v))


def parameter_scaled_by_a_parameter(x, h):
    h = exp(-exp(vector("b"))) * h + scalar("s") * tanh(affine("a", x, h))
    return h, State(h=h)


def parameter_without_a_derivative(x, h):
    h = tanh(affine("a", x, h)) * floor(vector("b") + 2)
    return h, State(h=h)


def weights_with_arithmetic(x, h):
    w = matrix("w")
    h = tanh(affine("a", x) + (w - w.T) @ h - 0.1 * h)
    return h, State(h=h)


def ties(x, h):
    a, b = relu(affine("a", x, h)), relu(affine("b", x, h))
    h = maximum(a, b) - minimum(a, 0.5 * b) + abs(a - b)
    return h, State(h=tanh(h))


def choices(x, h):
    a = affine("a", x, h)
    h = tanh(where(a < h, a * h, where(a > 0.5, 0.5 * a, h)))
    return h, State(h=h)


def stacked_gates(x, h):
    i, f = split(affine("i f", x, h), 2)
    h = sigmoid(i) * tanh(f)
    return h, State(h=h)


def normalised_stack(x, h):
    i, f = split(norm(affine("i f", x, h)), 2)
    h = sigmoid(i) * h + tanh(f)
    return tanh(h), State(h=tanh(h))


def scalars(x, h, t: Scalar(init=1)):
    a = tanh(affine("a", x, h) / t + mean(h) - total(x) * scalar("s"))
    return a * t, State(h=a, t=t + 1 + 0.1 * mean(a))


def step_input(x, dt: Step(), h):
    d = exp(-dt)
    h = tanh(affine("a", x, h, dt)) * mean(d) + h * (1 - mean(d))
    return h, State(h=h)


def hyper(x, h, *, rate=0.25, depth=2, activation=tanh):
    for k in range(depth):
        h = (1 - rate) * h + rate * activation(affine(f"a{k}", x, h=h))
    return h, State(h=h)


def nested(x, h, c):
    with scope("inner"):
        y, inner = cells.lstm(x, h, c)
    with scope("outer"):
        n = tanh(affine("n", x, h=y))
    return n, State(h=n, c=inner.c)


def no_product_in_the_loop(x, h):
    h = sigmoid(affine("f", x)) * h + tanh(affine("g", x))
    return h, State(h=h)


def no_parameter(x, h: Vec("input"), *, rate=0.1):
    h = (1 - rate) * h + rate * x
    return h, State(h=h)


def frozen_input(x, h):
    v = x * vector("s", "input")
    h = tanh(affine("a", v, h=h))
    return h, State(h=h)


def names_of_the_program(x, h):
    y, d_y = sigmoid(affine("y", x, h)), tanh(affine("z", x, h))
    d_h, d_x = tanh(affine("q", x, h)), 0.5 * d_y
    h = y * d_h * d_x + (1 - y) * h
    return h, State(h=h)


def one_name_for_many_values(x, h):
    for k in range(3):
        z = h + vector(f"b{k}")
        h = tanh(z + affine(f"a{k}", x))
    return h, State(h=h)


def names_that_end_in_sum(x, h, pre_sum, z_sum):
    z = h * vector("z")
    pre = pre_sum + vector("b")
    h = tanh(pre + z + affine("a", x, h))
    return h, State(h=h, pre_sum=0.5 * pre, z_sum=z + 0.1 * z_sum)


def normalised_and_scaled_input(x, h):
    v = norm(x) * vector("gain", "input") + vector("shift", "input")
    h = tanh(affine("a", h, v=v))
    return h, State(h=h)


def state_made_of_the_input(x, h, p):
    z = tanh(affine("z", x))
    h = tanh(affine("h", h, p) + affine("n", z))
    return h, State(h=h, p=z)


def normalised_input_as_a_state(x, h, p: Vec("input")):
    h = tanh(affine("h", h, p))
    return h, State(h=h, p=norm(x))


def reduced_input_as_a_state(x, h, t: Scalar()):
    m = mean(x)
    h = tanh(affine("h", x, h) * t + m)
    return h, State(h=h, t=m)


def output_made_before_the_steps(x, h):
    z = tanh(affine("z", x))
    h = tanh(affine("h", h) + affine("n", z))
    return z, State(h=h)


def parts_of_arithmetic_on_parameters(x, h):
    a, b = split(2 * vector("v", "2*hidden"), 2)
    w, u = matrix("w", "2*hidden"), concat(vector("u", 1), vector("s", "hidden - 1"))
    c, d = split(affine("c d", x) + (w * 0.5) @ h, 2)
    h = tanh(a * c + b) * sigmoid(d + u)
    return h, State(h=h)


def parts_of_joined_vectors(x, h, g):
    a, b, c = split(affine("a b c", x) * concat(h, g, h) + concat(g, g, h), 3)
    h, g = tanh(a + b), tanh(b * c)
    return h + g, State(h=h, g=g)


def counter_without_a_product(x, h, t: Scalar(init=1)):
    h = sigmoid(affine("f", x)) * h + tanh(affine("g", x)) / t
    return h, State(h=h, t=t + 1)


def residual_output(x, h):
    n = tanh(affine("a", x, h))
    return n + h, State(h=n)


def whole_and_parts(x, h):
    n = tanh(affine("a", x, h))
    a, b = split(n, 2)
    h = n * mean(a * b)
    return h, State(h=h)


def parts_of_a_state(x, h):
    a, b = split(h, 2)
    h = tanh(affine("n", x, h) * mean(a * b))
    return h, State(h=h)


def cotangent_doubled_twice(x, h):
    """A few cheap ops on a state's cotangent are made again by the stage that sums them, which is the first then."""
    n = tanh(affine("n", x, h))
    v = n + mean(n)
    q = v + v
    h = q + q
    return h, State(h=h)


def number_spread_by_a_choice(x, h):
    s = mean(h)
    h = tanh(affine("n", x, h, m=where(h > 0, s, s)))
    return h, State(h=h)


def constant_spread_by_a_choice(x, h):
    h = tanh(affine("n", x, h, m=where(h > 0, 1.0, 1.0) * 2.0))
    return h, State(h=h)


def sum_of_what_is_added_to_itself_again_and_again(x, h):
    """Taken apart into what it adds up, it would be a sum of 2^40."""
    v = 1e-12 * tanh(affine("a", x, h))
    for _ in range(40):
        v = v + v
    return v, State(h=tanh(v))


def clip_of_what_is_read_whole_and_in_parts(x, h):
    u = clip_gradient(affine("a b", x, h), -0.01, 0.01)
    a, b = split(u, 2)
    h = tanh(a) * sigmoid(b) + 0.1 * tanh(matrix("w", "hidden", "2*hidden") @ u)
    return h, State(h=h)


def clip_of_what_is_read_beside_what_stays_whole(x, h, c: Vec("2*hidden")):
    u = clip_gradient(affine("a b", x, h), -0.01, 0.01)
    p, q = split(u + c, 2)
    r, s = split(3 * u, 2)
    h = p + q + r + s
    return h, State(h=h, c=0.5 * c)


def clip_of_what_is_read_twice_again_and_again(x, h):
    v = clip_gradient(affine("a b", x, h), -1.0, 1.0)
    for _ in range(40):
        v = sigmoid(v) * (1 - v)
    a, b = split(v, 2)
    h = tanh(a) * sigmoid(b)
    return h, State(h=h)


def product_added_to_itself_again_and_again(x, h):
    v = 1e-12 * affine("a", x, h)
    w = affine("b", x, h)
    for _ in range(40):
        v, w = v + v, w + w
    h = tanh(v + 1e-12 * w)
    return h, State(h=h)


def parameter_joined_to_a_state(x, h):
    p, q = split(concat(vector("p"), h), 2)
    h = tanh(affine("n", x, h) + q)
    return p, State(h=h)


def parameter_joined_to_a_state_and_doubled(x, h):
    p, q = split(2 * concat(vector("p"), h), 2)
    h = tanh(affine("n", x, h) + q)
    return sigmoid(p), State(h=h)


def number_made_of_the_new_state(x, h, s: Scalar()):
    """In a rotated loop its cotangent is made for numbers and read by columns of one stage."""
    a = affine("n", x, h) + s * vector("p")
    h = tanh(a) * sigmoid(a)
    return h, State(h=h, s=0.9 * s + total(h))


def choice_by_a_counter(x, h, t: Scalar()):
    a = tanh(affine("a", x, h))
    h = where(t > 1.5, a, 0.5 * h + 0.1 * a)
    return h, State(h=h, t=t + 1)


def choice_by_a_mean(x, h):
    a = tanh(affine("a", x, h))
    h = where(mean(a) > 0, a, 0.5 * a + 0.1 * h)
    return where(mean(a) < mean(x), h, a), State(h=h)


def choice_by_products(x, h):
    h = tanh(where(affine("a", x, h) < affine("b", x, h), 0.5 * h, affine("c", x, h)))
    return h, State(h=h)


def choice_by_a_parameter(x, h, *, rate=0.25):
    a = tanh(affine("a", x, h))
    h = where(vector("v") > 0, a, 0.5 * h) + where(scalar("s") < rate, 0.1 * a, 0.0)
    return h, State(h=h)


def scaled_matrix(x, h):
    w = matrix("w") * scalar("s") / total(matrix("w") * matrix("w"))
    h = tanh(affine("a", x) + w @ h)
    return h, State(h=h)


def divided_by_a_number(x, h):
    h = tanh(affine("a", x, h) / 3)
    return h, State(h=h)


def product_of_a_parameter(x, h):
    h = tanh(affine("a", x, h, vector("v", "hidden")))
    return h, State(h=h)


def product_in_blocks_of_a_parameter(x, h):
    h = tanh(affine("a", x, h, vector("v", "hidden"), heads=2))
    return h, State(h=h)


def product_of_frozen_parameters(x, h):
    h = tanh(affine("a", x, h) + matrix("c", trained=False) @ vector("d", trained=False))
    return h, State(h=h)


def products_of_trained_parameters(x, h):
    w, p = matrix("w"), vector("p")
    q = tanh(affine("g", p))
    h = tanh(affine("a", x, h) + w @ p + (w.T @ q) * q)
    return h, State(h=h)


def choice_between_equal_numbers(x, h):
    v = affine("a", x, h)
    return where(v > 0, 1.0, 1.0), State(h=tanh(v))


def choice_between_numbers(x, h):
    v = affine("a", x, h)
    h = tanh(v * where(v > 0, 1.0, 0.1))
    return h, State(h=h)


CORNERS = [
    value for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and name != "CORNERS"
]  # fmt: skip


DECLINED = {product_in_blocks_of_a_parameter: "a product in blocks, of parameters alone, beside others"}
"""What llvm declines, and how it names it."""
SINGLE = (
    step_input, no_parameter, transposed_product_of_the_input, normalised_input_as_a_state, product_in_blocks_of_a_parameter,
)  # fmt: skip
"""One layer in one direction: an input of every layer, a state of the input's size, and blocks of an even number of features."""


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("function", CORNERS, ids=lambda f: f.__name__)
def test_all_agree(function: Callable[..., Any]) -> None:
    for sizes, stack in [((4, 3, 2, 6), (1, False)), ((3, 1, 3, 2), (2, True)), ((2, 14, 40, 36), (1, True))]:
        if function in SINGLE and stack != (1, False):
            continue
        p = problem(cell(function), *sizes, *stack)
        expected, autograd = on_reference(p), on_torch(p)
        for name, value in expected.items():
            assert_relative(autograd[name], value, "reference backend against torch autograd, float64", f"{sizes} {name}")
        if function in DECLINED:
            assert DECLINED[function] in (llvm.why_not(p.network, "float64") or "")
            continue
        assert llvm.why_not(p.network, "float64") is None
        for padding in (0, 1):
            found = on_llvm(p, np.float64, padding=padding)
            for name, value in expected.items():
                assert_relative(found[name], value, "llvm float64 against the reference backend", f"{sizes} {name}")
        inference = on_llvm(p, np.float64, training=False)
        assert all(np.array_equal(value, found[name]) for name, value in inference.items())


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("body", [clip_of_what_is_read_whole_and_in_parts, clip_of_what_is_read_beside_what_stays_whole])
def test_the_gradient_of_what_is_read_whole_and_in_parts_is_clipped_once(body: Callable[..., Any], backend: str) -> None:
    layer = anyrnn.Recurrent(cell(body), 2, 3, dtype="float64", seed=1, backend=backend)
    y, _, reserve = layer.forward_training(np.ones((1, 1, 2)))
    found = layer.backward(reserve, np.full_like(y, 1000.0))[2]["bias_ih_l0"]
    assert_relative(np.abs(found), np.full(6, 0.01), "llvm float64 against the reference backend", "of one step")


def test_a_product_of_frozen_parameters_is_added_once() -> None:
    layer = anyrnn.Recurrent(cell(product_of_frozen_parameters), 2, 3, dtype="float64", seed=1)
    p = layer.parameters
    c, d = (next(v for n, v in p.items() if n.startswith(f"{name}_")) for name in "cd")
    x = np.ones((1, 1, 2))
    total_ = p["weight_ih_l0"] @ x[0, 0] + p["bias_ih_l0"] + p["bias_hh_l0"]
    assert_relative(layer(x)[0][0, 0], np.tanh(total_ + c @ d), "llvm float64 against the reference backend", "one step")


def test_a_product_of_a_parameter_is_a_part_of_the_sum() -> None:
    layer = anyrnn.Recurrent(cell(product_of_a_parameter), 2, 3, dtype="float64", seed=1)
    p, x = layer.parameters, np.ones((1, 1, 2))
    v = next(array for name, array in p.items() if name.startswith("v_"))
    total_ = p["weight_ih_l0"] @ x[0, 0] + next(array for name, array in p.items() if name.startswith("weight_v")) @ v
    total_ += sum(array for name, array in p.items() if name.startswith("bias_"))
    assert layer.backend_name == "llvm"
    assert_relative(layer(x)[0][0, 0], np.tanh(total_), "llvm float64 against the reference backend", "one step")


@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize("function", [f for f in CORNERS if f not in DECLINED], ids=lambda f: f.__name__)
def test_all_agree_whatever_is_asked_for(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the gradients, cotangents of some steps, small chunks, several threads with columns or rows split."""
    monkeypatch.setattr(extent, "CHUNK_ROWS", 6)
    monkeypatch.setattr(extent, "BLOCK_ROWS", 6)
    for sizes, stack in [((7, 3, 2, 6), (1, False)), ((5, 30, 3, 18), (2, True))]:
        if function in SINGLE and stack != (1, False):
            continue
        p = problem(cell(function), *sizes, *stack)
        for name in ("inference", "training", "backward"):
            check_program(getattr(p.network.plan, name))
        check_phase(p.network.plan.phase)
        whole = on_reference(p)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            agree(on_llvm(p), whole, f"{threads} threads")
            for without in ("d_inputs", "d_first", "d_sources", "first", "last"):
                if without != "first":
                    agree(on_llvm(p, padding=1, without=[without]), whole, f"without {without}")
        for missing in ("d_output", "d_last"):
            zeros = replace(p, d_output=0 * p.d_output) if missing == "d_output" else replace(p, d_last=_zeros(p.d_last))
            agree(on_llvm(p, without=[missing]), on_reference(zeros), f"without {missing}")
        some = p.d_output.copy()
        some[:2], some[4:] = 0, 0
        agree(on_llvm(p, cotangent_steps=(2, 4)), on_reference(replace(p, d_output=some)), "cotangents of some steps")


def _zeros(states: list[list[Any]]) -> list[list[Any]]:
    return [[0 * a for a in unit] for unit in states]


def agree(found: dict[str, Any], expected: dict[str, Any], how: str) -> None:
    for name, value in found.items():
        if not name.startswith("last") or name in expected:
            assert_relative(value, expected[name], "llvm float64 against the reference backend", f"{how}: {name}")


@pytest.mark.parametrize(
    "function", [f for f in CORNERS if f not in (step_input, choice_between_equal_numbers)], ids=lambda f: f.__name__
)
def test_torch_gives_the_same_gradients_on_both_backends(function: Callable[..., Any]) -> None:
    """What a kernel leaves out is zero or None, never what memory happened to hold."""
    made = cell(function)
    other = {"other": 3} if "other" in made.trace().size_names else {}
    gradients = {}
    for backend in ("llvm", "reference"):
        torch.manual_seed(0)
        asked = "auto" if function in DECLINED else backend
        module = anyrnn.torch.Recurrent(made, 4, 4, backend=asked, dtype=torch.float64, **other)
        x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
        sizes = module.network.state_sizes
        first = tuple(torch.randn(1, 2, size, dtype=torch.float64, requires_grad=True) for size in sizes)
        [torch.full((n,), 7e7, dtype=torch.float64) for n in (8, 16, 24, 32, 64, 80)]  # what new memory may hold
        output, _ = module(x, first if len(first) > 1 else first[0])
        (output.sin().sum() + output.square().sum()).backward()
        leaves = {"x": x, **dict(module.named_parameters()), **{f"first {k}": a for k, a in enumerate(first)}}
        gradients[backend] = {name: torch.zeros_like(a) if a.grad is None else a.grad for name, a in leaves.items()}
    for name, value in gradients["reference"].items():
        assert_relative(gradients["llvm"][name], value, "llvm float64 against the reference backend", name)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_test_of_parameters_alone_over_several_gates(backend: str) -> None:
    @anyrnn.cell
    def switched(x, h):  # type: ignore[no-untyped-def]
        u = anyrnn.where(anyrnn.vector("v", "2*hidden") > 0, anyrnn.affine("a b", x, h), 0.1)
        p, q = anyrnn.split(u, 2)
        h = anyrnn.sigmoid(p) * h + anyrnn.tanh(q)
        return h, anyrnn.State(h=h)

    layer = anyrnn.Recurrent(switched, 3, 4, seed=0, dtype="float64", backend=backend)
    x = np.random.default_rng(0).normal(size=(2, 1, 3))
    w, h = layer.parameters, np.zeros((1, 4))
    for step in x:
        u = step @ w["weight_ih_l0"].T + w["bias_ih_l0"] + h @ w["weight_hh_l0"].T + w["bias_hh_l0"]
        p, q = np.split(np.where(w["v_l0"] > 0, u, 0.1), 2, -1)
        h = h / (1 + np.exp(-p)) + np.tanh(q)
    np.testing.assert_allclose(layer(x)[0][-1], h, rtol=1e-12)


def test_a_quotient_by_a_large_number_is_no_product() -> None:
    """Its reciprocal has no full mantissa, and would count as zero."""

    @anyrnn.cell
    def quotient(x: anyrnn.Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
        h = x / 1e38
        return h, anyrnn.State(h=h)

    y, _ = anyrnn.Recurrent(quotient, 2, 2)(np.array([[[1e38, 2e38]]], np.float32))
    np.testing.assert_allclose(y.ravel(), [1, 2], rtol=1e-6)


@pytest.mark.parametrize(("dtype", "logit"), [("float32", 88.0), ("float64", 709.0)])
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_quotient_by_a_large_number_of_the_sample_is_no_product(backend: str, dtype: str, logit: float) -> None:
    @anyrnn.cell
    def softmax(x: anyrnn.Vec("hidden"), h):  # type: ignore[no-untyped-def, valid-type]
        e = anyrnn.exp(x + 0.0 * h)
        h = e / anyrnn.total(e)
        return h, anyrnn.State(h=h)

    y, _ = anyrnn.Recurrent(softmax, 2, 2, dtype=dtype, backend=backend)(np.array([[[logit, logit - 1]]], dtype))
    np.testing.assert_allclose(y.ravel(), [1 / (1 + np.exp(-1)), 1 / (1 + np.e)], rtol=1e-5)


def test_a_size_as_a_number() -> None:
    @anyrnn.cell
    def scaled(x, h):  # type: ignore[no-untyped-def]
        h = anyrnn.tanh(anyrnn.affine("n", x, h)) / h.shape[0] + h.shape[0] * h * 0.01
        return h, anyrnn.State(h=h)

    x = np.ones((2, 1, 3), np.float32)
    results = [anyrnn.Recurrent(scaled, 3, 4, seed=0, backend=b)(x)[0] for b in ("llvm", "reference")]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
    layer = anyrnn.Recurrent(scaled, 3, 4, seed=0)
    w, h = layer.parameters, np.zeros(4)
    for _ in range(2):
        u = w["weight_ih_l0"].sum(1) + w["bias_ih_l0"] + w["weight_hh_l0"] @ h + w["bias_hh_l0"]
        h = np.tanh(u) / 4 + 4 * h * 0.01
    np.testing.assert_allclose(results[0][-1, 0], h, rtol=1e-5)
