"""Requests and responses of the native extension codes, and their limits."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack
import msgspec
import pytest

from namesrv_remoting.bodies.base import CHUNK_BYTES
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import (
    BrokersResponse,
    ConnectionsResponse,
    Event,
    Events,
    EventsResponse,
    ListBrokersRequest,
    ListConnectionsRequest,
    Pull,
    PullRoutesRequest,
    RecentEventsRequest,
    RequestBody,
    ServerInfo,
    heartbeat_state,
    pull_in_steps,
    read_events,
    read_routes,
)
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError
from tests.support.route_clients import topic_route
from tests.support.steps import finished, steps_and_result

REQUEST_BODIES: list[type[RequestBody]] = [
    PullRoutesRequest,
    RecentEventsRequest,
    ListConnectionsRequest,
    ListBrokersRequest,
]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x81\xa6topics\x90", PullRoutesRequest([], None, 0, 0)),
        (
            b"\x84\xa6topics\x92\xa1T\xa1U\xa7boot_id\xa2b1\xa5since\x07\xa7wait_ms\xcd\x75\x30",
            PullRoutesRequest(["T", "U"], "b1", 7, 30_000),
        ),
        (b"\x82\xa6topics\x91\xa1T\xa7wait_ms\xce\x00\x04\x93\xe0", PullRoutesRequest(["T"], None, 0, 300_000)),
        (b"", RecentEventsRequest(since=0, limit=1000)),
        (b"\x80", RecentEventsRequest(since=0, limit=1000)),
        (b"\x82\xa5since\x07\xa5limit\x01", RecentEventsRequest(since=7, limit=1)),
        (b"", ListConnectionsRequest(role=None)),
        (b"\x81\xa4role\xa6broker", ListConnectionsRequest("broker")),
        (b"", ListBrokersRequest(None, None)),
        (b"\x82\xa7cluster\xa1c\xabbroker_name\xa1a", ListBrokersRequest("c", "a")),
    ],
)
def test_request_is_read(body: bytes, expected: RequestBody) -> None:
    """Topics alone are a batch pull, conditional with boot id and revision; other requests default to everything."""
    assert type(expected).read(body) == expected


TOO_MANY = b"\x81\xa6topics\xdd\x00\x01\x86\xa1" + b"\xa1T" * 100_001


def large_pull(**members: object) -> bytes:
    """A pull of many topics, one of them twice."""
    return NATIVE.encode({"topics": [f"topic-{number}" for number in range(20_000)] + ["topic-7"], **members})


def test_large_pull_is_read_in_chunks() -> None:
    """Every topic is read once, and unknown members are skipped."""
    body = large_pull(boot_id="b1", future=[1], since=7, wait_ms=30_000, observes=True)
    steps, found = steps_and_result(pull_in_steps(body))

    assert found == Pull(found.topics, "b1", 7, 30_000, observes=True)
    assert list(found.topics) == [f"topic-{number}" for number in range(20_000)]
    assert steps >= len(body) // CHUNK_BYTES
    assert Pull({"T": None}.keys(), None, 0, 0) == finished(pull_in_steps(b"\x81\xa6topics\x92\xa1T\xa1T"))


@pytest.mark.parametrize(
    ("read", "body", "error"),
    [
        # a wait is at most five minutes, a batch at most 100,000 topics
        *(
            (PullRoutesRequest.read, body, f"body of PULL_ROUTES cannot be read: {error}")
            for body, error in (
                (b"", "Input data was truncated"),
                (b"\x80", "Object missing required field `topics`"),
                (b"\x81\xa6topics\xc0", "Expected `array`, got `None` - at `$.topics`"),
                (b"\x81\xa6topics\x91\xa0", "Expected `str` of length >= 1 - at `$.topics[0]`"),
                (b"\x81\xa6topics\x91\xda\x01\x87" + b"t" * 391, "Expected `str` of length <= 390 - at `$.topics[0]`"),
                (b"\x82\xa6topics\x90\xa5since\xff", "Expected `int` >= 0 - at `$.since`"),
                (b"\x82\xa6topics\x90\xa7wait_ms\xff", "Expected `int` >= 0 - at `$.wait_ms`"),
                (b"\x82\xa6topics\x90\xa7wait_ms\xce\x00\x04\x93\xe1", "Expected `int` <= 300000 - at `$.wait_ms`"),
                (b"\x82\xa6topics\x90\xa7boot_id\x01", "Expected `str | null`, got `int` - at `$.boot_id`"),
                (TOO_MANY, "Expected `array` of length <= 100000"),
            )
        ),
        *(
            (lambda body: finished(pull_in_steps(body)), body, error)
            for body, error in (
                (large_pull(since=-1), "body of PULL_ROUTES cannot be read: Expected `int` >= 0 - at `$.since`"),
                (large_pull()[:-1], "body of PULL_ROUTES cannot be read: unexpected end of data"),
                (large_pull() + b"\xc0", "body of PULL_ROUTES cannot be read: trailing bytes"),
                (b"\x81\xa1x" + large_pull(), "body of PULL_ROUTES cannot be read: value of more than 65536 bytes"),
                (b"\x81\xa1x\xc4" + bytes(40_000), "body of PULL_ROUTES cannot be read: trailing bytes"),
                (TOO_MANY, "100001 topics in one request, limit 100000"),
                (bytes((4 << 20) + 1), "body of PULL_ROUTES: 4194305 bytes, limit 4194304"),
            )
        ),
        # 1 to 1,000 events after a number that is not negative
        *(
            (RecentEventsRequest.read, body, "body of RECENT_EVENTS cannot be read: ")
            for body in (b"\x81\xa5limit\x00", b"\x81\xa5limit\xcd\x03\xe9", b"\x81\xa5since\xff", b"\xc0", b"\x90")
        ),
        # small and flat, because it is kept for every live broker
        *(
            (heartbeat_state, b"\x81\xa5state" + state, error)
            for state, error in (
                (b"\x90", "body of BROKER_HEARTBEAT cannot be read: Expected `object | null`, got `array`"),
                (b"\x81\xa1k\x80", "body of BROKER_HEARTBEAT cannot be read: Expected"),
                (b"\x81\x07\xa1v", "body of BROKER_HEARTBEAT cannot be read: Expected `str`"),
                (b"\x81\xa1k\xda\x3f\xf4" + b"v" * 16372, "state of 16385 bytes, limit 16384"),
                (
                    b"\xde\x01\x01" + b"".join(b"\xa3%03d\x00" % number for number in range(257)),
                    "body of BROKER_HEARTBEAT cannot be read: Expected `object` of length <= 256",
                ),
            )
        ),
    ],
)
def test_invalid_request_is_refused(read: Callable[[bytes], object], body: bytes, error: str) -> None:
    """The remark names the member and the reason."""
    with pytest.raises(BadRequestError) as caught:
        read(body)
    assert (caught.value.remark or "").startswith(error)


@pytest.mark.parametrize("body_type", REQUEST_BODIES)
def test_requests_have_a_size_limit(body_type: type[RequestBody]) -> None:
    """The limit is checked before decoding; only a pull may be large."""
    limit = 4 << 20 if body_type is PullRoutesRequest else 4096
    with pytest.raises(BadRequestError, match=rf"^body of [A-Z_]+: {limit + 1} bytes, limit {limit}$"):
        body_type.read(bytes(limit + 1))


# -- responses --------------------------------------------------------------------------------------------------------

SPELT = msgspec.to_builtins(topic_route("broker-a"))


def pulled(**changes: Any) -> bytes:
    """A response to PULL_ROUTES."""
    return NATIVE.encode({"boot_id": "b00t", "revision": 7, "ready": True, "full": True, "routes": {}, **changes})


def test_pulled_routes() -> None:
    """A route is shared by all of its topics, and None marks a topic that does not exist."""
    found = read_routes(pulled(routes={"t": SPELT, "u": None, "v": SPELT}))

    assert found.routes == {"t": topic_route("broker-a"), "u": None, "v": topic_route("broker-a")}
    assert found.routes["t"] is found.routes["v"]
    assert (found.boot_id, found.revision, found.full) == ("b00t", 7, True)


def test_unknown_members_of_a_response_are_ignored() -> None:
    """A newer server may send more members."""
    found = NATIVE.read_response(
        ServerInfo, msgpack.packb({"boot_id": "b00t", "uptime_seconds": 12.5, "new": {"x": 1}})
    )

    assert found == ServerInfo("b00t", uptime_seconds=12.5)


WRONG_TYPES: tuple[object, ...] = (
    *(None, [], {}),
    {"boot_id": "b", "uptime_seconds": "long", "brokers": 1, "connections": 1, "events": 1},
    {"boot_id": 1, "brokers": [{}], "connections": [{}], "events": [{}]},
)
# events are numbered and flat; deep nesting must not end in a traceback
NO_EVENTS: tuple[dict[str, object], ...] = (
    {},
    {"seq": 1},
    {"seq": "1", "event": "e"},
    {"seq": 1, "event": "e", "x": {"y": 1}},
)


@pytest.mark.parametrize(
    ("read", "body"),
    [
        # a map with a false length of four billion members
        *((read_routes, body) for body in (b"", b"\xc0", b"\x93\x01\x02\x03", b"\xdf\xff\xff\xff\xff", pulled()[:-1])),
        *((read_routes, pulled(**changes)) for changes in ({"revision": "seven"}, {"routes": {"t": 3}})),
        (read_routes, pulled(routes={"t": {"broker_datas": [{}], "queue_datas": []}})),
        *((read_events, msgpack.packb({"boot_id": "b", "events": [event]})) for event in NO_EVENTS),
        *(
            (partial(NATIVE.read_response, kind), msgpack.packb(members))
            for kind in (ServerInfo, BrokersResponse, ConnectionsResponse, EventsResponse)
            for members in WRONG_TYPES
        ),
    ],
)
def test_invalid_response_is_a_remote_error(read: Callable[[bytes], object], body: bytes) -> None:
    """Invalid values do not pass the decoder, and the error blames the server."""
    with pytest.raises(RemoteProtocolError, match=r"^body of \w+ cannot be read: "):
        read(body)


def test_events_have_additional_members() -> None:
    """Additional members are flat."""
    event: dict[str, Any] = {"seq": 7, "event": "e", "ts_ms": 5, "x": 1, "list": ["a", None]}
    found = read_events(NATIVE.encode(EventsResponse("b", [event])))

    assert found == Events("b", [Event(7, "e", 5, {"x": 1, "list": ["a", None]})])
    assert found.events[0].members() == event


@pytest.mark.parametrize(
    ("members", "touches"),
    [
        ({"topics": ["a", "T"], "count": 2}, True),
        ({"topics": ["a", "T"], "count": 9}, True),
        ({"topics": ["a", "b"], "count": 2}, False),
        ({"topics": ["a", "b"], "count": 3}, None),
        ({"topics": ["a", "b"]}, None),
        ({"count": 0}, False),
        ({"topics": "T", "count": 1}, None),
    ],
)
def test_event_touches_a_topic(members: dict[str, Any], touches: bool | None) -> None:
    """An event names the first topics only, and the number of all."""
    assert Event(1, "routes_changed", 0, members).touches("T") is touches
