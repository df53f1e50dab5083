"""`python -m anyrnn`, as torchrun starts it: `torchrun --nproc-per-node 2 -m anyrnn train digits`."""

import sys

from anyrnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
