"""The commands `events` and `watch`: past events and live changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from namesrv_client.ctl.commands.following import _Events, _keep_asking, _Routes, _Wanted
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.aio.credentials import SigningSettings
from tests.support.apache_server import ApacheFront
from tests.support.ctl import COMMAND, NOT_SUPPORTED, TWO_TOPICS, address_of, at, ctl, one_server, refusing_address
from tests.support.daemon import Daemon
from tests.support.fake_clock import passing, settle, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, native_registration
from tests.support.peer import Broker as SyncBroker
from tests.support.peer import Peer
from tests.support.terminal import Terminal

FIRST, SECOND = SyncBroker(), SyncBroker(name="broker-b", addr="10.0.0.2:10911")
RW, RO = "8 read, 8 write, RW-", "8 read, 8 write, R--"


async def test_events_are_shown_oldest_first(tmp_path: Path) -> None:
    """Each row has the time, the number, the event and its subject."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, native_registration("T"), spelling="native")
        await server.clock.advance(2.25)
        await peer.call(104, MASTER.ext)

        shown = await ctl(*at(where), "events")

    at_first, later = "2023-11-14 22:13:20.000", "2023-11-14 22:13:22.250"
    who = "cluster-1/broker-a/0 10.0.0.1:10911"
    assert (shown.code, shown.err) == (0, "")
    assert shown.cells == [
        ["TIME (UTC)", "NUMBER", "EVENT", "WHAT"],
        [at_first, "1", "route", "revision=1 topics=T count=1 broker_name=broker-a"],
        [at_first, "2", "register", f"{who} kind=full topics=1"],
        [later, "3", "unregister", who],
        [later, "4", "route", "revision=2 topics=T count=1 broker_name=broker-a"],
        [later, "5", "evict", f"{who} reason=unregistered silent_ms=2250"],
    ]


async def test_json_events_are_the_servers_events(tmp_path: Path) -> None:
    """--since, --type and --limit filter the server's events."""
    async with one_server(tmp_path) as (server, where):
        await (await server.connect()).register(MASTER, native_registration("T"), spelling="native")

        async def chosen(*options: str) -> list[dict[str, Any]]:
            found = await ctl(*at(where), "events", "-o", "json", *options)
            events: list[dict[str, Any]] = found.json["servers"][0]["events"]
            return events

        async def numbers(*options: str) -> list[int]:
            return [event["seq"] for event in await chosen(*options)]

        broker = {"cluster": "cluster-1", "broker_name": "broker-a", "broker_id": 0, "broker_addr": "10.0.0.1:10911"}
        event = {"seq": 2, "event": "register", "ts_ms": 1_700_000_000_000, **broker, "kind": "full", "topics": 1}
        assert await chosen("--since", "1") == [event]
        for _ in range(100):
            server.namesrv.events.append({"event": "more"})
        assert await numbers("--type", "route", "--type", "register") == [1, 2]
        assert await numbers("--type", "route", "--type", "register", "--limit", "1") == [2]
        assert await numbers("--limit", "2") == [101, 102]
        assert len(await numbers()) == 50
        # A script that continues after the second event would lack others without a word.
        left_out = [f"{where}: 50 events after 2 not shown; see --limit"]
        assert (await ctl(*at(where), "events", "--since", "2")).problems == left_out
        kinds = ("--since", "2", "--type", "route", "--type", "register")
        assert (await ctl(*at(where), "events", *kinds)).problems == ["no events"]
        for number in range(1000):
            server.namesrv.events.append({"event": "evict" if number % 2 else "more"})
        forgotten = f"{where}: 100 events after 2 forgotten by the server"
        everything = ("--limit", "1000")
        assert (await ctl(*at(where), "events", "--since", "2", *everything)).problems == [forgotten]
        assert (await ctl(*at(where), "events", "--since", "102", *everything)).problems == []
        # The types of forgotten events are unknown; only evictions count as left out by --limit.
        assert (await ctl(*at(where), "events", "--since", "2", "--type", "evict")).problems == [
            f"{forgotten}, of all types",
            f"{where}: 450 events after 2 not shown; see --limit",
        ]


async def test_unsupported_follow_ends_at_once(tmp_path: Path) -> None:
    """Apache's server has no events, and an unreachable server exits with 2."""
    async with one_server(tmp_path, "rocketmq") as (_, where):
        for options in ((), ("--follow",)):
            refused = await ctl(*at(where), "events", *options)
            assert refused == (1, "", f"namesrvctl: {where}: {NOT_SUPPORTED}\n")
    with refusing_address() as absent:
        for command in (("events", "--follow"), ("watch", "T")):
            assert (await ctl(*at(absent), *command))[:2] == (2, "")


