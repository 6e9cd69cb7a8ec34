"""A client's connection to one server: protocol detection, boot id and warm-up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

from namesrv_client.routes.servers.identity import Protocol, ServerIdentity
from namesrv_client.routes.servers.server import Server
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.codes import FLAG_RESPONSE
from namesrv_remoting.errors import (
    TLS_REQUIRED_REMARK,
    ConnectError,
    ConnectionClosedError,
    RemotingError,
    TlsRequiredError,
)
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.dead_ends import refusing_port
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, until
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import registration
from tests.support.route_clients import (
    BROKER_A,
    INFO,
    NO_CALLBACKS,
    PULL,
    broker_names,
    client_settings,
    request_count,
    route_client,
)
from tests.support.scripted_server import HOST, Peer, ScriptedRequest, ScriptedServer
from tests.support.spelling import native_frame
from tests.support.tcp_proxy import TcpProxy

PULLED = {"boot_id": "b2", "revision": 3, "ready": True, "full": True, "routes": {"t": None}}


@asynccontextmanager
async def server_at(
    address: str, clock: FakeClock | None = None, protocols: ServerProtocols | None = None, **settings: object
) -> AsyncIterator[Server]:
    """The client's view of the server at an address."""
    async with asyncio.timeout(GUARD_SECONDS):
        chosen = client_settings(address, **{"protocol": "auto", **settings})
        server = Server(address, chosen, clock or FakeClock(), protocols or ServerProtocols(), NO_CALLBACKS)
        try:
            yield server
        finally:
            await server.close()


@asynccontextmanager
async def scripted(**settings: Any) -> AsyncIterator[tuple[ScriptedServer, Server]]:
    """A scripted server and a client's view of it."""
    async with ScriptedServer() as script, server_at(script.address, **settings) as server:
        yield script, server


@asynccontextmanager
async def apache_at(
    clock: FakeClock | None = None, protocols: ServerProtocols | None = None, **settings: Any
) -> AsyncIterator[tuple[ApacheServer, Server]]:
    """An Apache server that knows topic t, and a client's view of it."""
    async with ApacheServer() as apache, server_at(apache.address, clock, protocols, **settings) as server:
        apache.routes["t"] = apache_route("broker-a")
        yield apache, server


def native_response(request: ScriptedRequest, body: object, code: int = 0) -> bytes:
    """A native response."""
    return native_frame(code, request.opaque, body=msgpack.packb(body), flag=FLAG_RESPONSE)


async def introduced(
    script: ScriptedServer, meeting: "asyncio.Task[None]", boot_id: str = "b1", uptime_seconds: float = 1000.0
) -> Peer:
    """Response SERVER_INFO on the next connection."""
    peer = await script.accept()
    request = await peer.receive()
    assert request.code == INFO
    peer.send(native_response(request, {"boot_id": boot_id, "uptime_seconds": uptime_seconds}))
    await meeting
    return peer


async def test_native_server_is_identified_once_per_connection(tmp_path: Path) -> None:
    """SERVER_INFO brings boot id and uptime; the same boot id keeps its warm-up on the next connection."""
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path, clock=clock) as namesrv,
        TcpProxy(namesrv.address) as proxy,
        server_at(proxy.address, clock) as server,
    ):
        proxy.cut()
        with pytest.raises(ConnectError):
            await server.identify(1.0)
        await proxy.heal()
        await clock.advance(30.0)
        await asyncio.gather(*(server.identify(1.0) for _ in range(5)))
        await server.identify(1.0)

        assert (
            server.identity.is_native,
            server.identity.boot_id,
            request_count(namesrv, INFO),
        ) == (True, namesrv.namesrv.boot.id, 1)
        assert (server.identity.is_complete, server.identity.knows_all_topics) == (False, False)
        await clock.advance(15.0)
        assert (server.identity.is_complete, server.identity.knows_all_topics) == (True, True)

        proxy.cut()
        await until(lambda: server.identity.is_native is None)
        await proxy.heal()
        await server.identify(1.0)
        await until(lambda: request_count(namesrv, INFO) == 2)
        assert (server.identity.boot_id, server.identity.is_complete) == (namesrv.namesrv.boot.id, True)


