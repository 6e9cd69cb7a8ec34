"""Responses to heartbeats (904) and to QUERY_DATA_VERSION (322), which counts as a heartbeat.

The fast path answers known brokers, and the dispatcher all others.
"""

from typing import Any

import pytest

from namesrv.routeinfo.tables.records import BrokerAddrInfo
from tests.support.fake_clock import settle
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    ELSEWHERE,
    OTHER,
    TIMESTAMP,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    native_registration,
    native_topic,
    registration,
)
from tests.support.spelling import ONEWAY

BROKER = Broker()
INCOMPLETE = "broker broker-a at 10.0.0.1:10911 has to register all its topics again"
UNKNOWN = Broker("broker-z", 0, "10.0.0.99:10911")


def age(server: InProcess, broker: Broker = BROKER) -> float:
    """Seconds since the last heartbeat of a broker, as a scan counts them."""
    manager = server.namesrv.manager
    return manager.now() - manager.tables.broker_live_table[BrokerAddrInfo(broker.cluster, broker.addr)].last_update


async def test_heartbeat_of_a_known_broker_counts(server: InProcess, peer: NamesrvPeer, spelling: Spelling) -> None:
    """The response has neither fields nor body, and the broker is last seen now."""
    await peer.register(BROKER, spelling=spelling)
    server.clock.stall(0.2)
    assert pytest.approx(age(server)) == 0.2

    response = await peer.call(904, BROKER.ext, spelling=spelling)

    assert (*response.outcome, response.fields, response.body) == (0, None, {}, b"")
    assert age(server) == 0.0
    assert [line["silent_ms"] for line in await server.lines("heartbeat")] == [200.0]


@pytest.mark.parametrize(
    ("broker", "ext"),
    [
        (UNKNOWN, {}),
        (BROKER._replace(name="broker-b"), {}),
        (BROKER._replace(id=1), {}),
        (BROKER._replace(cluster="cluster-2"), {}),
        (BROKER, {"agentId": "agent-2"}),
    ],
    ids=["unknown", "other name", "other id", "other cluster", "other agent"],
)
async def test_native_heartbeat_that_does_not_match_gets_query_not_found(
    server: InProcess, peer: NamesrvPeer, broker: Broker, ext: dict[str, str]
) -> None:
    """The response has QUERY_NOT_FOUND and the boot id, and the heartbeat does not count."""
    await peer.register(BROKER, spelling="native", agentId="agent-1")
    server.clock.stall(0.2)

    response = await peer.call(904, {**broker.ext, **ext}, spelling="native")

    assert response.outcome == (22, f"broker {broker.name} at {broker.addr} is not registered")
    assert response.ext_fields == {"boot_id": server.namesrv.boot.id}
    assert pytest.approx(age(server)) == 0.2


async def test_heartbeat_with_an_unused_field_counts(server: InProcess, peer: NamesrvPeer, spelling: Spelling) -> None:
    """A heartbeat needs no registration sequence: the field counts neither when it is readable, nor otherwise."""
    await peer.register(BROKER, spelling=spelling)
    for number in ("7", "many", ""):
        server.clock.stall(0.2)
        response = await peer.call(904, {**BROKER.ext, "registrationSeq": number}, spelling=spelling)

        assert (response.outcome, age(server)) == ((0, None), 0.0)


async def test_native_heartbeat_reports_the_state_of_the_broker(server: InProcess, peer: NamesrvPeer) -> None:
    """A reported state stays until the next one; a large state is refused, and does not count."""
    state = {"disk_used": 0.5, "queue": 7, "note": "ok", "full": False, "why": None}
    await peer.register(BROKER, spelling="native")

    heartbeats = [
        (native({"state": {"queue": 8}}), {"queue": 8}),
        *((body, state) for body in (native({"state": state}), b"", native({}), native({"state": None}))),
    ]
    # the dispatcher answers each heartbeat once, and then the fast path
    for body, stored in heartbeats * 2:
        assert (await peer.call(904, BROKER.ext, body, spelling="native")).code == 0
        (live,) = server.namesrv.manager.tables.broker_live_table.values()
        assert live.state == stored
    assert server.namesrv.fast_path.heartbeats == 5

    server.clock.stall(0.2)
    refused = await peer.call(904, BROKER.ext, native({"state": {"long": "x" * 16_384}}), spelling="native")
    assert refused.outcome == (1, "state of 16400 bytes, limit 16384")
    assert pytest.approx(age(server)) == 0.2


@pytest.mark.settings(admin_enabled=True)
async def test_native_broker_registers_again_after_the_deletion_of_a_topic(
    server: InProcess, peer: NamesrvPeer
) -> None:
    """Its heartbeats get QUERY_NOT_FOUND, as those of an unknown broker, but count, until its full registration."""
    for broker in (BROKER, ELSEWHERE):
        await peer.register(broker, spelling="native")
    assert (await peer.call(216, {"topic": "T", "clusterName": BROKER.cluster})).code == 0

    for _ in range(2):
        server.clock.stall(0.2)
        response = await peer.call(904, BROKER.ext, spelling="native")
        assert response.outcome == (22, INCOMPLETE)
        assert response.ext_fields == {"boot_id": server.namesrv.boot.id}
        assert age(server) == 0.0
        await peer.register(BROKER, native_registration("V"), spelling="native", kind="delta")
    assert (await peer.call(904, ELSEWHERE.ext, spelling="native")).code == 0

    await peer.register(BROKER, spelling="native")
    assert (await peer.call(904, BROKER.ext, spelling="native")).code == 0
    assert (await peer.call(105, {"topic": "T"})).value["queueDatas"][0]["brokerName"] == "broker-a"


