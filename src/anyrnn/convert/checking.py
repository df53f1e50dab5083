"""The parity report of a converted network, with the library that its file comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anyrnn import files, weights
from anyrnn.convert.recurrent import cell_of, stacks
from anyrnn.convert.report import SIZES, ULPS_OF_OTHERS, Parity, compared, drawn, run, sizes_of
from anyrnn.errors import MissingExtraError
from anyrnn.runtime.layers import Embedding
from anyrnn.runtime.network import Network
from anyrnn.runtime.saved import in_float64, with_backend

Array = npt.NDArray[Any]


def parity(source: str | os.PathLike[str], network: Network, *, seed: int = 0) -> Parity:
    """How far a network is from what it was made of, on random input.

    Args:
        source: the file; what is run beside the network is Keras, onnxruntime, or torch.nn's layer for the arrays of one.
        network: what `load` made of it.
        seed: of the input.

    Raises: ValueError for files that no library runs; MissingExtraError where the library is not installed.
    """
    kind = files.kind(source)
    if kind == "keras":
        from anyrnn.convert import keras

        return keras.parity(source, network, seed=seed)
    if kind == "onnx":
        return _with_onnxruntime(Path(source), network, seed)
    return _with_torch(Path(source), network, seed)


def parity_of_written(target: str | os.PathLike[str], network: Network, *, seed: int = 0) -> Parity:
    """How far an ONNX model that was written of a network is from it, on random input, by onnxruntime; the network is the
    original here. What is exact is the network in float64; for one of float64 its interpreter.

    Args: target: the file; network: what `save` made it of; seed: of the input.

    Raises: ValueError for files of other kinds, and those that onnxruntime cannot run; MissingExtraError where it is not
    installed.
    """
    if files.kind(target) != "onnx":
        raise ValueError(f"{target}: only ONNX models are run by a library as they stand")
    version, session = _onnxruntime(Path(target))
    calls = [drawn(network, rows, steps, seed + k) for k, (rows, steps) in enumerate(sizes_of(network))]
    wider = [{name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in call.items()}
             for call in calls]  # fmt: skip
    written = [result for call in calls for result in _run(target, session, list(network.outputs), call)]
    more_exact = with_backend(network, "reference") if network.dtype == np.float64 else in_float64(network)
    original, exact = ([result for call in given for result in run(of, call)]
                       for of, given in ((network, calls), (more_exact, wider)))  # fmt: skip
    return compared(f"{target} by onnxruntime {version}", network, calls, written, original, exact, ulps=ULPS_OF_OTHERS)


FARTHEST, FARTHEST_INT8 = 1e-3, 0.05
"""That the results of an object file may be from the network's, as a part of the largest: functions of NumPy are others, and a
number that they move is rounded to another integer now and then.
"""


def object_error(
    file: str | os.PathLike[str], network: Network, *, batch_size: int = 1, name: str | None = None, seed: int = 0
) -> float:
    """How far the results of an object file, run by this process, are from those of the network's stream, on random input: the
    largest difference, as a part of the largest magnitude.

    Args: file: of this processor or a lesser one; network, batch_size, name: what `anyrnn.aot.export` was told.

    Raises: OSError.
    """
    from anyrnn.aot.running import Running

    steps = SIZES[0][1]
    running, stream = Running(Path(file), network, batch_size, name), network.stream(batch_size)
    given = drawn(network, batch_size, steps, seed)
    by_step = {n: array.swapaxes(0, 1) if network.batch_first else array for n, array in given.items()}
    differences, values = [np.zeros(1)], [np.zeros(1)]
    for t in range(steps):
        here = {n: np.ascontiguousarray(array[t]) for n, array in by_step.items()}
        wanted = stream.step(here)
        of_network = list(wanted.values()) if isinstance(wanted, dict) else [wanted] if network.outputs else []
        for found, value in zip(running.step(here), of_network, strict=True):
            differences.append(np.abs(found - value).ravel())
            values.append(np.abs(value).ravel())
    return float(np.concatenate(differences).max() / (np.concatenate(values).max() or 1.0))


def int8_error(network: Network, rounded: Network, *, seed: int = 0) -> float:
    """How far the results of a network that is `in_int8` are from those of what it was made of, on random input, as part of their
    norm.
    """
    calls = [drawn(network, rows, steps, seed + k) for k, (rows, steps) in enumerate(sizes_of(network))]
    before, after = (np.concatenate([a.ravel() for call in calls for a in run(of, call)]) for of in (network, rounded))
    return float(np.linalg.norm(after - before) / (np.linalg.norm(before) or 1.0))


def _onnxruntime(path: Path) -> tuple[str, Any]:
    """Its version, and a session of a model."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime is not installed: pip install onnxruntime") from None
    try:
        return onnxruntime.__version__, onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - of a kind of its own for each cause
        raise ValueError(f"{path}: onnxruntime cannot run it: {error}") from None


