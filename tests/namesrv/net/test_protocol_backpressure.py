"""Backpressure: a peer with too many requests or unread responses does not slow down other peers."""

import asyncio
from typing import Any

import pytest

from namesrv.net.dispatcher import Reply
from namesrv.net.fairness.budget import LARGE_BYTES
from namesrv.net.fairness.fair_scheduler import BatchSize, FairScheduler
from namesrv.net.protocol import ServerConnection
from namesrv.net.request import Request
from tests.support.fake_clock import settle, until
from tests.support.raw_peer import RawPeer
from tests.support.serving import ECHO, Gate, Serving, serving
from tests.support.spelling import JSON, cut, json_frame

MEBIBYTE = 1024 * 1024
LARGE = 10
# as many as exceed the kernel's buffers
REQUESTS = 24


def requests(count: int, code: int = LARGE, body: bytes = b"") -> bytes:
    """Requests with the opaques from 1 on."""
    return b"".join(json_frame(code, opaque, None, body) for opaque in range(1, count + 1))


async def large_response(request: Request) -> Reply:
    """A handler with a response of 1 MiB."""
    return Reply(bytes(MEBIBYTE))


def fast_response(connection: ServerConnection, frame: bytes) -> bytes | None:
    """A fast path with responses of 16 KiB that have the request's opaque."""
    opaque = int(frame.partition(b'"opaque":')[2].split(b",")[0].rstrip(b"}"))
    return json_frame(0, opaque, body=bytes(16 * 1024), flag=1)


async def stuck(served: Serving, asked: bytes) -> tuple[RawPeer, ServerConnection]:
    """A peer that has sent these requests and reads nothing, once its unsent responses stop moving."""
    peer = await served.connect(receive_buffer=4096)
    connection = served.connection_of(peer)
    peer.send(asked)
    unsent = -1
    while not connection.is_write_paused or unsent != connection.unsent_bytes:
        unsent = connection.unsent_bytes
        await settle()
    return peer, connection


