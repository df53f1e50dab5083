"""`python -m anyrnn`."""

import sys

from anyrnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
