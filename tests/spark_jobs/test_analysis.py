"""What does the analysis say of lines written by hand? Every boot is a case; Spark reads all of them at once."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.analysis import METRIC_COLUMNS, Analysis, analyse
from namesrv_spark_jobs.options import Options, WhatIf
from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, broker, member

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

A, B = broker(), broker("broker-b")
RMQ = broker("broker-r", agent_id=None)
GRID = WhatIf(expiry_ms=(60_000,), scan_ms=(5_000,), poll_ms=(10_000,), phi=())

Row = dict[str, Any]


def silent() -> HeartbeatLines:
    """Heard at 0, 30 and 60 s; found silent at 183 s."""
    return HeartbeatLines("silent").start().beats(0, 30_000, 60_000).scan(183_000, 36).evict(183_000, scan=36)


def other_reasons() -> HeartbeatLines:
    """Ends that are not found by a scan."""
    lines = HeartbeatLines("reasons").start()
    for number, reason in enumerate(("disconnected", "unregistered", "superseded")):
        of = broker(f"broker-{reason}")
        lines.beats(0, 10_000, of=of).evict(14_000 + number, of, reason)
    return lines


def alone() -> HeartbeatLines:
    """An eviction whose beats are not in the log."""
    return HeartbeatLines("alone").start().evict(125_000, silent_ms=122_500.5)


def too_long() -> HeartbeatLines:
    """One broker 127 s, and one 131 s of which the server was late for 5 s: of these only the first is too long."""
    lines = HeartbeatLines("too-long").start().beat(0, A).beat(0, B)
    return lines.evict(127_000, A).late(128_000, 5_000).evict(131_000, B)


def came_back() -> HeartbeatLines:
    """The same agent; another agent; no agent, soon and not soon."""
    lines = HeartbeatLines("came-back").start()
    cases = {
        "same": (broker("same"), broker("same"), 300_000),
        "other": (broker("other"), broker("other", agent_id="another"), 124_000),
        "soon": (broker("soon", agent_id=None), broker("soon", agent_id=None), 243_000),
        "not-soon": (broker("not-soon", agent_id=None), broker("not-soon", agent_id=None), 243_001),
    }
    for before, after, at in cases.values():
        lines.beat(0, before).evict(123_000, before).beat(at, after)
    return lines


def one_address() -> HeartbeatLines:
    """Another broker takes the address of a dead one before that comes back."""
    first, second = broker("first", broker_addr="x:1"), broker("second", broker_addr="x:1")
    return (
        HeartbeatLines("one-address")
        .start()
        .beat(0, first)
        .evict(123_000, first)
        .beat(130_000, second)
        .beat(140_000, first)
    )


def exposed() -> HeartbeatLines:
    """Clients that saw the broker go, that left, and that waited in vain; and one that was given something unknown."""
    lines = (
        HeartbeatLines("exposed")
        .start()
        .route(0, 1, member(), member("broker-b"))
        .route(123_000, 2, member("broker-b"))
    )
    for client in ("seen", "gone", "waiting"):
        lines.served(1_000, 1, client=client)
    lines.served(1_000, 2, client="not-exposed").served(1_000, 9, client="unknown")
    lines.beat(0).pulls(0, 1, 1).pulls(60_000, 1, 5).pulls(127_000, 1, 7).pulls(129_000, 1, 9)
    lines.evict(123_000).served(130_000, 2, client="seen").gone(135_000, "gone")
    return lines.scan(200_000, 40)


def near_miss() -> HeartbeatLines:
    """Over 80 s of 120 s once; exactly 80 s is none."""
    return HeartbeatLines("near-miss").start().beats(0, 80_000, 160_001, of=B)


def stopped_clock() -> HeartbeatLines:
    """The wall clock is an hour on from the second scan to the third."""
    lines = HeartbeatLines("stepped", wall_ms=MIDNIGHT_MS).start().scan(5_000, 1)
    lines.wall_ms += 3_600_000
    lines.scan(10_000, 2)
    lines.wall_ms -= 3_600_000
    return lines.scan(15_000, 3).scan(20_000, 4)


def fenced() -> HeartbeatLines:
    """The scan at 125 s gives its finding up; the one at 130 s does not."""
    lines = HeartbeatLines("fenced").start().beat(0)
    lines.scan(120_000, 24).scan(125_000, 25).add("fenced", 125_000, **A, reason="silent", scan=25)
    return lines.scan(130_000, 26).evict(130_000, scan=26)


def late() -> HeartbeatLines:
    """The server is stopped from 100 to 110 s, hears the broker at once, and knows only then that it was late."""
    lines = HeartbeatLines("late").start().beat(0).beat(110_001).late(110_005, 10_000)
    return lines.scan(230_004, 46).scan(230_006, 47).evict(230_006, scan=47)


def two_servers() -> list[HeartbeatLines]:
    """A day later. From 123 s on one has the broker no more; the other one has it until its last line, at 150 s."""
    later = MIDNIGHT_MS + 86_400_000
    one = HeartbeatLines("two-1", "one", later).start().beat(0, RMQ).evict(123_000, RMQ).scan(200_000, 40)
    return [one, HeartbeatLines("two-2", "two", later).start().beat(0, RMQ).scan(150_000, 30)]


BOOTS = (
    *(silent(), other_reasons(), alone(), too_long(), came_back(), one_address(), exposed(), near_miss()),
    *(stopped_clock(), fenced(), late(), *two_servers()),
)


@pytest.fixture(scope="module")
def analysis(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Everything at once."""
    folder = tmp_path_factory.mktemp("analysis")
    for lines in BOOTS:
        (folder / f"{lines.boot}.jsonl").write_text("".join(f"{line}\n" for line in lines.lines), encoding="utf-8")
    files = [str(folder / f"{lines.boot}.jsonl") for lines in BOOTS]
    return analyse(spark, files, Options(what_if=GRID), str(folder / "staging"), lambda _line: None)


