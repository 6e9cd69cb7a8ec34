"""The effects of each request."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from namesrv.routeinfo.liveness import LivenessClock
from namesrv.routeinfo.manager import CARRIER_GRAIN_SECONDS, RouteInfoManager
from namesrv.routeinfo.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    Effect,
    Evicted,
    MinBrokerIdChanged,
    Registered,
    RegisterResult,
    Registration,
    RouteChanged,
    RouteOptions,
)
from namesrv.routeinfo.tables import MAX_CARRIERS, RouteTables
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.errors import BadRequestError, SystemError_
from tests.support.fake_clock import FakeClock
from tests.support.route_builders import ROOMY, RouteScene, addresses, body, key, queue_data, registration, rows, topic
from tests.support.route_model import facts_of
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


# ---- registration ----


async def test_registration_and_its_effects(scene: RouteScene) -> None:
    """The route is published, then the broker reported: new, with its topics, never silent before."""
    assert [RegisterResult()] == await scene.register(MASTER)

    changed, registered = scene.take_effects()
    assert isinstance(changed, RouteChanged)
    assert (["t1", "t2"], 1) == (sorted(changed.topics or ()), changed.revision)
    assert Registered(M, live(scene, M), "full", 2, is_new=True, silent_seconds=0.0) == registered
    assert 1_000.0 == live(scene, M).last_update


async def test_registration_again_and_its_effects(scene: RouteScene) -> None:
    """Applied again with nothing new in it: no route changes; it was silent since the last time."""
    await scene.register(MASTER)
    scene.take_effects()
    scene.pass_time(30.0)

    await scene.register(MASTER)

    assert [Registered(M, live(scene, M), "full", 2, is_new=False, silent_seconds=30.0)] == scene.take_effects()
    assert 1_030.0 == live(scene, M).last_update
    assert 1 == scene.manager.revisions.revision


async def test_slave_is_told_where_its_master_is(scene: RouteScene) -> None:
    """registerBroker: nothing for the master, both addresses for the slave."""
    assert [RegisterResult(), RegisterResult("m:1", "m:2")] == await scene.register(MASTER, SLAVE)


async def test_refused_registration_leaves_no_trace(scene: RouteScene) -> None:
    """No ghost in any table, no effect, no revision; the lock is free again."""
    with pytest.raises(SystemError_):
        await scene.manager.register(registration("b1", 0, "m:1", "only"))

    assert "<RouteTables [0 clusters | 0 groups | 0 live | 0 topics]>" == repr(scene.tables)
    assert ([], 0, 0) == (scene.effects, scene.manager.revisions.revision, scene.manager.membership)
    await scene.register(MASTER)


async def test_displaced_master_is_reported(scene: RouteScene) -> None:
    """Its entry goes with the registration that took its id."""
    await scene.register(MASTER)
    displaced = live(scene, M)
    scene.take_effects()
    scene.pass_time(50.0)

    await scene.register(replace(MASTER, broker_addr="n:1"))

    assert Evicted(M, displaced, "superseded", 50.0) == scene.take_effects()[0]
    assert [key("n:1")] == list(scene.tables.broker_live_table)


async def test_address_under_a_new_name_is_no_longer_the_old_broker(scene: RouteScene) -> None:
    """The former name would stay for ever: its only address is alive, as somebody else."""
    await scene.register(MASTER, OTHER)
    former = live(scene, M)
    scene.take_effects()

    await scene.register(registration("b9", 0, "m:1", "t9", "t1"))

    effects = scene.take_effects()
    assert [Evicted(M, former, "superseded", 0.0)] == [effect for effect in effects if isinstance(effect, Evicted)]
    assert {"b2": {0: "o:1"}, "b9": {0: "m:1"}} == addresses(scene.tables)
    assert {"t1": {"b2": 6, "b9": 6}, "t2": {"b2": 6}, "t9": {"b9": 6}} == rows(scene.tables)
    assert [] == violations(scene.tables)


async def test_registration_of_a_connection_that_hung_up_does_not_count(scene: RouteScene) -> None:
    """Nothing would ever report that connection's end; the same holds for a change of name."""
    scene.closed.add(1)

    assert [RegisterResult()] == await scene.register(MASTER)
    assert ([], {}) == (scene.effects, scene.tables.broker_live_table)

    await scene.register(replace(MASTER, connection_id=2))
    before = live(scene, M)
    await scene.register(registration("b9", 0, "m:1"))
    assert {M: before} == scene.tables.broker_live_table


