"""States as objects that go from call to call."""

import copy
import pickle
import sys

import numpy as np
import pytest
import torch

import anyrnn
import anyrnn.torch
from anyrnn.torch import RecurrentState


def layers(cell="lstm", **options):
    """The same network in both front-ends."""
    module = anyrnn.torch.Recurrent(cell, 3, 4, **options)
    layer = anyrnn.Recurrent(cell, 3, 4, **options)
    layer.parameters = {name: p.detach().numpy() for name, p in module.named_parameters()}
    return module, layer


def some_state(samples=6):
    return RecurrentState(("h", "c"), (torch.randn(2, samples, 4), torch.randn(2, samples, 5)))


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"learned_state": True}, {"batch_first": True}]
)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_calls_give_what_they_are_given(cell, options):
    module, layer = layers(cell, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    for call, x in ((module, torch.randn(2, 2, 3)), (layer, np.random.default_rng(0).normal(size=(2, 2, 3)).astype(np.float32))):
        state = call.initial_state(2)
        output, last = call(x, state)
        plainly, states = call(x)
        assert type(last) is type(state)
        assert (output == plainly).all()
        for ours, theirs in zip(last, states if isinstance(states, tuple) else (states,), strict=True):
            assert (ours == theirs).all()
        again, _ = call(x, last)
        assert (again == call(x, states)[0]).all()
        assert not isinstance(call(x, state, return_states="all")[1], type(state))
        alone = call.initial_state()
        assert alone.batch_size is None
        assert isinstance(call(x[0], alone)[1], type(state))
        assert isinstance(call(x, state, lengths=[1, 2])[1], type(state))


def test_initial_values_are_the_cells_own():
    @anyrnn.cell
    def counting(x, h, n: anyrnn.Scalar(init=1.0)):
        h = anyrnn.tanh(anyrnn.affine("h", x, h))
        return h, anyrnn.State(h=h, n=n + 1)

    module = anyrnn.torch.Recurrent(counting, 3, 4, num_layers=2, dtype=torch.float64)
    state = module.initial_state(5)
    assert state.names == ("h", "n")
    assert state.h.dtype == torch.float64
    assert torch.equal(state.n, torch.ones(2, 5, 1, dtype=torch.float64))
    assert module(torch.zeros(3, 5, 3, dtype=torch.float64), state)[1].n.unique().tolist() == [4]


def test_learned_values_get_gradients_through_it():
    module = anyrnn.torch.Recurrent("gru", 3, 4, learned_state=True)
    module(torch.randn(2, 5, 3), module.initial_state(5))[0].sum().backward()
    through_state = module.h0_l0.grad.clone()
    module.zero_grad()
    x = torch.randn(2, 5, 3)
    module(x)[0].sum().backward()
    plainly = module.h0_l0.grad.clone()
    module.zero_grad()
    module(x, module.initial_state(5))[0].sum().backward()
    assert through_state.abs().sum() > 0
    assert torch.allclose(module.h0_l0.grad, plainly)


def test_truncated_backpropagation():
    """Gradients are those of each chunk with the state that the last one left, and the outputs those of the whole."""
    module = anyrnn.torch.LSTM(3, 4, dtype=torch.float64)
    x = torch.randn(12, 2, 3, dtype=torch.float64)
    state, outputs, expected = module.initial_state(2), [], []
    plain = tuple(torch.zeros(1, 2, 4, dtype=torch.float64) for _ in range(2))
    for chunk in x.split(4):
        output, state = module(chunk, state.detach())
        outputs.append(output)
        y, plain = module(chunk, tuple(s.detach() for s in plain))
        expected += torch.autograd.grad(y.square().sum(), list(module.parameters()))
    assert torch.equal(torch.cat(outputs), module(x)[0])
    ours = [g for y in outputs for g in torch.autograd.grad(y.square().sum(), list(module.parameters()))]
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert state.detach().h.grad_fn is None
    assert state.h.grad_fn is not None


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_samples_are_chosen_and_joined(kind):
    state = some_state()
    if kind == "numpy":
        state = anyrnn.RecurrentState(state.names, tuple(a.numpy() for a in state))
    numbers = np.array([5, 0, 0])
    for samples in (numbers, numbers.tolist(), torch.from_numpy(numbers) if kind == "torch" else numbers):
        chosen = state.index(samples)
        assert chosen.batch_size == 3
        assert (chosen.c[:, 1] == state.c[:, 0]).all()
        assert (chosen.h[:, 0] == state.h[:, 5]).all()
    assert state.index(slice(1, 3)).batch_size == 2
    assert state.index(np.arange(6) < 2).batch_size == 2
    assert state.index(2).h.shape == (2, 4)
    for samples in (True, None, [[0, 1]]):
        with pytest.raises(IndexError, match=r"samples should be an integer, a slice, or of one dimension, got"):
            state.index(samples)
    joined = type(state).concatenate([state.index(slice(0, 4)), state.index([4, 5])])
    assert all((a == b).all() for a, b in zip(joined, state, strict=True))
    h, c = state
    assert (len(state), h is state.h, c is state.c) == (2, True, True)
    assert repr(state) == "RecurrentState(h=[2, 6, 4], c=[2, 6, 5])"


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_beams_that_go_on(kind):
    state = some_state()  # two sentences of three beams
    if kind == "numpy":
        state = anyrnn.RecurrentState(state.names, tuple(a.numpy() for a in state))
    found = state.gather([[2, 0], [1, 1]])
    assert all((a == b).all() for a, b in zip(found, state.index([2, 0, 4, 4]), strict=True))
    wrong = {r"should be \[sentences, beams\], of a batch of 6, got shape \(4, 1\)": [[0]] * 4, "from 0 to 2": [[0], [3]]}
    wrong |= {"from 0 to 2, the beams of a sentence": [[-1], [0]], r"got shape \(2,\)": [0, 1]}
    for message, parents in wrong.items():
        with pytest.raises(ValueError, match=message):
            state.gather(parents)
    for numbers in ([[True, False], [True, True]], [[0.0, 1.0], [1.0, 1.0]]):
        with pytest.raises(TypeError, match="gather: parents should be integers, got"):
            state.gather(numbers)


def test_moved_copied_and_detached():
    state = RecurrentState(("h",), (torch.randn(1, 2, 3, requires_grad=True),))
    assert state.to(torch.float64).h.dtype == torch.float64
    assert state.to("meta").h.is_meta
    assert not state.detach().h.requires_grad
    copied = state.clone()
    assert copied.h is not state.h
    assert torch.equal(copied.h, state.h)
    (d,) = torch.autograd.grad(state.index([0, 0]).h.sum(), state.h)
    assert d[:, :, 0].tolist() == [[2.0, 0.0]]


def test_saved_and_loaded(tmp_path):
    state = some_state()
    state.to(torch.bfloat16).save(tmp_path / "state.safetensors")
    again = RecurrentState.load(tmp_path / "state.safetensors")
    assert again.names == ("h", "c")
    assert all(torch.equal(a, b.to(torch.bfloat16)) for a, b in zip(again, state, strict=True))
    state.index([3, 1]).save(tmp_path / "state")
    arrays = anyrnn.RecurrentState.load(tmp_path / "state")
    assert all((a == b.numpy()[:, [3, 1]]).all() for a, b in zip(arrays, state, strict=True))
    RecurrentState(("h", "c"), (state.h, state.h)).save(tmp_path / "shared")
    assert torch.equal(RecurrentState.load(tmp_path / "shared").c, state.h)
    arrays.save(tmp_path / "state")
    assert RecurrentState.load(tmp_path / "state").batch_size == 2
    import safetensors.torch

    safetensors.torch.save_file({"h": state.h}, tmp_path / "other")
    (tmp_path / "text").write_text("hello")
    for name in ("other", "text"):
        with pytest.raises(ValueError, match=f"{name} holds no states"):
            RecurrentState.load(tmp_path / name)
    for one in (state, arrays):
        with pytest.raises(OSError, match="text"):
            one.save(tmp_path / "text" / "state")
    state.save(tmp_path / "new" / "state")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["state"]


def test_without_safetensors(monkeypatch, tmp_path):
    for name in ("safetensors", "safetensors.torch", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(anyrnn.MissingExtraError, match="saved with safetensors: pip install"):
        some_state().save(tmp_path / "state")
    arrays = anyrnn.RecurrentState(("h",), (np.ones((1, 2, 3), np.float32),))
    arrays.save(tmp_path / "state")
    assert (anyrnn.RecurrentState.load(tmp_path / "state").h == arrays.h).all()


def test_copies_and_checkpoints(tmp_path):
    state = some_state()
    torch.save({"state": state}, tmp_path / "checkpoint")
    for again in (
        pickle.loads(pickle.dumps(state)),
        copy.deepcopy(state),
        torch.load(tmp_path / "checkpoint", weights_only=True)["state"],
        torch.utils._pytree.tree_map(lambda t: t.clone(), state),
    ):
        assert again.names == state.names
        assert all(torch.equal(a, b) for a, b in zip(again, state, strict=True))


def test_what_cannot_be():
    module, layer = layers("lstm")
    x, state = torch.zeros(2, 5, 3), module.initial_state(5)
    with pytest.raises(AttributeError, match="RecurrentState has no 'n'; its states are: h, c"):
        _ = state.n
    for one in (state, layer.initial_state(5)):
        with pytest.raises(AttributeError, match="cannot assign to field 'h'"):
            one.h = one.c
    with pytest.raises(ValueError, match="hx should be the state of a cell with h, c, got that of one with h"):
        module(x, anyrnn.torch.GRU(3, 4).initial_state(5))
    with pytest.raises(ValueError, match="state should be the state of a cell with h, c, got that of one with h"):
        layer(x.numpy(), anyrnn.Recurrent("gru", 3, 4).initial_state(5))
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        module(x, state.index([0]))
    for call in (module, layer):
        with pytest.raises(ValueError, match="batch_size must be greater than zero"):
            call.initial_state(0)
        with pytest.raises(TypeError, match="batch_size should be of type int, got: float"):
            call.initial_state(2.0)
    for call in (lambda s: s.index([0]), lambda s: s.gather([[0]]), lambda s: RecurrentState.concatenate([s])):
        with pytest.raises(ValueError, match="one sequence without a batch"):
            call(module.initial_state())
    with pytest.raises(ValueError, match=r"expected states of one cell, got those of \[\['h', 'c'\], \['h'\]\]"):
        RecurrentState.concatenate([state, anyrnn.torch.GRU(3, 4).initial_state(5)])


def test_names_in_a_list() -> None:
    layer, x = anyrnn.Recurrent("lstm", 3, 4, seed=0), np.ones((2, 1, 3), np.float32)
    ones = tuple(np.ones((1, 1, 4), np.float32) for _ in range(2))
    assert np.array_equal(layer(x, anyrnn.RecurrentState(["h", "c"], ones))[0], layer(x, ones)[0])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int64"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_parents_of_short_integers(dtype, library):
    beams = 256 if dtype == "uint8" else 128
    numbers = np.arange(beams).astype(dtype)[None]
    if library == "numpy":
        state = anyrnn.Recurrent("gru", 3, 4).initial_state(beams)
        assert np.array_equal(state.gather(numbers).h, state.h)
    else:
        state = anyrnn.torch.GRU(3, 4).initial_state(beams)
        assert torch.equal(state.gather(torch.from_numpy(numbers)).h, state.h)
