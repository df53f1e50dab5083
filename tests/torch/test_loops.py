"""Calls of a cell in a loop share their weights: gradients are summed for many steps at once, and have the bits that they have
when autograd adds them up."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import anyrnn.torch
from anyrnn.backends.llvm import joint, run, unit
from anyrnn.backends.llvm.frame import Frame
from anyrnn.torch import loops, packed_weights, repeated

CELLS = ("rnn_tanh", "gru", "lstm", "gru_before", "mgu")


@pytest.fixture(autouse=True)
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """However few the weights are, they are shared; of how many calls sums were made at once."""
    monkeypatch.setattr(repeated, "LEAST_BYTES", 0)
    counts: list[int] = []
    add_up = joint.Joint.add_up

    def noted(self: joint.Joint, some: Any, *given: Any) -> None:
        counts.append(len(some))
        add_up(self, some, *given)

    monkeypatch.setattr(joint.Joint, "add_up", noted)
    return counts


def made(name: str, features: int, hidden: int, dtype: torch.dtype = torch.float32) -> anyrnn.torch.RecurrentCell:
    torch.manual_seed(3)
    return anyrnn.torch.RecurrentCell(name, features, hidden, dtype=dtype)


def outputs_of(cell: Any, steps: Any) -> torch.Tensor:
    states, found = None, []
    for x in steps:
        output, states = cell(x, states)
        found.append(output)
    return torch.stack(found)


def gradients(cell: Any, x: torch.Tensor, loss: torch.Tensor) -> list[torch.Tensor]:
    """Of the input and the parameters."""
    cell.zero_grad()
    x = x.detach().requires_grad_()
    (outputs_of(cell, x.unbind(0)) * loss).sum().backward()
    return [x.grad, *[p.grad for p in cell.parameters() if p.grad is not None]]  # type: ignore[list-item]


def alone(cell: Any, *given: Any) -> list[torch.Tensor]:
    """The same where no call shares its weights."""
    kept, cell._earlier = cell._earlier, repeated.Earlier()
    limit, repeated.LEAST_BYTES = repeated.LEAST_BYTES, 2**60
    try:
        return [g.clone() for g in gradients(cell, *given)]
    finally:
        cell._earlier, repeated.LEAST_BYTES = kept, limit


def check_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(
    ("steps", "rows", "features", "hidden", "counts"),
    [(9, 1, 5, 16, {9}), (7, 5, 17, 33, {7}), (70, 16, 9, 20, {64, 6}), (12, 100, 30, 16, {8, 4}), (4, 150, 7, 16, set())],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_bit_depends_on_it(
    name: str, steps: int, rows: int, features: int, hidden: int, counts: set[int], dtype: torch.dtype, summed: list[int]
) -> None:
    cell = made(name, features, hidden, dtype)
    x, loss = torch.randn(steps, rows, features, dtype=dtype), torch.randn(steps, rows, hidden, dtype=dtype)
    expected = alone(cell, x, loss)
    assert not summed
    for _ in range(6):  # at first calls are not alike
        summed.clear()
        check_equal(gradients(cell, x, loss), expected)
    assert set(summed) == counts


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_gradients_are_those_of_torch(kind: str) -> None:
    ours, theirs = getattr(anyrnn.torch, kind)(20, 40), getattr(torch.nn, kind)(20, 40).double()
    theirs.load_state_dict(ours.state_dict())
    x, weights = torch.randn(30, 6, 20), torch.randn(6, 40)

    def run(cell: Any, x: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
        cell.zero_grad()
        x, state = x.detach().requires_grad_(), None
        for step in x.unbind(0):
            state = cell(step, state)
        assert state is not None
        ((state[0] if isinstance(state, tuple) else state) * weights).sum().backward()
        return [x.grad, *[p.grad for p in cell.parameters()]]  # type: ignore[list-item]

    expected = run(theirs, x.double(), weights.double())
    for _ in range(3):
        for found, right in zip(run(ours, x, weights), expected, strict=True):
            assert (found - right).norm() <= 2e-6 * right.norm()


def test_sums_of_steps_stay_where_they_are_made(summed: list[int]) -> None:
    """Where the steps themselves begin a sum, or a gradient has several terms; the weights are packed once all the same."""
    for name in ("lstm_layernorm", "janet", "indrnn"):
        cell = made(name, 4, 16)
        x, loss = torch.randn(6, 3, 4), torch.randn(6, 3, 16)
        for _ in range(6):
            check_equal(gradients(cell, x, loss), alone(cell, x, loss))
        assert [joint.most for joint in cell._earlier.loops.joints.values()] == [0]
    assert not summed


def test_small_weights_are_not_looked_after(monkeypatch: pytest.MonkeyPatch, summed: list[int]) -> None:
    for hidden, many in ((16, False), (128, True)):
        monkeypatch.setattr(repeated, "LEAST_BYTES", loops.LEAST_BYTES)
        cell = made("rnn_tanh", hidden, hidden)
        for _ in range(3):
            gradients(cell, torch.randn(5, 2, hidden), torch.randn(5, 2, hidden))
        assert bool(summed) is many


def by_version(parameter: torch.Tensor) -> None:
    with torch.no_grad():
        parameter.mul_(1.5)


def unseen(parameter: torch.Tensor) -> None:
    parameter.data.mul_(1.5)


def elsewhere(parameter: torch.Tensor) -> None:
    parameter.data = parameter.data * 1.5


@pytest.mark.parametrize("change", [by_version, unseen, elsewhere])
@pytest.mark.parametrize("rows", [1, 3])
def test_weights_that_change_within_a_loop_are_read(change: Callable[[torch.Tensor], None], rows: int) -> None:
    def run(warm: bool) -> list[torch.Tensor]:
        cell = made("gru", 6, 16)
        x = torch.linspace(-1, 1, 8 * rows * 6).view(8, rows, 6)
        if warm:
            for _ in range(3):
                gradients(cell, x, torch.ones(8, rows, 16))
        else:
            cell._earlier.left = 0  # nothing is remembered
        states, found = None, []
        for k, step in enumerate(x):
            if k in (3, 6):
                change(cell.weight_hh)
                change(cell.weight_ih)
            output, states = cell(step, states)
            found.append(output)
        return found

    check_equal(run(True), run(False))


def test_weights_that_changed_in_place_are_refused_by_backward_as_torch_does() -> None:
    cell, x = made("gru", 6, 16), torch.randn(5, 2, 6)
    for _ in range(3):
        gradients(cell, x, torch.ones(5, 2, 16))
    output = outputs_of(cell, x)
    by_version(cell.weight_hh)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
    check_equal(gradients(cell, x, torch.ones(5, 2, 16)), alone(cell, x, torch.ones(5, 2, 16)))


@pytest.fixture
def warm() -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A cell whose calls are known, an input and what the loss multiplies."""
    cell, x, loss = made("lstm", 6, 16), torch.randn(8, 3, 6), torch.randn(8, 3, 16)
    for _ in range(6):
        gradients(cell, x, loss)
    cell.zero_grad()
    return cell, x, loss