async def test_registration_over_an_older_connection_does_not_take_the_entry_back(scene: RouteScene) -> None:
    """It was held up on its way; when the connection that it came over ends, the broker is on the newer one."""
    await scene.register(replace(MASTER, connection_id=2))

    await scene.register(replace(MASTER, body=body("t1", "t3", counter=2)))
    await scene.close(1)

    assert 2 == live(scene, M).connection_id
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}, "t3": {"b1": 6}} == rows(scene.tables)


async def test_registration_over_an_older_connection_counts_when_the_newer_one_is_gone(scene: RouteScene) -> None:
    """Whichever is still open carries the entry."""
    await scene.register(replace(MASTER, connection_id=2))
    scene.closed.add(2)

    await scene.register(MASTER)
    await scene.manager.connection_closed(2)

    assert 1 == live(scene, M).connection_id


async def test_smaller_id_is_reported() -> None:
    """The members are to be told, once the lock is free (905)."""
    scene = RouteScene(notify_min_broker_id_changed=True)
    await scene.register(SLAVE, MASTER)

    told = [effect for effect in scene.take_effects() if isinstance(effect, MinBrokerIdChanged)]
    assert [MinBrokerIdChanged("b1", 0, "m:1", ("s:1",), ha_broker_addr="m:2")] == told

    await scene.close(1)
    told = [effect for effect in scene.take_effects() if isinstance(effect, MinBrokerIdChanged)]
    assert [MinBrokerIdChanged("b1", 1, "s:1", ("s:1",), offline_broker_addr="m:1")] == told


# ---- unchanged registrations ----


async def test_unchanged_registration_refreshes_the_live_entry_only(scene: RouteScene) -> None:
    """Nothing is decoded, no route changes; it is a registration of its own all the same, over its own connection."""
    await scene.register(MASTER)
    before = live(scene, M)
    scene.take_effects()
    scene.pass_time(30.0)

    assert RegisterResult() == scene.manager.register_unchanged(M, b"master", 7, None)

    after = live(scene, M)
    assert (1_030.0, 7, DataVersion(1)) == (after.last_update, after.connection_id, after.data_version)
    assert before.generation < after.generation
    assert [Registered(M, after, "unchanged", 2, is_new=False, silent_seconds=30.0)] == scene.take_effects()
    assert [] == violations(scene.tables)


async def test_unchanged_registration_of_a_slave_is_answered_like_any(scene: RouteScene) -> None:
    """It learns where its master is now."""
    await scene.register(SLAVE, MASTER, SLAVE)

    assert RegisterResult("m:1", "m:2") == scene.manager.register_unchanged(S, b"slave", 2, None)


async def test_unchanged_native_registration_counts(scene: RouteScene) -> None:
    """Its own number goes on, so that an earlier goodbye is seen to be one."""
    await scene.register(replace(MASTER, is_native=True, agent_id="a", registration_seq=1))

    scene.manager.register_unchanged(M, b"master", 1, 2)

    assert 2 == live(scene, M).registration_seq


@pytest.mark.parametrize(
    ("broker", "digest", "connection_id"),
    [(M, b"other", 1), (O, b"master", 1), (key("m:1", "c2"), b"master", 1), (M, b"master", 0), (M, b"master", 8)],
    ids=["other content", "unknown broker", "other cluster", "older connection", "connection that hung up"],
)
async def test_what_is_not_the_last_registration_is_read(
    scene: RouteScene, broker: BrokerAddrInfo, digest: bytes, connection_id: int
) -> None:
    """In doubt it is applied; nothing has changed yet."""
    await scene.register(MASTER)
    before = live(scene, M)
    scene.take_effects()
    scene.closed.add(8)

    assert scene.manager.register_unchanged(broker, digest, connection_id, None) is None
    assert (before, []) == (live(scene, M), scene.effects)


async def touched_by(scene: RouteScene, what: str) -> None:
    """Something that touches b1's topics, or what its registration would come to."""
    manager = scene.manager
    if what == "wipe":
        await manager.wipe_write_perm("b1")
    elif what == "add":
        await manager.add_write_perm("b1")
    elif what == "delete topic":
        await manager.delete_topic("t1", None)
    elif what == "register topic":
        await manager.register_topic("new", [queue_data("b1")])
    elif what == "option":
        manager.routes_may_differ()
    elif what == "slave joins":
        await manager.register(SLAVE)
    elif what == "delta":
        await manager.register(replace(MASTER, digest=None, body=body("t3", counter=2)))
    else:
        raise ValueError(what)


