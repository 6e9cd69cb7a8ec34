"""The questions of the extension codes (20001 to 20005), and native bodies as plain values.

The answers are in `extension_answers.py`.
"""

from collections.abc import KeysView
from typing import Annotated, Any, Final, NamedTuple

import msgpack
import msgspec

from namesrv_remoting.bodies.base import CHUNK_BYTES, Steps, check_size, read_msgpack
from namesrv_remoting.bodies.msgpack_slices import MsgpackSlices
from namesrv_remoting.bodies.topic import TopicName
from namesrv_remoting.errors import BadRequestError

# A poll of everything that a large producer uses; more is a mistake or an attack.
MAX_PULLED_TOPICS: Final = 100_000
# that many topics of 60 bytes; what is not declared is skipped, at 10 ms for each MiB of the costliest
MAX_PULL_BYTES: Final = 6 * 1024 * 1024
# what a question may have
_MAX_MEMBERS: Final = 64
# the other questions: a number, a name or two
MAX_QUESTION_BYTES: Final = 4 * 1024
# Longer than this and a NAT or a proxy in between forgets the connection.
MAX_WAIT_MS: Final = 300_000


class PullRoutesRequest(msgspec.Struct, gc=False):
    """20001: the topics in use, and what is known of them: nothing, or all changes of `boot_id` up to `since`."""

    topics: Annotated[list[TopicName], msgspec.Meta(max_length=MAX_PULLED_TOPICS)]
    boot_id: str | None = None
    since: Annotated[int, msgspec.Meta(ge=0)] = 0
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0


class Pull(NamedTuple):
    """20001, as a server looks at it: each topic once."""

    topics: KeysView[str]
    boot_id: str | None
    since: int
    wait_ms: int


class RecentEventsRequest(msgspec.Struct, gc=False):
    """20003: events after `since`, at most `limit`."""

    since: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000


class ListConnectionsRequest(msgspec.Struct, gc=False):
    """20004: all connections, or those of one role (broker, client, admin)."""

    role: str | None = None


class ListBrokersRequest(msgspec.Struct, gc=False):
    """20005: all live brokers, or those of one cluster or one name."""

    cluster: str | None = None
    broker_name: str | None = None


class HeartbeatBody(msgspec.Struct, gc=False):
    """904, native: the broker's own state (queue depth, disk use, whatever), kept in its live entry."""

    state: dict[str, str | int | float | bool | None] | None = None


_pull_decoder: Final = msgspec.msgpack.Decoder(PullRoutesRequest)
_topics_decoder: Final = msgspec.msgpack.Decoder(list[TopicName])
_name_decoder: Final = msgspec.msgpack.Decoder(str)
_raw_decoder: Final = msgspec.msgpack.Decoder(msgspec.Raw)
_events_decoder: Final = msgspec.msgpack.Decoder(RecentEventsRequest)
_connections_decoder: Final = msgspec.msgpack.Decoder(ListConnectionsRequest)
_brokers_decoder: Final = msgspec.msgpack.Decoder(ListBrokersRequest)
_heartbeat_decoder: Final = msgspec.msgpack.Decoder(HeartbeatBody)


def pull_routes_request(body: bytes) -> PullRoutesRequest:
    """The question in a PULL_ROUTES body. Raises BadRequestError."""
    return read_msgpack(_pull_decoder, body, "PULL_ROUTES", max_bytes=MAX_PULL_BYTES)


def pull_in_steps(body: bytes) -> Steps[Pull]:
    """The same, a large one slice by slice. Raises BadRequestError."""
    if len(body) <= CHUNK_BYTES:
        asked = pull_routes_request(body)
        return Pull(dict.fromkeys(asked.topics).keys(), asked.boot_id, asked.since, asked.wait_ms)
    check_size(body, "PULL_ROUTES", MAX_PULL_BYTES)
    chunks = (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
    slices = MsgpackSlices(chunks, "PULL_ROUTES", "question")
    topics: dict[str, None] = {}
    others: dict[str, Any] = {}
    for _ in range((yield from slices.map_length("members", _MAX_MEMBERS))):
        name = yield from slices.value(_name_decoder)
        if name == "topics":
            # of a member that comes twice the last one counts
            topics.clear()
            others["topics"] = []
            yield from slices.array(
                "topics", MAX_PULLED_TOPICS, _topics_decoder, lambda part: topics.update(dict.fromkeys(part))
            )
        else:
            others[name] = yield from slices.value(_raw_decoder)
    yield from slices.end()
    # what is small is read as in a small question
    rest = pull_routes_request(msgspec.msgpack.encode(others))
    return Pull(topics.keys(), rest.boot_id, rest.since, rest.wait_ms)


def recent_events_request(body: bytes) -> RecentEventsRequest:
    """The question in a RECENT_EVENTS body; none asks for everything. Raises BadRequestError."""
    return (
        read_msgpack(_events_decoder, body, "RECENT_EVENTS", max_bytes=MAX_QUESTION_BYTES)
        if body
        else RecentEventsRequest()
    )


def list_connections_request(body: bytes) -> ListConnectionsRequest:
    """The question in a LIST_CONNECTIONS body; none asks for all. Raises BadRequestError."""
    return (
        read_msgpack(_connections_decoder, body, "LIST_CONNECTIONS", max_bytes=MAX_QUESTION_BYTES)
        if body
        else ListConnectionsRequest()
    )


def list_brokers_request(body: bytes) -> ListBrokersRequest:
    """The question in a LIST_BROKERS body; none asks for all. Raises BadRequestError."""
    return (
        read_msgpack(_brokers_decoder, body, "LIST_BROKERS", max_bytes=MAX_QUESTION_BYTES)
        if body
        else ListBrokersRequest()
    )


# A broker's own state is a handful of figures; it is kept for every live broker and shown to operators.
MAX_STATE_BYTES: Final = 16 * 1024


def heartbeat_state(body: bytes) -> dict[str, Any] | None:
    """The broker's own state in a native heartbeat, None when it sends none.

    Raises:
        BadRequestError: not a small flat map.
    """
    if not body:
        return None
    if len(body) > MAX_STATE_BYTES:
        message = f"state of {len(body)} bytes, limit {MAX_STATE_BYTES}"
        raise BadRequestError(message)
    return read_msgpack(_heartbeat_decoder, body, "BROKER_HEARTBEAT").state


Question = PullRoutesRequest | RecentEventsRequest | ListConnectionsRequest | ListBrokersRequest


def encode_question(question: Question) -> bytes:
    """The body of a question, as a client sends it."""
    return msgspec.msgpack.encode(question)


def to_msgpack(members: object) -> bytes:
    """A native body."""
    packed: bytes = msgpack.packb(members)
    return packed


def from_msgpack(body: bytes) -> Any:
    """A native body as plain values, within the limits of what a server answers.

    Raises:
        ValueError: not msgpack, or larger than any answer is.
    """
    try:
        return msgpack.unpackb(
            body, strict_map_key=False, max_str_len=1 << 20, max_array_len=1 << 20, max_map_len=1 << 20, max_ext_len=0
        )
    except TypeError as error:
        # a map or an array as a map's key
        raise ValueError(str(error)) from error