async def is_served(served: Serving) -> bool:
    """Return true if a new peer is answered."""
    peer = await served.connect()
    return (await peer.ask(json_frame(ECHO, 7))).opaque == 7


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "one read"])
@pytest.mark.parametrize(("body", "most", "is_watch"), [(b"", 4, False), (b"", 4, True), (bytes(60 * 1024), 5, False)])
async def test_requests_in_flight_are_bounded(at_once: bool, body: bytes, most: int, is_watch: bool) -> None:
    """Requests and watches in flight are bounded by number and by size; further ones wait, and none is lost."""
    gate = Gate()
    concurrent = frozenset({10} if is_watch else ())
    async with serving({10: gate}, concurrent=concurrent, max_in_flight=4 if most == 4 else 256) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        asked = requests(10, 10, body)
        if at_once:
            connection.data_received(asked)
        for at in range(0, 0 if at_once else len(asked), len(asked) // 10):
            peer.send(asked[at : at + len(asked) // 10])
            await settle()
        peer.send(json_frame(10, 11))
        await settle()
        assert connection.in_flight == most
        assert await is_served(served)
        assert connection.in_flight == most

        gate.open()
        assert list(range(1, 12)) == sorted([(await peer.receive()).opaque for _ in range(11)])


async def test_decoding_is_bounded_in_time() -> None:
    """Decoding of the requests of one read pauses after 5 ms until the next loop iteration."""
    # the fast JSON decoder rejects single quotes
    odd = cut(JSON, b"{'code':1,'opaque':7,'extFields':{%b}}" % b",".join(b"'k%d':'v'" % i for i in range(200)))
    async with serving() as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        connection.data_received(odd * 50)
        assert 0 < connection.peer.requests < 50

        assert [(await peer.receive()).opaque for _ in range(50)] == [7] * 50


async def test_pipelined_frames_stay_undecoded() -> None:
    """Of 50 pipelined requests on each of 40 connections, no connection decodes more than 8 before their responses."""
    in_flight = [0]

    def note_iteration() -> None:
        in_flight.append(sum(connection.in_flight for connection in served.server.connections.values()))
        loop.call_soon(note_iteration)

    loop = asyncio.get_running_loop()
    async with serving() as served:
        peers = [await served.connect() for _ in range(40)]
        loop.call_soon(note_iteration)
        for peer in peers:
            served.connection_of(peer).data_received(requests(50, ECHO))
        responses = [[(await peer.receive()).opaque for _ in range(50)] for peer in peers]

    assert responses == [list(range(1, 51))] * 40
    assert max(in_flight) <= 40 * 8


@pytest.mark.parametrize(
    ("asked", "fast"),
    # a late frame behind them does not keep the connection open
    [(requests(REQUESTS), False), (requests(REQUESTS) + json_frame(ECHO, 7)[:9], False), (requests(2000), True)],
    ids=["dispatcher", "half a frame behind", "fast path"],
)
async def test_peer_that_does_not_read_is_closed(asked: bytes, fast: bool) -> None:
    """Requests of a peer that does not read wait; after 31 s its connection is closed, and other peers are served."""
    options: dict[str, Any] = {"fast_path": fast_response} if fast else {}
    async with serving({LARGE: large_response}, write_buffer_bytes=16 * MEBIBYTE, **options) as served:
        peer, connection = await stuck(served, asked)
        assert connection.unsent_bytes <= MEBIBYTE + 64 * 1024
        received = connection.peer.requests
        peer.send(requests(1))
        await served.clock.advance(30)
        assert "slow_reader" not in served.observer.reasons
        if not fast:
            assert await is_served(served)
        assert connection.peer.requests == received

        await served.clock.advance(1)
        assert served.observer.refused[-1] == (connection.id, "slow_reader", "peer does not read")
        await until(lambda: served.observer.closed)


async def test_closing_connection_of_a_peer_that_does_not_read_is_aborted() -> None:
    """A connection that the server closes, as for a drain, lets its peer read for 31 s at most."""
    async with serving({LARGE: large_response}) as served:
        peer, connection = await stuck(served, requests(REQUESTS))
        await served.server.close_connections([connection], 0.0)
        await served.clock.advance(30)
        assert (connection.is_open, served.observer.closed) == (False, [])

        await served.clock.advance(1)
        await until(lambda: served.observer.closed)
        assert served.observer.refused == [(connection.id, "slow_reader", "peer does not read")]
        peer.close()


async def test_closing_connection_sends_its_responses() -> None:
    """A peer that reads in time gets the responses of a connection that the server closes, and is not refused.

    Requests that arrive meanwhile are not handled, and nothing more is sent.
    """
    async with serving({LARGE: large_response}) as served:
        peer, connection = await stuck(served, requests(REQUESTS))
        await served.server.close_connections([connection], 0.0)
        received = connection.peer.requests
        connection.data_received(json_frame(ECHO, 2))
        connection.write(json_frame(ECHO, 3))
        assert (connection.peer.requests, connection.is_open) == (received, False)
        await served.clock.advance(29)

        peer.widen()
        unread, sizes = await peer.reader.read(-1), []
        while unread:
            sizes.append(4 + int.from_bytes(unread[:4]))
            assert len(unread) >= sizes[-1]
            unread = unread[sizes[-1] :]
        assert min(sizes) > MEBIBYTE
        await until(lambda: served.observer.closed)
        assert served.observer.refused == []


async def test_peer_that_reads_again_gets_every_response() -> None:
    """A peer that pauses reading for less than the deadline gets every response, and the deadline ends."""
    async with serving({LARGE: large_response}) as served:
        peer, _ = await stuck(served, requests(REQUESTS))
        peer.send(requests(1))
        await served.clock.advance(29)

        peer.widen()
        assert [(await peer.receive()).opaque for _ in range(1 + REQUESTS)] == [*range(1, 1 + REQUESTS), 1]
        await served.clock.advance(100)
        assert served.observer.refused == []
        assert (await peer.ask(json_frame(ECHO, 7))).opaque == 7


async def test_concurrent_responses_are_bounded_by_the_write_buffer() -> None:
    """A peer that does not read concurrent responses is closed when they exceed the write buffer."""
    gate = Gate()

    async def late_response(request: Request) -> Reply:
        await gate(request)
        return Reply(bytes(MEBIBYTE))

    async with serving({10: late_response}, concurrent=frozenset({10}), write_buffer_bytes=4 * MEBIBYTE) as served:
        peer = await served.connect(receive_buffer=4096)
        peer.send(requests(REQUESTS))
        await until(lambda: len(gate.came) == REQUESTS)
        gate.open()
        await until(lambda: served.observer.closed)

        assert served.observer.refused == [(1, "slow_reader", "peer does not read")]
        assert await is_served(served)


async def test_fast_path_waits_until_its_last_response_is_sent() -> None:
    """Bytes that the socket does not take are unsent, and no further request is read until they are sent."""
    responses: list[bytes] = []

    def response(_: ServerConnection, frame: bytes) -> bytes | None:
        responses.append(cut(JSON, b'{"code":0,"opaque":%d}' % len(responses), b"%d" % len(responses) * MEBIBYTE))
        return responses[-1]

    async def ask(peer: RawPeer) -> None:
        before = len(responses)
        peer.send(json_frame(ECHO, 1))
        await until(lambda: len(responses) > before)

    async with serving(fast_path=response) as served:
        peer = await served.connect(receive_buffer=4096)
        connection = served.connection_of(peer)
        while not connection.is_write_paused:
            await ask(peer)
        peer.widen()
        assert list(range(len(responses))) == [(await peer.receive()).opaque for _ in responses]
        assert not connection.unsent_bytes
        await ask(peer)
        assert b"%d" % (len(responses) - 1) * MEBIBYTE == (await peer.receive()).body
        assert len(b"".join(responses)) == served.server.bytes_sent


async def test_long_responses_to_one_read_arrive_in_order() -> None:
    """More than 64 KiB of responses of the fast path to one read take several writes; none is lost or moved."""
    async with serving(fast_path=fast_response) as served:
        peer = await served.connect()
        served.connection_of(peer).data_received(requests(10))

        responses = [await peer.receive() for _ in range(10)]
        assert [(response.opaque, len(response.body)) for response in responses] == [
            (opaque, 16 * 1024) for opaque in range(1, 11)
        ]
        assert served.server.dispatcher.answered == {}


async def test_unread_responses_of_the_fast_path_take_little_memory() -> None:
    """A peer that pipelines and does not read holds no more than needs no reservation, beside its last response."""
    async with serving(fast_path=fast_response) as served:
        before = served.server.budget.used_bytes
        for _ in range(4):
            await stuck(served, requests(512))
        used = served.server.budget.used_bytes - before

    assert used <= 4 * 2 * LARGE_BYTES


async def test_frames_behind_a_request_wait_for_it_to_begin() -> None:
    """Frames behind a request that waits for its turn take no processor time, and are answered after it."""
    scheduler = FairScheduler(BatchSize(1))
    async with serving(scheduler=scheduler) as served:
        peer = await served.connect()
        crowd = [asyncio.create_task(scheduler.begin()) for _ in range(100)]
        await asyncio.sleep(0)
        served.connection_of(peer).data_received(requests(3, ECHO))
        await until(lambda: scheduler.has_waiting(served.connection_of(peer)))
        await asyncio.sleep(0)
        waiting = set[str]()
        while scheduler.has_waiting(served.connection_of(peer)):
            waiting.add(repr(served.server.read_shares))
            await asyncio.sleep(0)

        assert waiting == {"<ReadShares [1 networks | 0 waiting]>"}
        assert [(await peer.receive()).opaque for _ in range(3)] == [1, 2, 3]
        await asyncio.gather(*crowd)
