"""For tests and doctests: Keras's backend, and front-ends whose libraries are not there."""

import os
from importlib.util import find_spec

os.environ.setdefault("KERAS_BACKEND", "torch")  # read when Keras is imported

collect_ignore = [f"src/anyrnn/{name}" for name in ("jax", "keras") if find_spec(name) is None]
