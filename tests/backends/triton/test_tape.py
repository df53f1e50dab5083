"""Calls that are made again have the bits of those that were not."""

from __future__ import annotations

import ctypes
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from triton import knobs
from triton.compiler import CompiledKernel

import anyrnn.torch
from anyrnn import State, Step, affine, cell, cells, tanh
from anyrnn.backends.triton import launch, memory, relaunch, tape, tape_watching, tape_writing
from anyrnn.torch import gpu, taped
from tests.backends.triton.twins import hold_weights, make, shape_for

QUICK = ("gru_before", "cfc")
CALLS = 4


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    tape.forget()
    yield
    tape.forget()


def results(module: Any, numbers: Sequence[Tensor], **call: Any) -> list[list[Tensor]]:
    """Of training calls and of calls without a gradient, one after the other, everything that they give."""
    found = []
    for x in numbers:
        given = x.clone().requires_grad_()
        further = {name: torch.rand(*x.shape[:-1], n, dtype=x.dtype) for name, n in module.network.further_inputs}
        module.zero_grad()
        torch.manual_seed(0)
        output, last = module(given, **further, **call)
        last = last if isinstance(last, tuple) else (last,)
        sum(t.square().sum() for t in (output, *last)).backward()
        gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
        with torch.no_grad():
            again, _ = module(x, **further, **call)
        found.append([output.detach(), *(t.detach() for t in last), given.grad, *gradients, again])  # type: ignore[list-item]
    return found


