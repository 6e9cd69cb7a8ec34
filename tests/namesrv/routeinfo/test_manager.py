"""The route manager's effects, limits, fences and costs, which the state machine does not check."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from namesrv.routeinfo.manager import OTHER_CONNECTION_NOTE_SECONDS, RouteInfoManager
from namesrv.routeinfo.rules import TableQuotas, TakeoverPolicy
from namesrv.routeinfo.tables.connections import MAX_OTHER_CONNECTIONS
from namesrv.routeinfo.tables.effects import (
    Effect,
    Evicted,
    Fenced,
    OverQuota,
    Registered,
    RouteChanged,
    Scanned,
    TakeoverAttempted,
    Unregistered,
    WritePermissionChanged,
)
from namesrv.routeinfo.tables.liveness import NEVER, LivenessClock
from namesrv.routeinfo.tables.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    Reason,
    RegisterResult,
    Registration,
    RouteOptions,
)
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.bodies.topic import DataVersion, TopicQueueMappingInfo
from namesrv_remoting.codes import PERM_WRITE
from namesrv_remoting.errors import BadRequestError, SystemBusyError
from namesrv_remoting.requests import AccessClass
from tests.support.fake_clock import FakeClock
from tests.support.route_builders import ROOMY, RouteScene, body, key, queue_data, registration, rows
from tests.support.route_model import facts_of
from tests.support.table_invariants import violations

MASTER = registration("b1", 0, "m:1", digest=b"master", enable_acting_master=True, ha_server_addr="m:2")
SLAVE = registration("b1", 1, "s:1", digest=b"slave", enable_acting_master=True, connection_id=2)
OTHER = registration("b2", 0, "o:1", digest=b"other", connection_id=3)
M, S, O = key("m:1"), key("s:1"), key("o:1")  # noqa: E741 - a broker, as the two others
BOTH_TOPICS = RouteChanged({"t1": None, "t2": None}.keys(), 1, broker_name="b1")


@pytest.fixture
def scene() -> RouteScene:
    """Empty tables with a manager."""
    return RouteScene()


def live(scene: RouteScene, broker: BrokerAddrInfo) -> BrokerLiveInfo:
    """The live entry of a broker."""
    return scene.tables.broker_live_table[broker]


async def begin(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start work that takes several steps, and leave it where it first yields to other tasks."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_effects_of_one_broker(scene: RouteScene) -> None:
    """The route change precedes the effect of its broker; an unchanged registration changes no route."""
    await scene.register(MASTER)
    first = live(scene, M)
    assert scene.take_effects() == [BOTH_TOPICS, Registered(M, first, "full", 2, is_new=True, silent_seconds=0.0)]

    scene.pass_time(30.0)
    await scene.register(MASTER)
    assert [Registered(M, live(scene, M), "full", 2, is_new=False, silent_seconds=30.0)] == scene.take_effects()

    scene.pass_time(30.0)
    assert scene.manager.register_unchanged(M, b"master", 1, None) == RegisterResult()
    assert [Registered(M, live(scene, M), "unchanged", 2, is_new=False, silent_seconds=30.0)] == scene.take_effects()

    scene.pass_time(5.0)
    last_seen = scene.manager.touch(M, 1)
    assert last_seen is live(scene, M)
    assert (scene.touched, scene.take_effects()) == ([(M, last_seen, 5.0)], [])

    scene.pass_time(3.0)
    assert await scene.manager.unregister(M, "b1", 1)
    gone = replace(BOTH_TOPICS, revision=2)
    assert scene.take_effects() == [Unregistered(M, last_seen), gone, Evicted(M, last_seen, "unregistered", 3.0)]
    assert repr(scene.tables) == "<RouteTables [0 clusters | 0 groups | 0 live | 0 topics]>"
    assert "<RouteInfoManager [<RouteTables [0 clusters" in repr(scene.manager)


@pytest.mark.parametrize(("silent_for", "evicted"), [(119.9, 0), (120.0, 0), (120.1, 1)])
async def test_effects_of_a_scan(scene: RouteScene, silent_for: float, evicted: int) -> None:
    """A scan evicts brokers silent for more than 120 s of the monotonic clock, not of the wall clock."""
    await scene.register(MASTER, replace(OTHER, expiry_seconds=500.0))
    before = live(scene, M)
    scene.take_effects()
    scene.pass_time(silent_for)
    scene.clock.step_wall(86_400.0)

    assert await scene.manager.evict_silent() == evicted

    scanned, *others = scene.take_effects()
    assert Scanned(1, scene.manager.now(), 2) == scanned
    silent = scene.manager.now() - before.last_update
    assert others[1:] == [Evicted(M, before, "silent", silent, scan=1)] * evicted
    assert scene.manager.scans == 1


async def test_effects_of_operators(scene: RouteScene) -> None:
    """Operators' changes are effects only where something changes; responses count all topics."""
    await scene.register(MASTER, replace(OTHER, cluster_name="c2"))
    scene.take_effects()
    manager = scene.manager

    assert (await manager.wipe_write_perm("b1"), scene.changed_topics()) == (2, ["t1", "t2"])
    assert (await manager.wipe_write_perm("b1"), scene.take_effects()) == (2, [])
    assert (await manager.add_write_perm("b1"), scene.changed_topics()) == (2, ["t1", "t2"])
    membership = manager.membership
    assert (await manager.wipe_write_perm("b9"), await manager.add_write_perm("b9")) == (0, 0)
    assert (manager.membership, scene.take_effects()) == (membership, [])
    for name, cluster, changed in (("t1", "c2", ["t1"]), ("t1", "nowhere", []), ("t2", None, ["t2"]), ("t2", None, [])):
        await manager.delete_topic(name, cluster)
        assert scene.changed_topics() == changed
    await manager.register_topic("t1", [queue_data("b1")])
    assert scene.changed_topics() == []

    manager.routes_may_differ(["t9"])
    assert scene.take_effects() == []
    manager.routes_may_differ(["t1", "t9"])
    assert [RouteChanged({"t1": None}.keys(), 7)] == scene.take_effects()
    assert scene.json_cache.find("t1") is not None
    manager.routes_may_differ()
    assert scene.take_effects() == [RouteChanged(None, 8)]
    assert (len(scene.json_cache.memory), manager.revisions.changed_since(["t1"], 7)) == (0, None)


