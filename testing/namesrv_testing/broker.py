"""A broker in a thread of the test's process: the real agent, without the broker."""

import itertools
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.sync import SyncBrokerAgent
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_testing.server import TestNameServer
from namesrv_testing.thread import TestThread

# each broker has an address of its own; nobody connects to it
_ports: Final = itertools.cycle(range(20_000, 60_000))


class TestBroker(TestThread[Any], SyncBrokerAgent):
    """A registered broker of some servers; a SyncBrokerAgent with faults.

    Topics are names or TopicConfigs; settings are AgentSettings' by name. It lives on the clock of its first server.
    """

    def __init__(
        self,
        servers: Iterable[TestNameServer],
        broker_name: str,
        topics: Iterable[str | TopicConfig] = (),
        **settings: Any,
    ) -> None:
        self._servers = list(servers)
        self.clock = self._servers[0].clock
        place = {"cluster_name": "DefaultCluster", "broker_addr": f"127.0.0.1:{next(_ports)}"}
        name_servers = ";".join(server.address for server in self._servers)
        SyncBrokerAgent.__init__(
            self,
            AgentSettings(**{**place, "broker_name": broker_name, "name_servers": name_servers, **settings}),
            [topic if isinstance(topic, TopicConfig) else TopicConfig(topic) for topic in topics],
            clock=self.clock,
        )

    def start(self) -> None:
        """Start it, and return when all servers know it."""
        super().start()
        self.registered()

    def kill(self) -> None:
        """Let it die as a process does: its connections end without an unregistration.

        A server that is frozen notices when it is thawed.
        """
        self.freeze()
        for descriptor in self._sockets():
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        for server in self._servers:
            server.settle()
