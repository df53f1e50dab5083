"""Images read row by row, one row a time step, with a held-out part to test on."""

from anyrnn.datasets._digits import digits as digits
from anyrnn.datasets._images import Dataset as Dataset
from anyrnn.datasets._images import Images as Images
from anyrnn.datasets._mnist import mnist as mnist