async def test_changes_of_other_brokers_keep_a_registration_unchanged(scene: RouteScene) -> None:
    """Changes of other brokers, also of the same topics, leave a broker's next registration unchanged."""
    await scene.register(MASTER, OTHER)
    await scene.register(replace(OTHER, body=body("t1", "t2", "t5", counter=9)))
    await scene.manager.wipe_write_perm("b2")
    await scene.close(3)

    assert scene.manager.register_unchanged(M, b"master", 1, None) == RegisterResult()


async def test_connection_of_a_broker(scene: RouteScene) -> None:
    """A heartbeat moves a broker to a newer connection once its own has ended; ended or older ones never do."""
    await scene.register(MASTER)
    scene.closed.add(9)
    for ended_or_older in (9, 0):
        assert scene.manager.register_unchanged(M, b"master", ended_or_older, None) is None
    assert scene.manager.touch(M, 9) is not None
    assert live(scene, M).connection_id == 1

    scene.closed.add(1)
    scene.manager.touch(M, 2, {"depth": 1})
    await scene.register(replace(MASTER, connection_id=0, body=body("t1", "t2", counter=2)))

    after = live(scene, M)
    assert (after.connection_id, after.state, after.data_version) == (2, {"depth": 1}, DataVersion(2))
    await scene.close(2)
    assert live(scene, M).connection_id == 0
    assert violations(scene.tables) == []


async def test_number_of_connections_of_a_broker_is_bounded(scene: RouteScene) -> None:
    """Sixteen connections are recorded; one with a registration replaces one with heartbeats only."""
    await scene.register(MASTER)
    for number in range(2, 2 + 2 * MAX_OTHER_CONNECTIONS):
        scene.manager.touch(M, number)
    await scene.register(replace(MASTER, connection_id=100))

    assert len(scene.tables.connections.others[M]) == MAX_OTHER_CONNECTIONS
    await scene.close(100)
    assert live(scene, M).connection_id == 1
    assert violations(scene.tables) == []


