"""The recurrent layers: ours, or torch's for comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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

    Raises: UsageError for a cell that does not exist, or that torch.nn does not have, and for sizes that it has not; so do they
    for layers that a cell cannot have.
    """
    make = _torch_layer(options) if options.layers_from == "torch" else _our_layer(options)

    def build(features: int) -> nn.Module:
        try:
            return make(features, options.hidden, options.layers, bidirectional=options.bidirectional)
        except ValueError as error:
            raise UsageError(f"--cell {options.cell}: {error}") from error

    return build


def _torch_layer(options: Options) -> Callable[..., nn.Module]:
    if options.cell not in TORCH_LAYERS:
        raise UsageError(f"--layers-from torch: torch.nn has no {options.cell!r}; it has {', '.join(TORCH_LAYERS)}")
    if options.sizes:
        raise UsageError(f"--size {next(iter(options.sizes))}: torch.nn's layers have no further sizes")
    return TORCH_LAYERS[options.cell]


def _our_layer(options: Options) -> Callable[..., nn.Module]:
    from anyrnn import cells
    from anyrnn.torch import Recurrent

    try:
        cell = cells.load(options.cell)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(f"--cell: {error}") from error
    try:
        graph = cell.trace()
    except CellError as error:
        raise UsageError(f"--cell {options.cell}: {error}") from error
    if further := [name for name, _ in graph.inputs[1:]]:
        raise UsageError(f"--cell {options.cell}: it needs the per-step input {further[0]}, which no data here have")
    if graph.input_size_name == "hidden":
        widened = "`anyrnn compare` puts a linear layer before such cells"
        raise UsageError(f"--cell {options.cell}: its input has the size of its state, and no data here have; {widened}")
    sizes = graph.other_sizes(options.hidden, options.sizes)
    for name in options.sizes:
        if name not in sizes:
            raise UsageError(f"--size {name}: {options.cell} has no such size; it has {', '.join(sizes) or 'no others'}")
    more: dict[str, Any] = dict(sizes)
    return partial(Recurrent, cell, **more)
