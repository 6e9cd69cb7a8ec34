"""Answers to operators in the native protocol (20002 to 20005)."""

import os
from pathlib import Path
from typing import Any

import pytest

from namesrv import version
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import (
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    native_registration,
    outcome,
    registration,
    value,
)
from tests.support.raw_peer import until

MASTER = Broker()
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")
PULL_ROUTES, SERVER_INFO, RECENT_EVENTS, LIST_CONNECTIONS, LIST_BROKERS = range(20001, 20006)


async def ask(peer: NamesrvPeer, code: int, **members: Any) -> Any:
    """The body of an answer; without members the question has none."""
    answer = await peer.call(code, None, native(members) if members else b"", spelling="native")
    assert (0, None) == outcome(answer)
    return value(answer)


@pytest.mark.parametrize("spelling", ["json", "binary"])
async def test_other_spellings_are_not_supported(peer: NamesrvPeer, spelling: Spelling) -> None:
    """As by any other NameServer: these bodies have only the native spelling."""
    for code in (PULL_ROUTES, SERVER_INFO, RECENT_EVENTS, LIST_CONNECTIONS, LIST_BROKERS):
        answer = await peer.call(code, spelling=spelling)
        assert (3, f" request type {code} not supported but with serialize type 77") == outcome(answer)


@pytest.mark.parametrize("code", [RECENT_EVENTS, LIST_CONNECTIONS, LIST_BROKERS])
async def test_question_that_is_none_is_refused(peer: NamesrvPeer, code: int) -> None:
    """Code 1 says what is wrong."""
    answer = await peer.call(code, None, b"[]", spelling="native")

    assert 1 == answer.code
    assert str(answer.remark).endswith(" cannot be read: Expected `object`, got `int`")


@pytest.mark.settings(nameserver_name="ns-1")
async def test_server_info_describes_the_run(server: InProcess) -> None:
    """What it is, how much it knows, what it has done."""
    peer, other = await server.connect(), await server.connect()
    await peer.register(MASTER)
    await peer.register(ELSEWHERE, registration("U", "V"))
    await peer.call(904, MASTER.ext)
    await other.call(105, {"topic": "T"})
    await other.call(105, {"topic": "T"}, spelling="native")
    server.clock.step_wall(3600)
    await server.clock.advance(2.5)

    assert {
        "boot_id": server.namesrv.boot_id,
        "nameserver": "ns-1",
        "revision": 2,
        "ready": True,
        "readiness": "ready: no brokers expected",
        "draining": False,
        "started_ms": 1_700_000_000_000,
        "uptime_seconds": 2.5,
        "version": version(),
        "pid": os.getpid(),
        "clusters": 2,
        "brokers": 2,
        "topics": 3,
        "connections": 2,
        "watchers": 0,
        "pulls": 2,
        "heartbeats": 1,
        "refusals": {},
        "last_event_seq": 4,
    } == await ask(peer, SERVER_INFO)


async def test_server_info_tells_whom_it_waits_for(tmp_path: Path) -> None:
    """It is answered before the server is ready, and its boot id is another one in each run."""
    async with namesrv_in_process(tmp_path) as server:
        first = server.namesrv.boot_id
        await (await server.connect()).register(MASTER)

    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await server.clock.advance(3)

        info = await ask(peer, SERVER_INFO)

    waiting = "not ready: waiting 42 s more for 1 of 1 expected brokers: cluster-1/broker-a/0 at 10.0.0.1:10911"
    assert (False, waiting) == (info["ready"], info["readiness"])
    assert first != info["boot_id"]


async def test_server_info_counts_refusals(server: InProcess) -> None:
    """By reason."""
    peer, hostile = await server.connect(), await server.connect()
    hostile.send(b"GET / HTTP/1.1\r\n\r\n")
    assert await hostile.at_end()

    info = await ask(peer, SERVER_INFO)

    assert {"frame_too_large": 1} == info["refusals"]


async def test_recent_events_are_numbered(server: InProcess, peer: NamesrvPeer) -> None:
    """From 1 on, the changed route before what changed it."""
    await peer.register(MASTER, native_registration("T"), spelling="native")
    await server.clock.advance(2)
    await peer.call(104, MASTER.ext)

    found = await ask(peer, RECENT_EVENTS)

    assert server.namesrv.boot_id == found["boot_id"]
    identity = {"cluster": "cluster-1", "broker_name": "broker-a", "broker_id": 0, "broker_addr": "10.0.0.1:10911"}
    at, later = 1_700_000_000_000, 1_700_000_002_000
    assert [
        {"seq": 1, "event": "route", "ts_ms": at, "revision": 1, "topics": ["T"], "count": 1},
        {"seq": 2, "event": "register", "ts_ms": at, **identity, "kind": "full", "topics": 1},
        {"seq": 3, "event": "unregister", "ts_ms": later, **identity},
        {"seq": 4, "event": "route", "ts_ms": later, "revision": 2, "topics": ["T"], "count": 1},
        {"seq": 5, "event": "evict", "ts_ms": later, **identity, "reason": "unregistered", "silent_ms": 2000},
    ] == found["events"]


async def test_recent_events_can_be_asked_for_in_parts(server: InProcess, peer: NamesrvPeer) -> None:
    """`since` is the last number known; of too many the last ones come."""
    for n in range(5):
        server.namesrv.events.append({"event": f"e{n}"})

    async def numbers(**members: int) -> list[int]:
        return [event["seq"] for event in (await ask(peer, RECENT_EVENTS, **members))["events"]]

    assert [1, 2, 3, 4, 5] == await numbers()
    assert [4, 5] == await numbers(since=3)
    assert [] == await numbers(since=5)
    assert [4, 5] == await numbers(limit=2)
    assert [5] == await numbers(since=2, limit=1)

    for n in range(1_000):
        server.namesrv.events.append({"event": f"f{n}"})
    assert [6, 1005] == [(await numbers())[0], (await numbers())[-1]]
    refused = await peer.call(RECENT_EVENTS, None, native({"limit": 1001}), spelling="native")
    assert 1 == refused.code


@pytest.mark.settings(drain_seconds=100.0)
async def test_questions_of_a_draining_server_are_answered(server: InProcess) -> None:
    """SERVER_INFO says that it is leaving; a watch does not wait any more."""
    first, last = await server.connect(), await server.connect()
    await first.register(Broker())
    # clients are sent away before brokers
    server.controller.ask_to_stop()
    await until(lambda: server.namesrv.is_draining)
    while server.find_connection(last) is not None:
        await server.clock.advance(0.02)

    assert (await ask(first, SERVER_INFO))["draining"]
    found = await ask(first, PULL_ROUTES, topics=["T"], boot_id=server.namesrv.boot_id, since=1, wait_ms=60_000)
    assert {} == found["routes"]