async def test_repeated_heartbeats_over_many_connections_are_cheap(scene: RouteScene) -> None:
    """A gateway may send heartbeats of a thousand brokers over a hundred connections without a look-up each."""

    class Closed(set[int]):
        asked = 0

        def __contains__(self, number: object) -> bool:
            self.asked += 1
            return super().__contains__(number)

    await scene.register(MASTER)
    for number in range(2, 3 * MAX_OTHER_CONNECTIONS):
        scene.manager.touch(M, number)
    known, scene.closed = dict(scene.tables.connections.others[M]), Closed()

    for number in range(2, 3 * MAX_OTHER_CONNECTIONS):
        scene.manager.touch(M, number)

    assert (scene.closed.asked, scene.tables.connections.others[M], live(scene, M).connection_id) == (0, known, 1)
    scene.pass_time(OTHER_CONNECTION_NOTE_SECONDS)
    scene.manager.touch(M, 2)
    assert scene.tables.connections.others[M][2].last_seen == 1_001.0


@pytest.mark.parametrize("grain", [0.0, 0.24])
async def test_timer_resolution_does_not_count_as_lateness(scene: RouteScene, grain: float) -> None:
    """Small delays of ticks are ignored, since their sum would lengthen every expiry."""
    scene.manager.was_stopped(grain)
    assert (scene.manager.now(), scene.effects) == (1_000.0, [])

    scene.manager.was_stopped(0.25)
    assert scene.manager.now() == 999.75


@pytest.mark.parametrize(("expiry_seconds", "second_credit"), [(120.0, 600.0), (600.0, 0.0)])
async def test_stops_within_the_longest_expiry_are_credited_with_600_seconds(
    scene: RouteScene, expiry_seconds: float, second_credit: float
) -> None:
    """A dead broker that asked for a long expiry stays for at most 600 s longer, too."""
    await scene.register(MASTER, replace(OTHER, expiry_seconds=expiry_seconds))
    scene.pass_time(600.0)
    assert scene.manager.was_stopped(600.0) == 600.0

    scene.pass_time(500.0 + 600.0)

    assert scene.manager.was_stopped(600.0) == second_credit


async def test_broker_seen_after_a_stop_stays_on_its_connection(scene: RouteScene) -> None:
    """A heartbeat may arrive before the stop is credited; the close of its connection still removes the broker."""
    await scene.register(MASTER)
    scene.pass_time(600.0)
    scene.manager.touch(M, 1)
    assert scene.manager.was_stopped(600.0) == 600.0

    assert (live(scene, M).last_update, live(scene, M).connection_id) == (scene.manager.now(), 1)
    await scene.close(1)
    assert M not in scene.tables.broker_live_table


# ---- removals that are overtaken ----


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("reason", ["silent", "disconnected", "unregistered"])
async def test_registration_fences_a_removal_under_way(scene: RouteScene, reason: Reason) -> None:
    """An unchanged registration, which needs no lock, fences a removal that was decided before it."""
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

    assert manager.register_unchanged(M, b"master", 2, None) == RegisterResult()

    assert not await removal
    assert Fenced(M, live(scene, M), reason, scan=1 if reason == "silent" else None) == scene.take_effects()[-1]
    assert rows(scene.tables) == {"t1": {"b1": 6}, "t2": {"b1": 6}}


@pytest.mark.usefixtures("small_chunks")
async def test_registration_during_an_unregistration_waits(scene: RouteScene) -> None:
    """While its removal waits for the lock, a broker's unchanged registration must be processed in full."""
    await scene.register(MASTER)
    busy = await begin(scene.manager.register(OTHER))
    leaving = await begin(scene.manager.unregister(M, "b1", 1))

    coming_back = scene.manager.register_unchanged(M, b"master", 1, None)

    assert coming_back is None, "the registration must wait for the lock"
    await busy
    assert await leaving
    assert rows(scene.tables) == {"t1": {"b2": 6}, "t2": {"b2": 6}}
    await scene.register(MASTER)
    assert scene.manager.register_unchanged(M, b"master", 1, None) == RegisterResult()


