"""How other systems lay out the weights of the cells that they have, and name or stack those of networks: the one table that
every reader and writer goes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyrnn.weights.tree import Concat, Part, Refilled, Stack, Sum, Transposed, Tree, Unread


@dataclass(frozen=True)
class Form:
    """The arrays of a cell or a network in a system, in the system's order. Parts of our parameters that no array has are zero.

    Args:
        arrays: of what each is made, by name.
        optional: groups of arrays that may be left out, all of a group together.
        scope: what goes before the names in networks.
        flat: there is a single vector, whose length does not tell sizes.
    """

    arrays: dict[str, Tree]
    optional: tuple[tuple[str, ...], ...] = ()
    scope: str = ""
    flat: bool = False


W, R, P = "weight_ih", "weight_hh", "weight_hr"
B, C = "bias_ih", "bias_hh"
LSTM, GRU, GRU_BEFORE, PEEPHOLE, PROJECTED = "lstm", "gru", "gru_before", "lstm_peephole", "lstm_projected"
ELMAN = ("rnn_tanh", "rnn_relu")
TANH = "rnn_tanh"
PROJECTION = Part(P)


# parts


def _of(parameter: str, gates: str) -> tuple[Tree, ...]:
    """The gates' parts of a parameter."""
    return tuple([Part(parameter, gate) for gate in gates.split()])


def _rows(parameter: str, gates: str) -> Tree:
    """[G * H, D], or [G * H] of a bias."""
    return Concat(_of(parameter, gates))


def _sums(gates: str, forget_bias: bool = False) -> tuple[Tree, ...]:
    """Of both biases."""
    return tuple([Sum(Part(B, g), Part(C, g), forget_bias and g == "f") for g in gates.split()])


def _resets(gates: str) -> tuple[Tree, ...]:
    """Biases of a GRU that has those of the input and the state apart for its last gate alone: the input's."""
    *others, last = gates.split()
    return (*_sums(" ".join(others)), Part(B, last))


def _peepholes(gates: str) -> tuple[Tree, ...]:
    return tuple([Part(f"peephole_{gate}") for gate in gates.split()])


# forms


def _torch(gates: str, **more: Tree) -> Form:
    return Form({W: _rows(W, gates), R: _rows(R, gates), B: _rows(B, gates), C: _rows(C, gates), **more}, ((B, C),))


def _mxnet(gates: str, **more: Tree) -> Form:
    matrices = {"i2h_weight": _rows(W, gates), "h2h_weight": _rows(R, gates), **more}
    return Form({**matrices, "i2h_bias": _rows(B, gates), "h2h_bias": _rows(C, gates)})


def _keras(gates: str, bias: Tree) -> Form:
    kernels = {"kernel": Transposed(_rows(W, gates)), "recurrent_kernel": Transposed(_rows(R, gates))}
    return Form({**kernels, "bias": bias}, (("bias",),))


def _keras_cudnn(gates: str) -> Form:
    """Of each gate, cuDNN's matrix under the shape of Keras."""
    kernel = Concat(tuple([Refilled(part) for part in _of(W, gates)]), 1)
    return Form({"kernel": kernel, "recurrent_kernel": Concat(_of(R, gates), 1), "bias": _both_biases(gates)})


def _both_biases(gates: str) -> Tree:
    return Concat((_rows(B, gates), _rows(C, gates)))


def _onnx(gates: str, **more: Tree) -> Form:
    arrays = {"W": _rows(W, gates), "R": _rows(R, gates), "B": _both_biases(gates), **more}
    return Form(arrays, tuple([(name,) for name in arrays if name not in "WR"]))


def _onednn(gates: str, biases: tuple[Tree, ...], **more: Tree) -> Form:
    def stacked(parameter: str) -> Tree:
        return Stack(tuple([Transposed(part) for part in _of(parameter, gates)]), 1)

    return Form({"weights_layer": stacked(W), "weights_iter": stacked(R), "bias": Stack(biases), **more}, (("bias",),))


def _tf1(gates: str, prefix: str = "", forget_bias: bool = False) -> dict[str, Tree]:
    """One matrix for the input and the state, one below the other."""
    kernel = Transposed(Concat((_rows(W, gates), _rows(R, gates)), 1))
    return {f"{prefix}kernel": kernel, f"{prefix}bias": Concat(_sums(gates, forget_bias))}


_TF1_LSTM = _tf1("i g f o", forget_bias=True)


def _flux(gates: str, bias: str, biases: tuple[Tree, ...]) -> Form:
    return Form({"Wi": _rows(W, gates), "Wh": _rows(R, gates), bias: Concat(biases)}, ((bias,),))