def _run(path: str | os.PathLike[str], session: Any, names: list[str], call: dict[str, Array]) -> list[Array]:
    """A model's results by onnxruntime."""
    try:
        return list(session.run(names, call))
    except Exception as error:  # noqa: BLE001 - as above
        raise ValueError(f"{path}: onnxruntime cannot run it: {error}") from None


def _with_torch(path: Path, network: Network, seed: int) -> Parity:
    """With torch.nn's layer of the parameters in the file."""
    layers = list(network.recurrent.values())
    cell = cell_of(layers[0].network.graph, "torch") if len(layers) == len(network.layers) == 1 else None
    found = [stack for stack in stacks(files.load(path)[0]) if cell and stack.prefix.rstrip(".") in ("", layers[0].name)]
    of = layers[0].network if layers else None
    if cell is None or of is None or len(found) != 1 or of.merges or of.residual or of.reverse or of.learned_state:
        raise ValueError(f"{path}: no library runs what is in it, so that there is nothing to compare with")
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch is not installed: pip install torch") from None
    arrays = weights.write("torch", found[0].parameters, cell, of.layers, of.bidirectional)
    sizes = dict(of.sizes)
    kind, options = KINDS[cell]
    options = {**options, "num_layers": of.layers, "bidirectional": of.bidirectional, "bias": "bias_ih_l0" in arrays}
    options |= {"batch_first": network.batch_first, "dtype": getattr(torch, network.dtype.name)}
    if "proj" in sizes:
        options["proj_size"] = sizes["proj"]
    module = getattr(torch.nn, kind)(sizes["input"], sizes["hidden"], **options)
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
    calls = [drawn(network, rows, steps, seed + k) for k, (rows, steps) in enumerate(SIZES)]
    ours = [result for call in calls for result in run(network, call)]
    results = []
    for dtype in (ours[0].dtype, np.dtype(np.float64)):
        module = module.to(getattr(torch, dtype.name))
        with torch.no_grad():
            results.append([module(torch.from_numpy(call[network.inputs[0].name].astype(dtype)))[0].numpy() for call in calls])
    return compared(f"torch {torch.__version__}", network, calls, ours, *results)


def _with_onnxruntime(path: Path, network: Network, seed: int) -> Parity:
    """With onnxruntime, which computes recurrent nodes in float32; what is exact is our result in float64."""
    from anyrnn import onnx

    version, session = _onnxruntime(path)
    model = onnx.read(path)
    if [(layer.kind, layer.name) for layer in model.network.layers] != [(layer.kind, layer.name) for layer in network.layers]:
        raise ValueError(f"{path}: the network was not made of this model")
    exact = model.in_float64()
    model.network = network
    names = [port.name for port in model.outputs]
    calls = [_drawn(model, rows, steps, seed + k) for k, (rows, steps) in enumerate(SIZES)]
    ours, theirs, doubles = [], [], []
    for call in calls:
        wider = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in call.items()}
        results = model.run(call), exact.run(wider)
        ours += [results[0][name] for name in names]
        doubles += [results[1][name] for name in names]
        theirs += _run(path, session, names, call)
    return compared(f"onnxruntime {version}", network, calls, ours, theirs, doubles)


def _drawn(model: Any, rows: int, steps: int, seed: int) -> dict[str, Array]:
    """Random inputs of a model, whose sizes may be any where it does not say them."""
    random, found = np.random.default_rng(seed), {}
    classes = min([len(layer.weight) for layer in model.network.layers if isinstance(layer, Embedding)], default=2)
    for port in model.inputs:
        shape = model.shape_of(port, steps, rows)
        if port.name in model.lengths:
            found[port.name] = random.integers(1, model.steps(steps) + 1, shape).astype(port.dtype)
        elif np.issubdtype(port.dtype, np.floating):
            found[port.name] = random.standard_normal(shape).astype(port.dtype)
        else:
            found[port.name] = random.integers(0, classes, shape).astype(port.dtype)
    return found


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm_projected": ("LSTM", {}),
    "gru": ("GRU", {}),
    "rnn_tanh": ("RNN", {"nonlinearity": "tanh"}),
    "rnn_relu": ("RNN", {"nonlinearity": "relu"}),
}
"""torch.nn's classes by cell, and what they are told."""
