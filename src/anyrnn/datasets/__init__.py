"""Labelled sequences with a held-out part to test on: images read row by row, one row a time step, and speech; and text."""

from anyrnn.datasets._characters import Text as Text
from anyrnn.datasets._characters import characters as characters
from anyrnn.datasets._digits import digits as digits
from anyrnn.datasets._mnist import mnist as mnist
from anyrnn.datasets._sequences import Dataset as Dataset
from anyrnn.datasets._sequences import Sequences as Sequences
from anyrnn.datasets._vowels import vowels as vowels