_FLUX_GRU3: dict[str, Tree] = {
    "Wi": _rows(W, "r z n"), "Wh": Concat((*_of(R, "r z"), Unread(Part(R, "n")))), "b": Concat(_sums("r z n")),
    "Wh_h̃": Part(R, "n"),
}  # fmt: skip


def _flax(of_input: dict[str, str], of_state: dict[str, str], biases: dict[str, Tree]) -> Form:
    """A module for each matrix of a gate."""
    kernels = {f"{module}/kernel": Transposed(Part(W, gate)) for module, gate in of_input.items()}
    kernels |= {f"{module}/kernel": Transposed(Part(R, gate)) for module, gate in of_state.items()}
    return Form({**kernels, **{f"{module}/bias": bias for module, bias in biases.items()}})


def _modules(way: str, gates: str) -> dict[str, str]:
    return {way + gate: gate for gate in gates.split()}


_FLAX_LSTM = _flax(
    _modules("i", "i f g o"), _modules("h", "i f g o"), dict(zip(_modules("h", "i f g o"), _sums("i f g o"), strict=True))
)
_FLAX_GRU = _flax(
    _modules("i", "r z n"), _modules("h", "r z n"),
    {**dict(zip(_modules("i", "r z n"), _resets("r z n"), strict=True)), "hn": Part(C, "n")},
)  # fmt: skip


def _equinox(gates: str, biases: tuple[Tree, ...], **more: Tree) -> Form:
    return Form({W: _rows(W, gates), R: _rows(R, gates), "bias": Concat(biases), **more}, (("bias", *more),))


def _haste(gates: str, biases: dict[str, Tree]) -> Form:
    return Form({"kernel": Transposed(_rows(W, gates)), "recurrent_kernel": Transposed(_rows(R, gates)), **biases})


_TORCH = {LSTM: _torch("i f g o"), GRU: _torch("r z n"), **dict.fromkeys(ELMAN, _torch("h"))}
_MXNET = {
    LSTM: _mxnet("i f g o"),
    PROJECTED: _mxnet("i f g o", h2r_weight=PROJECTION),
    GRU: _mxnet("r z n"),
    **dict.fromkeys(ELMAN, _mxnet("h")),
}

SYSTEMS: dict[str, dict[str, Form]] = {
    "torch": {**_TORCH, PROJECTED: _torch("i f g o", weight_hr=PROJECTION)},
    "cudnn": _TORCH,
    "jax": {LSTM: _TORCH[LSTM]},
    "mxnet": _MXNET,
    "gluon": _MXNET,
    "mxnet_fused": _MXNET,
    "keras": {
        LSTM: _keras("i f g o", Concat(_sums("i f g o"))),
        GRU: _keras("z r n", Stack((_rows(B, "z r n"), _rows(C, "z r n")))),
        GRU_BEFORE: _keras("z r n", Concat(_sums("z r n"))),
        **dict.fromkeys(ELMAN, _keras("h", Concat(_sums("h")))),
    },
    "keras_cudnn": {LSTM: _keras_cudnn("i f g o"), GRU: _keras_cudnn("z r n")},
    "onnx": {
        LSTM: _onnx("i o f g"),
        PEEPHOLE: _onnx("i o f g", P=Concat(_peepholes("i o f"))),
        GRU: _onnx("z r n"),
        GRU_BEFORE: _onnx("z r n"),
        **dict.fromkeys(ELMAN, _onnx("h")),
    },
    "onednn": {
        LSTM: _onednn("i f g o", _sums("i f g o")),
        PEEPHOLE: _onednn("i f g o", _sums("i f g o"), weights_peephole=Stack(_peepholes("i f o"))),
        PROJECTED: _onednn("i f g o", _sums("i f g o"), weights_projection=Transposed(PROJECTION)),
        GRU: _onednn("z r n", (*_resets("z r n"), Part(C, "n"))),
        GRU_BEFORE: _onednn("z r n", _sums("z r n")),
        **dict.fromkeys(ELMAN, _onednn("h", _sums("h"))),
    },
    "tf1": {
        LSTM: Form(_TF1_LSTM, scope="lstm_cell/"),
        PEEPHOLE: Form({**_TF1_LSTM, **{f"w_{g}_diag": Part(f"peephole_{g}") for g in "fio"}}, scope="lstm_cell/"),
        PROJECTED: Form({**_TF1_LSTM, "projection/kernel": Transposed(PROJECTION)}, scope="lstm_cell/"),
        GRU_BEFORE: Form({**_tf1("r z", "gates/"), **_tf1("n", "candidate/")}, scope="gru_cell/"),
        TANH: Form(_tf1("h"), scope="basic_rnn_cell/"),
    },
    "flux": {
        LSTM: _flux("i f g o", "bias", _sums("i f g o")),
        GRU: _flux("r z n", "b", _resets("r z n")),
        GRU_BEFORE: Form(_FLUX_GRU3, (("b",),)),
        **dict.fromkeys(ELMAN, _flux("h", "bias", _sums("h"))),
    },
    "flax": {
        LSTM: _FLAX_LSTM,
        GRU: _FLAX_GRU,
        **dict.fromkeys(ELMAN, _flax({"i": "h"}, {"h": "h"}, {"i": _sums("h")[0]})),
    },
    "equinox": {
        LSTM: _equinox("i f g o", _sums("i f g o")),
        GRU: _equinox("r z n", _resets("r z n"), bias_n=Part(C, "n")),
    },
    "haste": {
        LSTM: _haste("i g f o", {"bias": Concat(_sums("i g f o"))}),
        GRU: _haste("z r n", {"bias": _rows(B, "z r n"), "recurrent_bias": _rows(C, "z r n")}),
    },
}
"""By system and cell. Sources: torch.nn.modules.rnn; cuDNN's guide, cudnnGetRNNWeightParams; jax.experimental.rnn; MXNet
gluon.rnn, gluon.contrib.rnn and the operator `RNN`; keras.layers (`GRU` with reset_after and without it are two cells), and of
Keras 2 `CuDNNLSTM` and `CuDNNGRU` with the conversion of their weights in saving/hdf5_format.py; the operators' pages of ONNX
(`GRU` with linear_before_reset and without it are two cells); oneDNN's page on RNN primitives (lbr_gru and gru are two cells);
tensorflow.python.ops.rnn_cell_impl; Flux 0.16, recurrent.jl (`GRUv3Cell` is the cell with the reset before the product);
flax.linen.recurrent (`OptimizedLSTMCell` has the arrays of `LSTMCell`); equinox.nn._rnn; haste frameworks/pytorch.
"""


