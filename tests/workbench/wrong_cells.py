"""Cells that are wrong, each in one way. `# fault: ...` stands in the line that `check` must name, with what it must say."""
# ruff: noqa: F821, F841
# mypy: ignore-errors

import math

import numpy as np

from anyrnn import (
    Scalar,
    State,
    Vec,
    affine,
    cell,
    clip_gradient,
    concat,
    equal,
    exp,
    floor,
    log,
    matrix,
    norm,
    relu,
    rms_norm,
    scalar,
    sigmoid,
    split,
    sqrt,
    stop_gradient,
    tanh,
    total,
    vector,
    where,
)


@cell
def too_few_states(x, h, c):  # fault: must return the states h, c; it returned h
    h = tanh(affine("h", x, h) + c)
    return h, State(h=h)


@cell
def too_many_states(x, h):  # fault: must return the states h; it returned h, c
    h = tanh(affine("h", x, h))
    return h, State(h=h, c=h)


@cell
def no_state_returned(x, h):  # fault: must return `output, State\(...\)`
    return tanh(affine("h", x, h))


@cell
def branch(x, h):
    n = tanh(affine("n", x, h))
    if n > 0:  # fault: a cell cannot branch on a traced value
        h = n
    return h, State(h=h)


@cell
def size_mixed_up(x, h, s: Vec("other")):
    s = tanh(affine("s", x, size="other"))
    h = tanh(affine("h", x, h)) + s  # fault: add mixes sizes: .*other
    return h, State(h=h, s=s)


@cell
def state_of_another_size(x, h, s: Vec("other")):  # fault: returns state 's' with shape \[hidden\]; it was given as \[other\]
    h = tanh(affine("h", x, h))
    return h, State(h=h, s=h)


@cell
def matrix_mixed_up(x, h):
    h = tanh(matrix("w", "hidden", "hidden") @ x + affine("h", h))  # fault: a product of w .* with x .* mixes sizes
    return h, State(h=h)


@cell
def misspelt(x, h):
    n = tanh(affine("n", x, h))
    h = (1 - z) * n  # fault: NameError: name 'z' is not defined
    return h, State(h=h)


@cell
def other_library(x, h):
    h = np.tanh(affine("h", x, h))  # fault: numpy.tanh is not an op of a cell.*use anyrnn.tanh
    return h, State(h=h)


@cell
def python_number(x, h):
    h = h * math.exp(total(x))  # fault: a traced value cannot become a Python number
    return h, State(h=h)


@cell
def unused_parameter(x, h):
    gain = vector("gain", init=1.0)  # fault: parameter 'gain' is not used
    h = tanh(affine("h", x, h))
    return h, State(h=h)


@cell
def unused_gate(x, h):
    f = sigmoid(affine("f", x, h))
    z = sigmoid(affine("z", x, h))  # fault: the rows of gate 'z' in 'weight_ih' are not used
    h = f * h + (1 - f) * tanh(affine("n", x, h))
    return h, State(h=h)


@cell
def unused_input(x, h):  # fault: the input 'x' is not used
    h = tanh(affine("h", h))
    return h, State(h=h)


@cell
def unused_number(x, h, *, rate=0.5):  # fault: hyper-parameter 'rate' is not used
    h = tanh(affine("h", x, h))
    return h, State(h=h)


@cell
def never_changes(x, h, c):  # fault: state 'c' is returned as it came
    h = tanh(affine("h", x, h)) * c
    return h, State(h=h, c=c)


@cell
def forgotten(x, h, c):
    n = tanh(affine("n", x, h))  # fault: state 'c' is never read
    h = 0.5 * (h + n)
    return h, State(h=h, c=n)


@cell
def remembers_nothing(x, h):
    y = tanh(affine("y", x))  # fault: the output depends on no state
    h = tanh(affine("h", x, h))
    return y, State(h=h)


@cell
def never_shown(x, h, c):
    c = tanh(affine("c", x, c=c))  # fault: state 'c' never reaches the output
    h = tanh(affine("h", x, h))
    return h, State(h=h, c=c)


@cell
def no_gradient(x, h):
    k = floor(4 * affine("k", x, h))  # fault: no gradient reaches (the input 'x'|state 'h'|parameter '\w+').* goes through floor
    h = 0.25 * k + 0.5 * stop_gradient(h)
    return h, State(h=h)


@cell
def no_gradient_of_a_threshold(x, h):
    n = tanh(affine("n", x, h))
    h = where(n > scalar("threshold"), n, 0.5 * h)  # fault: no gradient reaches parameter 'threshold'.* through a test
    return h, State(h=h)


