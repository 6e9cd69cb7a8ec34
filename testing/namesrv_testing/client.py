"""A client for tests: a real route client in a thread of the test's process."""

from collections.abc import Iterable
from typing import Any

from namesrv_client.settings import ClientSettings
from namesrv_client.sync import SyncRouteClient
from namesrv_testing.server import TestNameServer
from namesrv_testing.thread import TestThread


class TestClient(TestThread[Any], SyncRouteClient):
    """A SyncRouteClient of some servers that a test can freeze; `settings` are fields of ClientSettings.

    The client uses the clock of its first server.
    """

    def __init__(self, servers: Iterable[TestNameServer], **settings: Any) -> None:
        chosen = list(servers)
        self.clock = chosen[0].clock
        name_servers = ";".join(server.address for server in chosen)
        # No warm-up, because a test's servers know all brokers from the start.
        wanted = ClientSettings(**{"name_servers": name_servers, "warm_up_seconds": 0.0, **settings})
        SyncRouteClient.__init__(self, wanted, clock=self.clock)
