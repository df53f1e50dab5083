"""Keras models as networks of the runtime, from their configs and arrays; Keras itself is not needed.

Known are Sequential and Functional models of Keras 3 and Keras 2 with the layers in `layers.HANDLERS`: recurrent ones and what is
usual around them. All others are refused by name.
"""

from __future__ import annotations

from anyrnn.convert.keras.parity import parity as parity
from anyrnn.convert.keras.reading import load as load
from anyrnn.convert.keras.reading import network as network

__all__ = ["load", "network", "parity"]