def test_gradients_of_some(warm: Any, summed: list[int]) -> None:
    cell, x, loss = warm
    expected = dict(zip(["x", *dict(cell.named_parameters())], alone(cell, x, loss), strict=True))
    cell.zero_grad()
    x = x.detach().requires_grad_()
    total = (outputs_of(cell, x.unbind(0)) * loss).sum()
    summed.clear()
    (of_input,) = torch.autograd.grad(total, [x], retain_graph=True)
    assert torch.equal(of_input, expected["x"])
    assert not summed  # which nobody has asked for
    (of_weight,) = torch.autograd.grad(total, [cell.weight_hh], retain_graph=True)
    assert torch.equal(of_weight, expected["weight_hh"])
    total.backward(inputs=[cell.bias_ih], retain_graph=True)
    assert torch.equal(cell.bias_ih.grad, expected["bias_ih"])
    assert cell.weight_ih.grad is None
    total.backward()
    assert torch.equal(cell.weight_ih.grad, expected["weight_ih"])
    assert torch.equal(cell.bias_ih.grad, 2 * expected["bias_ih"])


def test_several_losses_of_one_loop(warm: Any) -> None:
    cell, x, loss = warm
    cell.zero_grad()
    output = outputs_of(cell, x)
    early, late = (output[:4] * loss[:4]).sum(), (output[4:] * loss[4:]).sum()
    early.backward(retain_graph=True)
    late.backward()
    found = [p.grad.clone() for p in cell.parameters()]
    for ours, right in zip(found, alone(cell, x, loss)[1:], strict=True):
        assert (ours - right).norm() <= 1e-6 * right.norm()


