"""Runs a native task on several threads: on torch's OpenMP pool where torch is loaded, otherwise on a team of our own.

A task is native code `void task(ptr data, i64 id, i64 count)`. `runner()` is the address of
`void run(ptr task, ptr data, i64 n)`, which calls the task once for every `id` below `count`, each on a thread of its own
(so that they may wait for each other at `BARRIER`), id 0 on the caller, and returns when all have returned. What the caller
wrote before is seen by every task, what the tasks wrote is seen by the caller afterwards.

`count` is at most n, and a task must do all of the work whatever it is. It is less than n when OpenMP grants less (a nested
region, OMP_THREAD_LIMIT), and 1 in a forked child, for a second caller that finds our own team at work, for a call from inside a
task, and on Windows without torch.

The native code is in `team.ll`.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
import pkgutil
import platform
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from anyrnn import _locks
from anyrnn._cache import remembered
from anyrnn._locks import ForkedLock

X86, ARM = "x86-64", "AArch64"
FUTEX, CONDITION, NONE = "futex", "condition", "none"  # how our own team sleeps; NONE is no team
DOZE, OPENMP_DOZE = 50e-6, 1e-3
"""Seconds for which idle threads look for work before they sleep: those of our own team, and about those of OpenMP's."""
MOST = 2**16
"""Threads that can be asked for: more than any machine has."""
FAULTS = ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS")


def _machine() -> str:
    return {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}.get(platform.machine().lower(), "other")


def _sleep(system: str, machine: str) -> str:
    if system == "win32":
        return NONE
    return FUTEX if system == "linux" and machine in (X86, ARM) else CONDITION


def _text(names: Sequence[str], system: str, machine: str) -> str:
    """Sections of team.ll, with their numbers."""
    text = pkgutil.get_data("anyrnn.backends.llvm", "team.ll") or b""  # which may be in an archive
    parts = re.split(r"^;; (.+)\n", text.decode(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    faults = [int(getattr(signal, name)) for name in FAULTS if hasattr(signal, name)]
    return Template("".join(sections[name] for name in names)).substitute(
        clock=getattr(time, "CLOCK_MONOTONIC", 1),
        doze=round(DOZE * 1e9),
        set_mask=int(getattr(signal, "SIG_SETMASK", 2)),
        keep_faults="\n".join(f"  call i32 @sigdelset(ptr %blocked, i32 {number})" for number in faults),
        futex={X86: 202, ARM: 98}.get(machine, 0),
        gettid={X86: 186, ARM: 178}.get(machine, 0),
        give_way="SwitchToThread" if system == "win32" else "sched_yield",
    )


def _source(system: str, machine: str, sleep: str) -> str:
    """The native module of `run`."""
    threads = ["no threads"] if sleep == NONE else ["posix", f"sleep {sleep}"]
    processors = "processors linux" if system == "linux" and sleep == FUTEX else "processors other"
    return _text(["team", f"pause {machine}", f"mode {machine}", *threads, processors], system, machine)


def _barrier(system: str, machine: str) -> str:
    sleep = "futex" if _sleep(system, machine) == FUTEX else "other"
    return _text([f"pause {machine}", "barrier", f"barrier {sleep}"], system, machine)


BARRIER = _barrier(sys.platform, _machine())
"""LLVM text of `@barrier(ptr %state, i64 %n)`: returns when n threads have called it; what each wrote before, all see after.

`%state` is 128 bytes, aligned to 64 and zero before the first barrier; it serves any number of barriers, one after another, of
any n. A barrier spins, and sleeps (or gives its processor to others) after 2000 rounds; n <= 1 returns at once. The text
declares what it calls.
"""


class _Native:
    """The compiled module. Never unloaded, not even when Python ends: threads live in it."""

    def __init__(self, source: str) -> None:
        from anyrnn.backends.llvm import target

        binary = remembered("team", f"{source} {target.identity()}", lambda: target.object_code(source))
        self.run, adopt, forked, prepare = target.load(binary, "run", "adopt", "forked", "prepare")
        self._adopt = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6)(adopt)
        self._forked = ctypes.c_int32.from_address(forked)
        ctypes.CFUNCTYPE(None)(prepare)()

    def adopt(self, pool: _OpenMP) -> None:
        self._adopt(*pool.addresses)

    def forked(self) -> None:
        self._forked.value = 1


@dataclass(frozen=True)
class _OpenMP:
    """Where torch's OpenMP pool is entered."""

    entry: str
    path: str
    addresses: tuple[int, ...]  # what @adopt takes


def _address(library: ctypes.CDLL, name: str) -> int:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _openmp_libraries(torch: Any) -> Iterator[ctypes.CDLL]:
    """Handles whose search order is that of torch's own references to OpenMP."""
    if sys.platform == "win32":
        path = Path(torch.__file__).parent / "lib" / "libiomp5md.dll"
        if path.exists():
            yield ctypes.CDLL(str(path))
        return
    if sys.platform != "darwin":  # the global scope comes first there (LD_PRELOAD=libiomp5.so, torch's libtorch_global_deps)
        yield ctypes.CDLL(None)
    yield ctypes.CDLL(torch._C.__file__, mode=os.RTLD_NOLOAD | os.RTLD_NOW)  # then torch's libraries and what they need


def _find_openmp(torch: Any) -> _OpenMP | None:
    """Find torch's OpenMP pool; None for a build of torch that has none or hides it."""
    if not getattr(torch._C, "has_openmp", True):
        return None
    names = ("omp_get_thread_num", "omp_get_num_threads", "GOMP_parallel")
    intel = ("__kmpc_fork_call", "__kmpc_push_num_threads", "__kmpc_global_thread_num")
    try:
        for library in _openmp_libraries(torch):
            thread, threads, parallel = (_address(library, name) for name in names)
            others = tuple(_address(library, name) for name in intel)
            if thread and threads and (parallel or all(others)):
                entry = "GOMP_parallel" if parallel else "__kmpc_fork_call"
                return _OpenMP(entry, _file_of(parallel or others[0]), (thread, threads, parallel, *others))
    except OSError:
        pass
    return None


def _file_of(address: int) -> str:
    """The library that an address lies in (dladdr)."""
    information = (ctypes.c_void_p * 4)()
    try:
        found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), information)
    except (AttributeError, OSError, TypeError):
        return "libiomp5md.dll"
    return os.fsdecode(ctypes.string_at(information[0] or 0)) if found else "unknown file"