async def test_start_after_the_last_event_is_one_of_an_earlier_boot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that has restarted counts anew; a script that continues with `--since` must notice that."""
    async with one_server(tmp_path) as (server, where), servers_at(where) as servers:
        await (await server.connect()).register(MASTER, native_registration("T"), spelling="native")
        last = await ctl(*at(where), "events", "--since", "2")
        later = await ctl(*at(where), "events", "--since", "3")
        following = _Events(servers.all[0], servers, json_output(where), _Wanted(3, 50, frozenset()))
        (await following.ask())()

    assert (last.code, last.problems) == (0, ["no events"])
    assert (later.code, later.problems) == (0, ["no events", f"{where}: restarted: its last event is before 3"])
    printed = capsys.readouterr()
    assert [json.loads(line)["seq"] for line in printed.out.splitlines()] == [1, 2]
    assert printed.err == f"namesrvctl: {where}: restarted\n"


async def test_follow_since_the_last_event_repeats_no_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that continues with `--since` gets only later events, also if there is none at first."""
    async with one_server(tmp_path) as (server, where), servers_at(where) as servers:
        peer = await server.connect()
        await peer.register(MASTER, native_registration("T"), spelling="native")
        servers.clock = server.clock
        following = _Events(servers.all[0], servers, json_output(where), _Wanted(2, 50, frozenset()))
        for number in range(3):
            if number == 2:
                await peer.call(104, MASTER.ext)
            asking = asyncio.ensure_future(following.ask())
            await passing(server.clock, asking.done)
            (await asking)()

        printed = capsys.readouterr()
        assert ([json.loads(line)["seq"] for line in printed.out.splitlines()], printed.err) == ([3, 4, 5], "")

        short = _Events(servers.all[0], servers, json_output(where), _Wanted(2, 1, frozenset()))
        (await short.ask())()
        printed = capsys.readouterr()
        assert json.loads(printed.out)["seq"] == 5
        assert printed.err == f"namesrvctl: {where}: 2 events after 2 not shown; see --limit\n"


async def test_watch_of_a_draining_server_pauses(tmp_path: Path) -> None:
    """A draining server answers watches at once."""
    async with one_server(tmp_path) as (server, where), servers_at(where) as servers:
        servers.clock = server.clock
        routes = _Routes(servers.all[0], servers, json_output(where), ["T"], repeat(1), [])
        watching = asyncio.create_task(_keep_asking(where, routes.ask, server.clock))
        await until(lambda: len(server.namesrv.routes.watchers) == 1)
        server.namesrv.boot.is_draining = True
        server.namesrv.routes.watchers.wake(None)
        before = request_count(server)
        for _ in range(20):
            await settle()
        assert request_count(server) <= before + 1

        await server.clock.advance(3.0)
        await until(lambda: request_count(server) >= before + 2)
        watching.cancel()
        await asyncio.wait([watching])
        server.namesrv.boot.is_draining = False


@pytest.mark.slow
def test_events_are_followed_across_a_restart(tmp_path: Path) -> None:
    """New events of several servers appear, also after a restart; Ctrl-C exits with 0."""
    with Daemon(tmp_path / "1").listening() as one, Daemon(tmp_path / "2").listening() as two:
        where, other = one.where, two.where
        with Peer(one.address) as peer:
            FIRST.register(peer)
        follow = [*COMMAND, *at(where, other), "events", "-f", "--limit", "1", "-o", "json"]
        with Terminal(follow, columns=400) as shown:
            shown.wait_for('"evict"')
            with Peer(two.address) as peer:
                SECOND.register(peer)
                shown.wait_for("broker-b")
            one.stop()
            shown.wait_for(f"namesrvctl: no connection to {where}")
            flags = ("--listen-port", where.rpartition(":")[2], "--wait-for-service-seconds", "0")
            with Daemon(tmp_path / "1", *flags).listening() as again:
                shown.wait_for(f"namesrvctl: {where}: restarted")
                with Peer(again.address) as peer:
                    SECOND.register(peer)
                    shown.wait_for('"register"', count=2)
            shown.interrupt()
            assert shown.wait() == 0

    printed = [json.loads(line) for line in shown.shown.splitlines() if line.startswith("{")]
    assert list(dict.fromkeys(event["server"] for event in printed)) == [where, other]
    assert [event["event"] for event in printed if event["server"] == where][:3] == ["evict", "route", "register"]
    assert [event["event"] for event in printed if event["server"] == other][:2] == ["route", "register"]


@asynccontextmanager
async def servers_at(where: str) -> AsyncIterator[Servers]:
    """The servers of a command line that names one."""
    async with Servers([where], timeout_seconds=3.0, signing=SigningSettings(), tls=None) as servers:
        yield servers


