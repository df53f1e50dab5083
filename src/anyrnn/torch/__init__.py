"""The torch front-end: `Recurrent` for any cell with all options, drop-in modules for torch.nn's `RNN`, `LSTM` and `GRU`, and
`RecurrentState`.

    >>> import torch, anyrnn.torch
    >>> output, (h, c) = anyrnn.torch.LSTM(3, 5)(torch.zeros(7, 2, 3))
    >>> output, h = anyrnn.torch.Recurrent("gru", 3, 5, zoneout=0.1)(torch.zeros(7, 2, 3), lengths=[7, 4])
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    from anyrnn.errors import MissingExtraError

    raise MissingExtraError('anyrnn.torch needs torch: pip install "anyrnn[torch]"') from error

from anyrnn.torch.recurrent import Recurrent as Recurrent
from anyrnn.torch.standard import GRU as GRU
from anyrnn.torch.standard import LSTM as LSTM
from anyrnn.torch.standard import RNN as RNN
from anyrnn.torch.state import RecurrentState as RecurrentState

__all__ = ["GRU", "LSTM", "RNN", "Recurrent", "RecurrentState"]
