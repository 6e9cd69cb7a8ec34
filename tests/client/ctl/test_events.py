"""The command `events`."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from namesrv_client.ctl.commands.following import missed_between, what
from namesrv_remoting.bodies.extensions import Event, Events
from tests.support import broker as sync_broker
from tests.support.apache_server import ApacheFront
from tests.support.ctl import COMMAND, address_of, at, ctl, nobody
from tests.support.daemon import Daemon
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, native_registration
from tests.support.peer import Peer
from tests.support.terminal import Terminal

MASTER = Broker()


async def test_events_are_shown_oldest_first(tmp_path: Path) -> None:
    """When, which number, what, and who."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER, native_registration("T"), spelling="native")
        await server.clock.advance(2.25)
        await peer.call(104, MASTER.ext)

        shown = await ctl(*at(server), "events")

    at_first, later = "2023-11-14 22:13:20.000", "2023-11-14 22:13:22.250"
    who = "cluster-1/broker-a/0 10.0.0.1:10911"
    assert (0, "") == (shown.code, shown.err)
    assert [
        ["TIME", "NUMBER", "EVENT", "WHAT"],
        [at_first, "1", "route", "revision=1 topics=T count=1"],
        [at_first, "2", "register", f"{who} kind=full topics=1"],
        [later, "3", "unregister", who],
        [later, "4", "route", "revision=2 topics=T count=1"],
        [later, "5", "evict", f"{who} reason=unregistered silent_ms=2250"],
    ] == shown.cells


async def test_events_for_programs_are_the_servers_own(tmp_path: Path) -> None:
    """Chosen by number, kind and count."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER, native_registration("T"), spelling="native")

        async def numbers(*options: str) -> list[int]:
            found = await ctl(*at(server), "events", "-o", "json", *options)
            return [event["seq"] for event in found.json["servers"][0]["events"]]

        found = await ctl(*at(server), "events", "--since", "1", "-o", "json")
        assert {
            "servers": [
                {
                    "server": address_of(server),
                    "events": [
                        {
                            "seq": 2,
                            "event": "register",
                            "ts_ms": 1_700_000_000_000,
                            "cluster": "cluster-1",
                            "broker_name": "broker-a",
                            "broker_id": 0,
                            "broker_addr": "10.0.0.1:10911",
                            "kind": "full",
                            "topics": 1,
                        }
                    ],
                }
            ]
        } == found.json
        for _ in range(100):
            server.namesrv.events.append({"event": "more"})
        assert [1, 2] == await numbers("--type", "route", "--type", "register")
        assert [2] == await numbers("--type", "route", "--type", "register", "--limit", "1")
        assert [101, 102] == await numbers("--limit", "2")
        assert 50 == len(await numbers())


async def test_apaches_server_does_not_tell_what_happened(tmp_path: Path) -> None:
    """Nor is there anything to follow."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        for options in ((), ("--follow",)):
            found = await ctl(*at(apache), "events", *options)
            reason = "refused with code 3: not supported by Apache's NameServer"
            assert (1, "", f"namesrvctl: {address_of(apache)}: {reason}\n") == found


async def test_following_nobody_ends_at_once() -> None:
    """As any question that nobody answers."""
    with nobody() as absent:
        found = await ctl(*at(absent), "events", "--follow")

    assert (2, "") == (found.code, found.out)


def test_event_is_told_in_words() -> None:
    """A broker in one word, everything else by name; what is not there is left out."""
    broker = {"cluster": "c", "broker_name": "b", "broker_id": 1, "broker_addr": "a:1"}

    assert "c/b/1 a:1" == what(broker)
    assert "c/b/1 a:1 reason=silent" == what({**broker, "reason": "silent", "x": None})
    assert "cluster=c topics=T,U n=0" == what({"cluster": "c", "topics": ["T", "U"], "n": 0})


@pytest.mark.parametrize(
    ("known", "found", "missed"), [((6,), (7, 8), 0), ((6,), (), 0), ((6,), (10,), 3), ((), (3,), 2)]
)
def test_events_that_were_overwritten_are_counted(known: Sequence[int], found: Sequence[int], missed: int) -> None:
    """A server remembers 1,000; more than that between two questions is lost."""
    before, after = (Events("boot", [Event(number, "route", None, {}) for number in it]) for it in (known, found))

    assert missed == missed_between(before, after)


def test_events_are_followed_over_a_restart(tmp_path: Path) -> None:
    """New ones within a second, told apart by server; Ctrl-C is the ordinary end."""
    first, second = sync_broker.Broker(), sync_broker.Broker(name="broker-b", addr="10.0.0.2:10911")
    with Daemon(tmp_path / "1").listening() as one, Daemon(tmp_path / "2").listening() as two:
        (host, port), other = one.address, "{}:{}".format(*two.address)
        where = f"{host}:{port}"
        with Peer(one.address) as peer:
            first.register(peer)
        with Terminal(
            [*COMMAND, *at(where, other), "events", "-f", "--limit", "1", "-o", "json"], columns=400
        ) as shown:
            shown.wait_for('"evict"')
            with Peer(two.address) as peer:
                second.register(peer)
                shown.wait_for("broker-b")
            one.stop()
            shown.wait_for(f"namesrvctl: no connection to {where}")
            with Daemon(
                tmp_path / "1", "--listen-port", str(port), "--wait-for-service-seconds", "0"
            ).listening() as again:
                shown.wait_for(f"namesrvctl: {where}: restarted")
                with Peer(again.address) as peer:
                    second.register(peer)
                    shown.wait_for('"register"', count=2)
            shown.interrupt()
            assert 0 == shown.wait()

    told = [json.loads(line) for line in shown.shown.splitlines() if line.startswith("{")]
    assert [where, other] == list(dict.fromkeys(event["server"] for event in told))
    assert ["evict", "route", "register"] == [event["event"] for event in told if event["server"] == where][:3]
    assert ["route", "register"] == [event["event"] for event in told if event["server"] == other][:2]