@pytest.mark.settings(admin_enabled=True)
async def test_native_broker_registers_again_when_an_operator_adds_its_write_permission(
    server: InProcess, peer: NamesrvPeer
) -> None:
    """The operator's request makes a read-only topic writable; the broker's registration brings its permission back."""
    body = native_registration({**native_topic("T"), "perm": 4})
    await peer.register(BROKER, body, spelling="native")
    await peer.call(205, {"brokerName": BROKER.name})
    assert (await peer.call(904, BROKER.ext, spelling="native")).code == 0

    await peer.call(327, {"brokerName": BROKER.name})
    assert (await peer.call(105, {"topic": "T"})).value["queueDatas"][0]["perm"] == 6
    assert (await peer.call(904, BROKER.ext, spelling="native")).outcome == (22, INCOMPLETE)

    await peer.register(BROKER, body, spelling="native")
    assert (await peer.call(105, {"topic": "T"})).value["queueDatas"][0]["perm"] == 4
    assert (await peer.call(904, BROKER.ext, spelling="native")).code == 0


@pytest.mark.settings(admin_enabled=True)
async def test_deletion_asks_no_other_broker_to_register(server: InProcess, peer: NamesrvPeer) -> None:
    """A deletion that removes nothing of a native broker does not affect its heartbeats, and none those of others."""
    await peer.register(BROKER, spelling="native")
    await peer.register(OTHER, registration("T", "V"))
    for topic, cluster in (("V", ""), ("unknown", ""), ("T", "nowhere")):
        assert (await peer.call(216, {"topic": topic, "clusterName": cluster})).code == 0
    assert (await peer.call(904, BROKER.ext, spelling="native")).code == 0

    await peer.call(216, {"topic": "T"})
    body = b'{"counter":1,"stateVersion":0,"timestamp":%d}' % TIMESTAMP
    assert (await peer.call(904, OTHER.ext)).code == 0
    assert (await peer.call(322, OTHER.ext, body)).fields == {"changed": "false"}


@pytest.mark.parametrize("code", [904, 322])
async def test_disconnect_of_a_stranger_evicts_no_broker(server: InProcess, spelling: Spelling, code: int) -> None:
    """A broker stays while its own connection, or a newer one that sent its heartbeat, is open."""
    agent: Any = {"agentId": "agent-1"} if spelling == "native" else {}
    own, stranger, newer = await server.connect(), await server.connect(), await server.connect()
    await own.register(BROKER, spelling=spelling, **agent)
    await stranger.call(code, BROKER.ext, spelling=spelling)
    await server.hang_up(stranger)
    if agent:
        # an unregistration without an agent id
        await newer.call(104, BROKER.ext)
    assert (await own.call(105, {"topic": "T"}, spelling=spelling)).code == 0

    await newer.call(code, {**BROKER.ext, **agent}, spelling=spelling)
    await server.hang_up(own)
    await settle()
    assert list(server.namesrv.manager.tables.broker_addr_table) == ["broker-a"]
    await server.hang_up(newer)
    await settle()
    assert server.namesrv.manager.tables.broker_addr_table == {}


@pytest.mark.parametrize(
    ("spelling", "body", "reason"),
    [
        ("binary", b'{"counter":"many"}', "Expected `int`, got `str` - at `$.counter`"),
        ("native", b'{"counter":1}', "Expected `object | null`, got `int`"),
    ],
)
async def test_malformed_data_version_does_not_count(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling, body: bytes, reason: str
) -> None:
    """A malformed DataVersion gets code 1 with the reason, and does not count as a heartbeat."""
    await peer.register(BROKER, spelling=spelling)
    server.clock.stall(0.2)

    response = await peer.call(322, BROKER.ext, body, spelling=spelling)

    assert response.outcome == (1, f"body of DataVersion cannot be read: {reason}")
    assert pytest.approx(age(server)) == 0.2


@pytest.mark.parametrize("code", [904, 322])
async def test_oneway_heartbeat_counts_without_a_response(
    server: InProcess, peer: NamesrvPeer, spelling: Spelling, code: int
) -> None:
    """One-way heartbeats, which brokers with acting masters send every second, get no response, not even errors."""
    await peer.register(BROKER, spelling=spelling)
    server.clock.stall(0.2)

    peer.send_request(code, BROKER.ext, spelling=spelling, flag=ONEWAY)
    peer.send_request(code, UNKNOWN.ext, spelling=spelling, flag=ONEWAY)
    peer.send_request(code, {}, spelling=spelling, flag=ONEWAY)
    # `call` reads the next frame and checks its opaque, so the requests above had no response
    await peer.call(106)

    assert age(server) == 0.0
    assert server.heartbeats == 1
