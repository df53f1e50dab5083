"""How other systems lay out the weights of one layer in one direction, for the cells that they have: the one table that every
reader and writer goes through.

Our own parameters are torch's: matrices [G * H, D] and biases [G * H], gates one after the other. An array of a system is made
of blocks, each of them a gate's part of one of our parameters, or the sum of several.
"""

from __future__ import annotations

from dataclasses import dataclass

Part = tuple[str, str]
"""Of one of our parameters, the rows of a gate; "" for a parameter that has no gates."""
Block = tuple[Part, ...]
"""Parts whose sum stands in a system's array."""


@dataclass(frozen=True)
class Piece:
    """An array of a system.

    Args:
        name: what the system calls it.
        blocks: of what it is made, in order.
        axes: its axes, with a letter for each side of the blocks: g the blocks themselves, h and d the rows and columns of our
            parameters. Letters in brackets are one axis, the first the slowest. An o before g: the first and the second half of
            the blocks; before d: their columns joined.
        shifts: what the system adds to a gate's part when it runs, beside what stands in the array.
    """

    name: str
    blocks: tuple[Block, ...]
    axes: str
    shifts: tuple[tuple[Part, float], ...] = ()


@dataclass(frozen=True)
class Form:
    """The arrays of a cell in a system; those that are optional may be left out, for zeros. Parts of our parameters that none of
    them has are zero.
    """

    pieces: tuple[Piece, ...]
    optional: frozenset[str] = frozenset()


W, R, P = "weight_ih", "weight_hh", "weight_hr"
B, C = "bias_ih", "bias_hh"
LSTM, GRU, GRU_BEFORE, PEEPHOLE, PROJECTED = "lstm", "gru", "gru_before", "lstm_peephole", "lstm_projected"
ELMAN = ("rnn_tanh", "rnn_relu")


def _gates(parameter: str, gates: str) -> tuple[Block, ...]:
    return tuple([((parameter, gate),) for gate in gates.split()])


def _sums(gates: str) -> tuple[Block, ...]:
    """Of both biases."""
    return tuple([((B, gate), (C, gate)) for gate in gates.split()])


def _matrices(gates: str, w: str, r: str, axes: str) -> tuple[Piece, Piece]:
    return Piece(w, _gates(W, gates), axes), Piece(r, _gates(R, gates), axes)


def _two(gates: str, b: str, c: str) -> tuple[Piece, Piece]:
    """A bias for each matrix."""
    return Piece(b, _gates(B, gates), "(g h)"), Piece(c, _gates(C, gates), "(g h)")


def _joined(gates: str, name: str, axes: str) -> Piece:
    """Both biases in one array."""
    return Piece(name, (*_gates(B, gates), *_gates(C, gates)), axes)


def _sum(gates: str, name: str = "bias", axes: str = "(g h)") -> Piece:
    """One bias for both matrices."""
    return Piece(name, _sums(gates), axes)


def _form(*pieces: Piece, optional: str = "") -> Form:
    return Form(pieces, frozenset(optional.split()))


def _torch(gates: str, *more: Piece) -> Form:
    return _form(*_matrices(gates, W, R, "(g h) d"), *_two(gates, B, C), *more, optional=f"{B} {C}")


def _mxnet(gates: str) -> Form:
    return _form(*_matrices(gates, "i2h_weight", "h2h_weight", "(g h) d"), *_two(gates, "i2h_bias", "h2h_bias"))


def _keras(gates: str, bias: Piece) -> Form:
    return _form(*_matrices(gates, "kernel", "recurrent_kernel", "d (g h)"), bias, optional="bias")


def _onnx(gates: str, *more: Piece, optional: str = "B") -> Form:
    return _form(*_matrices(gates, "W", "R", "(g h) d"), _joined(gates, "B", "(o g h)"), *more, optional=optional)


def _onednn(gates: str, bias: Piece, *more: Piece) -> Form:
    return _form(*_matrices(gates, "weights_layer", "weights_iter", "d g h"), bias, *more, optional="bias")


def _haste(gates: str, *biases: Piece) -> Form:
    return _form(*_matrices(gates, "kernel", "recurrent_kernel", "d (g h)"), *biases)


def _flux(gates: str, *biases: Piece) -> Form:
    return _form(*_matrices(gates, "Wi", "Wh", "(g h) d"), *biases, optional="bias b")


def _tf1(gates: str, prefix: str = "", shifts: tuple[tuple[Part, float], ...] = ()) -> tuple[Piece, Piece]:
    """One matrix for the input and the state, one below the other."""
    kernel = Piece(f"{prefix}kernel", (*_gates(W, gates), *_gates(R, gates)), "(o d) (g h)")
    return kernel, Piece(f"{prefix}bias", _sums(gates), "(g h)", shifts)


