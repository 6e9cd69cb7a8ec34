"""The client's connection: ends, slow servers, and closing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.client_connection import ClientConnection, PendingCalls
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import ConnectionClosedError, RemoteProtocolError, RequestTimeoutError
from tests.support.fake_clock import FakeClock, settle
from tests.support.scripted_server import Call, Peer, ScriptedRequest, ScriptedServer, ask, ask_and_answer, frame

MEBIBYTE = 1 << 20


class Pending(NamedTuple):
    """Three requests that the server has received and not answered."""

    server: ScriptedServer
    client: RemotingClient
    peer: Peer
    calls: list[Call]
    requests: list[ScriptedRequest]


@asynccontextmanager
async def pending_requests(**options: Any) -> AsyncIterator[Pending]:
    """Three requests on the wire of a new connection."""
    async with ScriptedServer() as server, RemotingClient(server.address, clock=FakeClock(), **options) as client:
        calls = [ask(client) for _ in range(3)]
        peer = await server.accept()
        yield Pending(server, client, peer, calls, [await peer.receive() for _ in calls])


async def failures(calls: list[Call]) -> list[ConnectionClosedError]:
    """The errors of calls on a connection that has ended."""
    errors = await asyncio.gather(*calls, return_exceptions=True)
    closed = [error for error in errors if isinstance(error, ConnectionClosedError)]
    assert len(calls) == len(closed)
    return closed


PROTOCOL = RemoteProtocolError


def half_an_answer(peer: Peer) -> None:
    """An incomplete response."""
    peer.send(frame({"flag": 1})[:-1])
    peer.close()


@pytest.mark.parametrize(
    ("end", "reason", "cause"),
    [
        (Peer.close, "was closed by the peer", None),
        # the server's write side is closed, although it may still read
        (lambda peer: peer.writer.write_eof(), "was closed by the peer", None),
        (half_an_answer, "was closed by the peer inside a frame", None),
        (Peer.reset, "was lost: ", ConnectionResetError),
        # refused by its length, before any byte of it is kept
        (b"\x00\x00\x03\xfd", "frame of 1025 bytes, limit 1024", PROTOCOL),
        (b"\x00\x00\x00\x06\x00\x00\x00\x02[]", "header cannot be read: Expected `object`, got `array`", PROTOCOL),
    ],
)
async def test_end_of_the_connection_fails_pending_calls(
    end: bytes | Callable[[Peer], object], reason: str, cause: type[Exception] | None
) -> None:
    """An earlier response counts, pending calls fail at once with the reason, and the next request connects again."""
    losses: list[ConnectionClosedError] = []
    async with pending_requests(max_frame_bytes=1024, on_connection_lost=losses.append) as it:
        server, client, peer, calls, requests = it
        in_time, late = ({"code": 0, "flag": 1, "opaque": requests[number].opaque} for number in (1, 0))
        if isinstance(end, bytes):
            reason = f"broke the protocol: {reason}"
            peer.send(frame(in_time, b"in time") + end + frame(late))
        else:
            peer.send(frame(in_time, b"in time"))
            await calls[1]
            end(peer)

        assert (await calls[1]).body == b"in time"
        for error in (*await failures([calls[0], calls[2]]), *losses):
            assert str(error).startswith(f"connection to {server.address} {reason}")
            assert cause in (None, type(error.__cause__))
        assert (client.connected, client.pending_count, client.socket_descriptor, len(losses)) == (False, 0, None, 1)
        await ask_and_answer(client, server)


async def test_callback_that_raises_ends_the_connection() -> None:
    """The loop reports the bug, and pending calls fail with it as the cause."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def bug(request: RemotingCommand) -> None:
        raise LookupError("bug in the callback")

    async with pending_requests(on_request=bug) as (_, client, peer, calls, __):
        peer.send(frame({"code": 905, "flag": 2}))

        for error in await failures(calls):
            assert isinstance(error.__cause__, LookupError)
        assert client.pending_count == 0
    assert [type(context["exception"]) for context in reported] == [LookupError]


def connection_of(client: RemotingClient) -> ClientConnection:
    """The client's current connection."""
    connection = client._connection._in_use
    assert connection is not None
    return connection


async def fill(client: RemotingClient) -> None:
    """Send until the buffers of kernel and transport are full."""
    for _ in range(100):
        if not connection_of(client)._writable.is_set():
            return
        await client.oneway(904, body=bytes(MEBIBYTE), timeout_seconds=3.0)
        await settle()
    pytest.fail("a hundred mebibytes were taken by a server that does not read")


@asynccontextmanager
async def stuck() -> AsyncIterator[tuple[Peer, RemotingClient, FakeClock]]:
    """A server that has stopped reading, and a client whose writes are paused."""
    clock = FakeClock()
    async with ScriptedServer() as server, RemotingClient(server.address, clock=clock) as client:
        peer = await ask_and_answer(client, server)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
        await fill(client)
        yield peer, client, clock
        peer.writer.transport.abort()


async def test_senders_wait_for_a_server_that_does_not_read() -> None:
    """Requests and oneway requests wait instead of being buffered, and time out."""
    async with stuck() as (_, client, clock):
        buffered = connection_of(client).transport.get_write_buffer_size()
        call = ask(client, 105, body=bytes(MEBIBYTE))
        notice = asyncio.create_task(client.oneway(904, body=bytes(MEBIBYTE), timeout_seconds=3.0))
        await settle()
        assert (connection_of(client).transport.get_write_buffer_size(), client.pending_count) == (buffered, 0)

        await clock.advance(3.0)
        for late in (call, notice):
            with pytest.raises(RequestTimeoutError):
                await late
        assert client.connected