def test_two_loops_at_once(warm: Any) -> None:
    """Both have the weights of one node."""
    cell, x, loss = warm
    expected = [2 * g for g in alone(cell, x, loss)[1:]]
    cell.zero_grad()
    first, second = outputs_of(cell, x), outputs_of(cell, x)
    for output in (first, second):
        (output * loss).sum().backward()
    check_equal([p.grad for p in cell.parameters()], expected)


def test_second_derivatives(warm: Any) -> None:
    cell, x, loss = warm

    def penalty() -> list[torch.Tensor]:
        cell.zero_grad()
        given = x[:4].detach().requires_grad_()
        total = (outputs_of(cell, given.unbind(0)) * loss[:4]).sum()
        (gradient,) = torch.autograd.grad(total, [given], create_graph=True)
        gradient.square().sum().backward()
        return [p.grad.clone() for p in cell.parameters()]

    found = penalty()
    cell._earlier.left, cell._earlier.repeated = 0, {}
    for ours, right in zip(found, penalty(), strict=True):
        assert (ours - right).norm() <= 2e-6 * right.norm()


def test_batches_of_cotangents(warm: Any) -> None:
    cell, x, _ = warm
    output = outputs_of(cell, x[:3])
    cotangents = torch.randn(2, *output.shape)
    weights = list(cell.parameters())
    found = torch.autograd.grad(output, weights, cotangents, is_grads_batched=True, retain_graph=True)
    for k, cotangent in enumerate(cotangents):
        for ours, right in zip(found, torch.autograd.grad(output, weights, cotangent, retain_graph=True), strict=True):
            assert (ours[k] - right).norm() <= 2e-6 * right.norm()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant: bool, warm: Any) -> None:
    cell, x, loss = warm
    expected = alone(cell, x, loss)

    def part(x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given, outputs = states or None, []
        for step in x.unbind(0):
            output, given = cell(step, given)
            outputs.append(output)
        assert given is not None
        return torch.stack(outputs), *given

    for _ in range(3):
        cell.zero_grad()
        x = x.detach().requires_grad_()
        first, *states = checkpoint(part, x[:4], use_reentrant=reentrant)
        second, *_ = checkpoint(part, x[4:], *states, use_reentrant=reentrant)
        (torch.cat([first, second]) * loss).sum().backward()
        for ours, right in zip([x.grad, *[p.grad for p in cell.parameters()]], expected, strict=True):
            assert (ours - right).norm() <= 1e-6 * right.norm()


def test_parameters_that_are_frozen_and_hooks(warm: Any) -> None:
    cell, x, loss = warm
    expected = alone(cell, x, loss)
    cell.weight_hh.requires_grad_(False)
    seen: list[torch.Tensor] = []
    cell.weight_ih.register_hook(seen.append)
    for again in range(6):
        seen.clear()
        found = gradients(cell, x, loss)
        right = [g for k, g in enumerate(expected) if k != 2]
        for ours, theirs in zip(found, right, strict=True):
            assert torch.equal(ours, theirs) if again == 5 else (ours - theirs).norm() <= 1e-6 * theirs.norm()
        assert [torch.equal(g, found[1]) for g in seen] == [True]
        assert cell.weight_hh.grad is None


@pytest.mark.parametrize("name", ["rnn_tanh", "gru", "lstm"])
@pytest.mark.parametrize("frozen", ["weight_ih", "weight_hh", "bias_ih", "bias_hh"])
def test_what_is_not_wanted_changes_nothing_else(name: str, frozen: str) -> None:
    """Both biases have one sum."""
    cell, x, loss = made(name, 6, 16), torch.randn(8, 3, 6), torch.randn(8, 3, 16)
    getattr(cell, frozen).requires_grad_(False)
    expected = alone(cell, x, loss)
    for _ in range(6):
        for ours, right in zip(gradients(cell, x, loss), expected, strict=True):
            assert (ours - right).norm() <= 1e-6 * right.norm()


def test_what_is_not_wanted_between_calls_that_are_summed() -> None:
    """A total that lacks a call's gradient of one bias goes on for neither."""
    cell = made("rnn_tanh", 6, 16)
    cell.bias_ih.requires_grad_(False)

    def run(*rows: int) -> list[torch.Tensor]:
        cell.zero_grad()
        total = torch.zeros(())
        for n in rows:
            total = total + outputs_of(cell, torch.linspace(-1, 1, 4 * n * 6).view(4, n, 6)).square().sum()
        total.backward()
        return [p.grad.clone() for p in cell.parameters() if p.grad is not None]

    for _ in range(6):
        run(3)
        run(2)
    found, cell._earlier = run(3, 2, 5, 3), repeated.Earlier(left=0)
    for ours, right in zip(found, run(3, 2, 5, 3), strict=True):
        assert (ours - right).norm() <= 1e-6 * right.norm()


@pytest.mark.parametrize("name", ["rnn_tanh", "gru", "lstm"])
@pytest.mark.parametrize("rows", [4, 16, 150])
def test_a_last_call_that_wants_no_gradient_of_its_states(name: str, rows: int) -> None:
    """It packs less than the others read, and weights change from pass to pass."""
    cell, x = made(name, 6, 16), torch.randn(6, rows, 6)

    def run() -> list[torch.Tensor]:
        cell.zero_grad()
        states, total = None, torch.zeros(())
        for step in x:
            output, states = cell(step, states)
            total = total + output.square().sum()
        assert states is not None
        detached = states.detach() if isinstance(states, torch.Tensor) else tuple(s.detach() for s in states)
        (total + cell(x[0], detached)[0].sum()).backward()
        return [p.grad.clone() for p in cell.parameters()]  # type: ignore[union-attr]

    for _ in range(6):
        kept, cell._earlier = cell._earlier, repeated.Earlier(left=0)
        expected = run()
        cell._earlier = kept
        for ours, right in zip(run(), expected, strict=True):
            assert (ours - right).norm() <= 1e-6 * right.norm()
        for parameter in cell.parameters():
            by_version(parameter)


def test_an_input_that_stands_at_any_byte(warm: Any) -> None:
    cell, x, loss = warm
    expected = alone(cell, x, loss)
    bytes = np.zeros(x.nbytes + 1, np.uint8)
    odd = bytes[1:].view(np.float32).reshape(x.shape)
    odd[...] = x
    cell.zero_grad()
    (outputs_of(cell, torch.from_numpy(odd)) * loss).sum().backward()
    check_equal([p.grad for p in cell.parameters()], expected[1:])


def test_inputs_that_are_written_in_the_midst_of_a_pass_are_seen(warm: Any) -> None:
    cell, x, loss = warm

    def run(write: Callable[[torch.Tensor], Any]) -> None:
        given, states, outputs = [step.clone() for step in x], None, []
        for k, step in enumerate(given):
            output, states = cell(step, states)
            outputs.append(output)
            if k == 5:
                output.register_hook(lambda _: write(given[7]))  # whose call has gone backwards
        (torch.stack(outputs) * loss).sum().backward()

    def wrote(read: torch.Tensor) -> None:
        read.mul_(2)

    run(lambda read: None)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        run(wrote)


def test_inputs_that_are_stepped_when_their_gradients_come(warm: Any) -> None:
    cell, x, loss = warm
    expected = alone(cell, x, loss)

    def stepped(leaf: torch.Tensor) -> None:
        with torch.no_grad():
            leaf.sub_(1)

    leaves = [step.clone().requires_grad_() for step in x]
    for leaf in leaves:
        leaf.register_post_accumulate_grad_hook(stepped)
    cell.zero_grad()
    (outputs_of(cell, leaves) * loss).sum().backward()
    check_equal([p.grad for p in cell.parameters()], expected[1:])


def test_weights_that_autograd_keeps_for_each_call(warm: Any) -> None:
    """They may differ, where a change was not counted."""
    cell, x, loss = warm

    def run() -> list[torch.Tensor]:
        cell.zero_grad()
        before = cell.weight_hh.detach().clone()
        states, outputs = None, []
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda kept: kept):
            for k, step in enumerate(x):
                if k == 4:
                    cell.weight_hh.data.mul_(1.5)
                output, states = cell(step, states)
                outputs.append(output)
        (torch.stack(outputs) * loss).sum().backward()
        cell.weight_hh.data.copy_(before)
        return [p.grad.clone() for p in cell.parameters()]

    found, kept = run(), cell._earlier
    cell._earlier = repeated.Earlier(left=0)
    check_equal(found, run())
    cell._earlier = kept


