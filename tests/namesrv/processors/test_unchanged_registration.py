"""A registration that repeats the last one, and what makes the server read it anew.

Java's brokers send their whole table every 30 s, nearly always the same one.
"""

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


QUEUES = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'


@pytest.mark.parametrize(
    ("code", "ext", "body", "touches_others"),
    [
        (216, {"topic": "T"}, b"", False),
        (216, {"topic": "T", "clusterName": "cluster-1"}, b"", False),
        (217, {"topic": "T"}, QUEUES, False),
        # one that the broker does not register
        (217, {"topic": "X"}, QUEUES, False),
        (205, {"brokerName": "broker-a"}, b"", False),
        (327, {"brokerName": "broker-a"}, b"", False),
        (104, MASTER.ext, b"", False),
        # from now on a registration drops topics
        (318, {}, b"deleteTopicWithBrokerRegistration=true", True),
        # another instance of the group, and another address that takes the id
        (103, SLAVE.ext, registration("T", "U"), False),
        (103, MASTER._replace(addr="10.0.0.9:10911").ext, registration("T", "U"), False),
    ],
)
@pytest.mark.settings(admin_enabled=True)
async def test_registration_is_read_anew_when_something_else_touched_its_broker(
    server: InProcess, peer: NamesrvPeer, code: int, ext: dict[str, Any], body: bytes, *, touches_others: bool
) -> None:
    """In full, once; that of a broker with other topics is still known."""
    await peer.register(MASTER)
    await peer.register(OTHER, registration("V", "W"))
    assert 0 == (await peer.call(code, ext, body)).code
    server.effects.clear()

    for _ in range(2):
        assert 0 == (await peer.register(MASTER)).code
    await peer.register(OTHER, registration("V", "W"))

    assert ["full", "unchanged", "full" if touches_others else "unchanged"] == kinds(server)
    assert {"T", "U"} <= server.namesrv.manager.tables.topic_queue_table.keys()


async def test_delta_makes_the_full_one_count_again(server: InProcess, peer: NamesrvPeer) -> None:
    """And a delta is never taken for a repetition."""
    for kind in ("full", "delta", "delta", "full", "full"):
        await peer.register(MASTER, native_registration("T"), spelling="native", kind=kind, agentId="agent-1")

    assert ["full", "delta", "delta", "full", "unchanged"] == kinds(server)


@pytest.mark.settings(admin_enabled=True)
async def test_setting_applies_to_what_is_registered_next(server: InProcess, peer: NamesrvPeer) -> None:
    """Topics that an increment brought go with the next full registration, once the setting says so."""
    await peer.register(MASTER, registration("T", "U", "V"))
    await peer.register(MASTER, registration("T", "U"))
    assert {"T", "U", "V"} == server.namesrv.manager.tables.topic_queue_table.keys()

    await peer.call(318, None, b"deleteTopicWithBrokerRegistration=true")
    await peer.register(MASTER, registration("T", "U"))

    assert {"T", "U"} == server.namesrv.manager.tables.topic_queue_table.keys()


async def test_same_bytes_in_another_spelling_are_not_the_same(server: InProcess, peer: NamesrvPeer) -> None:
    """An empty body is valid JSON and native; only natively does it drop what was there."""
    await peer.register(MASTER, b"", spelling="json")
    await peer.register(MASTER, b"", spelling="native")

    assert ["full", "full"] == kinds(server)
