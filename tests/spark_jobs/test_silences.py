"""Silences between heartbeats in charts and findings."""

from pathlib import Path
from typing import Any

import pytest

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.options import Options
from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, broker, member
from tests.support.spark_logs import analysed, write_plain


def test_histogram_of_intervals_excludes_stops_of_the_server(engine: Engine, tmp_path: Path) -> None:
    """A stop of the server for 90 s lengthens no interval, so no bar is beyond two thirds of the expiry."""
    lines = HeartbeatLines().start().heartbeats(0, 30_000).late(149_000, 90_000).heartbeats(150_000, 180_000)

    found = analysed(engine, tmp_path, lines)

    intervals: list[dict[str, Any]] = found.charts["heartbeat_intervals"]
    assert [(one["from_pct"], one["count"]) for one in intervals] == [(25.0, 3)]
    assert found.summary["near_misses"]["count"] == 0


def test_expiry_of_zero_is_no_division_by_zero(engine: Engine, tmp_path: Path) -> None:
    """A broker with an expiry of 0 has near misses, but no shares of its expiry."""
    lines = HeartbeatLines().start().heartbeats(0, 30_000, of=broker(expiry_ms=0))

    worst = analysed(engine, tmp_path, lines).summary["near_misses"]["worst"]

    assert (worst["silent_ms"], worst["expiry_ms"]) == (30_000, 0)


@pytest.mark.parametrize(
    ("resumed_at", "since_at", "staleness_ms"),
    # A stop during the silence of 125 s, selected by --since or not, and a stop before the silence.
    [(100_000, 0, 185_000), (100_000, 110_000, 185_000), (62_000, 0, 125_000), (62_000, 110_000, 125_000)],
)
def test_staleness_of_unseen_heartbeat_has_the_stops_of_the_server(
    engine: Engine, tmp_path: Path, resumed_at: float, since_at: int, staleness_ms: int
) -> None:
    """Without the last heartbeat in the log, a stop of 60 s is added to `silent_ms`: the route was stale meanwhile."""
    lines = HeartbeatLines().start().late(resumed_at, 60_000).heartbeats(190_000, 211_000, of=broker("broker-b"))
    lines.scan(215_000, 42).evict(215_000, scan=42, silent_ms=125_000)

    found = analysed(engine, tmp_path, lines, options=Options(since_ms=MIDNIGHT_MS + since_at))

    assert found.summary["registry"]["all"]["max"] == staleness_ms
    assert found.summary["registry"]["over_bound"] == 0
    assert found.summary["input"]["from_ms"] == MIDNIGHT_MS + (190_000 if since_at else 0)
    assert [row["count"] for row in found.charts["heartbeat_intervals"]] == [1]
    (row,) = found.intervals.select("last_ok_ms").collect()
    assert row["last_ok_ms"] == MIDNIGHT_MS + 215_000 - staleness_ms


@pytest.mark.parametrize(
    ("event", "fields"),
    [("dropped", {"count": 70}), ("opened", {"scan_interval_ms": 5_000, "broker_expiry_ms": 120_000, "late_ms": 0})],
)
def test_nothing_lasts_across_missing_lines(engine: Engine, tmp_path: Path, event: str, fields: dict[str, int]) -> None:
    """Nothing is silent or stale across 300 s of lines that the server dropped, or that are lost with a file.

    The missing lines had heartbeats, and a client's new route. The settings of the boot hold afterwards, too.
    """
    both, one = (member("broker-a"), member("broker-b")), member("broker-a")
    lines = HeartbeatLines().start().route(0, 1, *both).served(1_000, 1)
    lines.heartbeats(0, of=broker("broker-b")).heartbeats(0, 30_000, 60_000)
    lines.scan(125_000, 25).evict(125_000, broker("broker-b"), scan=25, silent_ms=125_000).route(125_000, 2, one)
    lines.lost(70).add(event, 425_000, **fields).heartbeats(430_000, 460_000).scan(465_000, 93)
    lines.route(900_000, 3, one).served(900_100, 3)

    found = analysed(engine, tmp_path, lines).summary

    assert (found["near_misses"]["count"], found["as_logged"]["exact"]) == (0, True)
    assert {row["false"] for row in found["what_if"]} == {0}
    assert [(one["broker_expiry_ms"], one["scan_interval_ms"]) for one in found["settings"]] == [(120_000, 5_000)] * 2
    # The log lacks the time when the client received the route without the dead broker.
    assert (found["client"]["seen"], found["client"]["censored"]["log_end"]) == (0, 1)
    (text,) = (finding["text"] for finding in found["findings"] if finding["code"] == "missing_lines")
    assert text.startswith("Lines of ns-1 are missing from 2026-03-01 00:02:05 to 2026-03-01 00:07:05 UTC: ")