@pytest.mark.usefixtures("small_chunks")
async def test_registration_that_was_planned_under_former_options_is_applied_again(scene: RouteScene) -> None:
    """An option that drops missing topics takes effect with the next registration, even if it is equal."""
    await scene.register(replace(MASTER, body=body("t1", "t2", "t3")))
    fewer = replace(MASTER, body=body("t1", "t2"), digest=b"fewer")
    registering = await begin(scene.manager.register(fewer))

    scene.options.delete_topic_with_broker_registration = True
    scene.manager.routes_may_differ()

    await registering
    assert scene.manager.register_unchanged(M, b"fewer", 1, None) is None
    await scene.register(fewer)
    assert rows(scene.tables) == {"t1": {"b1": 6}, "t2": {"b1": 6}}
    assert scene.manager.register_unchanged(M, b"fewer", 1, None) == RegisterResult()


@pytest.mark.parametrize(
    ("limit", "refused", "remark", "reason"),
    [
        (("max_brokers", 2), OTHER, "3 brokers, limit 2", "brokers"),
        (
            ("max_brokers_per_group", 2),
            replace(SLAVE, broker_id=2, broker_addr="s:9"),
            "3 brokers per group, limit 2",
            "brokers_per_group",
        ),
        (("max_clusters", 1), replace(OTHER, cluster_name="c2"), "2 clusters, limit 1", "clusters"),
        (
            ("max_clusters_per_group", 1),
            replace(SLAVE, cluster_name="c2"),
            "2 clusters per group, limit 1",
            "clusters_per_group",
        ),
        (("max_topics", 2), replace(OTHER, body=body("t1", "t3")), "3 topics, limit 2", "topics"),
        (("max_routes", 3), OTHER, "4 routes, limit 3", "routes"),
        (
            ("max_topics_per_broker", 3),
            replace(MASTER, body=body("t3", "t4")),
            "4 topics per broker, limit 3",
            "topics_per_broker",
        ),
        # a broker under another name at the address of a live one: the live one stays when it is refused
        (("max_topics", 2), replace(MASTER, broker_name="b9", body=body("t1", "t3")), "3 topics, limit 2", "topics"),
    ],
    ids=[
        "brokers",
        "brokers per group",
        "clusters",
        "clusters per group",
        "topics",
        "routes",
        "topics per broker",
        "other name",
    ],
)
async def test_registration_beyond_a_limit_is_refused(
    limit: tuple[str, int], refused: Registration, remark: str, reason: str
) -> None:
    """A refused registration changes nothing; live brokers register again, are replaced, and exchange topics."""
    scene = RouteScene(limits=replace(ROOMY, **dict([limit])))
    await scene.register(MASTER, SLAVE)
    before = facts_of(scene.tables)
    scene.take_effects()

    with pytest.raises(BadRequestError, match=f"^{remark}$"):
        await scene.register(refused)

    effects = [OverQuota(AccessClass.BROKER_CONTROL, reason, remark, is_refused=True)]
    assert (facts_of(scene.tables), scene.take_effects()) == (before, effects)
    for again in (MASTER, SLAVE, replace(MASTER, broker_addr="m:9"), replace(SLAVE, body=body("t1", "t3", "t4", "t5"))):
        await scene.register(again)
    natively = replace(MASTER, is_native=True, agent_id="a", broker_addr="m:9")
    await scene.register(replace(natively, body=body("t1", "t2")), replace(natively, body=body("t1", "t3")))
    assert scene.tables.topic_queue_table.keys() == {"t1", "t3"}
    assert violations(scene.tables) == []


