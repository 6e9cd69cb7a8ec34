"""The command `watch`."""

import asyncio
import json
from pathlib import Path

from tests.support import broker as sync_broker
from tests.support.apache_server import ApacheFront
from tests.support.ctl import COMMAND, address_of, at, ctl, nobody
from tests.support.daemon import Daemon
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker
from tests.support.peer import Peer
from tests.support.raw_peer import until
from tests.support.terminal import Terminal

MASTER = Broker()
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")


def questions(server: InProcess) -> int:
    """How many the one who watches has asked."""
    return max((one.requests for one in server.namesrv.connections.values() if one.role == "client"), default=0)


async def test_changes_are_told_as_they_happen(tmp_path: Path) -> None:
    """First how it is, then each change, with what it was before and the whole new route."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER)
        watching = asyncio.create_task(ctl(*at(server), "watch", "T", "X", "T", "--changes", "4", "-o", "json"))
        # who it is, how it is, and what changes
        await until(lambda: questions(server) == 3)
        await peer.register(OTHER)
        await until(lambda: questions(server) == 4)
        await peer.call(205, {"brokerName": "broker-a"})
        await until(lambda: questions(server) == 5)
        await peer.call(216, {"topic": "T"})
        await until(lambda: questions(server) == 6)
        await peer.call(104, OTHER.ext)
        await peer.register(OTHER)
        done = await watching

    told = [json.loads(line) for line in done.lines]
    assert (0, "") == (done.code, done.err)
    assert [
        ("T", "first"),
        ("X", "first"),
        ("T", "changed"),
        ("T", "changed"),
        ("T", "vanished"),
        ("T", "appeared"),
    ] == [(one["topic"], one["change"]) for one in told]
    assert {address_of(server)} == {one["server"] for one in told}
    assert ({}, None) == (told[1]["facts"], told[1]["route"])
    assert {
        "address of broker-b/0": {"old": None, "new": "10.0.0.3:10911"},
        "queues on broker-b": {"old": None, "new": "8 read, 8 write, RW-"},
    } == told[2]["facts"]
    assert ["broker-a", "broker-b"] == [queues["broker_name"] for queues in told[2]["route"]["queues"]]
    assert {
        "queues on broker-a": {"old": "8 read, 8 write, RW-", "new": "8 read, 8 write, R--"},
    } == told[3]["facts"]
    assert told[4]["route"] is None


async def test_apaches_server_is_asked_again_and_again(tmp_path: Path) -> None:
    """It cannot be waited for."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        peer = await server.connect()
        watching = asyncio.create_task(ctl(*at(server, apache), "watch", "T", "--changes", "2"))
        await until(lambda: (0, 105) in apache.asked and len(server.namesrv.watchers) == 1)
        await peer.register(MASTER)
        done = await watching

        shown = [line.split("  ", 2)[1:] for line in done.lines]
        for one in (server, apache):
            assert ["T  absent", "T  appeared on broker-a"] == [text for name, text in shown if name == address_of(one)]


async def test_nobody_to_watch_ends_it() -> None:
    """As any question that nobody answers."""
    with nobody() as absent:
        found = await ctl(*at(absent), "watch", "T")

    assert (2, "") == (found.code, found.out)


def test_watch_goes_on_over_a_restart(tmp_path: Path) -> None:
    """What is different afterwards is a change; Ctrl-C is the ordinary end."""
    one, other = sync_broker.Broker(), sync_broker.Broker(name="broker-b", addr="10.0.0.2:10911")
    with Daemon(tmp_path / "data").listening() as daemon:
        host, port = daemon.address
        where = f"{host}:{port}"
        with Peer(daemon.address) as peer:
            one.register(peer)
            with Terminal([*COMMAND, "-s", where, "watch", "orders", "nothing"], columns=60) as shown:
                shown.wait_for("nothing  absent")
                daemon.stop()
                shown.wait_for(f"namesrvctl: no connection to {where}")
                flags = ("--listen-port", str(port), "--wait-for-service-seconds", "0")
                with Daemon(tmp_path / "data", *flags).listening() as again, Peer(again.address) as new_peer:
                    shown.wait_for("orders  vanished")
                    other.register(new_peer)
                    shown.wait_for("orders  appeared on broker-b")
                    assert f"namesrvctl: {where}: answers again" in shown.shown
                    shown.interrupt()
                    assert 0 == shown.wait()
                    assert "Traceback" not in shown.shown
