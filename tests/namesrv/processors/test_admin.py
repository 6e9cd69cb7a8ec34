"""Answers to operators' tools, in every header (106, 205, 206, 224, 304, 311 to 313, 327)."""

from typing import Any

import pytest

from tests.support.in_process import InProcess
from tests.support.namesrv_peer import (
    SPELLINGS,
    Broker,
    NamesrvPeer,
    Spelling,
    fields,
    native_registration,
    outcome,
    registration,
    topic_config,
    value,
)
from tests.support.raw_peer import until

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")
in_all_spellings = pytest.mark.parametrize("spelling", SPELLINGS)


def topic_list(spelling: Spelling, *topics: str, broker_addr: str | None = None) -> dict[str, Any]:
    """A TopicList as its value."""
    if spelling == "native":
        return {"topic_list": list(topics), "broker_addr": broker_addr}
    return {"topicList": list(topics), **({} if broker_addr is None else {"brokerAddr": broker_addr})}


async def perms(peer: NamesrvPeer, topic: str = "T") -> dict[str, int]:
    """What the route says who may do: broker name -> permission; asked in JSON and natively."""
    route = value(await peer.call(105, {"topic": topic}))
    found = {queues["brokerName"]: queues["perm"] for queues in route["queueDatas"]}
    route = value(await peer.call(105, {"topic": topic}, spelling="native"))
    assert found == {queues["broker_name"]: queues["perm"] for queues in route["queue_datas"]}
    return found


# -- cluster info (106) ----------------------------------------------------------------------------------------------


@in_all_spellings
async def test_cluster_info_of_nothing(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Two empty tables."""
    answer = await peer.call(106, spelling=spelling)

    names = (
        ("broker_addr_table", "cluster_addr_table") if spelling == "native" else ("brokerAddrTable", "clusterAddrTable")
    )
    assert (0, None, {}) == (*outcome(answer), fields(answer))
    assert {name: {} for name in names} == value(answer)


@in_all_spellings
async def test_cluster_info_names_clusters_and_groups(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Java writes the ids without quotes; quoted they are read by everybody. Natively they are integers."""
    await peer.register(MASTER, __ZONE_NAME="zone-1", enableActingMaster="true")
    await peer.register(SLAVE, __ZONE_NAME="zone-1", enableActingMaster="true")
    await peer.register(ELSEWHERE)

    found = value(await peer.call(106, spelling=spelling))

    if spelling == "native":
        assert {
            "broker_addr_table": {
                "broker-a": {
                    "cluster": "cluster-1",
                    "broker_name": "broker-a",
                    "broker_addrs": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
                    "zone_name": "zone-1",
                    "enable_acting_master": True,
                },
                "broker-c": {
                    "cluster": "cluster-2",
                    "broker_name": "broker-c",
                    "broker_addrs": {0: "10.0.1.1:10911"},
                    "zone_name": None,
                    "enable_acting_master": False,
                },
            },
            "cluster_addr_table": {"cluster-1": ["broker-a"], "cluster-2": ["broker-c"]},
        } == found
    else:
        assert {
            "brokerAddrTable": {
                "broker-a": {
                    "brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"},
                    "brokerName": "broker-a",
                    "cluster": "cluster-1",
                    "enableActingMaster": True,
                    "zoneName": "zone-1",
                },
                "broker-c": {
                    "brokerAddrs": {"0": "10.0.1.1:10911"},
                    "brokerName": "broker-c",
                    "cluster": "cluster-2",
                    "enableActingMaster": False,
                },
            },
            "clusterAddrTable": {"cluster-1": ["broker-a"], "cluster-2": ["broker-c"]},
        } == found


# -- write permission (205, 327) -------------------------------------------------------------------------------------


@in_all_spellings
async def test_wiped_permission_shows_at_once_and_stays(peer: NamesrvPeer, spelling: Spelling) -> None:
    """In routes that were cached, for this broker only, through a changed registration, until it is added back."""
    await peer.register(MASTER, registration("T", topic_config("U", perm=4), "V"))
    await peer.register(OTHER)
    assert {"broker-a": 6, "broker-b": 6} == await perms(peer)

    answer = await peer.call(205, {"brokerName": "broker-a"}, spelling=spelling)
    assert (0, None, {"wipeTopicCount": "3"}) == (*outcome(answer), fields(answer))
    assert {"broker-a": 4, "broker-b": 6} == await perms(peer)

    await peer.register(MASTER, registration("T", "U", "W", counter=2))
    assert {"broker-a": 4, "broker-b": 6} == await perms(peer)
    assert {"broker-a": 4} == await perms(peer, "W")

    answer = await peer.call(327, {"brokerName": "broker-a"}, spelling=spelling)
    assert (0, None, {"addTopicCount": "4"}) == (*outcome(answer), fields(answer))
    assert {"broker-a": 6, "broker-b": 6} == await perms(peer)


async def test_wiped_permission_ends_with_the_broker(peer: NamesrvPeer) -> None:
    """A broker that comes back starts with its own permissions, as operators expect."""
    await peer.register(MASTER)
    await peer.call(205, {"brokerName": "broker-a"})

    await peer.call(104, MASTER.ext)
    await peer.register(MASTER)

    assert {"broker-a": 6} == await perms(peer)