async def test_refused_registration_reports_what_happened_before_its_refusal() -> None:
    """The ended wipe of a dead broker, an observed takeover and an exceeded quota are reported with the refusal."""
    scene = RouteScene(
        limits=replace(ROOMY, max_topics=2), policy=TakeoverPolicy("warn"), quotas=TableQuotas("observe", topics=2)
    )
    await scene.register(OTHER)
    await scene.manager.wipe_write_perm("b2")
    await scene.close(3)
    await scene.register(MASTER)
    scene.pass_time(121.0)
    scene.manager.touch(M, 1)
    scene.take_effects()

    with pytest.raises(BadRequestError, match=r"^3 topics, limit 2$"):
        await scene.register(registration("b1", 0, "n:1", "t1", "t2", "t3", connection_id=4))

    quota = ("topics_per_cluster", "3 topics of cluster c1, limit 2")
    assert scene.take_effects() == [
        WritePermissionChanged("b2", 0, is_removed=False, reason="expired"),
        OverQuota(AccessClass.BROKER_CONTROL, *quota, is_refused=False),
        TakeoverAttempted(M, live(scene, M), "b1", "n:1", 4, 0.0, is_refused=False),
        OverQuota(AccessClass.BROKER_CONTROL, "topics", "3 topics, limit 2", is_refused=True),
    ]


async def test_operators_routes_count_towards_the_limit() -> None:
    """Request 217 counts one route for each broker that it names."""
    scene = RouteScene(limits=replace(ROOMY, max_routes=5))
    await scene.register(MASTER, OTHER)

    with pytest.raises(BadRequestError, match=r"^6 routes, limit 5$"):
        await scene.manager.register_topic("t3", [queue_data("b1"), queue_data("b2")])

    assert "t3" not in scene.tables.topic_queue_table
    await scene.manager.register_topic("t3", [queue_data("b1")])
    await scene.manager.register_topic("t3", [queue_data("b1", perm=4)])
    assert scene.tables.topics.route_count == 5


async def test_effects_are_performed_after_the_lock_is_released() -> None:
    """Effects close connections and write logs, and so run without the lock."""
    locks: list[str] = []

    def sink(effect: Effect) -> None:
        locks.append(repr(manager.lock))

    clock = LivenessClock(FakeClock().monotonic, 10.0)
    manager = RouteInfoManager(
        RouteTables(), clock, RouteOptions(), ROOMY, sink=sink, is_connected=lambda number: number != 9
    )
    await manager.register(MASTER)
    await manager.wipe_write_perm("b1")
    await manager.delete_topic("t1", None)
    await manager.register_topic("t1", [queue_data("b1")])
    await manager.unregister(M, "b1", 1)
    await manager.register(MASTER)
    await manager.connection_closed(1)
    await manager.evict_silent()

    assert set(locks) == {"<ReadWriteLock [0 readers | writer: no | waiting: 0 read, 0 write]>"}
    assert len(locks) == 15


async def test_changes_wait_for_readers_and_heartbeats_do_not(scene: RouteScene) -> None:
    """Changes wait for a reader of the lock; heartbeats and closed client connections wait for no lock."""
    await scene.register(MASTER)
    async with scene.manager.lock.read():
        closing = await begin(scene.close(1))
        await asyncio.sleep(0)
        assert list(scene.tables.broker_live_table) == [M]
    await closing
    assert scene.tables.broker_live_table == {}

    await scene.register(replace(MASTER, connection_id=2))
    async with scene.manager.lock.write():
        assert scene.manager.touch(M, 2) is not None
        assert scene.manager.register_unchanged(M, b"master", 2, None) is not None
        await scene.close(7)


async def is_writable(scene: RouteScene) -> bool:
    """True if the master's next registration has write permission."""
    await scene.register(replace(MASTER, connection_id=7, digest=None))
    return any(perm & PERM_WRITE for by_broker in rows(scene.tables).values() for perm in by_broker.values())


async def test_removed_write_permission_ends_with_an_unregister(scene: RouteScene) -> None:
    """An unregistration of the master restores the write permission, one of a slave does not."""
    await scene.register(MASTER, SLAVE)
    await scene.manager.wipe_write_perm("b1")
    await scene.manager.unregister(S, "b1", 2)
    assert not await is_writable(scene)

    scene.take_effects()

    await scene.manager.unregister(M, "b1", 7)

    assert scene.take_effects()[-1] == WritePermissionChanged("b1", 0, is_removed=False, reason="unregistered")
    assert await is_writable(scene)