_lock = ForkedLock(threading.RLock)
_native: _Native | None = None
_torch_threads: Callable[[], int] | None = None
_openmp: _OpenMP | None = None
_override: int | None = None
_counted: tuple[int, str] | None = None
_SLEEP = _sleep(sys.platform, _machine())


def runner() -> int:
    """The address of `void run(ptr task, ptr data, i64 n)`, the same for the life of the process.

    Which pool it uses is decided anew when torch appears: ask for it (or for `default()`) before each kernel call.
    """
    global _native
    if _torch_threads is None:
        _look_for_torch()
    if _native is None:
        with _lock.now:
            if _native is None:
                native = _Native(_source(sys.platform, _machine(), _SLEEP))
                if _openmp is not None:
                    native.adopt(_openmp)
                if _locks.forked:
                    native.forked()
                _native = native
    return _native.run


def default() -> int:
    """How many threads a kernel shall ask for.

    1 in a forked child; `torch.get_num_threads()` where torch is loaded; otherwise the first that is set of `set_num_threads`,
    OMP_NUM_THREADS and the number of processors that the process may use (affinity, control group).
    """
    if _locks.forked:
        return 1
    torch_threads = _torch_threads or _look_for_torch()
    if torch_threads is not None:
        return torch_threads()
    return _override or (_counted or _count())[0]


def doze() -> float:
    """Seconds after a call from which on the threads sleep."""
    return DOZE if _openmp is None else OPENMP_DOZE


def get_num_threads() -> int:
    """How many threads calls run on, at the most (see `set_num_threads`)."""
    return default()


