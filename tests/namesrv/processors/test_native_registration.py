"""Native registrations (103, serialize type 77), which say what RocketMQ leaves to guess."""

import zlib
from typing import Any

import pytest

from namesrv.routeinfo.records import Evicted, Fenced, Registered
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    Broker,
    NamesrvPeer,
    Spelling,
    fields,
    native,
    native_registration,
    native_topic,
    outcome,
    registration,
)
from tests.support.table_invariants import violations

BROKER = Broker()
FULL: dict[str, Any] = {"kind": "full", "agentId": "agent-1"}
DELTA: dict[str, Any] = {"kind": "delta", "agentId": "agent-1"}


def topics(server: InProcess) -> set[str]:
    """All topics that have a route."""
    assert [] == violations(server.namesrv.manager.tables)
    return set(server.namesrv.manager.tables.topic_queue_table)


async def test_single_topic_is_a_first_registration(server: InProcess, peer: NamesrvPeer) -> None:
    """Kind full says that it is the whole; so does no topic at all, and so does no body."""
    answer = await peer.register(BROKER, native_registration("T"), spelling="native", **FULL)
    assert (0, None, {}) == (*outcome(answer), fields(answer))
    assert {"T"} == topics(server)

    assert 0 == (await peer.register(BROKER, b"", spelling="native", **FULL)).code
    assert set() == topics(server)
    assert BROKER.name in server.namesrv.manager.tables.broker_addr_table


async def test_full_registration_drops_what_it_does_not_name(server: InProcess, peer: NamesrvPeer) -> None:
    """Of this broker only, and whatever the setting delete-topic-with-broker-registration says."""
    other = Broker("broker-b", 0, "10.0.0.2:10911")
    await peer.register(BROKER, native_registration("T", "U"), spelling="native", **FULL)
    await peer.register(other, native_registration("U"), spelling="native", kind="full", agentId="agent-2")

    await peer.register(BROKER, native_registration("T", counter=2), spelling="native", **FULL)

    tables = server.namesrv.manager.tables
    assert {"T", "U"} == topics(server)
    assert ["broker-b"] == [queues.broker_name for queues in tables.topic_queue_table["U"]]


async def test_delta_adds_changes_and_deletes(server: InProcess, peer: NamesrvPeer) -> None:
    """What it does not name stays."""
    await peer.register(BROKER, native_registration("T", "U", "V"), spelling="native", **FULL)

    delta = native_registration(native_topic("U", read=16), "W", counter=2, deleted_topics=["T", "unknown"])
    assert (0, None) == outcome(await peer.register(BROKER, delta, spelling="native", **DELTA))

    assert {"U", "V", "W"} == topics(server)
    queues = server.namesrv.manager.tables.queues_of("U", "broker-a")
    assert (16, 8) == (queues and queues.read_queue_nums, queues and queues.write_queue_nums)


async def test_delta_with_the_words_of_the_last_full_one_is_another_thing(server: InProcess, peer: NamesrvPeer) -> None:
    """It is not taken for a repetition: what it lists as deleted goes, which a full one does not heed."""
    body = native_registration("T", "U", deleted_topics=["U"])
    await peer.register(BROKER, body, spelling="native", **FULL)
    assert {"T", "U"} == topics(server)

    await peer.register(BROKER, body, spelling="native", **DELTA)
    assert {"T"} == topics(server)


@pytest.mark.parametrize(
    ("broker", "ext"),
    [
        (Broker("broker-b", 0, "10.0.0.2:10911"), DELTA),
        (BROKER, {**DELTA, "agentId": "agent-2"}),
        (BROKER, {"kind": "delta"}),
        (BROKER._replace(id=1), DELTA),
        (BROKER._replace(cluster="cluster-2"), DELTA),
    ],
    ids=["unknown broker", "other agent", "no agent", "other id", "other cluster"],
)
async def test_delta_of_a_stranger_has_to_be_a_full_one(
    server: InProcess, peer: NamesrvPeer, broker: Broker, ext: dict[str, Any]
) -> None:
    """QUERY_NOT_FOUND: the agent registers again at once, fully; nothing has changed."""
    await peer.register(BROKER, native_registration("T"), spelling="native", **FULL)

    answer = await peer.register(broker, native_registration("U"), spelling="native", **ext)

    assert (22, f"broker {broker.name} at {broker.addr} is not registered") == outcome(answer)
    assert {"T"} == topics(server)
    assert 1 == len(server.namesrv.manager.tables.broker_live_table)


