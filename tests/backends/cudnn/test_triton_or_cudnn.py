"""Calls that take cuDNN where it is quicker. In its place stands torch's network on the CPU, which takes the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import anyrnn.torch
from anyrnn.backends.cudnn import matching, run
from anyrnn.torch import gpu, triton_or_cudnn

FUNCTIONS = {"LSTM": torch._VF.lstm, "GRU": torch._VF.gru, "RNN_TANH": torch._VF.rnn_tanh, "RNN_RELU": torch._VF.rnn_relu}
CALLS: list[str] = []


def on_cpu(
    network: Any, x: Tensor, first: Sequence[Tensor], weights: Sequence[Tensor], counts: Any
) -> tuple[Tensor, list[Tensor]]:
    found = matching.match(network)
    assert isinstance(found, matching.Match)
    h, c = run._states(found, network, first)
    options = (True, network.layers, 0.0, False, network.bidirectional)
    state = (h, c) if c is not None else h
    if counts is None:
        output, *last = FUNCTIONS[found.mode](x, state, weights, *options, False)
    else:
        output, *last = FUNCTIONS[found.mode](x, torch.tensor(counts), state, weights, *options)
    by_name = dict(zip(found.states, last, strict=True))
    return output, [by_name[name] for name in network.graph.state_names]


def forward(network: Any, x: Tensor, first: Any, sources: Any, buffer: Any, counts: Any, trains: bool) -> Any:
    CALLS.append("forward")
    weights = matching.weights(matching.match(network), network, sources)
    with torch.no_grad():
        output, last = on_cpu(network, x, first, weights, counts)
    return output, last, output.contiguous().view(-1).view(torch.uint8).clone()


def backward(
    network: Any,
    x: Tensor,
    first: Any,
    sources: Any,
    buffer: Any,
    counts: Any,
    reserve: Tensor,
    d_output: Any,
    d_last: Any,
    wanted: Any,
) -> Any:
    CALLS.append("backward")
    found = matching.match(network)
    with torch.enable_grad():
        given = [t.detach().clone().requires_grad_() for t in (x, *first, *matching.weights(found, network, sources))]
        output, last = on_cpu(network, given[0], given[1 : 1 + len(first)], given[1 + len(first) :], counts)
    assert torch.equal(output.detach().contiguous().view(-1).view(torch.uint8), reserve)
    pairs = [(r, d) for r, d in zip((output, *last), (d_output, *d_last), strict=True) if d is not None]
    d_x, *rest = torch.autograd.grad([r for r, _ in pairs], given, [d for _, d in pairs])
    d_sources = matching.gradients(found, network, sources, rest[len(first) :])
    return [d_x] if wanted[0] else [], list(rest[: len(first)]) if wanted[1] else [], d_sources if wanted[2] else []


DEEP = {"num_layers": 2, "bidirectional": True, "batch_first": True}


@pytest.fixture
def quick(chosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's networks are in the place of cuDNN's."""
    CALLS.clear()
    monkeypatch.setattr(run, "one_buffer", lambda network, sources: None)
    monkeypatch.setattr(run, "forward", forward)
    monkeypatch.setattr(run, "backward", backward)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("how", [{}, pytest.param(DEEP, marks=pytest.mark.slow)], ids=["plain", "deep"])