@pytest.mark.parametrize("what", ["wipe", "add", "delete topic", "register topic", "option", "slave joins", "delta"])
async def test_registration_is_read_again_when_anything_else_touched_the_broker(scene: RouteScene, what: str) -> None:
    """The same words may come to something else now."""
    await scene.register(MASTER, OTHER)
    await touched_by(scene, what)

    assert scene.manager.register_unchanged(M, b"master", 1, None) is None

    await scene.register(MASTER)
    assert RegisterResult() == scene.manager.register_unchanged(M, b"master", 1, None)


async def test_topics_of_others_do_not_touch_a_broker(scene: RouteScene) -> None:
    """A registration stays cheap whatever the others do."""
    await scene.register(MASTER, OTHER)
    await scene.register(replace(OTHER, body=body("t1", "t2", "t5", counter=9)))
    await scene.manager.wipe_write_perm("b2")
    await scene.close(3)

    assert RegisterResult() == scene.manager.register_unchanged(M, b"master", 1, None)


async def test_slave_is_read_again_without_its_master(scene: RouteScene) -> None:
    """Its topics, which counted for nothing beside the master's, are the group's now."""
    await scene.register(MASTER, replace(SLAVE, body=body("t1", "only-slave")))
    await scene.close(1)

    assert scene.manager.register_unchanged(S, b"slave", 2, None) is None


async def test_two_that_write_the_same_topics_are_not_skipped(scene: RouteScene) -> None:
    """A master and an id below 0 undo what the other one did, as in Java; each time it is applied."""
    candidate = registration("b1", -1, "x:1", digest=b"candidate", enable_acting_master=True)
    await scene.register(MASTER, candidate)
    assert {"t1": {"b1": 4}, "t2": {"b1": 4}} == rows(scene.tables)
    assert scene.manager.register_unchanged(M, b"master", 1, None) is None

    await scene.register(MASTER)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)
    assert scene.manager.register_unchanged(key("x:1"), b"candidate", 1, None) is None


# ---- heartbeats ----


async def test_heartbeat(scene: RouteScene) -> None:
    """The broker is heard; nothing else about it changes."""
    await scene.register(MASTER)
    before = live(scene, M)
    scene.take_effects()
    scene.pass_time(5.0)

    heard = scene.manager.touch(M, 1)

    assert heard is live(scene, M)
    assert before.heard(1_005.0, 1, None) == heard
    assert [(M, heard, 5.0)] == scene.touched
    assert [] == scene.take_effects()
    assert before.generation == live(scene, M).generation


def test_heartbeat_of_an_unknown_broker(scene: RouteScene) -> None:
    """Nothing happens, and the sender can be told."""
    assert scene.manager.touch(M, 1) is None
    assert scene.manager.query_data_version(M, 1) is None
    assert [] == scene.effects


async def test_asking_for_the_data_version_is_a_heartbeat(scene: RouteScene) -> None:
    """322 keeps a broker alive, whatever the answer."""
    await scene.register(MASTER)
    scene.pass_time(100.0)

    assert DataVersion(1) == scene.manager.query_data_version(M, 1)

    scene.pass_time(100.0)
    assert 0 == await scene.manager.evict_silent()


async def test_state_of_a_broker_is_kept(scene: RouteScene) -> None:
    """Until it says something else; a heartbeat without any, and a registration, leave it."""
    await scene.register(MASTER)
    scene.manager.touch(M, 1, {"depth": 7})
    scene.manager.touch(M, 1)
    await scene.register(MASTER)
    assert {"depth": 7} == live(scene, M).state

    scene.manager.touch(M, 1, {"depth": 8})
    scene.manager.register_unchanged(M, b"master", 1, None)
    assert {"depth": 8} == live(scene, M).state


async def test_heartbeat_moves_no_broker_whose_own_connection_is_open(scene: RouteScene) -> None:
    """A stranger names it and hangs up: nothing. It reconnected itself: the end of its old connection means nothing."""
    await scene.register(MASTER)
    scene.manager.touch(M, 5)
    scene.take_effects()

    await scene.close(5)
    assert ([], 1) == (scene.effects, live(scene, M).connection_id)

    scene.manager.touch(M, 6)
    await scene.close(1)
    assert ([], 6) == (scene.effects, live(scene, M).connection_id)

    await scene.close(6)
    assert {} == scene.tables.broker_live_table


