"""`RNN`, `LSTM`, `GRU` and their cells with the interface of torch.nn's, and with the options of ours as keyword arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from anyrnn import cells
from anyrnn.torch.cell import RecurrentCell
from anyrnn.torch.recurrent import Recurrent
from anyrnn.trace import Cell


def _elman(who: str, nonlinearity: str) -> Cell:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"{who}: Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'.")
    cell: Cell = cells.rnn_tanh if nonlinearity == "tanh" else cells.rnn_relu
    return cell


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

    # names of torch.nn's that are no promise of its, and which much code knows

    @property
    def _all_weights(self) -> list[list[str]]:
        """The parameters' names, a list for each layer and direction."""
        return [list(names) for names in self._parameter_names]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._parameter_names for name in names]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: Sequence[Tensor]) -> None:
        """Calls read the attributes, so it only looks whether these are what is given.

        Raises: AttributeError if they are not.
        """
        given, own = list(weights), self._flat_weights
        if len(given) != len(own) or any(a is not b for a, b in zip(given, own, strict=True)):
            raise AttributeError(
                f"{self._label}: _flat_weights are the attributes ({', '.join(self._flat_weights_names)}): set those"
            )

    def _repr_first(self) -> list[str]:
        return []

    def _repr_options(self) -> dict[str, Any]:
        own = {"proj_size": self.proj_size} if self.proj_size else {}
        return own | {name: value for name, value in self.options.items() if name != "proj"}


