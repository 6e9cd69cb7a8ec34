"""A client finds out which server it talks to, and how far to trust it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

from namesrv_client.routes.server import Server
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.errors import ConnectError, ConnectionClosedError, RemotingError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, until
from tests.support.in_process import namesrv_in_process
from tests.support.route_clients import BROKER_A, INFO, NO_CALLBACKS, PULL, asked, client_settings
from tests.support.scripted_server import Peer, ScriptedRequest, ScriptedServer
from tests.support.spelling import NATIVE, cut
from tests.support.tcp_proxy import TcpProxy

PULLED = {"boot_id": "b2", "revision": 3, "ready": True, "full": True, "routes": {"t": None}}


@asynccontextmanager
async def server_at(
    address: str, clock: FakeClock | None = None, protocols: ServerProtocols | None = None, **settings: object
) -> AsyncIterator[Server]:
    """What a client makes of the server at an address."""
    async with asyncio.timeout(GUARD_SECONDS):
        chosen = client_settings(address, **{"protocol": "auto", **settings})
        server = Server(address, chosen, clock or FakeClock(), protocols or ServerProtocols(), NO_CALLBACKS)
        try:
            yield server
        finally:
            await server.close()


@asynccontextmanager
async def scripted(**settings: Any) -> AsyncIterator[tuple[ScriptedServer, Server]]:
    """A server that answers what the test says."""
    async with ScriptedServer() as script, server_at(script.address, **settings) as server:
        yield script, server


@asynccontextmanager
async def apache_at(
    clock: FakeClock | None = None, protocols: ServerProtocols | None = None, **settings: Any
) -> AsyncIterator[tuple[ApacheServer, Server]]:
    """Apache's server, which knows topic t."""
    async with ApacheServer() as apache, server_at(apache.address, clock, protocols, **settings) as server:
        apache.routes["t"] = apache_route("broker-a")
        yield apache, server


def native_response(question: ScriptedRequest, body: object, code: int = 0) -> bytes:
    """An answer in the native protocol."""
    header = [code, question.opaque, 1, 479, None if code == 0 else "not supported", None]
    return cut(NATIVE, msgpack.packb(header), msgpack.packb(body))


async def introduced(
    script: ScriptedServer, meeting: "asyncio.Task[None]", boot_id: str = "b1", uptime_seconds: float = 1000.0
) -> Peer:
    """Answer SERVER_INFO on the next connection."""
    peer = await script.accept()
    question = await peer.receive()
    assert question.code == INFO
    peer.send(native_response(question, {"boot_id": boot_id, "uptime_seconds": uptime_seconds}))
    await meeting
    return peer


async def test_a_native_server_says_who_it_is(tmp_path: Path) -> None:
    """Its boot id, and how long it has run; once on each connection, and the same run is as warm on the next one."""
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

        assert (True, namesrv.namesrv.boot_id, 1) == (server.is_native, server.boot_id, asked(namesrv, INFO))
        assert (server.is_complete, server.knows_all_topics) == (False, False)
        await clock.advance(15.0)
        assert (server.is_complete, server.knows_all_topics) == (True, True)

        proxy.cut()
        await until(lambda: server.is_native is None)
        await proxy.heal()
        await server.identify(1.0)
        await until(lambda: asked(namesrv, INFO) == 2)
        assert (namesrv.namesrv.boot_id, True) == (server.boot_id, server.is_complete)


@pytest.mark.parametrize(
    ("warm_up", "uptime", "is_complete"), [(45, 44.9, False), (45, 45.0, True), (0, 0.0, True), (60, 59, False)]
)
async def test_a_server_is_complete_once_all_brokers_had_time_to_register(
    warm_up: float, uptime: float, *, is_complete: bool
) -> None:
    """A broker registers every 30 s; 45 s leave room for one that is late."""
    async with scripted(warm_up_seconds=warm_up) as (script, server):
        await introduced(script, asyncio.create_task(server.identify(1.0)), uptime_seconds=uptime)

        assert (is_complete, is_complete) == (server.is_complete, server.knows_all_topics)


async def test_a_restart_behind_a_connection_that_lives_on_is_noticed() -> None:
    """A proxy keeps ours open; the boot id in the next answer is another one, and as young as can be."""
    async with scripted() as (script, server):
        peer = await introduced(script, asyncio.create_task(server.identify(1.0)))
        assert server.is_complete

        pulling = asyncio.ensure_future(server.pull(["t"], 1.0, since=7))
        question = await peer.receive()
        assert msgpack.unpackb(question.body) == {"topics": ["t"], "boot_id": "b1", "since": 7, "wait_ms": 0}
        peer.send(native_response(question, PULLED))
        answer = await pulling

        assert (answer.boot_id, answer.revision, answer.is_complete, answer.is_conditional) == ("b2", 3, False, False)
        assert (server.boot_id, server.is_complete) == ("b2", False)


async def test_nonsense_is_the_servers_fault() -> None:
    """An error that the next server is asked after, never one that ends the client."""
    async with scripted() as (script, server):
        meeting = asyncio.ensure_future(server.identify(1.0))
        peer = await script.accept()
        peer.send(native_response(await peer.receive(), {"boot_id": "b1", "uptime_seconds": "long"}))

        with pytest.raises(RemotingError, match="ServerInfo"):
            await meeting


async def test_whoever_gives_up_does_not_take_the_introduction_from_the_others() -> None:
    """One question for all who wait."""
    async with scripted() as (script, server):
        first, second = asyncio.create_task(server.identify(1.0)), asyncio.create_task(server.identify(1.0))
        await until(lambda: script.connections == 1)
        first.cancel()

        await introduced(script, second)

        assert first.cancelled()
        assert f"<Server [{script.address} | native | b1]>" == repr(server)