@pytest.mark.parametrize(("silent_for", "left"), [(120.0, [M]), (120.1, [])])
async def test_older_connection_counts_again_if_it_is_no_corpse(
    scene: RouteScene, silent_for: float, left: list[BrokerAddrInfo]
) -> None:
    """A stranger registers in its name and hangs up; one that carried nothing for its expiry only looks open."""
    await scene.register(MASTER, replace(MASTER, connection_id=5))
    scene.pass_time(silent_for)
    scene.manager.touch(M, 5)

    await scene.close(5)

    assert left == list(scene.tables.broker_live_table)
    assert [1 for _ in left] == [live(scene, broker).connection_id for broker in left]
    assert [] == violations(scene.tables)


async def test_strangers_cannot_make_a_broker_remember_thousands(scene: RouteScene) -> None:
    """Sixteen connections are remembered; one over which it registered takes the place of one that only named it."""
    await scene.register(MASTER)
    for number in range(2, 2 + 2 * MAX_CARRIERS):
        scene.manager.touch(M, number)
    await scene.register(replace(MASTER, connection_id=100))

    assert MAX_CARRIERS == len(scene.tables.carriers[M])
    await scene.close(100)
    assert 1 == live(scene, M).connection_id
    assert [] == violations(scene.tables)


async def test_heartbeats_over_many_connections_ask_for_nothing_that_is_known(scene: RouteScene) -> None:
    """A gateway may carry a thousand brokers over a hundred connections: nothing is looked up or noted again."""

    class Closed(set[int]):
        asked = 0

        def __contains__(self, number: object) -> bool:
            self.asked += 1
            return super().__contains__(number)

    await scene.register(MASTER)
    for number in range(2, 3 * MAX_CARRIERS):
        scene.manager.touch(M, number)
    known, scene.closed = dict(scene.tables.carriers[M]), Closed()

    for number in range(2, 3 * MAX_CARRIERS):
        scene.manager.touch(M, number)

    assert (0, known, 1) == (scene.closed.asked, scene.tables.carriers[M], live(scene, M).connection_id)
    scene.pass_time(CARRIER_GRAIN_SECONDS)
    scene.manager.touch(M, 2)
    assert 1_001.0 == scene.tables.carriers[M][2].heard


@pytest.mark.parametrize(("connection_id", "stays_on"), [(0, 1), (8, 1)], ids=["older", "hung up"])
async def test_late_heartbeat_counts_and_leaves_the_entry_where_it_is(
    scene: RouteScene, connection_id: int, stays_on: int
) -> None:
    """It was queued before its connection ended: the broker was alive, but the end of that is known already."""
    await scene.register(MASTER)
    await scene.close(8)
    scene.pass_time(5.0)

    scene.manager.touch(M, connection_id)

    assert (1_005.0, stays_on) == (live(scene, M).last_update, live(scene, M).connection_id)


@pytest.mark.parametrize(
    ("name", "broker_id", "agent_id", "known"),
    [
        ("b1", 0, "a", True),
        ("b1", "0", "a", True),
        ("b1", None, None, True),
        ("b9", 0, "a", False),
        ("b1", 1, "a", False),
        ("b1", "1", "a", False),
        ("b1", 0, "other", False),
    ],
)
async def test_native_heartbeat_says_of_what_it_speaks(
    scene: RouteScene,
    name: str,
    broker_id: str | int | None,
    agent_id: str | None,
    known: bool,  # noqa: FBT001
) -> None:
    """If that is not what is registered, its sender has to register again."""
    await scene.register(replace(MASTER, is_native=True, agent_id="a"))

    assert known == scene.manager.is_registered(M, name, broker_id, agent_id)
    assert not scene.manager.is_registered(O, "b1", 0, "a")


# ---- topics and permissions ----


async def test_delete_topic(scene: RouteScene) -> None:
    """Gone, or gone from one cluster; what is unknown changes nothing."""
    await scene.register(MASTER, replace(OTHER, cluster_name="c2"))
    scene.take_effects()

    await scene.manager.delete_topic("t1", "c2")
    assert (["t1"], {"t1": {"b1": 6}, "t2": {"b1": 6, "b2": 6}}) == (scene.changed_topics(), rows(scene.tables))

    await scene.manager.delete_topic("t2", None)
    assert (["t2"], {"t1": {"b1": 6}}) == (scene.changed_topics(), rows(scene.tables))

    await scene.manager.delete_topic("t2", None)
    await scene.manager.delete_topic("t1", "nowhere")
    assert ([], {"t1": {"b1": 6}}) == (scene.effects, rows(scene.tables))


