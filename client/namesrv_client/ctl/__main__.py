"""`python -m namesrv_client.ctl` is `namesrvctl`."""

import sys

from namesrv_client.ctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
