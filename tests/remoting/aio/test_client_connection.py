"""What callers see when the server misbehaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.client_connection import ClientConnection
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import ConnectionClosedError, RemoteProtocolError, RequestTimeoutError
from tests.support.fake_clock import FakeClock, settle
from tests.support.scripted_server import Peer, Question, ScriptedServer

MEBIBYTE = 1 << 20


class Asked(NamedTuple):
    """Three questions that the server has received and not answered."""

    server: ScriptedServer
    client: RemotingClient
    peer: Peer
    calls: list[asyncio.Task[RemotingCommand]]
    questions: list[Question]


@asynccontextmanager
async def asked(**options: Any) -> AsyncIterator[Asked]:
    """Three questions on the wire of a new connection."""
    async with ScriptedServer() as server, RemotingClient(server.address, clock=FakeClock(), **options) as client:
        calls = [asyncio.create_task(client.invoke(105, timeout_seconds=3.0)) for _ in range(3)]
        peer = await server.accept()
        yield Asked(server, client, peer, calls, [await peer.receive() for _ in calls])


async def failures(calls: list[asyncio.Task[RemotingCommand]]) -> list[ConnectionClosedError]:
    """The errors that calls on a connection that ended have come to."""
    errors = await asyncio.gather(*calls, return_exceptions=True)
    closed = [error for error in errors if isinstance(error, ConnectionClosedError)]
    assert len(calls) == len(closed)
    return closed


async def test_close_in_the_middle_fails_what_is_not_answered() -> None:
    """The answer before the end counts; the others fail at once, and the table is empty."""
    async with asked() as (server, client, peer, calls, questions):
        peer.answer(questions[1].opaque, b"in time")
        peer.close()

        assert (await calls[1]).body == b"in time"
        for error in await failures([calls[0], calls[2]]):
            assert f"connection to {server.address} was closed by the peer" == str(error)
        assert client.pending_count == 0


async def test_end_inside_a_frame_is_said() -> None:
    """Half an answer is none."""
    async with asked() as (server, _, peer, calls, __):
        peer.send(b'\x00\x00\x00\x19\x00\x00\x00\x15{"flag":1,')
        peer.close()

        for error in await failures(calls):
            assert f"connection to {server.address} was closed by the peer inside a frame" == str(error)


async def test_reset_is_a_loss_with_its_cause() -> None:
    """The system's error is told, and is the cause."""
    async with asked() as (server, client, peer, calls, _):
        peer.reset()

        for error in await failures(calls):
            assert str(error).startswith(f"connection to {server.address} was lost: ")
            assert isinstance(error.__cause__, ConnectionResetError)
        assert client.pending_count == 0


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "frame of 1213486164 bytes, limit 16777216"),
        (b"\x00\x00\x00\x02\x00\x00\x00\x00", "frame length 2, minimum 4"),
        (b"\x00\x00\x00\x06\x02\x00\x00\x02{}", "unknown serialize type 2, expected 0, 1 or 77"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x02[]", "header cannot be read: Expected `object`, got `array`"),
        (b"\x00\x00\x00\x05\x4d\x00\x00\x01\x90", "header cannot be read: Expected `array`"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x04\x00\x00\x00\x00", "binary header: "),
    ],
)
async def test_garbage_closes_the_connection(garbage: bytes, reason: str) -> None:
    """The answer before it counts, the rest fails with the protocol error as cause, the next question reconnects."""
    async with asked() as (server, client, peer, calls, questions):
        peer.send(
            b'\x00\x00\x00\x1a\x00\x00\x00\x15{"flag":1,"opaque":%d}!' % questions[0].opaque
            + garbage
            + b'\x00\x00\x00\x1a\x00\x00\x00\x15{"flag":1,"opaque":%d}?' % questions[1].opaque
        )

        assert (await calls[0]).body == b"!"
        for error in await failures(calls[1:]):
            assert str(error).startswith(f"connection to {server.address} broke the protocol: {reason}")
            assert isinstance(error.__cause__, RemoteProtocolError)
        assert await peer.at_end()
        assert (False, 0) == (client.connected, client.pending_count)

        again = asyncio.create_task(client.invoke(106, timeout_seconds=3.0))
        second = await server.accept()
        second.answer((await second.receive()).opaque)
        await again


async def test_answer_beyond_the_limit_closes_the_connection() -> None:
    """Refused by its length, before anything of it is kept."""
    async with asked(max_frame_bytes=1024) as (_, __, peer, calls, ___):
        peer.send(b"\x00\x00\x03\xfd")

        for error in await failures(calls):
            assert str(error).endswith(" broke the protocol: frame of 1025 bytes, limit 1024")


async def test_loss_is_told_with_its_cause() -> None:
    """Also when nobody waits for an answer."""
    losses: asyncio.Queue[ConnectionClosedError] = asyncio.Queue()
    async with asked(on_connection_lost=losses.put_nowait) as (server, _, peer, calls, questions):
        for question in questions:
            peer.answer(question.opaque)
        await asyncio.gather(*calls)
        peer.send(b"\xff\xff\xff\xff")

        loss = await losses.get()
        assert f"connection to {server.address} broke the protocol: frame of 4294967299 bytes, limit 16777216" == str(
            loss
        )
        assert isinstance(loss.__cause__, RemoteProtocolError)


