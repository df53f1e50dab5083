"""Calls like one that was made before are not looked at again: they give the same, and whatever is different is seen."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrizations, prune

import anyrnn
import anyrnn.torch
from anyrnn.backends.llvm import run as llvm
from anyrnn.torch import kernels, packed_weights, repeated

X = torch.randn(5, 2, 3)


@pytest.fixture(autouse=True)
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every call in which an earlier one was looked up, whether it was like it."""
    found: list[bool] = []
    call = repeated.Repeated.__call__

    def noted(self: repeated.Repeated, *given: Any) -> Any:
        result = call(self, *given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(repeated.Repeated, "__call__", noted)
    return found


def flat(found: Any) -> list[torch.Tensor]:
    output, states = found
    return [output, *(states if isinstance(states, tuple) else (states,))]


def forgetful(layer: Any, *given: Any) -> Any:
    """What the layer gives when it remembers nothing."""
    kept, layer._earlier = layer._earlier, repeated.Earlier()
    packed_weights.KNOWN.clear()
    found = layer(*given)
    layer._earlier = kept
    return found


def check(layer: Any, *given: Any, hit: bool | None, hits: list[bool]) -> None:
    """A call gives what it would give if nothing were remembered."""
    hits.clear()
    found = layer(*given)
    if hit is not None:
        assert (True in hits) is hit
    for ours, theirs in zip(flat(found), flat(forgetful(layer, *given)), strict=True):
        assert ours.equal(theirs)
        assert ours.stride() == theirs.stride()
        assert ours.requires_grad is theirs.requires_grad


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "lstm_layernorm", "gru_before"])
@pytest.mark.parametrize("more", [{}, {"batch_first": True}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_the_third_call_is_not_looked_at(cell: str, more: dict[str, Any], grad: bool, hits: list[bool]) -> None:
    layer = anyrnn.torch.Recurrent(cell, 3, 4, **more)
    states = layer.initial_state(5 if layer.batch_first else 2)
    first = tuple(torch.randn_like(s) for s in states)
    for given in ((), (first if len(first) > 1 else first[0],), (first,)):
        with torch.set_grad_enabled(grad):
            for _ in range(2):
                layer(X, *given)
            check(layer, X.clone(), *given, hit=True, hits=hits)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "gru_before"])
