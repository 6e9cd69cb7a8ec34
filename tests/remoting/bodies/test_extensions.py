"""The questions of the native protocol are read, and their bounds kept."""

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.bodies.base import CHUNK_BYTES
from namesrv_remoting.bodies.extensions import (
    MAX_PULL_BYTES,
    ListBrokersRequest,
    ListConnectionsRequest,
    Pull,
    PullRoutesRequest,
    RecentEventsRequest,
    from_msgpack,
    heartbeat_state,
    list_brokers_request,
    list_connections_request,
    pull_in_steps,
    pull_routes_request,
    recent_events_request,
    to_msgpack,
)
from namesrv_remoting.errors import BadRequestError
from tests.support.commands import TEXT
from tests.support.steps import finished, steps_and_result

READERS: list[Callable[[bytes], object]] = [
    pull_routes_request,
    recent_events_request,
    list_connections_request,
    list_brokers_request,
    heartbeat_state,
]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x81\xa6topics\x90", PullRoutesRequest([], None, 0, 0)),
        (
            b"\x84\xa6topics\x92\xa1T\xa1U\xa7boot_id\xa2b1\xa5since\x07\xa7wait_ms\xcd\x75\x30",
            PullRoutesRequest(["T", "U"], "b1", 7, 30_000),
        ),
        (b"\x82\xa6topics\x91\xa1T\xa7boot_id\xc0", PullRoutesRequest(["T"], None, 0, 0)),
        (b"\x82\xa6topics\x91\xa1T\xa7wait_ms\xce\x00\x04\x93\xe0", PullRoutesRequest(["T"], None, 0, 300_000)),
        (b"\x82\xa6topics\x91\xa1T\xa6future\x90", PullRoutesRequest(["T"], None, 0, 0)),
    ],
)
def test_pull_routes(body: bytes, expected: PullRoutesRequest) -> None:
    """The topics alone are a batch pull; with boot id and revision it is conditional, with a wait it is a watch."""
    assert expected == pull_routes_request(body)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "Input data was truncated"),
        (b"\x80", "Object missing required field `topics`"),
        (b"\x81\xa6topics\xc0", "Expected `array`, got `None` - at `$.topics`"),
        (b"\x81\xa6topics\x91\xa0", "Expected `str` of length >= 1 - at `$.topics[0]`"),
        (b"\x81\xa6topics\x91\xda\x01\x00" + b"t" * 256, "Expected `str` of length <= 255 - at `$.topics[0]`"),
        (b"\x82\xa6topics\x90\xa5since\xff", "Expected `int` >= 0 - at `$.since`"),
        (b"\x82\xa6topics\x90\xa7wait_ms\xff", "Expected `int` >= 0 - at `$.wait_ms`"),
        (b"\x82\xa6topics\x90\xa7wait_ms\xce\x00\x04\x93\xe1", "Expected `int` <= 300000 - at `$.wait_ms`"),
        (b"\x82\xa6topics\x90\xa7boot_id\x01", "Expected `str | null`, got `int` - at `$.boot_id`"),
        (b"\x81\xa6topics\xdd\x00\x01\x86\xa1" + b"\xa1T" * 100_001, "Expected `array` of length <= 100000"),
        (b"\x81\xa6topics\xdd\xff\xff\xff\xff", "Expected `array` of length <= 100000"),
    ],
)
def test_pull_routes_that_cannot_be_is_refused(body: bytes, error: str) -> None:
    """The remark names the member; a wait is at most five minutes, a batch at most 100,000 topics."""
    with pytest.raises(BadRequestError) as caught:
        pull_routes_request(body)
    assert (caught.value.remark or "").startswith(f"body of PULL_ROUTES cannot be read: {error}")


def large_pull(**members: object) -> bytes:
    """A question about many topics, one of them twice."""
    return msgspec.msgpack.encode({"topics": [f"topic-{number}" for number in range(20_000)] + ["topic-7"], **members})


def test_large_pull_is_read_in_steps() -> None:
    """As a small one is, each topic once; what nobody knows is skipped."""
    body = large_pull(boot_id="b1", future=[1], since=7, wait_ms=30_000)
    steps, found = steps_and_result(pull_in_steps(body))

    assert Pull(found.topics, "b1", 7, 30_000) == found
    assert [f"topic-{number}" for number in range(20_000)] == list(found.topics)
    assert steps >= len(body) // CHUNK_BYTES
    assert Pull({"T": None}.keys(), None, 0, 0) == finished(pull_in_steps(b"\x81\xa6topics\x92\xa1T\xa1T"))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (large_pull(since=-1), "body of PULL_ROUTES cannot be read: Expected `int` >= 0 - at `$.since`"),
        (large_pull()[:-1], "body of PULL_ROUTES cannot be read: unexpected end of data"),
        (large_pull() + b"\xc0", "body of PULL_ROUTES cannot be read: trailing bytes"),
        (b"\x81\xa1x" + large_pull(), "body of PULL_ROUTES cannot be read: value of more than 65536 bytes"),
        (b"\x81\xa1x\xc4" + bytes(40_000), "body of PULL_ROUTES cannot be read: trailing bytes"),
        (b"\x81\xa6topics\xdd\x00\x01\x86\xa1" + b"\xa1T" * 100_001, "100001 topics in one question, limit 100000"),
        (bytes(MAX_PULL_BYTES + 1), f"body of PULL_ROUTES: {MAX_PULL_BYTES + 1} bytes, limit {MAX_PULL_BYTES}"),
    ],
)
def test_large_pull_that_cannot_be_is_refused(body: bytes, error: str) -> None:
    """With what is wrong, and where."""
    with pytest.raises(BadRequestError) as caught:
        finished(pull_in_steps(body))
    assert (caught.value.remark or "").startswith(error)


