"""Routes (105) of a client in a zone, and while a master is away."""

import pytest

from tests.support.namesrv_peer import (
    SPELLINGS,
    Broker,
    NamesrvPeer,
    Spelling,
    registration,
    value,
)

MASTER = Broker()
SLAVE = Broker(id=1, addr="10.0.0.2:10911")
OTHER = Broker("broker-b", 0, "10.0.0.3:10911")
in_all_spellings = pytest.mark.parametrize("spelling", SPELLINGS)

# of no meaning to a route question, but the fast lane reads this field, and a number is not what it expects there
ORDINARY = {"agentId": 1}


# -- zones -----------------------------------------------------------------------------------------------------------


async def three_groups(peer: NamesrvPeer) -> None:
    """Topic T on a group in zone-1, on one in no zone, and on one in zone-2 whose master is down."""
    await peer.register(MASTER, registration("T", "U", filter_servers=("f1",)), __ZONE_NAME="Zone-1")
    await peer.register(OTHER, registration("T", "U", filter_servers=("f2",)))
    await peer.register(
        Broker("broker-c", 1, "10.0.0.5:10911"), registration("T", "U"), __ZONE_NAME="zone-2", enableActingMaster="true"
    )


@pytest.mark.parametrize(
    ("zone", "names"),
    [
        ({"__ZONE_MODE": "true", "__ZONE_NAME": "zone-1"}, ["broker-a", "broker-c"]),
        ({"__ZONE_MODE": "TRUE", "__ZONE_NAME": "ZONE-1"}, ["broker-a", "broker-c"]),
        ({"__ZONE_MODE": "true", "__ZONE_NAME": "zone-2"}, ["broker-c"]),
        ({"__ZONE_MODE": "true", "__ZONE_NAME": "nowhere"}, ["broker-c"]),
        ({"__ZONE_MODE": "true", "__ZONE_NAME": "  "}, ["broker-a", "broker-b", "broker-c"]),
        ({"__ZONE_MODE": "true"}, ["broker-a", "broker-b", "broker-c"]),
        ({"__ZONE_MODE": "false", "__ZONE_NAME": "zone-1"}, ["broker-a", "broker-b", "broker-c"]),
        ({"__ZONE_MODE": "yes", "__ZONE_NAME": "zone-1"}, ["broker-a", "broker-b", "broker-c"]),
        ({"__ZONE_NAME": "zone-1"}, ["broker-a", "broker-b", "broker-c"]),
    ],
)
async def test_client_in_a_zone_sees_its_own_groups(peer: NamesrvPeer, zone: dict[str, str], names: list[str]) -> None:
    """Those of its zone, whatever the case, and those whose master is down; queues and filter servers go along."""
    await three_groups(peer)
    filters = {"10.0.0.1:10911": ["f1"], "10.0.0.3:10911": ["f2"]}
    addrs = {"broker-a": "10.0.0.1:10911", "broker-b": "10.0.0.3:10911"}
    left = {addrs[name]: filters[addrs[name]] for name in names if name in addrs}

    for detour in ({}, ORDINARY, {}):
        route = value(await peer.call(105, {"topic": "T", **zone, **detour}))
        assert names == [group["brokerName"] for group in route["brokerDatas"]]
        assert names == [queues["brokerName"] for queues in route["queueDatas"]]
        assert left == route["filterServerTable"]
    route = value(await peer.call(105, {"topic": "T", **zone}, spelling="native"))
    assert names == [group["broker_name"] for group in route["broker_datas"]]
    route = value(await peer.call(105, {"topic": "T", **zone}, spelling="binary"))
    assert names == [group["brokerName"] for group in route["brokerDatas"]]


@pytest.mark.parametrize("spelling", ["json", "native"])
async def test_route_of_a_zone_follows_every_change(peer: NamesrvPeer, spelling: Spelling) -> None:
    """What the fast lane keeps per zone is forgotten with the rest; an unknown topic has no route in any zone."""
    names, name = ("broker_datas", "broker_name") if spelling == "native" else ("brokerDatas", "brokerName")
    zone = {"__ZONE_MODE": "true", "__ZONE_NAME": "zone-1"}
    await three_groups(peer)

    async def groups() -> list[str]:
        answer = await peer.call(105, {"topic": "T", **zone}, spelling=spelling)
        return [group[name] for group in value(answer)[names]]

    assert ["broker-a", "broker-c"] == await groups()
    await peer.register(OTHER, registration("T", "U"), __ZONE_NAME="zone-1")
    assert ["broker-a", "broker-b", "broker-c"] == await groups()
    await peer.call(104, MASTER.ext)
    assert ["broker-b", "broker-c"] == await groups()
    assert 17 == (await peer.call(105, {"topic": "X", **zone}, spelling=spelling)).code


# -- acting master ---------------------------------------------------------------------------------------------------


@in_all_spellings
@pytest.mark.settings(support_acting_master=True)
async def test_slave_of_the_lowest_id_stands_in_for_the_master(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Under id 0, without write permission, until the master is back."""
    sync_topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    for broker in (MASTER, SLAVE, Broker(id=2, addr="10.0.0.4:10911")):
        await peer.register(broker, registration("T", sync_topic), enableActingMaster="true")
    assert ({0: "10.0.0.1:10911", 1: "10.0.0.2:10911", 2: "10.0.0.4:10911"}, 6) == await seen(peer, spelling, "T")

    await peer.call(104, MASTER.ext)
    assert ({0: "10.0.0.2:10911", 2: "10.0.0.4:10911"}, 4) == await seen(peer, spelling, "T")
    # by this one the brokers of the group learn who is really there
    assert ({1: "10.0.0.2:10911", 2: "10.0.0.4:10911"}, 4) == await seen(peer, spelling, sync_topic)

    await peer.register(MASTER, registration("T", sync_topic), enableActingMaster="true")
    assert ({0: "10.0.0.1:10911", 1: "10.0.0.2:10911", 2: "10.0.0.4:10911"}, 6) == await seen(peer, spelling, "T")


@pytest.mark.parametrize("spelling", ["json", "native"])
@pytest.mark.settings(admin_enabled=True)
async def test_nobody_stands_in_unless_the_server_supports_it(peer: NamesrvPeer, spelling: Spelling) -> None:
    """Switched on while running, the routes that were cached follow."""
    for broker in (MASTER, SLAVE):
        await peer.register(broker, enableActingMaster="true")
    await peer.call(104, MASTER.ext)
    assert ({1: "10.0.0.2:10911"}, 4) == await seen(peer, spelling, "T")

    await peer.call(318, None, b"supportActingMaster=true")
    assert ({0: "10.0.0.2:10911"}, 4) == await seen(peer, spelling, "T")

    await peer.call(318, None, b"supportActingMaster=false")
    assert ({1: "10.0.0.2:10911"}, 4) == await seen(peer, spelling, "T")


async def seen(peer: NamesrvPeer, spelling: Spelling, topic: str) -> tuple[dict[int, str], int]:
    """Addresses and permission in the route of a topic that has one group."""
    route = value(await peer.call(105, {"topic": topic}, spelling=spelling))
    if spelling == "native":
        return route["broker_datas"][0]["broker_addrs"], route["queue_datas"][0]["perm"]
    addrs = {int(broker_id): addr for broker_id, addr in route["brokerDatas"][0]["brokerAddrs"].items()}
    return addrs, route["queueDatas"][0]["perm"]