def set_num_threads(n: int | None) -> None:
    """Run calls of NumPy's layers and of networks at run time on n threads; None goes back to the default, which is what
    `OMP_NUM_THREADS` says, or all cores that the process may use. Results have the same bits for every n.

    Where torch is loaded its setting decides, as the threads are torch's: call `torch.set_num_threads(n)`.

    Raises:
        TypeError: n is no integer. ValueError: n is below 1, or more than any machine has. RuntimeError: torch is loaded.
    """
    global _override
    if n is not None:
        try:
            number = operator.index(n)
        except TypeError:
            number = None
        if number is None or isinstance(n, bool):
            raise TypeError(f"set_num_threads: expected an integer or None, got {n!r} ({type(n).__name__})")
        if not 1 <= number <= MOST:
            raise ValueError(f"set_num_threads: expected 1 to {MOST} threads, got {number}")
        n = number
        if _torch_threads or _look_for_torch():
            raise RuntimeError(f"set_num_threads: torch is loaded, and its threads are used; call torch.set_num_threads({n})")
    _override = n


def describe() -> str:
    """One line: how many threads, of which pool, and why."""
    count = default()
    threads = f"{count} thread" + "s" * (count != 1)
    if _locks.forked:
        return f"{threads}: a forked child has none of its parent's pool"
    teams = {FUTEX: "anyrnn's own team (futex)", CONDITION: "anyrnn's own team (pthread condition)", NONE: "no team (Windows)"}
    if _torch_threads is None:
        return f"{threads} of {teams[_SLEEP]}: {'set_num_threads' if _override else (_counted or _count())[1]}"
    if _openmp is None:
        return f"{threads} of {teams[_SLEEP]}: torch.get_num_threads(), but this build of torch shows no OpenMP library"
    return f"{threads} of torch's OpenMP pool ({_openmp.entry} in {_openmp.path}): torch.get_num_threads()"


def _look_for_torch() -> Callable[[], int] | None:
    """`torch.get_num_threads` if torch has been imported; its pool is used from then on."""
    global _torch_threads, _openmp
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads") or not hasattr(torch, "_C"):
        return None
    with _lock.now:
        if _torch_threads is None:
            _openmp = _find_openmp(torch)
            if _openmp is not None and _native is not None:
                _native.adopt(_openmp)
            _torch_threads = torch.get_num_threads
    return _torch_threads


def _after_fork() -> None:
    if _native is not None:
        _native.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _count() -> tuple[int, str]:
    """The number of threads without torch, and where it comes from; found once a process."""
    global _counted
    _counted = _count_threads(os.environ.get("OMP_NUM_THREADS", ""), Path("/")) if _SLEEP != NONE else (1, sys.platform)
    return _counted


def _count_threads(wanted: str, root: Path) -> tuple[int, str]:
    first = wanted.partition(",")[0].strip()  # "4,2" is 4 threads, each of which may start 2
    if first.isdecimal() and 1 <= int(first) <= MOST:
        return int(first), f"OMP_NUM_THREADS={wanted}"
    if hasattr(os, "sched_getaffinity"):
        count, why = len(os.sched_getaffinity(0)), "processors in the affinity mask"
    else:
        count, why = os.cpu_count() or 1, "processors"
    quota = min(_quotas(root), default=math.inf)
    return (math.ceil(quota), f"the control group's quota of {quota:g} processors") if quota < count else (count, why)


def _quotas(root: Path) -> Iterator[float]:
    """Processors granted by each control group, version 1 or 2, that the process is in."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if not controllers:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup/cpu", root / "sys/fs/cgroup" / controllers]
        else:
            continue
        for mount in mounts:
            folder = mount / group.lstrip("/")
            for place in (folder, *folder.parents):
                if not place.is_relative_to(mount):
                    break
                version_2 = _lines(place / "cpu.max")
                version_1 = _lines(place / "cpu.cfs_quota_us") + _lines(place / "cpu.cfs_period_us")
                fields = version_2[0].split() if version_2 else version_1
                if len(fields) == 2 and all(field.isdecimal() and int(field) for field in fields):
                    yield int(fields[0]) / int(fields[1])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
