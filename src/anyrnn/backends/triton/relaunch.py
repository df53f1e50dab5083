"""Launches of kernels that Triton has compiled, made again: without what it looks at each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def launcher(compiled: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """A function of a stream's handle and all arguments, addresses in the place of tensors. It tells nobody of the launch, unless
    somebody has asked Triton for it.
    """
    from triton import knobs

    as_triton, runtime = compiled[grid], knobs.runtime  # which also loads the kernel
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata

    def launch(stream: int, *arguments: Any) -> None:
        if _are_calls(runtime.launch_enter_hook) or _are_calls(runtime.launch_exit_hook):
            as_triton(*arguments, stream=stream)
        else:
            run(*grid, stream, function, metadata, None, None, None, *arguments)

    return launch


def _are_calls(hook: Any) -> bool:
    """Whether Triton calls anything there. (By version it is None, a function, or a list of them with a name.)"""
    return bool(getattr(hook, "calls", hook))
