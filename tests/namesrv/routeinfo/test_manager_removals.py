"""When a broker leaves, when a removal is too late, and what stops of the process change."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from namesrv.routeinfo.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    Evicted,
    Fenced,
    Reason,
    RegisterResult,
    RouteChanged,
    Scanned,
    Unregistered,
)
from namesrv_remoting.bodies.topic import DataVersion
from tests.support.route_builders import RouteScene, addresses, body, key, registration, rows
from tests.support.table_invariants import violations

MASTER = registration("b1", 0, "m:1", digest=b"master", enable_acting_master=True, ha_server_addr="m:2")
SLAVE = registration("b1", 1, "s:1", digest=b"slave", enable_acting_master=True, connection_id=2)
OTHER = registration("b2", 0, "o:1", digest=b"other", connection_id=3)
M, S, O = key("m:1"), key("s:1"), key("o:1")  # noqa: E741 - a broker, as the two others


@pytest.fixture
def scene() -> RouteScene:
    """An empty server."""
    return RouteScene()


def live(scene: RouteScene, broker: BrokerAddrInfo) -> BrokerLiveInfo:
    """The entry of a live broker."""
    return scene.tables.broker_live_table[broker]


async def begin(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start work that takes more than one step, and leave it where it lets others run."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    assert not task.done()
    return task


# ---- silence ----


@pytest.mark.parametrize(("silent_for", "evicted"), [(119.9, 0), (120.0, 0), (120.1, 1)])
async def test_silent_broker_is_evicted(scene: RouteScene, silent_for: float, evicted: int) -> None:
    """Silent for more than 120 s, by the clock that nobody sets."""
    await scene.register(MASTER)
    before = live(scene, M)
    scene.take_effects()
    scene.pass_time(silent_for)

    assert evicted == await scene.manager.evict_silent()

    assert 1 - evicted == len(scene.tables.broker_live_table)
    if evicted:
        scanned, changed, gone = scene.take_effects()
        assert isinstance(scanned, Scanned)
        assert (1, scene.manager.now(), 1) == (scanned.scan, scanned.now, scanned.brokers)
        assert isinstance(changed, RouteChanged)
        assert ["t1", "t2"] == sorted(changed.topics or ())
        assert isinstance(gone, Evicted)
        assert 1 == gone.scan
        assert (M, before, "silent", 120.1) == (gone.key, gone.live, gone.reason, round(gone.silent_seconds, 6))


async def test_expiry_is_the_brokers_own(scene: RouteScene) -> None:
    """heartbeatTimeoutMillis: kept alive by a heartbeat per second, gone 10 s after the last one."""
    await scene.register(replace(MASTER, expiry_seconds=10.0), OTHER)
    for _ in range(30):
        scene.pass_time(1.0)
        scene.manager.touch(M, 1)
        assert 0 == await scene.manager.evict_silent()

    scene.pass_time(10.0)
    assert 0 == await scene.manager.evict_silent()
    scene.pass_time(0.1)
    assert 1 == await scene.manager.evict_silent()
    assert [O] == list(scene.tables.broker_live_table)


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
async def test_wall_clock_evicts_nobody(scene: RouteScene, step: float) -> None:
    """Somebody set the machine's clock: no broker has been silent for it."""
    await scene.register(MASTER)
    scene.pass_time(100.0)
    scene.clock.step_wall(step)

    assert 0 == await scene.manager.evict_silent()
    scene.pass_time(20.1)
    assert 1 == await scene.manager.evict_silent()


async def test_all_that_are_silent_go_and_no_other(scene: RouteScene) -> None:
    """One scan, several groups; whoever was heard stays."""
    await scene.register(MASTER, SLAVE, OTHER)
    scene.pass_time(60.0)
    scene.manager.touch(O, 3)
    scene.pass_time(60.1)

    assert 2 == await scene.manager.evict_silent()
    assert {"t1": {"b2": 6}, "t2": {"b2": 6}} == rows(scene.tables)
    assert 0 == await scene.manager.evict_silent()


# ---- own lateness ----


