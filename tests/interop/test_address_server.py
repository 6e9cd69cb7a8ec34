"""Brokers and clients get their list of NameServers from `/rocketmq/nsaddr`, also after a server is added."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import members_of
from tests.interop.peers.waiting import until, until_equal
from tests.support.daemon import Daemon
from tests.support.ports import free_port

# A broker requests the list every second instead of every ten.
_ASKS_OFTEN: Final = {"fetchNamesrvAddrByAddressServer": "true", "fetchNamesrvAddrInterval": 1000}
# The list of NameServers of a client that uses the address server.
_LIST: Final = "address-server"
# Errors of a client whose NameServers are all gone.
_NO_NAME_SERVER: Final = r"Remoting(Connect|SendRequest|Timeout)Exception|No route info of this topic|connect to"
# A Java client requests the list every two minutes, which no option changes.
_KNOWN_WITHIN_SECONDS: Final = 130.0


class World:
    """A server with the list of NameServers, and the NameServers that it lists."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place, self._stack = place, stack
        self.list_address = f"127.0.0.1:{free_port()}"
        self.name_servers = [self._start("namesrv-1"), self._start("namesrv-2")]
        self._settings = place / "namesrv.toml"
        self._write()
        self._directory = self._start(
            "list", f"--config={self._settings}", f"--name-servers-listen={self.list_address}"
        )

    @property
    def listed(self) -> list[str]:
        """The addresses of the NameServers."""
        return [daemon.where for daemon in self.name_servers]

    def add(self) -> str:
        """Start another NameServer and list it after the others; returns its address."""
        self.name_servers.append(self._start(f"namesrv-{len(self.name_servers) + 1}"))
        self._write()
        reloads = len(self._directory.lines("reloaded"))
        self._directory.send_signal(signal.SIGHUP)
        self._directory.wait_for("reloaded", count=reloads + 1)
        return self.listed[-1]

    def _write(self) -> None:
        self._settings.write_text(f'name_servers = "{";".join(self.listed)}"\n', encoding="utf-8")

    def _start(self, name: str, *flags: str) -> Daemon:
        return self._stack.enter_context(Daemon(self.place / name, *flags)).listening()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A new server for each test."""
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_fourth_server_is_found_without_a_restart(world: World) -> None:
    """Brokers of 5.3 and a Java client, all without a list, use a fourth NameServer within 130 s.

    The client requests the list ten seconds after its start, and then every two minutes. The first request finds the
    third server; the fourth server is added right then, which gives the longest wait. With the new list the client
    reaches the added server; until then a request that needs a route fails, since the other three are gone.
    """
    settings = {**_ASKS_OFTEN, "rmqAddressServerDomain": world.list_address}
    domain = f"-Drocketmq.namesrv.domain={world.list_address}"
    with (
        Broker(world.place / "broker-a", (), settings=settings, flags=(domain,)) as broker,
        Broker(world.place / "broker-b", (), name="broker-b", settings=settings, flags=(domain,)) as other,
        Driver(world.place / "clients", flags=(domain,)) as clients,
    ):
        for started in (broker, other):
            started.booted()
        _until_registered(world, broker, other)
        clients.start_producer("producer", [_LIST])
        assert len(clients.send("producer", "first-topic", 3, "m")) == 3
        third = world.add()
        until(lambda: third in _lists_read_by(clients))

        world.add()
        added_at = time.monotonic()
        _until_registered(world, broker, other)
        for daemon in world.name_servers[:-1]:
            daemon.kill()
        numbers = count()

        def is_fourth_used() -> bool:
            sent = clients.send("producer", f"topic-{next(numbers)}", 1, "m")
            if not sent:
                clients.excuse(_NO_NAME_SERVER)
            return bool(sent)

        until(is_fourth_used, within=added_at + _KNOWN_WITHIN_SECONDS - time.monotonic())


def _until_registered(world: World, *brokers: Broker) -> None:
    """Return as soon as every listed NameServer knows the brokers."""
    for broker in brokers:
        expected = [{0: broker.address}] * len(world.listed)
        until_equal(expected, partial(members_of, world.listed, broker.name))


def _lists_read_by(clients: Driver) -> str:
    """The lists of NameServers that the log of the Java clients has."""
    paths = sorted((clients.home / "logs" / "rocketmqlogs").glob("rocketmq_client*.log"))
    lines = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)
    return "\n".join(line for line in lines.splitlines() if "name server address changed" in line)
