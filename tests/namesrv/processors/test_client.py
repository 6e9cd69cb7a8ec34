"""Responses to route requests (105) in every serialization, with zones and acting masters."""

import pytest

from tests.support.namesrv_peer import (
    MASTER,
    OTHER,
    SPELLINGS,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    registration,
)


@pytest.mark.settings(nameserver_name="ns1")
async def test_topic_without_a_route(peer: NamesrvPeer, spelling: Spelling) -> None:
    """An unknown topic gets code 17, Java's remark and the cause; one without a topic gets code 1, unlike in Java."""
    remark = (
        "No topic route info in name server for the topic: T\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.\n"
        "NameServer ns1, up since 2023-11-14T22:13:20Z, has 0 brokers.\n"
        "No broker is registered: each broker needs this server in its list of NameServers (namesrvAddr)."
    )
    response = await peer.call(105, {"topic": "T"}, spelling=spelling)
    assert (*response.outcome, response.fields, response.body) == (17, remark, {}, b"")
    assert (await peer.call(105, None, spelling=spelling)).outcome == (1, "field topic is missing")
    assert (await peer.call(105, {"x": "y"}, spelling=spelling)).outcome == (1, "field topic is missing")
    if spelling != "binary":  # the binary header cannot tell empty from absent
        assert (await peer.call(105, {"topic": ""}, spelling=spelling)).outcome == (1, "field topic is empty")


async def three_groups(peer: NamesrvPeer) -> None:
    """Topic T on three groups: in zone-1, without a zone, and in zone-2 with its master down."""
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
async def test_route_in_zone_mode_has_the_groups_of_the_zone(
    peer: NamesrvPeer, zone: dict[str, str], names: list[str]
) -> None:
    """In zone mode a route has only the groups of the zone, in any case, and those whose master is down."""
    await three_groups(peer)
    filters = {"10.0.0.1:10911": ["f1"], "10.0.0.3:10911": ["f2"]}
    addrs = {"broker-a": "10.0.0.1:10911", "broker-b": "10.0.0.3:10911"}
    left = {addrs[name]: filters[addrs[name]] for name in names if name in addrs}

    for _ in range(3):
        route = (await peer.call(105, {"topic": "T", **zone})).java_value
        assert [group["brokerName"] for group in route["brokerDatas"]] == names
        assert [queues["brokerName"] for queues in route["queueDatas"]] == names
        assert route["filterServerTable"] == left
    for spelling in SPELLINGS:
        route = (await peer.call(105, {"topic": "T", **zone}, spelling=spelling)).java_value
        assert [group["brokerName"] for group in route["brokerDatas"]] == names


@pytest.mark.parametrize(
    ("zone", "names"),
    [
        (" zone-1 ", ["broker-c"]),
        (" zone-3", ["broker-c", "broker-d"]),
        ("  ", ["broker-a", "broker-b", "broker-c", "broker-d"]),
    ],
    ids=["zone without blanks", "zone with a blank", "blanks only"],
)
async def test_blanks_of_a_zone_count(peer: NamesrvPeer, zone: str, names: list[str]) -> None:
    """As in Apache's server, a zone with blanks is another zone; blanks alone are no zone: 105 and 20001 agree."""
    await three_groups(peer)
    await peer.register(Broker("broker-d", 0, "10.0.0.6:10911"), registration("T", "U"), __ZONE_NAME=" zone-3")

    for _ in range(2):
        route = (await peer.call(105, {"topic": "T", "__ZONE_MODE": "true", "__ZONE_NAME": zone})).java_value
        assert [group["brokerName"] for group in route["brokerDatas"]] == names
    response = await peer.call(20001, None, native({"topics": ["T"], "zone": zone}), spelling="native")
    assert [group["broker_name"] for group in response.value["routes"]["T"]["broker_datas"]] == names
