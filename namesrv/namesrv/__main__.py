"""`python -m namesrv` is the command `namesrv`."""

import sys

from namesrv.cli import main

if __name__ == "__main__":
    sys.exit(main())
