"""A registration that repeats the last one, and what makes the server read it anew.

Java's brokers send their whole table every 30 s, nearly always the same one.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from namesrv.routeinfo.records import Registered
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    SPELLINGS,
    Broker,
    NamesrvPeer,
    Spelling,
    fields,
    native_registration,
    native_value,
    registration,
    topic_config,
)

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")


def kinds(server: InProcess) -> list[str]:
    """How the registrations since the last look were taken."""
    return [effect.kind for effect in server.taken(Registered)]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_equal_registration_is_recognised_and_counts_as_heartbeat(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling
) -> None:
    """The answer is the same; the entry is fresh again; no route has changed."""
    first = await peer.register(MASTER, spelling=spelling)
    revision = server.namesrv.manager.revisions.revision
    await server.clock.advance(100)

    again = await peer.register(MASTER, spelling=spelling)

    assert ["full", "unchanged"] == kinds(server)
    assert (0, fields(first), first.body) == (again.code, fields(again), again.body)
    assert revision == server.namesrv.manager.revisions.revision
    await server.clock.advance(110)
    assert 1 == len(server.namesrv.manager.tables.broker_live_table)


async def test_equal_registration_of_a_slave_finds_its_new_master(server: InProcess, peer: NamesrvPeer) -> None:
    """What a slave is told is looked up each time."""
    assert {} == fields(await peer.register(SLAVE))
    await peer.register(MASTER, haServerAddr="ha")

    assert {"masterAddr": "10.0.0.1:10911", "haServerAddr": "ha"} == fields(await peer.register(SLAVE))
    assert {"masterAddr": "10.0.0.1:10911", "haServerAddr": "ha"} == fields(await peer.register(SLAVE))
    # read anew once, because the group has changed
    assert ["full", "full", "full", "unchanged"] == kinds(server)


@pytest.mark.parametrize(
    "ext",
    [
        {"haServerAddr": "10.0.0.1:10912"},
        {"heartbeatTimeoutMillis": "10000"},
        {"enableActingMaster": "true"},
        {"__ZONE_NAME": "zone-1"},
        {"brokerId": "1"},
        {"brokerName": "broker-z"},
    ],
    ids=lambda ext: next(iter(ext)),
)
async def test_header_is_part_of_what_is_registered(server: InProcess, peer: NamesrvPeer, ext: dict[str, Any]) -> None:
    """The same body under another header is another registration."""
    await peer.register(MASTER)
    await peer.register(MASTER, **ext)

    assert ["full", "full"] == kinds(server)


async def test_equal_data_version_is_not_enough(server: InProcess, peer: NamesrvPeer) -> None:
    """A lost increment must not stay hidden: only equal bytes are skipped."""
    await peer.register(MASTER, registration("T", "U", counter=7))
    await peer.register(MASTER, registration("T", topic_config("U", read=16), counter=7))

    assert ["full", "full"] == kinds(server)
    queues = server.namesrv.manager.tables.queues_of("U", "broker-a")
    assert 16 == (queues and queues.read_queue_nums)


async def test_refused_registration_is_not_remembered(server: InProcess, peer: NamesrvPeer) -> None:
    """The same mistake gets the same answer again."""
    for _ in range(2):
        assert 1 == (await peer.register(MASTER, bodyCrc32="1")).code
        assert 1 == (await peer.register(MASTER, registration("T"))).code

    assert [] == kinds(server)


Touch = Callable[[NamesrvPeer], Awaitable[Any]]


def delete_topic(peer: NamesrvPeer) -> Awaitable[Any]:
    """216."""
    return peer.call(216, {"topic": "T"})


def delete_topic_in_cluster(peer: NamesrvPeer) -> Awaitable[Any]:
    """216 with a cluster."""
    return peer.call(216, {"topic": "T", "clusterName": "cluster-1"})


def register_topic(peer: NamesrvPeer) -> Awaitable[Any]:
    """217."""
    queues = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'
    return peer.call(217, {"topic": "T"}, queues)


def register_foreign_topic(peer: NamesrvPeer) -> Awaitable[Any]:
    """217 for a topic that the broker does not register."""
    queues = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'
    return peer.call(217, {"topic": "X"}, queues)


def wipe(peer: NamesrvPeer) -> Awaitable[Any]:
    """205."""
    return peer.call(205, {"brokerName": "broker-a"})


def add(peer: NamesrvPeer) -> Awaitable[Any]:
    """327."""
    return peer.call(327, {"brokerName": "broker-a"})


def unregister(peer: NamesrvPeer) -> Awaitable[Any]:
    """104."""
    return peer.call(104, MASTER.ext)


def change_setting(peer: NamesrvPeer) -> Awaitable[Any]:
    """318: from now on a registration drops topics."""
    return peer.call(318, None, b"deleteTopicWithBrokerRegistration=true")


def slave_joins(peer: NamesrvPeer) -> Awaitable[Any]:
    """Another instance of the group."""
    return peer.register(SLAVE)


def other_master(peer: NamesrvPeer) -> Awaitable[Any]:
    """Another address takes the id."""
    return peer.register(MASTER._replace(addr="10.0.0.9:10911"))


@pytest.mark.parametrize(
    "touch",
    [
        delete_topic,
        delete_topic_in_cluster,
        register_topic,
        register_foreign_topic,
        wipe,
        add,
        unregister,
        change_setting,
        slave_joins,
        other_master,
    ],
)
@pytest.mark.settings(admin_enabled=True)
async def test_registration_is_read_anew_after(server: InProcess, peer: NamesrvPeer, touch: Touch) -> None:
    """Whatever else touches a broker's topics or group makes its next registration count in full, once."""
    await peer.register(MASTER)
    await touch(peer)
    server.effects.clear()

    for _ in range(2):
        assert 0 == (await peer.register(MASTER)).code

    assert ["full", "unchanged"] == kinds(server)
    assert {"T", "U"} <= server.namesrv.manager.tables.topic_queue_table.keys()