class RNN(_Standard):
    """Elman network with torch.nn.RNN's interface: h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. Source: Elman 1990.

    Args: those of torch.nn.RNN, in its order; and as keywords the options of `Recurrent`.

    A call takes an input [T, N, D] and the state h_0 [L * S, N, H] of L layers in S directions, zeros by default, and gives the
    output [T, N, S * H] and h_n; see `Recurrent.forward` for what else it may be given.

    Raises: ValueError or TypeError for arguments that do not fit.

    Example:
        >>> import torch, anyrnn.torch
        >>> output, h = anyrnn.torch.RNN(3, 5, nonlinearity="relu")(torch.zeros(7, 2, 3))
        >>> output.shape, h.shape
        (torch.Size([7, 2, 5]), torch.Size([1, 2, 5]))
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
        cell = _elman("RNN", nonlinearity)
        self.nonlinearity = nonlinearity  # before parameters are drawn, as in torch.nn
        self.mode = f"RNN_{nonlinearity.upper()}"
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


class LSTM(_Standard):
    """LSTM with torch.nn.LSTM's interface. Source: Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000; with
    `proj_size` Sak, Senior & Beaufays 2014.

    Args: those of torch.nn.LSTM, in its order; and as keywords the options of `Recurrent`. `proj_size`: features P of the output
        and of h, fewer than H; 0 for H.

    A call takes an input [T, N, D] and the states (h_0 [L * S, N, P], c_0 [L * S, N, H]) of L layers in S directions, zeros by
    default, and gives the output [T, N, S * P] and (h_n, c_n); see `Recurrent.forward` for what else it may be given.

    Raises: ValueError or TypeError for arguments that do not fit.

    Example:
        >>> import torch, anyrnn.torch
        >>> output, (h, c) = anyrnn.torch.LSTM(3, 5, proj_size=4)(torch.zeros(7, 2, 3))
        >>> output.shape, h.shape, c.shape
        (torch.Size([7, 2, 4]), torch.Size([1, 2, 4]), torch.Size([1, 2, 5]))
    """

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
        if not isinstance(proj_size, int) or isinstance(proj_size, bool):
            raise TypeError(f"LSTM: proj_size should be of type int, got: {type(proj_size).__name__}")
        if proj_size < 0:
            raise ValueError(f"LSTM: proj_size should be a positive integer or zero to disable projections, got {proj_size}")
        if proj_size and proj_size >= hidden_size:
            raise ValueError(f"LSTM: proj_size has to be smaller than hidden_size, got {proj_size} and {hidden_size}")
        if proj_size and "proj" in options:
            raise TypeError("LSTM: proj_size is what proj would say; give one of them")
        options |= {"proj": proj_size} if proj_size else {}
        self.proj_size = proj_size
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


class GRU(_Standard):
    """GRU with torch.nn.GRU's interface: the reset gate after the product. Source: Cho et al. 2014, in the form of cuDNN.

    Args: those of torch.nn.GRU, in its order; and as keywords the options of `Recurrent`.

    A call takes an input [T, N, D] and the state h_0 [L * S, N, H] of L layers in S directions, zeros by default, and gives the
    output [T, N, S * H] and h_n; see `Recurrent.forward` for what else it may be given.

    Raises: ValueError or TypeError for arguments that do not fit.

    Example:
        >>> import torch, anyrnn.torch
        >>> output, h = anyrnn.torch.GRU(3, 5, num_layers=2, bidirectional=True)(torch.zeros(7, 2, 3))
        >>> output.shape, h.shape
        (torch.Size([7, 2, 10]), torch.Size([4, 2, 5]))
    """

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


class _StandardCell(RecurrentCell):
    """What RNNCell, LSTMCell and GRUCell share: a call gives the new state alone, and biases that are left out are None."""

    __constants__: ClassVar[list[str]] = ["input_size", "hidden_size", "bias"]

    def __init__(self, cell: Cell, input_size: int, hidden_size: int, bias: bool, **options: Any) -> None:
        # torch.nn's cells, and programs with them, take any truth value (`LSTMCell(80, 1024, 1)`), and numbers of any kind
        given: Any = bias
        first, second = (size.__index__() if hasattr(size, "__index__") else size for size in (input_size, hidden_size))
        super().__init__(cell, first, second, given if isinstance(given, str) else bool(given), **options)
        for name in ("bias_ih", "bias_hh"):
            if name not in self._parameters:
                self.register_parameter(name, None)

    def forward(self, input: Tensor, hx: Tensor | tuple[Tensor, ...] | None = None, **steps: Tensor) -> Any:
        """One step; see `RecurrentCell.forward`. Returns: the new state, a tensor or a tuple of several."""
        _, states = self._step(input, hx, steps)
        return states[0] if len(states) == 1 else tuple(states)

    def _repr_first(self) -> list[str]:
        return []


class RNNCell(_StandardCell):
    """A step of an Elman network, with torch.nn.RNNCell's interface and the options of `RecurrentCell` as keywords. A call takes
    an input [N, D] and the state [N, H], zeros by default, and gives the new state [N, H]; without a batch all are without N.

    >>> import torch
    >>> from anyrnn.torch import RNNCell
    >>> cell = RNNCell(3, 4, nonlinearity="relu")
    >>> cell(torch.zeros(5, 3)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(_elman("RNNCell", nonlinearity), input_size, hidden_size, bias, device=device, dtype=dtype, **options)
        self.nonlinearity = nonlinearity

    def _repr_options(self) -> dict[str, Any]:
        own = {"nonlinearity": self.nonlinearity} if self.nonlinearity != "tanh" else {}
        return own | super()._repr_options()


class LSTMCell(_StandardCell):
    """A step of an LSTM, with torch.nn.LSTMCell's interface and the options of `RecurrentCell` as keywords. A call takes an input
    [N, D] and the states (h [N, H], c [N, H]), zeros by default, and gives the new ones; without a batch all are without N.

    >>> import torch
    >>> from anyrnn.torch import LSTMCell
    >>> cell, x = LSTMCell(3, 4), torch.zeros(7, 5, 3)  # [T, N, D]
    >>> state = None
    >>> for x_t in x:
    ...     h, c = state = cell(x_t, state)
    >>> h.shape
    torch.Size([5, 4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None, **options: Any
    ) -> None:
        super().__init__(cells.lstm, input_size, hidden_size, bias, device=device, dtype=dtype, **options)


class GRUCell(_StandardCell):
    """A step of a GRU, with torch.nn.GRUCell's interface and the options of `RecurrentCell` as keywords. A call takes an input
    [N, D] and the state [N, H], zeros by default, and gives the new state [N, H]; without a batch all are without N.

    >>> import torch
    >>> from anyrnn.torch import GRUCell
    >>> cell = GRUCell(3, 4)
    >>> cell(torch.zeros(5, 3), torch.zeros(5, 4)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None, **options: Any
    ) -> None:
        super().__init__(cells.gru, input_size, hidden_size, bias, device=device, dtype=dtype, **options)
