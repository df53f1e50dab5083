"""Makes the golden files beside it with the frameworks themselves: `python make.py flax`, in an environment that has it.

Each file has `x` [T, N, D], the output `y` [T, N, S * H] of a network for it, and the network's arrays under `weights/`. Its name
says system, cell, layers, directions, and a variant. Made with flax 0.12.8, equinox 0.13.8, tensorflow-cpu 2.15.1 (whose
`compat.v1` has the cells of TensorFlow 1, and whose Keras 2 converts weights of cuDNN layers), and mxnet 1.9.1 with numpy 1.23.5.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

T, N, D, H, PROJ = 4, 2, 3, 4, 2
RANDOM = np.random.default_rng(0)


def values(*shape: int) -> Any:
    return (0.5 * RANDOM.normal(size=shape)).astype(np.float32)


X = values(T, N, D)


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from leaves(child, f"{name}/{key}" if name else key)
    else:
        yield name, tree


def save(
    system: str, cell: str, weights: Any, y: Any, layers: int = 1, both: bool = False, variant: str = "", **more: Any
) -> None:
    name = ".".join([system, cell, str(layers), "both" if both else "one", *([variant] if variant else [])])
    arrays = {f"weights/{key}": np.asarray(array) for key, array in leaves(weights)}
    file = Path(__file__).parent / f"{name}.npz"
    np.savez_compressed(file, x=X, y=np.asarray(y, np.float32), **more, **arrays)
    print(file.name, file.stat().st_size)


def flax() -> None:
    import jax
    from flax import linen as nn

    relu = jax.nn.relu
    cells = {
        ("lstm", ""): nn.LSTMCell, ("lstm", "optimized"): nn.OptimizedLSTMCell, ("gru", ""): nn.GRUCell,
        ("rnn_tanh", ""): nn.SimpleCell, ("rnn_relu", ""): lambda size: nn.SimpleCell(size, activation_fn=relu),
    }  # fmt: skip

    def of(cell: str, layers: int, both: bool, variant: str = "") -> None:
        def layer() -> Any:
            one = [nn.RNN(cells[cell, variant](H)) for _ in range(1 + both)]
            return nn.Bidirectional(*one) if both else one[0]

        network = layer() if layers == 1 else nn.Sequential([layer() for _ in range(layers)])
        x = X.transpose(1, 0, 2)
        weights = jax.tree.map(lambda a: values(*a.shape), network.init(jax.random.key(0), x)["params"])
        y = network.apply({"params": weights}, x)
        save("flax", cell, weights, np.asarray(y).transpose(1, 0, 2), layers, both, variant)

    for cell, variant in cells:
        of(cell, 1, False, variant)
    of("gru", 1, True)
    of("rnn_tanh", 3, False)
    of("lstm", 2, True)


def equinox() -> None:
    import equinox as eqx
    import jax

    def of(cell: str, kind: Any, layers: int, use_bias: bool = True) -> None:
        y, weights = X, {}
        for k in range(layers):
            module = kind(y.shape[-1], H, use_bias=use_bias, key=jax.random.key(0))
            names = [name for name in ("weight_ih", "weight_hh", "bias", "bias_n") if getattr(module, name, None) is not None]
            made = {name: values(*getattr(module, name).shape) for name in names}
            module = eqx.tree_at(lambda m, names=names: [getattr(m, n) for n in names], module, list(made.values()))
            outputs = []
            for n in range(N):
                state: Any = (np.zeros(H, np.float32),) * 2 if cell == "lstm" else np.zeros(H, np.float32)
                steps = []
                for x in y[:, n]:
                    state = module(x, state)
                    steps.append(state[0] if cell == "lstm" else state)
                outputs.append(np.stack(steps))
            y = np.stack(outputs, 1)
            weights |= {f"{k}/{name}" if layers > 1 else name: a for name, a in made.items()}
        save("equinox", cell, weights, y, layers, variant="" if use_bias else "no_bias")

    for cell, kind in {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}.items():
        of(cell, kind, 1)
        of(cell, kind, 1, use_bias=False)
        of(cell, kind, 2)


def tensorflow() -> None:
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    cells = tf.nn.rnn_cell

    def of(cell: str, make: Any, layers: int = 1, both: bool = False, variant: str = "", **more: Any) -> None:
        graph = tf.Graph()
        with graph.as_default(), tf.Session() as session:
            x = tf.constant(X)
            if not both:
                y, _ = tf.nn.dynamic_rnn(
                    cells.MultiRNNCell([make() for _ in range(layers)]) if layers > 1 else make(), x, dtype=tf.float32,
                    time_major=True, scope="top",
                )  # fmt: skip
            else:
                y = x
                for k in range(layers):  # as tf.contrib.rnn.stack_bidirectional_dynamic_rnn does
                    with tf.variable_scope(f"top/stack_bidirectional_rnn/cell_{k}" if layers > 1 else "top"):
                        y, _ = tf.nn.bidirectional_dynamic_rnn(make(), make(), y, dtype=tf.float32, time_major=True)
                        y = tf.concat(y, 2)
            weights = {}
            for variable in tf.global_variables():
                array = values(*variable.shape)
                variable.load(array, session)
                weights[variable.name.removeprefix("top/").removesuffix(":0")] = array
            save("tf1", cell, weights, session.run(y), layers, both, variant, **more)

    of("lstm", lambda: cells.LSTMCell(H))
    of("lstm", lambda: cells.LSTMCell(H, forget_bias=0.25), variant="forget_bias", forget_bias=0.25)
    of("lstm_peephole", lambda: cells.LSTMCell(H, use_peepholes=True))
    of("lstm_projected", lambda: cells.LSTMCell(H, num_proj=PROJ), layers=2)
    of("gru_before", lambda: cells.GRUCell(H))
    of("gru_before", lambda: cells.GRUCell(H), layers=2, both=True)
    of("rnn_tanh", lambda: cells.BasicRNNCell(H), layers=2)
    of("rnn_tanh", lambda: cells.BasicRNNCell(H), both=True)

    from keras.src.saving.legacy.hdf5_format import preprocess_weights_for_loading

    def of_cudnn(cell: str, gates: int, layer: Any) -> None:
        weights = {
            "kernel": values(D, gates * H), "recurrent_kernel": values(H, gates * H), "bias": values(2 * gates * H),
        }  # fmt: skip
        graph = tf.Graph()
        with graph.as_default(), tf.Session() as session:
            y = layer(tf.constant(X))
            converted = preprocess_weights_for_loading(layer, list(weights.values()), original_keras_version="2")
            for variable, array in zip(layer.weights, converted, strict=True):
                variable.load(array, session)
            save("keras_cudnn", cell, weights, session.run(y))

    keras = tf.keras.layers
    of_cudnn("lstm", 4, keras.LSTM(H, return_sequences=True, time_major=True, recurrent_activation="sigmoid"))
    of_cudnn("gru", 3, keras.GRU(H, return_sequences=True, time_major=True, reset_after=True, recurrent_activation="sigmoid"))


def mxnet() -> None:
    import mxnet as mx
    from mxnet import gluon

    def of(cell: str, network: Any, layers: int = 1, both: bool = False) -> None:
        network.initialize()
        network(mx.nd.array(X))
        for parameter in network.collect_params().values():
            parameter.set_data(mx.nd.array(values(*parameter.shape)))
        y = network(mx.nd.array(X)).asnumpy()
        named = {name.removeprefix(network.prefix): p.data().asnumpy() for name, p in network.collect_params().items()}
        save("mxnet", cell, named, y, layers, both)
        file = Path("parameters.params")
        network.save_parameters(str(file))
        save("gluon", cell, {name: array.asnumpy() for name, array in mx.nd.load(str(file)).items()}, y, layers, both)
        file.unlink()
        fused = mx.rnn.FusedRNNCell(H, layers, cell, both, prefix="", get_next_state=False)
        vector = fused.pack_weights(fused_parts(fused, named, cell))["parameters"]
        states = [mx.nd.zeros((layers * (1 + both), N, H))] * (1 + (cell == "lstm"))
        y_fused = mx.nd.RNN(
            mx.nd.array(X), vector, *states, state_size=H, num_layers=layers, bidirectional=both, mode=cell
        ).asnumpy()  # fmt: skip
        np.testing.assert_allclose(y_fused, y, atol=1e-6)
        save("mxnet_fused", cell, {"parameters": vector.asnumpy()}, y, layers, both)

    def fused_parts(fused: Any, named: Mapping[str, Any], cell: str) -> dict[str, Any]:
        gates = fused._gate_names
        found = {}
        for name, array in named.items():
            for gate, part in zip(gates, np.split(array, len(gates)), strict=True):
                of_unit, kind = name.rsplit("_", 1)
                found[f"{of_unit}{gate}_{kind}"] = mx.nd.array(part)
        return found

    of("lstm", gluon.rnn.LSTM(H, 2, bidirectional=True, input_size=D), 2, True)
    of("gru", gluon.rnn.GRU(H, 2, input_size=D), 2)
    of("rnn_tanh", gluon.rnn.RNN(H, 1, "tanh", bidirectional=True, input_size=D), 1, True)
    of("rnn_relu", gluon.rnn.RNN(H, 1, "relu", input_size=D))

    cell = gluon.contrib.rnn.LSTMPCell(H, PROJ, input_size=D)
    cell.initialize()
    for parameter in cell.collect_params().values():
        parameter.set_data(mx.nd.array(values(*parameter.shape)))
    y, _ = cell.unroll(T, mx.nd.array(X), layout="TNC", merge_outputs=True)
    weights = {f"l0_{name.removeprefix(cell.prefix)}": p.data().asnumpy() for name, p in cell.collect_params().items()}
    save("mxnet", "lstm_projected", weights, y.asnumpy())


if __name__ == "__main__":
    {"flax": flax, "equinox": equinox, "tensorflow": tensorflow, "mxnet": mxnet}[sys.argv[1]]()