async def test_deleted_topic_comes_back_with_the_next_registration() -> None:
    """If the broker still has it: the registration is not taken for unchanged."""
    scene = RouteScene()
    await scene.register(MASTER)
    await scene.manager.delete_topic("t1", None)
    assert scene.manager.register_unchanged(M, b"master", 1, None) is None

    await scene.register(MASTER)

    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)


async def test_single_topic_registration() -> None:
    """registerSingleTopicWithBrokerRegistration: for a known broker, until its next full one, or its end."""
    scene = RouteScene(delete_topic_with_broker_registration=True)
    await scene.manager.register_topic("new", [queue_data("b1")])
    assert {} == rows(scene.tables)

    await scene.register(MASTER)
    await scene.manager.register_topic("new", [queue_data("b1")])
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}, "new": {"b1": 6}} == rows(scene.tables)

    await scene.register(MASTER)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)

    await scene.manager.register_topic("new", [queue_data("b1")])
    await scene.close(1)
    assert {} == rows(scene.tables)


async def test_wipe_and_add(scene: RouteScene) -> None:
    """6 to 4 and back, for all topics of the broker; they count even if nothing changes."""
    await scene.register(MASTER, OTHER)
    scene.take_effects()

    assert 2 == await scene.manager.wipe_write_perm("b1")
    assert (["t1", "t2"], {"t1": {"b1": 4, "b2": 6}, "t2": {"b1": 4, "b2": 6}}) == (
        scene.changed_topics(),
        rows(scene.tables),
    )

    assert 2 == await scene.manager.wipe_write_perm("b1")
    assert [] == scene.effects

    assert 2 == await scene.manager.add_write_perm("b1")
    assert (["t1", "t2"], {"t1": {"b1": 6, "b2": 6}, "t2": {"b1": 6, "b2": 6}}) == (
        scene.changed_topics(),
        rows(scene.tables),
    )


@pytest.mark.parametrize(("perm", "wiped", "added"), [(6, 4, 6), (4, 4, 6), (7, 5, 6), (2, 0, 6), (15, 13, 6)])
async def test_permission_bits(scene: RouteScene, perm: int, wiped: int, added: int) -> None:
    """BrokerPermTest. Wiping takes one bit; adding gives read and write, and no other bit, as in Java."""
    await scene.register(registration("b1", 0, "m:1", body=body(topic("t1", perm=perm), topic("t2", perm=perm))))

    assert 2 == await scene.manager.wipe_write_perm("b1")
    assert {"t1": {"b1": wiped}, "t2": {"b1": wiped}} == rows(scene.tables)

    assert 2 == await scene.manager.add_write_perm("b1")
    assert {"t1": {"b1": added}, "t2": {"b1": added}} == rows(scene.tables)


async def test_permissions_of_an_unknown_broker(scene: RouteScene) -> None:
    """No topics, no effect; one that registers later under this name is not wiped."""
    assert 0 == await scene.manager.wipe_write_perm("b1")
    assert 0 == await scene.manager.add_write_perm("b1")
    assert (set(), []) == (scene.tables.wiped, scene.effects)

    await scene.register(MASTER)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)


async def test_wiped_until_added_back(scene: RouteScene) -> None:
    """Whatever the broker registers, new topics and new versions included."""
    await scene.register(MASTER)
    await scene.manager.wipe_write_perm("b1")
    await scene.register(MASTER, replace(MASTER, body=body("t1", "t2", "new", counter=2)))
    assert {"t1": {"b1": 4}, "t2": {"b1": 4}, "new": {"b1": 4}} == rows(scene.tables)

    await scene.manager.add_write_perm("b1")
    await scene.register(replace(MASTER, body=body("t1", "t2", "new", counter=3)))
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}, "new": {"b1": 6}} == rows(scene.tables)


