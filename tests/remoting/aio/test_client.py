"""The asynchronous client: requests, responses, errors, oneway requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

from namesrv_remoting import errors
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from tests.support.fake_clock import FakeClock, settle
from tests.support.in_process import namesrv_in_process
from tests.support.scripted_server import ScriptedServer, ask, ask_and_answer, frame
from tests.support.spelling import NATIVE, cut
from tests.support.tcp_proxy import TcpProxy


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[ScriptedServer, RemotingClient, FakeClock]]:
    """A scripted server, a client of it, and the client's clock."""
    clock = FakeClock()
    async with ScriptedServer() as server, RemotingClient(server.address, clock=clock, **options) as client:
        yield server, client, clock


JSON_HEADER = (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":0,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)


async def test_request_bytes() -> None:
    """The first request has the number 0; its response may arrive in pieces."""
    sent = b"\x00\x00\x00\x85\x00\x00\x00\x7d" + JSON_HEADER + b"body"
    async with asking() as (server, client, _):
        call = ask(client, 105, ext_fields={"topic": "T"}, body=b"body")
        peer = await server.accept()
        assert await peer.reader.readexactly(len(sent)) == sent

        for byte in frame({"code": 0, "flag": 1, "opaque": 0}, b"route"):
            peer.send(bytes([byte]))
            await settle()
        assert ((await call).code, call.result().body) == (0, b"route")


async def test_error_response_raises_its_class() -> None:
    """The error has remark, code and ext fields; a caller may ask for the response of any code instead."""
    async with asking() as (server, client, _):
        call, raw = ask(client, 105), asyncio.create_task(client.invoke_raw(105, timeout_seconds=3.0))
        peer = await server.accept()
        for _ in range(2):
            peer.answer((await peer.receive()).opaque, code=17, remark="No route", extFields={"boot_id": "b1"})

        with pytest.raises(errors.TopicNotExistError) as caught:
            await call
        for received in (caught.value, await raw):
            assert (received.code, received.remark, received.ext_fields) == (17, "No route", {"boot_id": "b1"})


@pytest.mark.parametrize("gives_up", ["is cancelled", "times out"])
async def test_late_response_is_dropped(gives_up: str) -> None:
    """No entry is left, and the connection serves the next request under another number."""
    async with asking() as (server, client, clock):
        call = ask(client, 105)
        peer = await server.accept()
        late = await peer.receive()
        await clock.advance(2.9)
        assert client.pending_count == 1
        if gives_up == "is cancelled":
            call.cancel()
            await settle()
            assert call.cancelled()
        else:
            await clock.advance(0.1)
            message = rf"^request 105 to {server.address}: no answer within 3 s$"
            with pytest.raises(errors.RequestTimeoutError, match=message):
                await call
        assert client.pending_count == 0

        call = ask(client)
        request = await peer.receive()
        # responses with an expired, unknown or missing number, and a second response
        peer.answer(late.opaque, b"late")
        peer.answer(12345)
        peer.send(frame({"flag": 1}))
        peer.answer(request.opaque, b"in time")
        peer.answer(request.opaque, b"again")
        assert (await call).body == b"in time"
        call = ask(client)
        peer.answer((await peer.receive()).opaque)
        await call
        assert server.connections == 1


async def test_oneway_is_sent_and_not_waited_for() -> None:
    """A oneway request has flag 2, no pending entry and the opaque 0."""
    async with asking() as (server, client, _):
        await client.oneway(904, ext_fields={"brokerName": "a"}, body=b"b", timeout_seconds=1.0)
        assert client.pending_count == 0
        call = ask(client, 105)
        peer = await server.accept()

        notice, request = await peer.receive(), await peer.receive()
        sent = (notice.code, notice.header["flag"], notice.header["extFields"], notice.body, notice.opaque)
        assert sent == (904, 2, {"brokerName": "a"}, b"b", 0)
        assert request.opaque == 1
        peer.answer(1)
        await call


@pytest.mark.parametrize("has_callback", [True, False])
async def test_requests_of_the_server_go_to_the_callback(has_callback: bool) -> None:
    """Oneway requests get no response; others get code 3 if they have a number."""
    received: list[int] = []
    options: dict[str, Any] = {"on_request": lambda request: received.append(request.code)} if has_callback else {}
    async with asking(**options) as (server, client, _):
        peer = await ask_and_answer(client, server)
        peer.send(frame({"code": 905, "flag": 2, "opaque": 0}))
        peer.send(frame({"code": 906}))
        for code, opaque in ((40, 7), (41, 8)):
            peer.send(frame({"code": code, "opaque": opaque}))
            header = (await peer.receive()).header
            refusal = (header["code"], header["flag"], header["remark"], header["opaque"])
            assert refusal == (3, 1, f" request type {code} not supported", opaque)
    assert received == ([905, 906, 40, 41] if has_callback else [])


async def test_too_large_request_leaves_the_connection_usable() -> None:
    """A request above the limit raises a local error, leaves no entry, and the connection goes on."""
    async with asking(max_frame_bytes=1024) as (server, client, _):
        with pytest.raises(errors.LocalProtocolError, match=r"^frame of 1\d\d\d bytes, limit 1024$"):
            await client.invoke(103, body=bytes(1000), timeout_seconds=3.0)
        assert client.pending_count == 0
        await ask_and_answer(client, server)


@pytest.mark.parametrize("closed", [1, 2, 3])
async def test_native_server_that_closes_connections_is_not_taken_for_apaches(tmp_path: Path, closed: int) -> None:
    """A server at its connection limit closes every connection; only a response shows which protocol it speaks."""
    clock, protocols = FakeClock(), ServerProtocols()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as server,
        TcpProxy(server.address) as proxy,
        RemotingClient(proxy.address, clock=clock, protocols=protocols) as client,
    ):
        proxy.closing = closed
        if closed == 3:
            with pytest.raises(errors.ConnectionClosedError):
                await client.server_info(1.0)
            assert (client.speaks_native(), proxy.accepted) == (None, 3)

        body = await client.server_info(1.0)

        assert body is not None
        assert (client.speaks_native(), msgpack.unpackb(body)["boot_id"]) == (True, server.namesrv.boot.id)


async def test_killed_native_server_is_not_taken_for_apaches() -> None:
    """A native server closes two connections when it is killed; only a response shows which server comes next."""
    protocols = ServerProtocols()
    async with asking(protocols=protocols) as (server, client, clock):
        protocols.learn(server.address, clock.monotonic(), is_native=True)
        peer = await ask_and_answer(client, server)
        call = asyncio.create_task(client.server_info(3.0))
        await peer.receive()
        peer.close()
        again = await server.accept()
        await again.receive()
        again.close()

        restarted = await server.accept()
        restarted.answer((await restarted.receive()).opaque, b"info")

        assert await call == b"info"
        assert client.speaks_native() is True


async def test_server_that_denies_its_info_is_native() -> None:
    """A native refusal shows that the server speaks the native protocol."""
    async with asking(protocols=ServerProtocols()) as (server, client, _):
        call = asyncio.create_task(client.server_info(3.0))
        peer = await server.accept()
        opaque = (await peer.receive()).opaque
        peer.send(cut(NATIVE, msgpack.packb([16, opaque, 1, 479, "no", None])))

        with pytest.raises(errors.NoPermissionError):
            await call
        assert client.speaks_native() is True
