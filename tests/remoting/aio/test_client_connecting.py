"""Connecting, back-off and name resolution of the client."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.tls import ClientTls, TlsFiles
from namesrv_remoting.errors import ConnectError, RemotingError, RequestTimeoutError
from namesrv_runtime.backoff import Backoff
from tests.support.certificates import Authority
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.fake_clock import FakeClock, settle
from tests.support.ipv6 import can_use_ipv6
from tests.support.scripted_server import HOST, ScriptedServer, ask, ask_and_answer
from tests.support.threads import without_new_threads

BACKOFF = Backoff(base_seconds=0.5, max_seconds=8.0)


@pytest.fixture
def refusing() -> Iterator[socket.socket]:
    """A bound port that refuses connections until a server listens on it."""
    with refusing_port() as bound:
        yield bound


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    """The certificate authority of the server."""
    return Authority(tmp_path)


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The address of a server that accepts no connection."""
    with full_queue() as address:
        yield address


def client_of(bound: socket.socket, clock: FakeClock, **options: Any) -> RemotingClient:
    """A client of a port, with the longest delays."""
    options = {"backoff": BACKOFF, "random_unit": lambda: 1.0, **options}
    return RemotingClient(f"{HOST}:{bound.getsockname()[1]}", clock=clock, **options)


async def test_requests_fail_at_once_during_the_back_off(refusing: socket.socket) -> None:
    """The back-off is 0.5 s after the first failure, 1.0 s after the second, and starts again after a success."""
    clock, lost = FakeClock(), asyncio.Event()
    client = client_of(refusing, clock, on_connection_lost=lambda _: lost.set())

    async def fails(message: str) -> None:
        with pytest.raises(ConnectError, match=message):
            await client.invoke(106, timeout_seconds=3.0)
        with pytest.raises(ConnectError):
            await client.oneway(904, timeout_seconds=3.0)

    refused = rf"^no connection to {client.address}: connection refused"
    await fails(refused + r"[^;]*$")
    await clock.advance(0.4)
    await fails(refused + r".*, 0\.4 s ago; next attempt in 0\.1 s$")
    await clock.advance(0.1)
    await fails(refused + r"[^;]*$")
    async with ScriptedServer(bound=refusing) as server:
        await clock.advance(0.9)
        await fails(r", 0\.9 s ago; next attempt in 0\.1 s$")
        await clock.advance(0.1)
        await ask_and_answer(client, server)
    async with client:
        await lost.wait()
        await fails(refused)
        await fails(r", 0\.0 s ago; next attempt in 0\.5 s$")


async def test_patient_client_waits_for_the_end_of_the_back_off(refusing: socket.socket) -> None:
    """Without `fail_fast` a request waits for its end if its timeout allows."""
    clock = FakeClock()
    client = client_of(refusing, clock, fail_fast=False)
    with pytest.raises(ConnectError):
        await client.invoke(106, timeout_seconds=3.0)

    async with ScriptedServer(bound=refusing) as server, client:
        hasty, call = ask(client, timeout_seconds=0.3), ask(client)
        await clock.advance(0.4)
        assert server.connections == 0
        with pytest.raises(RequestTimeoutError):
            await hasty

        await clock.advance(0.1)
        peer = await server.accept()
        peer.answer((await peer.receive()).opaque)
        await call


async def test_connect_times_out(black_hole: str) -> None:
    """The connect ends after three seconds for all waiting and later callers; a cancelled caller does not end it."""
    clock = FakeClock()
    async with RemotingClient(black_hole, clock=clock, random_unit=lambda: 1.0) as client:
        hasty = ask(client, timeout_seconds=1.0)
        oneway = asyncio.create_task(client.oneway(904, timeout_seconds=1.0))
        cancelled, *patient = [ask(client, timeout_seconds=60.0) for _ in range(3)]
        await settle()
        cancelled.cancel()
        await clock.advance(1.0)

        with pytest.raises(RequestTimeoutError, match=rf"^request 106 to {black_hole}: no answer within 1 s$"):
            await hasty
        with pytest.raises(RequestTimeoutError, match=rf"^request 904 to {black_hole}: not sent within 1 s$"):
            await oneway
        await clock.advance(1.9)
        assert (cancelled.cancelled(), patient[0].done()) == (True, False)
        await clock.advance(0.1)

        for call in patient:
            with pytest.raises(ConnectError, match=rf"^no connection to {black_hole}: timed out after 3\.0 s$"):
                await call
        with pytest.raises(ConnectError, match=r": timed out after 3\.0 s, 0\.0 s ago; next attempt in 0\.2 s$"):
            await client.invoke(106, timeout_seconds=3.0)


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", ".example"])
async def test_invalid_host_name_is_a_connect_error(host: str) -> None:
    """Labels of 64 characters and empty ones cannot be resolved."""
    async with RemotingClient(f"{host}:9876", clock=FakeClock()) as client:
        with pytest.raises(ConnectError, match=rf"^no connection to {host}:9876: "):
            await client.invoke(106, timeout_seconds=3.0)


