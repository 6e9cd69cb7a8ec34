"""Forking with a client: no client or connection in the child, no loss in the parent."""

import os
import signal

import pytest

from tests.support.daemon import Daemon
from tests.support.peer import Peer, until
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


def clients(two_brokers: Daemon) -> int:
    """Number of clients connected to the server."""
    with Peer(two_brokers.address, native=True) as peer:
        return len(peer.call(20004, role="client")["connections"])


@pytest.mark.parametrize("loop", LOOPS)
def test_killed_parent_is_noticed_while_its_child_lives(two_brokers: Daemon, loop: str) -> None:
    """The child holds no connection of its parent, and may start a client of its own."""
    with run_script(FORKS, loop, two_brokers.where) as process:
        lines = [read_report(process) for _ in range(4)]
        [parent] = [line for line in lines if "child" in line]
        lines.remove(parent)
        child = parent.pop("child")
        try:
            assert lines == [
                {"client": "<SyncRouteClient [not started]>", "connections": 0, "threads": 1, "stop": None},
                {"brokers": ["broker-a", "broker-b"], "again": True, "connections": 1, "has_own_name": True},
                {"connections": 0},
            ]
            assert parent == {"brokers": ["broker-a", "broker-b"], "connections": 1}
            until(lambda: clients(two_brokers) == 1)
            process.kill()
            until(lambda: clients(two_brokers) == 0)
        finally:
            os.kill(child, signal.SIGKILL)
