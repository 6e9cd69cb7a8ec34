"""Registrations that are native, and those that repeat the last one (103).

The native ones say what RocketMQ leaves to guess; Java's brokers send their whole table every 30 s, nearly always the
same one.
"""

import zlib
from typing import Any

import pytest

from namesrv_remoting.codes import STALE_FIELD
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    MASTER,
    OTHER,
    SLAVE,
    Broker,
    NamesrvPeer,
    Spelling,
    native_registration,
    native_topic,
    registration,
    topic_config,
)
from tests.support.table_invariants import queues_of, violations

FULL: dict[str, Any] = {"kind": "full", "agentId": "agent-1"}
DELTA: dict[str, Any] = {"kind": "delta", "agentId": "agent-1"}


def topics(server: InProcess) -> set[str]:
    """All topics that have a route."""
    assert violations(server.namesrv.manager.tables) == []
    return set(server.namesrv.manager.tables.topic_queue_table)


async def kinds(server: InProcess) -> list[str]:
    """How the registrations since the last look were taken."""
    found = [line["kind"] for line in await server.lines("register")]
    await server.forget()
    return found


async def test_single_topic_is_a_first_registration(server: InProcess, peer: NamesrvPeer) -> None:
    """Kind full says that it is the whole; so does no topic at all, and so does no body."""
    response = await peer.register(MASTER, native_registration("T"), spelling="native", **FULL)
    assert (*response.outcome, response.fields) == (0, None, {})
    assert {"T"} == topics(server)

    assert (await peer.register(MASTER, b"", spelling="native", **FULL)).code == 0
    assert set() == topics(server)
    assert MASTER.name in server.namesrv.manager.tables.broker_addr_table


async def test_full_one_drops_what_it_does_not_name_and_a_delta_does_not(server: InProcess, peer: NamesrvPeer) -> None:
    """A delta adds, changes and deletes; it is not taken for a repetition of a full one in the same words."""
    await peer.register(MASTER, native_registration("S", "T", "U", "V"), spelling="native", **FULL)
    await peer.register(MASTER, native_registration("T", "U", "V", counter=2), spelling="native", **FULL)
    assert {"T", "U", "V"} == topics(server)

    delta = native_registration(native_topic("U", read=16), "W", counter=3, deleted_topics=["T", "unknown"])
    for kind, left in ((DELTA, {"U", "V", "W"}), (FULL, {"U", "W"}), (DELTA, {"U", "W"}), (DELTA, {"U", "W"})):
        assert (await peer.register(MASTER, delta, spelling="native", **kind)).outcome == (0, None)
        assert left == topics(server)
    queues = queues_of(server.namesrv.manager.tables, "U", "broker-a")
    assert (queues and queues.read_queue_nums, queues and queues.write_queue_nums) == (16, 8)
    assert await kinds(server) == ["full", "full", "delta", "full", "delta", "delta"]


@pytest.mark.parametrize(
    ("broker", "ext"),
    [
        (Broker("broker-b", 0, "10.0.0.2:10911"), DELTA),
        (MASTER, {**DELTA, "agentId": "agent-2"}),
        (MASTER, {"kind": "delta"}),
        (MASTER._replace(id=1), DELTA),
        (MASTER._replace(cluster="cluster-2"), DELTA),
    ],
    ids=["unknown broker", "other agent", "no agent", "other id", "other cluster"],
)
async def test_delta_of_a_stranger_has_to_be_a_full_one(
    server: InProcess, peer: NamesrvPeer, broker: Broker, ext: dict[str, Any]
) -> None:
    """QUERY_NOT_FOUND: the agent registers again at once, fully; nothing has changed."""
    await peer.register(MASTER, native_registration("T"), spelling="native", **FULL)

    response = await peer.register(broker, native_registration("U"), spelling="native", **ext)

    assert (22, f"broker {broker.name} at {broker.addr} is not registered") == response.outcome
    assert {"T"} == topics(server)
    assert len(server.namesrv.manager.tables.broker_live_table) == 1