async def test_added_permission_has_no_other_bit(peer: NamesrvPeer) -> None:
    """6, as in Java: inherit (1) and priority (8) are dropped."""
    await peer.register(MASTER, registration(topic_config("T", perm=15), "U"))

    await peer.call(327, {"brokerName": "broker-a"})

    assert {"broker-a": 6} == await perms(peer)


@in_all_spellings
async def test_permissions_of_an_unknown_broker(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Nothing was wiped or added, which is a success; a missing name is not."""
    for code, count in ((205, "wipeTopicCount"), (327, "addTopicCount")):
        answer = await peer.call(code, {"brokerName": "nobody"}, spelling=spelling)
        assert (0, None, {count: "0"}) == (*outcome(answer), fields(answer))

        assert (1, "field brokerName is missing") == outcome(await peer.call(code, None, spelling=spelling))


# -- lists of topics (206, 224, 304, 311 to 313) ---------------------------------------------------------------------


@in_all_spellings
async def test_lists_of_topics(peer: NamesrvPeer, spelling: Spelling) -> None:
    """All; those of a cluster; names of clusters and brokers; those whose first queues are flagged so."""
    unit, unit_sub, both = (topic_config(name, flags=n) for n, name in enumerate(("unit", "sub", "both"), start=1))
    await peer.register(MASTER, registration(unit, unit_sub, both, "plain"))
    # only the first queues of a topic are looked at, which are those of broker-a
    await peer.register(ELSEWHERE, registration("unit", topic_config("plain", flags=3), "far"))

    async def listed(code: int, ext: dict[str, str] | None = None) -> Any:
        answer = await peer.call(code, ext, spelling=spelling)
        assert (0, None, {}) == (*outcome(answer), fields(answer))
        return value(answer)

    def topics(*names: str, broker_addr: str | None = None) -> dict[str, Any]:
        return topic_list(spelling, *names, broker_addr=broker_addr)

    assert topics("unit", "sub", "both", "plain", "far") == await listed(206)
    assert topics("unit", "sub", "both", "plain") == await listed(224, {"cluster": "cluster-1"})
    assert topics("unit", "plain", "far") == await listed(224, {"cluster": "cluster-2"})
    assert topics() == await listed(224, {"cluster": "nowhere"})
    assert topics("broker-a", "broker-c", "cluster-1", "cluster-2", broker_addr="10.0.0.1:10911") == await listed(304)
    assert topics("unit", "both") == await listed(311)
    assert topics("sub", "both") == await listed(312)
    assert topics("sub") == await listed(313)
    missing = await peer.call(224, spelling=spelling)
    assert (1, "field cluster is missing") == outcome(missing)


@pytest.mark.settings(max_frame_bytes=1 << 20)
async def test_list_is_made_once_for_each_change(server: InProcess) -> None:
    """One that is too large is not made again either, until the tables change; a change is seen at once."""
    peer, other = await server.connect(), await server.connect()
    await peer.register(MASTER, native_registration("T"), spelling="native")
    for spelling in ("json", "native", "json", "native"):
        assert topic_list(spelling, "T") == value(await peer.call(206, spelling=spelling))
    for number in range(4):
        names = [f"topic-{number}{at:0100}" for at in range(3_000)]
        broker = Broker(f"far-{number}", 0, f"10.0.2.{number}:10911", "cluster-2")
        await other.register(broker, native_registration(*names), spelling="native")
    for _ in range(2):
        assert (1, "list of more than 1048576 bytes") == outcome(await peer.call(206))
    assert topic_list("json", "T") == value(await peer.call(224, {"cluster": "cluster-1"}))
    await server.hang_up(other)
    await until(lambda: len(server.namesrv.manager.tables.topic_queue_table) == 1)
    assert topic_list("json", "T") == value(await peer.call(206))


@in_all_spellings
async def test_lists_of_an_empty_server(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Lists without topics, and no broker's address."""
    for code in (206, 304, 311, 312, 313):
        answer = await peer.call(code, spelling=spelling)
        assert (0, topic_list(spelling)) == (answer.code, value(answer))


@in_all_spellings
@pytest.mark.settings(enable_topic_list=False, enable_all_topic_list=False)
async def test_lists_can_be_switched_off(peer: NamesrvPeer, spelling: Spelling) -> None:
    """In Java's word; the system's list has no switch."""
    for code in (206, 224, 311, 312, 313):
        answer = await peer.call(code, {"cluster": "cluster-1"}, spelling=spelling)
        assert (1, "disable") == outcome(answer), code
    assert 0 == (await peer.call(304, spelling=spelling)).code


# -- what nobody answers ---------------------------------------------------------------------------------------------


@in_all_spellings
async def test_unknown_code_is_not_supported(peer: NamesrvPeer, spelling: Spelling) -> None:
    """In Java's words, leading blank included; nor does anybody ask a NameServer what only brokers are told (905)."""
    for code in (0, 9999, 905, -1):
        answer = await peer.call(code, spelling=spelling)
        assert (3, f" request type {code} not supported") == outcome(answer)
