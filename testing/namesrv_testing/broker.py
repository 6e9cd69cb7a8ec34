"""A broker for tests: a real agent in a thread of the test's process, without the message store."""

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

# Each broker has an address of its own, to which no peer connects.
_ports: Final = itertools.cycle(range(20_000, 60_000))


class TestBroker(TestThread[Any], SyncBrokerAgent):
    """A broker that is registered with some servers: a SyncBrokerAgent that a test can freeze and kill.

    Topics are names or TopicConfigs; `settings` are fields of AgentSettings. The broker uses the clock of its first
    server.
    """

    def __init__(
        self,
        servers: Iterable[TestNameServer],
        broker_name: str,
        topics: Iterable[str | TopicConfig] = (),
        **settings: Any,
    ) -> None:
        if isinstance(topics, str):
            # A string is an iterable of strings, too: each letter would become a topic.
            raise TypeError(f"topics: {topics!r} is one name, not a list of topics")
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
        """Start the agent, and return when all servers have registered the broker."""
        super().start()
        self.registered()

    def kill(self) -> None:
        """End the connections without an unregister request, as the death of a process would.

        A frozen server notices when it is thawed.
        """
        self.freeze()
        for descriptor in self._sockets():
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        for server in self._servers:
            server.settle()
