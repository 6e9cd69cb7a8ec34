"""Callbacks of a client: their order, failing callbacks, and silence after the end."""

import logging
from pathlib import Path

import pytest

from namesrv_client import RouteChange, RouteClient, SyncRouteClient
from tests.support.fake_clock import until
from tests.support.recording_callbacks import RecordingCallbacks
from tests.support.route_clients import BROKER_A, BROKER_B, registered, route_scene


async def test_callbacks_run_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Events of servers come in order, and failing callbacks change nothing."""
    callbacks = RecordingCallbacks()
    listed = tmp_path / "servers"
    async with route_scene(tmp_path, [BROKER_A], [BROKER_A], poll_seconds=80_000.0) as scene:
        first, second = scene.proxy.address, scene.servers[1].where
        listed.write_text(first)
        options = {"poll_seconds": 80_000.0, "refresh_seconds": 10.0, "warm_up_seconds": 0.0}
        settings = scene.client.settings.model_copy(update={"name_servers": f"file:{listed}", **options})
        client = RouteClient(settings, clock=scene.clock, **callbacks.options)  # type: ignore[arg-type]
        async with client:
            assert callbacks.take() == [("servers_changed", f"('{first}',)")]
            await client.route("orders")
            assert callbacks.take() == [("connected", first), ("ready",)]
            assert await client.refresh()
            assert callbacks.take() == []

            scene.proxy.cut()
            await until(lambda: callbacks.calls)
            assert callbacks.take() == [("disconnected", first)]
            assert not await client.refresh()
            await scene.proxy.heal()
            await scene.clock.advance(1.0)
            assert await client.refresh()
            assert callbacks.take() == [("connected", first), ("ready",)]

            listed.write_text(second)
            await scene.clock.advance(10.0)
            await until(lambda: len(callbacks.calls) == 2)
            assert callbacks.take() == [("servers_changed", f"('{second}',)"), ("disconnected", first)]
            assert await client.refresh()
            assert callbacks.take() == [("connected", second)]
        assert callbacks.take() == []
    failures = [record for record in caplog.records if record.name == "namesrv_client.callback"]
    assert [record.levelno for record in failures] == [logging.ERROR] * 9


async def test_callback_may_forget_topics(tmp_path: Path) -> None:
    """A forgotten topic has no further changes, also of the same response; its caller gets the route all the same."""
    async with route_scene(tmp_path) as scene:
        for topic in ("orders", "bills"):
            await scene.client.route(topic)
        changes = list[RouteChange]()

        def forget_all(change: RouteChange) -> None:
            changes.append(change)
            for topic in ("orders", "bills"):
                scene.client.forget(topic)

        scene.client.on_change(forget_all)
        await registered(scene.server, BROKER_B)
        assert await scene.client.refresh()
        assert [change.brokers_added for change in changes] == [("broker-b",)]

        assert list((await scene.client.route("orders")).brokers) == ["broker-a", "broker-b"]
        assert (len(changes), scene.names(), scene.client.is_in_use("orders")) == (2, None, False)


@pytest.mark.parametrize("client", [RouteClient, SyncRouteClient])
def test_a_coroutine_function_is_refused(client: type[RouteClient | SyncRouteClient]) -> None:
    """A coroutine would never be awaited; the constructor of a client for threads refuses it, too."""

    async def ready() -> None: ...

    with pytest.raises(TypeError, match=r"^on_ready: a coroutine function would never be awaited"):
        client("127.0.0.1:1", on_ready=ready)
    with pytest.raises(TypeError, match="on_redy"):
        client("127.0.0.1:1", on_redy=print)  # type: ignore[call-arg]  # the type checker refuses it, too

    async def changed(_: RouteChange) -> None: ...

    with pytest.raises(TypeError, match=r"^on_change: a coroutine function would never be awaited"):
        RouteClient("127.0.0.1:1").on_change(changed)  # type: ignore[arg-type]  # the type checker refuses it, too