@pytest.fixture(scope="module")
def intervals(analysis: Analysis) -> list[Row]:
    """All of them."""
    return [row.asDict() for row in analysis.intervals.collect()]


def of(intervals: list[Row], boot: str, *names: str) -> dict[str, tuple[Any, ...]]:
    """These columns of a boot's intervals, by broker."""
    return {row["broker_name"]: tuple(row[name] for name in names) for row in intervals if row["boot_id"] == boot}


def test_a_silent_broker(intervals: list[Row]) -> None:
    """123 s at most, 93 s at least as it was heard every 30 s; in wall time."""
    columns = ("upper_ms", "lower_ms", "period_ms", "beats", "first_ok_ms", "removed_ms", "date", "scan")
    found = of(intervals, "silent", *columns)

    expected = (123_000.0, 93_000.0, 30_000.0, 3, MIDNIGHT_MS, MIDNIGHT_MS + 183_000, "2026-03-01", 36)
    assert {"broker-a": expected} == found


def test_ends_that_no_scan_found(intervals: list[Row]) -> None:
    """A closed connection is stale for that long; who says goodbye, or is replaced, never is."""
    expected = {
        "broker-disconnected": ("disconnected", 4_000.0),
        "broker-unregistered": ("unregistered", 0.0),
        "broker-superseded": ("superseded", 0.0),
    }
    assert expected == of(intervals, "reasons", "reason", "upper_ms")


def test_an_eviction_alone(intervals: list[Row]) -> None:
    """Its last beat was as long ago as the line says; its period is a quarter of its expiry."""
    assert {"broker-a": (0, None, 122_500.5, 92_500.5)} == of(
        intervals, "alone", "beats", "first_ok_ms", "upper_ms", "lower_ms"
    )


def test_over_the_bound(analysis: Analysis, intervals: list[Row]) -> None:
    """120 s, a scan of 5 s and a second of tolerance; what the server was late is added."""
    assert {"broker-a": (True,), "broker-b": (False,)} == of(intervals, "too-long", "over_bound")
    # and the one whose first finding was given up
    assert 2 == analysis.summary["registry"]["over_bound"]


def test_false_evictions(intervals: list[Row]) -> None:
    """The same agent whenever it comes; without agents, within one expiry."""
    expected = {"same": (True,), "other": (False,), "soon": (True,), "not-soon": (False,)}
    assert expected == of(intervals, "came-back", "false_eviction")


def test_the_next_beat_of_the_same_broker_counts(intervals: list[Row]) -> None:
    """Not that of another one at its address."""
    assert {"first": (True,)} == of(intervals, "one-address", "false_eviction")


