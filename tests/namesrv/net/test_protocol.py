"""One connection answers all its requests, in any pieces."""

import logging

import pytest

from namesrv.net.dispatcher import Reply
from namesrv.net.peer import Peer
from namesrv.net.protocol import ServerConnection
from namesrv.net.request import Request
from namesrv_remoting.errors import SystemError_
from tests.support.fake_clock import settle, until
from tests.support.serving import ECHO, FAIL, Feed, Gate, every_feeding, serving
from tests.support.spelling import BINARY, JSON, NATIVE, ONEWAY, RESPONSE, binary_frame, cut, json_frame, native_frame

SPELLINGS = {JSON: json_frame, BINARY: binary_frame, NATIVE: native_frame}


@every_feeding
async def test_pipelined_requests_are_answered_in_order(feed: Feed) -> None:
    """Header, ext fields and body of each pipelined request arrive in any serialization, and come back in order.

    The body of a binary request begins after its ext fields, as in Java, with any declared header length.
    """
    kinds = [list(SPELLINGS)[opaque % 3] for opaque in range(30)]
    requests = [SPELLINGS[kind](ECHO, opaque, {"a": "b"}, b"%d" % opaque) for opaque, kind in enumerate(kinds)]
    shifted = bytearray(binary_frame(ECHO, 30, None, b"0123456789"))
    shifted[7] += 4
    async with serving() as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        assert connection.peer == Peer(peer.address, network="127.0.0.1")
        await feed(peer, b"".join(requests) + bytes(shifted))

        for opaque, kind in enumerate(kinds):
            response = await peer.receive()
            assert response.serialize_type == (NATIVE if kind == NATIVE else JSON)
            assert (response.code, response.opaque, response.body) == (0, opaque, b"%d" % opaque)
            assert response.ext_fields is not None
            assert response.ext_fields["a"] == "b"
        assert (await peer.receive()).body == b"012345"
        assert (connection.peer.requests, connection.peer.serialize_type) == (31, BINARY)
        assert (connection.in_flight, connection.unsent_bytes, connection.is_open) == (0, 0, True)


async def test_requests_of_one_connection_run_one_after_the_other() -> None:
    """The second request starts after the first is answered; requests of other connections do not wait."""
    gate = Gate()
    async with serving({10: gate}) as served:
        first, second = await served.connect(), await served.connect()
        first.send(json_frame(10, 1) + json_frame(10, 2) + json_frame(ECHO, 3))
        await until(lambda: gate.came)
        await settle()
        assert gate.came == [1]
        assert (await second.ask(json_frame(ECHO, 4))).opaque == 4

        gate.open()
        assert [(await first.receive()).opaque for _ in range(3)] == [1, 2, 3]


async def test_concurrent_requests_are_answered_out_of_order() -> None:
    """A concurrent request delays no later request of its connection; the opaque identifies each response."""
    gates = {1: Gate(), 2: Gate()}

    async def wait(request: Request) -> Reply:
        return await gates[request.command.opaque or 0](request)

    async with serving({10: wait}, concurrent=frozenset({10})) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1) + json_frame(10, 2) + json_frame(ECHO, 3))

        assert (await peer.receive()).opaque == 3
        for opaque in (2, 1):
            gates[opaque].open()
            assert (await peer.receive()).opaque == opaque
        assert served.connection_of(peer).in_flight == 0


@every_feeding
async def test_oneway_requests_and_responses_get_no_response(feed: Feed) -> None:
    """One-way requests are handled without a response, also after an error; responses from a peer are ignored."""
    done: list[int | None] = []

    async def note(request: Request) -> Reply:
        done.append(request.command.opaque)
        return Reply()

    async def refuse(request: Request) -> Reply:
        raise SystemError_("no")

    frames = [
        *(spell(10, opaque, flag=ONEWAY) for opaque, spell in enumerate(SPELLINGS.values())),
        *(spell(10, 10, flag=RESPONSE) for spell in SPELLINGS.values()),
        json_frame(10, 11, flag=RESPONSE | ONEWAY),
        *(json_frame(code, flag=ONEWAY) for code in (11, FAIL, 99999)),
    ]
    async with serving({10: note, 11: refuse}) as served:
        peer = await served.connect()
        await feed(peer, b"".join(frames) + json_frame(ECHO, 7))

        assert (await peer.receive()).opaque == 7
        assert done == [0, 1, 2]


async def test_response_of_a_peer_is_no_request() -> None:
    """A response is not counted, and leaves the connection one that has sent no request."""
    async with serving() as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        response = native_frame(ECHO, 7, flag=RESPONSE)
        peer.send(response)
        await until(lambda: served.server.bytes_received == len(response))
        assert connection.peer == Peer(peer.address, network="127.0.0.1")

        await served.clock.advance(121)
        assert await peer.at_end()
        assert served.observer.reasons == ["silent"]


async def test_exception_in_a_handler_becomes_code_1(caplog: pytest.LogCaptureFixture) -> None:
    """The request gets code 1, the log a traceback with the peer's address, and the connection goes on."""
    async with serving() as served:
        peer = await served.connect()
        peer.send(json_frame(FAIL, 1) + json_frame(ECHO, 2))

        failed, echoed = await peer.receive(), await peer.receive()
        assert [(failed.opaque, failed.code), (echoed.opaque, echoed.code)] == [(1, 1), (2, 0)]
        assert failed.remark == "internal error: ZeroDivisionError; see the server's log"
        [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert record.getMessage() == f"request 2 from {peer.address} failed"
        assert record.exc_info is not None
        assert ZeroDivisionError is record.exc_info[0]


class RecordingFastPath:
    """A fast path that answers JSON requests with their body, swallows native ones and leaves binary ones."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []

    def __call__(self, connection: ServerConnection, frame: bytes) -> bytes | None:
        body = frame[8 + int.from_bytes(frame[5:8]) :]
        self.seen.append((frame[4], body))
        if b"left" in body:
            return None
        return {JSON: cut(JSON, b'{"code":0,"opaque":0}', body), NATIVE: b""}.get(frame[4])


@every_feeding
async def test_fast_path_sees_every_frame_first(feed: Feed) -> None:
    """A frame that the fast path leaves goes to the dispatcher; all frames are counted."""
    fast_path = RecordingFastPath()
    sent = [(JSON, b"fast"), (NATIVE, b"swallowed"), (BINARY, b"dispatched"), (JSON, b"left"), (JSON, b"fast, too")]
    async with serving(fast_path=fast_path) as served:
        peer = await served.connect()
        await feed(peer, b"".join(SPELLINGS[kind](ECHO, 1, None, body) for kind, body in sent))

        bodies = {(await peer.receive()).body for _ in range(4)}
        assert bodies == {b"fast", b"dispatched", b"left", b"fast, too"}
        assert fast_path.seen == sent
        assert ((connection := served.connection_of(peer)).peer.requests, connection.peer.serialize_type) == (5, JSON)
