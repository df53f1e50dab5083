"""The generated text: as it was, compiled for a device without one, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import anyrnn.torch
from anyrnn import State, Vec, affine, cell, cells, tanh, vector
from anyrnn.backends import quick
from anyrnn.backends.triton import memory, products, unit
from anyrnn.backends.triton import run as of_run
from anyrnn.backends.triton.launch import code_of
from anyrnn.backends.triton.spelling import SPELLINGS
from anyrnn.errors import UnsupportedError
from anyrnn.ir.ops import TABLE
from anyrnn.ir.philox import Randomness
from anyrnn.passes.compile import plan
from anyrnn.torch import base, gpu
from tests.backends.triton.twins import make, run

GOLDEN = ("rnn_tanh", "lstm", "gru_before", "lstm_layernorm", "mingru", "lstm_heads")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_text(name: str, golden: Callable[[str, str], None]) -> None:
    made = plan(cells.load(name).trace())
    golden(name, "\n\n".join(code_of(made, which, name).text for which in ("inference", "training", "backward")))


def test_the_text_of_programs_that_hold_weights(golden: Callable[[str, str], None]) -> None:
    made = plan(cells.load("lstm_layernorm").trace())
    programs = [code_of(made, which, "lstm_layernorm", holds=2).text for which in ("inference", "backward")]
    golden("lstm_layernorm_holding", "\n\n".join(programs))


def test_the_text_of_programs_that_scatter_sums(golden: Callable[[str, str], None]) -> None:
    made = plan(cells.load("lstm").trace())
    golden("lstm_scattering", code_of(made, "backward", "lstm", holds=2, scatters=True).text)


def test_every_op_is_spelled() -> None:
    elementwise = {op.name for op in TABLE.values() if op.kind == "elementwise"}
    assert elementwise - {"choose"} == {*SPELLINGS} - {"fill"}


def test_what_cannot_be_run_is_refused() -> None:
    @cell
    def beside(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("h", x, h, v=vector("v"), heads=2))
        return h, State(h=h)

    x = torch.zeros(3, 2, 4)
    module = anyrnn.torch.Recurrent(beside, 4, 6, backend="triton")
    with pytest.raises(UnsupportedError, match="the cell uses a product in blocks, of parameters alone, beside others"):
        module(x)


def test_without_a_device_and_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    module = anyrnn.torch.LSTM(4, 5, backend="triton")
    with pytest.raises(UnsupportedError, match="device cpu has no Triton kernels"):
        module(torch.zeros(3, 2, 4))
    assert module.backend_name == "reference"
    assert anyrnn.torch.LSTM(4, 5).backend_name == "llvm"


def test_what_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setitem(quick.EMPTY, "cuda", empty)
    message = "anyrnn: no room for 4096 bytes of cuda:0 that a training call keeps for its backward pass: a layer with"
    with pytest.raises(torch.OutOfMemoryError, match=message):
        gpu.new_reserve(4096, torch.device("cuda:0"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        *("lstm float32 8 tf32x3", "lstm float64 1 ieee", "lstm_layernorm bfloat16 4 ieee", "lru float32 4 tf32"),
        *("slstm float16 1 ieee", "gru_block float32 2 ieee", "lstm_layernorm float32 1 ieee one"),
        *("lstm float32 64 bf16x6 512x16", "lstm float32 96 bf16x6 768x16"),
        *("lstm_layernorm bfloat16 8 ieee 256x16", "gru_before float32 1 tf32 64x16"),
        *(
            "lem float32 4 bf16x6 64x16",
            "lstm float32 4 bf16x6",
            "lstm bfloat16 4 ieee packed",
            "gru float32 16 bf16x6 256x32",
            "gru_block float16 1 ieee 32x16",
            "lstm bfloat16 16 ieee 256x32",
            "lstm float32 8 tf32 256x16",
            "gru bfloat16 16 ieee 256x64",
            "mingru bfloat16 1 ieee scans",
            "lru float64 1 ieee scans",
            "indrnn float32 1 ieee scans",
            "clockwork float32 1 ieee",
            "clockwork float64 1 ieee",
        ),
    ],
)
def test_it_compiles_for_a_device(how: str) -> None:
    """Without one: to machine code of compute capability 9.0."""
    compile_for("90", how)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["lstm float32 1 tf32", "lru bfloat16 4 ieee", "gru_before float32 1 tf32 64x16", "lstm float16 4 ieee 64x16"]
)
@pytest.mark.parametrize("capability", ["75", "80", "89", "100", "120"])
def test_it_compiles_for_others(how: str, capability: str) -> None:
    """Turing, Ampere, Ada, and two kinds of Blackwell."""
    compile_for(capability, how)


def compile_for(capability: str, how: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {"CAPABILITY": capability}
    command = [sys.executable, "-m", "tests.backends.triton.compiled", *how.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "inference" in done.stdout
    assert "backward" in done.stdout


def test_what_a_captured_graph_reads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of steps stand in caches that forget; a graph of launches is run again and again."""
    asked: list[object] = []
    monkeypatch.setattr(unit, "keep", lambda device, thing, *tensors: asked.append(thing))
    anyrnn.torch.LSTM(4, 5, backend="triton", recurrent_dropout=0.3)(torch.zeros(3, 2, 4))
    numbers = [one for one in asked if isinstance(one, torch.Tensor)]
    [(run, chunks)] = [one for one in asked if isinstance(one, tuple)]
    assert numbers
    assert all(isinstance(one, memory.Chunk) and one.run is run for one in chunks)
    monkeypatch.setattr(memory, "CAPTURED", [])
    device = torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"that of {device}")
    read: list[object] = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: read.append(stream))
    for captures in (False, True):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda captures=captures: captures)
        memory.keep(device, "tables", torch.zeros(1))
        memory.keep(torch.device("cpu"), "others", torch.zeros(1))
    assert memory.CAPTURED == ["tables"]
    assert read == ["that of cuda:0"]