async def test_removed_write_permission_goes_on_when_the_master_returns_in_time(scene: RouteScene) -> None:
    """The expiry of the master's former registration no longer ends the removal."""
    await scene.register(MASTER, SLAVE)
    await scene.manager.wipe_write_perm("b1")
    await scene.close(1)
    ends = [removal.ends_at for removal in scene.tables.write_removed.values()]
    await scene.register(replace(MASTER, connection_id=7, digest=None))

    ends += [removal.ends_at for removal in scene.tables.write_removed.values()]
    assert ends == [scene.manager.now() + 120.0, NEVER]


async def test_slave_writes_again_when_the_removal_of_the_write_permission_has_expired(scene: RouteScene) -> None:
    """The unchanged registration of a slave without acting master restores the permission that its broker sends."""
    master, slave = (replace(each, enable_acting_master=False) for each in (MASTER, SLAVE))
    await scene.register(master, slave)
    await scene.manager.wipe_write_perm("b1")
    await scene.close(1)
    await scene.register(slave)
    for _ in range(5):
        await scene.clock.advance(30.0)
        await scene.manager.evict_silent()
        if scene.manager.register_unchanged(S, b"slave", 2, None) is None:
            await scene.register(slave)

    assert WritePermissionChanged("b1", 2, is_removed=False, reason="expired") in scene.take_effects()
    assert scene.tables.write_removed == {}
    assert rows(scene.tables) == {"t1": {"b1": 6}, "t2": {"b1": 6}}


@pytest.mark.parametrize(
    "leave",
    [
        lambda scene: scene.close(1),
        lambda scene: scene.manager.revoke(list(scene.tables.broker_live_table.items())),
    ],
    ids=["their connection closes", "their account is removed"],
)
async def test_removed_write_permission_ends_with_the_expiry_of_the_slave_that_was_seen_last(
    scene: RouteScene, leave: Callable[[RouteScene], Awaitable[None]]
) -> None:
    """The order in which the brokers of a group leave together does not matter."""
    await scene.register(registration("b1", 1, "x1"), registration("b1", 2, "x2"))
    await scene.manager.wipe_write_perm("b1")
    scene.pass_time(30.0)
    scene.manager.touch(key("x1"), 1)
    seen_at = scene.manager.now()

    await leave(scene)

    assert {name: removal.ends_at for name, removal in scene.tables.write_removed.items()} == {"b1": seen_at + 120.0}


async def test_broker_that_changes_its_cluster_brings_its_topics() -> None:
    """The topics of a broker that moves to another cluster count for the quota of that cluster."""
    scene = RouteScene(quotas=TableQuotas("enforce", topics=3))
    await scene.register(OTHER, replace(MASTER, cluster_name="c2"))

    with pytest.raises(SystemBusyError, match="4 topics of cluster c1, limit 3"):
        await scene.register(MASTER)
    await scene.register(replace(SLAVE, cluster_name="c2"), replace(MASTER, cluster_name="c3"))


async def test_logical_queues_of_static_topics_are_limited() -> None:
    """The tables hold as many logical queues as topics; a broker may register its own again and again."""
    scene = RouteScene(limits=replace(ROOMY, max_topics=5))
    mapping = TopicQueueMappingInfo(curr_id_map={0: 0, 1: 1, 2: 2})
    static = [
        registration(name, 0, f"{name}:1", body=body("t1", "t2", mappings={"t1": mapping})) for name in ("b1", "b2")
    ]
    await scene.register(static[0], static[0])

    with pytest.raises(BadRequestError, match="6 logical queues, limit 5"):
        await scene.register(static[1])
    await scene.close(1)
    await scene.register(replace(static[1], connection_id=2))


async def test_broker_of_a_closed_connection_counts_for_the_address_that_registered_it() -> None:
    """With `evict_on_disconnect` off, an address cannot exceed its share by reconnecting."""
    scene = RouteScene(limits=replace(ROOMY, max_brokers=16), network="10.0.0.1")
    await scene.register(*(registration(f"b{number}", 0, f"x{number}") for number in range(14)))
    scene.closed.add(1)
    scene.manager.leave_connection(1)

    with pytest.raises(BadRequestError, match=r"15 brokers of address 10\.0\.0\.1, limit 14"):
        await scene.register(registration("b14", 0, "x14", connection_id=2))
