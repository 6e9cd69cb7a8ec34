"""The reference: what clients saw of a broker's end."""

import pytest

from tests.spark_jobs.reference import Analysis, analyse
from tests.support.heartbeat_lines import HeartbeatLines, broker, files_of, member

S = 1_000_000
B = broker("broker-b")


def of(lines: HeartbeatLines) -> Analysis:
    """The analysis of one boot."""
    return analyse(files_of(lines))


def seen(lines: HeartbeatLines) -> list[tuple[str | None, str, str, int]]:
    """What each client saw: who, topic, outcome, staleness."""
    return [(x.client, x.topic, x.outcome, x.staleness) for x in of(lines).clients]


def dead_a(reason: str = "silent") -> HeartbeatLines:
    """Brokers a and b in the route of t (revision 1), a client that has it; a is heard until 30 s, gone at 152 s."""
    lines = HeartbeatLines().start().beats(0, 30_000).beats(0, 30_000, 60_000, 90_000, 120_000, 150_000, of=B)
    lines.route(0, 1, member("broker-a"), member("broker-b")).served(10_000, 1)
    return lines.evict(152_000, reason=reason).route(152_000, 2, member("broker-b"))


@pytest.mark.parametrize("reason", ["silent", "disconnected"])
def test_a_client_sees_it_with_its_next_poll(reason: str) -> None:
    """Last heard at 30 s, seen at 170 s."""
    assert [("k#1", "t", "seen", 140 * S)] == seen(dead_a(reason).served(170_000, 2))


@pytest.mark.parametrize("reason", ["unregistered", "superseded"])
def test_who_said_goodbye_leaves_nobody_with_a_stale_route(reason: str) -> None:
    """Not by this measure."""
    assert [] == seen(dead_a(reason).served(170_000, 2))


def test_seen_at_the_moment_of_removal() -> None:
    """`At or after`."""
    assert [("k#1", "t", "seen", 122 * S)] == seen(dead_a().served(152_000, 2))


def test_only_who_had_the_broker_last_was_exposed() -> None:
    """k#2 was given a route without it before; k#3 came later; k#4 has another topic without it."""
    lines = dead_a().route(100_000, 9, member("broker-b")).served(50_000, 1, client="k#2")
    lines.served(101_000, 9, client="k#2").served(160_000, 2, client="k#3")
    lines.route(0, 1, member("broker-b"), topic="u").served(10_000, 1, client="k#4", topic="u")

    assert [("k#1", "t", "seen", 140 * S)] == seen(lines.served(170_000, 2))


def test_the_id_counts_too() -> None:
    """Only the slave of the group is in the route that the client has."""
    lines = HeartbeatLines().start().beat(0).route(0, 1, member("broker-a", 1)).served(1_000, 1).evict(122_000)

    assert [] == seen(lines)


def test_three_ways_not_to_see_it() -> None:
    """The broker comes back, the client leaves, the log ends: each counts from the last beat on."""
    lines = dead_a().served(11_000, 1, client="k#2").served(12_000, 1, client="k#3")
    lines.beat(180_000).route(180_000, 3, member("broker-a"), member("broker-b")).served(190_000, 3)
    lines.gone(185_000, "k#2").scan(200_000, 1)

    assert [
        ("k#1", "t", "returned", 160 * S),
        ("k#2", "t", "client_gone", 155 * S),
        ("k#3", "t", "log_end", 170 * S),
    ] == seen(lines)


def test_whatever_comes_first_counts() -> None:
    """Seen, then the broker is back, then the client leaves."""
    lines = dead_a().served(160_000, 2).route(170_000, 3, member("broker-a")).served(170_000, 3).gone(180_000)

    assert [("k#1", "t", "seen", 130 * S)] == seen(lines)


def test_who_left_before_was_not_exposed() -> None:
    """At the very moment of the removal it was still there."""
    assert [] == seen(dead_a().gone(151_999))
    assert [("k#1", "t", "client_gone", 122 * S)] == seen(dead_a().gone(152_000))


def test_a_revision_that_the_log_does_not_have_is_counted_and_ignored() -> None:
    """Neither seen nor returned."""
    lines = dead_a().served(160_000, 77).served(170_000, 2)

    assert [("k#1", "t", "seen", 140 * S)] == seen(lines)
    assert 1 == of(lines).unknown_revisions


def test_an_empty_route_does_not_contain_it() -> None:
    """The last broker of a topic went."""
    lines = HeartbeatLines().start().beat(0).route(0, 1, member()).served(1_000, 1).evict(122_000).route(122_000, 2)

    assert [("k#1", "t", "seen", 130 * S)] == seen(lines.served(130_000, 2))


def test_exposed_pulls() -> None:
    """After the last beat, up to one scan after the removal, of routes with the broker: 2 + 4 + 8."""
    lines = dead_a().pulls(30_000, 1, 1).pulls(30_001, 1, 2).pulls(150_000, 1, 4).pulls(157_000, 1, 8)
    lines.pulls(157_001, 1, 16).pulls(157_000, 2, 32)

    assert [14] == [found.count for found in of(lines).exposed_pulls]


def test_no_exposed_pulls_after_a_goodbye() -> None:
    """Nobody was late."""
    assert [] == of(dead_a("unregistered").pulls(150_000, 1, 4)).exposed_pulls


def test_version_2_tells_differences() -> None:
    """What is told of one broker leaves the others alone; until a whole route comes, nobody knows the route."""
    ab, b = [member("broker-a"), member("broker-b")], [member("broker-b")]
    lines = HeartbeatLines().start().beats(0, 30_000).add("route", 0, v=2, revision=1, changes=_changes("tu", set=ab))
    lines.add("served", 1_000, v=2, client="k#1", topics=["t", "u"], revisions=[1, 1])
    lines.add("route", 2_000, v=2, revision=2, changes=_changes("tu", set=ab, whole=True))
    lines.add("served", 3_000, v=2, client="k#1", topics=["t", "u"], revisions=[2, 2])
    lines.add("pulls", 140_000, v=2, topics=["t", "u"], revisions=[2, 2], counts=[3, 4]).evict(152_000)
    lines.add("route", 152_000, v=2, revision=3, changes=_changes("t", unset=["broker-a"]))
    lines.add("route", 153_000, v=2, revision=4, changes=_changes("u", set=b, whole=True))
    lines.add("served", 160_000, v=2, client="k#1", topics=["t", "u"], revisions=[3, 4])

    assert [("k#1", "t", "seen", 130 * S), ("k#1", "u", "seen", 130 * S)] == seen(lines)
    assert (2, [{"t": 3, "u": 4}]) == (of(lines).unknown_revisions, [x.by_topic for x in of(lines).exposed_pulls])


def _changes(topics: str, **change: object) -> list[dict[str, object]]:
    return [{"topics": list(topics), **change}]