def test_other_questions_may_come_without_a_body() -> None:
    """Then they ask for everything."""
    assert RecentEventsRequest(since=0, limit=1000) == recent_events_request(b"") == recent_events_request(b"\x80")
    assert ListConnectionsRequest(role=None) == list_connections_request(b"") == list_connections_request(b"\x80")
    assert ListBrokersRequest(None, None) == list_brokers_request(b"") == list_brokers_request(b"\x80")


def test_other_questions_may_ask_for_less() -> None:
    """Events after a sequence number, connections of a role, brokers of a cluster or a name."""
    assert RecentEventsRequest(since=7, limit=1) == recent_events_request(b"\x82\xa5since\x07\xa5limit\x01")
    assert ListConnectionsRequest("broker") == list_connections_request(b"\x81\xa4role\xa6broker")
    assert ListBrokersRequest("c", "a") == list_brokers_request(b"\x82\xa7cluster\xa1c\xabbroker_name\xa1a")


@pytest.mark.parametrize(
    "body", [b"\x81\xa5limit\x00", b"\x81\xa5limit\xcd\x03\xe9", b"\x81\xa5since\xff", b"\xc0", b"\x90"]
)
def test_events_that_cannot_be_are_refused(body: bytes) -> None:
    """1 to 1,000 of them, after a number that is none below 0."""
    with pytest.raises(BadRequestError, match=r"^body of RECENT_EVENTS cannot be read: "):
        recent_events_request(body)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (b"", None),
        (b"\x80", None),
        (b"\x81\xa5state\xc0", None),
        (b"\x81\xa5state\x80", {}),
        (
            b"\x81\xa5state\x85\xa5queue\x07\xa4disk\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00\xa2ok\xc3\xa4role\xa1m\xa1n\xc0",
            {"queue": 7, "disk": 0.5, "ok": True, "role": "m", "n": None},
        ),
    ],
)
def test_heartbeat_may_carry_a_state(body: bytes, state: dict[str, object] | None) -> None:
    """A flat map of the broker's own figures; None when it sends none."""
    assert state == heartbeat_state(body)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"\x81\xa5state\x90", "body of BROKER_HEARTBEAT cannot be read: Expected `object | null`, got `array`"),
        (b"\x81\xa5state\x81\xa1k\x80", "body of BROKER_HEARTBEAT cannot be read: Expected"),
        (b"\x81\xa5state\x81\x07\xa1v", "body of BROKER_HEARTBEAT cannot be read: Expected `str`"),
        (b"\x81\xa5state\x81\xa1k\xda\x3f\xf4" + b"v" * 16372, "state of 16385 bytes, limit 16384"),
    ],
)
def test_state_is_small_and_flat(body: bytes, error: str) -> None:
    """It is kept for every live broker."""
    with pytest.raises(BadRequestError) as caught:
        heartbeat_state(body)
    assert (caught.value.remark or "").startswith(error)


def test_largest_state_is_taken() -> None:
    """16 KiB to the byte."""
    body = b"\x81\xa5state\x81\xa1k\xda\x3f\xf3" + b"v" * 16371

    assert 16384 == len(body)
    assert {"k": "v" * 16371} == heartbeat_state(body)


@given(st.binary(max_size=80))
def test_no_bytes_break_the_readers(body: bytes) -> None:
    """A question or a refusal: nothing else."""
    for read in READERS:
        with contextlib.suppress(BadRequestError):
            read(body)


# -- answers ----------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.integers(-9, 9), inner, max_size=4),
    max_leaves=12,
)


def test_answer_is_written_to_the_byte() -> None:
    """Plain maps, integer keys as integers."""
    assert b"\x82\xa7boot_id\xa2b1\xa6routes\x81\xa1T\xc0" == to_msgpack({"boot_id": "b1", "routes": {"T": None}})
    assert b"\x81\x00\xa3x:1" == to_msgpack({0: "x:1"})


@given(VALUES)
def test_answer_round_trip(value: object) -> None:
    """What a server packs, a client unpacks."""
    assert value == from_msgpack(to_msgpack(value))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81\xa1k",
        b"\x80\x80",
        b"\xa1\xff",
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xdb\x00\x10\x00\x01",
        b"\xdd\x00\x10\x00\x01",
        b"\xdf\x00\x10\x00\x01",
        b"\x81\x90\x00",
        b"\x81\x80\x00",
        b"\x91" * 2000,
    ],
    ids=["nothing", "no such byte", "cut", "two", "not utf-8", "ext", "long text", "long array", "long map",
         "array as key", "map as key", "deep"],
)  # fmt: skip
def test_answer_that_is_none_is_a_value_error(body: bytes) -> None:
    """A server that answers nonsense, or more than any answer is, breaks nothing in its client."""
    with pytest.raises(ValueError):  # noqa: PT011 - in msgpack's words
        from_msgpack(body)
