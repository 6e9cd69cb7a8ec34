"""Native registrations (103, serialize type 77), which say what RocketMQ leaves to guess."""

import zlib
from typing import Any

import pytest

from namesrv.routeinfo.records import Evicted, Fenced, Registered
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    Broker,
    NamesrvPeer,
    fields,
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


async def test_full_one_drops_what_it_does_not_name_and_a_delta_does_not(server: InProcess, peer: NamesrvPeer) -> None:
    """A delta adds, changes and deletes; it is not taken for a repetition of a full one in the same words."""
    await peer.register(BROKER, native_registration("S", "T", "U", "V"), spelling="native", **FULL)
    await peer.register(BROKER, native_registration("T", "U", "V", counter=2), spelling="native", **FULL)
    assert {"T", "U", "V"} == topics(server)

    delta = native_registration(native_topic("U", read=16), "W", counter=3, deleted_topics=["T", "unknown"])
    for kind, left in ((DELTA, {"U", "V", "W"}), (FULL, {"U", "W"}), (DELTA, {"U", "W"})):
        assert (0, None) == outcome(await peer.register(BROKER, delta, spelling="native", **kind))
        assert left == topics(server)
    queues = server.namesrv.manager.tables.queues_of("U", "broker-a")
    assert (16, 8) == (queues and queues.read_queue_nums, queues and queues.write_queue_nums)
    assert ["full", "full", "delta", "full", "delta"] == [effect.kind for effect in server.taken(Registered)]


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
