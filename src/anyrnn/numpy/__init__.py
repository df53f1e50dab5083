"""The NumPy front-end: a layer to call, the primitives of training under it, and streams. It needs neither torch nor JAX."""

from anyrnn.numpy.recurrent import Recurrent
from anyrnn.numpy.state import RecurrentState
from anyrnn.numpy.stream import Stream

__all__ = ["Recurrent", "RecurrentState", "Stream"]