@pytest.mark.parametrize(
    ("warm_up", "uptime", "is_complete"), [(45, 44.9, False), (45, 45.0, True), (0, 0.0, True), (60, 59, False)]
)
async def test_server_is_complete_after_its_warm_up(warm_up: float, uptime: float, *, is_complete: bool) -> None:
    """A broker registers every 30 s; 45 s leave room for a late one."""
    async with scripted(warm_up_seconds=warm_up) as (script, server):
        await introduced(script, asyncio.create_task(server.identify(1.0)), uptime_seconds=uptime)

        assert (server.identity.is_complete, server.identity.knows_all_topics) == (is_complete, is_complete)


async def test_restart_behind_an_open_connection_is_noticed() -> None:
    """Behind a proxy the next response has another boot id, and the server's warm-up starts again."""
    async with scripted() as (script, server):
        peer = await introduced(script, asyncio.create_task(server.identify(1.0)))
        assert server.identity.is_complete

        answers = []
        for boot_id, is_ready in (("b1", True), ("b1", False), ("b2", True)):
            pulling = asyncio.ensure_future(server.pull(["t"], 1.0, since_revision=7))
            request = await peer.receive()
            assert msgpack.unpackb(request.body) == {"topics": ["t"], "boot_id": "b1", "since": 7, "wait_ms": 0}
            peer.send(native_response(request, {**PULLED, "boot_id": boot_id, "ready": is_ready}))
            answers.append(await pulling)

        before, lacking, after = answers
        assert (before.is_complete, before.has_been_complete) == (True, True)
        assert (lacking.is_complete, lacking.has_been_complete, lacking.connection_number) == (
            False,
            True,
            before.connection_number,
        )
        assert (after.boot_id, after.revision, after.is_conditional) == ("b2", 3, False)
        assert (after.is_complete, after.has_been_complete, after.connection_number) == (
            False,
            False,
            before.connection_number,
        )
        assert (server.identity.boot_id, server.identity.is_complete) == ("b2", False)


def test_response_of_an_ended_connection_counts_for_no_other() -> None:
    """The response may be processed after the end of its connection, and shows nothing about the next one."""
    identity = ServerIdentity("a:1", client_settings("a:1"), FakeClock())
    earlier = identity.connection_number
    assert identity.note_routes(earlier, "b1", is_complete=True) == (earlier, True)
    identity.note_end()

    late, has_been_complete = identity.note_routes(earlier, "b1", is_complete=True)
    assert (late in (earlier, identity.connection_number), has_been_complete) == (False, True)
    assert identity.note_routes(identity.connection_number, "b1", is_complete=False) == (
        identity.connection_number,
        False,
    )


async def test_invalid_server_info_is_a_remoting_error() -> None:
    """The client fails over to the next server after such an error."""
    async with scripted() as (script, server):
        meeting = asyncio.ensure_future(server.identify(1.0))
        peer = await script.accept()
        peer.send(native_response(await peer.receive(), {"boot_id": "b1", "uptime_seconds": "long"}))

        with pytest.raises(RemotingError, match="ServerInfo"):
            await meeting


async def test_cancelled_caller_does_not_cancel_the_identification() -> None:
    """All callers share one SERVER_INFO request."""
    async with scripted() as (script, server):
        first, second = asyncio.create_task(server.identify(1.0)), asyncio.create_task(server.identify(1.0))
        await until(lambda: script.connections == 1)
        first.cancel()

        await introduced(script, second)

        assert first.cancelled()
        assert repr(server) == f"<Server [{script.address} | native | b1]>"


async def test_closing_ends_the_identification() -> None:
    """A pending caller gets an error."""
    async with scripted() as (script, server):
        meeting = asyncio.ensure_future(server.identify(1.0))
        await script.accept()

        await server.close()

        with pytest.raises(ConnectionClosedError, match="not used any more"):
            await meeting


@pytest.mark.parametrize(("away", "refused"), [(59.9, 1), (60.0, 2)])
async def test_apache_server_is_retried_natively_after_a_minute(away: float, refused: int) -> None:
    """After a minute our server may have replaced the Apache one."""
    clock = FakeClock()
    async with apache_at(clock) as (apache, server):
        await server.identify(1.0)
        answer = await server.route_by_topic("t", 1.0)
        assert (server.identity.is_native, apache.refused, apache.topics_asked) == (False, 1, ["t"])
        route = answer.routes["t"]
        assert route is not None
        assert [data.broker_name for data in route.broker_datas] == ["broker-a"]
        assert (answer.revision, answer.is_conditional) == (None, False)
        apache.hang_up()
        await until(lambda: server.identity.is_native is None)
        await clock.advance(away)

        await server.identify(1.0)
        await server.route_by_topic("t", 1.0)

        assert (server.identity.is_native, apache.refused, len(apache.topics_asked)) == (False, refused, 2)


