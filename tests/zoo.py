"""The built-in cells for tests of each: a few that differ in kind always run, the others in `make test-all`."""

from __future__ import annotations

import pytest

from anyrnn import cells

FEW = (
    *("gru", "gru_before", "indrnn", "lstm", "lstm_coupled", "lstm_layernorm", "lstm_peephole", "lstm_projected"),
    *("mgu", "rnn_relu", "rnn_tanh"),
)
EVERY = [pytest.param(name, id=name, marks=() if name in FEW else pytest.mark.slow) for name in cells.names()]
