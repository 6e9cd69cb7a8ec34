"""Brokers and clients without a list of NameServers get it from `/rocketmq/nsaddr`, and learn of an added one."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import members_of
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon
from tests.support.ports import free_port

# A broker asks the address server every second instead of every ten.
_ASKS_OFTEN: Final = {"fetchNamesrvAddrByAddressServer": "true", "fetchNamesrvAddrInterval": 1000}
# The list of NameServers of a client that asks the address server.
_LIST: Final = "address-server"
# Errors of a client whose only NameServer is gone.
_NO_NAME_SERVER: Final = r"Remoting(Connect|SendRequest|Timeout)Exception|No route info of this topic|connect to"


class World:
    """A server with the list of NameServers, and the NameServers that it lists."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place, self._stack = place, stack
        self.list_address = f"127.0.0.1:{free_port()}"
        self.first = self._start("first")
        self.listed = [self.first.where]
        self._settings = place / "namesrv.toml"
        self._write()
        self._directory = self._start(
            "list", f"--config={self._settings}", f"--name-servers-listen={self.list_address}"
        )

    def add(self) -> None:
        """Start another NameServer, and list it after the first."""
        self.listed.append(self._start("second").where)
        self._write()
        self._directory.send_signal(signal.SIGHUP)
        self._directory.wait_for("reloaded")

    def _write(self) -> None:
        self._settings.write_text(f'name_servers = "{";".join(self.listed)}"\n', encoding="utf-8")

    def _start(self, name: str, *flags: str) -> Daemon:
        return self._stack.enter_context(Daemon(self.place / name, *flags)).listening()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A new server for each test."""
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_added_server_is_found_without_a_restart(world: World) -> None:
    """A broker and a Java client, both without a list, use a NameServer that was added while they ran.

    The client asks ten seconds after its start, and then every two minutes. With the new list it reaches the added
    server; until then a request that needs a route fails, since the only server that it knows is gone.
    """
    settings = {**_ASKS_OFTEN, "rmqAddressServerDomain": world.list_address}
    domain = f"-Drocketmq.namesrv.domain={world.list_address}"
    with (
        Broker(world.place / "broker", (), settings=settings, flags=(domain,)) as broker,
        Driver(world.place / "clients", flags=(domain,)) as clients,
    ):
        broker.booted()
        until_equal([{0: broker.address}], lambda: members_of(world.listed, broker.name))
        clients.start_producer("producer", [_LIST])
        assert len(clients.send("producer", "first-topic", 3, "m")) == 3

        world.add()
        until_equal([{0: broker.address}] * 2, lambda: members_of(world.listed, broker.name))
        world.first.kill()
        attempts = (clients.send("producer", f"topic-{number}", 1, "m") for number in count())
        while not next(attempts):
            clients.excuse(_NO_NAME_SERVER)
