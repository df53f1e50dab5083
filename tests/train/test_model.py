from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from anyrnn.datasets import digits
from anyrnn.train.errors import UsageError
from anyrnn.train.layers import TORCH_LAYERS, find_layers
from anyrnn.train.model import Reader, build
from anyrnn.train.options import Options

T, N, D, H = 5, 3, 4, 7


def images() -> torch.Tensor:
    return torch.rand(N, T, D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_head_all_sees_the_outputs_of_all_steps(bidirectional: bool) -> None:
    directions = 1 + bidirectional
    model = Reader(nn.GRU(D, H, bidirectional=bidirectional), T, D, classes=10, head="all", directions=directions)
    assert model.linear.in_features == T * directions * H
    outputs, _ = model.recurrent(images().transpose(0, 1))
    weights = model.linear.weight.view(10, T, directions * H)
    expected = torch.einsum("tnh,cth->nc", outputs, weights) + model.linear.bias
    torch.testing.assert_close(model(images()), expected)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_head_last_sees_the_final_state_of_each_direction(bidirectional: bool, layers: int) -> None:
    directions = 1 + bidirectional
    model = Reader(nn.GRU(D, H, layers, bidirectional=bidirectional), T, D, classes=10, head="last", directions=directions)
    assert model.linear.in_features == directions * H
    _, state = model.recurrent(images().transpose(0, 1))  # [L*S, N, H]
    expected = model.linear(torch.cat(list(state[-directions:]), dim=-1))
    torch.testing.assert_close(model(images()), expected)


class Narrow(nn.GRU):
    """Layers whose output has fewer features than their state."""

    def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs, state = super().forward(*arguments)
        return outputs[..., :2], state


@pytest.mark.parametrize(("head", "width"), [("last", 2), ("all", T * 2)])
def test_the_width_of_the_output_is_seen(head: str, width: int) -> None:
    assert Reader(Narrow(D, H), T, D, classes=10, head=head, directions=1).linear.in_features == width


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", TORCH_LAYERS)
def test_the_same_initial_weights_and_answers_from_both_kinds_of_layers(
    options: Callable[..., Options], cell: str, bidirectional: bool
) -> None:
    ours = options(cell=cell, layers=2, bidirectional=bidirectional, seed=3)
    theirs = replace(ours, layers_from="torch")
    data = digits()
    our_model, their_model = (build(find_layers(choice), data, choice) for choice in (ours, theirs))
    expected = their_model.state_dict()
    assert list(our_model.state_dict()) == list(expected)
    for name, tensor in our_model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    some = torch.from_numpy(data.test.inputs[:9])
    torch.testing.assert_close(our_model(some), their_model(some))


def test_the_seed_decides_the_initial_weights(options: Callable[..., Options]) -> None:
    data = digits()
    one, same, other = (build(find_layers(choice), data, choice) for choice in (options(), options(), options(seed=1)))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, same.state_dict()[name])
    assert not torch.equal(one.linear.weight, other.linear.weight)


def test_an_unknown_cell(options: Callable[..., Options]) -> None:
    with pytest.raises(UsageError, match=r"--cell: unknown cell 'lstmm' \(did you mean 'lstm'\?\); `anyrnn cells` lists"):
        find_layers(options(cell="lstmm"))


def test_named_sizes(options: Callable[..., Options]) -> None:
    for sizes, size in (({}, 5), ({"proj": 3}, 3)):
        recurrent = find_layers(options(cell="lstm_projected", hidden=10, sizes=sizes))(8)
        assert recurrent(torch.zeros(2, 1, 8))[0].shape == (2, 1, size)
    with pytest.raises(UsageError, match=r"--size prjo: lstm_projected has no such size; it has proj"):
        find_layers(options(cell="lstm_projected", sizes={"prjo": 3}))


def test_a_cell_whose_input_has_the_size_of_its_state(options: Callable[..., Options]) -> None:
    with pytest.raises(UsageError, match=r"--cell residual\(lstm\): its input has the size of its state"):
        find_layers(options(cell="residual(lstm)"))


def test_a_missing_file_of_cells(options: Callable[..., Options]) -> None:
    with pytest.raises(UsageError, match=r"--cell: .*there is no file 'nowhere\.py'"):
        find_layers(options(cell="nowhere.py:mine"))


def test_torch_has_no_such_layer(options: Callable[..., Options]) -> None:
    with pytest.raises(UsageError, match=r"--layers-from torch: torch\.nn has no 'mgu'; it has rnn_tanh, rnn_relu, lstm, gru"):
        find_layers(options(cell="mgu", layers_from="torch"))


def test_torch_has_no_further_sizes(options: Callable[..., Options]) -> None:
    with pytest.raises(UsageError, match=r"--size proj: torch\.nn's layers have no further sizes"):
        find_layers(options(cell="lstm", layers_from="torch", sizes={"proj": 16}))


def test_layers_that_a_cell_cannot_have(options: Callable[..., Options], tmp_path: Path) -> None:
    file = tmp_path / "leaky.py"
    file.write_text("from anyrnn import *\n\n@cell\ndef leaky(x, h: Vec('input')):\n    return h, State(h=0.9 * h + x)\n")
    build = find_layers(options(cell=f"{file}:leaky", layers=2, bidirectional=True))
    with pytest.raises(UsageError, match=r"--cell .*leaky.*the output has 8 features in the first layer and would have 16"):
        build(8)
