"""Forking with a client: no client or connection in the child, no loss in the parent."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer, until
from tests.support.printing_process import PRELUDE, read_report, run_script

LOOPS = ["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)]

BEGIN = f"""{PRELUDE}
[server] = sys.argv[2:]
from namesrv_client import ClientSettings, SyncRouteClient

client = SyncRouteClient(ClientSettings(name_servers=server, watch=True))
client.start()
brokers = list(client.route("orders").brokers)
"""

FORKS = (
    BEGIN
    + """
child = os.fork()
if child == 0:
    # should the test not get as far as to end it
    signal.alarm(60)
    gc.collect()
    report(client=repr(client), connections=connections(), threads=threading.active_count(), stop=client.stop())
    with client:
        first = list(client.route("orders").brokers)
        gc.collect()
        has_own_name = client.status().client_name.endswith(f"-{os.getpid()}")
        report(brokers=first, again=client.refresh(), connections=connections(), has_own_name=has_own_name)
    report(connections=connections())
    signal.pause()
report(child=child, brokers=list(client.route("orders", max_stale=0.0).brokers), connections=connections())
signal.pause()
"""
)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A NameServer process with a broker, for all tests of this file."""
    with Daemon(tmp_path_factory.mktemp("data")) as daemon, Peer(daemon.listening().address) as peer:
        Broker().register(peer)
        yield daemon


@contextmanager
def running(script: str, namesrv: Daemon, loop: str) -> Iterator["subprocess.Popen[str]"]:
    """A script that uses the server."""
    with run_script(script, loop, namesrv.where) as process:
        try:
            yield process
        finally:
            process.kill()


def clients(namesrv: Daemon) -> int:
    """Number of clients connected to the server."""
    with Peer(namesrv.address, native=True) as peer:
        return len(peer.call(20004, role="client")["connections"])


@pytest.mark.parametrize("loop", LOOPS)
def test_killed_parent_is_noticed_while_its_child_lives(namesrv: Daemon, loop: str) -> None:
    """The child holds no connection of its parent, and may start a client of its own."""
    with running(FORKS, namesrv, loop) as process:
        lines = [read_report(process) for _ in range(4)]
        [parent] = [line for line in lines if "child" in line]
        lines.remove(parent)
        child = parent.pop("child")
        try:
            assert lines == [
                {"client": "<SyncRouteClient [not started]>", "connections": 0, "threads": 1, "stop": None},
                {"brokers": ["broker-a"], "again": True, "connections": 1, "has_own_name": True},
                {"connections": 0},
            ]
            assert parent == {"brokers": ["broker-a"], "connections": 1}
            until(lambda: clients(namesrv) == 1)
            process.kill()
            until(lambda: clients(namesrv) == 0)
        finally:
            os.kill(child, signal.SIGKILL)
