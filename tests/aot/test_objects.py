"""Networks as object files, called from this process: on this machine, and on lesser ones of its kind."""

import platform as system

import numpy as np
import pytest

import anyrnn
import anyrnn.torch
from anyrnn import State, Step, UnsupportedError, affine, aot, cell, cli, runtime, tanh
from anyrnn.aot.lowering import ELEMENTWISE, OF_ALL
from anyrnn.backends.llvm import target
from anyrnn.runtime.functions import FUNCTIONS
from anyrnn.runtime.layers import LAYERS
from tests.aot.objects import loaded, unresolved
from tests.runtime.test_networks import draw, given, recurrent, small
from tests.zoo import EVERY

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
def test_every_cell_with_layers_around_it(name, tmp_path):
    network = small(name)
    check(network, loaded(network, tmp_path, 3), given(network, 9, 3), 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "indrnn", "lstm_layernorm"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_layer_has_the_bits_of_its_stream(name, rows, dtype, tmp_path):
    layer = anyrnn.Recurrent(name, 19, 37, 2, seed=0, dtype=dtype)
    network = runtime.Network(19, [runtime.Recurrent.of("rnn", ["x"], layer)])
    found, stream, x = loaded(network, tmp_path, rows), layer.stream(rows), draw(20, rows, 19, dtype=dtype)
    assert all(np.array_equal(found.step(step)[0], stream(step)) for step in x)


@pytest.mark.skipif(not X86, reason="of processors of x86-64")
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_lesser_processors(cpu, tmp_path):
    if not {"x86-64-v3": {"avx2", "fma"}, "x86-64-v4": {"avx512f", "avx512vl"}}.get(cpu, set()) <= target.machine().features:
        pytest.skip(f"this processor is less than {cpu}")
    for name in ("lstm", "gru_layernorm"):
        network = small(name)
        check(network, loaded(network, tmp_path, 2, cpu=cpu), given(network, 9, 2), 2)


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
        "product of two": around(product, runtime.Multiply("m", ["x", "z"])),
        "joined": around(product, runtime.Concatenate("c", ["z", "x", "d"])),
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


def test_every_kind_of_layer_is_known():
    """As an operation, or as one that needs whole sequences."""
    assert {*ELEMENTWISE, *OF_ALL} == {*FUNCTIONS}
    whole = {"last", "mean", "max", "flatten", "attention_average"}
    stepwise = {"recurrent", "formula", "dense", "embedding", "layer_norm", "activation", "concatenate", "add", "multiply"}
    assert {*LAYERS} == whole | stepwise


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
    copy = np.full(len(found.memory), 7, np.uint8)[3:]
    copy[:bytes] = found.stream[:bytes]
    found.stream = copy
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
    "thumbv8m.main-none-eabihf": b"\x7fELF\x01",
    "riscv64-linux-gnu": b"\x7fELF\x02",
    "wasm32-unknown-unknown": b"\0asm",
    "arm64-apple-macos": b"\xcf\xfa\xed\xfe\x0c",
    "x86_64-apple-macos": b"\xcf\xfa\xed\xfe\x07",
    "x86_64-pc-windows-msvc": b"\x64\x86",
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
        assert {name for name in unresolved(code) if not name.startswith("__aeabi_")} <= {"memcpy"}
        assert unresolved(code) == {"memcpy"} or machine.startswith(("arm", "thumb"))


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
        ({"target": "x86_64-linux-gnu", "cpu": "zen9"}, "cpu 'zen9': of x86_64 it should be one of x86-64, x86-64-v3, x86-64-v4"),
        ({"target": "aarch64-linux-gnu", "cpu": "zen9"}, "cpu 'zen9': LLVM knows no such processor of aarch64-unknown-linux-gnu"),
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
    with pytest.raises(UnsupportedError, match="x is an input and an output"):
        aot.export(around(recurrent("gru", 7), outputs=["rnn", "x"]), tmp_path / "net.o")
    with pytest.raises(TypeError, match="anyrnn"):
        aot.export(object(), tmp_path / "net.o")
    with pytest.raises(ValueError, match="is where the header goes"):
        aot.export(around(recurrent("gru", 7)), tmp_path / "net.h")


def test_the_command_line(tmp_path, capsys):
    source, made = tmp_path / "a.safetensors", tmp_path / "b.o"
    around(recurrent("gru", 7)).save(source)
    assert cli.main(["convert", str(source), str(made), "--target", "wasm32", "--batch", "3", "--name", "mine"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{made.with_suffix('.h')}: what compilers of C and C++ are told of it",
        f"{made}: {made.stat().st_size:,} bytes written",
    ]
    assert made.read_bytes().startswith(b"\0asm")
    assert "float rnn_h[1][3][7];" in made.with_suffix(".h").read_text()
    for more, told in (
        (["x.onnx", "--cpu", "x86-64"], "--target, --cpu, --batch and --name are of object files, which end in .o or .obj"),
        ([str(made), "--to", "torch"], "--to and --approximate are of arrays; an object file holds the network as it is"),
        ([str(made), "--target", "sparc"], "target 'sparc': the first part should be one of x86_64, "),
    ):
        assert cli.main(["convert", str(source), *more]) == 2
        assert told in capsys.readouterr().err