def same(found: list[list[Tensor]], expected: list[list[Tensor]]) -> bool:
    pairs = [pair for one, other in zip(found, expected, strict=True) for pair in zip(one, other, strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


def directly(key: object, function: Callable[[Any], Any], given: Sequence[Tensor]) -> Any:
    return function(given)


def check(monkeypatch: pytest.MonkeyPatch, module: Any, shape: Sequence[int], tapes: int = 3, **call: Any) -> None:
    numbers = [torch.randn(*shape, dtype=next(module.parameters()).dtype) for _ in range(CALLS)]
    torch.manual_seed(1)
    found = results(module, numbers, **call)
    assert len(tape.TAPES) == tapes
    assert None not in tape.TAPES.values()
    with monkeypatch.context() as patch:
        patch.setattr(tape, "repeated", directly)
        patch.setattr(taped, "known", lambda *_: None)
        module._earlier = type(module._earlier)()
        torch.manual_seed(1)
        expected = results(module, numbers, **call)
    assert same(found, expected)


@pytest.mark.parametrize("cell", [*QUICK, *(pytest.param(c, marks=pytest.mark.slow) for c in cells.names() if c not in QUICK)])
def test_every_cell(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its forward calls in training and without a gradient, and of its backward calls there is a tape."""
    module = make(cell, "triton", **shape_for(cell, 3, 6))
    check(monkeypatch, module, (5, 2, module.input_size))


@pytest.mark.parametrize(
    "how",
    [
        {"batch_first": True},
        {"dtype": torch.bfloat16},
        *(
            pytest.param(how, marks=pytest.mark.slow)
            for how in ({"num_layers": 2, "bidirectional": True}, {"dtype": torch.float32}, {"residual": True, "num_layers": 2})
        ),
    ],
    ids=str,
)
def test_options(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = anyrnn.torch.LSTM(4, 4, backend="triton", **{"dtype": torch.float64, **how})
    calls = how.get("num_layers", 1) if "residual" in how else 1  # layers are calls of their own where something is between them
    check(monkeypatch, module, (5, 2, 4), 3 * calls)


def test_sums_that_are_scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where programs put what they make for each other is the call's own memory."""
    chosen = hold_weights(monkeypatch)
    check(monkeypatch, make("lstm", "triton", 3, 6), (5, 2, 3))
    assert any(blocks.scatters for blocks in chosen)


@pytest.mark.slow
def test_long_sequences_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyrnn.backends.triton.memory.CHUNK_ROWS", 4)
    check(monkeypatch, make("gru", "triton", 3, 5), (7, 2, 3))


@pytest.mark.slow
def test_ends_and_states(monkeypatch: pytest.MonkeyPatch) -> None:
    module = anyrnn.torch.LSTM(3, 5, backend="triton", bidirectional=True)
    check(monkeypatch, module, (5, 2, 3), hx=(torch.randn(2, 2, 5), torch.randn(2, 2, 5)))
    tape.TAPES.clear()
    check(monkeypatch, module, (5, 2, 3), return_outputs="last")


def test_random_choices_are_others() -> None:
    """What depends on a seed is asked for anew."""
    for chance in ("zoneout", "weight_dropout"):
        module, x = anyrnn.torch.LSTM(3, 5, backend="triton", **{chance: 0.5}), torch.randn(5, 2, 3)
        outputs = [module(x)[0] for _ in range(CALLS)]
        assert not any(torch.equal(outputs[0], output) for output in outputs[1:])
    assert not tape.TAPES


def test_calls_of_other_forms() -> None:
    """Dtypes, shapes, strides and places in turn: each has its own tape, and the numbers of its own call."""
    exact = anyrnn.torch.GRU(4, 5, backend="reference")
    module = anyrnn.torch.GRU(4, 5, backend="triton")
    module.load_state_dict(exact.state_dict())
    memory = torch.randn(400)
    forms = [memory[:40].view(5, 2, 4), memory[1:41].view(5, 2, 4), memory[:60].view(5, 3, 4), memory[:80].view(5, 2, 8)[..., :4]]
    with torch.no_grad():
        for turn in range(CALLS):
            for x in forms:
                memory.normal_()
                torch.testing.assert_close(module(x)[0], exact(x)[0])
            other = module.double() if turn % 2 else module.float()
            x = torch.randn(5, 2, 4, dtype=torch.float64 if turn % 2 else torch.float32)
            same_in_that = exact.double() if turn % 2 else exact.float()
            torch.testing.assert_close(other(x)[0], same_in_that(x)[0])
            module.float()
            exact.float()


def test_what_cannot_be_made_again() -> None:
    """What reads numbers, or memory beyond that of a tensor that was given, or gives a view of one; calls with a tensor twice, or
    with an empty one.
    """
    whole = torch.arange(8.0)
    first, second = whole[:4], whole[4:]

    def reads(given: Sequence[Tensor]) -> Tensor:
        return given[0] * 2 if float(given[0][0]) > 0 else given[0] * 3

    def beyond(given: Sequence[Tensor]) -> Tensor:
        return given[0].as_strided((8,), (1,)) * 2 if given[1].data_ptr() == given[0].data_ptr() + 16 else torch.cat([*given]) * 2

    for turn in range(CALLS):
        assert torch.equal(
            tape.repeated("reads", reads, [torch.full((2,), float(turn))]), torch.full((2,), turn * (2.0 + (turn == 0)))
        )
        given = [first, second] if turn < 3 else [second.clone(), second.clone()]
        assert torch.equal(tape.repeated("beyond", beyond, given), torch.cat(given) * 2)
        assert torch.equal(tape.repeated("twice", lambda given: given[0] + given[1], [first, first]), first * 2)
        for own in (torch.ones(3), whole[1:4]):
            view = tape.repeated(("view", len(whole)), lambda given: given[0][1:], [own])
            assert view._is_view()
            assert view.data_ptr() == own.data_ptr() + 4
        assert tape.repeated("given", lambda given: given[0], [whole]) is whole
        assert tape.repeated("empty", lambda given: given[0] + 1, [torch.empty(0)]).shape == (0,)
    assert [one is None for one in tape.TAPES.values()].count(False) == 1


def test_results_that_stand_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may give part of a larger memory, and have a namespace of its own; results are read as bytes."""
    library = torch.library.Library("anyrnn_tests", "FRAGMENT")
    library.define("halves(Tensor x) -> (Tensor, Tensor)")
    library.impl("halves", lambda x: (m := torch.cat([x, x + 1]), (m.clone()[: len(x)], m.clone()[len(x) :]))[1], "CPU")

    def function(given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        first, second = torch.ops.anyrnn_tests.halves(given[0])
        bytes = (second * 2).view(-1).view(torch.uint8)
        return first.T + second.T, torch.cat([bytes, bytes])

    for turn in range(CALLS):
        x = torch.full((3, 2), float(turn))
        total, bytes = tape.repeated("halves", function, [x])
        assert torch.equal(total, (2 * x + 1).T)
        assert torch.equal(bytes.view(torch.float32), torch.full((12,), 2 * turn + 2.0))
    assert isinstance(*tape.TAPES.values(), tape_writing.Tape)


def test_memory_is_one_piece() -> None:
    """Places are given to others when nobody reads them any more; zeros are zero in every call, and results stand apart."""

    def function(given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (x,) = given
        total, result = torch.zeros(1000), torch.empty(1000)
        for k in range(10):
            part = torch.empty(1000)
            torch.mul(x, k, out=part)
            total += part
        torch.add(total, 1, out=result)
        return result, total[:3].clone()

    found = []
    for turn in range(CALLS):
        x = torch.full((1000,), float(turn))
        found.append(tape.repeated("sums", function, [x]))
        assert torch.equal(found[-1][0], x * 45 + 1)
        assert torch.equal(found[-1][1], x[:3] * 45)
    (made,) = tape.TAPES.values()
    assert isinstance(made, tape_writing.Tape)
    assert re.search(r"own = empty\(\(2048,\), \(1,\), \w+\)", made.text)  # the sum, and a part at a time
    assert made.text.count(".zero_()") == 1
    assert torch.equal(found[2][0], torch.full((1000,), 91.0))


def test_a_cache_that_is_full_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "MOST", 2)
    before = {*linecache.cache}
    for turn in range(2 * CALLS):
        size = 1 + turn % 4
        assert torch.equal(tape.repeated("sum", lambda given: given[0] + 1, [torch.ones(size)]), torch.full((size,), 2.0))
        assert len(tape.TAPES) <= 2
        assert len(tape.SEEN) <= 2
        assert len({*linecache.cache} - before) <= 2


def test_what_is_used_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "MOST", 3)

    def call(size: int) -> None:
        tape.repeated("sum", lambda given: given[0] + 1, [torch.ones(size)])

    for _ in range(2):
        call(1)
    made = next(iter(tape.TAPES.values()))
    for size in range(2, 8):
        for _ in range(2):
            call(size)
        call(1)
    assert made in tape.TAPES.values()


def test_transforms_after_calls_that_are_known() -> None:
    module, exact = (anyrnn.torch.LSTM(3, 5, backend=backend) for backend in ("triton", "reference"))
    exact.load_state_dict(module.state_dict())
    x = torch.randn(5, 2, 3)
    for _ in range(CALLS):
        module(x)[0].sum().backward()
    for _ in range(2):
        found, expected = (torch.func.grad(lambda x, m=m: m(x)[0].square().sum())(x) for m in (module, exact))
        torch.testing.assert_close(found, expected)
        found, expected = (torch.func.vmap(lambda x, m=m: m(x)[0])(torch.stack([x, 2 * x])) for m in (module, exact))
        torch.testing.assert_close(found, expected)


class Compiled:
    """As what Triton gives on a device: it takes addresses, of whose memory nobody knows the shape."""

    def __init__(self, function: Any, arguments: Sequence[Any], names: Sequence[str]) -> None:
        self.function, self.packed_metadata, self.names = function, None, names
        self.dtypes = [a.dtype if isinstance(a, Tensor) else None for a in arguments]

    def __getitem__(self, grid: Sequence[int]) -> None:
        """What Triton launches by is not used."""

    def run(self, x: int, y: int, z: int, stream: int, _: Any, metadata: None, *rest: Any) -> None:
        nothing, given, count = rest[:3], rest[3:], len(self.dtypes)
        assert (stream, nothing) == (0, (None, None, None))
        tensors = [a if dtype is None else at(a, dtype) for a, dtype in zip(given[:count], self.dtypes, strict=True)]
        self.function[x, y, z](*tensors, **dict(zip(self.names[count:], given[count:], strict=True)))


def at(address: int, dtype: torch.dtype) -> Tensor:
    memory = (ctypes.c_byte * 65536).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


@pytest.mark.parametrize(
    "cell", ["gru_before", *(pytest.param(c, marks=pytest.mark.slow) for c in ("lstm", "lstm_layernorm", "mingru"))]
)
def test_addresses(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches on a device take numbers in the place of tensors."""
    taken = []

    def told(one: tape_watching.Launch) -> None:
        taken.append(one.function.__name__)
        with_addresses = Compiled(one.function, one.arguments, one.function.arg_names)
        watched = getattr(tape_watching.WATCHING, "one", None)
        if watched is not None:
            watched.done.append(tape_watching.Launch(one.function, with_addresses, one.grid, one.arguments, one.rest))

    monkeypatch.setattr(launch, "launched", told)
    check(monkeypatch, make(cell, "triton", 3, 6), (5, 2, 3))
    texts = [one.text for one in tape.TAPES.values() if one is not None]
    assert taken
    assert all("own.data_ptr()" in text for text in texts)


def test_known_calls_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third on; but for one whose settings are others, which changes back."""
    module, x = anyrnn.torch.LSTM(3, 5, backend="triton"), torch.randn(5, 2, 3)
    forward, backward = gpu.run_forward, gpu.run_backward
    asked: list[str] = []
    monkeypatch.setattr(gpu, "run_forward", lambda *given, **rest: [asked.append("forward"), forward(*given, **rest)][1])
    monkeypatch.setattr(gpu, "run_backward", lambda *given, **rest: [asked.append("backward"), backward(*given, **rest)][1])

    def call() -> list[Tensor]:
        module.zero_grad()
        given = x.clone().requires_grad_()
        output, _ = module(given)
        (output * output.detach().cos()).sum().backward()
        return [output.detach(), given.grad, *(p.grad.clone() for p in module.parameters())]  # type: ignore[list-item, union-attr]

    found = [call() for _ in range(5)]
    before = len(asked)
    assert before <= 6
    found += [call() for _ in range(3)]
    assert len(asked) == before
    assert same(found, found[:1] * len(found))
    torch.set_float32_matmul_precision("high")
    try:
        call()
        assert asked[before:] == ["forward", "backward"]
    finally:
        torch.set_float32_matmul_precision("highest")
    assert same([call()], found[:1])
    assert len(asked) == before + 2


@pytest.mark.parametrize("setting", ["cudnn", "deterministic", "autocast"])
def test_other_settings_are_seen(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = anyrnn.torch.LSTM(3, 5, backend="triton"), torch.randn(5, 2, 3)
    forward, asked = gpu.run_forward, list[object]()
    monkeypatch.setattr(gpu, "run_forward", lambda *given, **rest: [asked.append(given), forward(*given, **rest)][1])
    for _ in range(4):
        module(x)
    before = len(asked)
    with torch.autocast("cpu", torch.bfloat16, enabled=setting == "autocast"), torch.backends.cudnn.flags(setting != "cudnn"):
        torch.use_deterministic_algorithms(setting != "deterministic")  # as these tests have it
        try:
            module(x)
        finally:
            torch.use_deterministic_algorithms(True)
    assert len(asked) == before + 1
    module(x)
    assert len(asked) == before + 1


@pytest.mark.parametrize("own", ["lstm", "two inputs"])
def test_autocast(own: str) -> None:
    """Products are made in the dtype that they come in, whether a call is taped or not, and wherever it was taped."""

    @cell
    def two_inputs(x, u: Step(2), h):  # type: ignore[no-untyped-def, valid-type]
        h = tanh(affine("h", x, u, h))
        return h, State(h=h)

    module = anyrnn.torch.Recurrent("lstm" if own == "lstm" else two_inputs, 3, 5, backend="triton")
    x = torch.randn(5, 2, 3)
    further = {name: torch.randn(5, 2, size) for name, size in module.network.further_inputs}
    found = []
    with torch.no_grad():
        for within in (False, True, True, True, False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=within):
                found.append([module(x, **further)[0]])
    assert same(found, found[:1] * len(found))


def test_each_stream_has_counters_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """At which programs wait for each other: a call that is known takes those of the stream that it is on."""
    check(monkeypatch, make("lstm", "triton", 3, 6), (5, 2, 3))
    texts = [one.text for one in tape.TAPES.values() if one is not None]
    assert len(texts) == 3
    assert all(re.search(r"counters_at_\d+\(device, stream, 1024\)", text) for text in texts)
    zeros, device = torch.zeros, torch.device("cuda:0")
    monkeypatch.setattr(torch, "zeros", lambda *shape, device, **how: zeros(*shape, **how))
    monkeypatch.setattr(memory, "COUNTERS", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    found = []
    for number in (7, 7, 9, 7):
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", {0: number, 1: number}.__getitem__, raising=False)
        found += [memory.counters(device, 3), memory.counters(torch.device("cuda:1"), 3)]
    assert found[0] is found[2] is found[6]
    assert len({id(one) for one in found}) == 4
    assert len(memory.counters(torch.device("cpu"), 5000)) >= 5000


def test_a_captured_graph_has_counters_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros, device = torch.zeros, torch.device("cuda:0")
    monkeypatch.setattr(torch, "zeros", lambda *shape, device, **how: zeros(*shape, **how))
    monkeypatch.setattr(memory, "COUNTERS", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not memory.counters(device, 3).any()
    assert not memory.COUNTERS


def test_sums_of_several_gradients_are_one() -> None:
    """Of ten of a layer-normalised LSTM."""
    module = make("lstm_layernorm", "triton", 3, 6)
    for _ in range(2):
        module(torch.ones(1, 2, 3, dtype=torch.float64))[0].sum().backward()
    texts = [one.text for one in tape.TAPES.values() if one is not None]
    [backward] = (text for text in texts if "backward_steps" in text)
    assert len(re.findall(r"\bsum_at_\d+\(", backward)) == 1


def test_each_stream_is_told_of_the_constants_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that their memory waits for it when the tape is forgotten."""
    told: list[object] = []

    class Constant:
        device = torch.device("cuda:0")

        def record_stream(self, stream: object) -> None:
            told.append(stream)

    given = torch.zeros(1)
    writer = tape_writing.Writer([given], [], given)
    writer.device = torch.device("cuda:0")
    tensors: Any = (Constant(), Constant())
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: streams[index], raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[device.index])
    lines = writer._of_stream(tape_writing.Constants(tensors))
    for number in (7, 7, 9, 7):
        streams = [number]
        exec("\n".join(lines), writer.space)
        assert writer.space["stream"] == number
    assert told == [7, 7, 9, 9]


@pytest.mark.parametrize("heard", [None, "launch_enter_hook", "launch_exit_hook"])
def test_kernels_are_launched_again_as_triton_launches_them(heard: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """But that nobody is told of it who has not asked."""
    launched: list[tuple[object, ...]] = []

    class Compiled:
        function, packed_metadata, name, src = "function", "metadata", "name", None
        __getitem__ = CompiledKernel.__getitem__
        launch_metadata = CompiledKernel.launch_metadata

        def _init_handles(self) -> None:
            pass

        def run(self, *arguments: object) -> None:
            launched.append(arguments)

    compiled, hooks = Compiled(), (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    compiled[2, 3, 1]("address", 5, stream=7)
    launch = relaunch.launcher(compiled, (2, 3, 1))
    if heard is not None:
        monkeypatch.setattr(getattr(knobs.runtime, heard), "calls", [print])
    launch(7, "address", 5)
    as_triton, again = launched
    assert again[:6] == as_triton[:6] == (2, 3, 1, 7, "function", "metadata")
    assert again[9:] == as_triton[9:] == ("address", 5)
    assert as_triton[7:9] == hooks
    assert again[7:9] == hooks if heard else again[6:9] == (None, None, None)


def test_another_triton_than_tapes_know_is_told_and_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: object) -> None:
        raise AttributeError("HookChain")

    module, x = make("lstm", "triton", 3, 4), torch.randn(3, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        expected = module(x)[0]
    monkeypatch.setattr(tape_writing.Writer, "tape", missing)
    tape.forget()
    with torch.no_grad():
        module(x)
        with pytest.warns(RuntimeWarning, match=r"with this version of Triton, calls on devices take more of Python .*HookChain"):
            module(x)
        assert torch.equal(module(x)[0], expected)
