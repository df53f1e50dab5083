"""Networks as object files, called from this process: on this machine, and on lesser ones of its kind."""

import platform as system

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn import (
    MissingExtraError,
    State,
    Step,
    UnsupportedError,
    affine,
    aot,
    backends,
    cell,
    cli,
    convert,
    mean,
    runtime,
    tanh,
)
from anyrnn.aot.header import identifiers
from anyrnn.aot.running import Running
from anyrnn.backends.llvm import split, target
from anyrnn.runtime.formulas import ELEMENTWISE, OF_ALL
from anyrnn.runtime.functions import FUNCTIONS
from anyrnn.runtime.layers import LAYERS
from tests.aot.objects import Loaded, loaded, symbols
from tests.budget import IN_INT8
from tests.runtime.test_networks import draw, given, recurrent, small
from tests.zoo import EVERY

pytestmark = pytest.mark.usefixtures("quick_compile")
X86 = system.machine() in ("x86_64", "AMD64")
ROUNDING = {"float32": 1e-5, "float64": 1e-13}
"""What the functions of NumPy and of kernels may differ by, of numbers about 1."""


def in_c(network, x):
    """Inputs of all steps by name, as a list for each step in the order in which C has them."""
    arrays = [np.asarray(x[i.name], np.int32 if i.size is None else network.dtype) for i in network.inputs]
    return [[np.ascontiguousarray(array[t]) for array in arrays] for t in range(len(arrays[0]))]


def check(network, found, x, rows):
    """Against the stream, whose softmax and so on are NumPy's."""
    stream, scale = network.stream(rows), ROUNDING[network.dtype.name]
    for t, arrays in enumerate(in_c(network, x)):
        wanted = stream.step({name: array[t] for name, array in x.items()})
        for name, output in zip(network.outputs, found.step(*arrays), strict=True):
            of_output = wanted[name] if len(network.outputs) > 1 else wanted
            np.testing.assert_allclose(output, of_output, rtol=scale, atol=scale * max(1, np.abs(of_output).max()))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("cpu", ["native", None])