@pytest.mark.parametrize(("seconds", "now"), [(0.0, 1_000.0), (0.24, 1_000.0), (0.25, 999.75)])
def test_grain_of_a_timer_is_no_lateness(scene: RouteScene, seconds: float, now: float) -> None:
    """Ticks are always a little late; adding that up would make every expiry a lie."""
    scene.manager.was_stopped(seconds)

    assert now == scene.manager.now()


async def test_broker_heard_between_waking_and_being_told(scene: RouteScene) -> None:
    """Its heartbeat was read before the tick could say how late we are: it has 120 s from now, and no more."""
    await scene.register(MASTER, OTHER)
    scene.pass_time(300.0)
    scene.manager.touch(M, 1)
    assert 1_300.0 == live(scene, M).last_update

    scene.manager.was_stopped(300.0)

    assert (1_000.0, 1_000.0) == (scene.manager.now(), live(scene, M).last_update)
    assert [] == violations(scene.tables)
    scene.pass_time(120.0)
    assert 0 == await scene.manager.evict_silent()
    scene.pass_time(0.1)
    assert 2 == await scene.manager.evict_silent()


async def test_registration_between_waking_and_being_told(scene: RouteScene) -> None:
    """A broker that is new has a deadline in the future that was taken back."""
    scene.pass_time(300.0)
    await scene.register(MASTER)

    scene.manager.was_stopped(300.0)

    assert [] == violations(scene.tables)
    scene.pass_time(120.1)
    assert 1 == await scene.manager.evict_silent()


# ---- connections that end ----


async def test_closed_connection_takes_all_its_brokers_along(scene: RouteScene) -> None:
    """A BrokerContainer registers many over one connection; Java would remove one of them."""
    await scene.register(MASTER, replace(SLAVE, connection_id=1), OTHER)
    before = live(scene, M), live(scene, S)
    scene.take_effects()
    scene.pass_time(5.0)

    await scene.close(1)

    evicted = [effect for effect in scene.take_effects() if isinstance(effect, Evicted)]
    assert [Evicted(M, before[0], "disconnected", 5.0), Evicted(S, before[1], "disconnected", 5.0)] == evicted
    assert {"b2": {0: "o:1"}} == addresses(scene.tables)
    assert {"t1": {"b2": 6}, "t2": {"b2": 6}} == rows(scene.tables)


async def test_slave_then_master_leave(scene: RouteScene) -> None:
    """onChannelDestroy, switchBrokerRole_ChannelDestroy: each connection takes its own broker along."""
    await scene.register(MASTER, SLAVE)

    await scene.close(2)
    assert {"b1": {0: "m:1"}} == addresses(scene.tables)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)

    await scene.close(1)
    assert {} == addresses(scene.tables)
    assert {} == rows(scene.tables)


async def test_connection_without_brokers(scene: RouteScene) -> None:
    """Most connections are clients': their end waits for no lock."""
    await scene.register(MASTER)
    scene.take_effects()
    async with scene.manager.lock.write():
        await scene.close(7)

    assert ([], [M]) == (scene.effects, list(scene.tables.broker_live_table))


async def test_old_connection_of_a_broker_that_registered_over_a_new_one(scene: RouteScene) -> None:
    """The open Java race (apache/rocketmq#11043): a late close touches nothing newer."""
    await scene.register(MASTER)
    await scene.register(replace(MASTER, connection_id=5))
    scene.take_effects()

    await scene.close(1)

    assert ([], 5) == (scene.effects, live(scene, M).connection_id)


# ---- leaving ----


async def test_unregister(scene: RouteScene) -> None:
    """All three routes gone; the goodbye and the eviction are told apart."""
    await scene.register(MASTER)
    before = live(scene, M)
    scene.take_effects()
    scene.pass_time(3.0)

    await scene.manager.unregister(M, "b1", 1)

    goodbye, changed, evicted = scene.take_effects()
    assert (Unregistered(M, before), Evicted(M, before, "unregistered", 3.0)) == (goodbye, evicted)
    assert isinstance(changed, RouteChanged)
    assert "<RouteTables [0 clusters | 0 groups | 0 live | 0 topics]>" == repr(scene.tables)