@pytest.mark.parametrize("grad", [False, True])
def test_so_do_single_steps(cell: str, grad: bool, hits: list[bool]) -> None:
    layer = anyrnn.torch.RecurrentCell(cell, 3, 4)
    states = flat(layer(X[0]))[1:]
    first = tuple(torch.randn_like(s) for s in states)
    for given in ((), (first if len(first) > 1 else first[0],), (first,), (tuple(s.requires_grad_() for s in first),)):
        with torch.set_grad_enabled(grad):
            for _ in range(2):
                layer(X[0], *given)
            check(layer, X[1], *given, hit=True, hits=hits)
            check(layer, X[1, 0], *[tuple(s[0] for s in some) for some in given if isinstance(some, tuple)], hit=None, hits=hits)
            check(layer, X[1:, 0], hit=None, hits=hits)
            check(layer, X[:, 0].double().float().T.contiguous().T, hit=None, hits=hits)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_a_loop_of_steps_finds_its_first_and_its_later_calls(name: str, hits: list[bool]) -> None:
    ours, theirs = getattr(anyrnn.torch, name)(3, 4), getattr(torch.nn, name)(3, 4)
    theirs.load_state_dict(ours.state_dict())
    for turn in range(4):
        hits.clear()
        found = []
        for cell in (ours, theirs):
            state: Any = None
            with torch.no_grad():
                for x in X:
                    state = cell(x, state)
            found.append(state if isinstance(state, tuple) else (state,))
        assert hits == [True] * [2, 4, 5, 5][turn]
        for a, b in zip(*found, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell", "GRU"])
@pytest.mark.parametrize("before", [0, 1, 3, 8])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_over_calls_of_which_some_are_remembered(name: str, before: int, reentrant: bool) -> None:
    """What the forward pass keeps has the shapes of what its repetition keeps, whichever of their calls are looked at."""
    module: Any = getattr(anyrnn.torch, name)(3, 4)
    states = torch.randn(2, *[1] * (name == "GRU"), 2, 4, requires_grad=True)
    first = tuple(states) if name == "LSTMCell" else (states[0],)
    x = torch.randn(6, *[5] * (name == "GRU"), 2, 3, requires_grad=True)

    def segment(x: torch.Tensor, *state: torch.Tensor) -> Any:
        for step in x:
            found = module(step, state if name == "LSTMCell" else state[0])
            state = found if name == "LSTMCell" else (found[1] if name == "GRU" else found,)
        return state

    def gradients(run: Callable[..., Any]) -> Any:
        return torch.autograd.grad(
            sum(s.square().sum() for s in run(x, *first)), [x, states, *module.parameters()], allow_unused=True
        )

    expected = gradients(segment)
    module._earlier = repeated.Earlier()
    for _ in range(before):
        module(x[0].detach(), first if name == "LSTMCell" else first[0])
    if not reentrant:
        found = gradients(lambda *given: torch.utils.checkpoint.checkpoint(segment, *given, use_reentrant=False))
    else:
        state = torch.utils.checkpoint.checkpoint(segment, x, *first, use_reentrant=True)
        for leaf in (x, states, *module.parameters()):
            leaf.grad = None
        sum(s.square().sum() for s in state).backward()
        found = [leaf.grad for leaf in (x, states, *module.parameters())]
    for a, b in zip(found, expected, strict=True):
        assert (a is None and b is None) or torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_what_a_step_gives_may_be_changed_in_place(name: str) -> None:
    """Results are no views, neither of a call that is looked at nor of one that is remembered."""
    cell = getattr(anyrnn.torch, name)(3, 4)
    for _ in range(4):
        found = cell(X[0])
        states = found if isinstance(found, tuple) else (found,)
        assert not any(state._is_view() for state in states)
        sum(state.mul_(2).sum() for state in states).backward()


@pytest.mark.parametrize("name", ["GRU", "GRUCell"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_refused_as_before(name: str) -> None:
    """Torch's guards end the process at them."""
    module, other = getattr(anyrnn.torch, name)(3, 4), getattr(anyrnn.torch, name)(3, 4)
    x = X if name == "GRU" else X[0]
    nested = torch.nested.nested_tensor(list(x))
    for _ in range(3):
        module(x)
    for given in ((nested,), (x, nested)):
        with pytest.raises(Exception) as expected:  # noqa: PT011
            other(*given)
        with pytest.raises(type(expected.value)) as found:
            module(*given)
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("grad", [False, True])
def test_frames_that_are_made_anew_have_the_probabilities(grad: bool) -> None:
    """As those of several threads are, or after an interrupt: zoneout computes with its own when nothing is drawn."""
    layer = anyrnn.torch.GRU(3, 5, zoneout=0.5).eval()
    x = torch.randn(4, 2, 3)

    def call() -> torch.Tensor:
        with torch.set_grad_enabled(grad):
            output = layer(x)[0]
            return torch.autograd.grad(output.sum(), layer.weight_hh_l0)[0] if grad else output

    expected, *_ = [call() for _ in range(4)]
    for pool in llvm.POOLS.known.values():
        pool.rest.clear()
    assert all(torch.equal(call(), expected) for _ in range(3))


def test_a_smaller_last_batch_is_another_call(hits: list[bool]) -> None:
    layer = anyrnn.torch.GRU(3, 4)
    for epoch in range(repeated.MOST_CALLS + 3):
        hits.clear()
        for samples in (2, 2, 2, 1):
            layer(X[:, :samples])
        assert hits.count(True) == [1, 3, 4][min(epoch, 2)]


def test_calls_whose_batches_shrink_are_remembered(hits: list[bool]) -> None:
    cell, x = anyrnn.torch.LSTMCell(3, 4), torch.randn(repeated.MOST_CALLS - 2, repeated.MOST_CALLS - 2, 3)
    outputs = []
    for _ in range(4):
        hits.clear()
        state = None
        for k, step in enumerate(x):
            shrunk = None if state is None else tuple(s[: len(x) - k] for s in state)
            state = cell(step[: len(x) - k], shrunk)
        outputs.append(state[0])
    assert all(hits)
    assert len(hits) == len(x)
    assert all(output.equal(outputs[0]) for output in outputs)


def test_a_module_that_has_met_many_shapes_goes_on_remembering(hits: list[bool]) -> None:
    cell = anyrnn.torch.GRUCell(3, 4)
    for rows in range(1, repeated.MOST_CALLS + 20):
        for _ in range(3):
            cell(torch.ones(rows, 3))
    assert len(cell._earlier.repeated) <= repeated.MOST_KINDS
    for _ in range(2 * repeated.REFILL):
        cell(torch.ones(99, 3))
    hits.clear()
    cell(torch.ones(99, 3))
    assert hits == [True]


def test_kinds_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch, hits: list[bool]) -> None:
    monkeypatch.setattr(repeated, "MOST_KINDS", 3)
    monkeypatch.setattr(repeated, "MOST_SEEN", 4)
    cell = anyrnn.torch.RNNCell(3, 4)
    for rows in (1, 2, 3, 4, 5, 6):
        for _ in range(2):
            cell(torch.ones(rows, 3))
    assert [kind[-1][0] for kind in cell._earlier.repeated] == [4, 5, 6]
    assert len(cell._earlier.seen) <= 4


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_steps_without_a_batch_are_remembered(kind: str, trains: bool, hits: list[bool]) -> None:
    cell, theirs = getattr(anyrnn.torch, kind)(3, 4), getattr(torch.nn, kind)(3, 4)
    theirs.load_state_dict(cell.state_dict())
    x = torch.randn(9, 3)
    with torch.set_grad_enabled(trains):
        for _ in range(3):
            hits.clear()
            ours = expected = None
            for step in x:
                ours, expected = cell(step, ours), theirs(step, expected)
    assert hits.count(True) >= len(x)
    ends, wanted = (found if isinstance(found, tuple) else (found,) for found in (ours, expected))
    for end, other in zip(ends, wanted, strict=True):
        assert end.shape == (4,)
        torch.testing.assert_close(end, other, rtol=1e-5, atol=1e-6)
    if trains:
        gradients = (
            torch.autograd.grad(sum(end.sum() for end in found), list(of.parameters()))
            for found, of in ((ends, cell), (wanted, theirs))
        )
        for gradient, other in zip(*gradients, strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)


def numbers(found: Any) -> list[torch.Tensor]:
    """What a loss may read of a call."""
    return [t for t in flat(found) if t.requires_grad]


def squared(found: Any, *leaves: torch.Tensor) -> Any:
    return torch.autograd.grad(sum(t.square().sum() for t in numbers(found)), leaves)


BACKWARD: dict[str, Callable[..., Any]] = {
    "all": squared,
    "output": lambda found, *leaves: torch.autograd.grad(found[0].square().sum(), leaves),
    "last state": lambda found, *leaves: torch.autograd.grad(flat(found)[-1].square().sum(), leaves),
    "one number": lambda found, *leaves: torch.autograd.grad(found[0].sum(), leaves),
    "one step": lambda found, *leaves: torch.autograd.grad(found[0][-1].square().sum(), leaves),
    "strides": lambda found, *leaves: torch.autograd.grad(
        found[0], leaves, torch.randn(found[0].mT.shape, generator=seeded()).mT
    ),
    "one leaf": lambda found, *leaves: torch.autograd.grad(found[0].square().sum(), leaves[-1:]),
    "twice": lambda found, *leaves: [
        torch.autograd.grad(found[0].square().sum(), leaves, retain_graph=True),
        torch.autograd.grad(found[0].exp().sum(), leaves),
    ][1],
    "second derivative": lambda found, *leaves: torch.autograd.grad(
        sum(g.square().sum() for g in torch.autograd.grad(found[0].square().sum(), leaves, create_graph=True)), leaves
    ),
    "a batch of cotangents": lambda found, *leaves: torch.autograd.grad(
        found[0], leaves, torch.randn(3, *found[0].shape, generator=seeded()), is_grads_batched=True
    ),
}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


LAYERS: dict[str, Callable[[], Any]] = {
    "gru": lambda: anyrnn.torch.GRU(3, 4),
    "batch_first": lambda: anyrnn.torch.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
    "cell": lambda: anyrnn.torch.RecurrentCell("lstm", 3, 4),
    "added to": lambda: anyrnn.torch.Recurrent(tied, 3, 4),
}


@anyrnn.cell
def tied(x, h):
    """A cell that uses one matrix twice, so that its gradient has two terms."""
    n = anyrnn.tanh(anyrnn.affine("n", x, h))
    h = anyrnn.tanh(anyrnn.affine("n", x, h=n))
    return h, anyrnn.State(h=h)


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("way", BACKWARD.values(), ids=BACKWARD)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_gradients_are_those_of_other_calls(make: Callable[[], Any], way: Callable[..., Any], hits: list[bool]) -> None:
    layer, parameters = make(), []
    x = (X[0] if isinstance(layer, anyrnn.torch.RecurrentCell) else X).clone().requires_grad_()
    parameters = list(layer.parameters())
    for leaves in ((x, *parameters), tuple(parameters), (x,)):
        for p in (x, *parameters):
            p.requires_grad_(any(p is leaf for leaf in leaves))
        expected = way(forgetful(layer, x), *leaves)
        for turn in range(4):
            hits.clear()
            found = way(layer(x), *leaves)
            assert hits == [True] or turn < 2
            for a, b in zip(found, expected, strict=True):
                assert a.equal(b) or (a - b).abs().max() < 1e-6 * b.abs().max()
                assert a.stride() == b.stride()


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_what_autograd_keeps_may_come_back_from_elsewhere(make: Callable[[], Any]) -> None:
    layer = make()
    x = (X[0] if isinstance(layer, anyrnn.torch.RecurrentCell) else X).clone().requires_grad_()
    leaves = (x, *layer.parameters())
    for _ in range(4):
        expected = squared(layer(x), *leaves)

    def back(kept: Any) -> torch.Tensor:
        room = torch.empty(kept.numel() + 1, dtype=kept.dtype)[1:].view(kept.shape)  # in another place, and not aligned
        return room.copy_(kept)

    def turned(kept: torch.Tensor) -> torch.Tensor:
        return kept.transpose(0, -1).contiguous().transpose(0, -1)

    def turned_weights(kept: torch.Tensor) -> torch.Tensor:
        return turned(kept) if any(kept.shape == p.shape for p in layer.parameters()) else kept

    for unpack in (back, turned, turned_weights):
        for _ in range(4):
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), unpack):
                found = layer(x)
            for a, b in zip(squared(found, *leaves), expected, strict=True):
                assert a.equal(b)
    for reentrant in (False, True):
        found = torch.utils.checkpoint.checkpoint(lambda x: tuple(flat(layer(x))), x, use_reentrant=reentrant)
        x.grad = None
        layer.zero_grad()
        sum(t.square().sum() for t in found).backward()
        for leaf, b in zip(leaves, expected, strict=True):
            assert leaf.grad is not None
            assert leaf.grad.equal(b)


