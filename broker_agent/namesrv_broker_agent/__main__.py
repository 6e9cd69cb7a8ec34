"""`python -m namesrv_broker_agent` is the command `namesrv-broker-agent`."""

import sys

from namesrv_broker_agent.cli import main

sys.exit(main())
