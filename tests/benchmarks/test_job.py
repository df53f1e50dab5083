import pytest
import torch

from benchmarks.job import Job
from benchmarks.suite import Row


@pytest.mark.parametrize(("cell", "gates"), [("rnn_tanh", 1), ("gru", 3), ("gru_before", 3), ("lstm", 4), ("lstm_layernorm", 4)])
def test_flops_are_those_of_the_gates(cell: str, gates: int) -> None:
    forward = 2 * gates * 6 * (4 + 6) * 3 * 5
    assert Job(Row(cell, 5, 3, 4, 6), torch.float32, 1).flops == forward
    assert Job(Row(cell, 5, 3, 4, 6, "training"), torch.float32, 1).flops == 3 * forward


def test_flops_of_layers_directions_and_lengths() -> None:
    row = Row("lstm", 7, 3, 4, 6, layers=2, bidirectional=True, lengths=(3, 7))
    assert Job(row, torch.float32, 1).flops == 2 * 4 * 6 * (7 + 5 + 3) * 2 * ((4 + 6) + (12 + 6))


def test_bytes_of_the_weights() -> None:
    job = Job(Row("gru", 5, 1, 4, 6), torch.float64, 1)
    assert job.weight_bytes == 8 * 3 * 6 * (4 + 4 * 6)
    assert Job(Row("indrnn", 5, 1, 4, 6), torch.float32, 1).weight_bytes == 4 * 6 * 4


def test_two_jobs_of_a_row_hold_the_same_numbers() -> None:
    row = Row("mgu", 5, 3, 4, 6, "training")
    one, two = Job(row, torch.float32, 1), Job(row, torch.float32, 1)
    assert torch.equal(one.data, two.data)
    assert torch.equal(one.d_output, two.d_output)
    assert all(torch.equal(p, two.parameters()[name]) for name, p in one.parameters().items())


def test_elements_of_what_is_no_product() -> None:
    """z = sigmoid(..), h = (1 - z) * h + z * h~, and the other way round."""
    each = 5 * 3 * 6
    job = Job(Row("mingru", 5, 3, 4, 6), torch.float32, 1)
    assert job.elements == {"sigmoid": each, "sub": each, "mul": 2 * each, "add": each}
    trained = Job(Row("mingru", 5, 3, 4, 6, "training"), torch.float32, 1).elements
    assert trained["sigmoid"] == each
    assert trained["mul"] > 2 * each


def test_bytes_of_arrays_and_states() -> None:
    """Input and output, in training three times; an LSTM's c beside them is written and read, its h is the output."""
    assert Job(Row("lstm", 5, 3, 4, 6), torch.float32, 1).array_bytes == 4 * 5 * 3 * (4 + 6)
    assert Job(Row("lstm", 5, 3, 4, 6, "training"), torch.float32, 1).array_bytes == 4 * 5 * 3 * (3 * (4 + 6) + 2 * 6)


@pytest.mark.parametrize(("cell", "kinks"), [("rnn_relu", True), ("clockwork", True), ("lstm", False), ("gru_before", False)])
def test_cells_whose_gradients_jump(cell: str, kinks: bool) -> None:
    assert Job(Row(cell, 5, 3, 4, 8), torch.float32, 1).kinks is kinks