@pytest.mark.parametrize("first", ["of no inference", "of one sample"])
def test_loops_whose_first_call_is_unlike_the_others(first: str, hits: list[bool]) -> None:
    """Both calls are remembered, however often the loop is run."""
    cell, x = anyrnn.torch.GRUCell(3, 5), torch.randn(6, 2, 3)
    state = torch.zeros(2, 5) if first == "of no inference" else torch.zeros(1, 5).expand(2, 5)
    for turn in range(20):
        hits.clear()
        with torch.inference_mode() if first == "of no inference" else torch.no_grad():
            h = state
            for of_step in x:
                h = cell(of_step, h)
        assert turn < 2 or sum(hits) == len(x)
    module = torch.nn.GRUCell(3, 5)
    module.load_state_dict(cell.state_dict())
    expected = state
    for of_step in x:
        expected = module(of_step, expected)
    torch.testing.assert_close(h, expected.detach())


def test_loops_whose_last_cotangent_is_unlike_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of that of all outputs, batch first, where the others are sums."""
    found: list[bool] = []
    look = repeated.TrainingRepeat.gradients

    def noted(self: repeated.TrainingRepeat, *given: Any) -> Any:
        result = look(self, *given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(repeated.TrainingRepeat, "gradients", noted)
    cell, x = anyrnn.torch.GRUCell(40, 128), torch.randn(6, 2, 40)
    for turn in range(20):
        found.clear()
        h, outputs = None, []
        for of_step in x:
            h = cell(of_step, h)
            outputs.append(h)
        torch.stack(outputs, 1).square().sum().backward()
        assert turn < 4 or found == [True] * len(x)


def test_backward_calls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    run = kernels.RepeatBackward.run
    monkeypatch.setattr(kernels.RepeatBackward, "run", lambda *given: (runs.append(1), run(*given))[1])
    for make in LAYERS.values():
        layer = make()
        x = (X[0] if isinstance(layer, anyrnn.torch.RecurrentCell) else X).clone().requires_grad_()
        for turn in range(5):
            runs.clear()
            squared(layer(x), x, *layer.parameters())
            assert len(runs) == (turn > 2)


def doubled(layer: Any) -> None:
    layer.weight_hh_l0.data.mul_(2)


def replaced(layer: Any) -> None:
    layer.weight_hh_l0 = torch.nn.Parameter(torch.randn(12, 4))


def with_dropout(layer: Any) -> None:
    layer.dropout = 0.0


CHANGES: dict[str, tuple[Callable[[Any], Any], bool | None]] = {
    "data": (doubled, True),
    "replaced": (replaced, True),
    "load_state_dict": (lambda layer: layer.load_state_dict(anyrnn.torch.GRU(3, 4, 2, dropout=0.3).state_dict()), True),
    "parametrised": (lambda layer: parametrizations.weight_norm(layer, "weight_hh_l0"), False),
    "pruned": (lambda layer: prune.l1_unstructured(layer, "weight_ih_l0", 0.5), False),
    "interpreter": (lambda layer: setattr(layer, "backend", "reference"), False),
    "budget": (lambda layer: setattr(layer, "memory_budget", 10**9), False),
    "dropout": (with_dropout, False),
    "frozen": (lambda layer: layer.freeze(), None),
    "requires_grad": (lambda layer: layer.requires_grad_(False), None),
}


@pytest.mark.parametrize(("change", "hit"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_changes_of_the_module_are_seen(change: Callable[[Any], Any], hit: bool | None, grad: bool, hits: list[bool]) -> None:
    layer = anyrnn.torch.GRU(3, 4, 2, dropout=0.3).eval()
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            layer(X)
        assert hits == [True]
        change(layer)
        for _ in range(3):
            check(layer, X, hit=hit, hits=hits)
            hit = None


def test_training_mode_is_another_call(hits: list[bool]) -> None:
    layer = anyrnn.torch.GRU(3, 4, 2, dropout=0.5).eval()
    for _ in range(3):
        still = layer(X)[0]
    layer.train()
    outputs = [layer(X)[0] for _ in range(5)]
    assert hits == [True] + [False] * 5
    assert all(not a.equal(b) for a, b in zip(outputs, [*outputs[1:], still], strict=True))


def test_a_promise_to_freeze_ends_with_gradients(hits: list[bool]) -> None:
    layer = anyrnn.torch.LSTM(3, 40).eval()
    for _ in range(3):
        layer(X)[0].sum().backward()
    assert hits == [True]
    layer.freeze()
    with torch.no_grad():
        for _ in range(3):
            layer(X)
    layer(X)[0].sum().backward()
    layer.weight_hh_l0.data += 1.0  # as a fused optimiser does
    with torch.no_grad():
        for hit in (None, None, True):
            check(layer, X, hit=hit, hits=hits)


OTHERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "steps": lambda: (torch.randn(6, 2, 3),),
    "samples": lambda: (torch.randn(5, 3, 3),),
    "no samples": lambda: (torch.randn(5, 0, 3),),
    "strides": lambda: (torch.randn(2, 5, 3).transpose(0, 1),),
    "features apart": lambda: (torch.randn(5, 3, 2).transpose(1, 2),),
    "without a batch": lambda: (torch.randn(5, 3),),
    "negative": lambda: (torch.imag(torch.randn(5, 2, 3, dtype=torch.complex64).conj()),),
    "gradient": lambda: (torch.randn(5, 2, 3, requires_grad=True),),
    "state": lambda: (X, torch.randn(1, 2, 4)),
    "states": lambda: (X, (torch.randn(1, 2, 4),)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("grad", [False, True])
def test_other_calls_are_seen(other: Callable[[], tuple[Any, ...]], grad: bool, hits: list[bool]) -> None:
    layer = anyrnn.torch.GRU(3, 4)
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            layer(X)
        given = other()
        for hit in (False, None, None):
            check(layer, *given, hit=hit, hits=hits)


WRONG: dict[str, tuple[tuple[Any, ...], type[Exception]]] = {
    "dtype": ((X.double(),), ValueError),
    "no steps": ((X[:0],), RuntimeError),
    "features": ((X[..., :2],), RuntimeError),
    "a list": (([1],), TypeError),
    "nothing": ((None,), TypeError),
    "samples": ((X, torch.zeros(1, 3, 4)), RuntimeError),
    "states": ((X, (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))), RuntimeError),
    "no states": ((X, ()), RuntimeError),
    "a list of states": ((X, [1]), TypeError),
    "a number": ((X, 3), TypeError),
}


@pytest.mark.parametrize(("wrong", "error"), WRONG.values(), ids=WRONG)
def test_what_is_refused_is_still_refused(wrong: tuple[Any, ...], error: type[Exception]) -> None:
    layer, other = anyrnn.torch.GRU(3, 4), anyrnn.torch.GRU(3, 4)
    for _ in range(3):
        layer(X)
    with pytest.raises(error) as expected:
        other(*wrong)
    with pytest.raises(error) as found:
        layer(*wrong)
    assert str(found.value) == str(expected.value)


def test_further_arguments_are_heeded(hits: list[bool]) -> None:
    layer = anyrnn.torch.GRU(3, 4)
    for _ in range(3):
        output = layer(X)[0]
    assert hits == [True]
    assert layer(X, lengths=[5, 2])[0][3, 1].eq(0).all()
    assert layer(X, return_outputs="last")[0].equal(output[-1])
    assert layer(X, return_states="all")[1].shape == (1, 5, 2, 4)
    with pytest.raises(TypeError, match="no per-step input 'lengts'"):
        layer(X, lengts=[1])


def left_by_a_transformation(tensor: torch.Tensor) -> torch.Tensor:
    """What stood for it, which has no memory."""
    left: list[torch.Tensor] = []
    torch.func.grad(lambda t: [left.append(t), t.sum()][1])(tensor)
    return left[0]


def test_what_a_transformation_has_left_is_read() -> None:
    layer, ones = anyrnn.torch.LSTM(3, 4), torch.ones(5, 2, 4)
    x, left_ones = left_by_a_transformation(X), left_by_a_transformation(ones)
    with torch.no_grad():
        outputs = [layer(given)[0] for given in (x, x, x, X, X, X, x)]

    def gradients(given: torch.Tensor, cotangent: torch.Tensor) -> list[torch.Tensor]:
        output, _ = layer(given)
        outputs.append(output.detach())
        return list(torch.autograd.grad(output, [*layer.parameters()], cotangent))

    pairs = [(x, left_ones)] * 3 + [(X, ones)] * 4 + [(X, left_ones), (x, ones)]
    expected, *found = [gradients(*pair) for pair in pairs]
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    assert all(all(map(torch.equal, other, expected)) for other in found)


@pytest.mark.parametrize("batch_first", [False, True])
def test_outputs_may_be_changed_in_place(batch_first: bool) -> None:
    """Of the first calls as of all others."""
    layer, gradients = anyrnn.torch.GRU(3, 4, batch_first=batch_first), []
    for _ in range(4):
        output, last = layer(X)
        last.mul_(2)
        gradients += torch.autograd.grad(output.relu_().sum(), [layer.weight_hh_l0])
    assert all(torch.equal(gradients[0], other) for other in gradients)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, while it compiles
def test_transforms_and_modes_are_seen(hits: list[bool]) -> None:
    layer = anyrnn.torch.GRU(3, 4)
    for _ in range(3):
        output = layer(X)[0]
    assert hits == [True]
    for _ in range(2):
        assert torch.allclose(torch.vmap(lambda x: layer(x)[0])(torch.stack([X, X]))[1], output, atol=1e-6)
        x = X.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x)[0].sum(), x)
        assert torch.func.grad(lambda x: layer(x)[0].sum())(X).equal(gradient)
        tangent = torch.func.jvp(lambda x: layer(x)[0].sum(), (X,), (torch.ones_like(X),))[1]
        assert torch.allclose(tangent, gradient.sum(), atol=1e-5)
        with torch.autograd.forward_ad.dual_level():
            dual = layer(torch.autograd.forward_ad.make_dual(X, torch.ones_like(X)))[0].sum()
            assert torch.allclose(torch.autograd.forward_ad.unpack_dual(dual).tangent, gradient.sum(), atol=1e-5)
        values = {name: 2 * value for name, value in layer.state_dict().items()}
        other = copy.deepcopy(layer)
        other.load_state_dict(values)
        assert torch.func.functional_call(layer, values, (X,))[0].equal(other(X)[0])
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(X.bfloat16())[0].dtype == torch.bfloat16
        with torch.inference_mode():
            assert layer(X)[0].equal(output)
            assert layer(X)[0].is_inference()
        assert torch.compile(layer, backend="eager", fullgraph=True)(X)[0].equal(output)


def test_copies_remember_nothing_of_their_own(hits: list[bool]) -> None:
    layer = anyrnn.torch.GRU(3, 4)
    for _ in range(3):
        layer(X)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.copy(layer)):
        hits.clear()
        with torch.no_grad():
            other.weight_hh_l0.mul_(1.0)
        other(X)
        assert not hits
    layer.double()
    layer(X.double())
    assert not hits
    with_parametrisation = parametrizations.weight_norm(anyrnn.torch.GRU(3, 4), "weight_hh_l0")
    with_parametrisation._earlier = layer._earlier
    assert not copy.deepcopy(with_parametrisation)._earlier.repeated


def test_calls_that_are_never_alike_are_not_remembered_for_ever(hits: list[bool]) -> None:
    layer, state = anyrnn.torch.LSTM(3, 4), torch.zeros(1, 2, 4)
    with torch.no_grad():
        for _ in range(repeated.MOST_CALLS + 5):
            layer(X, (state, state))  # one tensor twice
    assert not any(hits)
    assert layer._earlier.left == 0
    for _ in range(3 * repeated.REFILL):
        with torch.no_grad():
            layer(X, (state, state))
    assert layer._earlier.left <= 1


CONVERTED: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "double": lambda layer, x: layer.double(),
    "bfloat16": lambda layer, x: layer.bfloat16(),
    "one number": lambda layer, x: setattr(layer.weight_hh_l0, "data", torch.zeros(1)),
    "rows": lambda layer, x: setattr(layer.weight_hh_l0, "data", layer.weight_hh_l0.data[:4]),
    "fewer steps": lambda layer, x: setattr(x, "data", x.data[:1]),
    "input": lambda layer, x: setattr(x, "data", x.data.double()),
}


@pytest.mark.parametrize("convert", CONVERTED.values(), ids=CONVERTED)
@pytest.mark.parametrize("calls", [1, 5])
def test_what_was_converted_since_the_forward_call_is_refused(convert: Callable[[Any, torch.Tensor], Any], calls: int) -> None:
    """Kernels would read beyond the ends of it."""
    layer, x = anyrnn.torch.GRU(3, 4), X.clone().requires_grad_()
    for _ in range(calls - 1):
        layer(x)[0].sum().backward()
    output = layer(x)[0]
    convert(layer, x)
    with pytest.raises(RuntimeError, match="an input or a parameter has another shape, dtype or device than in the forward call"):
        output.sum().backward()