async def test_kind_means_nothing_to_other_spellings(server: InProcess, peer: NamesrvPeer) -> None:
    """A RocketMQ registration may be a part of the table whatever it says: nothing is dropped."""
    await peer.register(MASTER, registration("T", "U"))

    await peer.register(MASTER, registration("V", counter=2), kind="full")
    assert {"T", "U", "V"} == topics(server)

    await peer.register(MASTER, registration("W", counter=3), kind="delta")
    assert {"T", "U", "V", "W"} == topics(server)
    assert await kinds(server) == ["full", "full", "full"]


async def test_native_registration_may_be_compressed(server: InProcess, peer: NamesrvPeer) -> None:
    """The header has to say so."""
    body = zlib.compress(native_registration(*(f"topic-{n}" for n in range(1000))))
    assert (await peer.register(MASTER, body, spelling="native", compressed="true", **FULL)).code == 0
    assert len(topics(server)) == 1000
    assert (await peer.register(MASTER, body, spelling="native", compressed="false", **FULL)).code == 1


async def test_fields_of_a_native_header_may_have_types(server: InProcess, peer: NamesrvPeer) -> None:
    """Numbers and booleans as such: ext is a map of str to str, int or bool."""
    ext: dict[str, Any] = {"heartbeatTimeoutMillis": 10_000, "enableActingMaster": True, "registrationSeq": 1}
    response = await peer.register(MASTER, spelling="native", **FULL, **ext, brokerId=0)

    assert response.outcome == (0, None)
    (live,) = server.namesrv.manager.tables.broker_live_table.values()
    assert (live.expiry_seconds, live.registration_seq, live.agent_id, live.is_native) == (10.0, 1, "agent-1", True)


@pytest.mark.parametrize(
    ("ext", "leaves"),
    [
        ({"agentId": "agent-1", "registrationSeq": "1"}, False),
        ({"agentId": "agent-2", "registrationSeq": "9"}, False),
        ({"agentId": "agent-1"}, False),
        ({"agentId": "agent-1", "registrationSeq": "2"}, True),
        ({}, False),
    ],
    ids=["older registration", "other agent", "no number", "this registration", "does not say"],
)
async def test_unregister_is_fenced_by_agent_and_number(
    server: InProcess, peer: NamesrvPeer, ext: dict[str, Any], *, leaves: bool
) -> None:
    """What was said before a newer registration, or by another process, takes nothing away."""
    for number in ("1", "2"):
        body = native_registration("T", counter=int(number))
        await peer.register(MASTER, body, spelling="native", **FULL, registrationSeq=number)

    assert (await peer.call(104, {**MASTER.ext, **ext}, spelling="native")).outcome == (0, None)

    assert (set() if leaves else {"T"}) == topics(server)
    assert [leaves, not leaves] == [bool(server.events("evict")), bool(server.events("fenced"))]


async def test_number_of_an_unchanged_registration_counts(server: InProcess, peer: NamesrvPeer) -> None:
    """Registering again with the same words and the next number fences what was said before it."""
    for number in ("1", "2"):
        await peer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=number)
    assert await kinds(server) == ["full", "unchanged"]

    stale = {**MASTER.ext, "agentId": "agent-1", "registrationSeq": "1"}
    await peer.call(104, stale, spelling="native")

    assert {"T"} == topics(server)


async def test_equal_registration_is_recognised_and_counts_as_heartbeat(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling
) -> None:
    """The answer is the same; the entry is fresh again; no route has changed."""
    first = await peer.register(MASTER, spelling=spelling)
    revision = server.namesrv.manager.revisions.revision
    await server.clock.advance(100)

    again = await peer.register(MASTER, spelling=spelling)

    assert await kinds(server) == ["full", "unchanged"]
    assert (0, first.fields, first.body) == (again.code, again.fields, again.body)
    assert revision == server.namesrv.manager.revisions.revision
    await server.clock.advance(110)
    assert len(server.namesrv.manager.tables.broker_live_table) == 1


