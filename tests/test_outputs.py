"""`return_outputs`: the output of the last step that each direction takes, or none."""

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch

STRUCTURES = {
    "plain": {},
    "reverse": {"reverse": True},
    "two directions": {"bidirectional": True},
    "layers": {"num_layers": 2, "bidirectional": True},
    "merged": {"num_layers": 2, "bidirectional": True, "merge": "mul"},
    "separate": {"bidirectional": True, "merge": "separate"},
    "residual": {"num_layers": 3, "residual": True, "bidirectional": True},
    "residual, reverse": {"num_layers": 2, "residual": True, "reverse": True},
    "learned": {"learned_state": True, "bidirectional": True},
}
RAGGED = {
    "dense": {},
    "lengths": {"lengths": [3, 0, 6]},
    "padding": {"lengths": [3, 0, 6], "padding": 1.5},
    "nothing": {"lengths": [0, 0, 0]},
    "resets": {"lengths": [3, 0, 6], "reset": np.arange(18).reshape(6, 3) % 5 == 2},
    "masks": {"mask": np.arange(18).reshape(6, 3) % 4 != 1, "reset": np.arange(18).reshape(6, 3) % 4 == 1},
}


def pair(cell, structure, **how):
    module = anyrnn.torch.Recurrent(cell, 5, 5, dtype=torch.float64, **STRUCTURES[structure], **how)
    layer = anyrnn.Recurrent(cell, 5, 5, dtype=np.float64, **STRUCTURES[structure], **how)
    layer.parameters = {name: p.detach().numpy() for name, p in module.named_parameters()}
    return module, layer


def as_torch(steps):
    return {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in steps.items()}


def ends_of(module, steps, x):
    """Taken by hand from each sample by itself."""
    lengths = steps.get("lengths", [6, 6, 6])
    found = []
    for n, length in enumerate(lengths):
        if not length:
            found.append(torch.full((module.network.width,), steps.get("padding", 0.0), dtype=x.dtype))
            continue
        own = {name: torch.from_numpy(v[:length, n : n + 1]) for name, v in steps.items() if isinstance(v, np.ndarray)}
        y, _ = module(x[:length, n : n + 1], **own)
        halves = y if isinstance(y, tuple) else y.chunk(module.network.directions, -1)
        found.append(torch.cat([half[0 if way else -1, 0] for half, way in zip(halves, module.network.ways, strict=True)]))
    return torch.stack(found)


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("steps", ["dense", "lengths", "padding", "nothing", "resets"])
@pytest.mark.parametrize("structure", [name for name in STRUCTURES if name != "merged"])
def test_the_last_outputs_are_those_of_each_sample_alone(structure, steps, backend):
    module, _ = pair("gru", structure, backend=backend)
    x, given = torch.randn(6, 3, 5, dtype=torch.float64, requires_grad=True), RAGGED[steps]
    y, _ = module(x, return_outputs="last", **as_torch(given))
    y = torch.cat(y, -1) if isinstance(y, tuple) else y
    expected = ends_of(module, given, x)
    assert torch.allclose(y, expected, 0, 1e-14)
    if expected.requires_grad:
        parameters, d = [x, *module.parameters()], torch.randn_like(y)
        ours = torch.autograd.grad(y, parameters, d, allow_unused=True)
        theirs = torch.autograd.grad(expected, parameters, d, allow_unused=True)
        for ours_, theirs_ in zip(ours, theirs, strict=True):
            assert torch.allclose(ours_, torch.zeros_like(ours_) if theirs_ is None else theirs_, 1e-12, 1e-13)


def test_merged_directions_are_merged_at_their_own_last_steps():
    merged, _ = pair("gru", "merged")
    parts = anyrnn.torch.Recurrent("gru", 5, 5, 1, dtype=torch.float64, bidirectional=True, merge="separate")
    x = torch.randn(6, 3, 5, dtype=torch.float64)
    below = anyrnn.torch.Recurrent("gru", 5, 5, dtype=torch.float64, bidirectional=True, merge="mul")
    below.load_state_dict({name: p for name, p in merged.state_dict().items() if "_l0" in name})
    parts.load_state_dict({name.replace("_l1", "_l0"): p for name, p in merged.state_dict().items() if "_l1" in name})
    forward, backward = parts(below(x)[0])[0]
    assert torch.allclose(merged(x, return_outputs="last")[0], forward[-1] * backward[0], 0, 1e-14)