@pytest.mark.parametrize("touch", [wipe, delete_topic, register_topic, unregister])
async def test_what_touches_another_broker_changes_nothing(server: InProcess, peer: NamesrvPeer, touch: Touch) -> None:
    """Topics of its own on another group: that broker's registration is still known."""
    await peer.register(MASTER)
    await peer.register(OTHER, registration("V", "W"))
    await touch(peer)
    server.effects.clear()

    await peer.register(OTHER, registration("V", "W"))

    assert ["unchanged"] == kinds(server)


async def test_delta_makes_the_full_one_count_again(server: InProcess, peer: NamesrvPeer) -> None:
    """And a delta is never taken for a repetition."""
    ext: dict[str, Any] = {"agentId": "agent-1"}
    for kind in ("full", "delta", "delta", "full", "full"):
        await peer.register(MASTER, native_registration("T"), spelling="native", kind=kind, **ext)

    assert ["full", "delta", "delta", "full", "unchanged"] == kinds(server)


async def test_slave_brings_its_topics_when_the_master_is_gone(server: InProcess) -> None:
    """It registers what it always registered, and from now on that counts, without write permission."""
    peer, client = await server.connect(), await server.connect()
    slaves_topics = registration("T", "U", "only-here")
    await peer.register(MASTER, enableActingMaster="true")
    await peer.register(SLAVE, slaves_topics, enableActingMaster="true")
    assert 17 == (await client.call(105, {"topic": "only-here"})).code
    await peer.call(104, MASTER.ext)

    await peer.register(SLAVE, slaves_topics, enableActingMaster="true")

    route = native_value((await client.call(105, {"topic": "only-here"}, spelling="native")).body)
    assert {1: "10.0.0.2:10911"} == route["broker_datas"][0]["broker_addrs"]
    assert 4 == route["queue_datas"][0]["perm"]


@pytest.mark.settings(admin_enabled=True)
async def test_setting_applies_to_what_is_registered_next(server: InProcess, peer: NamesrvPeer) -> None:
    """Topics that an increment brought go with the next full registration, once the setting says so."""
    await peer.register(MASTER, registration("T", "U", "V"))
    await peer.register(MASTER, registration("T", "U"))
    assert {"T", "U", "V"} == server.namesrv.manager.tables.topic_queue_table.keys()

    await change_setting(peer)
    await peer.register(MASTER, registration("T", "U"))

    assert {"T", "U"} == server.namesrv.manager.tables.topic_queue_table.keys()


async def test_same_bytes_in_another_spelling_are_not_the_same(server: InProcess, peer: NamesrvPeer) -> None:
    """An empty body is valid JSON and native; only natively does it drop what was there."""
    await peer.register(MASTER, b"", spelling="json")
    await peer.register(MASTER, b"", spelling="native")

    assert ["full", "full"] == kinds(server)


async def test_equal_registration_over_a_newer_connection_moves_there(server: InProcess) -> None:
    """The end of the older connection evicts nobody."""
    older, newer = await server.connect(), await server.connect()
    await older.register(MASTER)
    await newer.register(MASTER)
    assert ["full", "unchanged"] == kinds(server)

    await server.hang_up(older)

    assert 0 == (await newer.call(105, {"topic": "T"})).code
