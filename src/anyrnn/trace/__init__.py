"""The cell language: what a cell's function is written with, and the tracer that turns it into a Graph."""

from anyrnn.trace.cell import Cell as Cell
from anyrnn.trace.cell import State as State
from anyrnn.trace.cell import cell as cell
from anyrnn.trace.signature import Scalar as Scalar
from anyrnn.trace.signature import Several as Several
from anyrnn.trace.signature import Step as Step
from anyrnn.trace.signature import Vec as Vec