@pytest.mark.parametrize("return_outputs", ["last", "none"])
@pytest.mark.parametrize("steps", RAGGED)
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_numpy_gives_what_torch_gives(backend, structure, steps, return_outputs):
    rng = np.random.default_rng(1)
    module, layer = pair("lstm", structure, backend=backend)
    x, given = rng.normal(size=(6, 3, 5)), RAGGED[steps]
    leaf = torch.from_numpy(x).requires_grad_()
    theirs, (h, c) = module(leaf, return_outputs=return_outputs, **as_torch(given))
    output, (our_h, our_c), reserve = layer.forward_training(x, return_outputs=return_outputs, **given)
    again, _ = layer(x, return_outputs=return_outputs, **given)
    if return_outputs == "none":
        assert theirs is output is again is None
        pairs = []
    else:
        of_all = [y if isinstance(y, tuple) else (y,) for y in (output, theirs, again)]
        pairs = [(ours, ys, rng.normal(size=ours.shape)) for ours, ys, _ in zip(*of_all, strict=True)]
        assert all(np.array_equal(a, b) for a, b in zip(of_all[0], of_all[2], strict=True))
    pairs += [(our_h, h, rng.normal(size=our_h.shape)), (our_c, c, rng.normal(size=our_c.shape))]
    assert all(np.allclose(ours, ys.detach().numpy(), 0, 1e-13) for ours, ys, _ in pairs)
    d_states, d_ends = tuple(d for *_, d in pairs[-2:]), [d for *_, d in pairs[:-2]]
    d_output = tuple(d_ends) if isinstance(output, tuple) else d_ends[0] if d_ends else None
    d_x, _, gradients = layer.backward(reserve, d_output, d_states)
    loss = sum((ys * torch.from_numpy(d)).sum() for _, ys, d in pairs)
    if loss.requires_grad:
        found = torch.autograd.grad(loss, [leaf, *module.parameters()], allow_unused=True)
        for (name, _), d in zip([("x", leaf), *module.named_parameters()], found, strict=True):
            ours = d_x if name == "x" else gradients[name]
            assert np.allclose(ours, 0 if d is None else d.numpy(), 1e-11, 1e-12), name
    in_two = layer.backward_data(reserve, d_output, d_states)
    assert np.array_equal(in_two[0], d_x)
    assert all(np.allclose(d, gradients[name], 0, 1e-13) for name, d in layer.backward_weights(in_two[2]).items())


@pytest.mark.parametrize("batch_first", [False, True])
def test_shapes(batch_first):
    module = anyrnn.torch.GRU(3, 4, bidirectional=True, batch_first=batch_first)
    layer = anyrnn.Recurrent("gru", 3, 4, bidirectional=True, batch_first=batch_first)
    for shape, expected in [((7, 3), (8,)), ((5, 7, 3), (5 if batch_first else 7, 8))]:
        assert module(torch.zeros(shape), return_outputs="last")[0].shape == expected
        out = np.empty(expected, np.float32)
        y, _ = layer(np.zeros(shape, np.float32), return_outputs="last", out=out)
        assert y is out
    packed = torch.nn.utils.rnn.pack_sequence([torch.randn(4, 3), torch.randn(6, 3)], enforce_sorted=False)
    y, states = module(packed, return_outputs="last")
    assert torch.equal(y, torch.cat([*states], -1))
    assert module(packed, return_outputs="none")[0] is None


