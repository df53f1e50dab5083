"""Runs every scenario on each pool: torch's in this process, our own team (both ways to sleep) in processes without torch."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anyrnn.backends.llvm import threads

SOURCE = Path(threads.__file__).parents[3]
POOLS = ["torch", threads.FUTEX, threads.CONDITION]
SKIP_NO_TEAM = pytest.mark.skipif(os.name != "posix", reason="our own team needs POSIX threads")

# The tasks. `%data` starts with a barrier's block (128 bytes), then: [128] rounds, [136] errors, [144] a plain counter,
# [152] the address of run, [160] a number to be multiplied; [192 + 64 * id] is what each thread writes: runs, count, itself,
# product.
TASKS = """
declare ptr @pthread_self()

define internal ptr @own(ptr %data, i64 %id, i64 %field) {
  %line = shl i64 %id, 6
  %words = shl i64 %field, 3
  %past = add i64 %line, 192
  %offset = add i64 %past, %words
  %at = getelementptr i8, ptr %data, i64 %offset
  ret ptr %at
}

; Says who ran it, once all are here: so no thread can have run two.
define void @record(ptr %data, i64 %id, i64 %count) {
  %runs = call ptr @own(ptr %data, i64 %id, i64 0)
  %counts = call ptr @own(ptr %data, i64 %id, i64 1)
  %selves = call ptr @own(ptr %data, i64 %id, i64 2)
  %products = call ptr @own(ptr %data, i64 %id, i64 3)
  %old = atomicrmw add ptr %runs, i64 1 monotonic
  store i64 %count, ptr %counts
  %self = call ptr @pthread_self()
  store ptr %self, ptr %selves
  %number.at = getelementptr i8, ptr %data, i64 160
  %number = load volatile float, ptr %number.at
  %product = fmul float %number, 2.0
  store float %product, ptr %products
  call void @barrier(ptr %data, i64 %count)
  ret void
}

; Rounds of: write my number, barrier, check everybody's number; one of us adds 1 to a plain counter; barrier.
define void @rounds(ptr %data, i64 %id, i64 %count) {
entry:
  %rounds.at = getelementptr i8, ptr %data, i64 128
  %errors.at = getelementptr i8, ptr %data, i64 136
  %counter.at = getelementptr i8, ptr %data, i64 144
  %rounds = load i64, ptr %rounds.at
  %mine.at = call ptr @own(ptr %data, i64 %id, i64 0)
  %counts = call ptr @own(ptr %data, i64 %id, i64 1)
  store i64 %count, ptr %counts
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %following, %next ]
  %following = add i64 %r, 1
  store i64 %following, ptr %mine.at
  call void @barrier(ptr %data, i64 %count)
  br label %look
look:
  %other = phi i64 [ 0, %round ], [ %other.next, %looked ]
  %other.at = call ptr @own(ptr %data, i64 %other, i64 0)
  %seen = load i64, ptr %other.at
  %right = icmp eq i64 %seen, %following
  br i1 %right, label %looked, label %wrong
wrong:
  %errors = atomicrmw add ptr %errors.at, i64 1 monotonic
  br label %looked
looked:
  %other.next = add i64 %other, 1
  %more = icmp slt i64 %other.next, %count
  br i1 %more, label %look, label %turn
turn:
  %whose = urem i64 %r, %count
  %me = icmp eq i64 %whose, %id
  br i1 %me, label %add, label %leave
add:
  %counter = load i64, ptr %counter.at
  %counter.next = add i64 %counter, 1
  store i64 %counter.next, ptr %counter.at
  br label %leave
leave:
  call void @barrier(ptr %data, i64 %count)
  br label %next
next:
  %again = icmp slt i64 %following, %rounds
  br i1 %again, label %round, label %exit
exit:
  ret void
}

define void @nothing(ptr %data, i64 %id, i64 %count) {
  ret void
}

