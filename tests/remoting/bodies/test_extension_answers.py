"""The answers of 20001 to 20005 come out of what servers write, and nothing else."""

from typing import Any

import msgpack
import pytest

from namesrv_remoting.bodies.extension_answers import (
    Event,
    Events,
    read_brokers,
    read_connections,
    read_events,
    read_routes,
    read_server_info,
)
from namesrv_remoting.bodies.route import route_members
from namesrv_remoting.errors import RemoteProtocolError
from tests.support.route_clients import topic_route


def native(**changes: Any) -> bytes:
    """An answer to PULL_ROUTES."""
    said = {"boot_id": "b00t", "revision": 7, "ready": True, "full": True, "routes": {}}
    packed: bytes = msgpack.packb({**said, **changes})
    return packed


def test_pulled_routes() -> None:
    """A route, and a topic that positively does not exist."""
    found = read_routes(native(routes={"t": route_members(topic_route("broker-a")), "u": None}))

    assert {"t": topic_route("broker-a"), "u": None} == found.routes
    assert ("b00t", 7, True, True) == (found.boot_id, found.revision, found.ready, found.full)


def test_routes_that_are_spelt_the_same_are_decoded_once() -> None:
    """Most topics of a cluster have the route of most others."""
    spelt = route_members(topic_route("broker-a"))

    found = read_routes(native(routes={"t": spelt, "u": spelt})).routes

    assert found["t"] is found["u"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        b"\x93\x01\x02\x03",
        native(revision="seven"),
        native(routes={"t": 3}),
        native(routes={"t": {"broker_datas": [{}], "queue_datas": []}}),
        native()[:-1],
        # a map that claims to have four billion members
        b"\xdf\xff\xff\xff\xff",
    ],
)
def test_what_is_no_answer_to_a_pull_is_the_servers_fault(body: bytes) -> None:
    """And says so."""
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        read_routes(body)


def test_server_info_takes_what_a_client_needs() -> None:
    """Which run, and since when."""
    found = read_server_info(
        msgpack.packb({"boot_id": "b00t", "uptime_seconds": 12.5, "brokers": 3, "refusals": {"x": 1}})
    )

    assert ("b00t", 12.5) == (found.boot_id, found.uptime_seconds)


@pytest.mark.parametrize("body", [b"", msgpack.packb({}), msgpack.packb({"boot_id": "b", "uptime_seconds": "long"})])
def test_what_is_no_server_info_is_the_servers_fault(body: bytes) -> None:
    """A client that took it would end by a bug."""
    with pytest.raises(RemoteProtocolError, match="SERVER_INFO"):
        read_server_info(body)


@pytest.mark.parametrize("read", [read_server_info, read_brokers, read_connections, read_events])
@pytest.mark.parametrize(
    "members",
    [
        None,
        [],
        {},
        {"brokers": 1, "connections": 1, "events": 1},
        {"brokers": [{}], "connections": [{}], "events": [{}]},
    ],
)
def test_native_answer_that_is_none_is_the_peers_fault(read: object, members: object) -> None:
    """Nothing past the decoder meets it."""
    with pytest.raises(RemoteProtocolError, match=r"^body of .* cannot be read: "):
        read(msgpack.packb(members))  # type: ignore[operator]  # one of the functions above


def test_members_that_are_not_known_are_left_alone() -> None:
    """A newer server tells more."""
    event = {"seq": 7, "event": "e", "ts_ms": 5, "x": 1, "list": ["a", None]}
    body = msgpack.packb({"boot_id": "b", "events": [event], "new": {}})

    found = read_events(body)

    assert Events("b", [Event(7, "e", 5, {"x": 1, "list": ["a", None]})]) == found
    assert event == found.events[0].members()


def test_nested_members_of_an_event_are_refused() -> None:
    """Events are flat; a nest a thousand deep would end in a traceback."""
    body = msgpack.packb({"boot_id": "b", "events": [{"seq": 1, "event": "e", "x": {"y": 1}}]})

    with pytest.raises(RemoteProtocolError):
        read_events(body)
