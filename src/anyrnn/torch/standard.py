"""`RNN`, `LSTM` and `GRU` with the interface of torch.nn's, and with the options of `Recurrent` as keyword arguments."""

from __future__ import annotations

from typing import Any, ClassVar

from anyrnn import cells
from anyrnn.torch.recurrent import Recurrent


class _Standard(Recurrent):
    """What RNN, LSTM and GRU share: torch.nn's positional arguments and attributes."""

    mode: str
    proj_size = 0
    __constants__: ClassVar[list[str]] = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]

    def _repr_first(self) -> list[str]:
        return []

    def _repr_options(self) -> dict[str, Any]:
        own = {"proj_size": self.proj_size} if self.proj_size else {}
        return own | {name: value for name, value in self.options.items() if name != "proj"}


class RNN(_Standard):
    """Elman network with torch.nn.RNN's interface: h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. It has the
    options of `Recurrent` as keywords.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        cell = cells.rnn_tanh if nonlinearity == "tanh" else cells.rnn_relu
        super().__init__(
            cell,
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
            **options,
        )
        self.nonlinearity = nonlinearity
        self.mode = f"RNN_{nonlinearity.upper()}"


class LSTM(_Standard):
    """LSTM with torch.nn.LSTM's interface, and the options of `Recurrent` as keywords; `hx` is (h_0, c_0)."""

    mode = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size and proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        options |= {"proj": proj_size} if proj_size else {}
        super().__init__(
            cells.lstm_projected if proj_size else cells.lstm,
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
            **options,
        )
        self.proj_size = proj_size


class GRU(_Standard):
    """GRU with torch.nn.GRU's interface, and the options of `Recurrent` as keywords: the reset gate after the product."""

    mode = "GRU"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(
            cells.gru,
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
            **options,
        )
