"""History of logs written by hand: expected values, and the same values as in a report on the logs."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.history.hours import LogsError
from namesrv_spark_jobs.history.model import (
    Change,
    Member,
    PastRequest,
    RouteRequest,
    Strip,
    StripRequest,
    Timeline,
    TimelineRequest,
    TopicPast,
    WhatIfRequest,
    WhatIfs,
)
from namesrv_spark_jobs.history.reading.readings import Readings
from namesrv_spark_jobs.history.spans import DAY_MS, HOUR_MS, Span
from namesrv_spark_jobs.history.topic import topic_past
from namesrv_spark_jobs.options import Options, WhatIf
from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, broker, member
from tests.support.spark_logs import write_boots, write_log, write_plain

A = TypeVar("A")

FIVE_MINUTES = Span(MIDNIGHT_MS, MIDNIGHT_MS + 300_000)


def after(at_ms: int) -> Span:
    """The five minutes before a moment of the log."""
    return Span(MIDNIGHT_MS + at_ms - 300_000, MIDNIGHT_MS + at_ms)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Readings]:
    """Readings of a log of two servers."""
    (tmp_path / "tables").mkdir()
    with Readings(str(tmp_path / "tables"), [str(write_log(tmp_path / "logs"))]) as opened:
        yield opened


@contextmanager
def readings_of(folder: Path, *boots: HeartbeatLines) -> Iterator[Readings]:
    """Readings of a log of these boots, which is written below a folder."""
    write_boots(folder / "logs", *boots)
    with Readings(str(folder), [str(folder / "logs")]) as opened:
        yield opened


def ask(asked: Readings, request: PastRequest, kind: type[A]) -> A:
    """The result of a request, with its type."""
    found = asked.result(request)
    assert isinstance(found, kind)
    return found


def test_registration_periods_are_those_of_the_report(asked: Readings) -> None:
    """A closed file, a file with a truncated line, and an open file: three brokers on two servers."""
    found = ask(asked, TimelineRequest(span=FIVE_MINUTES), Timeline)

    assert (found.reading.files, found.reading.lines, found.reading.bad) == (3, 29, 1)
    assert [(str(row.broker), row.nameserver) for row in found.rows] == [
        ("c1/broker-a/0", "ns-1"),
        ("c1/broker-a/0", "ns-2"),
        ("c1/broker-b/0", "ns-1"),
    ]
    first, second, third = (
        [
            (
                period.reason,
                period.last_ok_ms - MIDNIGHT_MS,
                period.end_ms - MIDNIGHT_MS,
                period.stale_ms,
                period.is_false,
            )
            for period in row.periods
        ]
        for row in found.rows
    )
    assert first == [("silent", 60_000, 185_000, 125_000, False)]
    assert second == [("silent", 30_500, 155_000, 124_500, True), (None, 170_000, 240_100, 0, False)]
    assert third == [(None, 240_010, 240_100, 0, False)]
    by_server = ask(asked, TimelineRequest(span=FIVE_MINUTES, text="NS-2"), Timeline)
    assert [row.nameserver for row in by_server.rows] == ["ns-2"]
    # broker-b's first registration period had ended by then
    later = ask(asked, TimelineRequest(span=FIVE_MINUTES.moved(0.6), text="broker-a"), Timeline)
    assert [len(row.periods) for row in later.rows] == [1, 1]


def test_route_at_a_moment_and_the_last_route_of_each_client(asked: Readings) -> None:
    """A client has the old route from the eviction until its next pull."""

    def received(at_ms: int) -> list[tuple[int, bool]]:
        past = ask(asked, RouteRequest(span=after(at_ms), topic="t"), TopicPast)
        return [(one.change.revision if one.change else -1, one.is_old) for one in past.clients]

    at_190 = ask(asked, RouteRequest(span=after(190_000), topic="t"), TopicPast)

    both = [Member(broker_name="broker-a", ids=[0]), Member(broker_name="broker-b", ids=[0])]
    first, second = at_190.servers
    assert first.change is not None
    assert (first.change.revision, first.change.route, first.change.left) == (2, [both[1]], [both[0]])
    # The other client has never had a topic.
    assert (second.is_logged, second.change) == (True, None)
    assert [(change.revision, change.came) for change in at_190.changes] == [(2, []), (1, both)]
    assert [received(at) for at in (50, 184_000, 190_000, 200_000)] == [[], [(1, False)], [(1, True)], [(2, False)]]
    assert ask(asked, RouteRequest(span=after(190_000), topic="other"), TopicPast).changes == []


def test_route_is_built_from_differences(tmp_path: Path) -> None:
    """Version 2 of the log has one line for many topics; before the first complete line the routes are unknown."""

    def entry(**fields: object) -> dict[str, object]:
        return {"topics": ["t", "u"], **fields}

    def named(name: str, *ids: int) -> dict[str, object]:
        return {"name": name, "master": True, "ids": list(ids)}

    lines = HeartbeatLines().start()
    for at, revision, change in (
        (1_000, 1, entry(set=[named("x", 0)])),
        (2_000, 2, entry(set=[named("a", 0, 1), named("b", 0)], whole=True)),
        (3_000, 3, entry(set=[named("b", 0, 2)], unset=["a"])),
        (4_000, 4, entry(set=[named("c", 0)], whole=True)),
        (5_000, 5, entry(unset=["c"])),
    ):
        lines.add("route", at, v=2, revision=revision, changes=[change])
    lines.add("served", 3_500, v=2, client="k#1", topics=["t", "u"], revisions=[3, 2])
    lines.gone(4_500)

    def text(members: list[Member], sign: str = "") -> list[str]:
        return [f"{sign}{one.broker_name}{one.ids}" for one in members]

    def shown(change: Change) -> tuple[int, str | None, str]:
        route = None if change.route is None else " ".join(text(change.route))
        difference = (*text(change.came, "+"), *text(change.left, "-"), *text(change.now, "="))
        return change.revision, route, " ".join(difference)

    with readings_of(tmp_path, lines) as asked:
        past = ask(asked, RouteRequest(span=after(10_000), topic="t"), TopicPast)
        before = ask(asked, RouteRequest(span=after(4_200), topic="t"), TopicPast)

    assert [shown(change) for change in past.changes] == [
        (5, "", "-c[0]"),
        (4, "c[0]", "+c[0] -b[0, 2]"),
        (3, "b[0, 2]", "+b[2] -a[0, 1]"),
        (2, "a[0, 1] b[0]", "-x[0] =a[0, 1] =b[0]"),
        (1, None, "+x[0]"),
    ]
    # The client had disconnected.
    assert past.clients == []
    assert [(one.change and one.change.revision, one.is_old) for one in before.clients] == [(3, True)]


def test_routes_across_missing_lines_are_unknown(tmp_path: Path) -> None:
    """Across a lost file or dropped lines, routes are unknown until their next change.

    The first gap is shorter than a millisecond.
    """
    lines = HeartbeatLines().start()
    lines.route(1_000, 1, member("a")).served(2_000, 1).scan(10_000, 1)
    lines.route(50_000.1, 2, member("a"), member("b")).lost(5).add("dropped", 50_000.4, count=5).scan(60_000, 2)
    lines.route(100_000, 7, member("a"), member("b")).route(110_000, 8, member("b")).scan(120_000, 3)
    settings = {"scan_interval_ms": 5_000, "broker_expiry_ms": 120_000, "late_ms": 0, "version": "0.1.0"}
    lines.lost(16).add("opened", 200_000, **settings).route(250_000, 20, member("b")).scan(260_000, 20)

    with readings_of(tmp_path, lines) as asked:
        moments = (9_000, 30_000, 70_000, 115_000, 150_000, 210_000, 255_000)
        pasts = {at_ms: ask(asked, RouteRequest(span=after(at_ms), topic="t"), TopicPast) for at_ms in moments}

    servers = {at_ms: past.servers[0] for at_ms, past in pasts.items()}
    shown = {at_ms: (one.is_logged, one.change and one.change.revision) for at_ms, one in servers.items()}
    assert shown == {
        9_000: (True, 1),
        30_000: (True, 1),
        # the server dropped lines
        70_000: (True, None),
        115_000: (True, 8),
        # a file is lost
        150_000: (False, None),
        210_000: (True, None),
        255_000: (True, 20),
    }
    a, b = (Member(broker_name=name, ids=[0]) for name in "ab")
    assert [(one.revision, one.came, one.left, one.now) for one in pasts[255_000].changes] == [
        (20, [], [], [b]),
        (8, [], [a], []),
        (7, [], [], [a, b]),
        (2, [b], [], []),
        (1, [a], [], []),
    ]


def test_end_of_the_logs_of_a_running_server_is_now(tmp_path: Path) -> None:
    """While the last hour of the logs is not over, the server runs, and its client has the current route."""
    now_ms = round(time.time() * 1000)
    lines = HeartbeatLines(wall_ms=now_ms - 60_000).start().heartbeats(1_000, 31_000)
    lines.route(1_500, 1, member("broker-a")).served(2_000, 1).scan(59_000, 1)
    hour = f"{datetime.fromtimestamp(now_ms / 1000, UTC):dt=%Y-%m-%d/hour=%H}"
    (tmp_path / hour).mkdir(parents=True)
    (tmp_path / hour / "ns-1-boot-1-1.jsonl").write_text("".join(f"{line}\n" for line in lines.lines))

    past = topic_past([str(tmp_path)], "t", None)

    assert [(one["nameserver"], one["is_logged"]) for one in past["servers"]] == [("ns-1", True)]
    assert [(one["client"], one["is_old"]) for one in past["clients"]] == [("k#1", False)]


def test_end_of_copied_logs_is_their_last_line(tmp_path: Path) -> None:
    """Files outside of folders of hours may be of any time; the week before now has no lines then."""
    lines = HeartbeatLines().start().route(1_500, 1, member("broker-a")).served(2_000, 1).scan(59_000, 1)
    (tmp_path / "copy.jsonl").write_text("".join(f"{line}\n" for line in lines.lines))

    past = topic_past([str(tmp_path)], "t", None)

    assert past["at_ms"] == MIDNIGHT_MS + 59_001
    assert [one["revision"] for one in past["changes"]] == [1]
    assert [(one["client"], one["is_old"]) for one in past["clients"]] == [("k#1", False)]


@pytest.mark.slow
def test_what_if_equals_that_of_the_report(asked: Readings, tmp_path: Path) -> None:
    """The numbers equal those of a report on the same hours, also for the logged settings and a requested expiry."""
    own = broker("broker-c", expiry_ms=25_000)
    third = HeartbeatLines("boot-3", "ns-3").start().heartbeats(0, 15_000, 50_000, 61_000, 130_000, of=own)
    # Settings do not affect closed connections: their false evictions are counted, but not replayed.
    other = broker("broker-d")
    third.heartbeats(1_000, 31_000, of=other).evict(40_000, other, "disconnected").heartbeats(42_000, of=other)
    third.late(70_000, 8_000).scan(76_000, 1).evict(90_000, own, scan=2).add("stop", 200_000, version="0", dropped=0)
    file = write_plain(tmp_path / "logs", "ns-3-boot-3-1.jsonl", third.lines)

    # A replay covers exactly the hours of its request, though a longer reading is kept.
    ask(asked, TimelineRequest(span=Span(MIDNIGHT_MS - DAY_MS, MIDNIGHT_MS + HOUR_MS)), Timeline)
    request = WhatIfRequest(span=FIVE_MINUTES, expiry_ms=20_000, scan_ms=1_000, poll_ms=5_000)
    found = ask(asked, request, WhatIfs)

    grid = WhatIf(expiry_ms=(20_000,), scan_ms=(1_000,), poll_ms=(5_000,))
    hours = found.reading.span
    assert hours == Span(MIDNIGHT_MS - HOUR_MS, MIDNIGHT_MS + HOUR_MS)
    options = Options(since_ms=hours.from_ms, until_ms=hours.to_ms, what_if=grid)
    files = sorted(str(one) for one in file.parent.iterdir())
    with EmbeddedEngine(tmp_path / "report") as engine:
        summary = analyse(engine, files, options, lambda _: None).summary
    for ours, theirs in zip((found.logged, found.requested), summary["what_if"], strict=True):
        shown = (("registry", "p99"), ("client", "p50"), ("client", "p99"))
        stats = {f"{of}_{name}_ms": theirs[of][name] for of, name in shown}
        statistics = {name: getattr(ours, name) for name in stats}
        assert (theirs["evictions"], theirs["false"], stats) == (ours.evictions, ours.false, statistics)
    assert found.logged.evictions
    # As in the report's chart, no setting with a letter is worse than another setting in both measures.
    best = {one.letter: (one.false, one.client_p99_ms) for one in (found.logged, *found.expiries) if one.letter}
    assert found.chart.startswith("<svg ")
    assert [letter for letter in best if f">{letter}</text>" not in found.chart] == []
    assert sorted(best.values()) == [best[letter] for letter in sorted(best)]
    assert (found.others, found.false_others) == (1, 1)


def test_what_if_is_unknown_without_the_logged_settings(tmp_path: Path) -> None:
    """The log lacks its first line, which has the expiry of the brokers."""
    lines = HeartbeatLines().start().heartbeats(0, 50_000, 100_000).scan(105_000, 21).lines[1:]
    write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", lines)
    request = WhatIfRequest(span=FIVE_MINUTES, expiry_ms=30_000, scan_ms=5_000, poll_ms=5_000)

    with Readings(str(tmp_path), [str(tmp_path / "logs")]) as asked:
        found = ask(asked, request, WhatIfs)

    assert (found.logged.evictions, found.requested.evictions, found.requested.false) == (0, None, None)


def test_reading_is_kept_for_spans_within_it(asked: Readings) -> None:
    """A request for a span within the last one does not read the logs again."""
    day = ask(asked, TimelineRequest(span=Span(MIDNIGHT_MS - DAY_MS, MIDNIGHT_MS + HOUR_MS)), Timeline)

    closer = ask(asked, TimelineRequest(span=FIVE_MINUTES), Timeline)

    assert closer.reading == day.reading


def test_strip_counts_heartbeats_by_bin(asked: Readings, tmp_path: Path) -> None:
    """Each bin has the longest silence before one of its heartbeats; each broker with the name has its own row."""
    span = Span(MIDNIGHT_MS, MIDNIGHT_MS + 144_000)
    slave = HeartbeatLines("boot-3", "ns-1").start(241_000).heartbeats(242_000, of=broker("broker-a", 1))
    write_plain(tmp_path / "logs", "ns-1-boot-3-1.jsonl", slave.lines)

    found = ask(asked, StripRequest(span=span.moved(1), cluster="c1", broker_name="broker-a"), Strip)
    earlier = ask(asked, StripRequest(span=span, cluster="c1", broker_name="broker-a"), Strip)

    assert [(str(row.broker), row.nameserver) for row in found.rows] == [
        ("c1/broker-a/0", "ns-1"),
        ("c1/broker-a/0", "ns-2"),
        ("c1/broker-a/1", "ns-1"),
    ]
    # ns-1 removed the broker without another heartbeat, 185 s after midnight
    assert [(one.number, one.heartbeats, one.kind, one.reason) for one in found.rows[0].bins] == [
        (41, 0, "removed", "silent")
    ]
    assert [row.nameserver for row in earlier.rows] == ["ns-1", "ns-2"]
    assert [(one.number, one.heartbeats, one.longest_ms, one.kind) for one in earlier.rows[0].bins] == [
        (0, 1, 0, "regular"),
        (30, 1, 30_000, "regular"),
        (60, 1, 30_000, "regular"),
    ]


SLAVE, MASTER = (broker("broker-a", number, broker_addr="10.0.0.1:1") for number in (1, 0))


@pytest.mark.parametrize(
    ("boots", "expected"),
    [
        # Heartbeats every 30 s before a restart are in time, although the next boot has short intervals.
        (
            [
                HeartbeatLines("boot-1").start().heartbeats(*range(1_000, 200_000, 30_000), 280_000),
                HeartbeatLines("boot-2").start(400_000).heartbeats(401_000, 402_000, 432_000),
            ],
            {
                "c1/broker-a/0": [
                    (0, 0, "regular"),
                    *((number, 30_000, "regular") for number in (3, 6, 9, 12, 15, 18)),
                    (28, 99_000, "overdue"),
                    (40, 1_000, "regular"),
                    (43, 30_000, "regular"),
                ]
            },
        ),
        # A stop of the server for 90 s lengthens no silence: the broker's heartbeat arrived during the stop.
        (
            [HeartbeatLines().start().heartbeats(0, 30_000).late(149_000, 90_000).heartbeats(150_000, 180_000)],
            {"c1/broker-a/0": [(0, 0, "regular"), *((number, 30_000, "regular") for number in (3, 15, 18))]},
        ),
        # A slave that is elected master registers id 0 with the same address; each id has its own row.
        (
            [HeartbeatLines().start().heartbeats(1_000, 31_000, of=SLAVE).heartbeats(61_000, 91_000, of=MASTER)],
            {
                "c1/broker-a/0": [(6, 30_000, "regular"), (9, 30_000, "regular")],
                "c1/broker-a/1": [(0, 0, "regular"), (3, 30_000, "regular")],
            },
        ),
    ],
    ids=["restart", "stop", "election"],
)
def test_strip_has_the_longest_silence_of_each_bin(
    tmp_path: Path, boots: list[HeartbeatLines], expected: dict[str, list[tuple[int, int, str]]]
) -> None:
    """(number, longest silence, kind) of each bin of 10 s, by broker."""
    span = Span(MIDNIGHT_MS, MIDNIGHT_MS + 1_440_000)
    with readings_of(tmp_path, *boots) as asked:
        found = ask(asked, StripRequest(span=span, cluster="c1", broker_name="broker-a"), Strip)

    bins = {str(row.broker): [(one.number, one.longest_ms, one.kind) for one in row.bins] for row in found.rows}
    assert bins == expected


def test_span_without_lines_is_an_error(asked: Readings, tmp_path: Path) -> None:
    """Logs without files, or with empty files only, are an error."""
    with pytest.raises(LogsError, match="no log from 2026-03-03T23:00:00 to 2026-03-04T01:00:00"):
        asked.result(TimelineRequest(span=FIVE_MINUTES.moved(864)))
    write_plain(tmp_path / "bad", "ns-1-boot-1-1.jsonl", [json.dumps({"v": 1})])
    with Readings(str(tmp_path), [str(tmp_path / "bad")]) as bad, pytest.raises(LogsError, match="no line of a log"):
        bad.result(TimelineRequest(span=FIVE_MINUTES))