@pytest.mark.parametrize(
    ("broker", "name"), [(O, "b1"), (key("m:1", "c2"), "b1"), (M, "b9")], ids=["address", "cluster", "name"]
)
async def test_unregister_what_is_not_registered(scene: RouteScene, broker: BrokerAddrInfo, name: str) -> None:
    """Somebody else's goodbye."""
    await scene.register(MASTER)
    scene.take_effects()

    await scene.manager.unregister(broker, name, 1)

    assert ([], [M]) == (scene.effects, list(scene.tables.broker_live_table))


@pytest.mark.parametrize(
    ("connection_id", "agent_id", "seq", "is_stale"),
    [
        (1, None, None, True),
        (2, "a", 5, False),
        (0, "a", 5, True),
        (1, "a", 5, False),
        (1, "a", 6, False),
        (1, "a", 4, True),
        (1, "a", None, True),
        (1, "former process", 9, True),
    ],
)
async def test_stale_goodbye_is_fenced(
    scene: RouteScene,
    connection_id: int,
    agent_id: str | None,
    seq: int | None,
    is_stale: bool,  # noqa: FBT001 - a case
) -> None:
    """Over an older connection, of another process or nobody's, or said before the latest registration."""
    await scene.register(replace(MASTER, is_native=True, agent_id="a", registration_seq=5))
    before = live(scene, M)
    scene.take_effects()

    await scene.manager.unregister(M, "b1", connection_id, agent_id=agent_id, registration_seq=seq)

    if is_stale:
        assert ([Fenced(M, before, "unregistered")], {M: before}) == (scene.effects, scene.tables.broker_live_table)
    else:
        assert {} == scene.tables.broker_live_table


async def test_displaced_masters_goodbye_does_nothing_to_the_new_one(scene: RouteScene) -> None:
    """The old address is not registered any more."""
    await scene.register(MASTER, replace(MASTER, broker_addr="n:1"))

    await scene.manager.unregister(M, "b1", 1)

    assert {"b1": {0: "n:1"}} == addresses(scene.tables)


# ---- removals that come too late, in the middle of their work ----


@pytest.mark.usefixtures("small_chunks")
async def test_heartbeat_stops_an_eviction_in_the_making(scene: RouteScene) -> None:
    """What was worked out is thrown away."""
    await scene.register(MASTER)
    scene.pass_time(121.0)
    scene.take_effects()
    eviction_under_way = await begin(scene.manager.evict_silent())

    scene.manager.touch(M, 1)

    assert 0 == await eviction_under_way
    scanned, fenced = scene.take_effects()
    assert isinstance(scanned, Scanned)
    assert Fenced(M, live(scene, M), "silent", scan=1) == fenced
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)
    assert [] == violations(scene.tables)


@pytest.mark.usefixtures("small_chunks")
async def test_one_heard_in_time_does_not_save_the_others(scene: RouteScene) -> None:
    """Each removal is fenced by itself."""
    await scene.register(MASTER, OTHER)
    scene.pass_time(121.0)
    eviction_under_way = await begin(scene.manager.evict_silent())

    scene.manager.touch(O, 3)

    assert 1 == await eviction_under_way
    assert [O] == list(scene.tables.broker_live_table)
    assert {"t1": {"b2": 6}, "t2": {"b2": 6}} == rows(scene.tables)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("reason", ["silent", "disconnected", "unregistered"])
async def test_unchanged_registration_stops_every_removal_in_the_making(scene: RouteScene, reason: Reason) -> None:
    """It needs no lock, and is newer than what was decided."""
    await scene.register(MASTER)
    scene.pass_time(121.0)
    manager = scene.manager
    if reason == "disconnected":
        scene.closed.add(1)
    scene.take_effects()
    works: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "silent": manager.evict_silent,
        "disconnected": lambda: manager.connection_closed(1),
        "unregistered": lambda: manager.unregister(M, "b1", 1),
    }
    removal = await begin(works[reason]())

    assert RegisterResult() == manager.register_unchanged(M, b"master", 2, None)

    await removal
    assert Fenced(M, live(scene, M), reason, scan=1 if reason == "silent" else None) == scene.take_effects()[-1]
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)


