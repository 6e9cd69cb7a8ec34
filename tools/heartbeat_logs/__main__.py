"""`python -m tools.heartbeat_logs`."""

import sys

from tools.heartbeat_logs.cli import main

if __name__ == "__main__":
    sys.exit(main())