async def test_closing_ends_the_introduction() -> None:
    """Whoever waits for it is told."""
    async with scripted() as (script, server):
        meeting = asyncio.ensure_future(server.identify(1.0))
        await script.accept()

        await server.close()

        with pytest.raises(ConnectionClosedError, match="is no longer used"):
            await meeting


async def test_a_native_server_that_dies_while_it_is_met_is_not_taken_for_apaches() -> None:
    """It is asked a second time, and then it speaks."""
    async with scripted() as (script, server):
        meeting = asyncio.create_task(server.identify(1.0))
        dying = await script.accept()
        await dying.receive()
        dying.close()

        await introduced(script, meeting, "b2")

        assert (server.is_native, server.boot_id) == (True, "b2")


@pytest.mark.parametrize(("away", "refused"), [(59.9, 2), (60.0, 3)])
async def test_apaches_server_is_asked_natively_again_after_a_minute(away: float, refused: int) -> None:
    """At first twice: a native server that just died would look the same. Then it may have been replaced by ours."""
    clock = FakeClock()
    async with apache_at(clock) as (apache, server):
        await server.identify(1.0)
        answer = await server.route_by_topic("t", 1.0)
        assert (server.is_native, apache.refused, apache.topics_asked) == (False, 2, ["t"])
        route = answer.routes["t"]
        assert route is not None
        assert [data.broker_name for data in route.broker_datas] == ["broker-a"]
        assert (answer.revision, answer.is_conditional) == (None, False)
        apache.hang_up()
        await until(lambda: server.is_native is None)
        await clock.advance(away)

        await server.identify(1.0)
        await server.route_by_topic("t", 1.0)

        assert (False, refused, 2) == (server.is_native, apache.refused, len(apache.topics_asked))


async def test_a_protocol_is_learnt_once_for_all_clients_of_the_process() -> None:
    """Of a known native server the first question does not wait for SERVER_INFO, of Apache's none is refused."""
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
async def test_apaches_server_in_the_place_of_a_native_one(protocol: str) -> None:
    """A connection that closes before its first answer makes what was learnt forgotten; what was set stays an error."""
    clock, protocols = FakeClock(), ServerProtocols()
    async with apache_at(clock, protocols, protocol=protocol) as (apache, server):
        protocols.learn(apache.address, clock.monotonic(), is_native=True)
        await server.identify(1.0)
        with pytest.raises(ConnectionClosedError):
            await server.pull(["t"], 1.0)
        await until(lambda: server.is_native is None)

        await server.identify(1.0)
        assert (protocol == "native") == server.is_native
        assert (None if protocol == "native" else False) == protocols.is_native(apache.address, clock.monotonic())


async def test_a_server_that_refuses_the_code_is_asked_as_rocketmq() -> None:
    """One that knows the header and not the extension."""
    async with scripted() as (script, server):
        meeting = asyncio.ensure_future(server.identify(1.0))
        peer = await script.accept()
        peer.send(native_response(await peer.receive(), None, code=3))
        await meeting
        assert server.is_native is False


async def test_what_an_apache_server_lacks_proves_little_at_first() -> None:
    """It shrinks no route for 45 s, but may deny a topic; after a lost connection (a restart?) not even that."""
    clock = FakeClock()
    async with apache_at(clock, protocol="rocketmq") as (apache, server):
        await server.identify(1.0)
        first = await server.route_by_topic("none", 1.0)
        assert (
            server.is_complete,
            server.knows_all_topics,
            first.is_complete,
            first.knows_all_topics,
        ) == (False, True, False, True)
        await clock.advance(45.0)
        assert (server.is_complete, server.knows_all_topics) == (True, True)

        apache.hang_up()
        await until(lambda: server.is_native is None)
        between = await server.route_by_topic("t", 1.0)
        await server.identify(1.0)
        second = await server.route_by_topic("t", 1.0)
        for answer in (between, second):
            assert (answer.is_complete, answer.knows_all_topics) == (False, False)
        assert len({answer.boot_id for answer in (first, between, second)}) == 3
        await clock.advance(45.0)
        assert (server.is_complete, server.knows_all_topics) == (True, True)
        assert (apache.refused, apache.connections) == (0, 2)


async def test_zones_are_the_servers_business_in_rocketmqs_protocol() -> None:
    """The question carries the zone."""
    async with scripted(protocol="rocketmq", zone_name="east") as (script, server):
        await server.identify(1.0)
        asking = asyncio.ensure_future(server.route_by_topic("t", 1.0))
        peer = await script.accept()
        question = await peer.receive()
        peer.answer(question.opaque, apache_route("broker-a"))
        await asking

        assert (question.header["extFields"]) == {
            "topic": "t",
            "acceptStandardJsonOnly": "true",
            "__ZONE_NAME": "east",
            "__ZONE_MODE": "true",
        }


async def test_zones_are_the_clients_business_natively(tmp_path: Path) -> None:
    """PULL_ROUTES has none."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as namesrv:
        peer = await namesrv.connect()
        await peer.register(BROKER_A, __ZONE_NAME="east", zoneName="east")
        async with server_at(namesrv.where, clock, zone_name="west") as server:
            await server.identify(1.0)
            answer = await server.pull(["T", "none"], 1.0)

            assert answer.routes["T"] is not None
            assert (answer.routes["T"].broker_datas, answer.routes["none"]) == ([], None)
