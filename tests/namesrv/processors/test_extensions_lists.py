"""Answers to operators who list connections and brokers (20004, 20005)."""

from typing import Any

import pytest

from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    TIMESTAMP,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    native_registration,
    outcome,
    registration,
    value,
)

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")
PULL_ROUTES, SERVER_INFO, RECENT_EVENTS, LIST_CONNECTIONS, LIST_BROKERS = range(20001, 20006)


async def ask(peer: NamesrvPeer, code: int, **members: Any) -> Any:
    """The body of an answer; without members the question has none."""
    answer = await peer.call(code, None, native(members) if members else b"", spelling="native")
    assert (0, None) == outcome(answer)
    return value(answer)


async def test_connections_are_listed_with_what_they_are(server: InProcess) -> None:
    """The role comes from what was asked: brokers stay brokers, clients may ask what tools ask."""
    broker, client, admin, silent = [await server.connect() for _ in range(4)]
    await broker.register(MASTER)
    await server.clock.advance(1)
    await broker.call(105, {"topic": "T"})
    await broker.call(106)
    await client.call(105, {"topic": "T"}, spelling="native")
    await client.call(105, {"topic": "absent"}, spelling="native")
    await client.call(106, spelling="native")
    await admin.call(106, spelling="binary")
    await server.clock.advance(2)

    found = (await ask(admin, LIST_CONNECTIONS))["connections"]

    assert {
        "id": server.connection_of(broker).id,
        "peer": broker.address,
        "proxied": None,
        "role": "broker",
        "protocol": "json",
        "since_ms": 1_700_000_000_000,
        "last_request_seconds": 2.0,
        "requests": 3,
        "in_flight": 0,
        "unsent_bytes": 0,
    } == found[0]
    seen = [(one["peer"], one["role"], one["protocol"], one["requests"], one["in_flight"]) for one in found]
    assert [
        (broker.address, "broker", "json", 3, 0),
        (client.address, "client", "msgpack", 3, 0),
        (admin.address, "admin", "msgpack", 2, 1),
        (silent.address, None, None, 0, 0),
    ] == seen

    async def peers(role: str | None) -> list[str]:
        return [one["peer"] for one in (await ask(admin, LIST_CONNECTIONS, role=role))["connections"]]

    assert [broker.address] == await peers("broker")
    assert [client.address] == await peers("client")
    assert [admin.address] == await peers("admin")
    assert 4 == len(await peers(None))
    assert [] == await peers("stranger")


@pytest.mark.parametrize("spelling", ["json", "native"])
async def test_tool_that_asks_for_routes_counts_as_client(server: InProcess, spelling: Spelling) -> None:
    """On the fast lane as on the ordinary road."""
    broker, fast, ordinary = [await server.connect() for _ in range(3)]
    await broker.register(MASTER)
    for peer, topic in ((fast, "T"), (ordinary, "absent")):
        await peer.call(106, spelling=spelling)
        assert "admin" == server.connection_of(peer).role
        await peer.call(105, {"topic": topic}, spelling=spelling)
        assert "client" == server.connection_of(peer).role


async def test_heartbeat_makes_a_broker(server: InProcess) -> None:
    """Of a connection that carries nothing else; on both roads."""
    peer, known, unknown = [await server.connect() for _ in range(3)]
    await peer.register(MASTER)
    await known.call(904, MASTER.ext)
    await unknown.call(904, Broker("broker-z").ext)

    assert ["broker", "broker"] == [server.connection_of(one).role for one in (known, unknown)]


@pytest.mark.settings(proxy_protocol="optional")
async def test_connection_through_a_proxy_names_both_ends(peer: NamesrvPeer) -> None:
    """The socket's peer, and the one that the proxy names."""
    peer.send(b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 9876\r\n")

    (found,) = (await ask(peer, LIST_CONNECTIONS))["connections"]

    assert (peer.address, "192.0.2.1:40000") == (found["peer"], found["proxied"])


async def test_brokers_are_listed_with_their_age(server: InProcess, peer: NamesrvPeer) -> None:
    """Everything that is known of them, on the liveness clock."""
    await peer.register(MASTER, registration("T", "U", "V", counter=7, state_version=2), haServerAddr="ha")
    await peer.call(205, {"brokerName": "broker-a"})
    await server.clock.advance(100)
    agent = await server.connect()
    body = native_registration("T", counter=3)
    ext: dict[str, Any] = {"agentId": "agent-1", "registrationSeq": 4, "heartbeatTimeoutMillis": 10_000}
    await agent.register(ELSEWHERE, body, spelling="native", **ext)
    await server.clock.advance(1.5)
    state = {"disk_used": 0.25, "note": None}
    await agent.call(904, ELSEWHERE.ext, native({"state": state}), spelling="native")
    await server.clock.advance(0.5)

    found = await ask(peer, LIST_BROKERS)

    assert server.namesrv.boot_id == found["boot_id"]
    assert [
        {
            "cluster": "cluster-1",
            "broker_name": "broker-a",
            "broker_id": 0,
            "broker_addr": "10.0.0.1:10911",
            "ha_server_addr": "ha",
            "age_seconds": 102.0,
            "expires_in_seconds": 18.0,
            "expiry_seconds": 120.0,
            "data_version": {"counter": 7, "state_version": 2, "timestamp": TIMESTAMP},
            "topics": 3,
            "write_wiped": True,
            "agent_id": None,
            "registration_seq": None,
            "connection": server.connection_of(peer).id,
            "protocol": "rocketmq",
            "state": None,
        },
        {
            "cluster": "cluster-2",
            "broker_name": "broker-c",
            "broker_id": 0,
            "broker_addr": "10.0.1.1:10911",
            "ha_server_addr": None,
            "age_seconds": 0.5,
            "expires_in_seconds": 9.5,
            "expiry_seconds": 10.0,
            "data_version": {"counter": 3, "state_version": 0, "timestamp": TIMESTAMP},
            "topics": 1,
            "write_wiped": False,
            "agent_id": "agent-1",
            "registration_seq": 4,
            "connection": server.connection_of(agent).id,
            "protocol": "msgpack",
            "state": state,
        },
    ] == found["brokers"]


async def test_brokers_can_be_listed_by_cluster_and_name(peer: NamesrvPeer) -> None:
    """Both, or either; nobody of an unknown one."""
    for broker in (MASTER, SLAVE, Broker("broker-b", 0, "10.0.0.3:10911"), ELSEWHERE):
        await peer.register(broker)

    async def addrs(**members: str) -> list[str]:
        return [one["broker_addr"] for one in (await ask(peer, LIST_BROKERS, **members))["brokers"]]

    assert ["10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.0.1.1:10911"] == await addrs()
    assert ["10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"] == await addrs(cluster="cluster-1")
    assert ["10.0.0.1:10911", "10.0.0.2:10911"] == await addrs(broker_name="broker-a")
    assert ["10.0.1.1:10911"] == await addrs(cluster="cluster-2", broker_name="broker-c")
    assert [] == await addrs(cluster="cluster-2", broker_name="broker-a")


async def test_broker_without_a_data_version_shows_none(peer: NamesrvPeer) -> None:
    """It is nil."""
    await peer.register(MASTER, native({"topic_configs": []}), spelling="native")

    (found,) = (await ask(peer, LIST_BROKERS))["brokers"]

    assert found["data_version"] is None