@pytest.mark.parametrize("leaving", ["closed", "silent", "unregistered"])
async def test_wiped_until_the_brokers_life_ends(scene: RouteScene, leaving: str) -> None:
    """A broker that comes back starts with its own permissions, even if its slave stayed."""
    await scene.register(MASTER, SLAVE)
    await scene.manager.wipe_write_perm("b1")
    if leaving == "closed":
        await scene.close(1)
    elif leaving == "unregistered":
        await scene.manager.unregister(M, "b1", 1)
    else:
        scene.pass_time(60.0)
        scene.manager.touch(S, 2)
        scene.pass_time(61.0)
        await scene.manager.evict_silent()

    assert {"b1": {1: "s:1"}} == addresses(scene.tables)
    await scene.register(replace(MASTER, connection_id=9))
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(scene.tables)


async def test_wiped_whatever_its_slaves_do(scene: RouteScene) -> None:
    """A slave's leaving and coming is not the broker's end."""
    await scene.register(MASTER, SLAVE)
    await scene.manager.wipe_write_perm("b1")
    await scene.close(2)
    await scene.register(replace(SLAVE, connection_id=9), MASTER)

    assert {"t1": {"b1": 4}, "t2": {"b1": 4}} == rows(scene.tables)


# ---- what else changes routes ----


async def test_order_configuration_changes_the_routes_of_its_topics() -> None:
    """Their answers are encoded anew, and watchers are told."""
    scene = RouteScene(order_message_enable=True)
    await scene.register(MASTER)
    assert b"orderTopicConf" not in (scene.json_cache.fill("t1") or b"")
    scene.take_effects()

    scene.order_conf["t1"] = "b1:4"
    scene.manager.routes_may_differ(["t1"])

    assert b'"orderTopicConf":"b1:4"' in (scene.json_cache.fill("t1") or b"")
    assert [RouteChanged(frozenset({"t1"}), 2)] == scene.take_effects()


async def test_option_changes_all_routes(scene: RouteScene) -> None:
    """Nobody has to know which."""
    await scene.register(SLAVE)
    scene.json_cache.fill("t1")
    scene.native_cache.fill("t1")
    scene.take_effects()

    scene.options.support_acting_master = True
    scene.manager.routes_may_differ()

    assert ({}, {}) == (scene.json_cache.entries, scene.native_cache.entries)
    assert [RouteChanged(None, 2)] == scene.take_effects()
    assert scene.manager.revisions.changed_since(["t1"], 1) is None
    assert b'"0":"s:1"' in (scene.json_cache.fill("t1") or b"")


async def test_membership_grows_with_what_a_snapshot_is_about(scene: RouteScene) -> None:
    """Brokers that come, change roles, are displaced or go, and wiped ones; never what happens every second."""
    seen = []

    def look() -> None:
        seen.append(scene.manager.membership)

    look()
    await scene.register(MASTER)
    look()
    await scene.register(replace(MASTER, broker_id=1))
    look()
    await scene.register(replace(MASTER, broker_id=1, broker_addr="n:1"))
    look()
    await scene.manager.wipe_write_perm("b1")
    look()
    await scene.manager.add_write_perm("b1")
    look()
    await scene.close(1)
    look()
    assert sorted(set(seen)) == seen

    await scene.register(OTHER)
    before = scene.manager.membership
    await scene.register(OTHER)
    scene.manager.touch(O, 3)
    scene.manager.register_unchanged(O, b"other", 3, None)
    await scene.manager.delete_topic("t1", None)
    assert before == scene.manager.membership


# ---- limits ----