@cell
def not_a_number_at_zero(x, h):
    n = affine("n", x, h, bias=False)
    h = n / sqrt(total(n * n))  # fault: NaN at zero
    return h, State(h=h)


@cell
def infinite_at_zero(x, h):
    h = tanh(affine("n", x, h) + log(abs(h)))  # fault: the result of log is infinite at zero
    return h, State(h=h)


@cell
def gradient_infinite_at_zero(x, h):
    n = affine("n", x, h, bias=False)
    h = tanh(sqrt(n * n))  # fault: the gradient is (NaN|infinite) at zero
    return h, State(h=h)


@cell
def grows(x, h):
    h = 1.05 * h + tanh(affine("n", x, h))  # fault: state 'h' grows: its norm is over 1000 after \d+ steps
    return h, State(h=h)


@cell
def overflows(x, h, n: Vec(init=1)):
    e = exp(affine("e", x, h))
    n = n * (1 + e)  # fault: state 'n' grows
    h = tanh(affine("h", x, h)) / n + 0.5 * h
    return h, State(h=h, n=n)


@cell
def stuck(x, h):
    h = relu(affine("h", x, h) - 100)  # fault: the output is stuck
    return h, State(h=h)


@cell
def copied_line(x, h):
    r = sigmoid(affine("r", x, h))
    z = sigmoid(affine("r", x, h=r * h))  # fault: gate 'r' is asked for in lines \d+ and \d+: they share its weights
    h = z * h + (1 - z) * tanh(affine("n", x, h=r * h))
    return h, State(h=h)


def gate(name, x, h):
    return sigmoid(affine(name, x, h))


@cell
def copied_call(x, h):
    i = gate("i", x, h)
    f = gate("i", x, h)  # fault: gate 'i' of x, h is asked for in lines \d+ and \d+: it is the same value
    h = f * h + i * tanh(affine("n", x, h))
    return h, State(h=h)


def dense(name, v):
    return affine(name, v)


@cell
def shared_by_a_helper(x, h):
    a = tanh(affine("a", x, h))
    b = dense("n", tanh(a))
    c = dense("n", sigmoid(a))  # fault: gate 'n' is asked for in lines \d+ and \d+: they share its weights
    h = tanh(b + c)
    return h, State(h=h)


@cell
def computed_for_nothing(x, h):
    n = tanh(affine("n", x, h))
    scaled = 2 * n  # fault: 'scaled' is computed and not used
    h = 0.5 * (h + n)
    return h, State(h=h)


@cell
def parts_that_do_not_fit(x, h):  # fault: returns state 'h' with shape \[4\*hidden/3\]; it was given as \[hidden\]
    a, b, _ = split(affine("a b", x, h), 3)
    h = tanh(concat(a, b))
    return h, State(h=h)


@cell
def first_step_forever(x, h, t: Scalar()):
    h = where(equal(t, 0), tanh(affine("h", x, h)), h)  # fault: the output is stuck
    return h, State(h=h, t=t + 1)


@cell
def declared_twice(x, h):
    a = vector("a")
    h = tanh(affine("h", x, h) + a * scalar("a"))  # fault: parameter 'a' is declared twice with different shapes
    return h, State(h=h)


@cell
def outside_of_the_language(x, h):
    h = tanh(affine("h", x, h))[0]  # fault: a traced value cannot be indexed
    return h, State(h=h)


@cell
def unfinished(x, h):
    n = clip_gradient(affine("n", x, h), -1)  # fault: TypeError: clip_gradient\(\) missing 1 required positional argument
    return n, State(h=n)


@cell
def unused_count(x, h, *, k=3):  # fault: hyper-parameter 'k' is not used
    h = tanh(affine("h", x, h))
    return h, State(h=h)


@cell
def output_is_the_input(x, h):  # fault: the output depends on no state
    h = tanh(affine("h", x, h))
    return x, State(h=h)


@cell
def a_gain_that_begins_near_zero(x, h):
    h = tanh(vector("gain") * norm(affine("n", x, h)))  # fault: the gain 'gain' begins within 1 / sqrt.hidden. of zero
    return h, State(h=h)


@cell
def a_gain_of_a_root_mean_square(x, h):
    h = tanh(rms_norm(affine("n", x, h)) * vector("gain"))  # fault: begin at one, vector.'gain', init=1.0.
    return h, State(h=h)
