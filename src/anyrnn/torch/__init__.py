"""The torch front-end: modules for any cell, and drop-in ones for torch.nn.RNN, LSTM and GRU."""

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
