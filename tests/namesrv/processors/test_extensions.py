"""Responses to operators in the native protocol."""

import os
from pathlib import Path
from typing import Any

import pytest

from namesrv import version
from namesrv.routeinfo.tables import effects
from namesrv.routeinfo.tables.effects import Effect
from namesrv_remoting.bodies.extensions import EVENT_TYPES
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.requests import REQUESTS
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import (
    ELSEWHERE,
    MASTER,
    NamesrvPeer,
    Spelling,
    native,
    registration,
)

PULL_ROUTES, SERVER_INFO, RECENT_EVENTS = RequestCode.PULL_ROUTES, RequestCode.SERVER_INFO, RequestCode.RECENT_EVENTS
LIST_SETTINGS, LIST_KV_NAMESPACES = RequestCode.LIST_SETTINGS, RequestCode.LIST_KV_NAMESPACES
EXTENSIONS = [code for code, kind in REQUESTS.items() if kind.is_extension]


async def ask(peer: NamesrvPeer, code: int, **members: Any) -> Any:
    """The body of the response to a request with these members."""
    response = await peer.call(code, None, native(members) if members else b"", spelling="native")
    assert response.outcome == (0, None)
    return response.value


@pytest.mark.parametrize("spelling", ["json", "binary"])
async def test_extensions_need_the_native_protocol(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Extensions are unknown in other serializations, as on any other NameServer."""
    for code in EXTENSIONS:
        response = await peer.call(code, spelling=spelling)
        assert response.outcome == (3, f" request type {code} not supported but with serialize type 77")


@pytest.mark.settings(nameserver_name="ns-1")
async def test_server_info(server: InProcess) -> None:
    """SERVER_INFO has the identity of the boot, the sizes of the tables, and counters."""
    peer, other, hostile = await server.connect(), await server.connect(), await server.connect()
    hostile.send(b"GET / HTTP/1.1\r\n\r\n")
    assert await hostile.at_end()
    await peer.register(MASTER)
    await peer.register(ELSEWHERE, registration("U", "V"))
    # the fast path answers repeated requests
    for _ in range(2):
        await peer.call(904, MASTER.ext)
        await other.call(105, {"topic": "T"})
        await other.call(105, {"topic": "T"}, spelling="native")
    server.clock.step_wall(3600)
    await server.clock.advance(2.5)
    info = await ask(peer, SERVER_INFO)
    traffic = info.pop("traffic")

    # Two registrations, three heartbeats and route requests of the dispatcher, and three of the fast path.
    responses = traffic.pop("response_counts")
    assert (sum(responses), len(responses)) == (5, len(traffic.pop("response_bounds")) + 1)
    assert traffic == {
        "requests": 8, "heartbeats": 2, "registrations": 2, "evictions": 0,
        "memory_bytes": server.namesrv.memory_bytes(),
    }  # fmt: skip
    assert info == {
        "boot_id": server.namesrv.boot.id, "nameserver": "ns-1", "revision": 2, "ready": True,
        "readiness": "ready: no brokers expected", "draining": False, "started_ms": 1_700_003_600_000,
        "uptime_seconds": 2.5, "version": version(), "pid": os.getpid(), "clusters": 2, "brokers": 2, "topics": 3,
        "connections": 2, "watchers": 0, "pulls": 2, "heartbeats": 1, "refusals": {"frame_too_large": 1},
        "last_event_seq": 4, "problems": [],
    }  # fmt: skip


@pytest.mark.parametrize("step_seconds", [3600.0, -3600.0])
async def test_ages_are_right_after_a_step_of_the_wall_clock(server: InProcess, step_seconds: float) -> None:
    """All times of a server are on its wall clock as it is set now, which is its start plus its uptime."""
    peer = await server.connect()
    await peer.register(MASTER)
    server.clock.step_wall(step_seconds)
    await server.clock.advance(2.5)

    (connection,) = (await ask(peer, RequestCode.LIST_CONNECTIONS))["connections"]
    registered, *_ = (await ask(peer, RECENT_EVENTS))["events"]
    info = await ask(peer, SERVER_INFO)

    now_ms = round(server.clock.wall() * 1000)
    assert info["started_ms"] + 1000 * info["uptime_seconds"] == now_ms
    assert [now_ms - connection["since_ms"], now_ms - registered["ts_ms"]] == [2_500, 2_500]


async def test_recent_events_are_paged(server: InProcess, peer: NamesrvPeer) -> None:
    """`since` is the last known number, and `limit` selects the latest events after it."""
    for n in range(1_005):
        server.namesrv.events.append({"event": f"e{n}"})

    members: list[tuple[dict[str, int], list[int]]] = [
        ({}, list(range(6, 1006))),
        ({"since": 1003}, [1004, 1005]),
        ({"since": 1005}, []),
        ({"limit": 2}, [1004, 1005]),
        ({"since": 1002, "limit": 1}, [1005]),
    ]
    for asked, numbers in members:
        assert [event["seq"] for event in (await ask(peer, RECENT_EVENTS, **asked))["events"]] == numbers
    assert (await peer.call(RECENT_EVENTS, None, native({"limit": 1001}), spelling="native")).code == 1


async def test_kv_namespaces_are_listed(server: InProcess, peer: NamesrvPeer) -> None:
    """Each namespace has its number of keys; one that lost its last key stays, as in the file."""
    assert await ask(peer, LIST_KV_NAMESPACES) == {"namespaces": {}}
    for namespace, key in (("b", "k"), ("a", "k"), ("a", "l")):
        assert (await peer.call(100, {"namespace": namespace, "key": key, "value": "v"})).outcome == (0, None)
    assert (await peer.call(102, {"namespace": "b", "key": "k"})).outcome == (0, None)

    assert await ask(peer, LIST_KV_NAMESPACES) == {"namespaces": {"a": 2, "b": 0}}


@pytest.mark.parametrize("is_administered", [False, True])
async def test_settings_are_listed_with_their_origin(tmp_path: Path, is_administered: bool) -> None:
    """Each setting has its origin and how it can be changed; paths are shown to administrators only."""
    origins = {"log_level": "file /etc/namesrv.toml", "scan_interval_seconds": "default"}
    async with namesrv_in_process(tmp_path, admin_enabled=is_administered, origins=origins) as server:
        peer = await server.connect()
        await peer.call(318, None, b"enableTopicList=false")
        found = {one["key"]: one for one in (await ask(peer, LIST_SETTINGS))["settings"]}

    assert found["logLevel"] == {
        "key": "logLevel",
        "name": "log-level",
        "value": "info",
        "origin": "file /etc/namesrv.toml" if is_administered else "file",
        "changed_by": "reload",
    }
    assert tuple(found["scanNotActiveBrokerInterval"][name] for name in ("value", "origin", "changed_by")) == (
        "10000",
        "default",
        "restart",
    )
    assert tuple(found["enableTopicList"][name] for name in ("origin", "changed_by")) == (
        "request" if is_administered else None,
        "request",
    )
    assert is_administered == ("dataDir" in found)


def test_event_types_are_those_of_the_effects() -> None:
    """Commands refuse other types, so that the list has all of them."""
    classes = [value for value in vars(effects).values() if isinstance(value, type) and issubclass(value, Effect)]

    assert {each.event_name for each in classes} - {""} == set(EVENT_TYPES)