async def test_lack_of_threads_is_a_connect_error(ca: Authority) -> None:
    """The files of a TLS context are read in a thread; once a thread can be started, the client connects."""
    clock, tls = FakeClock(), ClientTls(TlsFiles(ca_file=ca.ca_file), verify_host=False)
    async with ScriptedServer() as server, RemotingClient(server.address, clock=clock, tls=tls) as client:
        with without_new_threads(), pytest.raises(ConnectError, match="can't start new thread"):
            await client.invoke(106, timeout_seconds=3.0)
        await clock.advance(10.0)
        call = ask(client)
        peer = await server.accept()
        # the first byte of a TLS handshake
        assert await peer.reader.readexactly(1) == b"\x16"
        peer.writer.transport.abort()
        with pytest.raises(ConnectError):
            await call


class FaultyTls(ClientTls):
    """TLS settings with a fault in their code."""

    def context(self) -> ssl.SSLContext:
        """Fail as no settings of a user can."""
        raise RuntimeError("a fault")


async def test_other_runtime_errors_are_not_connect_errors(ca: Authority) -> None:
    """A fault in the code does not look like a server that is down."""
    tls = FaultyTls(TlsFiles(ca_file=ca.ca_file), verify_host=False)
    async with RemotingClient("127.0.0.1:1", clock=FakeClock(), tls=tls) as client:
        with pytest.raises(RuntimeError, match="a fault"):
            await client.invoke(106, timeout_seconds=3.0)


@pytest.mark.skipif(not can_use_ipv6(), reason="no IPv6 on this machine")
async def test_ipv6_address_has_brackets() -> None:
    """The client of `[::1]:9876` connects to `::1`."""
    async with ScriptedServer("::1") as server, RemotingClient(f"[::1]:{server.port}", clock=FakeClock()) as client:
        assert (await ask_and_answer(client, server)).address[0] == "::1"


class SeveralAddresses:
    """The host name `several.example`, whose addresses are given to the resolver of the running loop."""

    def __init__(
        self, patch: pytest.MonkeyPatch, clock: FakeClock, port: int, *hosts: str, tls: ClientTls | None = None
    ) -> None:
        async def getaddrinfo(host: str, port: int, **options: Any) -> list[tuple[Any, ...]]:
            # uvloop's sock_connect calls it with addresses, too.
            names = hosts if host == "several.example" else (host,)
            # in no thread, which the fake clock would not wait for; an address is resolved at once
            return [entry for name in names for entry in socket.getaddrinfo(name, port, **options)]

        patch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        self.client = RemotingClient(f"several.example:{port}", clock=clock, tls=tls)


async def test_only_address_of_a_name_gets_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to race with."""
    async with (
        ScriptedServer() as server,
        SeveralAddresses(monkeypatch, FakeClock(), server.port, HOST).client as client,
    ):
        await ask_and_answer(client, server)
        assert server.connections == 1


async def test_next_address_is_tried_while_the_first_one_is_silent(
    black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt begins 250 ms after the first."""
    clock, port = FakeClock(), int(black_hole.rpartition(":")[2])
    with socket.socket() as bound:
        bound.bind(("127.0.0.2", port))
        async with (
            ScriptedServer(bound=bound) as server,
            SeveralAddresses(monkeypatch, clock, port, HOST, "127.0.0.2").client as client,
        ):
            call = ask(client)
            await clock.advance(0.24)
            assert server.connections == 0
            await clock.advance(0.01)
            tried, peer = await server.accept(), await server.accept()
            assert await tried.reader.read() == b""
            peer.answer((await peer.receive()).opaque)
            await call


async def test_slow_handshake_is_the_only_one(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server does not get a handshake from each client for each of its addresses."""
    clock = FakeClock()
    tls = ClientTls(TlsFiles(None, None, None, ca.ca_file), verify_host=True)
    with socket.socket() as bound:
        async with ScriptedServer() as first:
            bound.bind(("127.0.0.2", first.port))
            async with (
                ScriptedServer(bound=bound) as second,
                SeveralAddresses(monkeypatch, clock, first.port, HOST, "127.0.0.2", tls=tls).client as client,
            ):
                call = ask(client)
                tried, peer = await first.accept(), await first.accept()
                assert (await tried.reader.read(), await peer.reader.readexactly(1)) == (b"", b"\x16")
                await clock.advance(0.25)
                await clock.advance(2.75)
                with pytest.raises(RemotingError):
                    await call
                assert second.connections == 0


async def test_untrusted_certificate_is_reported_and_no_other_address_is_tried(
    ca: Authority, tmp_path: Path, refusing: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal of the next address would hide it."""
    stranger = Authority(tmp_path, "stranger").issue("server", "several.example")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(stranger.cert_file, stranger.key_file)
    tls, port = ClientTls(TlsFiles(None, None, None, ca.ca_file), verify_host=True), refusing.getsockname()[1]
    async with await asyncio.start_server(lambda *_: None, sock=refusing, ssl=context):
        client = SeveralAddresses(monkeypatch, FakeClock(), port, HOST, "127.0.0.2", tls=tls).client
        with pytest.raises(ConnectError, match="certificate"):
            await client.invoke(106, timeout_seconds=3.0)
