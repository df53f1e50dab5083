"""Two modules of the same parameters on different backends, and what both make of the same inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import anyrnn.torch
from anyrnn import cells
from anyrnn.backends.triton import choosing, tape
from anyrnn.backends.triton.device import Device
from anyrnn.backends.triton.split import MANY_WARPS, Blocks, StepWeights, could_hold
from anyrnn.passes.plan import Program
from tests.zoo import further, input_size, occurring, sizes_of

Results = dict[str, Tensor]


def make(cell: Any, backend: str, D: int, H: int, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """A module; the same parameters whatever the backend, and half of what cells begin with: with gains of one, layer-normalised
    networks magnify every rounding.
    """
    torch.manual_seed(0)
    module = anyrnn.torch.Recurrent(cell, D, H, backend=backend, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.mul_(0.5).add_(0.2 * torch.rand_like(parameter))
    return module.to(dtype)


def run(module: Any, T: int, N: int, with_state: bool = False, seed: int = 3, **call: Any) -> Results:
    """Everything that calls give, by name: of one without gradients, of one with them, and every gradient."""
    dtype = next(module.parameters(), torch.zeros(1, dtype=torch.float64)).dtype
    random = np.random.default_rng(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.from_numpy(random.normal(size=shape).astype(np.float32)).to(dtype)

    sides = (N, T) if module.batch_first else (T, N)
    x, network = numbers(*sides, module.input_size), module.network
    call |= {name: torch.from_numpy(value).to(dtype) for name, value in further(network, *sides, dtype=np.float32).items()}
    first: dict[str, Tensor] = {}
    if with_state:
        drawn = {
            s.name: random.normal(size=(len(network.units), N, size))
            for s, size in zip(network.graph.states, network.state_sizes, strict=True)
        }
        first = {name: torch.from_numpy(np.asarray(a, np.float32)).to(dtype) for name, a in occurring(module.cell, drawn).items()}

    def states() -> Any:
        given = tuple(first.values())
        return (None,) if not given else (given if len(given) > 1 else given[0],)

    torch.manual_seed(seed)
    with torch.no_grad():
        inferred = module(x, *states(), **call)
    leaves = {"d x": x.requires_grad_(), **{f"d first {name}": t.requires_grad_() for name, t in first.items()}}
    torch.manual_seed(seed)
    trained = module(x, *states(), **call)
    results = {f"inferred {k}": t for k, t in enumerate(_flat(inferred))}
    made = {f"made {k}": t for k, t in enumerate(_flat(trained))}
    module.zero_grad()
    torch.autograd.backward(list(made.values()), [numbers(*t.shape).to(t.dtype) for t in made.values()])
    gradients = {name: leaf.grad for name, leaf in leaves.items()} | {n: p.grad for n, p in module.named_parameters()}
    results |= {name: t.detach() for name, t in made.items()}
    return results | {name: g for name, g in gradients.items() if g is not None}


def _flat(found: Any) -> list[Tensor]:
    parts = found if isinstance(found, tuple) else () if found is None else (found,)
    return [t for part in parts for t in (_flat(part) if isinstance(part, tuple) else [part]) if t is not None]


def hold_weights(
    monkeypatch: pytest.MonkeyPatch, features: int | None = None, scatters: bool = True, slices: bool = True
) -> list[Blocks]:
    """Let programs hold the weights of their features, all or so many, in float64 too, which devices read in every step.
    `scatters`: sums are scattered that can be; `slices`: products are made in several, where they need not be. Gives what is
    chosen from then on.
    """
    usual, chosen = choosing.choose, list[Blocks]()
    tape.forget()

    def held(program: Program, weights: StepWeights, widest: int, rows: int, device: Device, may_hold: bool) -> Blocks:
        parts = weights.scattered and replace(weights.scattered, precision="tf32")
        found = could_hold(replace(weights, precision="tf32", scattered=parts), widest) if may_hold else ()
        sizes = [b for b in found if features in (None, b.features)]
        fitting = sorted(sizes, key=lambda b: (b.scatters != scatters, (b.warps == MANY_WARPS) == slices))
        chosen.append(fitting[0] if fitting else usual(program, weights, widest, rows, device, may_hold))
        return chosen[-1]

    monkeypatch.setattr(choosing, "choose", held)
    monkeypatch.setattr(choosing, "FEW_STEPS", 0)  # calls of few steps hold none
    monkeypatch.setattr(choosing, "_chosen", choosing._chosen.__wrapped__)
    return chosen


def shape_for(cell: Any, D: int, H: int, width: int = 1) -> dict[str, Any]:
    """Sizes of a module of any cell."""
    return {"D": input_size(cell, D, width * H), "H": H, **sizes_of(cells.load(cell), 3, H)}
