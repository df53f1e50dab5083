"""The JAX front-end: `Recurrent` for any cell with all options, as pure functions of its parameters.

>>> import jax, jax.numpy as jnp, anyrnn.jax
>>> layer = anyrnn.jax.Recurrent("lstm", 3, 5)
>>> parameters = layer.init(jax.random.key(0))
>>> def loss(parameters, x):
...     output, (h, c) = layer.apply(parameters, x)
...     return (output**2).mean()
>>> gradients = jax.jit(jax.grad(loss))(parameters, jnp.ones((7, 2, 3)))
>>> gradients["weight_hh_l0"].shape
(20, 5)
"""

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    from anyrnn.errors import MissingExtraError

    raise MissingExtraError('anyrnn.jax needs JAX: pip install "anyrnn[jax]"') from error

from anyrnn.jax.recurrent import Recurrent as Recurrent

__all__ = ["Recurrent"]