async def test_equal_registration_of_a_slave_finds_its_new_master(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling
) -> None:
    """What a slave is told, address and HA address of the live master of its group, is looked up each time."""
    assert (await peer.register(SLAVE, haServerAddr="10.0.0.2:10912", spelling=spelling)).fields == {}
    await peer.register(MASTER, haServerAddr="ha", spelling=spelling)

    for _ in range(2):
        response = await peer.register(SLAVE, haServerAddr="10.0.0.2:10912", spelling=spelling)
        assert response.fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "ha"}
    # read anew once, because the group has changed
    assert await kinds(server) == ["full", "full", "full", "unchanged"]


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

    assert await kinds(server) == ["full", "full"]


async def test_equal_data_version_is_not_enough(server: InProcess, peer: NamesrvPeer) -> None:
    """A lost increment must not stay hidden: only equal bytes are skipped."""
    await peer.register(MASTER, registration("T", "U", counter=7))
    await peer.register(MASTER, registration("T", topic_config("U", read=16), counter=7))

    assert await kinds(server) == ["full", "full"]
    queues = queues_of(server.namesrv.manager.tables, "U", "broker-a")
    assert (queues and queues.read_queue_nums) == 16


async def test_refused_registration_is_not_remembered(server: InProcess, peer: NamesrvPeer) -> None:
    """The same mistake gets the same answer again."""
    for _ in range(2):
        assert (await peer.register(MASTER, bodyCrc32="1")).code == 1
        assert (await peer.register(MASTER, registration("T"))).code == 1

    assert await kinds(server) == []


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
    assert (await peer.call(code, ext, body)).code == 0
    await server.forget()

    for _ in range(2):
        assert (await peer.register(MASTER)).code == 0
    await peer.register(OTHER, registration("V", "W"))

    assert ["full", "unchanged", "full" if touches_others else "unchanged"] == await kinds(server)
    assert {"T", "U"} <= server.namesrv.manager.tables.topic_queue_table.keys()


async def test_same_bytes_in_another_spelling_are_not_the_same(server: InProcess, peer: NamesrvPeer) -> None:
    """An empty body is valid JSON and native; only natively does it drop what was there."""
    await peer.register(MASTER, b"", spelling="json")
    await peer.register(MASTER, b"", spelling="native")

    assert await kinds(server) == ["full", "full"]


async def test_forged_sequence_does_not_lock_the_agent_out(server: InProcess, peer: NamesrvPeer) -> None:
    """Another peer registers in an agent's name with the highest number there is: the agent connects again."""
    thief = await server.connect()
    await peer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=1)
    forged = native_registration("FORGED", counter=9)
    await thief.register(MASTER, forged, spelling="native", **FULL, registrationSeq=2**63 - 1)
    assert topics(server) == {"FORGED"}

    # Its heartbeats keep the forged entry alive no longer: it learns that it has to register.
    heartbeat = {**MASTER.ext, "agentId": "agent-1"}
    assert (await peer.call(904, heartbeat, spelling="native")).code == 22
    refused = await peer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=2)
    assert (refused.code, refused.fields) == (1, {STALE_FIELD: "true"})

    newer = await server.connect()
    response = await newer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=3)
    assert response.code == 0
    assert topics(server) == {"T"}


async def test_forged_state_version_does_not_lock_the_successor_out(server: InProcess, peer: NamesrvPeer) -> None:
    """Another peer registers as a master with a huge state version: the next master takes the id all the same."""
    await peer.register(MASTER, registration("T", "U", state_version=1))
    successor = Broker(MASTER.name, 0, "10.0.0.9:10911")
    next_master, thief = await server.connect(), await server.connect()
    old_term = await next_master.register(successor, registration("T", "U", state_version=0))
    assert old_term.code == 1

    await thief.register(MASTER, registration("T", "U", state_version=2**62))
    response = await next_master.register(successor, registration("T", "U", state_version=2))

    assert (response.code, response.remark) == (0, None)
    assert server.namesrv.manager.tables.broker_addr_table[MASTER.name].broker_addrs == {0: successor.addr}