; Id 0 starts another run, of @record on the same data.
define void @nested(ptr %data, i64 %id, i64 %count) {
  %first = icmp eq i64 %id, 0
  br i1 %first, label %inner, label %exit
inner:
  %run.at = getelementptr i8, ptr %data, i64 152
  %run = load ptr, ptr %run.at
  call void %run(ptr @record, ptr %data, i64 2)
  br label %exit
exit:
  ret void
}

; run, with these bits added to the caller's floating-point mode.
define void @run_in_mode(ptr %run, ptr %task, ptr %data, i64 %n, i64 %bits) {
  %before = call i64 @read_mode()
  %mode = or i64 %before, %bits
  call void @write_mode(i64 %mode)
  call void %run(ptr %task, ptr %data, i64 %n)
  call void @write_mode(i64 %before)
  ret void
}
"""
FLUSH = {threads.X86: 0x8040, threads.ARM: 1 << 24}


@functools.cache
def native() -> dict[str, int]:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    mode = threads._text([f"mode {threads._machine()}"], sys.platform, threads._machine())
    module = llvm.parse_assembly(threads.BARRIER + mode + TASKS)
    machine = llvm.Target.from_default_triple().create_target_machine(features=llvm.get_host_cpu_features().flatten(), opt=2)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    names = ("record", "rounds", "nothing", "nested", "run_in_mode")
    addresses = {name: engine.get_function_address(name) for name in names}
    engine.detach()
    return addresses


class Data:
    """The block of TASKS."""

    def __init__(self, rounds: int = 0, number: float = 0.0) -> None:
        self.bytes = ctypes.create_string_buffer(192 + 64 * 16 + 64)
        self.address = -(-ctypes.addressof(self.bytes) // 64) * 64
        self.word(128).value = rounds
        self.word(152).value = threads.runner()
        ctypes.c_float.from_address(self.address + 160).value = number

    def word(self, offset: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.address + offset)

    def own(self, id: int) -> tuple[int, int, int]:
        """How often this id ran, with which count, on which thread."""
        runs, count, thread = (self.word(192 + 64 * id + 8 * field).value for field in range(3))
        return runs, count, thread

    def product(self, id: int) -> float:
        return ctypes.c_float.from_address(self.address + 192 + 64 * id + 24).value


def run(task: str, data: Data, n: int) -> None:
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    prototype(threads.runner())(native()[task], data.address, n)


def recorded(n: int) -> int:
    """Run `record` on n threads and check it; returns how many it got."""
    data = Data()
    run("record", data, n)
    count = data.own(0)[1]
    assert 1 <= count <= max(n, 1)
    assert [data.own(id)[:2] for id in range(16)] == [(1, count)] * count + [(0, 0)] * (16 - count)
    selves = [data.own(id)[2] for id in range(count)]
    assert len(set(selves)) == count
    assert selves[0] == threading.get_ident()
    return count


def scenario_ids() -> None:
    for n in (1, 2, 3, 4, 2, 1, 8, 0, 2):
        assert recorded(n) == max(n, 1)


def scenario_barriers() -> None:
    for n, rounds in ((1, 5000), (2, 2500), (3, 1000), (4, 1000), (2, 2500)):
        data = Data(rounds)
        run("rounds", data, n)
        assert data.own(0)[1] == n
        assert data.word(136).value == 0
        assert data.word(144).value == rounds


def scenario_callers() -> None:
    """Four Python threads at once."""
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def call() -> None:
        try:
            start.wait()
            for _ in range(30):
                recorded(2)
                data = Data(5)
                run("rounds", data, 2)
                assert (data.word(136).value, data.word(144).value) == (0, 5)
        except BaseException as failure:
            failures.append(failure)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures, failures
    assert recorded(2) == 2


def scenario_nested() -> None:
    data = Data()
    run("nested", data, 2)
    count = data.own(0)[1]
    assert [data.own(id)[:2] for id in range(3)] == [(1, count)] * count + [(0, 0)] * (3 - count)
    assert recorded(2) == 2


def scenario_flush_mode() -> None:
    bits = FLUSH.get(threads._machine(), 0)
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)
    for mode in (0, bits, 0, bits):
        data = Data(number=1e-40)
        prototype(native()["run_in_mode"])(threads.runner(), native()["record"], data.address, 2, mode)
        assert data.own(0)[1] == 2
        assert [data.product(id) == 0 for id in range(2)] == [mode != 0] * 2


SCENARIOS: dict[str, Callable[[], None]] = {
    "ids": scenario_ids,
    "barriers": scenario_barriers,
    "callers": scenario_callers,
    "nested": scenario_nested,
    "flush_mode": scenario_flush_mode,
}


def child(body: str, pool: str = threads.FUTEX, **environment: str) -> str:
    """Run a few lines in a process of their own, with this file as `t`; returns what they print."""
    lines = [
        "import importlib.util, os, sys, time, threading as python_threads",
        f"spec = importlib.util.spec_from_file_location('t', {__file__!r})",
        "t = importlib.util.module_from_spec(spec); sys.modules['t'] = t; spec.loader.exec_module(t)",
        "threads = t.threads",
        "import torch; torch.set_num_threads(2)" if pool == "torch" else f"threads._SLEEP = {pool!r}",
        body,
        "assert 'torch' in sys.modules or threads._openmp is None",
    ]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    variables |= {"PYTHONPATH": str(SOURCE), "PYTHONFAULTHANDLER": "1"} | environment
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@SKIP_NO_TEAM
@pytest.mark.parametrize("pool", [threads.FUTEX, threads.CONDITION])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_own_team(pool: str, scenario: str) -> None:
    if pool == threads.FUTEX and threads._SLEEP != threads.FUTEX:
        pytest.skip("no futex here")
    child(f"t.SCENARIOS[{scenario!r}]()\nassert 'torch' not in sys.modules", pool)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_torch_pool(scenario: str) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        SCENARIOS[scenario]()
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_torch_pool_is_torchs_own() -> None:
    pytest.importorskip("torch")
    child(
        "a = torch.randn(1 << 22); (a + a).sum(); before = len(os.listdir('/proc/self/task'))\n"
        "assert threads.default() == 2\n"
        "for _ in range(20): assert t.recorded(2) == 2\n"
        "assert len(os.listdir('/proc/self/task')) == before, threads.describe()",
        "torch",
    )


def test_torch_keeps_its_own_mode() -> None:
    pytest.importorskip("torch")
    child("t.scenario_flush_mode(); x = torch.full((1 << 22,), 1e-40); assert bool((x * 2 != 0).all())", "torch")


FORK = """
assert t.recorded(2) == 2
pid = os.fork()
if pid == 0:
    import signal; signal.alarm(10)
    ok = threads.default() == 1 and t.recorded(2) == 1 and 'forked child' in threads.describe()
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0
assert t.recorded(2) == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("pool", POOLS)
def test_fork(pool: str) -> None:
    if pool == "torch":
        pytest.importorskip("torch")
    child("import warnings; warnings.simplefilter('ignore')" + FORK, pool)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_first_use_in_a_forked_child() -> None:
    body = "pid = os.fork()\nif pid == 0: os._exit(0 if t.recorded(2) == 1 else 1)\nassert os.waitpid(pid, 0)[1] == 0"
    child(body)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_first_import_in_a_forked_child() -> None:
    """The package is there, but its threads were not asked for."""
    program = (
        "import os, sys, anyrnn; assert 'anyrnn.backends.llvm.threads' not in sys.modules\npid = os.fork()\n"
        "if pid == 0:\n    from anyrnn.backends.llvm import threads; os._exit(threads.default() != 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0"
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=False)
    assert done.returncode == 0