@pytest.mark.parametrize(
    ("options", "first_ms", "last_ms", "ended"),
    [
        (Options(since_ms=MIDNIGHT_MS + 1_800_000), 1_800_000, 3_570_000, "00:59:30"),
        (Options(until_ms=MIDNIGHT_MS + 1_800_000), 0, 1_770_000, "00:29:30"),
    ],
    ids=["since", "until"],
)
def test_clock_that_is_set_back_divides_the_selected_time(
    engine: Engine, tmp_path: Path, options: Options, first_ms: int, last_ms: int, ended: str
) -> None:
    """The clock shows the same hour twice: the lines between its selected halves make no silence."""
    lines = HeartbeatLines().start()
    for at in range(0, 7_200_000, 30_000):
        lines.wall_ms = MIDNIGHT_MS - (3_600_000 if at >= 3_600_000 else 0)
        lines.scan(at, at // 30_000 + 1).heartbeat(at)

    found = analysed(engine, tmp_path, lines, options=options).summary

    parts = [(boot["from_ms"] - MIDNIGHT_MS, boot["until_ms"] - MIDNIGHT_MS) for boot in found["settings"]]
    assert parts == [(first_ms, last_ms)] * 2
    assert (found["near_misses"]["count"], found["as_logged"]["exact"]) == (0, True)
    assert {row["evictions"] for row in found["what_if"]} == {0}
    texts = {finding["code"]: finding["text"] for finding in found["findings"]}
    missing = f"Lines of ns-1 are missing after 2026-03-01 {ended} UTC, where its wall clock was set back: "
    assert texts["missing_lines"].startswith(missing)
    assert texts["clock_steps"].endswith(", but --since and --until select lines by that clock.")


def test_clock_that_is_set_forward_into_the_selected_time_divides_no_selected_lines(
    engine: Engine, tmp_path: Path
) -> None:
    """The clock is set an hour forward, past --since, between two scans: the lines from the step on are one boot."""
    lines = HeartbeatLines().start().heartbeat(0).scan(5_000, 1)
    lines.wall_ms += 3_600_000
    lines.heartbeats(6_000, 9_000).scan(10_000, 2).heartbeats(36_000, 66_000)

    found = analysed(engine, tmp_path, lines, options=Options(since_ms=MIDNIGHT_MS + 1_800_000))

    (boot,) = found.summary["settings"]
    assert (boot["from_ms"] - MIDNIGHT_MS, boot["until_ms"] - MIDNIGHT_MS) == (3_606_000, 3_666_000)
    assert [row["count"] for row in found.charts["heartbeat_intervals"] if row["count"]] == [1, 1, 1]
    texts = {finding["code"]: finding["text"] for finding in found.summary["findings"]}
    assert "missing_lines" not in texts
    assert texts["clock_steps"].endswith(", but --since and --until select lines by that clock.")


def test_clock_step_among_lines_that_are_left_out_is_that_of_the_first_file(engine: Engine, tmp_path: Path) -> None:
    """With the log given twice, and the wall clock set past --until, each boot has one step, in the first copy."""
    files = []
    for copy in ("a", "b"):
        for number in range(24):
            lines = HeartbeatLines(f"boot-{number}", f"ns-{number}").start().heartbeat(1)
            lines.wall_ms += 3_600_000
            name = f"{copy}-{number}.jsonl"
            files.append(str(write_plain(tmp_path / copy, name, lines.scan(2, 1).lines)))

    found = analyse(engine, files, Options(until_ms=MIDNIGHT_MS + 1_000), lambda _step: None).summary

    steps = {one["file"].rpartition("/")[2]: one["clock_steps"] for one in found["input"]["per_file"]}
    assert steps == {f"{copy}-{number}.jsonl": int(copy == "a") for copy in ("a", "b") for number in range(24)}
