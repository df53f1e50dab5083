"""What is timed: a call of one library on one row, and the results of a call for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from anyrnn import Recurrent, UnsupportedError, runtime
from anyrnn.torch.calls import WIDE
from benchmarks.job import Job, other_sizes
from benchmarks.suite import STREAMS

STREAM = 8
"""Calls in the results of a streaming system."""


class System(Protocol):
    """One library at work on one row.

    `call` is what is timed. `results` makes a fresh call and gives copies of the output, the last states and the gradients.
    """

    def call(self) -> object: ...

    def results(self) -> dict[str, Tensor]: ...


def states_of(last: Any) -> Sequence[Any]:
    """The last states, whether they come as a tuple or alone."""
    return last if isinstance(last, (tuple, list)) else (last,)


def named(output: Tensor, states: Sequence[Tensor]) -> dict[str, Tensor]:
    """Results under the names by which systems are compared."""
    return {"output": output, **{f"last state {k}": state for k, state in enumerate(states)}}


class ModuleSystem:
    """A torch module that gives the output and the last states: anyrnn's, torch.nn's, a loop, a compiled loop.

    `gradients` gives the parameters' gradients under anyrnn's names.
    """

    def __init__(
        self,
        job: Job,
        module: torch.nn.Module,
        gradients: Callable[[], dict[str, Tensor | None]] | None = None,
        run: Callable[..., Any] | None = None,
    ) -> None:
        self.module = module
        run = run if run is not None else module
        self.run = partial(run, **job.further) if job.further else run
        self.gradients = gradients or (lambda: {name: p.grad for name, p in module.named_parameters()})
        self.last_step = job.row.loss == "last"
        self.parameters = list(module.parameters())
        self.leaf = job.data.clone()
        self.d_output = job.d_output
        self.mode = job.row.mode
        if self.mode == "training":
            self.leaf.requires_grad_()
        self.input = job.input(self.leaf)
        self.state: Any = None

    def call(self) -> Any:
        if self.mode == "training":
            return self._train()
        if self.mode == "inference":
            with torch.no_grad():
                return self.run(self.input)
        with torch.no_grad():
            output, self.state = self.run(self.input, self.state)
        return output

    def _train(self) -> tuple[Any, Any]:
        for parameter in self.parameters:  # as zero_grad(set_to_none=True) does, without its walk over the modules
            parameter.grad = None
        self.leaf.grad = None
        output, last = self.run(self.input)
        graded = output.data if isinstance(output, PackedSequence) else output[-1] if self.last_step else output
        graded.backward(self.d_output)
        return output, last

    def results(self) -> dict[str, Tensor]:
        if self.mode in STREAMS:
            self.state = None
            outputs = [self.call() for _ in range(STREAM)]
            return named(torch.cat(outputs), states_of(self.state))
        output, last = self.call()
        values = output.data if isinstance(output, PackedSequence) else output
        found = named(values.detach().clone(), [s.detach().clone() for s in states_of(last)])
        if self.mode == "training":
            grads = {"input": self.leaf.grad, **self.gradients()}
            found |= {f"d_{name}": grad.clone() for name, grad in grads.items() if grad is not None}
        return found


class StreamSystem:
    """A network at run time, without torch, called step after step."""

    def __init__(self, job: Job, int8: bool = False) -> None:
        if job.dtype.itemsize < WIDE.itemsize:
            raise UnsupportedError("networks at run time are NumPy's, which has no numbers of 16 bits")
        row, dtype = job.row, job.data.numpy().dtype
        sizes: dict[str, Any] = {**other_sizes(row.cell, row.hidden)}
        layer = Recurrent(row.cell, row.features, row.hidden, row.layers, backend="llvm", dtype=dtype, **sizes)
        layer.parameters = {name: tensor.numpy() for name, tensor in job.parameters().items()}
        network = runtime.Network(row.features, [runtime.Recurrent.of("rnn", ["x"], layer)])
        self.stream = (network.in_int8() if int8 else network).stream(row.samples)
        (self.x,) = job.data.numpy()

    def call(self) -> object:
        return self.stream.step(self.x)

    def results(self) -> dict[str, Tensor]:
        self.stream.reset()
        outputs = [torch.from_numpy(self.stream.step(self.x)) for _ in range(STREAM)]
        return named(torch.stack(outputs), [torch.from_numpy(state).clone() for state in self.stream.states["rnn"].values()])
