"""First requests for routes are shared by their callers."""

import asyncio
import gc
from pathlib import Path

import pytest

from namesrv_client import Route, RouteUnavailableError, TopicNotFoundError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, passing, until
from tests.support.route_clients import BROKER_B, registered, route_client, route_scene
from tests.support.scripted_server import ScriptedServer


async def test_concurrent_calls_share_a_request(tmp_path: Path) -> None:
    """Calls for 200 topics become one request, and each caller gets its own result or error."""
    async with route_scene(tmp_path) as scene:
        topics = tuple(f"topic-{number}" for number in range(200))
        await registered(scene.server, BROKER_B, topics=topics)

        wanted = [*topics, *["orders"] * 100, *["none"] * 100]
        found = await asyncio.gather(*(scene.client.route(topic) for topic in wanted), return_exceptions=True)

        assert scene.request_count() == 1
        routes = [route for route in found if not isinstance(route, BaseException)]
        assert [(topic, "pull") for topic in wanted[:300]] == [(route.topic, route.source) for route in routes]
        assert {type(error) for error in found[300:]} == {TopicNotFoundError}
        with pytest.raises(TopicNotFoundError, match=r"topic none does not exist, according to 127\.0\.0\.1:"):
            await scene.client.route("none")
        assert scene.request_count() == 2


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        # Half of a surrogate pair, as Python reads an invalid byte of a file name or argument, has no UTF-8.
        ("bad\udcff", r"topic 'bad\udcff' is not valid Unicode: surrogates not allowed"),
        ("", "topic name of 0 characters: must have 1 to 390"),
        ("x" * 391, "topic name of 391 characters: must have 1 to 390"),
    ],
    ids=["surrogate", "empty", "long"],
)
async def test_name_that_cannot_be_sent_does_not_affect_other_topics(
    tmp_path: Path, protocol: str, name: str, problem: str
) -> None:
    """An invalid name is refused before it becomes part of the request for all topics of the moment."""
    async with route_scene(tmp_path, protocol=protocol) as scene:
        found, error = await asyncio.gather(
            scene.client.route("orders"), scene.client.route(name), return_exceptions=True
        )

        assert (type(error), str(error)) == (ValueError, problem)
        assert isinstance(found, Route)


async def test_unanswered_topic_does_not_delay_others() -> None:
    """An Apache server answers two of three topics; callers of those two return at once."""
    clock = FakeClock()
    async with ApacheServer() as apache:
        apache.routes |= {"t": apache_route("broker-a"), "u": apache_route("broker-a"), "silent": None}
        async with route_client(clock, apache.address, protocol="rocketmq") as client:
            silent, *others = [asyncio.ensure_future(client.route(topic)) for topic in ("silent", "t", "u")]
            await asyncio.wait(others)
            assert [task.result().topic for task in others] == ["t", "u"]
            assert not silent.done()

            await passing(clock, silent.done)
            with pytest.raises(RouteUnavailableError, match="topic silent"):
                silent.result()


async def test_cancelled_caller_does_not_cancel_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of two callers is cancelled; a failure without a waiting caller is not reported by asyncio."""
    async with route_scene(tmp_path) as scene:
        asking = [asyncio.ensure_future(scene.client.route(topic)) for topic in ("orders", "orders", "none")]
        await asyncio.sleep(0)
        asking[0].cancel()
        asking[2].cancel()

        assert (await asking[1]).topic == "orders"
        assert asking[0].cancelled()
        await until(lambda: not len(scene.client._keeper._fetches))
        asking.clear()
        gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_closing_the_client_fails_pending_calls() -> None:
    """Pending callers get an error instead of a cancellation."""
    async with ScriptedServer() as hole:
        clock = FakeClock()
        async with route_client(clock, hole.address) as client:
            asking = asyncio.ensure_future(client.route("orders"))
            await hole.accept()
            ended = clock.monotonic()

        # closing does not wait for the pending request
        assert clock.monotonic() - ended < 1.0
        for late in (asking, client.route("orders")):
            with pytest.raises(RouteUnavailableError, match="topic orders: the client is closed"):
                await late
        client.report("broker-a", 1.0, failed=True)
        assert hole.connections == 1
