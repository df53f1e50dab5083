"""Every mistake in a cell is refused before any work, in words that say what, where and what to do instead."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import CellError, Scalar, Several, State, Step, Vec, cell, cells
from anyrnn.errors import UnsupportedError
from anyrnn.trace.language import (
    affine,
    apply,
    clip_gradient,
    concat,
    exp,
    matrix,
    maximum,
    mean,
    norm,
    scalar,
    scope,
    sigmoid,
    split,
    tanh,
    total,
    vector,
    where,
)

# Each function below is a cell with one mistake, in the line marked `HERE`.


def returns_nothing(x, h):  # HERE
    tanh(affine("a", x, h))


def returns_the_state_alone(x, h):  # HERE
    return tanh(affine("a", x, h))


def returns_a_dictionary(x, h):  # HERE
    h = tanh(affine("a", x, h))
    return h, {"h": h}


def returns_three_things(x, h, c):  # HERE
    return h, c, State(h=h, c=c)


def returns_another_state(x, h):  # HERE
    return h, State(g=tanh(affine("a", x, h)))


def forgets_a_state(x, h, c):  # HERE
    return h, State(h=tanh(affine("a", x, h)))


def returns_one_state_too_many(x, h):  # HERE
    return h, State(h=tanh(affine("a", x, h)), c=h)


def changes_the_size_of_a_state(x, h):  # HERE
    return h, State(h=x)


def returns_a_matrix(x, h):  # HERE
    return matrix("W"), State(h=tanh(affine("a", x, h)))


def returns_two_outputs(x, h):  # HERE
    h = tanh(affine("a", x, h))
    return (h, 1 - h), State(h=h)


def scales_rows(x, h):
    h = tanh(affine("a", x) + (vector("g") * matrix("W")) @ h)  # HERE
    return h, State(h=h)


def rounds(x, h):
    return round(h), State(h=h)  # HERE


def counts_features(x, h):
    return h / len(h), State(h=h)  # HERE


def writes_a_number(x, h):
    print(f"{h:.2f}")  # HERE
    return h, State(h=h)


def changes_in_place(x, h):
    h[0] = 1.0  # HERE
    return h, State(h=h)


def looks_up(x, h, t: Scalar()):
    return h * [1.0, 2.0][t], State(h=h, t=t + 1)  # HERE


def returns_a_parameter(x, h):  # HERE
    return vector("b"), State(h=tanh(affine("a", x, h)))


def returns_a_parameter_as_state(x, h):  # HERE
    return h, State(h=vector("b"))


def uses_an_unknown_op(x, h):
    h = apply("gelu", affine("a", x, h))  # HERE
    return h, State(h=h)


def misspells_an_option(x, h):
    h = affine("a", x, h, bais=False)  # HERE
    return h, State(h=h)


def misspells_a_number(x, h):
    h = affine("a", x, h, head=2)  # HERE
    return h, State(h=h)


def gives_an_op_too_many_operands(x, h):
    h = apply("tanh", h, h)  # HERE
    return h, State(h=h)


def gives_an_op_too_few_operands(x, h):
    h = apply("maximum", h)  # HERE
    return h, State(h=h)


def gives_an_op_only_numbers(x, h):
    h = h * tanh(1.0)  # HERE
    return h, State(h=h)


def branches(x, h):
    h = tanh(affine("a", x, h))
    if h > 0:  # HERE
        h = h * 2
    return h, State(h=h)


def branches_on_equality(x, h):
    if h == 0:  # HERE
        h = h + 1
    return h, State(h=h)


def branches_on_inequality(x, h):
    if h != 0:  # HERE
        h = h + 1
    return h, State(h=h)


def compares_with_at_least(x, h):
    h = where(h >= 0, h, 0.0)  # HERE
    return h, State(h=h)


def compares_with_at_most(x, h):
    h = where(h <= 0, h, 0.0)  # HERE
    return h, State(h=h)


def chooses_by_a_number(x, h):
    h = where(h, h, 0.0)  # HERE
    return h, State(h=h)


def calculates_with_a_test(x, h):
    h = (h > 0) * h  # HERE
    return h, State(h=h)


def takes_a_function_of_a_test(x, h):
    h = tanh(h > 0)  # HERE
    return h, State(h=h)


def returns_a_test(x, h):  # HERE
    return h, State(h=h > 0)


def mixes_sizes(x, h):
    h = x + h  # HERE
    return h, State(h=h)


def mixes_sizes_in_a_product(x, h):
    h = matrix("W") @ x  # HERE
    return h, State(h=h)


def multiplies_two_matrices(x, h):
    h = (matrix("U") @ matrix("V")) @ h  # HERE
    return h, State(h=h)


def bounds_a_number_by_vectors(x, h):
    h = h + total(clip_gradient(mean(h), 0.0, vector("b")))  # HERE
    return h, State(h=h)


def bounds_that_leave_nothing(x, h):
    h = tanh(clip_gradient(h, 1.0, -1.0))  # HERE
    return h, State(h=h)


def mixes_sizes_in_a_bias(x, h):
    h = affine("a", h) + vector("b", "input")  # HERE
    return h, State(h=h)


def makes_a_matrix(x, h):
    h = (matrix("W") * mean(h)) @ h  # HERE
    return h, State(h=h)


def multiplies_by_a_vector(x, h):
    h = h @ matrix("W")  # HERE
    return h, State(h=h)


def transposes_a_vector(x, h):
    h = h.T  # HERE
    return h, State(h=h)


def calls_a_numpy_function(x, h):
    h = np.tanh(affine("a", x, h))  # HERE
    return h, State(h=h)


def calls_a_numpy_function_of_several(x, h):
    h = np.concatenate([h, h])  # HERE
    return h, State(h=h)


def uses_a_numpy_array(x, h):
    h = h * np.ones(3)  # HERE
    return h, State(h=h)


def uses_a_numpy_array_first(x, h):
    h = np.ones(3) * h  # HERE
    return h, State(h=h)


def calls_a_torch_function(x, h):
    h = torch.tanh(affine("a", x, h))  # HERE
    return h, State(h=h)


def calls_a_torch_function_of_several(x, h):
    h = torch.cat([h, h])  # HERE
    return h, State(h=h)


def calls_torch_nn_functional(x, h):
    h = torch.nn.functional.gelu(affine("a", x, h))  # HERE
    return h, State(h=h)


def uses_a_tensor(x, h):
    h = h * torch.ones(3)  # HERE
    return h, State(h=h)


def calls_the_math_module(x, h):
    h = math.tanh(h)  # HERE
    return h, State(h=h)


def uses_a_list(x, h):
    h = h + [1.0]  # HERE  # noqa: RUF005
    return h, State(h=h)


def uses_a_truth_value(x, h):
    h = h * True  # HERE
    return h, State(h=h)


def uses_a_complex_number(x, h):
    h = h * 1j  # HERE
    return h, State(h=h)


def uses_a_number_beyond_floats(x, h):
    h = h * 10**400  # HERE
    return h, State(h=h)


def takes_the_third_power(x, h):
    h = h**3  # HERE
    return h, State(h=h)


def indexes(x, h):
    h = h[0] * h  # HERE
    return h, State(h=h)


def takes_a_slice(x, h):
    h = concat(h[1:], h[:1])  # HERE
    return h, State(h=h)


def unpacks(x, h):
    i, f = affine("i f", x, h)  # HERE
    return i * f, State(h=i)


def loops(x, h):
    for feature in h:  # HERE
        h = h + feature
    return h, State(h=h)


def does_not_name_an_operand(x, h):
    h = tanh(affine("a", x, 2 * h))  # HERE
    return h, State(h=h)


def gives_affine_a_scalar(x, h):
    size = mean(h)
    h = tanh(affine("a", x, size))  # HERE
    return h, State(h=h)


def gives_affine_a_matrix(x, h):
    weight = matrix("W")
    h = tanh(affine("a", weight))  # HERE
    return h, State(h=h)


def gives_affine_no_operand(x, h):
    h = tanh(affine("a"))  # HERE
    return h, State(h=h)


def gives_affine_no_gate(x, h):
    h = tanh(affine(x, h))  # HERE
    return h, State(h=h)


def gives_affine_an_empty_gate(x, h):
    h = tanh(affine("", x, h))  # HERE
    return h, State(h=h)


def raises_to_a_traced_power(x, h):
    h = h**h  # HERE
    return h, State(h=h)


def raises_a_number_to_a_traced_power(x, h):
    h = 2**h  # HERE
    return h, State(h=h)


def takes_a_remainder(x, h):
    h = h % 2  # HERE
    return h, State(h=h)


def takes_both_of_two_tests(x, h):
    h = where((h > 0) & (h < 1), h, 0.0)  # HERE
    return h, State(h=h)


def gives_affine_no_features(x, h):
    h = h + mean(affine("a", x, size=0))  # HERE
    return h, State(h=h)


def uses_a_gate_in_two_sizes(x, h):
    a = affine("a", x)
    b = affine("a", x, size=3)  # HERE
    return a, State(h=a * mean(b))


def uses_a_weight_for_two_widths(x, h):
    a = affine("a", h=x)
    b = affine("b", h)  # HERE
    return a, State(h=b)


def uses_a_weight_with_other_heads(x, h):
    a = affine("a", h)
    b = affine("b", h, heads=2)  # HERE
    return a, State(h=b)


def declares_a_parameter_twice(x, h):
    h = vector("b") * h
    h = h + total(vector("b", "input"))  # HERE
    return h, State(h=h)


def splits_a_scalar(x, h):
    a, b = split(total(h), 2)  # HERE
    return h, State(h=h * a * b)


def splits_a_number(x, h):
    a, b = split(1.0, 2)  # HERE
    return h, State(h=h * a * b)


def splits_into_nothing(x, h):
    a = split(h, 0)  # HERE
    return h, State(h=a)


def splits_by_a_name(x, h):
    a = split(h, "hidden")  # HERE
    return h, State(h=a)


def splits_into_no_sizes(x, h):
    a = split(h, [])  # HERE
    return h, State(h=a)


def splits_into_too_much(x, h):
    a = split(h, ["hidden", 1])  # HERE
    return h, State(h=a)


def splits_into_an_odd_size(x, h):
    a = split(h, ["hidden - 1.5", 1.5])  # HERE
    return h, State(h=a)


def splits_into_half_a_feature(x, h):
    a = split(h, ["hidden - 1", 0.5])  # HERE
    return h, State(h=a)


def joins_nothing(x, h):
    h = h * mean(concat())  # HERE
    return h, State(h=h)


def joins_a_matrix(x, h):
    h = h * mean(concat(matrix("W"), h))  # HERE
    return h, State(h=h)


def takes_the_mean_of_a_scalar(x, h):
    h = h * mean(total(h))  # HERE
    return h, State(h=h)


def takes_the_mean_of_a_matrix(x, h):
    w = matrix("w")
    w = w - mean(w)  # HERE
    h = tanh(affine("a", x) + w @ h)
    return h, State(h=h)


def normalises_a_scalar(x, h):
    h = h * norm(total(h))  # HERE
    return h, State(h=h)


def draws_at_random(x, h):
    h = apply("choose", h, 0.0)  # HERE
    return h, State(h=h)


def makes_a_whole_number(x, h):
    h = h * int(h)  # HERE
    return h, State(h=h)


def calls_the_norm_of_numpy(x, h):
    h = np.linalg.norm(h) * h  # HERE
    return h, State(h=h)


def calls_a_torch_function_by_keyword(x, h):
    h = torch.tanh(input=h)  # HERE
    return h, State(h=h)


def gives_affine_a_test(x, h):
    test = h > 0
    h = affine("a", test)  # HERE
    return h, State(h=h)


def multiplies_a_matrix_by_a_test(x, h):
    h = matrix("W") @ (h > 0)  # HERE
    return h, State(h=h)


def multiplies_by_a_matrix_of_tests(x, h):
    h = (matrix("W") > 0) @ h  # HERE
    return h, State(h=h)


def transposes_a_matrix_of_tests(x, h):
    h = where((matrix("W") > 0).T, 1.0, 0.0) @ h  # HERE
    return h, State(h=h)


def splits_a_test(x, h):
    tests = split(h > 0, 2)  # HERE
    h = h * total(where(tests[0], 1.0, 0.0))
    return h, State(h=h)


def joins_tests(x, h):
    h = h * mean(where(concat(h > 0, h < 1), 1.0, 0.0))  # HERE
    return h, State(h=h)


def gives_affine_no_heads(x, h):
    h = affine("a", h, heads=0)  # HERE
    return h, State(h=h)


def gives_gates_heads_together(x, h):
    a = affine("a b", h, heads=2)  # HERE
    return h, State(h=a)


def asks_for_gates_together_and_apart(x, h):
    a, b = split(affine("a b", x, h), 2)
    c = affine("a", x, h)  # HERE
    return h, State(h=a + b + c)


def names_a_gate_twice(x, h):
    a = affine("a a", x, h)  # HERE
    return h, State(h=a)


def gives_affine_half_a_head(x, h):
    h = affine("a", h, heads=0.5)  # HERE
    return h, State(h=h)


def calls_a_parameter_oddly(x, h):
    h = h + vector("my.bias")  # HERE
    return h, State(h=h)


def declares_a_weight_of_affine(x, h):
    h = affine("a", x, h)
    h = h + vector("bias_ih")  # HERE
    return h, State(h=h)


def makes_affine_use_a_declared_weight(x, h):
    h = h + vector("weight_ih")
    h = affine("a", x)  # HERE
    return h, State(h=h)


leaked: list[Any] = []


def leaks(x, h):
    leaked.append(h)
    return h, State(h=h)


def uses_another_trace(x, h):
    h = h + leaked[0]  # HERE
    return h, State(h=h)


def calls_two_parameters_the_same(x, h):
    g = vector("low_gain")
    with scope("low"):
        k = vector("gain")  # HERE
    h = tanh(affine("n", x, h) * g + k)
    return h, State(h=h)


def calls_two_scopes_the_same(x, h):
    with scope("a"), scope("b"):
        g = vector("gain")
    with scope("a_b"):  # HERE
        h = tanh(affine("n", x, h) * g)
    return h, State(h=h)


def calls_a_scope_oddly(x, h):
    with scope("a.b"):  # HERE
        h = tanh(affine("n", x, h))
    return h, State(h=h)


def calls_a_scope_nothing(x, h):
    with scope(""):  # HERE
        h = tanh(affine("n", x, h))
    return h, State(h=h)


def forgets_to_call_numpy(x, h):
    h = h * np.tanh  # HERE
    return h, State(h=h)


def gives_two_matrices_one_name(x, h):
    weight_h = 2 * h
    with scope("weight"):
        a = affine("a", x, h=h)
    h = tanh(a + affine("b", weight_h))  # HERE
    return h, State(h=h)


def returns_a_test_for_all_features(x, h, t: Scalar()):  # HERE
    y = tanh(affine("n", x, h))
    return y, State(h=t > 2, t=t + 1)


def gives_a_state_twice(x, h, *past: Several(2)):
    h = tanh(affine("n", x, h))
    return h, State(h=h, past=(h, past[0]), past1=h)  # HERE


MISTAKES: dict[Callable[..., Any], str] = {
    returns_a_test_for_all_features: "returns a test as state 'h'; use where",
    gives_a_state_twice: "State is given 'past1' twice, by its name and as one of several",
    gives_two_matrices_one_name: "parameter 'weight_weight_hh' would be two, of 'weight_h' here and of what another scope has",
    calls_two_parameters_the_same: "parameter 'low_gain' is declared twice, in two scopes",
    calls_two_scopes_the_same: "scope 'a_b': parameters in another scope begin with a_b_ too; rename one",
    calls_a_scope_oddly: "the name of a scope should be a part of a Python variable's, got 'a.b'",
    calls_a_scope_nothing: "the name of a scope should be a part of a Python variable's, got ''",
    forgets_to_call_numpy: "is a ufunc; expected a traced value or a number",
    returns_nothing: r"cell 'returns_nothing' must return `output, State\(\.\.\.\)`; it returned nothing",
    returns_the_state_alone: r"must return `output, State\(\.\.\.\)`; it returned a ",
    returns_a_dictionary: r"must return `output, State\(\.\.\.\)`; it returned a tuple of 2",
    returns_three_things: r"must return `output, State\(\.\.\.\)`; it returned a tuple of 3",
    returns_another_state: r"must return the states h; it returned g",
    forgets_a_state: r"must return the states h, c; it returned h",
    returns_one_state_too_many: r"must return the states h; it returned h, c",
    changes_the_size_of_a_state: r"returns state 'h' with shape \[input\]; it was given as \[hidden\]",
    returns_a_matrix: r"must return a vector as its output; W has shape \[hidden, hidden\]",
    returns_two_outputs: r"returns a tuple as the output: a cell has one, such as concat\(a, b\), and others as states",
    scales_rows: r"mul mixes sizes: g \[hidden\] and W \[hidden, hidden\]; scale the rows of a matrix by g \* \(W @ h\)",
    rounds: r"round is not in the language; use floor\(value \+ 0.5\)",
    counts_features: r"len is not in the language; use value.shape\[0\]",
    writes_a_number: r"a traced value cannot be written as a number: h has no number until the cell runs",
    changes_in_place: r"a traced value cannot be changed in place: h has no number .*; make a new one",
    looks_up: r"a traced value cannot be an index: t has no number until the cell runs; choose by where",
    returns_a_parameter: r"returns 'y' that depends on no input and no state",
    returns_a_parameter_as_state: r"returns 'h' that depends on no input and no state; `h \* 0 \+ ..` is of every sample",
    misspells_an_option: r"affine has no option 'bais': its options are size, heads and bias",
    misspells_a_number: r"affine has no option 'head': its options are size, heads and bias",
    uses_an_unknown_op: r"unknown op 'gelu'; the ops are: .*tanh",
    gives_an_op_too_many_operands: r"tanh .*1 operand.*2",
    gives_an_op_too_few_operands: r"maximum .*2 operands.*1",
    gives_an_op_only_numbers: r"tanh needs at least one traced value; for numbers use Python's math module",
    branches: r"a cell cannot branch on a traced value: .* has no number until the cell runs; use where\(test, a, b\)",
    branches_on_equality: r"equal\(",
    branches_on_inequality: r"equal\(",
    compares_with_at_least: r">=",
    compares_with_at_most: r"<=",
    chooses_by_a_number: r"where.* test",
    calculates_with_a_test: r"mul.* test|test.* mul",
    takes_a_function_of_a_test: r"tanh.* test|test.* tanh",
    returns_a_test: r"state 'h'.* test|test.* state 'h'",
    mixes_sizes: r"add mixes sizes: x \[input\] and h \[hidden\]",
    mixes_sizes_in_a_product: r"a product of W \[hidden, hidden\] with x \[input\] mixes sizes",
    multiplies_two_matrices: r"U @ V is a product of two matrices, which cells do not have",
    bounds_that_leave_nothing: r"clip_gradient: no gradient is in \[1, -1\]",
    bounds_a_number_by_vectors: r"clip_gradient: its bounds have more features than the result of div, whose gradient they bound",
    mixes_sizes_in_a_bias: r"add mixes sizes: .* \[hidden\] and b \[input\]",
    makes_a_matrix: r"mul makes a matrix for every sample; matrix-valued states are outside the language",
    multiplies_by_a_vector: r"h \[hidden\] is not a parameter matrix",
    transposes_a_vector: r"h \[hidden\] is not a matrix: \.T is for parameter matrices",
    calls_a_numpy_function: r"numpy\.tanh is not an op of a cell: .* use anyrnn\.tanh",
    calls_a_numpy_function_of_several: r"numpy\.concatenate is not an op of a cell: .* use the functions and operators of anyrnn",
    uses_a_numpy_array: r"a ndarray; expected a traced value or a number \(use vector, scalar or matrix for parameters, and Step",
    uses_a_numpy_array_first: r"operand 1 of mul is a ndarray; expected a traced value or a number",
    calls_a_torch_function: r"torch\.tanh is not an op of a cell: .* use anyrnn\.tanh",
    calls_a_torch_function_of_several: r"torch\.cat is not an op of a cell",
    calls_torch_nn_functional: r"gelu is not an op of a cell",
    uses_a_tensor: r"a Tensor; expected a traced value or a number",
    calls_the_math_module: r"cannot become a Python number: h has no number until the cell runs; use the functions of anyrnn",
    uses_a_list: r"a list; expected a traced value or a number",
    uses_a_truth_value: r"a bool; expected a traced value or a number",
    uses_a_complex_number: r"a complex; expected a traced value or a number",
    uses_a_number_beyond_floats: r"operand 2 of mul is a whole number that no float holds",
    takes_the_third_power: r"the power 3 is not in the language; 2 and 0\.5 are, and products",
    raises_to_a_traced_power: r"a traced value as an exponent is not in the language; use exp\(b \* log\(a\)\)",
    raises_a_number_to_a_traced_power: r"a traced value as an exponent is not in the language; use exp\(number \* value\)",
    takes_a_remainder: r"a remainder is not in the language; use a - floor\(a / b\) \* b",
    takes_both_of_two_tests: r"&, \|, \^ or ~ of tests is not in the language; use where inside where",
    indexes: r"a traced value cannot be indexed: h has no number .* use split\(value, parts\)",
    takes_a_slice: r"a traced value cannot be indexed: h has no number .* use split\(value, parts\)",
    unpacks: r"a traced value cannot be unpacked or looped over: i_f_pre .* use split\(value, parts\)",
    loops: r"a traced value cannot be unpacked or looped over: h .* use split\(value, parts\)",
    does_not_name_an_operand: r"an operand of affine needs a name for its weight, and .* pass it as name=value .* weight_hh",
    gives_affine_a_scalar: r"an operand of affine must be a vector; size is a scalar",
    gives_affine_a_matrix: r"an operand of affine must be a vector; (W|weight) .*matrix|\[hidden, hidden\]",
    gives_affine_no_operand: r"an affine needs at least one operand",
    gives_affine_no_gate: r"affine's first argument is the gate's name; got <x \[input\]>",
    gives_affine_an_empty_gate: r"affine's first argument is the gate's name; got ''",
    gives_affine_no_features: r"size",
    uses_a_gate_in_two_sizes: r"gate 'a' has hidden rows in weight_ih, but 3 are asked for",
    uses_a_weight_for_two_widths: r"weight_hh has input columns, but h has hidden features",
    uses_a_weight_with_other_heads: r"weight_hh has hidden columns for 1 heads, but h has hidden/2 for 2",
    declares_a_parameter_twice: r"parameter 'b' is declared twice with different shapes",
    splits_a_scalar: r"split needs a vector",
    splits_a_number: r"split needs a vector|split .*traced value",
    splits_into_nothing: r"split needs a number of parts, at least 1, or a list of their sizes; got 0",
    splits_by_a_name: r"split needs a number of parts, at least 1, or a list of their sizes; got 'hidden'",
    splits_into_no_sizes: r"split needs a number of parts, at least 1, or a list of their sizes; got \[\]",
    splits_into_too_much: r"split: hidden, 1 make hidden \+ 1 features, and h has hidden",
    splits_into_an_odd_size: r"a part of split should be a name, a positive number, or a sum .* got 'hidden - 1\.5'",
    splits_into_half_a_feature: r"the size of a part of split should be a name or a whole number, got 0\.5",
    joins_nothing: r"concat needs",
    joins_a_matrix: r"concat needs vectors; W is none",
    takes_the_mean_of_a_scalar: r"mean needs a vector, but .* has shape \[\]",
    takes_the_mean_of_a_matrix: r"mean needs a vector, but w has shape \[hidden, hidden\]",
    normalises_a_scalar: r"norm needs a vector, but .* has shape \[\]",
    draws_at_random: r"unknown op 'choose'; the ops are: .*tanh",
    makes_a_whole_number: r"cannot become a Python number: h has no number",
    calls_the_norm_of_numpy: r"numpy\.norm is not an op of a cell: .* use the functions and operators of anyrnn",
    calls_a_torch_function_by_keyword: r"torch\.tanh is not an op of a cell",
    gives_affine_a_test: r"an operand of affine should be a number, not a test",
    multiplies_a_matrix_by_a_test: r"the right side of @ should be a number, not a test",
    multiplies_by_a_matrix_of_tests: r"the left side of @ should be a number, not a test",
    transposes_a_matrix_of_tests: r"a transposed matrix should be a number, not a test",
    splits_a_test: r"what split takes apart should be a number, not a test",
    joins_tests: r"what concat joins should be a number, not a test",
    gives_affine_no_heads: r"affine needs a whole number of heads, at least 1; got 0",
    gives_gates_heads_together: r"affine\('a b'\) with heads: ask for each gate by itself",
    asks_for_gates_together_and_apart: r"affine\('a'\) after affine\('a b'\): each gate has its rows in weight_ih once",
    names_a_gate_twice: r"affine\('a a'\) names a gate twice",
    gives_affine_half_a_head: r"affine needs a whole number of heads, at least 1; got 0\.5",
    calls_a_parameter_oddly: r"the name of a parameter should be that of a Python variable, got 'my\.bias'",
    declares_a_weight_of_affine: r"parameter 'bias_ih' is declared by the cell and is affine's too; give it another name",
    makes_affine_use_a_declared_weight: r"parameter 'weight_ih' is declared by the cell and is affine's too",
    uses_another_trace: r"belongs to another trace; a cell may only use what it was given or made itself",
}


@pytest.mark.parametrize("function", MISTAKES, ids=lambda f: f.__name__)
def test_a_mistake_is_named_with_its_line(function: Callable[..., Any]) -> None:
    if function is uses_another_trace:
        leaked.clear()
        cell(leaks).trace()
    with pytest.raises(CellError, match=MISTAKES[function]) as caught:
        cell(function).trace()
    lines, first = inspect.getsourcelines(function)
    line = first + next(k for k, text in enumerate(lines) if "# HERE" in text)
    assert str(caught.value).startswith(f"{__file__}:{line}: ")


def test_what_a_message_suggests_exists() -> None:
    for function in MISTAKES:
        if function is uses_another_trace:
            continue
        with pytest.raises(CellError) as caught:
            cell(function).trace()
        for name in re.findall(r"use anyrnn\.(\w+)", str(caught.value)):
            assert hasattr(anyrnn, name), f"{function.__name__}: there is no anyrnn.{name}"


def test_a_mistake_in_a_cell_that_another_calls_is_named_with_its_own_line() -> None:
    inner = cell(mixes_sizes)

    @cell
    def outer(x, h):
        with scope("inner"):
            return inner(x, h)

    line = inspect.getsourcelines(mixes_sizes)[1] + 1
    with pytest.raises(CellError, match=re.escape(f"{__file__}:{line}: ") + "add mixes sizes"):
        outer.trace()


def test_an_error_of_python_in_a_cell_passes_through() -> None:
    @cell
    def broken(x, h):
        return undefined(x), State(h=h)  # noqa: F821

    with pytest.raises(NameError, match="undefined"):
        broken.trace()


# signatures


def no_input():
    return None


def no_state(x):
    return x, State()


def many_inputs(*xs):
    return xs[0], State()


def keywords(x, h, **others):
    return h, State(h=h)


def hyper_without_default(x, h, *, depth):
    return h, State(h=h)


def odd_annotation(x, h: int):
    return h, State(h=h)


def odd_hyper(x, h, *, rate: Vec() = 0.5):
    return h, State(h=h)


def state_without_features(x, h: Vec(0)):
    return h, State(h=h)


def scalar_input(x: Scalar(), h):
    return h, State(h=h)


def input_of_fixed_size(x: Vec(3), h):
    return h, State(h=h)


def input_of_a_sum(x: Vec("hidden - 1"), h):
    return h, State(h=h)


def several_of_no_hyper(x, h, *past: Several("delay")):
    return h, State(h=h, past=past)


def several_of_a_float(x, h, *past: Several("delay"), delay=2.0):
    return h, State(h=h, past=past)


def no_several(x, h, *past: Several(0)):
    return h, State(h=h, past=past)


def several_of_a_name_that_is_there(x, past2, *past: Several(2)):
    return past2, State(past2=past2, past=past)


def several_inputs(*past: Several(2)):
    return past[0], State(past=past)


SIGNATURES: dict[Callable[..., Any], str] = {
    several_of_no_hyper: r"\*past is as many states as the hyper-parameter 'delay' says, which there is not",
    several_of_a_float: r"\*past should be at least one state; 'delay' is 2.0",
    no_several: r"\*past should be at least one state; 0 is 0",
    several_of_a_name_that_is_there: r"two arguments of cell 'several_of_a_name_that_is_there' are called past2",
    several_inputs: r"cell 'several_inputs' takes its input and states by name, not as \*past",
    no_input: r"cell 'no_input' has no input; its first argument is the input",
    no_state: r"cell 'no_state' has no state; its arguments after the input are the states",
    many_inputs: r"cell 'many_inputs' takes its input and states by name, not as \*xs; as many .* \*xs: Several\('name'\)",
    keywords: r"cell 'keywords' takes its input and states by name, not as \*\*others",
    hyper_without_default: r"hyper-parameter 'depth' of cell 'hyper_without_default' needs a default",
    odd_annotation: r"annotate 'h' with .* or put it behind a star if it is a hyper-parameter; got <class 'int'>",
    odd_hyper: r"'rate' is keyword-only, and so a hyper-parameter; Vec is for inputs and states",
    state_without_features: r"the size of Vec should be a name, a positive number, or a sum such as 'hidden - 1', got 0",
    input_of_a_sum: r"the size of the input 'x' should be a name, got hidden - 1",
    scalar_input: r"the input 'x' is a vector; annotate it with Vec\(size\), not with Scalar",
    input_of_fixed_size: r"the size of the input 'x' should be a name, got 3",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_a_signature_that_is_not_a_cells_is_refused(function: Callable[..., Any]) -> None:
    where = re.escape(f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}: ")
    with pytest.raises(CellError, match=where + SIGNATURES[function]):
        cell(function)


@pytest.mark.parametrize("count", [True, 2.0, None])
def test_several_states_are_a_number_of_them(count: Any) -> None:
    with pytest.raises(CellError, match="Several: count should be a hyper-parameter's name or a whole number, got"):
        Several(count)


def test_too_few_of_several_states_are_refused() -> None:
    def forgets(x, h, *past: Several("delay"), delay=3):
        return h, State(h=h, past=past[:-1])

    with pytest.raises(CellError, match="must return the states h, past1, past2, past3; it returned h, past1, past2"):
        cell(forgets).trace()
    with pytest.raises(CellError, match=r"past1; it returned h$"):
        cell(forgets).trace(delay=1)


@pytest.mark.parametrize("size", [("hidden", "hidden"), ["hidden"], None, 2.5])
def test_a_matrix_valued_state_is_refused_by_name(size: Any) -> None:
    with pytest.raises(CellError, match=r"matrix-valued and spatial states \(mLSTM, ConvLSTM\) are outside the language"):
        Vec(size)


def test_a_matrix_valued_state_in_other_spellings() -> None:
    with pytest.raises(CellError, match=r"Vec\('hidden\*hidden'\): matrix-valued"):
        Vec("hidden*hidden")
    assert Vec("2*hidden").size == "2*hidden"


def test_an_input_behind_the_star() -> None:
    def late(x, h, *, dt: Step(1)):  # type: ignore[no-untyped-def, valid-type]
        return h, State(h=h)

    with pytest.raises(CellError, match=r"'dt' is keyword-only, and so a hyper-parameter; Step is for .* before the star"):
        cell(late).trace()


@pytest.mark.parametrize("size", [0, -1])
def test_a_state_without_features_is_refused(size: int) -> None:
    with pytest.raises(CellError, match="size"):
        Vec(size)
    with pytest.raises(CellError, match="size"):
        Step(size)


# outside of a trace


@pytest.mark.parametrize(
    ("who", "call"),
    [
        ("affine", lambda: affine("a", None)),
        ("vector", lambda: vector("b")),
        ("scalar", lambda: scalar("s")),
        ("matrix", lambda: matrix("W")),
        ("scope", lambda: scope("inner").__enter__()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_language_belongs_inside_a_cell(who: str, call: Callable[[], Any]) -> None:
    with pytest.raises(CellError, match=rf"{who} can only be called inside a cell's function, while the cell is being traced"):
        call()


@pytest.mark.parametrize("function", [tanh, sigmoid, exp], ids=lambda f: f.__name__)
def test_functions_of_arrays_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(CellError, match=f"{function.__name__} needs at least one traced value"):
        function(np.ones(3))


def test_a_cell_is_not_called_with_arrays() -> None:
    with pytest.raises(CellError, match=r"cell 'lstm' was called outside of a trace; make a layer of it"):
        cells.lstm(np.ones(3), np.ones(3), np.ones(3))


def test_maximum_of_numbers_points_to_python() -> None:
    with pytest.raises(CellError, match="maximum needs at least one traced value"):
        maximum(1.0, 2.0)


# hyper-parameters and sizes


@cell
def with_options(x, h: Vec("wide"), t: Scalar(), *, rate=0.5, depth=2):
    for k in range(depth):
        h = (1 - rate) * h + rate * tanh(affine(f"a{k}", x, h, size="wide"))
    return h, State(h=h, t=t + 1)


def test_an_unknown_hyper_parameter_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"cell 'with_options' has no hyper-parameter 'width' .did you mean 'depth'..; it has: rate, depth"
    ):
        with_options.trace(width=3)
    with pytest.raises(TypeError, match=r"cell 'lstm' has no hyper-parameter 'depth'; it has: none"):
        cells.lstm.trace(depth=3)


def test_a_size_that_is_not_given_is_asked_for() -> None:
    with pytest.raises(TypeError, match=r"cell 'with_options' needs the size wide as keyword argument"):
        anyrnn.torch.Recurrent(with_options, 3, 4)
    with pytest.raises(TypeError, match=r"cell 'lstm_projected' needs the size proj as keyword argument"):
        anyrnn.torch.Recurrent("lstm_projected", 3, 4)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"argument 'width' \(did you mean 'wide'\?\); options of cell 'with_options': wide, rate, depth"
    ):
        anyrnn.torch.Recurrent(with_options, 3, 4, wide=5, width=3)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'proj'; options of cell 'lstm': none"):
        anyrnn.torch.Recurrent("lstm", 3, 4, proj=2)
    with pytest.raises(TypeError, match=r"keyword argument 'hidden' \(did you mean 'hidden_size'\?\); options of cell 'lstm'"):
        anyrnn.torch.Recurrent("lstm", 3, 4, hidden=2)


def halves(x, h):
    a, b = split(affine("a", x, h), 2)
    return concat(b, a), State(h=concat(a, b))


def third(x, h):
    a, b, c = split(affine("a", x, h, size=4), 3)
    return h, State(h=h * mean(a + b + c))


def two_heads(x, h):
    a = affine("a", x, size=4, heads=2)
    return h, State(h=h + mean(a))


def half_a_row(x, h):
    a = affine("a", x, size=3, heads=2)
    return h, State(h=h + mean(a))


def none_left(x, h):
    a, b = split(affine("a", x, h), ["hidden - 1", 1])
    return h, State(h=h * mean(a) + mean(b))


@pytest.mark.parametrize(
    ("function", "sizes", "message"),
    [
        (none_left, (3, 1), "the size hidden - 1 is 0 for hidden=1"),
        (halves, (3, 5), "the size hidden/2 is not a whole number for hidden=5"),
        (third, (3, 5), "the size 4/3 is not a whole number$"),
        (half_a_row, (4, 5), "the size 3/2 is not a whole number$"),
        (two_heads, (3, 5), "the size input/2 is not a whole number for input=3"),
        (two_heads, (4, 5, 2), "the size input/2 is not a whole number for input=5"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(function: Callable[..., Any], sizes: tuple[int, ...], message: str) -> None:
    line = inspect.getsourcelines(function)[1] + 1
    with pytest.raises(CellError, match=re.escape(f"{__file__}:{line}: cell '{function.__name__}': ") + message):
        anyrnn.torch.Recurrent(cell(function), *sizes)


@pytest.mark.parametrize("value", [0, -3, 2.5, "5"])
def test_a_named_size_is_a_positive_whole_number(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="wide"):
        anyrnn.torch.Recurrent(with_options, 3, 4, wide=value)


def test_the_number_of_layers_is_whole() -> None:
    with pytest.raises(TypeError, match="num_layers should be of type int, got: float"):
        anyrnn.torch.Recurrent("lstm", 3, 4, num_layers=2.5)


def test_the_inputs_size_may_have_any_name() -> None:
    def named(x: Vec("pixels"), h):
        h = tanh(affine("a", x, h))
        return h, State(h=h)

    assert anyrnn.Recurrent(cell(named), 3, 5, 2).parameters["weight_ih_l0"].shape == (5, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'pixels'; options of cell 'named': none"):
        anyrnn.Recurrent(cell(named), 3, 5, pixels=4)


def test_an_input_of_the_hidden_size() -> None:
    def residual(x: Vec("hidden"), h):
        h = tanh(affine("a", x, h)) + x
        return h, State(h=h)

    assert anyrnn.Recurrent(cell(residual), 5, 5, 2).parameters["weight_ih_l1"].shape == (5, 5)
    with pytest.raises(ValueError, match=r"cell 'residual' takes inputs of the hidden size 5, got input_size=3"):
        anyrnn.Recurrent(cell(residual), 3, 5)
    with pytest.raises(ValueError, match=r"cell 'residual' takes inputs of the hidden size, but layers above get 10"):
        anyrnn.Recurrent(cell(residual), 5, 5, 2, bidirectional=True)


def test_a_list_cannot_be_a_hyper_parameter() -> None:
    with pytest.raises(
        TypeError, match=r"hyper-parameter 'activation' of cell 'with_activation' should be a function, got a list"
    ):
        with_activation.trace(activation=[1])


@cell
def with_activation(x, h, *, activation=tanh, twice=False):
    h = activation(affine("h", x, h))
    return (activation(h) if twice else h), State(h=h)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((with_options, "depth", 2.0), "'depth' of cell 'with_options' should be a whole number, got 2.0"),
        ((with_options, "depth", True), "'depth' of cell 'with_options' should be a whole number, got True"),
        ((with_options, "depth", "2"), "'depth' of cell 'with_options' should be a whole number, got '2'"),
        ((with_activation, "twice", 1), "'twice' of cell 'with_activation' should be True or False, got 1"),
    ],
    ids=["float", "bool", "text", "number"],
)
def test_hyper_parameters_of_another_kind(given: Any, message: str) -> None:
    made, name, value = given
    with pytest.raises(TypeError, match=message):
        made.trace(**{name: value})


def test_a_parameter_that_is_declared_twice() -> None:
    def declared(**other: Any) -> None:
        @cell
        def twice(x, h):
            a, b = vector("v", init=0.5), vector("v", **{"init": 0.5, **other})
            h = tanh(affine("h", x, h) + a * b)
            return h, State(h=h)

        twice.trace()

    declared()
    for other, what in (({"init": 1.0}, "first values"), ({"trained": False}, "values of trained"), ({"size": 3}, "shapes")):
        with pytest.raises(CellError, match=f"parameter 'v' is declared twice with different {what}"):
            declared(**other)


def test_one_value_for_two_arguments_of_a_cell() -> None:
    @cell
    def outer(x, h):
        y, state = cells.lstm(x, h, h)
        return y, State(h=state.h)

    with pytest.raises(CellError, match=r"test_errors.py:\d+: cell 'lstm' is given one value for h and c"):
        outer.trace()


def test_sizes_of_a_cell_within_another_are_those_of_what_it_is_given() -> None:
    @cell
    def outer(x, h, m: Vec("memory")):
        with scope("above"):
            y, above = cells.mingru(h, m)
        h = tanh(affine("h", x, h, y))
        return h, State(h=h, m=above.h)

    assert [str(d) for d in next(p for p in outer.trace().parameters if p.name == "above_weight_ih").shape] == [
        "2*memory",
        "hidden",
    ]

    @cell
    def mixed(x, h, c: Vec("memory")):
        y, state = cells.lstm(x, h, c)
        return y, State(h=state.h, c=state.c)

    with pytest.raises(CellError, match=r"cell 'lstm' is given hidden and memory features for what is all of size hidden"):
        mixed.trace()


def test_more_ops_than_a_plan_is_made_of() -> None:
    @cell
    def long(x, h):
        h = tanh(affine("h", x, h))
        for _ in range(4000):
            h = h + 0.001 * tanh(h)
        return h, State(h=h)

    with pytest.raises(UnsupportedError, match=r"cell 'long' has 12\d+ ops in a step; plans are made of 10000 at most"):
        anyrnn.Recurrent(long, 3, 4)(np.zeros((2, 1, 3), np.float32))


@pytest.mark.parametrize("order", [lambda n, a: n * a, lambda n, a: a * n], ids=["right", "left"])
def test_a_number_in_an_array_without_axes(order: Any) -> None:
    def cell_of(number: Any) -> Any:
        def mine(x, h):  # type: ignore[no-untyped-def]
            h = order(tanh(affine("n", x, h)), number)
            return h, State(h=h)

        return cell(mine).trace()

    assert cell_of(np.array(0.5)).nodes == cell_of(0.5).nodes
    with pytest.raises(CellError, match="is a bool"):
        cell_of(np.array(True))


@pytest.mark.parametrize(
    ("size", "says"),
    [("rank", "has the name of a hyper-parameter; give it another name$"),
     ("num_layers", "has the name of a layer's argument; give it another name$"),
     ("hidden_size", "has the name of a layer's argument; give it another name, or 'hidden'$")],
)  # fmt: skip
def test_sizes_that_no_layer_could_be_given(size: str, says: str) -> None:
    def named(x, h, p, *, rank=0.5):  # type: ignore[no-untyped-def]
        h = tanh(affine("n", x, h, p))
        return h, State(h=h, p=p)

    named.__annotations__["p"] = Vec(size)
    with pytest.raises(CellError, match=rf"^{re.escape(__file__)}:\d+: size '{size}' {says}"):
        cell(named).trace()


def test_a_step_called_self() -> None:
    def named(x, h, self: Step(1)):  # type: ignore[no-untyped-def, valid-type]
        return h, State(h=h)

    with pytest.raises(CellError, match="per-step input 'self' has the name of a call's argument"):
        cell(named)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    for rate in (np.float32(0.25), torch.tensor(0.25), np.float64(0.25)):
        assert with_options.trace(rate=rate) is with_options.trace(rate=0.25)
    assert with_options.trace(depth=np.int64(2)) is with_options.trace(depth=2)
    assert with_options.values({"rate": 1}) == {"rate": 1.0, "depth": 2}
    with pytest.raises(TypeError, match=r"hyper-parameter 'rate' of cell 'with_options' should be a number, got 'x'"):
        with_options.trace(rate="x")
    with pytest.raises(TypeError, match="'rate' of cell 'with_options' should be a number, got a Parameter"):
        with_options.trace(rate=torch.nn.Parameter(torch.tensor(0.25)))


def test_other_values_of_a_number_compile_nothing() -> None:
    assert with_options.trace(rate=0.1) is with_options.trace(rate=0.2)
    few, many = (anyrnn.Recurrent(with_options, 3, 4, wide=4, rate=rate, seed=0) for rate in (0.1, 0.9))
    x = np.ones((5, 2, 3), np.float32)
    assert not np.allclose(few(x)[0], many(x)[0])
    assert few.network.plan is many.network.plan


def with_a_default(x, h, rate=0.5):
    return h, State(h=h)


def with_a_layers_argument(x, h, *, dropout=0.5):
    return h, State(h=h)


def called_y(x, y):
    return y, State(y=y)


def called_d_h(x, h, d_h):
    return h, State(h=h, d_h=d_h)


def called_d_y(x, h, d_y):
    return h, State(h=h, d_y=d_y)


def called_lengths(x, h, lengths: Step(1)):
    return h, State(h=h)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (with_a_default, r"'rate' has a default; hyper-parameters come after a star: \*, rate=0\.5"),
        (with_a_layers_argument, r"hyper-parameter 'dropout' has the name of a layer's argument; give it another name"),
        (called_y, r"an argument called y would share its name with the output; give it another name"),
        (called_lengths, r"per-step input 'lengths' has the name of a call's argument; give it another name"),
        (called_d_h, r"an argument called d_h would share its name with the gradient of h; give it another name"),
        (called_d_y, r"an argument called d_y would share its name with the gradient of y; give it another name"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_names_and_defaults_of_arguments(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(CellError, match=words):
        cell(function)


def test_a_method_of_arrays_names_the_function() -> None:
    def method(x, h):
        h = h.tanh()
        return h, State(h=h)

    with pytest.raises(CellError, match=r"a traced value has no \.tanh; use anyrnn\.tanh\(value\)"):
        cell(method).trace()


def test_what_is_no_cell_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cell should be a Cell, .* got function 'leaks': put @cell above it"):
        anyrnn.Recurrent(leaks, 3, 4)
    with pytest.raises(TypeError, match=r"got a type"):
        anyrnn.torch.Recurrent(torch.nn.LSTMCell, 3, 4)


def test_a_value_is_called_by_the_variable_that_holds_it() -> None:
    def twins(x, h):
        a = 0.5 * h
        b = 0.5 * h
        h = tanh(affine("n", x, b) + a)
        return h, State(h=h)

    assert [p.name for p in cell(twins).trace().parameters][:2] == ["weight_ih", "weight_bh"]


# loading


def test_an_unknown_cell_names_those_there_are() -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown cell 'ltsm' \(did you mean 'lstm'\?\); `anyrnn cells` lists the built-in ones, one of your own is",
    ):
        cells.load("ltsm")


def test_a_cell_file_that_is_not_there(tmp_path: Any) -> None:
    missing = tmp_path / "mine.py"
    with pytest.raises(FileNotFoundError, match=re.escape(f"cell '{missing}:mine': there is no file '{missing}'")):
        cells.load(f"{missing}:mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match="there is no file"):
        cells.load(f"{folder}:mine")


def test_a_file_without_the_cell_names_those_it_has(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from anyrnn import State, affine, cell, tanh\n"
        "@cell\ndef first(x, h):\n    h = tanh(affine('a', x, h))\n    return h, State(h=h)\n"
    )
    assert cells.load(f"{file}:first").name == "first"
    with pytest.raises(ValueError, match=r"has no cell 'second'; it has first"):
        cells.load(f"{file}:second")
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\ndef first(:\n")
    with pytest.raises(ValueError, match=re.escape(f"cell '{broken}:first': {broken}:2: invalid syntax")):
        cells.load(f"{broken}:first")
    with pytest.raises(ValueError, match=re.escape(f"cell '{file}' is a file: write {file}:first")):
        cells.load(str(file))
    text = tmp_path / "mine.txt"
    text.write_text("hello")
    with pytest.raises(ValueError, match=r"is not a Python file \(my_file\.py:my_cell\)"):
        cells.load(f"{text}:first")


def test_states_without_names_are_refused() -> None:
    @cell
    def unnamed(x, h):
        return h, State(h)

    with pytest.raises(TypeError, match=r"State takes the new states by name: State\(h=h, c=c\)"):
        unnamed.trace()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_outputs_and_states_have_one_size_in_all_layers(bidirectional: bool) -> None:
    @cell
    def echo(x, h):
        h = tanh(affine("h", x, h))
        return affine("y", h, size="input") * x, State(h=h)

    @cell
    def delayed(x, past: Vec("input")):
        return tanh(affine("h", x, past)), State(past=x)

    for backend in ("auto", "reference"):
        options = {"num_layers": 2, "bidirectional": bidirectional, "backend": backend}
        with pytest.raises(ValueError, match="cell 'delayed': state 'past' has 3 features in the first layer and would have"):
            anyrnn.Recurrent(delayed, 3, 5, **options)
        if bidirectional:
            with pytest.raises(ValueError, match="cell 'echo': the output has 3 features in the first layer and would have 6 in"):
                anyrnn.Recurrent(echo, 3, 5, **options)
        else:
            assert anyrnn.Recurrent(echo, 3, 5, **options)(np.ones((2, 1, 3), "f"))[0].shape == (2, 1, 3)


@pytest.mark.parametrize("given", ["paper", 3, len])
def test_what_is_no_function(given: Any) -> None:
    with pytest.raises(TypeError, match="@cell stands above a function"):
        cell(given)


def test_a_method_is_a_function() -> None:
    class Equations:
        def step(self, x, h):
            h = tanh(affine("a", x, h))
            return h, State(h=h)

    assert cell(Equations().step).trace().name == "step"


def test_a_hyper_parameter_without_its_star() -> None:
    def mine(x, h, rate):  # type: ignore[no-untyped-def]
        h = rate * tanh(affine("n", x, h))
        return h, State(h=h)

    with pytest.raises(
        CellError, match=r"must return the states h, rate; it returned h \(a hyper-.*: \*, rate=0.1; .*: rate: Step\(1\)"
    ):
        cell(mine).trace()


def test_an_error_inside_of_a_built_in_cell_begins_with_the_users_line() -> None:
    def calls_twice(x, h, g):  # type: ignore[no-untyped-def]
        y, a = cells.gru(x, h)
        z, b = cells.gru(y, g)
        return z, State(h=a.h, g=b.h)

    line = calls_twice.__code__.co_firstlineno + 2
    message = r"weight_ih has input columns, but y has hidden features; .* a `scope` around one of them"
    with pytest.raises(CellError, match=rf"^{re.escape(__file__)}:{line}: {message} \(in .*gru.py:\d+\)$"):
        cell(calls_twice).trace()


def test_a_bias_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="bias should be a bool or one of both, input, recurrent, none, got 'inputs'"):
        cells.load("gru").trace(bias="inputs")


def test_a_tuple_of_what_cannot_be_hashed() -> None:
    @cell
    def sized(x, h, *, sizes=(1,)):
        return h, State(h=tanh(affine("n", x, h)))

    with pytest.raises(
        TypeError, match=r"hyper-parameter 'sizes' of cell 'sized' should be hashable \(as tuples of numbers are\), got a tuple"
    ):
        sized.trace(sizes=([1],))


def test_a_plus_sign_changes_nothing() -> None:
    @cell
    def plus(x, h):
        h = +tanh(+affine("n", x, h))
        return h, State(h=h)

    assert [node.op for node in plus.trace().nodes].count("add") == 0
