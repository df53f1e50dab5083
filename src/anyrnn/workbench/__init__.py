"""For whoever makes cells: the list of those there are, pictures of them, and what a new one is like."""

from anyrnn.workbench.checking import Report as Report
from anyrnn.workbench.checking import check as check
from anyrnn.workbench.drawing import picture as picture
from anyrnn.workbench.listing import Listing as Listing
from anyrnn.workbench.listing import catalogue as catalogue