@pytest.mark.parametrize("is_lost", [False, True])
async def test_senders_go_on_when_the_server_reads_again(is_lost: bool) -> None:
    """Waiting requests are sent and answered, or fail when the connection is lost."""
    async with stuck() as (peer, client, _):
        call = ask(client, 105)
        await settle()
        assert client.pending_count == 0
        if is_lost:
            peer.reset()
            with pytest.raises(ConnectionClosedError):
                await call
            return
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        while (request := await peer.receive()).code != 105:
            pass
        peer.answer(request.opaque, b"at last")
        assert (await call).body == b"at last"


async def test_requests_of_a_server_that_does_not_read_are_not_refused() -> None:
    """Error responses would be buffered here, so that none is sent until the server reads again."""
    async with pending_requests() as (_, client, peer, calls, requests):
        connection_of(client).pause_writing()
        peer.send(frame({"code": 905, "opaque": 8}))
        peer.answer(requests[0].opaque)
        await calls[0]
        connection_of(client).resume_writing()
        peer.send(frame({"code": 905, "opaque": 9}))

        assert (await peer.receive()).opaque == 9
        peer.close()
        await failures(calls[1:])


async def test_close_fails_pending_calls() -> None:
    """The error names the close, the server reads the end, no loss is reported; a second close is harmless."""
    losses: list[Any] = []
    async with pending_requests(on_connection_lost=losses.append) as (server, client, peer, calls, _):
        await asyncio.gather(client.close(), client.close())
        await client.close()

        for error in await failures(calls):
            assert str(error) == f"connection to {server.address} was closed on this side"
        assert await peer.at_end()
        assert (client.connected, client.pending_count, losses) == (False, 0, [])
        closed = rf"^client of {server.address} is closed$"
        with pytest.raises(ConnectionClosedError, match=closed):
            await client.invoke(106, timeout_seconds=3.0)
        with pytest.raises(ConnectionClosedError, match=closed):
            await client.oneway(904, timeout_seconds=3.0)
        assert server.connections == 1


async def test_close_sends_buffered_bytes() -> None:
    """A oneway request of a mebibyte arrives although the client is closed right after it."""
    async with ScriptedServer() as server, RemotingClient(server.address, clock=FakeClock()) as client:
        await client.oneway(104, body=bytes(MEBIBYTE), timeout_seconds=3.0)
        closing = asyncio.ensure_future(client.close())
        peer = await server.accept()
        assert (await peer.receive()).body == bytes(MEBIBYTE)
        await closing
        assert await peer.at_end()


async def test_close_waits_a_second_for_a_slow_server() -> None:
    """After one second the connection is aborted."""
    async with stuck() as (_, client, clock):
        closing = asyncio.ensure_future(client.close())
        await clock.advance(0.9)
        assert not closing.done()
        await clock.advance(0.1)
        await closing
        assert not client.connected


async def test_close_in_any_moment_of_a_connect() -> None:
    """In every pass of the loop, no connection stays open and no caller keeps waiting."""
    for passes in range(12):
        async with ScriptedServer() as server:
            client = RemotingClient(server.address, clock=FakeClock())
            call = ask(client)
            for _ in range(passes):
                await asyncio.sleep(0)

            await client.close()

            with pytest.raises(ConnectionClosedError):
                await call
            assert not client.connected
            if server.connections:
                await (await server.accept()).gone()


async def test_repr_shows_the_state() -> None:
    """Peer, connection and pending calls are visible in a failing assert."""
    connection = ClientConnection("a:1", max_frame_bytes=1024, on_request=None, on_lost=lambda *_: None)
    assert repr(connection) == "<ClientConnection [a:1 | not open | 0 pending]>"
    with pytest.raises(ConnectionClosedError, match=r"^connection to a:1 is not open$"):
        _ = connection.transport

    async with pending_requests() as (server, client, peer, calls, _):
        connected = connection_of(client)
        assert repr(connected) == f"<ClientConnection [{server.address} | open | 3 pending]>"
        assert repr(client) == f"<RemotingClient [{server.address} | connected | 3 pending]>"
        peer.close()
        await failures(calls)
        assert repr(connected) == f"<ClientConnection [{server.address} | was closed by the peer | 0 pending]>"
        assert repr(client) == f"<RemotingClient [{server.address} | not connected | 0 pending]>"
    assert repr(client) == f"<RemotingClient [{server.address} | closed | 0 pending]>"


async def test_all_calls_fail_each_with_its_own_exception() -> None:
    """Each caller's exception has a traceback of its own."""
    pending = PendingCalls()
    with pending.opened() as (_, first), pending.opened() as (_, second):
        pending.fail_all(lambda: LookupError("broker-a"))

        assert first.exception() is not second.exception()
    assert len(pending) == 0


async def test_unretrieved_failure_is_not_reported() -> None:
    """A caller cancelled while its call fails leaves nothing for asyncio to report."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    pending = PendingCalls()
    with pending.opened():
        pending.fail_all(lambda: LookupError("broker-a"))

    assert complaints == []


async def test_opaque_is_an_int32_that_no_pending_call_has() -> None:
    """2147483647 is followed by -2147483648 as in Java; the number of a pending call is skipped."""
    pending = PendingCalls(first_opaque=2147483646)
    with pending.opened() as (first, _), pending.opened() as (second, _):
        assert (first, second, pending.draw_opaque()) == (2147483646, 2147483647, -2147483648)
        pending._next_opaque = 2147483645  # four billion calls later
        assert [pending.draw_opaque() for _ in range(2)] == [2147483645, -2147483648]