def json_output(where: str) -> Output:
    """The output of a command for one server with `-o json`."""
    return Output(Options((where,), "json", None, 3.0, color=False, yes=False))


def request_count(server: InProcess) -> int:
    """The number of requests of the watching client."""
    peers = [connection.peer for connection in server.namesrv.slots.connections.values()]
    return max((peer.requests for peer in peers if peer.role == "client"), default=0)


async def test_watch_prints_the_first_state_and_each_change(tmp_path: Path) -> None:
    """Each change has the old and new facts and the whole new route."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER)
        watching = asyncio.create_task(ctl(*at(where), "watch", "T", "X", "T", "--changes", "4", "-o", "json"))
        # server info, first state, and the pending watch
        await until(lambda: request_count(server) == 3)
        await peer.register(OTHER)
        await until(lambda: request_count(server) == 4)
        await peer.call(205, {"brokerName": "broker-a"})
        await until(lambda: request_count(server) == 5)
        await peer.call(216, {"topic": "T"})
        await until(lambda: request_count(server) == 6)
        await peer.call(104, OTHER.ext)
        await peer.register(OTHER)
        done = await watching

    printed = [json.loads(line) for line in done.lines]
    assert (done.code, done.err, {one["server"] for one in printed}) == (0, "", {where})
    changes = ["T first", "X first", "T changed", "T changed", "T vanished", "T appeared"]
    assert [f"{one['topic']} {one['change']}" for one in printed] == changes
    assert (printed[1]["facts"], printed[1]["route"], printed[4]["route"]) == ({}, None, None)
    assert printed[2]["facts"] == {
        "address of broker-b/0": {"old": None, "new": "10.0.0.3:10911"},
        "queues on broker-b": {"old": None, "new": RW},
    }
    assert [queues["broker_name"] for queues in printed[2]["route"]["queues"]] == ["broker-a", "broker-b"]
    assert printed[3]["facts"] == {"queues on broker-a": {"old": RW, "new": RO}}


async def test_watch_shows_the_topics_that_are_not_refused(tmp_path: Path) -> None:
    """Without access to one of several topics, the others are watched, and the exit code is 1."""
    async with one_server(tmp_path, access=TWO_TOPICS) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER)
        watching = asyncio.create_task(ctl(*at(where), "watch", "T", "secret", "V", "--changes", "1"))
        await until(lambda: len(server.namesrv.routes.watchers) == 1)
        await peer.register(OTHER)
        done = await watching

    assert [line.split("  ", 1)[1] for line in done.lines] == [
        "T  on broker-a",
        "V  absent",
        f"T  queues on broker-b: - -> {RW}; address of broker-b/0: - -> {OTHER.addr}",
    ]
    assert done.code == 1
    (refusal,) = done.problems[-1:]
    assert refusal.startswith(f"{where}: topic secret: refused with code 16: account here lacks route-read for topic")


async def test_watch_polls_an_apache_server(tmp_path: Path) -> None:
    """An Apache server has no watches, so that `watch` polls it."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        peer = await server.connect()
        watching = asyncio.create_task(ctl(*at(server, apache), "watch", "T", "--changes", "2"))
        await until(lambda: (105, "T") in apache.requests and len(server.namesrv.routes.watchers) == 1)
        await peer.register(MASTER)
        done = await watching

        shown = [line.split("  ", 2)[1:] for line in done.lines]
        for one in (server, apache):
            assert [text for name, text in shown if name == address_of(one)] == ["T  absent", "T  appeared on broker-a"]


@pytest.mark.slow
def test_watch_continues_across_a_restart(tmp_path: Path) -> None:
    """A difference after the restart is a change; Ctrl-C exits with 0."""
    with Daemon(tmp_path / "data").listening() as daemon:
        where = daemon.where
        with Peer(daemon.address) as peer:
            FIRST.register(peer)
            with Terminal([*COMMAND, "-s", where, "watch", "orders", "nothing"], columns=60) as shown:
                shown.wait_for("nothing  absent")
                daemon.stop()
                shown.wait_for(f"namesrvctl: no connection to {where}")
                flags = ("--listen-port", where.rpartition(":")[2], "--wait-for-service-seconds", "0")
                with Daemon(tmp_path / "data", *flags).listening() as again, Peer(again.address) as new_peer:
                    shown.wait_for("orders  vanished")
                    SECOND.register(new_peer)
                    shown.wait_for("orders  appeared on broker-b")
                    FIRST.register(new_peer)
                    shown.wait_for(f"queues on {FIRST.name}: - -> ")
                    assert f"namesrvctl: {where}: answers again" in shown.shown
                    shown.interrupt()
                    assert shown.wait() == 0
                    assert "Traceback" not in shown.shown