@pytest.mark.parametrize("lengths", [None, [3, 5, 1]], ids=["dense", "lengths"])
def test_calls_give_the_same(kind: str, how: dict[str, Any], lengths: Any) -> None:
    torch.manual_seed(0)
    module = getattr(anyrnn.torch, kind)(3, 4, dtype=torch.float64, **how)
    same = getattr(anyrnn.torch, kind)(3, 4, dtype=torch.float64, backend="reference", **how)
    same.load_state_dict(module.state_dict())
    x = torch.randn(*((3, 5) if how else (5, 3)), 3, dtype=torch.float64)
    call = {} if lengths is None else {"lengths": lengths}
    found = []
    for layer in (module, same):
        given = x.clone().requires_grad_()
        output, state = layer(given, **call)
        states = state if isinstance(state, tuple) else (state,)
        sum(t.square().sum() for t in (output, *states)).backward()
        found.append([output.detach(), *states, given.grad, *(p.grad for p in layer.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    made_twice = ["forward", "forward", "backward", "backward"]
    once = ["backward"] if lengths is None else ["forward", "backward"]  # a tape repeats what looks at no number
    assert made_twice + once * 2 == CALLS  # then to measure, and the call
    told = str(anyrnn.explain(module, x, **call))
    assert "backend   cudnn: cuDNN's own network, through torch" in told
    assert "choice    measured: generated kernels 2 ms, cuDNN 1 ms" in told


@pytest.mark.usefixtures("quick")
def test_what_it_has_not_runs_on_generated_kernels() -> None:
    x = torch.randn(5, 3, 3)
    for module, reason in (
        (anyrnn.torch.Recurrent("gru_before", 3, 4), "the cell is none of cuDNN's four"),
        (anyrnn.torch.LSTM(3, 4, backend="triton"), "backend='triton' was asked for"),
    ):
        module(x)[0].sum().backward()
        assert not CALLS
        assert f"choice    cuDNN cannot run this: {reason}" in str(anyrnn.explain(module, x))
    module = anyrnn.torch.LSTM(3, 4)
    assert f"choice    {gpu.UNMEASURED}" in str(anyrnn.explain(module, x))


@pytest.mark.usefixtures("quick")
def test_where_it_is_slower_it_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 2.0])
    monkeypatch.setattr(triton_or_cudnn, "_of_many", lambda made: next(times))
    module, x = anyrnn.torch.LSTM(3, 4), torch.randn(5, 3, 3)
    with torch.no_grad():
        module(x)
        assert CALLS == ["forward", "forward"]  # before it was measured
        module(x)  # nothing is measured again
        assert "backend   triton: generated kernels" in str(anyrnn.explain(module, x))
    assert CALLS == ["forward", "forward"]


@pytest.mark.parametrize(("once", "counts"), [(1.5, [1, 8]), (2.5, [1])])
def test_short_calls_are_measured_between_others(once: float, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = list[None](), list[int]()

    def milliseconds(run: Any) -> float:
        made.clear()
        run()
        found.append(len(made))
        return once * len(made) ** 0.5

    monkeypatch.setattr(triton_or_cudnn, "milliseconds", milliseconds)
    assert triton_or_cudnn._of_many(lambda: made.append(None)) == pytest.approx(once * counts[-1] ** 0.5 / counts[-1])
    assert found == counts


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("which", ["generated kernels", "cuDNN"])
def test_what_cannot_be_measured_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, which: str) -> None:
    """Nor kept for other processes."""
    monkeypatch.setenv("ANYRNN_CACHE", str(tmp_path))

    def broken(made: Any) -> float:
        if bool(CALLS) is (which == "cuDNN"):  # which is called, and measured, second
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 1.0

    monkeypatch.setattr(triton_or_cudnn, "_of_many", broken)
    module, x = anyrnn.torch.LSTM(3, 4), torch.randn(5, 3, 3)
    with torch.no_grad():
        module(x)
        told = str(anyrnn.explain(module, x))
        assert ("backend   cudnn" in told) is (which == "generated kernels")
        assert f"choice    {which} could not be measured: OutOfMemoryError" in told
        triton_or_cudnn.KNOWN.clear()
        triton_or_cudnn.DECIDED.clear()
        assert f"choice    {gpu.UNMEASURED}" in str(anyrnn.explain(module, x))


@pytest.mark.usefixtures("quick")
def test_what_was_measured_in_another_process_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANYRNN_CACHE", str(tmp_path))
    module, x = anyrnn.torch.LSTM(3, 4), torch.randn(6, 3, 3)
    with torch.no_grad():
        module(x)
        triton_or_cudnn.KNOWN.clear()
        triton_or_cudnn.DECIDED.clear()
        assert "choice    measured: generated kernels 2 ms, cuDNN 1 ms" in str(anyrnn.explain(module, x))


@pytest.mark.usefixtures("quick")
def test_nothing_to_compute_is_not_for_cudnn() -> None:
    module = anyrnn.torch.LSTM(3, 4)
    module(torch.zeros(5, 0, 3))[0].sum().backward()
    assert not CALLS


def test_the_same_bits_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    reason = run.why_not(anyrnn.torch.LSTM(3, 4).network, torch.float32, torch.device("cuda"), uneven=False)
    assert reason is not None
    assert reason.startswith("it does not promise the same bits twice")


def test_versions_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: False)
    network, device = anyrnn.torch.LSTM(3, 4).network, torch.device("cuda")
    for version, wrong in ((8005, False), (8100, True), (8900, True), (8907, False), (91002, False)):
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda version=version: version)
        assert run.why_not(network, torch.float32, device, uneven=False) is None
        reason = run.why_not(network, torch.float32, device, uneven=True)
        assert reason == (f"cuDNN {version} gives wrong numbers where sequences end at different steps" if wrong else None)