@SKIP_NO_TEAM
def test_torch_imported_after_own_team() -> None:
    pytest.importorskip("torch")
    child(
        "def worker():\n"
        "    data = t.Data(); t.run('record', data, 2); assert data.own(0)[1] == 2; return data.own(1)[2]\n"
        "own = worker(); assert worker() == own; address = threads.runner()\n"
        "import torch; torch.set_num_threads(2)\n"
        "assert threads.default() == 2 and 'OpenMP' in threads.describe(), threads.describe()\n"
        "torchs = worker(); assert torchs != own and worker() == torchs and threads.runner() == address"
    )


def test_openmp_grants_fewer() -> None:
    pytest.importorskip("torch")
    child("for n in (2, 3, 4): assert t.recorded(n) == 2", "torch", OMP_THREAD_LIMIT="2")


def test_openmp_grants_one() -> None:
    pytest.importorskip("torch")
    child("for n in (2, 3, 4): assert t.recorded(n) == 1", "torch", OMP_THREAD_LIMIT="1")


@SKIP_NO_TEAM
def test_torch_without_openmp_uses_own_team() -> None:
    child(
        "import types; stub = sys.modules['torch'] = types.ModuleType('torch')\n"
        "stub.get_num_threads = lambda: 3; stub._C = types.SimpleNamespace(has_openmp=False)\n"
        "assert threads.default() == 3 and t.recorded(3) == 3\n"
        "assert 'own team' in threads.describe() and 'no OpenMP' in threads.describe()"
    )


