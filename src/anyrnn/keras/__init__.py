"""The Keras front-end: `LSTM`, `GRU` and `SimpleRNN` in the place of those of keras.layers, and `Recurrent` for any cell.

>>> import numpy as np, anyrnn.keras
>>> layer = anyrnn.keras.LSTM(5, return_sequences=True)
>>> tuple(layer(np.zeros((2, 7, 3), "float32")).shape)
(2, 7, 5)
>>> layer = anyrnn.keras.Recurrent("mgu", 5)
>>> tuple(layer(np.zeros((2, 7, 3), "float32")).shape)
(2, 5)
"""

try:
    import keras as _keras  # noqa: F401
except ImportError as error:
    from anyrnn.errors import MissingExtraError

    needed = "anyrnn.keras needs Keras 3 and its backend, which KERAS_BACKEND names (torch or jax)"
    raise MissingExtraError(f'{needed}: pip install "anyrnn[keras]" ({error})') from error

from anyrnn.keras.recurrent import Recurrent as Recurrent
from anyrnn.keras.recurrent import RecurrentCell as RecurrentCell
from anyrnn.keras.standard import GRU as GRU
from anyrnn.keras.standard import LSTM as LSTM
from anyrnn.keras.standard import SimpleRNN as SimpleRNN

__all__ = ["GRU", "LSTM", "Recurrent", "RecurrentCell", "SimpleRNN"]