async def test_kind_means_nothing_to_other_spellings(server: InProcess, peer: NamesrvPeer) -> None:
    """A RocketMQ registration may be a part of the table whatever it says: nothing is dropped."""
    await peer.register(BROKER, registration("T", "U"))

    await peer.register(BROKER, registration("V", counter=2), kind="full")
    assert {"T", "U", "V"} == topics(server)

    await peer.register(BROKER, registration("W", counter=3), kind="delta")
    assert {"T", "U", "V", "W"} == topics(server)
    assert ["full", "full", "full"] == [effect.kind for effect in server.taken(Registered)]


async def test_native_registration_may_be_compressed(server: InProcess, peer: NamesrvPeer) -> None:
    """The header has to say so."""
    body = zlib.compress(native_registration(*(f"topic-{n}" for n in range(1000))))
    assert 0 == (await peer.register(BROKER, body, spelling="native", compressed="true", **FULL)).code
    assert 1000 == len(topics(server))
    assert 1 == (await peer.register(BROKER, body, spelling="native", compressed="false", **FULL)).code


async def test_fields_of_a_native_header_may_have_types(server: InProcess, peer: NamesrvPeer) -> None:
    """Numbers and booleans as such: ext is a map of str to str, int or bool."""
    ext: dict[str, Any] = {"heartbeatTimeoutMillis": 10_000, "enableActingMaster": True, "registrationSeq": 1}
    answer = await peer.register(BROKER, spelling="native", **FULL, **ext, brokerId=0)

    assert (0, None) == outcome(answer)
    (live,) = server.namesrv.manager.tables.broker_live_table.values()
    assert (10.0, 1, "agent-1", True) == (
        live.expiry_seconds,
        live.registration_seq,
        live.agent_id,
        live.is_native,
    )


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
        await peer.register(BROKER, body, spelling="native", **FULL, registrationSeq=number)

    assert (0, None) == outcome(await peer.call(104, {**BROKER.ext, **ext}, spelling="native"))

    assert (set() if leaves else {"T"}) == topics(server)
    assert [leaves, not leaves] == [bool(server.effects_of(Evicted)), bool(server.effects_of(Fenced))]


async def test_number_of_an_unchanged_registration_counts(server: InProcess, peer: NamesrvPeer) -> None:
    """Registering again with the same words and the next number fences what was said before it."""
    for number in ("1", "2"):
        await peer.register(BROKER, native_registration("T"), spelling="native", **FULL, registrationSeq=number)
    assert ["full", "unchanged"] == [effect.kind for effect in server.taken(Registered)]

    stale = {**BROKER.ext, "agentId": "agent-1", "registrationSeq": "1"}
    await peer.call(104, stale, spelling="native")

    assert {"T"} == topics(server)


async def test_static_mapping_dies_with_its_topic(server: InProcess, peer: NamesrvPeer) -> None:
    """A full registration without the mapping takes it out of the route; so does a delta that deletes the topic."""
    mapping = {"topic": "T", "bname": "broker-a", "epoch": 1, "total_queues": 2, "curr_id_map": {0: 0, 1: 1}}
    with_mapping = native_registration("T", topic_queue_mapping_info_map={"T": mapping})
    mapped = server.namesrv.manager.tables.topic_queue_mapping_info_table

    await peer.register(BROKER, with_mapping, spelling="native", **FULL)
    assert {0: 0, 1: 1} == mapped["T"]["broker-a"].curr_id_map
    await peer.register(BROKER, native_registration("T"), spelling="native", **FULL)
    assert {} == mapped

    await peer.register(BROKER, with_mapping, spelling="native", **FULL)
    await peer.register(BROKER, native({"deleted_topics": ["T"]}), spelling="native", **DELTA)
    assert {} == mapped


@pytest.mark.parametrize("spelling", ["json", "native"])
async def test_filter_servers_come_and_go(server: InProcess, peer: NamesrvPeer, spelling: Spelling) -> None:
    """An empty list removes them; natively, none at all leaves them as they are."""
    listed = server_list(spelling, ("10.0.0.1:30000",))
    tables = server.namesrv.manager.tables

    await peer.register(BROKER, listed, spelling=spelling)
    assert [("10.0.0.1:30000",)] == list(tables.filter_server_table.values())

    if spelling == "native":
        await peer.register(BROKER, native_registration("T", "U"), spelling=spelling)
        assert [("10.0.0.1:30000",)] == list(tables.filter_server_table.values())

    await peer.register(BROKER, server_list(spelling, ()), spelling=spelling)
    assert {} == tables.filter_server_table


def server_list(spelling: Spelling, servers: tuple[str, ...]) -> bytes:
    """A registration with filter servers."""
    if spelling == "native":
        return native_registration("T", "U", filter_server_list=list(servers))
    return registration("T", "U", filter_servers=servers)
