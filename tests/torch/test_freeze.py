"""A frozen module does not look at its parameters' numbers, and sees all changes that torch counts."""

import copy
import itertools
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.utils.parametrizations import weight_norm

import anyrnn.torch
from anyrnn.torch import packed_weights

X = torch.randn(5, 2, 3)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    packed_weights.KNOWN.clear()


@pytest.fixture
def layer() -> anyrnn.torch.LSTM:
    return anyrnn.torch.LSTM(3, 40).eval().freeze()


def run(layer: torch.nn.Module, x: torch.Tensor = X) -> Any:
    with torch.no_grad():
        return layer(x)[0].clone()


def fresh(layer: torch.nn.Module) -> Any:
    other = anyrnn.torch.LSTM(3, 40)
    other.load_state_dict(layer.state_dict())
    return run(other)


def test_numbers_are_not_looked_at(layer: anyrnn.torch.LSTM) -> None:
    before = run(layer)
    layer.weight_hh_l0.data += 1.0
    assert torch.equal(run(layer), before)
    assert torch.equal(run(layer, X[:2]), before[:2]), "a call of another shape"


def test_what_was_packed_before_is_not_trusted() -> None:
    """Torch has not counted the change between the last call and the promise."""
    layer = anyrnn.torch.LSTM(3, 40).eval()
    run(layer)
    layer.weight_hh_l0.data += 1.0
    layer.freeze()
    assert torch.equal(run(layer), fresh(layer))


def test_parameters_that_were_packed_before_the_promise_are_looked_at_when_they_come_back() -> None:
    layer = anyrnn.torch.LSTM(3, 40).eval()
    names, before = zip(*layer.named_parameters(), strict=True)
    others = [torch.nn.Parameter(torch.randn_like(p)) for p in before]

    def put(parameters: Any) -> None:
        for name, parameter in zip(names, parameters, strict=True):
            setattr(layer, name, parameter)

    put(others)
    run(layer)
    for parameter in others:
        parameter.data.mul_(2)
    put(before)
    layer.freeze()
    run(layer)
    put(others)
    for _ in range(3):
        assert torch.equal(run(layer), fresh(layer))


def test_biases_and_states_are_read(layer: anyrnn.torch.LSTM) -> None:
    before = run(layer)
    layer.bias_hh_l0.data += 1.0
    assert torch.equal(run(layer), fresh(layer))
    assert not torch.equal(run(layer), before)


@pytest.mark.parametrize("change", ["load_state_dict", "in place", "replaced", "to"])
def test_what_torch_counts_is_seen(layer: anyrnn.torch.LSTM, change: str) -> None:
    run(layer)
    if change == "load_state_dict":
        layer.load_state_dict(anyrnn.torch.LSTM(3, 40).state_dict())
    elif change == "in place":
        with torch.no_grad():
            layer.weight_hh_l0[7, 3] += 1.0
    elif change == "replaced":
        layer.weight_hh_l0 = torch.nn.Parameter(torch.randn(160, 40))
    else:
        layer.to(torch.float64).to(torch.float32)
        with torch.no_grad():
            layer.weight_hh_l0 *= 2
    assert torch.equal(run(layer), fresh(layer))


@pytest.mark.parametrize("end", ["train", "gradients"])
def test_training_ends_it(layer: anyrnn.torch.LSTM, end: str) -> None:
    run(layer)
    if end == "train":
        layer.train().eval()
    else:
        steps = torch.optim.Adam(layer.parameters(), fused=True)
        layer(X)[0].sum().backward()
        steps.step()
    layer.weight_hh_l0.data += 1.0
    assert torch.equal(run(layer), fresh(layer))


def test_a_call_whose_input_alone_gets_a_gradient_ends_nothing(layer: anyrnn.torch.LSTM) -> None:
    layer.requires_grad_(False)
    before = run(layer)
    layer(X.clone().requires_grad_())[0].sum().backward()
    layer.weight_hh_l0.data += 1.0
    assert torch.equal(run(layer), before)


def test_only_a_frozen_module_trusts_what_it_shares(layer: anyrnn.torch.LSTM) -> None:
    other = anyrnn.torch.LSTM(3, 40).eval()
    for name, parameter in layer.named_parameters():
        setattr(other, name, parameter)
    run(layer)
    layer.weight_hh_l0.data += 1.0
    assert torch.equal(run(other), fresh(other))
    assert torch.equal(run(layer), fresh(layer)), "the other one has packed the new numbers"


def test_in_training_mode_it_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"LSTM: freeze\(\) is for evaluation; call eval\(\) first"):
        anyrnn.torch.LSTM(3, 40).freeze()


def test_copies_are_frozen_too_and_have_their_own_weights(layer: anyrnn.torch.LSTM) -> None:
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        before = run(other)
        assert torch.equal(before, run(layer))
        other.weight_hh_l0.data += 1.0
        assert torch.equal(run(other), before)


def test_weights_that_are_computed_are_computed_in_every_call() -> None:
    layer = anyrnn.torch.LSTM(3, 40)
    weight_norm(layer, "weight_hh_l0")
    layer.eval().freeze()
    before = run(layer)
    layer.parametrizations.weight_hh_l0.original0.data *= 2
    assert not torch.equal(run(layer), before)


def test_the_interpreter_needs_no_promise() -> None:
    layer = anyrnn.torch.Recurrent("gru", 3, 5, backend="reference").eval().freeze()
    before = run(layer)
    layer.weight_hh_l0.data += 1.0
    assert not torch.equal(run(layer), before)


def test_state_dicts_are_loaded_by_exchange_too(layer: anyrnn.torch.LSTM) -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        run(layer)
        layer.load_state_dict(anyrnn.torch.LSTM(3, 40).state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert torch.equal(run(layer), fresh(layer))


def test_a_promise_in_another_process_is_another_promise(layer: anyrnn.torch.LSTM) -> None:
    """Numbers of promises count from one in each process; a module that is loaded may have the number of one that follows."""
    loaded = pickle.loads(pickle.dumps(layer))
    assert loaded._frozen > layer._frozen
    packed_weights.PROMISES = itertools.count(loaded._frozen)  # as where none was made before
    loaded = pickle.loads(pickle.dumps(loaded))
    for _ in range(3):
        run(loaded)
    loaded.weight_hh_l0.data += 1.0
    loaded.freeze()
    assert torch.equal(run(loaded), fresh(loaded))


def test_python_ends_without_a_word_when_a_layer_is_the_last_to_go() -> None:
    """Something that another module keeps holds this program's names, so that they go after those of our modules."""
    program = """
import torch
import anyrnn.torch.memory as memory
from anyrnn.torch import RNN
memory.kept = lambda: layer
layer = RNN(2, 8)
with torch.no_grad():
    for _ in range(2):
        layer(torch.randn(3, 2, 2))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
