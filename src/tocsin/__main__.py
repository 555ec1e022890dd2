"""`python -m tocsin` is the command line, for where its script is not on the path."""

import sys

from tocsin.cli import main

if __name__ == "__main__":
    sys.exit(main())
