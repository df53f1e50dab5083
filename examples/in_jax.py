"""A cell of one's own in JAX, on the adding problem of Hochreiter & Schmidhuber 1997: the sum of two numbers that are marked."""

import jax
import jax.numpy as jnp

import anyrnn.jax
from anyrnn import State, affine, cell, sigmoid, tanh


@cell
def light_gru(x, h):
    """One gate, no reset: an update of the state by what the input and the state propose."""
    z = sigmoid(affine("z", x, h))
    n = tanh(affine("n", x, h))
    h = z * h + (1 - z) * n
    return h, State(h=h)


layer = anyrnn.jax.Recurrent(light_gru, 2, 64)


def predicted(parameters, x):
    _, h = layer.apply(parameters["layer"], x)  # [T, N, 2] -> [T, N, 64], [1, N, 64]
    return h[0] @ parameters["head"]


def loss(parameters, x, y):
    return ((predicted(parameters, x) - y) ** 2).mean()


def batch(key, steps=40, rows=64):
    of_numbers, *of_marks = jax.random.split(key, 3)
    numbers = jax.random.uniform(of_numbers, (steps, rows))
    first, second = (jax.random.randint(k, (rows,), 0, steps // 2) for k in of_marks)
    each = jnp.arange(steps)[:, None]
    marks = (each == first) | (each == steps // 2 + second)
    return jnp.stack([numbers, marks], -1), (numbers * marks).sum(0)


@jax.jit
def step(parameters, moments, i, key):
    """Of Adam."""
    value, gradients = jax.value_and_grad(loss)(parameters, *batch(key))
    means, squares = moments
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
    squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, squares, gradients)
    rate = 3e-3 * jnp.sqrt(1 - 0.999**i) / (1 - 0.9**i)
    parameters = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), parameters, means, squares)
    return parameters, (means, squares), value


def main(iterations=600):
    of_layer, of_head, *keys = jax.random.split(jax.random.key(0), iterations + 2)
    parameters = {"layer": layer.init(of_layer), "head": jax.random.uniform(of_head, 64, minval=-0.125, maxval=0.125)}
    moments = (jax.tree.map(jnp.zeros_like, parameters),) * 2
    for i, key in enumerate(keys, 1):
        parameters, moments, value = step(parameters, moments, i, key)
        if i % 100 == 0:
            print(f"step {i}: mean squared error {value:.4f}")
    return float(value)


if __name__ == "__main__":
    main()