def test_every_cell_with_layers_around_it(name, cpu, tmp_path):
    network = small(name)
    check(network, loaded(network, tmp_path, 3, cpu=cpu), given(network, 9, 3), 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "indrnn", "lstm_layernorm"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_layer_has_the_bits_of_its_stream(name, rows, dtype, tmp_path):
    layer = anyrnn.Recurrent(name, 19, 37, 2, seed=0, dtype=dtype)
    network = runtime.Network(19, [runtime.Recurrent.of("rnn", ["x"], layer)])
    found, stream, x = loaded(network, tmp_path, rows, cpu="native"), layer.stream(rows), draw(20, rows, 19, dtype=dtype)
    assert all(np.array_equal(found.step(step)[0], stream(step)) for step in x)


@pytest.mark.skipif(not X86, reason="of processors of x86-64")
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_lesser_processors(cpu, tmp_path):
    if not {"x86-64-v3": {"avx2", "fma"}, "x86-64-v4": {"avx512f", "avx512vl"}}.get(cpu, set()) <= target.machine().features:
        pytest.skip(f"this processor is less than {cpu}")
    for name in ("lstm", "gru_layernorm"):
        network = small(name)
        check(network, loaded(network, tmp_path, 2, cpu=cpu), given(network, 9, 2), 2)


@pytest.mark.parametrize("cpu", ["native", None])
@pytest.mark.parametrize("name", ["lstm", "gru_before", "lstm_heads", "lstm_layernorm"])
def test_products_of_int8(name, cpu, tmp_path):
    network = small(name)
    rounded, x = network.in_int8(), given(network, 9, 3)
    found = loaded(rounded, tmp_path, 3, cpu=cpu)
    check(rounded, found, x, 3)
    found.begin()
    steps, exact = np.stack([found.step(*step)[0] for step in in_c(network, x)]), network.run(x)[0]
    assert not np.allclose(steps, exact, rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(steps - exact) < IN_INT8 * np.linalg.norm(exact)


def test_weights_of_int8_take_a_quarter_of_the_room(tmp_path):
    layer, files = anyrnn.Recurrent("gru", 256, 256, seed=0), [tmp_path / "a.o", tmp_path / "b.o"]
    for file, exported in zip(files, (layer, layer.in_int8()), strict=True):
        aot.export(exported, file, name="gru")
    of_float32, of_int8 = (file.stat().st_size for file in files)
    assert of_float32 > 4 * 2 * 3 * 256 * 256
    assert of_int8 < of_float32 / 3.5


def around(*layers, outputs=None):
    return runtime.Network([runtime.Input("x", 7), runtime.Input("z", 7)], layers, outputs)


def networks(dtype):
    """Of each kind of layer, by name."""
    numbers, of = (lambda *shape: draw(*shape, dtype=dtype)), (lambda cell, **o: recurrent(cell, 7, dtype=dtype, **o))
    product = runtime.Dense("d", ["x"], numbers(3, 7))
    several = product, runtime.Activation("t", ["d"], "tanh"), runtime.Add("a", ["t", "d"])
    return {
        "norm": around(runtime.LayerNorm("n", ["x"])),
        "norm with a weight": around(runtime.LayerNorm("n", ["x"], weight=numbers(7), epsilon=0.1)),
        "norm with a bias": around(runtime.LayerNorm("n", ["x"], bias=numbers(7))),
        "product": around(runtime.Dense("d", ["z"], numbers(40, 7))),
        "sum of three": around(product, runtime.Add("a", ["x", "z", "x"])),
        "sum of one": around(product, runtime.Add("a", ["z"])),
        "last": around(of("gru"), runtime.Last("l", ["rnn"]), runtime.Activation("t", ["l"], "tanh"), outputs=["t", "l"]),
        "product of two": around(product, runtime.Multiply("m", ["x", "z"])),
        "joined": around(product, runtime.Concatenate("c", ["z", "x", "d"])),
        "masked": around(runtime.Masked("m", ["x"]), runtime.Dense("d", ["m"], numbers(3, 7)), runtime.Masked("y", ["d"])),
        "formula": around(runtime.elementwise("f", "x", 7, lambda v, w: tanh(v * w), w=numbers(7))),
        "several outputs": around(*several, outputs=["a", "d"]),
        "no output": around(of("gru"), outputs=[]),
        "residual": around(of("gru", num_layers=3, residual=True)),
        "learned states": around(of("lstm", learned_state=True)),
        "zoneout": around(of("lstm", zoneout=0.3, num_layers=2)),
        "hyper-parameter": around(of("ctrnn", dt=0.25)),
        "skipped input": around(of("rnn_tanh", skip_input=True)),
        **{function: around(product, runtime.Activation("f", ["x"], function)) for function in FUNCTIONS},
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", networks("float32"))
def test_layers(name, dtype, tmp_path):
    network = networks(dtype)[name]
    x = {name: 3 * draw(6, 4, 7, seed=seed, dtype=network.dtype) for seed, name in enumerate("xz")}
    check(network, loaded(network, tmp_path, 4), x, 4)


def test_every_kind_of_layer_is_known(tmp_path):
    """As operations, or as one that needs whole sequences."""
    assert {*ELEMENTWISE, *OF_ALL} == {*FUNCTIONS}
    of_steps = [layer for network in (*networks("float32").values(), small("gru")) for layer in network.layers]
    whole = [
        runtime.Mean("w", ["x"]), runtime.Max("w", ["x"]), runtime.Flatten("w", ["x"], 3),
        runtime.AttentionAverage("w", ["x"], draw(7)),
    ]  # fmt: skip
    assert {*LAYERS} == {layer.kind for layer in (*of_steps, *whole)}
    for layer in whole:
        with pytest.raises(ValueError, match="w needs whole sequences, as it looks at all steps"):
            aot.export(around(layer), tmp_path / "net.o")

    with pytest.raises(UnsupportedError, match="o: a Layerless is no layer that object files hold"):
        aot.export(around(Layerless("o", ["x"])), tmp_path / "net.o")


class Layerless(runtime.layers.Layer):
    kind = "layerless"

    def gives(self, *given):
        return given[0]

    def run(self, call, *given):
        return given[0]


def test_softmax_of_large_numbers(tmp_path):
    network = around(runtime.Activation("s", ["x"], "softmax"), runtime.Activation("l", ["x"], "log_softmax"), outputs=["s", "l"])
    x, unused = np.float32([[100, 200, 300, -1e30, 0, 299, 3e38]]), np.zeros((1, 7), np.float32)
    shares, logarithms = loaded(network, tmp_path).step(x, unused)
    assert shares.tolist() == [[0, 0, 0, 0, 0, 0, 1]]
    assert np.isfinite(logarithms).all()
    assert logarithms[0, -1] == 0


def test_states_are_all_that_is_kept(tmp_path):
    """A copy of a stream goes on as it would have, wherever it stands, and so do the states alone."""
    network = small("lstm")
    x = in_c(network, given(network, 6, 2))
    found, whole = loaded(network, tmp_path, 2), loaded(network, tmp_path, 2)
    wanted = [whole.step(*step)[0] for step in x]
    for step in x[:3]:
        found.step(*step)
    bytes = 2 * 2 * 2 * 7 * 4  # of states, layers, samples, features
    copy = np.full(len(found.memory), 255, np.uint8)[4:]
    copy[:bytes] = found.stream[:bytes]
    found.put(copy)
    assert np.array_equal(np.stack([found.step(*step)[0] for step in x[3:]]), wanted[3:])
    found.begin()
    assert np.array_equal(found.step(*x[0])[0], wanted[0])


@pytest.mark.parametrize("number", [-1, 11, 2**31 - 1, -(2**31)])
def test_a_number_that_is_no_class_is_refused_before_anything_is_done(number, tmp_path):
    network = small("gru")
    found = loaded(network, tmp_path, 3)
    before, output = found.memory.copy(), found.outputs[0].copy()
    assert found.step(np.int32([3, 0, number])) is None
    assert np.array_equal(found.memory, before)
    assert np.array_equal(found.outputs[0], output, equal_nan=True)
    assert found.step(np.int32([3, 0, 10])) is not None


def test_arrays_of_the_caller_may_begin_at_any_number(tmp_path):
    layer = anyrnn.Recurrent("gru", 19, 37, seed=0)
    network = runtime.Network(19, [runtime.Recurrent.of("rnn", ["x"], layer)])
    found, x = loaded(network, tmp_path, 3), draw(3, 19)
    wanted = found.step(x)[0]
    room = np.zeros(1000, np.float32)
    given_, found.outputs = room[1:58].reshape(3, 19), [room[101 : 101 + 3 * 37].reshape(3, 37)]
    given_[...] = x
    found.begin()
    assert np.array_equal(found.step(given_)[0], wanted)
    assert not room[101 + 3 * 37 :].any()


def test_denormals_of_the_caller_come_back(tmp_path):
    """The mode of the processor is the caller's again."""
    found = loaded(around(recurrent("gru", 7)), tmp_path)
    found.step(np.zeros((1, 7), np.float32), np.zeros((1, 7), np.float32))
    tiny = np.float32(1e-38)
    assert tiny * np.float32(0.1) > 0


def test_layers_of_every_front_end(tmp_path):
    torch_layer = anyrnn.torch.LSTM(3, 5)
    layers = [torch_layer, anyrnn.torch.Recurrent("mgu", 3, 5), anyrnn.Recurrent("augru", 3, 5, seed=0)]
    for layer in layers:
        header = aot.export(layer, tmp_path / "one.o")
        assert header == tmp_path / "one.h"
    assert "int one_step(one_stream *stream, const float *in_x, const float *in_a, float *out_output);" in header.read_text()


def test_further_inputs(tmp_path):
    @cell
    def timed(x, h, dt: Step(1)):
        h = h + dt * (tanh(affine("n", x, h)) - h)
        return h, State(h=h)

    layer = anyrnn.Recurrent(timed, 3, 5, seed=0)
    aot.export(layer, tmp_path / "net.o", batch_size=2)
    network = runtime.Network([runtime.Input("x", 3), runtime.Input("dt", 1)], [runtime.Recurrent.of("rnn", ["x", "dt"], layer)])
    check(network, loaded(network, tmp_path, 2), {"x": draw(5, 2, 3), "dt": np.abs(draw(5, 2, 1))}, 2)


def test_the_same_network_gives_the_same_file(tmp_path):
    network, files = small("lstm_layernorm"), []
    for target_ in (None, "aarch64-linux-gnu"):
        for _ in range(2):
            aot.export(network, tmp_path / "net.o", target=target_)
            files.append((tmp_path / "net.o").read_bytes())
    assert files[0] == files[1]
    assert files[2] == files[3]
    assert files[0] != files[2]


MACHINES = {
    "x86_64-linux-gnu": b"\x7fELF\x02",
    "aarch64-linux-gnu": b"\x7fELF\x02",
    "armv7-linux-gnueabihf": b"\x7fELF\x01",
    "thumbv7em-none-eabihf": b"\x7fELF\x01",
    "thumbv6m-none-eabi": b"\x7fELF\x01",
    "thumbv7m-none-eabi": b"\x7fELF\x01",
    "thumbv8m.main-none-eabihf": b"\x7fELF\x01",
    "riscv32-unknown-elf": b"\x7fELF\x01",
    "riscv64-linux-gnu": b"\x7fELF\x02",
    "wasm32-unknown-unknown": b"\0asm",
    "arm64-apple-macos": b"\xcf\xfa\xed\xfe\x0c",
    "x86_64-apple-macos": b"\xcf\xfa\xed\xfe\x07",
    "x86_64-pc-windows-msvc": b"\x64\x86",
    "x86_64-w64-mingw32": b"\x64\x86",
}


@pytest.mark.parametrize("machine", MACHINES)
def test_machines(machine, tmp_path):
    """Code of every machine asks for nothing but memcpy, where it has an instruction for `floor`; 32-bit ARM for what each of its
    compilers brings.
    """
    aot.export(small("lstm_layernorm"), tmp_path / "net.o", target=machine)
    code = (tmp_path / "net.o").read_bytes()
    assert code.startswith(MACHINES[machine])
    if code.startswith(b"\x7fELF"):
        asked, offered = symbols(code)
        assert offered == {"net_begin", "net_step", "net_stream_bytes"}
        if machine.startswith(("x86", "aarch64", "riscv64")):
            assert asked == {"memcpy"}
        else:  # of 64-bit integers, and of floating-point numbers where the processor has none
            assert {name for name in asked if not name.startswith("__")} <= {"memcpy", "sqrtf"}


def test_processors_by_name(tmp_path):
    network = around(recurrent("gru", 7))
    files = []
    for cpu in (None, "cortex-m7"):
        aot.export(network, tmp_path / "net.o", target="thumbv7em-none-eabihf", cpu=cpu)
        files.append((tmp_path / "net.o").read_bytes())
    assert files[0] != files[1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"target": "sparc-sun-solaris"}, "target 'sparc-sun-solaris': the first part should be one of x86_64, aarch64"),
        (
            {"target": "x86_64-linux-gnu", "cpu": "zen9"},
            "cpu 'zen9': of x86_64 it should be one of x86-64, x86-64-v3, x86-64-v4, native",
        ),
        ({"target": "aarch64-linux-gnu", "cpu": "zen9"}, "cpu 'zen9': of aarch64 it should be one of apple-m1"),
        ({"target": "aarch64-plan-9"}, "target 'aarch64-plan-9': LLVM has no such system; such are linux-gnu, windows-msvc, "),
        *(
            ({"target": triple}, f"target '{triple}': LLVM has no such system")
            for triple in (
                *("x86_64-linux-gnux32", "armv7-windows-msvc", "aarch64-linux-xcoff", "wasm32-linux-elf", "riscv64-apple-macos"),
                *("wasm32-unknown-unknown-macho", "aarch64-windwos-gnu", "x86_64-nonsense-garbage", "x86_64-linux-spirv"),
            )
        ),
        ({"target": ""}, "target '': expected words with hyphens between them"),
        ({"target": "x86_64-linux*/gnu"}, "expected words with hyphens between them"),
        ({"cpu": ""}, "cpu '': of "),
        ({"cpu": "help"}, "cpu 'help': of "),
        ({"batch_size": 10**30}, "would take 2 GiB or more"),
        ({"target": "arm-linux-gnueabihf"}, "; a Cortex-M4 is thumbv7em-none-eabihf, and Linux armv7-linux-gnueabihf"),
        (
            {"target": "aarch64-linux-gnu", "cpu": "native"},
            "cpu 'native' is this processor, for .* alone; got target 'aarch64-li",
        ),
        ({"name": "2nd"}, "name should be one that C takes, got '2nd'"),
        ({"batch_size": 0}, "batch_size must be greater than zero"),
    ],
)
def test_what_cannot_be(options, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        aot.export(around(recurrent("gru", 7)), tmp_path / "net.o", **options)
    assert not [*tmp_path.iterdir()]


def test_networks_that_cannot_be(tmp_path):
    both = anyrnn.Recurrent("gru", 7, 5, bidirectional=True, seed=0)
    with pytest.raises(ValueError, match="output needs whole sequences, as it reads backwards"):
        aot.export(both, tmp_path / "net.o")
    with pytest.raises(TypeError, match=r"layer should be an anyrnn.Recurrent .*; several layers are an anyrnn.runtime.Network"):
        aot.export(torch.nn.Sequential(), tmp_path / "net.o")
    with pytest.raises(UnsupportedError, match="x is an input and an output"):
        aot.export(around(recurrent("gru", 7), outputs=["rnn", "x"]), tmp_path / "net.o")
    for options in ({"target": 5}, {"cpu": []}, {"name": 5}):
        with pytest.raises(TypeError, match="should be text, got a "):
            aot.export(around(recurrent("gru", 7)), tmp_path / "net.o", **options)
    with pytest.raises(ValueError, match=r"an object file should end in \.o or \.obj; compilers make libraries of it"):
        aot.export(around(recurrent("gru", 7)), tmp_path / "net.so")
    assert not [*tmp_path.iterdir()]


def test_without_llvmlite(tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "_llvm", lambda: (None, "llvmlite cannot be imported (no): pip install llvmlite"))
    with pytest.raises(MissingExtraError, match="object files are made by LLVM, and llvmlite cannot be imported"):
        aot.export(around(recurrent("gru", 7)), tmp_path / "net.o")


def test_a_long_step_is_exported_whole(tmp_path, monkeypatch):
    """Though the call that packs its weights goes in pieces."""
    monkeypatch.setattr(split, "PIECE", 0)
    network = around(recurrent("lstm", 7, num_layers=3))
    x = {name: draw(4, 2, 7, seed=seed) for seed, name in enumerate("xz")}
    check(network, loaded(network, tmp_path, 2), x, 2)


def test_a_layer_without_parameters_keeps_its_dtype(tmp_path):
    @cell
    def own(x, h):
        h = tanh(h + mean(x))
        return h, State(h=h)

    for layer in (anyrnn.Recurrent(own, 3, 3, dtype="float64"), anyrnn.torch.Recurrent(own, 3, 3, dtype=torch.float64)):
        header = aot.export(layer, tmp_path / "net.o")
        assert "int net_step(net_stream *stream, const double *in_x, double *out_output);" in header.read_text()
    found, stream = Loaded(tmp_path / "net.o", "net", [np.empty((1, 3))]), anyrnn.Recurrent(own, 3, 3, dtype="float64").stream()
    x = draw(1, 3, dtype="float64")
    np.testing.assert_allclose(found.step(x)[0], stream(x), rtol=1e-13)


@pytest.mark.parametrize("name", ["llvm", "kernel", "layer", "memcpy", "_stdint"])
def test_names_of_functions(name, tmp_path):
    network = around(recurrent("gru", 7), outputs=["rnn"])
    aot.export(network, tmp_path / f"{name}.o")
    assert Loaded(tmp_path / f"{name}.o", name, [np.empty((1, 7), np.float32)]).step(*draw(2, 1, 7)) is not None
    assert f"#ifndef ANYRNN_{name}_H" in (tmp_path / f"{name}.h").read_text()


def test_files_without_a_name_of_letters(tmp_path):
    assert "int network_step(" in aot.export(around(recurrent("gru", 7)), tmp_path / "ü.o").read_text()


def test_names_that_operations_have_too(tmp_path):
    """And others that LLVM or C could take for something else."""
    residual = recurrent("gru", 7, num_layers=3, residual=True)
    others = [
        runtime.Activation(name, ["x"], "tanh")
        for name in ("rnn.0", "rnn.1", "rnn before it is added", "largest of s", "a.0", "l" * 5000)
    ]
    sums = [runtime.Add("a", ["x", "z", "rnn"]), runtime.Activation("s", ["a"], "softmax")]
    odd = [
        runtime.Activation(name, ["s"], "relu")
        for name in ('a"b', "a\\b", "*/ /*", "日本", "a b", "a-b", "int", "%s\n", "\ud800", "")
    ]
    network = around(*others, residual, *sums, *odd, outputs=["s", *(layer.name for layer in (*others, *odd))])
    x = {name: draw(4, 2, 7, seed=seed) for seed, name in enumerate("xz")}
    check(network, loaded(network, tmp_path, 2), x, 2)
    header = (tmp_path / "net.h").read_text(encoding="utf-8")
    assert "float *out_a_b, " in header
    assert "float *out_a_b___, " in header
    assert identifiers(["a b", "a-b", "1", "", "const_cast"]) == ["a_b", "a_b_", "_1", "_", "const_cast_"]
    table = runtime.Network(None, [runtime.Embedding('a"b', ["x"], draw(3, 2))])
    assert np.array_equal(loaded(table, tmp_path).step(np.int32([2]))[0], draw(3, 2)[2:])


def test_residual_layers_have_the_states_of_a_stream(tmp_path):
    network = around(recurrent("lstm", 7, num_layers=3, residual=True))
    found, stream, x = loaded(network, tmp_path, 2, cpu="native"), network.stream(2), draw(5, 2, 7)
    for step in x:
        found.step(step, step)
        stream.step({"x": step, "z": step})
    states = found.stream[: 2 * 3 * 2 * 7 * 4].view(np.float32).reshape(2, 3, 2, 7)
    assert np.array_equal(states[0], stream.states["rnn"]["h"])
    assert np.array_equal(states[1], stream.states["rnn"]["c"])
    assert "float rnn_c[3][2][7];" in (tmp_path / "net.h").read_text()


def test_room_is_for_one_step(tmp_path):
    """Also of layers whose work is all done for a chunk of steps at once."""
    scores = runtime.Dense("d", ["rnn"], draw(3, 7))
    assert loaded(around(recurrent("lstm", 7), scores, runtime.Activation("s", ["d"], "softmax")), tmp_path).bytes < 6000


@pytest.mark.parametrize("name", ["gru", "lstm", "augru"])
def test_an_object_is_run_for_the_check(name, tmp_path, capsys):
    source, made = tmp_path / "a.safetensors", tmp_path / "b.o"
    small(name).save(source)
    for more in ([], ["--cpu", "native", "--int8", "--batch", "3", "--name", "mine"]):
        assert cli.main(["convert", str(source), str(made), "--check", *more]) == 0
        (told,) = [line for line in capsys.readouterr().out.splitlines() if "run here" in line]
        assert float(told.split("within ")[1].split()[0]) < 1e-5
    cli.main(["convert", str(source), str(made), "--check", "--target", "aarch64-linux-gnu"])
    assert "run here" not in capsys.readouterr().out


def test_an_object_of_another_network_is_seen(tmp_path):
    networks = [around(runtime.Dense("d", ["x"], draw(3, 7, seed=seed))) for seed in (0, 1)]
    aot.export(networks[0], tmp_path / "net.o")
    assert convert.object_error(tmp_path / "net.o", networks[0]) < 1e-6
    assert convert.object_error(tmp_path / "net.o", networks[1]) > 1e-2


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_a_wrong_object_is_told_of(value, tmp_path, capsys, monkeypatch):
    source, step = tmp_path / "a.safetensors", Running.step
    around(runtime.Dense("d", ["x"], draw(3, 7))).save(source)
    monkeypatch.setattr(Running, "step", lambda self, given: [array + value for array in step(self, given)])
    assert cli.main(["convert", str(source), str(tmp_path / "b.o"), "--check"]) == 1
    assert "OVER what rounding explains" in capsys.readouterr().out


def test_the_command_line(tmp_path, capsys):
    source, made = tmp_path / "a.safetensors", tmp_path / "b.o"
    around(recurrent("gru", 7), runtime.Activation("t", ["rnn"], "tanh")).save(source)
    assert cli.main(["convert", str(source), str(made), "--target", "wasm32", "--batch", "3", "--name", "mine"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: {file.stat().st_size:,} bytes written" for file in (made, made.with_suffix(".h"))
    ]
    assert made.read_bytes().startswith(b"\0asm")
    capsys.readouterr()
    assert cli.main(["convert", str(source), str(made), "--target", "wasm32", "--batch", "3", "--name", "mine", "--int8"]) == 0
    assert "rnn = recurrent in int8(x)" in made.with_suffix(".h").read_text()
    capsys.readouterr()
    assert "float rnn_h[1][3][7];" in made.with_suffix(".h").read_text()
    for more, told in (
        (["x.onnx", "--cpu", "x86-64"], "x.onnx: a machine is for object files, which end in .o or .obj"),
        ([str(made), "--to", "torch"], f"{made}: cannot be written for torch"),
        ([str(made), "--layer", "rnn"], f"{made}: a network is written whole"),
        ([str(made), "--target", "sparc"], "target 'sparc': the first part should be one of x86_64, "),
    ):
        assert cli.main(["convert", str(source), *more]) == 2
        assert told in capsys.readouterr().err
