"""Launches of kernels that Triton has compiled, made again: without what it looks at each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def launcher(compiled: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """A function of a stream's handle and all arguments, addresses in the place of tensors. It tells nobody of the launch, unless
    somebody has asked Triton for it.
    """
    from triton import knobs

    def is_heard(hook: Any) -> bool:
        return bool(hook.calls if isinstance(hook, knobs.HookChain) else hook)

    as_triton, runtime = compiled[grid], knobs.runtime  # which also loads the kernel
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata

    def launch(stream: int, *arguments: Any) -> None:
        if is_heard(runtime.launch_enter_hook) or is_heard(runtime.launch_exit_hook):
            as_triton(*arguments, stream=stream)
        else:
            run(*grid, stream, function, metadata, None, None, None, *arguments)

    return launch
