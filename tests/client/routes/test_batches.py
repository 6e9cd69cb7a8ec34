"""Requests for many topics: batches, refusals of a topic, and the time limit."""

import asyncio
from pathlib import Path

import msgpack
import pytest

from namesrv_client import RouteUnavailableError
from namesrv_client.routes.response import RouteResponse
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, passing, until
from tests.support.in_process import frames_of_at_most, namesrv_in_process
from tests.support.namesrv_peer import topic_config
from tests.support.route_clients import BROKER_A, BROKER_B, PULL, registered
from tests.support.route_sessions import MANY, native, session_of
from tests.support.scripted_server import ScriptedRequest, ScriptedServer
from tests.support.spelling import NATIVE, cut


async def test_many_topics_are_requested_in_batches(tmp_path: Path) -> None:
    """Batches of 500 fit into a frame and do not block the loop when they are decoded."""
    topics = sorted(f"topic-{number}" for number in range(1_200))
    async with native(tmp_path, 1) as (scene, (server,), _):
        await registered(server, BROKER_B, topics=tuple(topics))
        assert await scene.changes(*topics) == topics
        assert [len(answer.topics) for answer in scene.answers] == [500, 500, 200]

        assert await scene.changes(*topics) == []
        assert [len(answer.topics) for answer in scene.answers] == [1_200]


async def test_too_large_response_is_requested_in_halves(tmp_path: Path) -> None:
    """The server refuses the batch, and halves are requested, also for many changes and by a watch."""
    clock = FakeClock()
    # each route has about 230 bytes
    topics = tuple(sorted(f"topic-{number}" for number in range(400)))
    async with (
        namesrv_in_process(tmp_path, clock=clock, limits=frames_of_at_most(65_536)) as server,
        session_of(server, clock=clock) as scene,
    ):
        for counter in (1, 2, 3):
            configs = [topic_config(topic, write=counter) for topic in topics]
            await registered(server, BROKER_A, topics=tuple(configs[:200]), counter=counter)
            await registered(server, BROKER_B, topics=tuple(configs[200:]), counter=counter)
            if counter < 3:
                assert list(topics) == await scene.changes(*topics)
                assert [len(answer.topics) for answer in scene.answers] == [200, 200]
            else:
                assert await scene.session.watch(topics, 25.0, scene.take) == (True, [])
            assert await scene.changes(*topics) == []


async def test_invalid_topic_does_not_block_the_others(tmp_path: Path) -> None:
    """A name of 391 characters makes the server refuse the whole batch."""
    async with native(tmp_path, 1) as (scene, _, proxy):
        assert await scene.changes("orders", "x" * 391, "bills") == ["bills", "orders"]
        assert "PULL_ROUTES" in scene.session.errors[proxy.address]


class SlowServer(ApacheServer):
    """Answers one topic every 0.8 s."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    async def _answer(self, request: ScriptedRequest, topic: str) -> bytes:
        await self.clock.sleep(0.8)
        return await super()._answer(request, topic)


async def test_call_for_many_topics_ends_within_its_timeout() -> None:
    """A RocketMQ server that answers slowly has no time for all topics of the call, and stays chosen."""
    clock, topics = FakeClock(), [f"topic-{number:02}" for number in range(20)]
    async with SlowServer(clock) as server, session_of(server, clock=clock, protocol="rocketmq") as scene:
        server.routes |= dict.fromkeys(topics, apache_route("broker-a"))
        asking, took = await scene.timed(scene.session.fetch(topics, scene.take))

        assert 2.9 <= took <= 3.1
        answered = len(scene.answers)
        assert sorted(asking.result()) == topics[answered:]
        assert 1 <= answered <= 3
        assert scene.session.chosen == server.address
        assert asking.result()["topic-19"] == (
            f"no NameServer could answer: {server.address} did not answer for all topics within 3 s"
        )


async def test_call_for_many_batches_ends_within_its_timeout(tmp_path: Path) -> None:
    """The server answers the first batch after a second, and nothing from then on."""
    topics = [f"topic-{number:04}" for number in range(1_500)]
    async with native(tmp_path, 1) as (scene, (server,), proxy):
        await registered(server, BROKER_B, topics=tuple(topics))

        def take(answer: RouteResponse) -> None:
            scene.take(answer)
            proxy.stall()
            scene.clock.stall(1.0)

        asking, took = await scene.timed(scene.session.fetch(topics, take))
        assert (sorted(asking.result()), proxy.address) == (topics[500:], scene.session.chosen)
        assert 2.9 <= took <= 3.1


async def test_halving_of_refused_batches_ends() -> None:
    """600 refused topics cause 24 requests."""
    refused = 0

    async def serve() -> None:
        nonlocal refused
        peer = await scripted.accept()
        while True:
            request = await peer.receive()
            is_pull = request.code == PULL
            refused += is_pull
            header = [int(is_pull), request.opaque, 1, 479, "a bug" if is_pull else None, None]
            peer.send(cut(NATIVE, msgpack.packb(header), b"" if is_pull else msgpack.packb({"boot_id": "b1"})))

    async with ScriptedServer() as scripted, session_of(scripted, protocol="auto") as scene:
        serving = asyncio.ensure_future(serve())
        with pytest.raises(RouteUnavailableError, match="a bug"):
            await scene.changes(*(f"topic-{number}" for number in range(600)))
        assert refused == 24
        serving.cancel()


async def test_failure_of_one_topic_does_not_affect_others() -> None:
    """An error, an invalid body and a missing response; in Java each of them ends the round."""
    async with ApacheServer() as apache, session_of(apache, protocol="rocketmq") as scene:
        apache.routes |= {**dict.fromkeys(MANY, apache_route("broker-a")), "error": 1, "garbage": b"{", "silent": None}
        asking = asyncio.ensure_future(scene.changes("error", "garbage", "silent", "none", *MANY))
        await until(lambda: len(scene.answers) == 41)
        await passing(scene.clock, asking.done)

        assert sorted(["none", *MANY]) == asking.result()
        assert [answer.routes["none"] for answer in scene.answers if "none" in answer.routes] == [None]
        assert (scene.session.chosen, apache.connections) == (apache.address, 1)
        assert "topic silent" in scene.session.errors[apache.address]