def _apart(parameter: str, modules: dict[str, str]) -> tuple[Piece, ...]:
    """A matrix for each gate, in a module of its own: by the modules' names."""
    return tuple([Piece(f"{module}/kernel", _gates(parameter, gate), "d h") for module, gate in modules.items()])


def _vector(name: str, *parts: Part) -> Piece:
    return Piece(name, (parts,), "h")


_PEEPHOLES = {gate: ((f"peephole_{gate}", ""),) for gate in "ifo"}
_EQUINOX = _matrices("i f g o", W, R, "(g h) d"), _matrices("r z n", W, R, "(g h) d")

SYSTEMS: dict[str, dict[str, Form]] = {
    "torch": {
        LSTM: _torch("i f g o"),
        GRU: _torch("r z n"),
        PROJECTED: _torch("i f g o", Piece("weight_hr", (((P, ""),),), "h d")),
        **dict.fromkeys(ELMAN, _torch("h")),
    },
    "mxnet": {LSTM: _mxnet("i f g o"), GRU: _mxnet("r z n"), **dict.fromkeys(ELMAN, _mxnet("h"))},
    "keras": {
        LSTM: _keras("i f g o", _sum("i f g o")),
        GRU: _keras("z r n", _joined("z r n", "bias", "o (g h)")),
        GRU_BEFORE: _keras("z r n", _sum("z r n")),
        **dict.fromkeys(ELMAN, _keras("h", _sum("h"))),
    },
    "onnx": {
        LSTM: _onnx("i o f g"),
        PEEPHOLE: _onnx("i o f g", Piece("P", tuple(_PEEPHOLES[g] for g in "iof"), "(g h)"), optional="B P"),
        GRU: _onnx("z r n"),
        GRU_BEFORE: _onnx("z r n"),
        **dict.fromkeys(ELMAN, _onnx("h")),
    },
    "onednn": {
        LSTM: _onednn("i f g o", _sum("i f g o", axes="g h")),
        PEEPHOLE: _onednn(
            "i f g o", _sum("i f g o", axes="g h"), Piece("weights_peephole", tuple(_PEEPHOLES[g] for g in "ifo"), "g h")
        ),
        GRU: _onednn("z r n", Piece("bias", (*_sums("z r"), *_gates(B, "n"), *_gates(C, "n")), "g h")),
        GRU_BEFORE: _onednn("z r n", _sum("z r n", axes="g h")),
        **dict.fromkeys(ELMAN, _onednn("h", _sum("h", axes="g h"))),
    },
    "tf1": {
        LSTM: _form(*_tf1("i g f o", shifts=(((B, "f"), 1.0),))),
        GRU_BEFORE: _form(*_tf1("r z", "gates/"), *_tf1("n", "candidate/")),
        "rnn_tanh": _form(*_tf1("h")),
    },
    "flux": {
        LSTM: _flux("i f g o", _sum("i f g o")),
        GRU: _flux("r z n", Piece("b", (*_sums("r z"), *_gates(B, "n")), "(g h)")),
        **dict.fromkeys(ELMAN, _flux("h", _sum("h"))),
    },
    "flax": {
        LSTM: _form(
            *_apart(W, {f"i{gate}": gate for gate in "ifgo"}), *_apart(R, {f"h{gate}": gate for gate in "ifgo"}),
            *[_vector(f"h{gate}/bias", (B, gate), (C, gate)) for gate in "ifgo"],
        ),
        GRU: _form(
            *_apart(W, {f"i{gate}": gate for gate in "rzn"}), *_apart(R, {f"h{gate}": gate for gate in "rzn"}),
            *[_vector(f"i{gate}/bias", (B, gate), (C, gate)) for gate in "rz"], _vector("in/bias", (B, "n")),
            _vector("hn/bias", (C, "n")),
        ),
        "rnn_tanh": _form(*_apart(W, {"i": "h"}), *_apart(R, {"h": "h"}), _vector("i/bias", (B, "h"), (C, "h"))),
    },
    "equinox": {
        LSTM: _form(*_EQUINOX[0], _sum("i f g o"), optional="bias"),
        GRU: _form(
            *_EQUINOX[1], Piece("bias", (*_sums("r z"), *_gates(B, "n")), "(g h)"), _vector("bias_n", (C, "n")),
            optional="bias bias_n",
        ),
    },
    "haste": {
        LSTM: _haste("i g f o", _sum("i g f o")),
        GRU: _haste("z r n", *_two("z r n", "bias", "recurrent_bias")),
    },
}  # fmt: skip
"""By system and cell. Sources: torch.nn.modules.rnn; MXNet gluon.rnn; keras.layers (`GRU` with reset_after and without it are two
cells); the operators' pages of ONNX (`GRU` with linear_before_reset and without it are two cells); oneDNN's page on RNN
primitives (lbr_gru and gru are two cells); tensorflow.python.ops.rnn_cell_impl; Flux 0.16, recurrent.jl; flax.linen.recurrent;
equinox.nn._rnn; haste frameworks/pytorch.
"""
