"""Streams that go on for long."""

import gc
import resource

import numpy as np
import pytest

import anyrnn
from anyrnn import runtime
from tests.runtime.test_networks import draw


def tagger() -> runtime.Network:
    layer = anyrnn.Recurrent("lstm", 8, 16, 2, seed=0)
    rnn = runtime.Recurrent("rnn", ["x"], layer.network, layer.parameters)
    dense = runtime.Dense("scores", ["rnn"], draw(5, 16), draw(5))
    return runtime.Network(8, [rnn, dense, runtime.Activation("shares", ["scores"], "softmax")])


def resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.slow
def test_a_long_stream_equals_one_call_and_its_memory_is_flat():
    network, x = tagger(), draw(100_000, 1, 8)
    output, after = network.run(x)
    stream, streamed = network.stream(), np.empty_like(output)
    for t in range(1000):
        streamed[t] = stream.step(x[t])
    gc.collect()
    before = resident()
    for t in range(1000, len(x)):
        streamed[t] = stream.step(x[t])
    gc.collect()
    assert resident() - before < 1 << 20
    assert np.array_equal(streamed, output)
    for name, array in stream.states["rnn"].items():
        assert np.array_equal(array, getattr(after["rnn"], name))


def test_a_stream_equals_one_call():
    network, x = tagger(), draw(2000, 1, 8)
    output, _ = network.run(x)
    stream = network.stream()
    assert np.array_equal([stream.step(step) for step in x], output)
    stream.reset()
    assert np.array_equal(stream.step(x[0]), output[0])


def test_after_an_interrupted_call_it_waits_for_a_reset():
    """But not after one that was refused before the states were touched."""
    network, x = tagger(), draw(2, 1, 8)
    output, _ = network.run(x)
    stream = network.stream()
    stream.step(x[0])
    whole = list(stream._layers)

    def refusing(*given):
        raise ValueError("no")

    stream._layers[0] = (refusing, whole[0][1])
    with pytest.raises(ValueError, match="no"):
        stream.step(x[1])
    stream._layers[:] = whole
    assert np.array_equal(stream.step(x[1]), output[1])

    for place in (0, 1):
        stream.reset()
        stream.step(x[0])

        def interrupted(*given, layer=whole[place][0]):
            layer(*given)
            raise KeyboardInterrupt

        stream._layers[place] = (interrupted, whole[place][1])
        with pytest.raises(KeyboardInterrupt):
            stream.step(x[1])
        stream._layers[:] = whole
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a call of this stream was interrupted"):
                stream.step(x[1])
    stream.reset()
    assert np.array_equal([stream.step(step) for step in x], output)


def test_a_product_that_was_interrupted_is_reset_too():
    network, x = tagger(), draw(1, 1, 8)
    stream = network.stream()
    product = stream._layers[1][0]

    def interrupted():
        raise KeyboardInterrupt

    product._native, native = interrupted, product._native
    with pytest.raises(KeyboardInterrupt):
        stream.step(x[0])
    product._native = native
    stream.reset()
    assert np.array_equal(stream.step(x[0]), network.run(x)[0][0])