@pytest.mark.usefixtures("small_chunks")
async def test_heartbeat_does_not_stop_a_goodbye(scene: RouteScene) -> None:
    """The broker meant it; its timer fired once more."""
    await scene.register(MASTER)
    goodbye = await begin(scene.manager.unregister(M, "b1", 1))

    scene.manager.touch(M, 1)

    await goodbye
    assert {} == scene.tables.broker_live_table


@pytest.mark.usefixtures("small_chunks")
async def test_heartbeat_over_a_newer_connection_stops_a_close(scene: RouteScene) -> None:
    """Only for the broker that sent it; the others on the closed connection go."""
    await scene.register(MASTER, replace(OTHER, connection_id=1))
    scene.closed.add(1)
    closing = await begin(scene.manager.connection_closed(1))

    scene.manager.touch(O, 2)

    await closing
    assert [O] == list(scene.tables.broker_live_table)
    assert [] == violations(scene.tables)


@pytest.mark.usefixtures("small_chunks")
async def test_nobody_sees_half_a_removal(scene: RouteScene) -> None:
    """While it is worked out, every route is as before, encoded or not; then all are gone at once."""
    await scene.register(registration("b1", 0, "m:1", *(f"t{number}" for number in range(7))))
    before = [scene.json_cache.fill(f"t{number}") for number in range(4)]
    goodbye = asyncio.create_task(scene.manager.unregister(M, "b1", 1))
    passes = 0
    while not goodbye.done():
        await asyncio.sleep(0)
        if M in scene.tables.broker_live_table:
            passes += 1
            assert before == [scene.json_cache.entries[f"t{number}"] for number in range(4)]
            assert before[0] == scene.json_cache.fill("t6")
            assert [] == violations(scene.tables)

    # seven topics, two at a time
    assert 3 == passes
    assert {} == scene.json_cache.entries
    assert [None] * 7 == [scene.json_cache.fill(f"t{number}") for number in range(7)]


@pytest.mark.usefixtures("small_chunks")
async def test_nobody_sees_half_a_registration(scene: RouteScene) -> None:
    """The new queues appear at once."""
    await scene.register(MASTER)
    registration_under_way = await begin(
        scene.manager.register(replace(MASTER, broker_addr="n:1", body=body(*(f"t{number}" for number in range(7)))))
    )

    assert {"b1": {0: "m:1"}} == addresses(scene.tables)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)

    await registration_under_way
    assert {"b1": {0: "n:1"}} == addresses(scene.tables)
    assert 7 == len(rows(scene.tables))


@pytest.mark.usefixtures("small_chunks")
async def test_connection_ends_while_its_registration_is_worked_out(scene: RouteScene) -> None:
    """A broker that is not there yet cannot be taken out by the end of its connection, so it never comes in."""
    await scene.register(OTHER)
    scene.take_effects()
    registration_under_way = await begin(scene.manager.register(MASTER))

    await scene.close(1)

    assert RegisterResult() == await registration_under_way
    assert ([O], []) == (list(scene.tables.broker_live_table), scene.effects)
    assert [] == violations(scene.tables)


@pytest.mark.usefixtures("small_chunks")
async def test_broker_reconnects_while_its_registration_is_worked_out(scene: RouteScene) -> None:
    """It is heard over the new connection first: the end of the old one means nothing, and its state is kept."""
    await scene.register(MASTER)
    registration_under_way = await begin(scene.manager.register(replace(MASTER, body=body("t1", "t2", counter=2))))

    scene.pass_time(1.0)
    scene.manager.touch(M, 2, {"depth": 1})

    await registration_under_way
    await scene.close(1)
    after = live(scene, M)
    assert (1_001.0, 2, {"depth": 1}, DataVersion(2)) == (
        after.last_update,
        after.connection_id,
        after.state,
        after.data_version,
    )