def test_another_dtype_has_other_packed_weights() -> None:
    cell, x = made("gru", 6, 16), torch.randn(5, 3, 6)
    for _ in range(6):
        gradients(cell, x, torch.ones(5, 3, 16))
    for parameter in cell.parameters():
        parameter.data, parameter.grad = parameter.data.double(), None
    for _ in range(6):
        loss = torch.ones(5, 3, 16, dtype=torch.float64)
        check_equal(gradients(cell, x.double(), loss), alone(cell, x.double(), loss))


@pytest.mark.parametrize("rows", [16, unit.ROWS_OF_A_STEP + 1])
def test_which_weights_are_packed(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward calls of few rows multiply them where they stand; backward calls pack them once for all."""
    frames: list[Frame] = []
    make = Frame.__init__
    monkeypatch.setattr(Frame, "__init__", lambda frame, *given: make(frame, *given) or frames.append(frame))
    run.POOLS.known.clear()
    packed_weights.KNOWN.clear()
    cell, x, loss = made("gru", 64, 128), torch.randn(5, rows, 64), torch.randn(5, rows, 128)
    expected = alone(cell, x, loss)
    frames.clear()
    for _ in range(6):
        check_equal(gradients(cell, x, loss), expected)
    few = rows <= unit.ROWS_OF_A_STEP
    kept = [kind for (kind, *_) in packed_weights.KNOWN if type(kind) is tuple]
    assert (len(kept) == 0) == few
    shared = [frame for frame in frames if frame.shape.shares]
    assert shared
    assert not any(unit.standing for frame in shared for unit in frame.units)


def test_what_autograd_keeps_elsewhere_is_read_at_once(warm: Any) -> None:
    """Its place may be another tensor's by the time that sums are made."""
    cell, x, loss = warm
    expected = alone(cell, x, loss)
    staging: dict[torch.Size, torch.Tensor] = {}

    def unpack(kept: torch.Tensor) -> torch.Tensor:
        place = staging.setdefault(kept.shape, torch.empty_like(kept))
        return place.copy_(kept) if kept.dim() == 2 and kept.shape == x[0].shape else kept

    cell.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, unpack):
        total = (outputs_of(cell, x) * loss).sum()
    total.backward()
    check_equal([p.grad for p in cell.parameters()], expected[1:])


