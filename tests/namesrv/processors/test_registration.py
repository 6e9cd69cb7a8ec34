"""Native registrations, and registrations that repeat the last one (103).

Native registrations state what RocketMQ leaves open. Java's brokers send their whole table every 30 s, nearly always
unchanged.
"""

from typing import Any

import pytest

from namesrv_remoting.codes import STALE_FIELD
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    MASTER,
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
    """All topics with a route."""
    assert violations(server.namesrv.manager.tables) == []
    return set(server.namesrv.manager.tables.topic_queue_table)


async def kinds(server: InProcess) -> list[str]:
    """The kinds of the registrations since the last call."""
    found = [line["kind"] for line in await server.lines("register")]
    await server.forget()
    return found


async def test_full_registration_drops_topics_and_a_delta_keeps_them(server: InProcess, peer: NamesrvPeer) -> None:
    """A delta adds, changes and deletes topics, and differs from a full registration with the same body."""
    await peer.register(MASTER, native_registration("S", "T", "U", "V"), spelling="native", **FULL)
    await peer.register(MASTER, native_registration("T", "U", "V", counter=2), spelling="native", **FULL)
    assert topics(server) == {"T", "U", "V"}

    delta = native_registration(native_topic("U", read=16), "W", counter=3, deleted_topics=["T", "unknown"])
    for kind, left in ((DELTA, {"U", "V", "W"}), (FULL, {"U", "W"})):
        assert (await peer.register(MASTER, delta, spelling="native", **kind)).outcome == (0, None)
        assert topics(server) == left
    queues = queues_of(server.namesrv.manager.tables, "U", "broker-a")
    assert (queues and queues.read_queue_nums, queues and queues.write_queue_nums) == (16, 8)
    assert await kinds(server) == ["full", "full", "delta", "full"]


async def test_kind_is_ignored_in_other_serializations(server: InProcess, peer: NamesrvPeer) -> None:
    """A RocketMQ registration may be a part of the table, so it drops no topic with any kind."""
    await peer.register(MASTER, registration("T", "U"))

    await peer.register(MASTER, registration("V", counter=2), kind="full")
    assert topics(server) == {"T", "U", "V"}

    await peer.register(MASTER, registration("W", counter=3), kind="delta")
    assert topics(server) == {"T", "U", "V", "W"}
    assert await kinds(server) == ["full", "full", "full"]


async def test_sequence_of_an_unchanged_registration_counts(server: InProcess, peer: NamesrvPeer) -> None:
    """An unchanged registration with the next sequence fences an older unregistration."""
    for number in ("1", "2"):
        await peer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=number)
    assert await kinds(server) == ["full", "unchanged"]

    stale = {**MASTER.ext, "agentId": "agent-1", "registrationSeq": "1"}
    await peer.call(104, stale, spelling="native")

    assert topics(server) == {"T"}


async def test_unregister_request_with_another_cluster_removes_nothing(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling
) -> None:
    """A broker is known by cluster and address; Apache's server removes its routes, and leaves its live entry."""
    await peer.register(MASTER, spelling=spelling)

    response = await peer.call(104, {**MASTER.ext, "clusterName": "cluster-2"}, spelling=spelling)

    assert response.outcome == (0, None)
    assert topics(server) == {"T", "U"}
    assert [broker.broker_addr for broker in server.namesrv.manager.tables.broker_live_table] == [MASTER.addr]


async def test_unchanged_registration_counts_as_heartbeat(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling
) -> None:
    """An unchanged registration gets the same response, renews the live entry and changes no route."""
    first = await peer.register(MASTER, spelling=spelling)
    revision = server.namesrv.manager.revisions.revision
    await server.clock.advance(100)

    again = await peer.register(MASTER, spelling=spelling)

    assert await kinds(server) == ["full", "unchanged"]
    assert (again.code, again.fields, again.body) == (0, first.fields, first.body)
    assert server.namesrv.manager.revisions.revision == revision
    await server.clock.advance(110)
    assert len(server.namesrv.manager.tables.broker_live_table) == 1


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
async def test_changed_header_is_a_changed_registration(
    server: InProcess, peer: NamesrvPeer, ext: dict[str, Any]
) -> None:
    """The same body with another header field is processed in full."""
    await peer.register(MASTER)
    await peer.register(MASTER, **ext)

    assert await kinds(server) == ["full", "full"]


async def test_changed_body_with_an_equal_data_version_is_processed(server: InProcess, peer: NamesrvPeer) -> None:
    """Only equal bytes are skipped, so that a broker which does not raise its version is still updated."""
    await peer.register(MASTER, registration("T", "U", counter=7))
    await peer.register(MASTER, registration("T", topic_config("U", read=16), counter=7))

    assert await kinds(server) == ["full", "full"]
    queues = queues_of(server.namesrv.manager.tables, "U", "broker-a")
    assert (queues and queues.read_queue_nums) == 16


async def test_refused_registration_is_not_remembered(server: InProcess, peer: NamesrvPeer) -> None:
    """A repeated refused registration is refused again, and not taken for an unchanged one."""
    for _ in range(2):
        assert (await peer.register(MASTER, bodyCrc32="1")).code == 1
        assert (await peer.register(MASTER, registration("T"))).code == 1

    assert await kinds(server) == []


async def test_forged_sequence_does_not_lock_out_the_agent(server: InProcess, peer: NamesrvPeer) -> None:
    """An agent that reconnects replaces a registration forged in its name with the highest sequence."""
    thief = await server.connect()
    await peer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=1)
    forged = native_registration("FORGED", counter=9)
    await thief.register(MASTER, forged, spelling="native", **FULL, registrationSeq=2**63 - 1)
    assert topics(server) == {"FORGED"}

    # The agent's heartbeat does not renew the forged entry; the response asks it to register.
    heartbeat = {**MASTER.ext, "agentId": "agent-1"}
    assert (await peer.call(904, heartbeat, spelling="native")).code == 22
    refused = await peer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=2)
    assert (refused.code, refused.fields) == (1, {STALE_FIELD: "true"})

    newer = await server.connect()
    response = await newer.register(MASTER, native_registration("T"), spelling="native", **FULL, registrationSeq=3)
    assert response.code == 0
    assert topics(server) == {"T"}
