"""The reference: disagreement of NameServers."""

import pytest

from tests.spark_jobs.reference import analyse
from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, broker, files_of

S = 1_000_000


def episodes(*boots: HeartbeatLines) -> list[tuple[str | None, int, int]]:
    """Who, from, to, in seconds since midnight."""
    midnight = MIDNIGHT_MS * 1000
    found = analyse(files_of(*boots)).episodes
    return [(x.broker.broker_name, (x.began - midnight) // S, (x.ended - midnight) // S) for x in found]


def test_one_removes_it_later_than_the_other() -> None:
    """Heard first by one, and removed last by it."""
    first = HeartbeatLines("b1", "ns-1").start().beats(10_000, 40_000).evict(163_000).scan(200_000, 40)
    second = HeartbeatLines("b2", "ns-2").start().beats(12_000, 42_000).evict(166_000).scan(200_000, 40)

    assert [("broker-a", 10, 12), ("broker-a", 163, 166)] == episodes(first, second)


def test_walls_are_compared_and_not_monotonic_clocks() -> None:
    """The second machine has run 100 s longer."""
    first = HeartbeatLines("b1", "ns-1").start().beat(10_000).scan(200_000, 40)
    second = HeartbeatLines("b2", "ns-2", MIDNIGHT_MS - 100_000).start(100_000).beat(115_000).scan(300_000, 40)

    assert [("broker-a", 10, 15)] == episodes(first, second)


def test_a_server_that_is_down_has_no_opinion() -> None:
    """ns-2 is up from 50 s on, goes at 80 s, and is back at 90 s: it lacks the broker for 10 s, then for 5 s."""
    first = HeartbeatLines("b1", "ns-1").start().beat(10_000).scan(200_000, 40)
    second = HeartbeatLines("b2", "ns-2").start(50_000).beat(60_000).add("stop", 80_000)
    third = HeartbeatLines("b3", "ns-2").start(90_000).beat(95_000).scan(200_000, 40)

    assert [("broker-a", 50, 60), ("broker-a", 90, 95)] == episodes(first, second, third)


def test_alone_nobody_diverges() -> None:
    """One server, or two that were never up together."""
    first = HeartbeatLines("b1", "ns-1").start().beat(10_000).evict(133_000)
    second = HeartbeatLines("b2", "ns-2").start(200_000).beat(210_000)

    assert [] == episodes(first)
    assert [] == episodes(first, second)


def test_a_slave_is_not_its_master() -> None:
    """Who has only one of them lacks the other, to its last line."""
    slave = broker("broker-a", 1)
    first = HeartbeatLines("b1", "ns-1").start().beat(10_000).scan(20_000, 4)
    second = HeartbeatLines("b2", "ns-2").start().beat(12_000, slave).scan(18_000, 4)

    assert [("broker-a", 10, 18), ("broker-a", 12, 18)] == episodes(first, second)


@pytest.mark.parametrize("third_has_it", [True, False])
def test_three_servers_make_one_episode(third_has_it: bool) -> None:  # noqa: FBT001
    """As long as any two differ, it is the same one."""
    first = HeartbeatLines("b1", "ns-1").start().beat(10_000).evict(140_000).scan(200_000, 40)
    second = HeartbeatLines("b2", "ns-2").start().beat(10_000).evict(150_000).scan(200_000, 40)
    third = HeartbeatLines("b3", "ns-3").start().scan(200_000, 40)
    if third_has_it:
        third.beat(10_000).evict(145_000)

    assert [("broker-a", 140 if third_has_it else 10, 150)] == episodes(first, second, third)


def test_a_life_without_beats_has_no_beginning() -> None:
    """It is left out."""
    first = HeartbeatLines("b1", "ns-1").start().evict(10_000, silent_ms=5_000).scan(20_000, 4)
    second = HeartbeatLines("b2", "ns-2").start().scan(20_000, 4)

    assert [] == episodes(first, second)
