"""A client in a zone sees its part of a route."""

from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.zone import in_zone
from tests.support.route_clients import group, queues


def test_a_zone_sees_its_own_groups_and_those_without_master() -> None:
    """As RocketMQ's NameServer filters for __ZONE_NAME; names are compared without their case."""
    route = TopicRouteData(
        [
            group("broker-a", zone="East"),
            group("broker-b", zone="west"),
            group("broker-c", 1, zone="west"),
            group("broker-d"),
        ],
        [queues(f"broker-{letter}") for letter in "abcd"],
        {"10.0.0.1:10911": ["f1"], "10.0.0.2:10911": ["f2"]},
        "broker-a:1",
    )

    found = in_zone(route, "EAST")

    assert ["broker-a", "broker-c"] == [data.broker_name for data in found.broker_datas]
    assert ["broker-a", "broker-c"] == [data.broker_name for data in found.queue_datas]
    assert {"10.0.0.1:10911": ["f1"]} == found.filter_server_table
    assert "broker-a:1" == found.order_topic_conf
