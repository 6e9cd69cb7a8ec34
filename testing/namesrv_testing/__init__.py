"""A real NameServer for tests: it starts in milliseconds, can be frozen, cut off and restarted, and follows a clock.

Installing the wheel gives pytest the fixtures of `namesrv_testing.plugin`; without pytest, use the classes.
"""

from namesrv_testing.broker import TestBroker
from namesrv_testing.client import TestClient
from namesrv_testing.clock import TestClock
from namesrv_testing.server import TestNameServer

__all__ = ["TestBroker", "TestClient", "TestClock", "TestNameServer"]