# networks


@dataclass(frozen=True)
class Named:
    """Arrays of each layer and direction for themselves.

    Args:
        one: the name of an array in a layer of one direction.
        both: its names in those of a layer of two, if there are such.
        several: what goes before names where there are several layers, of one direction and of two.
    """

    one: str
    both: tuple[str, str] | None = None
    several: tuple[str, str] = ("{layer}/", "{layer}/")

    def names(self, name: str, layer: int, layers: int, bidirectional: bool) -> Sequence[str]:
        """Of an array, in each direction."""
        prefix = self.several[bidirectional] if layers > 1 else ""
        forms = self.both or () if bidirectional else (self.one,)
        return [(prefix + form).format(layer=layer, name=name) for form in forms]


@dataclass(frozen=True)
class Stacked:
    """Arrays with an axis of directions in front, and if they have one of layers too, that before it. Otherwise layers are for
    themselves, with their number before names where there are several.
    """

    layers: bool


@dataclass(frozen=True)
class Flat:
    """One vector: of every layer and direction the matrices, then of every layer and direction the vectors."""

    name: str


_TORCH_NAMES = Named("{name}_l{layer}", ("{name}_l{layer}", "{name}_l{layer}_reverse"), ("", ""))
_KERAS_NAMES = Named("{name}", ("forward_layer/{name}", "backward_layer/{name}"))

NETWORKS: dict[str, Named | Stacked | Flat] = {
    "anyrnn": _TORCH_NAMES,
    "torch": _TORCH_NAMES,
    "cudnn": Flat("weights"),
    "jax": Flat("weights"),
    "mxnet": Named("l{layer}_{name}", ("l{layer}_{name}", "r{layer}_{name}"), ("", "")),
    "gluon": Named(
        "_unfused.{layer}.{name}", ("_unfused.{layer}.l_cell.{name}", "_unfused.{layer}.r_cell.{name}"), ("", "")
    ),
    "mxnet_fused": Flat("parameters"),
    "keras": _KERAS_NAMES,
    "keras_cudnn": _KERAS_NAMES,
    "onnx": Stacked(layers=False),
    "onednn": Stacked(layers=True),
    "tf1": Named(
        "{name}", ("bidirectional_rnn/fw/{name}", "bidirectional_rnn/bw/{name}"),
        ("multi_rnn_cell/cell_{layer}/", "stack_bidirectional_rnn/cell_{layer}/"),
    ),
    "flux": Named("cell/{name}", None, ("layers/{layer}/", "")),
    "flax": Named("cell/{name}", ("forward_rnn/cell/{name}", "backward_rnn/cell/{name}"), ("layers_{layer}/", "layers_{layer}/")),
    "equinox": Named("{name}"),
    "haste": Named("{name}"),
}  # fmt: skip
"""What systems make of several layers and directions. Where a system knows no such networks, they are lists of its layers."""