def test_intel_entry_point() -> None:
    """The calling convention of libomp, played by a fork call that runs the region on the caller alone."""
    child(
        "import ctypes; t.native(); integer = ctypes.c_int\n"
        "region = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)\n"
        "calls = []\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_void_p, integer, ctypes.c_void_p, ctypes.c_void_p)\n"
        "def fork(where, count, function, job):\n"
        "    calls.append(('fork', count)); zero = integer(0); at = ctypes.addressof(zero); region(function)(at, at, job)\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_void_p, integer, integer)\n"
        "def push(where, self, n): calls.append(('push', self, n))\n"
        "number = ctypes.CFUNCTYPE(integer)(lambda: 0); one = ctypes.CFUNCTYPE(integer)(lambda: 1)\n"
        "own = ctypes.CFUNCTYPE(integer, ctypes.c_void_p)(lambda where: 7)\n"
        "threads.runner()\n"
        "threads._native._adopt(*[ctypes.cast(f, ctypes.c_void_p).value for f in (number, one, None, fork, push, own)])\n"
        "assert t.recorded(4) == 1\n"
        "assert calls == [('push', 7, 4), ('fork', 1)], calls"
    )


@SKIP_NO_TEAM
@pytest.mark.parametrize("pool", [threads.FUTEX, threads.CONDITION])
def test_idle_workers_sleep(pool: str) -> None:
    child(
        "assert t.recorded(3) == 3; time.sleep(0.05); before = time.process_time(); time.sleep(0.3)\n"
        "used = time.process_time() - before; assert used < 0.005, used",
        pool,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_block_signals() -> None:
    output = child(
        "before = set(os.listdir('/proc/self/task')); assert t.recorded(2) == 2\n"
        "for task in [str(os.getpid()), *(set(os.listdir('/proc/self/task')) - before)]:\n"
        "    status = open(f'/proc/self/task/{task}/status').read()\n"
        "    print([line.split()[1] for line in status.splitlines() if line.startswith('SigBlk')][0])"
    )
    main, worker = (int(mask, 16) for mask in output.split())
    assert main == 0
    assert worker >> (signal.SIGINT - 1) & 1
    assert not worker >> (signal.SIGSEGV - 1) & 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps workers off the caller's processor")
def test_workers_keep_their_affinity() -> None:
    child(
        "for _ in range(50): time.sleep(0.001); assert t.recorded(3) == 3\n"
        "tasks = [int(task) for task in os.listdir('/proc/self/task')]\n"
        "assert len(tasks) >= 3 and len({frozenset(os.sched_getaffinity(task)) for task in tasks}) == 1"
    )


@pytest.mark.timing
@pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_barriers_are_fast_after_sleep() -> None:
    """Milliseconds where the worker is woken on the caller's processor."""
    output = child(
        "def call():\n"
        "    data = t.Data(500); time.sleep(0.005); start = time.perf_counter(); t.run('rounds', data, 2)\n"
        "    return time.perf_counter() - start\n"
        "print(sorted(call() for _ in range(40))[10])"
    )
    assert float(output) < 3e-3


@SKIP_NO_TEAM
def test_process_ends_while_workers_spin() -> None:
    for _ in range(3):
        child("t.run('nothing', t.Data(), 4)")


@SKIP_NO_TEAM
def test_own_count() -> None:
    assert child("print(threads.default(), threads.get_num_threads())", OMP_NUM_THREADS="3,2").split() == ["3", "3"]
    assert "OMP_NUM_THREADS=3" in child("print(threads.describe())", OMP_NUM_THREADS="3")
    output = child(
        "threads.set_num_threads(5); print(threads.default(), threads.describe())\n"
        "threads.set_num_threads(None); print(threads.default())",
        OMP_NUM_THREADS="7",
    )
    assert re.fullmatch(r"5 5 threads of anyrnn's own team \((futex|pthread condition)\): set_num_threads\n7\n", output)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5),
        (
            {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"},
            0.5,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n3:cpu,cpuacct:/docker/1\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "25000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            0.25,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
    ],
)
def test_control_group_quota(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert min(threads._quotas(tmp_path), default=None) == expected
    count, why = threads._count_threads("", tmp_path)
    assert count == 1 or expected is None or expected > 1
    assert ("quota" in why) == (expected is not None and expected < (os.cpu_count() or 1))


def test_torch_decides() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            assert threads.default() == threads.get_num_threads() == n
        assert "torch's OpenMP pool" in threads.describe()
        with pytest.raises(RuntimeError, match=r"torch is loaded, and its threads are used; call torch.set_num_threads\(3\)"):
            threads.set_num_threads(3)
    finally:
        torch.set_num_threads(before)


def test_set_num_threads_refuses() -> None:
    for number in (0, 2**70):
        with pytest.raises(ValueError, match=f"set_num_threads: expected 1 to 65536 threads, got {number}"):
            threads.set_num_threads(number)
    for value in (2.0, True):
        with pytest.raises(TypeError, match=f"set_num_threads: expected an integer or None, got {value} "):
            threads.set_num_threads(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wanted", "is_used"), [("3", True), ("4,2", True), ("0", False), (f"{2**70}", False), ("-1", False)])
def test_what_the_environment_says_of_threads(wanted: str, is_used: bool, tmp_path: Path) -> None:
    count, why = threads._count_threads(wanted, tmp_path)
    assert (why == f"OMP_NUM_THREADS={wanted}") == is_used
    assert not is_used or count == int(wanted[0])


@pytest.mark.parametrize(
    ("triple", "system", "machine"),
    [
        ("x86_64-unknown-linux-gnu", "linux", threads.X86),
        ("aarch64-unknown-linux-gnu", "linux", threads.ARM),
        ("riscv64-unknown-linux-gnu", "linux", "other"),
        ("arm64-apple-macosx11.0", "darwin", threads.ARM),
        ("x86_64-pc-windows-msvc", "win32", threads.X86),
    ],
)
def test_compiles_for(triple: str, system: str, machine: str) -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(str(error))
    uses = "\ndefine void @use(ptr %state, i64 %n) {\n  call void @barrier(ptr %state, i64 %n)\n  ret void\n}\n"
    for source in (
        threads._source(system, machine, threads._sleep(system, machine)),
        threads._barrier(system, machine) + uses,
    ):
        module = llvm.parse_assembly(source)
        module.verify()
        assert target.create_target_machine().emit_object(module)


def test_cheap() -> None:
    """`default` and `runner` are asked at each kernel call."""
    for function in (threads.default, threads.runner):
        function()
        best = float("inf")
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(100):
                function()
            best = min(best, (time.perf_counter() - start) / 100)
        assert best < 2e-6, (function.__name__, best)
