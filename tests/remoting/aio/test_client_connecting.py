"""When a client connects, and how long it leaves a server alone."""

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import ConnectError, ConnectionClosedError, RequestTimeoutError
from namesrv_runtime.backoff import Backoff
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import FakeClock, settle
from tests.support.scripted_server import HOST, Peer, ScriptedServer


def ask(client: RemotingClient, timeout_seconds: float = 3.0) -> asyncio.Task[RemotingCommand]:
    """A question on its way."""
    return asyncio.create_task(client.invoke(106, timeout_seconds=timeout_seconds))


async def ask_and_answer(client: RemotingClient, server: ScriptedServer) -> Peer:
    """One question over a new connection, answered; the connection."""
    call = ask(client)
    peer = await server.accept()
    peer.answer((await peer.receive()).opaque)
    await call
    return peer


@pytest.fixture
def refusing() -> Iterator[socket.socket]:
    """A port that is taken and refuses everybody, until a server listens on it."""
    with refusing_port() as bound:
        yield bound


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The address of a server that lets nobody in."""
    with full_queue() as address:
        yield address


def address_of(bound: socket.socket) -> str:
    """Host and port, as the client wants them."""
    return f"{HOST}:{bound.getsockname()[1]}"


async def test_everybody_shares_one_connect() -> None:
    """A hundred questions at once on a client that is not connected make one connection."""
    async with ScriptedServer() as server, RemotingClient(server.address, clock=FakeClock()) as client:
        calls = [ask(client) for _ in range(100)]
        peer = await server.accept()
        for _ in calls:
            peer.answer((await peer.receive()).opaque)
        await asyncio.gather(*calls)

        assert server.connections == 1


async def test_nothing_is_connected_before_the_first_question() -> None:
    """A new client is a value; the first question makes the connection, and both ends agree on its address."""
    async with ScriptedServer() as server, RemotingClient(server.address, clock=FakeClock()) as client:
        assert (False, None, 0) == (client.connected, client.local_address, client.pending_count)
        assert [None] == [client.socket_descriptor]

        peer = await ask_and_answer(client, server)

        assert client.connected
        assert peer.address == client.local_address
        assert client.socket_descriptor is not None
        with socket.socket(fileno=os.dup(client.socket_descriptor)) as same:
            assert peer.address == same.getsockname()


async def test_refused_connect_is_a_connect_error(refusing: socket.socket) -> None:
    """It names the address and the system's reason."""
    async with RemotingClient(address_of(refusing), clock=FakeClock()) as client:
        with pytest.raises(ConnectError, match=rf"^no connection to {address_of(refusing)}: .*(?i:connect)"):
            await client.invoke(106, timeout_seconds=3.0)
        assert not client.connected


async def test_questions_fail_at_once_during_the_back_off(refusing: socket.socket) -> None:
    """0.5 s after the first failure, 1.0 s after the second; a server that comes back meanwhile waits for the end."""
    clock = FakeClock()
    client = RemotingClient(
        address_of(refusing), clock=clock, backoff=Backoff(base_seconds=0.5, max_seconds=8.0), random_unit=lambda: 1.0
    )
    with pytest.raises(ConnectError):
        await client.invoke(106, timeout_seconds=3.0)
    await clock.advance(0.4)
    with pytest.raises(ConnectError, match=r", 0\.4 s ago; next attempt in 0\.1 s$"):
        await client.invoke(106, timeout_seconds=3.0)
    await clock.advance(0.1)
    with pytest.raises(ConnectError) as second_attempt:
        await client.invoke(106, timeout_seconds=3.0)
    assert "ago" not in str(second_attempt.value)

    async with ScriptedServer(bound=refusing) as server, client:
        await clock.advance(0.9)
        with pytest.raises(ConnectError, match=r", 0\.9 s ago; next attempt in 0\.1 s$"):
            await client.oneway(904, timeout_seconds=3.0)
        await clock.advance(0.1)
        await ask_and_answer(client, server)


async def test_success_forgets_the_failures(refusing: socket.socket) -> None:
    """After a connect that succeeded, the next failure is the first one again: 0.5 s, not 2.0 s."""
    clock, lost = FakeClock(), asyncio.Event()
    client = RemotingClient(
        address_of(refusing),
        clock=clock,
        backoff=Backoff(base_seconds=0.5, max_seconds=8.0),
        random_unit=lambda: 1.0,
        on_connection_lost=lambda _: lost.set(),
    )
    for _ in range(2):
        with pytest.raises(ConnectError):
            await client.invoke(106, timeout_seconds=3.0)
        await clock.advance(1.0)
    async with ScriptedServer(bound=refusing) as server:
        await ask_and_answer(client, server)
    async with client:
        await lost.wait()
        with pytest.raises(ConnectError):
            await client.invoke(106, timeout_seconds=3.0)
        with pytest.raises(ConnectError, match=r", 0\.0 s ago; next attempt in 0\.5 s$"):
            await client.invoke(106, timeout_seconds=3.0)


