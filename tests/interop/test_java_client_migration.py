"""Two running Apache NameServers are replaced by ours, one at a time, without a failed pull.

The steps are those of docs/migrating.md. A real broker stays registered, a Java producer and a Java consumer work all
the time, and a second producer sends to unused topics in every phase, so that it pulls routes in every phase.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from namesrv_remoting.codes import RequestCode, ResponseCode
from namesrv_runtime.address import parse_address
from tests.interop.peers.apache import ApacheNameServer, MqAdmin
from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Application
from tests.interop.peers.restarts import STREAM, TOPICS, make_topics
from tests.interop.peers.route import brokers_of
from tests.interop.peers.waiting import GUARD_SECONDS
from tests.support.ctl import COMMAND
from tests.support.daemon import Daemon
from tests.support.pages import example
from tests.support.peer import Peer

# The brokers of this test register every 10 s, operators' brokers every 30 s.
WAIT_SECONDS: Final = 15


def _example(name: str, places: Mapping[str, Path | str]) -> str:
    """The commands of an example on the page, with the paths and addresses of this test."""
    commands = example("docs/migrating.md", name)
    for place, here in places.items():
        commands = commands.replace(place, str(here))
    return commands


def _our(command: str, *more: str) -> "subprocess.CompletedProcess[str]":
    program, *flags = shlex.split(command)
    assert program == "namesrv"
    words = [sys.executable, "-m", program, *flags, *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)


class Move:
    """Two of Apache's NameServers with their broker and clients, and the steps to replace a NameServer."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self._place = place
        self._stack = stack
        self._apaches = [stack.enter_context(ApacheNameServer(place / f"apache-{number}")) for number in (0, 1)]
        self.addresses = [server.booted().address for server in self._apaches]
        self.daemons: list[Daemon] = []
        self.broker = stack.enter_context(Broker(place / "broker", self.addresses)).booted()
        self.admins = [
            stack.enter_context(MqAdmin(place / f"mqadmin-{number}", address))
            for number, address in enumerate(self.addresses)
        ]
        make_topics(place, self.broker, self.addresses)
        self.clients = stack.enter_context(Application(place / "clients", self.addresses, STREAM, iter(TOPICS)))

    def replace(self, number: int) -> Daemon:
        """Stop one of Apache's servers, and start ours in its place, with the commands of the page."""
        theirs = self._apaches[number]
        theirs.stop()
        data_dir = self._place / f"ours-{number}"
        places = {
            "$HOME/namesrv/kvConfig.json": theirs.home / "kvConfig.json",
            "/etc/rocketmq/namesrv.properties": theirs.home / "namesrv.properties",
            "/var/lib/namesrv": data_dir,
        }
        check = _our(_example("check", places))
        assert check.returncode == 0
        assert "kvConfigPath has no effect" in check.stderr
        read = _our(_example("check", places), "--print-config").stdout
        assert re.search(rf"^listen_port +=  *{theirs.port} ", read, re.MULTILINE), read
        subprocess.run(["sh", "-euc", _example("prepare", places)], check=True)
        program, *flags = shlex.split(_example("start", places))
        assert program == "namesrv"
        # The test appends flags, of which the last one counts: the port, and a wait as short as this broker's interval.
        flags += ["--listen-port", str(theirs.port), "--wait-for-service-seconds", str(WAIT_SECONDS)]
        self.daemons.append(self._stack.enter_context(Daemon(data_dir, *flags)))
        return self.daemons[-1].listening()

    def compare(self, number: int) -> str:
        """Compare our server with the other one, which is Apache's the first time; returns the output of the check."""
        command = _example("compare", {"ns1:9876": self.addresses[number], "ns2:9876": self.addresses[1 - number]})
        program, *words = shlex.split(command)
        assert program == "namesrvctl"
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def answer(self, number: int) -> int:
        with Peer(parse_address(self.addresses[number])) as peer:
            return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": STREAM}).code


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    """New servers, broker and clients for each test."""
    with ExitStack() as stack:
        yield Move(tmp_path, stack)


def test_servers_are_replaced_one_at_a_time(move: Move) -> None:
    """No send fails, all acknowledged messages are consumed, and the operators' configuration is kept."""
    clients = move.clients
    for admin in move.admins:
        put = admin("updateOrderConf", "-m", "put", "-t", "ordered", "-v", "broker-a:4")
        assert "update orderConf success" in put.stdout, put
    clients.start()
    clients.send_to_new_topics()

    for number, daemon in ((number, move.replace(number)) for number in (0, 1)):
        # The other server serves meanwhile.
        assert move.answer(number) == ResponseCode.SYSTEM_ERROR
        clients.send_to_new_topics()
        assert "2 servers agree: 1 broker, " in move.compare(number)
        daemon.wait_for("ready")
        assert move.answer(number) == ResponseCode.SUCCESS
        clients.send_to_new_topics()
        clients.until_more_is_read()
        assert brokers_of(move.addresses[number]) == {"broker-a": {0: move.broker.address}}
    clients.finish()

    for admin in move.admins:
        got = admin("updateOrderConf", "-m", "get", "-t", "ordered")
        assert "orderConf=[broker-a:4]" in got.stdout, got.stderr[:600]
        assert ["DefaultCluster", "broker-a", "0", move.broker.address] in [
            row[:4] for row in admin("clusterList").rows
        ]
