"""The fast path gives the dispatcher's responses."""

import asyncio
import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from namesrv.net.protocol import ServerConnection
from namesrv.net.request import Request
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import decode_frame
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import POPULATION, TIMESTAMP, Broker, native, populate
from tests.support.spelling import JSON, NATIVE, ONEWAY, RESPONSE, cut

PULL, HEARTBEAT, DATA_VERSION = 105, 904, 322
# the brokers of a populated server, and an unknown one
BROKER, AGENT, VERSIONLESS = POPULATION
UNKNOWN = Broker("unknown", addr="10.9.9.9:1")

# unusual values of a field
ODD: list[Any] = [
    *("0", "1", "-1", "-0", "00", "+0", " 0", "--0", "", "-", "x", "1e0", "0.0", "true", "null", "\u0660", "1_0"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 23),
    *("T", "zone-1", "ZONE-1", "agent-1", "\u4e3b", None, True, False, 0, 1, 5, -1),
    *((1 << 31), -(1 << 31) - 1, (1 << 63) - 1, -(1 << 63)),
]
FIELDS = [*BROKER.ext, "topic", "__ZONE_MODE", "__ZONE_NAME", "agentId", "registrationSeq", "unknown"]
ZONE = {"__ZONE_MODE": "true", "__ZONE_NAME": "zone-1"}
# code and ext fields, as peers send them
PLAIN: list[tuple[int, dict[str, Any]]] = [
    (PULL, {"topic": "T"}),
    (PULL, {"topic": "null"}),
    (PULL, {"topic": "absent"}),
    (PULL, {"topic": "T", **ZONE}),
    (PULL, {"topic": "U", **ZONE, "__ZONE_NAME": "ZONE-2"}),
    (PULL, {"topic": "T", **ZONE, "__ZONE_MODE": "false"}),
    *itertools.product(
        (HEARTBEAT, DATA_VERSION),
        (
            BROKER.ext,
            AGENT.ext,
            VERSIONLESS.ext,
            UNKNOWN.ext,
            {**AGENT.ext, "agentId": "agent-1", "registrationSeq": 1},
        ),
    ),
]
BODIES = [
    b"",
    json.dumps({"counter": 1, "stateVersion": 0, "timestamp": TIMESTAMP}).encode(),
    b'{"counter":2}',
    b"{counter:1,timestamp:1700000000000}",
    b"null",
    b"[]",
    b"nonsense",
    native({"counter": 1, "state_version": 0, "timestamp": TIMESTAMP}),
    native({"state": {"load": 1}}),
    native({"state": {"load": []}}),
    native(None),
]


class Both(NamedTuple):
    """Results of the fast path and of the dispatcher for one frame."""

    # None if it leaves the frame to the dispatcher
    fast: bytes | None
    # None if it closes the connection
    dispatched: bytes | None
    fast_touched: int
    dispatched_touched: int


async def ask_both(server: InProcess, connection: ServerConnection, data: bytes) -> Both:
    """Both results for a frame that the fast path has learnt, without a socket."""
    body_at = 8 + int.from_bytes(data[5:8])
    try:
        command = decode_frame(Frame(data[4], data[8:body_at], data[body_at:]))
    except RemoteProtocolError:
        return Both(server.namesrv.fast_path.answer(connection, data), None, 0, 0)
    if command.is_response:
        return Both(server.namesrv.fast_path.answer(connection, data), b"", 0, 0)
    server.namesrv.fast_path.learn(data, command)
    before = server.heartbeats
    fast = server.namesrv.fast_path.answer(connection, data)
    fast_touched = server.heartbeats - before
    response = await server.controller.server.dispatcher.answer(Request(command, connection))
    return Both(fast, response.data, fast_touched, server.heartbeats - before - fast_touched)


def meaning(frame: bytes) -> Any:
    """A response for comparison: JSON as bytes, native parsed (an opaque may take more bytes than it needs)."""
    if frame and frame[4] == NATIVE:
        body_at = 8 + int.from_bytes(frame[5:8])
        return msgpack.unpackb(frame[8:body_at]), frame[body_at:]
    return frame


async def check_same(server: InProcess, connection: ServerConnection, data: bytes) -> bool:
    """Assert equal results; return true if the fast path answered. A frame that it leaves has no effect."""
    both = await ask_both(server, connection, data)
    if both.fast is None:
        assert both.fast_touched == 0
        return False
    assert both.dispatched is not None
    assert meaning(both.dispatched) == meaning(both.fast)
    assert both.dispatched_touched == both.fast_touched
    return True


def encode(serialize_type: int, header: dict[str, Any], body: bytes) -> bytes:
    """A frame; a native header has its members in order."""
    if serialize_type == JSON:
        return cut(JSON, json.dumps(header, separators=(",", ":")).encode(), body)
    return cut(NATIVE, msgpack.packb(list(header.values())), body)


@st.composite
def unusual_frames(draw: st.DrawFn) -> bytes:
    """Frames with up to two unusual values or members."""
    serialize_type = draw(st.sampled_from([JSON, NATIVE]))
    code, plain = draw(st.sampled_from(PLAIN))
    ext: Any = dict(plain)
    flag = ONEWAY if serialize_type == JSON and code != PULL and draw(st.booleans()) else 0
    opaque = draw(st.integers(-(1 << 31), (1 << 31) - 1))
    header = {"code": code, "opaque": opaque, "flag": flag, "version": 479, "remark": None, "extFields": ext}
    for _ in range(draw(st.integers(0, 2))):
        match draw(st.sampled_from(["field", "field", "field gone", "flag", "member", "member gone", "code"])):
            case "field":
                ext[draw(st.sampled_from(FIELDS))] = draw(st.sampled_from(ODD))
            case "field gone":
                ext.pop(draw(st.sampled_from(FIELDS)), None)
            case "flag":
                header["flag"] = draw(st.sampled_from([RESPONSE, ONEWAY, RESPONSE | ONEWAY, 4, ONEWAY | 4, -1]))
            case "member":
                header[draw(st.sampled_from(["code", "opaque", "flag", "extFields"]))] = draw(st.sampled_from(ODD))
            case "member gone" if serialize_type == JSON:
                header.pop(draw(st.sampled_from(sorted(header))), None)
            case _:
                header["code"] = draw(st.sampled_from([PULL, HEARTBEAT, DATA_VERSION]))
    return encode(serialize_type, header, draw(st.sampled_from(BODIES)))


@pytest.mark.hypothesis
def test_unusual_frames_get_equal_results() -> None:
    """Frames with unusual fields, flags, members or bodies get equal results on both paths."""
    with asyncio.Runner() as runner, TemporaryDirectory() as directory:
        serving = namesrv_in_process(Path(directory), order_message_enable=True)
        server = runner.run(serving.__aenter__())

        async def connected() -> ServerConnection:
            peer = await server.connect()
            await populate(peer)
            return server.connection_of(peer)

        connection = runner.run(connected())

        @given(data=unusual_frames())
        def same(data: bytes) -> None:
            is_fast = runner.run(check_same(server, connection, data))
            event(f"answered by the fast path: {is_fast}")

        try:
            same()
        finally:
            runner.run(serving.__aexit__(None, None, None))