async def test_protocol_is_learnt_once_per_process() -> None:
    """A known native server gets requests before SERVER_INFO returns, and a known Apache server no native ones."""
    clock, protocols = FakeClock(), ServerProtocols()
    async with (
        scripted(clock=clock, protocols=protocols) as (script, native),
        apache_at(clock, protocols) as (apache, rocketmq),
    ):
        protocols.learn(script.address, clock.monotonic(), is_native=True)
        protocols.learn(apache.address, clock.monotonic(), is_native=False)

        await native.identify(1.0)
        pulling = asyncio.ensure_future(native.pull(["t"], 1.0))
        peer = await script.accept()
        info, pull = await peer.receive(), await peer.receive()
        assert (info.code, pull.code) == (INFO, PULL)
        peer.send(native_response(pull, PULLED) + native_response(info, {"boot_id": "b2", "uptime_seconds": 1000.0}))
        await rocketmq.identify(1.0)
        await rocketmq.route_by_topic("t", 1.0)

        assert (await pulling).is_complete
        assert (apache.refused, apache.connections) == (0, 1)


@pytest.mark.parametrize("protocol", ["auto", "native"])
async def test_apache_server_replaces_a_native_one(protocol: str) -> None:
    """A connection closed before its first response resets a learnt protocol; a configured one stays an error."""
    clock, protocols = FakeClock(), ServerProtocols()
    async with apache_at(clock, protocols, protocol=protocol) as (apache, server):
        protocols.learn(apache.address, clock.monotonic(), is_native=True)
        await server.identify(1.0)
        with pytest.raises(ConnectionClosedError):
            await server.pull(["t"], 1.0)
        await until(lambda: server.identity.is_native is None)

        await server.identify(1.0)
        assert (protocol == "native") == server.identity.is_native
        assert protocols.is_native(apache.address, clock.monotonic()) == (None if protocol == "native" else False)


async def test_refused_server_info_falls_back_to_rocketmq() -> None:
    """A server may know the native header and not the extension codes."""
    async with scripted() as (script, server):
        meeting = asyncio.ensure_future(server.identify(1.0))
        peer = await script.accept()
        peer.send(native_response(await peer.receive(), None, code=3))
        await meeting
        assert server.identity.is_native is False


async def test_apache_server_is_incomplete_for_45_s() -> None:
    """An Apache server may deny a topic at once but removes brokers after 45 s; after a lost connection neither."""
    clock = FakeClock()
    async with apache_at(clock, protocol="rocketmq") as (apache, server):
        await server.identify(1.0)
        first = await server.route_by_topic("none", 1.0)
        assert (
            server.identity.is_complete,
            server.identity.knows_all_topics,
            first.is_complete,
            first.knows_all_topics,
        ) == (False, True, False, True)
        await clock.advance(45.0)
        assert (server.identity.is_complete, server.identity.knows_all_topics) == (True, True)

        apache.hang_up()
        await until(lambda: server.identity.is_native is None)
        between = await server.route_by_topic("t", 1.0)
        await server.identify(1.0)
        second = await server.route_by_topic("t", 1.0)
        for answer in (between, second):
            assert (answer.is_complete, answer.knows_all_topics) == (False, False)
        assert len({answer.boot_id for answer in (first, between, second)}) == 3
        assert first.connection_number != between.connection_number == second.connection_number
        await clock.advance(45.0)
        assert (server.identity.is_complete, server.identity.knows_all_topics) == (True, True)
        assert (apache.refused, apache.connections) == (0, 2)


async def test_zone_is_sent_in_rocketmqs_protocol() -> None:
    """The request carries the zone."""
    async with scripted(protocol="rocketmq", zone_name="east") as (script, server):
        await server.identify(1.0)
        asking = asyncio.ensure_future(server.route_by_topic("t", 1.0))
        peer = await script.accept()
        request = await peer.receive()
        peer.answer(request.opaque, apache_route("broker-a"))
        await asking

        assert (request.header["extFields"]) == {
            "topic": "t",
            "acceptStandardJsonOnly": "true",
            "__ZONE_NAME": "east",
            "__ZONE_MODE": "true",
        }


