"""Routes share what they have in common."""

import msgspec
import pytest

from namesrv_client.routes.cache import RouteInterner
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from tests.support.route_clients import group, queues, topic_route


def test_equal_routes_become_one_in_an_order_of_its_own() -> None:
    """Ten thousand topics on the same brokers have one route between them, however servers list these."""
    interner = RouteInterner(list)

    found = interner.shared(topic_route("broker-b", "broker-a"))

    assert interner.shared(topic_route("broker-a", "broker-b")) is found
    assert ["broker-a", "broker-b"] == [data.broker_name for data in found.broker_datas]
    assert ["broker-a", "broker-b"] == [data.broker_name for data in found.queue_datas]


def test_routes_share_their_brokers_when_their_queues_differ() -> None:
    """And the queues that are equal."""
    interner, groups = RouteInterner(list), [group("broker-a"), group("broker-b")]
    one = interner.shared(TopicRouteData(groups, [queues("broker-a"), queues("broker-b")]))
    other = interner.shared(TopicRouteData(list(groups), [queues("broker-a"), queues("broker-b", 8)]))

    assert one.broker_datas is other.broker_datas
    assert one.queue_datas[0] is other.queue_datas[0]
    assert one != other


@pytest.mark.parametrize(
    "other",
    [
        group("broker-a", 0),
        group("broker-a", 0, 1, cluster="cluster-2"),
        group("broker-a", 0, 1, zone="z"),
        msgspec.structs.replace(group("broker-a", 0, 1), enable_acting_master=True),
    ],
)
def test_everything_counts_in_the_comparison_of_brokers(other: BrokerData) -> None:
    """Cluster, zone and addresses; the order of the addresses does not."""
    interner = RouteInterner(list)
    shared = interner.shared(TopicRouteData([group("broker-a", 0, 1)], []))

    assert interner.shared(TopicRouteData([group("broker-a", 1, 0)], [])).broker_datas is shared.broker_datas
    assert other == interner.shared(TopicRouteData([other], [])).broker_datas[0]


def test_what_only_one_topic_has_is_kept() -> None:
    """Order configurations, filter servers and mappings."""
    filters = {"10.0.0.1:10911": ["f"]}
    interner = RouteInterner(list)
    plain = interner.shared(topic_route("broker-a"))

    for more in ({"order_topic_conf": ""}, {"filter_server_table": filters}):
        route = msgspec.structs.replace(plain, **more)
        assert (route, plain) == (interner.shared(route), interner.shared(topic_route("broker-a")))


def test_live_routes_go_on_sharing_while_others_come_and_go() -> None:
    """What no live route has is forgotten from time to time; an equal route is still the very one that lives."""
    live: list[TopicRouteData] = []
    interner = RouteInterner(lambda: live)
    live.append(interner.shared(topic_route("broker-a", "broker-b")))

    for number in range(1_000):
        interner.shared(TopicRouteData([group(f"broker-{number}-a")], [queues(f"broker-{number}-a")]))

    assert 300 > len(interner)
    assert interner.shared(topic_route("broker-b", "broker-a")) is live[0]
