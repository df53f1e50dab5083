import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from anyrnn import cell, cells
from anyrnn.compare import contenders, tasks
from anyrnn.compare.contenders import Contender
from anyrnn.compare.options import make
from anyrnn.trace import State
from anyrnn.trace.language import affine, tanh
from anyrnn.train.errors import UsageError
from tests.zoo import FEW

Settings = Callable[..., dict[str, Any]]


def found(settings: dict[str, Any]) -> list[Contender]:
    options = make(**settings)
    return contenders.find(options, tasks.load(options))


def test_parameters_are_those_of_the_network(settings: Settings) -> None:
    few = [name for name in FEW if len(cells.load(name).trace().inputs) == 1]
    for one in found(settings(cells=[*few, "residual(lstm)", "lmu"], hidden=12)):
        trained = sum(p.numel() for p in one.network().parameters() if p.requires_grad)
        assert one.parameters == one.description["parameters"] == trained, one.name


def test_equal_hidden_sizes_are_those_asked_for(settings: Settings) -> None:
    assert {one.hidden for one in found(settings(cells="lstm,gru,residual(indrnn)", hidden=9))} == {9}


def test_hyper_parameters_may_be_compared(settings: Settings) -> None:
    one, other = found(settings(cells="ctrnn(dt=0.1),ctrnn(dt=0.5)", hidden=9))
    assert (one.name, other.name) == ("ctrnn(dt=0.1)", "ctrnn(dt=0.5)")
    assert one.description != other.description
    assert one.parameters == other.parameters


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("residual(lstm)", "residual( lstm )"),
        ("ctrnn(dt=0.5)", "ctrnn(dt=.5)"),
        ("ctrnn(dt=0.5,tau=2.0)", "ctrnn(tau=2.0,dt=0.5)"),
        ("ctrnn", "ctrnn(dt=0.1)"),
        ("mgu", "mgu()"),
    ],
)
def test_one_cell_in_two_spellings(settings: Settings, one: str, other: str) -> None:
    with pytest.raises(UsageError, match=rf"--cells: {re.escape(one)} and {re.escape(other)} are the same cell"):
        found(settings(cells=f"gru,{one},{other}"))


def test_first_values_may_be_compared(settings: Settings, tmp_path: Path) -> None:
    text = "from anyrnn import State, affine, cell, tanh\n@cell(init={'bias_ih g': 1.0})\ndef mine(x, h):\n"
    text += "    h = tanh(affine('g', x, h))\n    return h, State(h=h)\n"
    for name, begins in (("a", "1.0"), ("b", "2.0")):
        (tmp_path / f"{name}.py").write_text(text.replace("1.0", begins))
    assert len(found(settings(cells=f"{tmp_path}/a.py:mine,{tmp_path}/b.py:mine"))) == 2


@pytest.mark.parametrize("task", ["digits", "copy"])
def test_equal_parameters_are_the_nearest_that_there_are(settings: Settings, task: str) -> None:
    (like,) = found(settings(cells="lstm", task=task, hidden=20))
    for one in found(
        settings(cells="lstm,gru,indrnn,lstm_projected,residual(gru),mgu", task=task, hidden=20, equal="parameters")
    ):
        if one.name == "lstm":
            assert (one.hidden, one.parameters) == (20, like.parameters)
        for near in (one.hidden - 1, one.hidden + 1):
            other = found(settings(cells=[one.name], task=task, hidden=near))[0]
            assert abs(one.parameters - like.parameters) <= abs(other.parameters - like.parameters), one.name


@cell
def of_three_heads(x, h):
    h = tanh(affine("a", x) + affine("a", h, heads=3))
    return h, State(h=h)


def test_sizes_that_a_cell_cannot_have_are_left_out(settings: Settings) -> None:
    (one,) = found(settings(cells=[of_three_heads], hidden=10, equal="parameters"))
    assert one.hidden % 3 == 0
    assert one.network().linear.in_features == one.hidden
    with pytest.raises(UsageError, match=r"--cells: of_three_heads: .*hidden/3 is not a whole number for hidden=10"):
        _ = found(settings(cells=[of_three_heads], hidden=10))[0].description


def test_other_sizes_are_half_or_as_given(settings: Settings) -> None:
    assert found(settings(cells="lstm_projected", hidden=9))[0].sizes == {"proj": 4}
    assert found(settings(cells="lstm_projected,gru", hidden=9, sizes={"proj": 3}))[0].sizes == {"proj": 3}
    with pytest.raises(UsageError, match="--size rank: no cell has it; there are proj"):
        found(settings(cells="lstm_projected,gru", sizes={"rank": 3}))


def test_a_cell_as_wide_as_its_state_gets_a_layer_before_it(settings: Settings) -> None:
    (one,) = found(settings(cells="residual(gru)", hidden=5))
    network = one.network()
    x = torch.randn(3, 8, 8)
    outputs = network.recurrent.recurrent(network.recurrent.linear(x.transpose(0, 1)))[0]
    torch.testing.assert_close(network(x), network.linear(outputs[-1]))
    torch.testing.assert_close(network(x, torch.tensor([2, 8, 1]))[1], network(x)[1])
    torch.testing.assert_close(network(x, torch.tensor([2, 8, 1]))[0], network.linear(outputs[1, 0]))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("gruu", r"--cells: unknown cell 'gruu' \(did you mean 'gru'\?\)"),
        ("nowhere.py:mine", r"--cells: cell 'nowhere\.py:mine': there is no file 'nowhere\.py'"),
        ("augru", "--cells: augru needs the per-step input a, which no task has"),
        ("wide(lstm)", r"--cells: cell 'wide\(lstm\)': unknown wrapper or cell 'wide'"),
        ([cells.load], "--cells: cell should be a Cell"),
    ],
)
def test_cells_that_cannot_be_compared(settings: Settings, wanted: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        found(settings(cells=wanted))


def test_a_cell_is_told_by_its_equations_and_initial_values(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    before = "from anyrnn import State, affine, cell, tanh\n@cell\ndef mine(x, h):\n    h = tanh(affine('g', x, h))\n"
    texts = {
        "same": before + "    return h, State(h=h)  # as before\n",
        "equations": before + "    return 2 * h, State(h=h)\n",
        "begins": (before + "    return h, State(h=h)\n").replace("@cell", "@cell(init={'bias_ih g': 1.0})"),
    }
    file.write_text(before + "    return h, State(h=h)\n")
    first = found(settings(cells=f"{file}:mine"))[0].description
    for changed, text in texts.items():
        file.write_text(text)
        now = found(settings(cells=f"{file}:mine"))[0].description
        assert {name for name in first if first[name] != now[name]} == {changed} - {"same"}


def test_parameters_that_do_not_follow_from_the_features(settings: Any, tmp_path: Path) -> None:
    file = tmp_path / "leaky.py"
    file.write_text(
        "from anyrnn import *\n\n@cell\ndef leaky(x, h: Vec('input')):\n"
        "    h = sigmoid(vector('a', 'input')) * h + x\n    return h, State(h=h)\n"
    )
    with pytest.raises(UsageError, match=r"--equal parameters: .*leaky.* has [0-9]+, however many features it has"):
        found(settings(cells=f"{file}:leaky,gru", hidden=20, equal="parameters"))