async def test_server_filters_zones_natively(tmp_path: Path) -> None:
    """The zone is part of PULL_ROUTES, also of one for the changes since a revision."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as namesrv:
        peer = await namesrv.connect()
        await peer.register(BROKER_A, registration("T", "V"), __ZONE_NAME="east", zoneName="east")
        async with server_at(namesrv.where, clock, zone_name="west") as server:
            await server.identify(1.0)
            answer = await server.pull(["T", "none"], 1.0)

            assert answer.routes["T"] is not None
            assert (answer.routes["T"].broker_datas, answer.routes["none"]) == ([], None)

            await peer.register(BROKER_A, registration("U", "V", counter=2), __ZONE_NAME="east", zoneName="east")
            news = await server.pull(["T", "U"], 1.0, since_revision=answer.revision)

            assert news.routes["U"] is not None
            assert ([*news.routes], news.routes["U"].broker_datas) == (["U"], [])


async def test_apache_server_that_was_down_is_incomplete_for_45_s_after_its_return() -> None:
    """Failed attempts to connect do not count as the warm-up of a server that starts after them."""
    clock = FakeClock()
    async with ApacheServer() as apache, TcpProxy((HOST, apache.port)) as proxy:
        apache.routes["orders"] = apache_route("broker-a", "broker-b")
        async with route_client(clock, proxy.address, protocol="rocketmq", poll_seconds=1000.0) as client:
            await client.route("orders")
            await clock.advance(45.0)
            proxy.cut()
            await until(lambda: client.status().servers[0].state == "disconnected")
            assert not await client.refresh()
            await clock.advance(60.0)

            # The server has started again, and broker-b has not registered yet.
            apache.routes["orders"] = apache_route("broker-a")
            await proxy.heal()
            assert await client.refresh()

            assert broker_names(client) == ["broker-a", "broker-b"]
            await clock.advance(45.0)
            assert await client.refresh()
            assert broker_names(client) == ["broker-a"]


@pytest.mark.parametrize("protocol", ["native", "auto"])
async def test_native_server_is_identified_after_failed_connects(protocol: str) -> None:
    """The first connection that succeeds asks for the uptime: a server that is up for long denies topics at once.

    The protocol is configured, or known from an earlier connection.
    """
    clock, protocols = FakeClock(), ServerProtocols()
    with refusing_port() as bound:
        address = f"{HOST}:{bound.getsockname()[1]}"
        protocols.learn(address, clock.monotonic(), is_native=True)
        async with server_at(address, clock, protocols, protocol=protocol) as server:
            for _ in range(3):
                await server.identify(1.0)
                with pytest.raises(ConnectError):
                    await server.pull(["t"], 1.0)
            await clock.advance(30.0)
            async with ScriptedServer(bound=bound) as script:
                await server.identify(1.0)
                pulling = asyncio.ensure_future(server.pull(["t"], 1.0))
                peer = await script.accept()
                first, second = await peer.receive(), await peer.receive()
                assert (first.code, second.code) == (INFO, PULL)
                peer.send(native_response(first, {"boot_id": "b2", "uptime_seconds": 1000.0}))
                peer.send(native_response(second, PULLED))

                assert (await pulling).knows_all_topics
                assert server.identity.state == Protocol.NATIVE


async def test_refusal_of_a_native_client_is_reported() -> None:
    """A server that requires TLS answers SERVER_INFO with the reason, and closes without an answer to PULL_ROUTES."""
    async with scripted(protocol="native") as (script, server):
        await server.identify(1.0)
        pulling = asyncio.create_task(server.pull(["t"], 1.0))
        peer = await script.accept()
        peer.answer((await peer.receive()).opaque, code=1, remark=TLS_REQUIRED_REMARK)
        peer.writer.close()

        with pytest.raises(TlsRequiredError, match=r"^plain text received, but this server requires TLS"):
            await pulling


def test_connection_may_end_before_the_protocol_is_known() -> None:
    """SERVER_INFO under way decides about the next connection, too; without one the protocol is unknown again."""
    identity = ServerIdentity("a:1", client_settings("a:1"), FakeClock())
    states = []
    for is_known in (True, False):
        identity.note_requested(is_known_native=is_known)
        states.append(identity.state)
        identity.note_end()
        states.append(identity.state)
    identity.note_request_ended()
    states.append(identity.state)
    identity.note_requested(is_known_native=True)
    identity.note_request_ended()
    states.append(identity.state)
    identity.note_not_connected()
    states.append(identity.state)

    assert states == [
        Protocol.PRESUMED,
        Protocol.REQUESTED,
        Protocol.REQUESTED,
        Protocol.REQUESTED,
        Protocol.UNKNOWN,
        Protocol.NATIVE,
        Protocol.UNKNOWN,
    ]