def test_long_sequences_of_one_sample():
    """Whose rows follow each other, so that steps are done many at once."""
    for cell in ("lstm_projected", "indrnn"):
        sizes = {"proj": 3} if cell == "lstm_projected" else {}
        module = anyrnn.torch.Recurrent(cell, 5, 8, dtype=torch.float64, bidirectional=True, **sizes)
        x = torch.randn(3000, 1, 5, dtype=torch.float64, requires_grad=True)
        y, last = module(x)[0], module(x, return_outputs="last")[0]
        half = y.shape[-1] // 2
        expected = torch.cat([y[-1, :, :half], y[0, :, half:]], -1)
        assert torch.equal(last, expected)
        d = torch.randn_like(last)
        ours, theirs = (torch.autograd.grad(v, [x, *module.parameters()], d) for v in (last, expected))
        assert all(torch.allclose(a, b, 1e-12, 1e-13) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented the batching rule")
def test_an_output_that_is_known_before_the_steps():
    """It is made for many steps at once, by several threads, and only that of the last one is left."""

    @anyrnn.cell
    def early(x, h):
        u = anyrnn.tanh(anyrnn.affine("u", x))
        return u, anyrnn.State(h=anyrnn.tanh(anyrnn.affine("h", u, h)))

    layer, x = anyrnn.Recurrent(early, 512, 64, seed=0), np.random.default_rng(0).normal(size=(600, 1, 512)).astype(np.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = layer(x)[0][-1]
        assert all((layer(x, return_outputs="last")[0] == expected).all() for _ in range(60))
    finally:
        torch.set_num_threads(before)


def test_derivatives_and_transforms():
    module = anyrnn.torch.Recurrent("gru", 2, 3, bidirectional=True, dtype=torch.float64)
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)

    def last(x):
        return module(x, return_outputs="last")[0]

    assert torch.autograd.gradcheck(last, x)
    assert torch.autograd.gradgradcheck(last, x)
    assert torch.allclose(torch.func.vmap(last)(torch.stack([x, 2 * x]))[1], last(2 * x))
    d = torch.func.grad(lambda x: last(x).sum())(x)
    assert torch.allclose(d, torch.autograd.grad(last(x).sum(), x)[0])
    assert torch.allclose(torch.func.jvp(last, (x,), (x,))[1].sum(), (d * x).sum())


def test_many_to_one_keeps_no_outputs():
    module = anyrnn.torch.LSTM(8, 64)
    x, sizes = torch.zeros(2000, 16, 8), []
    with torch.no_grad():
        for what in ("all", "last"):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
                module(x, return_outputs=what)
            sizes.append(max(event.cpu_memory_usage for event in profile.events()))
    assert sizes[0] >= 2000 * 16 * 64 * 4
    assert sizes[1] < 2000 * 16 * 64


def test_what_cannot_be():
    layer, module = anyrnn.Recurrent("gru", 3, 4), anyrnn.torch.GRU(3, 4)
    x = np.zeros((5, 2, 3), np.float32)
    for call, given in ((layer, x), (module, torch.from_numpy(x))):
        with pytest.raises(ValueError, match="return_outputs should be 'all', 'last' or 'none', got 'first'"):
            call(given, return_outputs="first")
    with pytest.raises(ValueError, match="asks for none"):
        layer(x, return_outputs="none", out=np.zeros((5, 2, 4), np.float32))
    with pytest.raises(ValueError, match=r"out should have shape \(2, 4\), got \(5, 2, 4\)"):
        layer(x, return_outputs="last", out=np.zeros((5, 2, 4), np.float32))
    d = np.zeros((5, 2, 4), np.float32)
    with pytest.raises(ValueError, match="the call gave none"):
        layer.backward(layer.forward_training(x, return_outputs="none")[2], d)
    reserve = layer.forward_training(x, return_outputs="last")[2]
    with pytest.raises(ValueError, match=r"d_output should be float32 \(2, 4\), got float32 \(5, 2, 4\)"):
        layer.backward(reserve, d)
    with pytest.raises(ValueError, match="is for calls that gave all outputs"):
        layer.backward(reserve, d_last_output=d[0])
    both = anyrnn.torch.Recurrent("gru", 4, 4, 2, bidirectional=True, merge="sum", residual=True)
    with pytest.raises(ValueError, match="whose last steps are different"):
        both(torch.zeros(5, 2, 4), return_outputs="last")
    odd = anyrnn.torch.Recurrent("gru", 5, 5, 2, bidirectional=True, merge="sum", residual=True)
    for layer in (both, odd):  # no output, so nothing has to be told apart
        x = torch.randn(5, 2, layer.input_size)
        y, h = layer(x, return_outputs="none", lengths=[5, 3])
        assert y is None
        assert torch.equal(h, layer(x, lengths=[5, 3])[1])