def test_clients(analysis: Analysis) -> None:
    """From the broker's last beat to what each of them saw."""
    found = {row["client"]: (row["outcome"], row["staleness_ms"]) for row in analysis.clients.collect()}

    expected = {"seen": ("seen", 130_000.0), "gone": ("client_gone", 135_000.0), "waiting": ("log_end", 200_000.0)}
    assert expected == found
    client = analysis.summary["client"]
    assert (3, 1, 1) == (client["exposed"], client["seen"], client["unknown_revisions"])
    assert {"returned": 0, "client_gone": 1, "log_end": 1} == client["censored"]


def test_exposed_pulls(analysis: Analysis, intervals: list[Row]) -> None:
    """After the last beat, and up to one scan after the removal."""
    assert {"broker-a": (12, 3, 1)} == of(intervals, "exposed", "exposed_pulls", "clients_exposed", "clients_seen")
    assert {"total": 12, "by_broker": {"c1/broker-a/0": 12}, "by_topic": {"t": 12}} == analysis.summary["exposed_pulls"]


def test_near_misses(analysis: Analysis) -> None:
    """More than two thirds, and none when the broker was evicted in between."""
    near = analysis.summary["near_misses"]

    assert ({"c1/broker-b/0": 1}, 80_001) == (
        {name: near["by_broker"][name] for name in near["by_broker"] if name == "c1/broker-b/0"},
        near["worst"]["silent_ms"] if near["worst"]["boot_id"] == "near-miss" else 80_001,
    )


def test_clock_steps(analysis: Analysis) -> None:
    """There and back; times of the boot are those of most of its lines."""
    steps = {row["file"]: row["clock_steps"] for row in analysis.summary["input"]["per_file"] if row["clock_steps"]}
    (boot,) = (boot for boot in analysis.summary["settings"] if boot["boot_id"] == "stepped")

    assert {"stepped.jsonl": 2} == steps
    assert (MIDNIGHT_MS, MIDNIGHT_MS + 20_000) == (boot["from_ms"], boot["until_ms"])


@pytest.mark.parametrize(("boot", "scan", "staleness"), [("fenced", 26, 130_000.0), ("late", 47, 120_001.0)])
def test_replay_under_the_logged_settings(analysis: Analysis, boot: str, scan: int, staleness: float) -> None:
    """It leaves out a fenced scan, and does not count the time in which the server was stopped as silence."""
    found = [(row["scan"], row["staleness_ms"]) for row in analysis.replayed.collect() if row["boot_id"] == boot]

    assert [(scan, staleness)] == found


def test_divergence(analysis: Analysis) -> None:
    """From one server's removal to the other one's end."""
    expected = {"total_ms": 27_000, "episodes": 1, "longest_ms": 27_000}
    assert expected == analysis.summary["divergence"]["by_broker"]["c1/broker-r/0"]


def test_what_if(analysis: Analysis) -> None:
    """The logged settings first, then the grid."""
    rows = analysis.summary["what_if"]

    assert [("logged", None, None), ("fixed", 60_000, 5_000)] == [
        (row["policy"], row["expiry_ms"], row["scan_ms"]) for row in rows
    ]
    # staleness at the server, then half a poll on average
    assert rows[1]["registry"]["mean"] + 5_000 == rows[1]["client"]["mean"]
    assert rows[1]["client"]["count"] == 10 * rows[1]["registry"]["count"]


def test_metrics_are_those_of_the_summary(analysis: Analysis) -> None:
    """One row for each group, with the same numbers."""
    found = {(row["measure"], row["scope"], row["key"]): row for row in analysis.metrics}
    row = found["registry", "all", ""]

    assert METRIC_COLUMNS == tuple(row)
    assert analysis.summary["registry"]["all"] == {name: row[name] for name in analysis.summary["registry"]["all"]}


def test_charts_are_bounded(analysis: Analysis) -> None:
    """Curves of at most 201 points, ascending; the stalest brokers first."""
    curve, timeline = analysis.charts["registry_cdf"], analysis.charts["timeline"]

    assert sorted(curve) == curve
    assert len(curve) <= 201
    assert timeline["from_ms"] == MIDNIGHT_MS
    assert len(timeline["brokers"]) <= 60
    assert "c1/broker-b/0" in {row["broker"] for row in timeline["brokers"]}
    assert sum(bar["count"] for bar in analysis.charts["gaps"]) > 0