@pytest.mark.parametrize(
    ("limits", "refused", "said"),
    [
        ({"max_brokers": 2}, OTHER, "3 brokers, limit 2"),
        ({"max_clusters": 1}, replace(OTHER, cluster_name="c2"), "2 clusters, limit 1"),
        ({"max_topics": 2}, replace(OTHER, body=body("t1", "t3")), "3 topics, limit 2"),
        ({"max_routes": 3}, OTHER, "4 routes, limit 3"),
        ({"max_topics_per_broker": 3}, replace(MASTER, body=body("t3", "t4")), "4 topics per broker, limit 3"),
        # the process at an address takes another name: the former one must not go for a refusal
        ({"max_topics": 2}, replace(MASTER, broker_name="b9", body=body("t1", "t3")), "3 topics, limit 2"),
    ],
    ids=["brokers", "clusters", "topics", "routes", "topics per broker", "other name"],
)
async def test_what_would_be_too_much_is_refused_and_changes_nothing(
    scene: RouteScene, limits: dict[str, int], refused: Registration, said: str
) -> None:
    """Whoever is there may register again, be replaced, and drop some topics for as many others."""
    await scene.register(MASTER, SLAVE)
    scene.manager.limits = replace(ROOMY, **limits)
    before = facts_of(scene.tables)
    scene.take_effects()

    with pytest.raises(BadRequestError, match=f"^{said}$"):
        await scene.register(refused)

    assert (before, []) == (facts_of(scene.tables), scene.take_effects())
    for again in (MASTER, SLAVE, replace(MASTER, broker_addr="m:9"), replace(SLAVE, body=body("t1", "t3", "t4", "t5"))):
        await scene.register(again)
    natively = replace(MASTER, is_native=True, agent_id="a", broker_addr="m:9")
    await scene.register(replace(natively, body=body("t1", "t2")), replace(natively, body=body("t1", "t3")))
    assert {"t1", "t3"} == scene.tables.topic_queue_table.keys()
    assert [] == violations(scene.tables)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_brokers_per_connection": 2}, "3 brokers on one connection, limit 2"),
        ({"max_topics_per_connection": 3}, "4 topics on one connection, limit 3"),
    ],
    ids=["brokers", "topics"],
)
async def test_one_connection_has_limits_of_its_own(scene: RouteScene, limits: dict[str, int], said: str) -> None:
    """Whoever is there may register again, and others over connections of their own."""
    ours = [replace(one, connection_id=1) for one in (MASTER, SLAVE, OTHER)]
    await scene.register(*ours[:2])
    scene.manager.limits = replace(ROOMY, **limits)

    with pytest.raises(BadRequestError, match=f"^{said}$"):
        await scene.register(ours[2])
    await scene.register(*ours[:2], OTHER)

    assert {1: 2, OTHER.connection_id: 1} == {
        number: len(found) for number, found in scene.tables.brokers_on_connection.items()
    }


async def test_operators_topic_counts_too(scene: RouteScene) -> None:
    """217 may not make more than a registration."""
    await scene.register(MASTER)
    scene.manager.limits = replace(ROOMY, max_topics=2)

    with pytest.raises(BadRequestError, match=r"^3 topics, limit 2$"):
        await scene.manager.register_topic("t3", [queue_data("b1")])

    assert {"t1", "t2"} == scene.tables.topic_queue_table.keys()


# ---- effects and the lock ----


async def test_effects_are_performed_after_the_lock_is_released() -> None:
    """A sink may close connections and write logs; nobody waits for it under the lock."""
    locks: list[str] = []

    def sink(effect: Effect) -> None:
        locks.append(repr(manager.lock))

    manager = RouteInfoManager(
        RouteTables(),
        LivenessClock(FakeClock().monotonic, 130.0),
        RouteOptions(),
        ROOMY,
        sink=sink,
        is_connected=lambda _: True,
    )
    await manager.register(MASTER)
    await manager.wipe_write_perm("b1")
    await manager.delete_topic("t1", None)
    await manager.register_topic("t1", [queue_data("b1")])
    await manager.unregister(M, "b1", 1)

    assert {"<ReadWriteLock [0 readers | writer: no | waiting: 0 read, 0 write]>"} == set(locks)
    assert 8 == len(locks)


async def test_readers_of_many_routes_see_one_state(scene: RouteScene) -> None:
    """A batch answer holds the read lock: what changes waits for it."""
    await scene.register(MASTER)
    async with scene.manager.lock.read():
        closing = await begin(scene.close(1))
        await asyncio.sleep(0)
        assert [M] == list(scene.tables.broker_live_table)

    await closing
    assert {} == scene.tables.broker_live_table


async def test_heartbeats_wait_for_nobody(scene: RouteScene) -> None:
    """They need no lock, and neither does a look at the tables."""
    await scene.register(MASTER)
    async with scene.manager.lock.write():
        assert scene.manager.touch(M, 1) is not None
        assert scene.manager.register_unchanged(M, b"master", 1, None) is not None


async def test_every_registration_has_a_number_of_its_own(scene: RouteScene) -> None:
    """Whatever its kind, and never again."""
    numbers = []
    for broker in (MASTER, SLAVE, MASTER):
        await scene.register(broker)
        numbers.append(live(scene, broker.key).generation)
        scene.manager.register_unchanged(broker.key, broker.digest or b"", 9, None)
        numbers.append(live(scene, broker.key).generation)

    assert sorted(set(numbers)) == numbers
    assert "<RouteInfoManager [<RouteTables [1 clusters | 1 groups | 2 live | 2 topics]> | revision 2" in repr(
        scene.manager
    )
