"""The recurrent layers: ours, or torch's for comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from anyrnn.errors import CellError
from anyrnn.train.errors import UsageError
from anyrnn.train.options import Options

# torch.nn's layer for the built-in cell of that name.
TORCH_LAYERS: dict[str, Callable[..., nn.Module]] = {
    "rnn_tanh": partial(nn.RNN, nonlinearity="tanh"),
    "rnn_relu": partial(nn.RNN, nonlinearity="relu"),
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}


def find_layers(options: Options) -> Callable[[int], nn.Module]:
    """What makes the recurrent layers when told D, the features of a step. They take [T, N, D] and give [T, N, S*H] and a state.

    Raises: UsageError for a cell that does not exist, or that torch.nn does not have.
    """
    make = _torch_layer(options.cell) if options.layers_from == "torch" else _our_layer(options.cell)

    def build(features: int) -> nn.Module:
        return make(features, options.hidden, options.layers, bidirectional=options.bidirectional)

    return build


def _torch_layer(name: str) -> Callable[..., nn.Module]:
    if name not in TORCH_LAYERS:
        raise UsageError(f"--layers-from torch: torch.nn has no {name!r}; it has {', '.join(TORCH_LAYERS)}")
    return TORCH_LAYERS[name]


def _our_layer(spec: str) -> Callable[..., nn.Module]:
    from anyrnn import cells
    from anyrnn.torch import Recurrent

    try:
        cell = cells.load(spec)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(f"--cell: {error}") from error
    try:
        sizes = [size for size in cell.trace().size_names if size not in ("input", "hidden")]
    except CellError as error:
        raise UsageError(f"--cell {spec}: {error}") from error
    if sizes:
        raise UsageError(f"--cell {spec}: the cell needs the size {sizes[0]}, which no option gives")
    return partial(Recurrent, cell)