def test_seeds_of_captured_calls_are_drawn_by_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of others by the CPU, so that all devices make the same choices."""
    asked: list[str] = []
    monkeypatch.setattr(torch, "randint", lambda *bounds, device, **more: asked.append(str(device)))
    for captures in (False, True):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda captures=captures: captures)
        for device in ("cpu", "cuda:1"):
            base._new_seed(torch.device(device))
    assert asked == ["cpu", "cpu", "cpu", "cuda:1"]


def test_seeds_of_compiled_programs_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from the CPU, so that each replay would drop the same; a backward call drops what its forward call did."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    randomness = Randomness(7, {"dropout": 0.5}, None)
    with pytest.raises(UnsupportedError, match="a CUDA graph would drop the same at every replay; capture the module itself"):
        of_run._choices(randomness, torch.device("cuda:0"), forward=True)
    for forward in (True, False):
        choices = of_run._choices(randomness, torch.device("cpu"), forward)
        assert choices is not None
        assert (int(choices.seed), choices.places) == (7, None)


def test_a_seed_that_only_its_device_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the choices of the same number from the CPU, and nobody asks for the number."""
    number, results = 0x9ABC_DEF0_1234_5678, []
    drawn = torch.tensor(number - 2**64)
    for seed in (drawn, OnDevice(drawn)):
        monkeypatch.setattr(base, "_new_seed", lambda device, seed=seed: seed)
        layer = make("lstm", "triton", 4, 5, recurrent_dropout=0.3, zoneout=0.2, weight_dropout=0.4)
        results.append(run(layer, 3, 2))
    assert_same(*results)


