"""A damped exponential moving average with learned rates, in one dimension for each feature.

A product gives the input the hidden size; with `skip_input` there is none, as in the paper. The authors' code has the names alpha
and delta the other way round.
"""

from anyrnn.trace import State, cell
from anyrnn.trace.initial import normal
from anyrnn.trace.language import affine, sigmoid, vector


@cell(paper="Ma et al. 2022, Mega: Moving Average Equipped Gated Attention, arXiv 2209.10655; the damped average alone")
def ema(x, h):
    alpha = sigmoid(vector("alpha_logit", init=normal(0.2)))
    delta = sigmoid(vector("delta_logit", init=normal(0.2)))
    h = alpha * affine("u", x, bias=False) + (1 - alpha * delta) * h
    return h, State(h=h)