async def test_callback_that_raises_ends_the_connection() -> None:
    """The loop reports the bug, and the calls fail with it as the cause instead of waiting for ever."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def bug(request: RemotingCommand) -> None:
        raise LookupError("bug in the callback")

    async with asked(on_request=bug) as (_, client, peer, calls, __):
        peer.send(b'\x00\x00\x00\x19\x00\x00\x00\x15{"code":905,"flag":2}')

        for error in await failures(calls):
            assert isinstance(error.__cause__, LookupError)
        assert client.pending_count == 0
    assert [LookupError] == [type(context["exception"]) for context in reported]


# -- a server that does not read --------------------------------------------------------------------------------------


def connection_of(client: RemotingClient) -> ClientConnection:
    """The connection that a client has."""
    assert client._connection is not None
    return client._connection


async def fill(client: RemotingClient) -> None:
    """Send until nothing goes any more: the kernel's buffers and the transport's are full."""
    await client.oneway(904, timeout_seconds=3.0)
    for _ in range(100):
        if not connection_of(client)._writable.is_set():
            return
        await client.oneway(904, body=bytes(MEBIBYTE), timeout_seconds=3.0)
        await settle()
    pytest.fail("a hundred mebibytes were taken by a server that does not read")


@asynccontextmanager
async def stuck() -> AsyncIterator[tuple[Peer, RemotingClient, FakeClock]]:
    """A server that has stopped reading, and a client that has noticed."""
    clock = FakeClock()
    async with ScriptedServer() as server, RemotingClient(server.address, clock=clock) as client:
        connecting = asyncio.create_task(client.oneway(904, timeout_seconds=3.0))
        peer = await server.accept()
        await connecting
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
        await fill(client)
        yield peer, client, clock
        peer.writer.transport.abort()


async def test_senders_wait_for_a_server_that_does_not_read() -> None:
    """Questions and notices are not piled up here: they wait, and give up when their time is over."""
    async with stuck() as (_, client, clock):
        buffered = connection_of(client).transport.get_write_buffer_size()
        call = asyncio.create_task(client.invoke(105, body=bytes(MEBIBYTE), timeout_seconds=3.0))
        notice = asyncio.create_task(client.oneway(904, body=bytes(MEBIBYTE), timeout_seconds=3.0))
        await settle()
        assert (buffered, 0) == (connection_of(client).transport.get_write_buffer_size(), client.pending_count)

        await clock.advance(3.0)
        for late in (call, notice):
            with pytest.raises(RequestTimeoutError):
                await late
        assert client.connected


async def test_senders_go_on_when_the_server_reads_again() -> None:
    """Whoever waited is sent, and answered."""
    async with stuck() as (peer, client, _):
        call = asyncio.create_task(client.invoke(105, timeout_seconds=3.0))
        await settle()
        assert client.pending_count == 0

        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        while (question := await peer.receive()).code != 105:
            pass
        peer.answer(question.opaque, b"at last")
        assert (await call).body == b"at last"


async def test_senders_fail_when_the_connection_is_lost() -> None:
    """A sender that waits for the server to read is not left waiting when the server is gone."""
    async with stuck() as (peer, client, _):
        call = asyncio.create_task(client.invoke(105, timeout_seconds=3.0))
        await settle()

        peer.reset()
        with pytest.raises(ConnectionClosedError):
            await call


async def test_close_does_not_wait_long_for_a_server_that_does_not_read() -> None:
    """It has one second to read what was sent; then the connection is cut."""
    async with stuck() as (_, client, clock):
        closing = asyncio.create_task(client.close())
        await clock.advance(0.9)
        assert not closing.done()
        await clock.advance(0.1)
        await closing
        assert not client.connected


async def test_end_of_the_answers_ends_the_questions() -> None:
    """A server that has sent its last byte answers nothing more: callers know at once, though it still might read."""
    async with asked() as (_, client, peer, calls, __):
        peer.writer.write_eof()

        for error in await failures(calls):
            assert str(error).endswith(" was closed by the peer")
        assert not client.connected


async def test_requests_of_a_server_that_does_not_read_are_not_refused() -> None:
    """Refusals that it does not read would pile up here; it gets none until it reads again."""
    async with asked() as (_, client, peer, calls, questions):
        connection_of(client).pause_writing()
        peer.send(b'\x00\x00\x00\x1b\x00\x00\x00\x17{"code":905,"opaque":8}')
        peer.answer(questions[0].opaque)
        await calls[0]
        connection_of(client).resume_writing()
        peer.send(b'\x00\x00\x00\x1b\x00\x00\x00\x17{"code":905,"opaque":9}')

        assert (await peer.receive()).opaque == 9
        peer.close()
        await failures(calls[1:])


async def test_repr_shows_how_it_ended() -> None:
    """Peer, state and pending calls."""
    connection = ClientConnection("a:1", max_frame_bytes=1024, on_request=None, on_lost=lambda *_: None)
    assert repr(connection) == "<ClientConnection [a:1 | not open | 0 pending]>"
    with pytest.raises(ConnectionClosedError, match=r"^connection to a:1 is not open$"):
        _ = connection.transport

    async with asked() as (server, client, peer, calls, _):
        connected = connection_of(client)
        assert f"<ClientConnection [{server.address} | open | 3 pending]>" == repr(connected)
        peer.close()
        await failures(calls)
        assert f"<ClientConnection [{server.address} | was closed by the peer | 0 pending]>" == repr(connected)
