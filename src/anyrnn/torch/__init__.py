"""The torch front-end: `Recurrent` and `RecurrentCell` for any cell with all options, drop-in modules for torch.nn's `RNN`,
`LSTM`, `GRU` and their cells, `swap` to put them into a model, `freeze` for when it has been trained, and `RecurrentState`.

    >>> import torch, anyrnn.torch
    >>> output, (h, c) = anyrnn.torch.LSTM(3, 5)(torch.zeros(7, 2, 3))
    >>> output, h = anyrnn.torch.Recurrent("gru", 3, 5, zoneout=0.1)(torch.zeros(7, 2, 3), lengths=[7, 4])
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    from anyrnn.errors import MissingExtraError

    raise MissingExtraError('anyrnn.torch needs torch: pip install "anyrnn[torch]"') from error

from anyrnn.torch.cell import RecurrentCell as RecurrentCell
from anyrnn.torch.freezing import freeze as freeze
from anyrnn.torch.recurrent import Recurrent as Recurrent
from anyrnn.torch.standard import GRU as GRU
from anyrnn.torch.standard import LSTM as LSTM
from anyrnn.torch.standard import RNN as RNN
from anyrnn.torch.standard import GRUCell as GRUCell
from anyrnn.torch.standard import LSTMCell as LSTMCell
from anyrnn.torch.standard import RNNCell as RNNCell
from anyrnn.torch.state import RecurrentState as RecurrentState
from anyrnn.torch.swapping import swap as swap
from anyrnn.torch.swapping import swap_back as swap_back

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "Recurrent",
    "RecurrentCell",
    "RecurrentState",
    "freeze",
    "swap",
    "swap_back",
]
