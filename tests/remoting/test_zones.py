"""Routes for clients of a zone: Apache's filter, and the spill-over to other zones."""

import pytest

from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.zones import ZoneStep, in_zones, read_zone_fallback
from tests.support.route_clients import group, queues


def test_zone_contains_its_groups_and_those_without_a_master() -> None:
    """The filter equals RocketMQ's for __ZONE_NAME; names are compared case-insensitively."""
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

    found = in_zones(route, ["east"])

    assert [data.broker_name for data in found.broker_datas] == ["broker-a", "broker-c"]
    assert [data.broker_name for data in found.queue_datas] == ["broker-a", "broker-c"]
    assert found.filter_server_table == {"10.0.0.1:10911": ["f1"]}
    assert found.order_topic_conf == "broker-a:1"


# broker-a and broker-b in zone a, broker-b without write permission; broker-c in zone b; broker-d in no zone
WHOLE = TopicRouteData(
    [group("broker-a", zone="A"), group("broker-b", zone="a"), group("broker-c", zone="b"), group("broker-d")],
    [queues("broker-a"), queues("broker-b", perm=4), queues("broker-c"), queues("broker-d")],
)


@pytest.mark.parametrize(
    ("rules", "zone", "names", "steps"),
    [
        ("", "a", "ab", [("a", 2, 4)]),
        ("", "x", "", [("x", 0, 0)]),
        ("*", "A", "ab", [("a", 2, 4)]),
        ("*", "x", "abcd", [("x", 0, 0), ("", 4, 12)]),
        ("x>b>a", "X", "c", [("x", 0, 0), ("b", 1, 4)]),
        ("x>y>b", "x", "c", [("x", 0, 0), ("y", 0, 0), ("b", 1, 4)]),
        ("x>y", "x", "abcd", [("x", 0, 0), ("y", 0, 0), ("", 4, 12)]),
        ("b>a; masters=2", "b", "abc", [("b", 1, 4), ("a", 3, 8)]),
        ("write-queues=5", "a", "abcd", [("a", 2, 4), ("", 4, 12)]),
        ("write-queues=13;*", "a", "abcd", [("a", 2, 4), ("", 4, 12)]),
    ],
)
def test_route_has_the_brokers_of_the_first_zones_that_have_enough(
    rules: str, zone: str, names: str, steps: list[tuple[str, int, int]]
) -> None:
    """A zone comes first, then its neighbours in order, then all; masters and write queues decide."""
    found = read_zone_fallback(rules).route(WHOLE, zone)

    assert [data.broker_name for data in found.route.broker_datas] == [f"broker-{letter}" for letter in names]
    assert found.steps == [ZoneStep(*step) for step in steps]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("zone-1", "has no valid rule in 'zone-1', for example "),
        ("a>b>a", "has no valid rule in 'a>b>a', for example "),
        ("a>", "has no valid rule in 'a>', for example "),
        ("masters=0", "has no valid rule in 'masters=0', for example "),
        ("a>b;A>c", "has a second rule for the same zone or minimum in 'A>c'"),
        ("masters=1;masters=2", "has a second rule for the same zone or minimum in 'masters=2'"),
    ],
)
def test_invalid_rules_are_refused(text: str, error: str) -> None:
    """The error quotes the rule."""
    with pytest.raises(ValueError, match=rf"^{error}"):
        read_zone_fallback(text)
