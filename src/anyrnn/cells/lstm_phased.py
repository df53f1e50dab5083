"""Phased LSTM: the state of a feature changes while the feature's gate of the time is open, for a part of a period of its own."""

from anyrnn.cells.lstm import lstm_peephole
from anyrnn.trace import Scalar, State, Step, cell
from anyrnn.trace.initial import uniform
from anyrnn.trace.language import floor, vector, where

PAPER = "Neil, Pfeiffer & Liu 2016, Phased LSTM, arXiv 1610.09513"


def periods(shape, random):
    return 1000 ** random.uniform(size=shape)


# Periods begin between 1 and 1000, as in TensorFlow's PhasedLSTMCell; the paper has a range for each task. r_on is the paper's
# 0.05, there it is 0.1 and trained. The paper trains with alpha = 0.001 and sets it to 0 afterwards.
def gated(x, t, h, c, alpha, r_on):
    cycles = (t - vector("s", init=uniform(0.0, 1000.0))) / vector("tau", init=periods)
    phi = cycles - floor(cycles)
    k = where(phi < r_on / 2, 2 * phi / r_on, where(phi < r_on, 2 - 2 * phi / r_on, alpha * phi))
    h_open, opened = lstm_peephole(x, h, c)
    return k * h_open + (1 - k) * h, k * opened.c + (1 - k) * c


@cell(paper=f"{PAPER}; the time counts steps")
def lstm_phased(x, h, c, t: Scalar(), *, alpha=0.001, r_on=0.05):
    h, c = gated(x, t, h, c, alpha, r_on)
    return h, State(h=h, c=c, t=t + 1)


@cell(paper=f"{PAPER}; the time is an input")
def lstm_phased_timed(x, t: Step(1), h, c, *, alpha=0.001, r_on=0.05):
    h, c = gated(x, t, h, c, alpha, r_on)
    return h, State(h=h, c=c)
