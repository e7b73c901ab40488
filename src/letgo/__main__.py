"""`python -m letgo` works uninstalled."""

import sys

from letgo.cli import main

if __name__ == "__main__":
    sys.exit(main())
