"""anyrnn: recurrent networks in which any cell, written as a few lines of equations, runs at fused-kernel speed."""

from anyrnn import cells as cells
from anyrnn.errors import CellError as CellError
from anyrnn.errors import MissingExtraError as MissingExtraError
from anyrnn.errors import UnsupportedError as UnsupportedError
from anyrnn.layer import Recurrent as Recurrent
from anyrnn.trace import Cell as Cell
from anyrnn.trace import Scalar as Scalar
from anyrnn.trace import State as State
from anyrnn.trace import Step as Step
from anyrnn.trace import Vec as Vec
from anyrnn.trace import cell as cell
from anyrnn.trace.language import affine as affine
from anyrnn.trace.language import apply as apply
from anyrnn.trace.language import concat as concat
from anyrnn.trace.language import cos as cos
from anyrnn.trace.language import equal as equal
from anyrnn.trace.language import exp as exp
from anyrnn.trace.language import floor as floor
from anyrnn.trace.language import log as log
from anyrnn.trace.language import matrix as matrix
from anyrnn.trace.language import maximum as maximum
from anyrnn.trace.language import mean as mean
from anyrnn.trace.language import minimum as minimum
from anyrnn.trace.language import norm as norm
from anyrnn.trace.language import relu as relu
from anyrnn.trace.language import scalar as scalar
from anyrnn.trace.language import scope as scope
from anyrnn.trace.language import sigmoid as sigmoid
from anyrnn.trace.language import sin as sin
from anyrnn.trace.language import softplus as softplus
from anyrnn.trace.language import split as split
from anyrnn.trace.language import sqrt as sqrt
from anyrnn.trace.language import tanh as tanh
from anyrnn.trace.language import total as total
from anyrnn.trace.language import vector as vector
from anyrnn.trace.language import where as where

__version__ = "0.1.0"