class OnDevice(Tensor):
    """A tensor of which only its device knows the numbers."""

    is_cpu = False

    def __int__(self) -> int:
        raise AssertionError("the device would have to be waited for")


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_launches_go_to_the_device_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches on the current device, whatever the tensors are on."""
    inside: list[Tensor] = []
    launched: list[int] = []
    entered = unit.Unit.run_window

    @contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        inside.append(tensor)
        yield
        inside.pop()

    def run_window(self: unit.Unit, window: memory.Window) -> None:
        launched.append(len(inside))
        entered(self, window)

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(unit.Unit, "run_window", run_window)
    anyrnn.torch.LSTM(4, 5, backend="triton")(torch.zeros(3, 2, 4))[0].sum().backward()
    assert launched == [1, 1]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_gradient_that_is_not_wanted_is_not_multiplied(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made, totals = list[products.Total](), products.totals
    output = anyrnn.torch.LSTM(4, 5, backend="triton")(torch.zeros(3, 2, 4, requires_grad=wanted))[0]
    monkeypatch.setattr(products, "totals", lambda found: [made.extend(found), totals(found)][1])
    output.sum().backward()
    assert len(made) == wanted


def test_a_gradient_that_is_not_wanted_is_not_stored() -> None:
    """Of an input that a step works on elementwise, whose gradient a kernel would store."""

    @cell
    def bends(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("h", h, x=tanh(x)))
        return h, State(h=h)

    modules = [make(bends, backend, 5, 6) for backend in ("triton", "reference")]
    x = torch.linspace(-1, 1, 3 * 2 * 5, dtype=torch.float64).view(3, 2, 5)
    for module in modules:
        module(x)[0].sum().backward()
    for ours, theirs in zip(*(m.parameters() for m in modules), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("name", ["range", "float", "h_step", "x_row", "h_ptr", "size_hidden", "global_", "first_h", "sum_parts"])
def test_a_users_name_is_not_one_of_the_texts(name: str) -> None:
    space: dict[str, object] = {"State": State, "affine": affine, "tanh": tanh, "sigmoid": anyrnn.sigmoid, "mean": anyrnn.mean}
    source = (
        "def mine(x, h):\n"
        f"    {name} = sigmoid(affine('r', x, h))\n"
        f"    h = {name} * h + (1 - {name}) * tanh(affine('n', x, h)) * mean({name})\n"
        "    return h, State(h=h)\n"
    )
    exec(source, space)
    mine = cell(space["mine"])  # type: ignore[arg-type]
    code = code_of(plan(mine.trace()), "inference", "mine")
    for arguments in code.arguments.values():
        names = [a.name for a in arguments]
        assert len(names) == len(set(names))
    values = re.findall(r"^ +(\w+) = ", code.text, re.MULTILINE)
    taken = {a.name for arguments in code.arguments.values() for a in arguments if a.kind != "call"} | {"range", "float"}
    assert not taken.intersection(values)
    found = [anyrnn.torch.Recurrent(mine, 3, 4, backend=backend, dtype=torch.float64) for backend in ("triton", "reference")]
    found[1].load_state_dict(found[0].state_dict())
    x = torch.randn(2, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(found[0](x)[0], found[1](x)[0])


@pytest.mark.parametrize("name", ["global", "while", "lambda"])
def test_a_parameter_may_be_called_as_pythons_keywords(name: str) -> None:
    @cell
    def mine(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("n", x, h) * vector(name))
        return h, State(h=h)

    for which in ("inference", "training", "backward"):
        compile(code_of(plan(mine.trace()), which, "mine").text, "", "exec")


@pytest.mark.parametrize(("columns", "together"), [(1, False), (2, True)])
def test_programs_that_wait_for_each_other_are_launched_together(
    columns: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device; what a launch is told is all that can be seen without one."""
    how: list[dict[str, object]] = []
    made = unit.choosing.blocks_of
    monkeypatch.setattr(unit.choosing, "blocks_of", lambda *kind: replace(made(*kind), columns=columns, warps=8, stages=2))
    monkeypatch.setattr(unit, "interpreted", lambda: False)
    launch = unit.Kernels.launch

    def told(self: unit.Kernels, name: str, grid: object, values: object, constants: dict[str, object], **given: object) -> None:
        if given:
            how.append(given)
        else:
            launch(self, name, grid, values, constants)  # type: ignore[arg-type]

    monkeypatch.setattr(unit.Kernels, "launch", told)
    with torch.no_grad():
        anyrnn.torch.LSTM(3, 40, backend="triton")(torch.randn(3, 2, 3))
    assert how == [{"num_warps": 8, "num_stages": 2, "launch_cooperative_grid": together}]


def test_a_kernel_that_stores_outputs_alone_holds_weights_too() -> None:
    @cell
    def delayed(x: Vec("hidden"), h, c: Vec("other")):  # type: ignore[no-untyped-def,valid-type]
        c = tanh(affine("a", h, size="other") + 0.5 * c)
        return c, State(h=0.5 * x, c=c)

    text = code_of(plan(delayed.trace()), "backward", "delayed", holds=1).text
    compile(text, "", "exec")
    assert "weights_of" in text


def test_names_are_those_that_an_assembler_takes() -> None:
    def size(x, h):  # type: ignore[no-untyped-def]
        h = tanh(affine("n", x, h))
        return h, State(h=h)

    size.__name__ = "größe"
    code = code_of(plan(cell(size).trace()), "inference", cell(size).name)
    assert cell(size).name == "größe"
    assert code.text.isascii()
    assert all(name.isascii() for name in code.arguments)