async def test_patient_client_waits_for_the_end_of_the_back_off(refusing: socket.socket) -> None:
    """Without `fail_fast` a question during the pause waits for its end, and is then asked."""
    clock = FakeClock()
    client = RemotingClient(address_of(refusing), clock=clock, fail_fast=False, random_unit=lambda: 1.0)
    with pytest.raises(ConnectError):
        await client.invoke(106, timeout_seconds=3.0)

    async with ScriptedServer(bound=refusing) as server, client:
        call = ask(client)
        await clock.advance(0.1)
        assert server.connections == 0

        await clock.advance(0.1)
        peer = await server.accept()
        peer.answer((await peer.receive()).opaque)
        await call


async def test_patient_client_waits_no_longer_than_asked(refusing: socket.socket) -> None:
    """A pause of ten seconds does not hold a question of three."""
    clock = FakeClock()
    backoff = Backoff(base_seconds=10.0, max_seconds=10.0)
    async with RemotingClient(
        address_of(refusing), clock=clock, fail_fast=False, backoff=backoff, random_unit=lambda: 1.0
    ) as client:
        with pytest.raises(ConnectError):
            await client.invoke(106, timeout_seconds=3.0)
        call = ask(client)
        await clock.advance(3.0)
        with pytest.raises(RequestTimeoutError):
            await call


async def test_connect_times_out(black_hole: str) -> None:
    """A server that lets nobody in is given up after three seconds, for everybody who waits and for those to come."""
    clock = FakeClock()
    async with RemotingClient(black_hole, clock=clock, random_unit=lambda: 1.0) as client:
        calls = [ask(client, 60.0), ask(client, 60.0)]
        await clock.advance(2.9)
        assert not calls[0].done()
        await clock.advance(0.1)

        for call in calls:
            with pytest.raises(ConnectError, match=rf"^no connection to {black_hole}: timed out after 3\.0 s$"):
                await call
        with pytest.raises(ConnectError, match=r": timed out after 3\.0 s, 0\.0 s ago; next attempt in 0\.2 s$"):
            await client.invoke(106, timeout_seconds=3.0)


async def test_who_gives_up_does_not_take_the_connect_away(black_hole: str) -> None:
    """One question is over after a second, one is cancelled; the third one still waits for the same attempt."""
    clock = FakeClock()
    async with RemotingClient(black_hole, clock=clock) as client:
        hasty = ask(client, 1.0)
        oneway = asyncio.create_task(client.oneway(904, timeout_seconds=1.0))
        cancelled, patient = ask(client, 60.0), ask(client, 60.0)
        await settle()
        cancelled.cancel()
        await clock.advance(1.0)

        with pytest.raises(RequestTimeoutError, match=rf"^request 106 to {black_hole}: no answer within 1\.0 s$"):
            await hasty
        with pytest.raises(RequestTimeoutError, match=rf"^request 904 to {black_hole}: not sent within 1\.0 s$"):
            await oneway
        assert cancelled.cancelled()
        assert not patient.done()
        await clock.advance(2.0)
        with pytest.raises(ConnectError, match=r"timed out after 3\.0 s$"):
            await patient


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", ".example"])
async def test_name_that_is_none_is_a_connect_error(host: str) -> None:
    """A label of 64 characters, or of none, cannot even be asked for."""
    async with RemotingClient(f"{host}:9876", clock=FakeClock()) as client:
        with pytest.raises(ConnectError, match=rf"^no connection to {host}:9876: "):
            await client.invoke(106, timeout_seconds=3.0)


def test_address_is_checked_at_once() -> None:
    """A client of no address is refused before it is asked for anything."""
    with pytest.raises(ValueError, match=r"^address 'namesrv' is not host:port or \[ipv6\]:port$"):
        RemotingClient("namesrv", clock=FakeClock())


async def test_host_name_is_looked_up() -> None:
    """`localhost` is a host like others."""
    async with (
        ScriptedServer() as server,
        RemotingClient(f"localhost:{server.port}", clock=FakeClock()) as client,
    ):
        await ask_and_answer(client, server)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_ipv6_address_is_connected_to() -> None:
    """In brackets; our end is an IPv6 address as well."""
    try:
        server = await ScriptedServer("::1").__aenter__()
    except OSError:
        pytest.skip("no IPv6 loopback here")
    async with RemotingClient(server.address, clock=FakeClock()) as client:
        await ask_and_answer(client, server)
        assert client.local_address is not None
        assert client.local_address[0] == "::1"
    await server.__aexit__(None, None, None)


async def test_socket_is_set_up() -> None:
    """Small frames leave at once, and a server that vanished is noticed after five seconds of silence."""
    async with ScriptedServer() as server, RemotingClient(server.address, clock=FakeClock()) as client:
        await ask_and_answer(client, server)
        assert client._connection is not None
        connected = client._connection.transport.get_extra_info("socket")

        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000


async def test_next_question_after_a_loss_connects_again() -> None:
    """At once: a loss is no failed connect. The callback hears of the loss, once."""
    losses: asyncio.Queue[ConnectionClosedError] = asyncio.Queue()
    async with (
        ScriptedServer() as server,
        RemotingClient(server.address, clock=FakeClock(), on_connection_lost=losses.put_nowait) as client,
    ):
        first = await ask_and_answer(client, server)
        first.close()
        assert f"connection to {server.address} was closed by the peer" == str(await losses.get())
        assert (False, None) == (client.connected, client.local_address)

        await ask_and_answer(client, server)
        assert server.connections == 2
    assert losses.empty()
