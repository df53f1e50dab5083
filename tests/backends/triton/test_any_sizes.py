"""Programs that torch.compile makes for any numbers of steps and samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyrnn.torch

pytestmark = pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'> should not be instantiated")
SLOW = pytest.param({"num_layers": 2, "bidirectional": True}, marks=pytest.mark.slow)


@pytest.mark.parametrize("options", [{}, {"memory_budget": 6000}, SLOW], ids=str)
def test_they_have_the_bits_of_other_calls(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = anyrnn.torch.LSTM(3, 4, backend="triton", **options)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((5, 2, 3), (7, 3, 3)):
        x, found = torch.randn(*shape), []
        for run in (compiled, layer):
            layer.zero_grad()
            output, last = run(x)
            (output.square().sum() + sum(state.sum() for state in last)).backward()
            found.append([output.detach(), *(p.grad.clone() for p in layer.parameters())])
        assert all(map(torch.equal, *found))
