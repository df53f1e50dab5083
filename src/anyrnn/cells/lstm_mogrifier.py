"""Mogrifier LSTM: before a step, the input and the hidden state gate each other in turns."""

from anyrnn.cells.lstm import lstm
from anyrnn.trace import cell
from anyrnn.trace.language import matrix, sigmoid


# Q and R are full matrices; the paper also has products of two thinner ones.
@cell(paper="Melis, Kocisky & Blunsom 2020, Mogrifier LSTM, arXiv 1909.01792")
def lstm_mogrifier(x, h, c, *, rounds=5):
    inputs = x.shape[0]
    for i in range(1, rounds + 1):
        if i % 2 == 1:
            x = 2 * sigmoid(matrix(f"Q{i}", inputs, "hidden") @ h) * x
        else:
            h = 2 * sigmoid(matrix(f"R{i}", "hidden", inputs) @ x) * h
    return lstm(x, h, c)
