"""Cells that torch.nn does not have, as someone at home in torch writes them for speed without anyrnn: an eager loop over the
steps.

The input's product is made for all steps at once, each step's gates by one product, and the rest by few operators. The peer
`equations` is the same without such care.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = tuple[Tensor, ...]


class Loop(nn.Module):
    """A layer of one cell. Subclasses give what is made once for all steps, and `step`; the first state is the output.

    Parameters are anyrnn's, by name without the layer; those of `joined` are one here, rows above each other.
    """

    states = gates = 1
    joined: ClassVar[Mapping[str, Sequence[str]]] = {}
    weight_ih: Tensor  # [G*H, D]

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        inside = {part for parts in self.joined.values() for part in parts}
        tensors = {name: t for name, t in parameters.items() if name not in inside}
        tensors |= {name: torch.cat([parameters[part] for part in parts]) for name, parts in self.joined.items()}
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor.clone()))
        self.hidden = parameters["weight_ih"].shape[0] // self.gates

    def gradients(self) -> dict[str, Tensor | None]:
        """By anyrnn's names."""
        found: dict[str, Tensor | None] = {}
        for name, parameter in self.named_parameters():
            if name not in self.joined:
                found[f"{name}_l0"] = parameter.grad
            elif parameter.grad is not None:
                parts = self.joined[name]
                found |= {f"{part}_l0": g for part, g in zip(parts, parameter.grad.chunk(len(parts)), strict=True)}
        return found

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """x [T, N, D], states [1, N, H] -> output [T, N, H], states [1, N, H]."""
        if state is None:
            now: State = (x.new_zeros(x.shape[1], self.hidden),) * self.states
        else:
            now = tuple(s[0] for s in (state if self.states > 1 else (state,)))
        outputs = []
        weights = self.weights()
        for product in self.products(x).unbind(0):
            now = self.step(product, weights, *now)
            outputs.append(now[0])
        last = tuple(s.unsqueeze(0) for s in now)
        return torch.stack(outputs), last if self.states > 1 else last[0]

    def products(self, x: Tensor) -> Tensor:
        """[T, N, D] -> [T, N, G*H]"""
        raise NotImplementedError

    def weights(self) -> tuple[Tensor, ...]:
        """What steps multiply by. Rows are taken here: taken in each step, each one's gradient would fill the whole matrix."""
        return ()

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        raise NotImplementedError


class LayerNormLSTM(Loop):
    """Ba, Kiros & Hinton 2016: each gate and the cell state normalised."""

    states, gates = 2, 4
    joined: ClassVar[Mapping[str, Sequence[str]]] = {
        "gain": ("gain_i", "gain_f", "gain_g", "gain_o"),
        "shift": ("shift_i", "shift_f", "shift_g", "shift_o"),
    }
    weight_hh: Tensor
    gain: Tensor
    shift: Tensor
    gain_c: Tensor
    shift_c: Tensor

    def products(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih)

    def weights(self) -> tuple[Tensor, ...]:
        return (self.weight_hh.t(),)

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        h, c = state
        gates = torch.addmm(product, h, weights[0])
        normal = F.layer_norm(gates.view(-1, 4, self.hidden), (self.hidden,)).flatten(1)
        i, f, g, o = torch.addcmul(self.shift, normal, self.gain).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(F.layer_norm(c, (self.hidden,), self.gain_c, self.shift_c))
        return h, c


class OneProduct(Loop):
    """All gates are of one product with the state."""

    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor

    def products(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih, self.bias_ih + self.bias_hh)

    def weights(self) -> tuple[Tensor, ...]:
        return (self.weight_hh.t(),)


class PeepholeLSTM(OneProduct):
    """Gers & Schmidhuber 2000."""

    states, gates = 2, 4
    peephole_i: Tensor
    peephole_f: Tensor
    peephole_o: Tensor

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        h, c = state
        i, f, g, o = torch.addmm(product, h, weights[0]).chunk(4, 1)
        i = torch.sigmoid(torch.addcmul(i, self.peephole_i, c))
        f = torch.sigmoid(torch.addcmul(f, self.peephole_f, c))
        c = f * c + i * torch.tanh(g)
        o = torch.sigmoid(torch.addcmul(o, self.peephole_o, c))
        return o * torch.tanh(c), c


class CoupledLSTM(OneProduct):
    """Greff et al. 2015, arXiv 1503.04069: the forget gate is what the input gate leaves."""

    states, gates = 2, 3

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        h, c = state
        i, g, o = torch.addmm(product, h, weights[0]).chunk(3, 1)
        c = torch.lerp(c, torch.tanh(g), torch.sigmoid(i))
        return torch.sigmoid(o) * torch.tanh(c), c


class GRUBefore(Loop):
    """Cho et al. 2014, arXiv 1406.1078v3: the reset gate before the product."""

    gates = 3
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor

    def products(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih, self.bias_ih + self.bias_hh)

    def weights(self) -> tuple[Tensor, ...]:
        gate, candidate = torch.split(self.weight_hh, [2 * self.hidden, self.hidden])
        return gate.t(), candidate.t()

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        (h,) = state
        of_gates, of_candidate = torch.split(product, [2 * self.hidden, self.hidden], 1)
        r, z = torch.sigmoid(torch.addmm(of_gates, h, weights[0])).chunk(2, 1)
        n = torch.tanh(torch.addmm(of_candidate, r * h, weights[1]))
        return (torch.lerp(n, h, z),)


class MGU(Loop):
    """Zhou et al. 2016, arXiv 1603.09420."""

    gates = 2
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor

    def products(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih, self.bias_ih + self.bias_hh)

    def weights(self) -> tuple[Tensor, ...]:
        gate, candidate = self.weight_hh.chunk(2)
        return gate.t(), candidate.t()

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        (h,) = state
        of_gate, of_candidate = product.chunk(2, 1)
        f = torch.sigmoid(torch.addmm(of_gate, h, weights[0]))
        g = torch.tanh(torch.addmm(of_candidate, f * h, weights[1]))
        return (torch.lerp(h, g, f),)


class IndRNN(Loop):
    """Li et al. 2018, arXiv 1803.04831."""

    bias_ih: Tensor
    recurrent: Tensor

    def products(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih, self.bias_ih)

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        return (torch.relu(torch.addcmul(product, self.recurrent, state[0])),)


class MinGRU(Loop):
    """Feng et al. 2024, arXiv 2410.01201, run step by step; the gate is known before the loop."""

    gates = 2
    bias_ih: Tensor

    def products(self, x: Tensor) -> Tensor:
        z, g = F.linear(x, self.weight_ih, self.bias_ih).chunk(2, -1)
        return torch.cat((torch.sigmoid(z), g), -1)

    def step(self, product: Tensor, weights: tuple[Tensor, ...], *state: Tensor) -> State:
        z, g = product.chunk(2, 1)
        return (torch.lerp(state[0], g, z),)


LOOPS: dict[str, type[Loop]] = {
    "lstm_layernorm": LayerNormLSTM,
    "lstm_peephole": PeepholeLSTM,
    "lstm_coupled": CoupledLSTM,
    "gru_before": GRUBefore,
    "mgu": MGU,
    "indrnn": IndRNN,
    "mingru": MinGRU,
}
"""By the name of the cell."""