def test_a_decoder_that_is_broken_off_is_forgotten(warm: Any) -> None:
    """Its inputs follow from its outputs."""
    cell, x, _ = warm
    lead = torch.nn.Linear(16, 6)

    def run(breaks: bool) -> weakref.ref[Any]:
        given, states = x[0], None
        for k in range(8):
            output, states = cell(given, states)
            given = lead(output)
            if breaks and k == 3:
                given.register_hook(lambda _: 1 // 0)
        loop = weakref.ref(cell._earlier.loops.of_thread.latest())
        given.sum().backward()
        return loop

    for _ in range(5):
        run(False)
    try:
        run(True)
    except ZeroDivisionError as error:
        error.__traceback__ = None
    gc.collect()
    loop = cell._earlier.loops.of_thread.latest()
    assert loop is None


def test_several_threads_of_kernels(summed: list[int]) -> None:
    """Which split the features of a call."""
    before = torch.get_num_threads()
    cell, x, loss = made("lstm", 256, 256), torch.randn(6, 20, 256), torch.randn(6, 20, 256)
    try:
        torch.set_num_threads(1)
        expected = alone(cell, x, loss)
        for threads in (2, 3):
            torch.set_num_threads(threads)
            for _ in range(6):
                check_equal(gradients(cell, x, loss), expected)
    finally:
        torch.set_num_threads(before)
    assert summed[-1] == 6


def test_products_in_blocks(summed: list[int]) -> None:
    cell, x, loss = made("lstm_heads", 20, 64), torch.randn(9, 5, 20), torch.randn(9, 5, 64)
    expected = alone(cell, x, loss)
    for _ in range(6):
        check_equal(gradients(cell, x, loss), expected)
    assert summed[-1] == 9


def test_a_batch_that_shrinks(warm: Any, summed: list[int]) -> None:
    cell = warm[0]

    def run() -> list[torch.Tensor]:
        cell.zero_grad()
        states, total = None, torch.zeros(())
        for rows in (9, 9, 9, 5, 5, 5, 2, 2, 1, 1):
            x = torch.linspace(-1, 1, rows * 6).view(rows, 6)
            states = None if states is None else tuple(s[:rows] for s in states)
            output, states = cell(x, states)
            total = total + output.square().sum()
        total.backward()
        return [p.grad.clone() for p in cell.parameters()]

    kept, cell._earlier = cell._earlier, repeated.Earlier(left=0)
    expected = run()
    cell._earlier = kept
    for _ in range(4):
        summed.clear()
        check_equal(run(), expected)
    assert len(summed) > 1


def test_a_pass_that_is_broken_off(warm: Any) -> None:
    cell, x, loss = warm
    expected = alone(cell, x, loss)

    def broken(gradient: torch.Tensor) -> None:
        raise KeyError("broken")

    given = x.detach().requires_grad_()
    steps = given.unbind(0)
    steps[2].register_hook(broken)
    total = (outputs_of(cell, steps) * loss).sum()
    with pytest.raises(KeyError):
        total.backward()
    del total, steps
    check_equal(gradients(cell, x, loss), expected)


def test_threads(warm: Any) -> None:
    cell, x, loss = warm
    expected = alone(cell, x, loss)
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(20):
                given = x.detach().requires_grad_()
                total = (outputs_of(cell, given.unbind(0)) * loss).sum()
                check_equal(list(torch.autograd.grad(total, [given, *cell.parameters()])), expected)
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=run) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_what_a_loop_keeps_goes_with_its_graph(warm: Any) -> None:
    cell, x, loss = warm
    total = (outputs_of(cell, x) * loss).sum()
    loop = cell._earlier.loops.of_thread.latest
    assert loop() is not None
    pending = loop().pending
    total.backward()
    assert not pending.passes
    gc.disable()
    try:
        del total
        assert loop() is None
    finally:
        gc.enable()


def test_steps_of_other_modes_between(warm: Any) -> None:
    cell, x, loss = warm
    expected = alone(cell, x, loss)
    cell.zero_grad()
    states, found = None, []
    for step in x:
        with torch.no_grad():
            cell(step, states)
        output, states = cell(step, states)
        found.append(output)
    (torch.stack(found) * loss).sum().backward()
    check_equal([p.grad for p in cell.parameters()], expected[1:])


def test_a_gradient_that_is_one_number_everywhere(warm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum's is not looked at again either."""
    cell, x, _ = warm
    for _ in range(4):  # the first of which is taken for one of a loop, as the last one was
        cell(x[0], None)[0].sum().backward()
    monkeypatch.setattr(repeated.TrainingRepeat, "other_gradients", None)
    cell(x[0], None)[0].sum().backward()
