"""The last quarter of an hour of brokers, from live events."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_console.views.recent import changed_brokers, recent_rows, recent_span
from namesrv_remoting.bodies.extensions import Event, LiveBroker, ServerInfo
from namesrv_spark_jobs.history.model import TimelineRow
from namesrv_spark_jobs.history.spans import Span

KEY, OTHER = BrokerKey("c1", "broker-a", 0), BrokerKey("c1", "broker-b", 0)
SPAN = Span(1_000_000, 1_900_000)
# The console's clock is 1,000 s behind 1970.
STARTED_MS = 500_000


def event(seq: int, ts_ms: int, name: str, key: BrokerKey = KEY, **fields: Any) -> Event:
    """An event about a broker."""
    about: dict[str, Any] = {"cluster": key.cluster, "broker_name": key.broker_name, "broker_id": key.broker_id}
    return Event(seq, name, ts_ms, {**about, **fields})


def server(*events: Event, brokers: Mapping[BrokerKey, float] | None = None, address: str = "s1") -> ServerView:
    """A server with these events; each broker has the time of its last heartbeat, in seconds of the console's clock."""
    seen = {key: BrokerSeen(LiveBroker(*key, "h:1"), at, at + 120.0) for key, at in (brokers or {}).items()}
    info = ServerInfo("boot", ready=True, started_ms=STARTED_MS)
    return ServerView(address, answered_at=880.0, info=info, brokers=seen, events=events)


def moment_ms(moment: float) -> int:
    """A moment of the console's clock in milliseconds since 1970."""
    return round((moment + 1000) * 1000)


def rows(*views: ServerView) -> list[TimelineRow]:
    """The rows of a cluster; second 0 of the console's clock is second 1,000 since 1970."""
    return recent_rows(Cluster(1, views), (KEY, OTHER), SPAN, moment_ms)


def periods(*views: ServerView) -> list[list[tuple[int | None, int, str | None, int]]]:
    """Start, due time of the next heartbeat, reason and end of the periods of each row."""
    return [[(one.first_ok_ms, one.due_ms, one.reason, one.end_ms) for one in row.periods] for row in rows(*views)]


def test_span_moves_in_steps() -> None:
    """It ends at most 15 s after now, and is 15 minutes long."""
    assert [recent_span(1_899_000), recent_span(1_900_000)] == [Span(1_005_000, 1_905_000)] * 2
    assert recent_span(1_905_001) == Span(1_020_000, 1_920_000)


def test_broker_that_left_and_returned_has_two_periods() -> None:
    """A removal ends a period with its reason; the time without a heartbeat before it counts as late after 30 s."""
    events = (
        event(1, 1_100_000, "register", kind="full", topics=2),
        event(2, 1_400_000, "evict", reason="silent", silent_ms=120_000),
        event(3, 1_500_000, "register", kind="full", topics=2),
        event(4, 1_600_000, "register", kind="full", topics=3),
    )

    assert periods(server(*events, brokers={KEY: 890.0})) == [
        [(1_100_000, 1_310_000, "silent", 1_400_000), (1_500_000, 1_920_000, None, 1_885_000)]
    ]


def test_broker_without_events_is_registered_since_all_events_are_known() -> None:
    """A server that has forgotten its first events says nothing about the time before the first it has."""
    quiet = server(brokers={KEY: 890.0})
    forgot = server(event(9, 1_200_000, "fenced", OTHER, reason="silent"), brokers={KEY: 890.0})

    assert periods(quiet) == [[(STARTED_MS, 1_920_000, None, 1_885_000)]]
    assert periods(forgot) == [[(1_200_000, 1_920_000, None, 1_885_000)], []]


def test_removal_without_a_known_registration_ends_a_period() -> None:
    """The broker was registered before the first known event."""
    assert periods(server(event(1, 1_400_000, "evict", reason="disconnected", silent_ms=5_000))) == [
        [(STARTED_MS, 1_425_000, "disconnected", 1_400_000)]
    ]


def test_rows_of_a_broker_on_several_servers_are_of_one_broker() -> None:
    """A server that the broker has left no longer knows its address; the rows still have one heading."""
    left = server(event(1, 1_400_000, "evict", reason="unregistered", silent_ms=5_000))

    first, second = rows(left, server(brokers={KEY: 890.0}, address="s2"))

    assert first.broker == second.broker


def test_unreachable_server_is_unknown_since_its_last_response() -> None:
    """The bar of a registered broker ends at the last response."""
    assert periods(server(brokers={KEY: 870.0}).lost("timeout", 885.0)) == [[(STARTED_MS, 1_900_000, None, 1_880_000)]]


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000, 1_500])
def test_times_of_a_server_are_converted_to_the_console_clock(ahead_ms: int) -> None:
    """The clock of the server is an hour off; a difference of a second may be the way of its response."""
    late_ms = 0 if abs(ahead_ms) > 2_000 else ahead_ms
    events = (
        event(1, 1_100_000 + ahead_ms, "register", kind="full", topics=2),
        event(2, 1_400_000 + ahead_ms, "evict", reason="silent", silent_ms=120_000),
        event(3, 1_500_000 + ahead_ms, "fenced", OTHER),
    )
    info = ServerInfo("boot", ready=True, started_ms=STARTED_MS + ahead_ms, uptime_seconds=1_380.0)
    view = replace(server(*events, brokers={OTHER: 870.0}).answered(880.0, info=info), events=events)

    assert [view.wall_minus_monotonic, view.on_console_clock(info.started_ms, moment_ms)] == [
        1_000 + ahead_ms / 1000,
        STARTED_MS + late_ms,
    ]
    assert periods(view) == [
        [(1_100_000 + late_ms, 1_310_000 + late_ms, "silent", 1_400_000 + late_ms)],
        [(STARTED_MS + late_ms, 1_900_000, None, 1_885_000)],
    ]
    assert [at for row in rows(view) for at in row.fenced_ms] == [1_500_000 + late_ms]
    assert changed_brokers(Cluster(1, (view,)), SPAN, 9, moment_ms) == [KEY, OTHER]


def test_brokers_that_left_last_are_shown_first() -> None:
    """Events before the span do not count, and rows are sorted by broker, then by server."""
    far = BrokerKey("c0", "broker-z", 0)
    one = server(event(1, 1_300_000, "evict", OTHER, reason="silent", silent_ms=0), event(2, 999_999, "register", far))
    two = server(event(1, 1_500_000, "register"), brokers={KEY: 890.0}, address="s2")
    cluster = Cluster(1, (one, two))

    assert [changed_brokers(cluster, SPAN, most, moment_ms) for most in (1, 9)] == [[OTHER], [OTHER, KEY]]
    assert [(row.broker.broker_name, row.nameserver) for row in rows(two, one)] == [
        ("broker-a", "s2"),
        ("broker-b", "s1"),
    ]
