"""A real NameServer in a test: started in milliseconds, frozen, cut off, restarted, and moved through time.

Installing the wheel gives pytest the fixtures of `namesrv_testing.plugin`; without pytest, use the classes.
"""

from namesrv_testing.broker import TestBroker
from namesrv_testing.client import TestClient
from namesrv_testing.clock import TestClock
from namesrv_testing.server import TestNameServer

__all__ = ["TestBroker", "TestClient", "TestClock", "TestNameServer"]
