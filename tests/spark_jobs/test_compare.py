"""Comparisons of two reports: verdicts, and the command for summaries and logs."""

import json
from pathlib import Path
from typing import Any

import pytest

from namesrv_spark_jobs.command.cli import main
from namesrv_spark_jobs.report.comparison import comparison
from namesrv_spark_jobs.report.shown import as_json
from tests.support.heartbeat_lines import HeartbeatLines
from tests.support.spark_logs import SMALL_GRID, write_plain
from tests.support.staleness_sample import empty_summary, sample_summary, stats


@pytest.mark.parametrize("empty", ["a", "b"])
def test_time_without_heartbeats_is_not_compared(empty: str) -> None:
    """A time without lines, perhaps removed by retention, is not compared: its false evictions are no change."""
    full, nothing = _summary(false=30, near_misses=50, over_bound=1), empty_summary()
    nothing["input"] |= {"events": {}, "from_ms": None, "until_ms": None}

    made = comparison(nothing, full) if empty == "a" else comparison(full, nothing)

    assert made["verdict"] == "unknown"
    assert {row["judged"] for row in made["measures"]} == {"few", "neutral"}


def _summary(*, removed: int = 100, p99: int = 128_000, days: float = 1, **counts: int) -> dict[str, Any]:
    """The summary of a day with this number of removals and these counts."""
    made = sample_summary()
    made["input"]["until_ms"] = made["input"]["from_ms"] + round(days * 86_400_000)
    made["registry"] |= {"all": stats(removed, 110_000, p99), "over_bound": counts.get("over_bound", 0)}
    made["client"]["all"] = stats(removed, 127_000, 157_000)
    made["false_evictions"]["count"] = counts.get("false", 0)
    made["near_misses"]["count"] = counts.get("near_misses", 0)
    return made


@pytest.mark.parametrize(
    ("before", "after", "verdict", "judged"),
    [
        ({}, {}, "same", {}),
        # A twentieth of 128 s is 6.4 s.
        ({}, {"p99": 134_400}, "same", {}),
        ({}, {"p99": 134_401}, "worse", {"registry.p99": "worse"}),
        ({}, {"p99": 121_599}, "better", {"registry.p99": "better"}),
        # A difference of less than a second is no change, however small the values.
        ({"p99": 900}, {"p99": 1_800}, "same", {}),
        # 9 and 10 differ by chance; 0 and 5 do not.
        ({"false": 9}, {"false": 10}, "same", {}),
        ({"false": 0}, {"false": 4}, "same", {}),
        ({"false": 0}, {"false": 5}, "worse", {"false": "worse"}),
        # Equal counts per day are no change.
        ({"near_misses": 100}, {"near_misses": 700, "days": 7}, "same", {}),
        ({"near_misses": 100}, {"near_misses": 100, "days": 7}, "better", {"near_misses": "better"}),
        # Counts that should be zero.
        ({}, {"over_bound": 1}, "worse", {"over_bound": "worse"}),
        ({"over_bound": 40}, {"over_bound": 41}, "worse", {"over_bound": "worse"}),
        ({"over_bound": 40}, {"over_bound": 80, "days": 2}, "same", {}),
        # The lengths of two logs always differ.
        ({"over_bound": 40}, {"over_bound": 40, "days": 1.0001}, "same", {}),
        ({"over_bound": 40}, {"over_bound": 41, "days": 1.0001}, "worse", {"over_bound": "worse"}),
        ({"false": 20}, {"p99": 200_000}, "mixed", {"false": "better", "registry.p99": "worse"}),
        # A p99 needs fifty removals, a median ten.
        ({}, {"removed": 49, "p99": 200_000}, "same", {"registry.p99": "few", "client.p99": "few"}),
        (
            {"removed": 9},
            {},
            "unknown",
            dict.fromkeys(("registry.p50", "registry.p99", "client.p50", "client.p99"), "few"),
        ),
    ],
)
def test_verdict_is_of_changes_beyond_chance(
    before: dict[str, Any], after: dict[str, Any], verdict: str, judged: dict[str, str]
) -> None:
    """Durations must change by a twentieth and a second, counts per day by twice their square root."""
    for summary in (before, after):
        # The sample's other counts are equal per day.
        summary.setdefault("days", 1)
    old, new = _summary(**before), _summary(**after)
    for summary, days in ((old, before["days"]), (new, after["days"])):
        summary["exposed_pulls"]["total"] = summary["divergence"]["episodes"] = 100 * days

    made = comparison(old, new)

    assert made["verdict"] == verdict
    assert {
        row["measure"]: row["judged"] for row in made["measures"] if row["judged"] in {"better", "worse", "few"}
    } == judged


def test_comparison_has_groups_settings_and_findings() -> None:
    """Groups are ordered by their change; settings, and findings of one report only, are listed."""
    before, after = _summary(), _summary()
    after["registry"]["by_broker"] = {"c1/new/0": stats(1, 1_000, 5_000), **after["registry"]["by_broker"]}
    after["registry"]["by_cluster"]["c1"] = stats(42, 100_000, 168_000)
    after["settings"][0] |= {"scan_interval_ms": 5_000}
    after["findings"] = [*after["findings"][1:], {"severity": "info", "code": "odd", "text": "Odd."}]

    made = comparison(before, after)

    assert made["groups"][0] == {
        "scope": "cluster",
        "key": "c1",
        "a": 128_000,
        "b": 168_000,
        "a_count": 42,
        "b_count": 42,
    }
    assert tuple(made["groups"][-1][name] for name in ("key", "a", "b")) == ("c1/new/0", None, 5_000)
    assert made["settings"] == [{"setting": "scan_interval_ms", "a": [10_000], "b": [5_000]}]
    assert [finding["code"] for finding in made["findings"]["new"]] == ["odd"]
    assert [finding["code"] for finding in made["findings"]["gone"]] == [before["findings"][0]["code"]]
    assert made == json.loads(as_json(made))


@pytest.fixture
def summaries(tmp_path: Path) -> list[str]:
    """The files of two summaries: a calm day, and a day with a longer p99."""
    made = []
    for name, summary in (("a", _summary()), ("b", _summary(p99=150_000))):
        file = tmp_path / f"{name}.json"
        file.write_text(as_json(summary), encoding="utf-8")
        made.append(str(file))
    return made


def test_command_compares_two_summaries(
    summaries: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command writes page and JSON; a failed gate gives exit code 1."""
    out = tmp_path / "out"
    gates = ["--fail-if", "p99>+10%", "--fail-if", "p99>+30s", "--fail-if", "client.p99>60s", "--fail-if-worse"]

    assert main(["compare", *summaries, "--out", str(out), *gates]) == 1

    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "FAILED p99>+10%: registry.p99 went from 128 s (128 s) to 150 s (150 s)",
        "FAILED client.p99>60s: client.p99 is 157 s (157 s)",
        "FAILED worse: Worse: registry.p99.",
    ]
    assert "registry.p99     128 s    150 s  WORSE\n" in printed.out
    assert printed.out.endswith(f"Worse: registry.p99.\n\n{out}/comparison.html\n")
    assert {path.name for path in out.iterdir()} == {"comparison.html", "comparison.json", "run.json", "_SUCCESS"}
    page = (out / "comparison.html").read_text()
    assert "+22.0 s (+17 %)" in page
    assert "From A to B: p50 110 s to 110 s;" in page
    assert [gate["failed"] for gate in json.loads((out / "comparison.json").read_text())["gates"]] == [
        True,
        False,
        True,
        True,
    ]
    # An existing comparison is replaced, like a report.
    assert (
        main(["compare", *summaries[::-1], "--out", str(out), "--quiet", "--fail-if", "p99>+0", "--fail-if-worse"]) == 0
    )
    assert json.loads((out / "comparison.json").read_text())["verdict"] == "better"


def _eight_hours() -> list[HeartbeatLines]:
    """A log of two servers, from 00:00 to 03:00 and from 00:00 to 08:00; the second one opens a file each hour."""
    hour, settings = 3_600_000, {"scan_interval_ms": 5_000, "broker_expiry_ms": 120_000, "late_ms": 0}
    first = HeartbeatLines("boot-1", "ns-1").start(expiry_ms=60_000).heartbeats(*range(0, 3 * hour, 60_000))
    second = HeartbeatLines("boot-2", "ns-2").start()
    for at in range(0, 8 * hour, 60_000):
        if at and at % hour == 0:
            second.add("opened", at, **settings)
        second.heartbeat(at + 10)
    return [first, second]


def test_each_time_of_one_log_has_its_own_title(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each side shows extent, servers and lines of its own time; silences afterwards are not replayed.

    The page links to the reports of both times, each of which can be compared with a log.
    """
    logs, out = tmp_path / "logs", tmp_path / "out"
    for lines in _eight_hours():
        write_plain(logs, f"{lines.nameserver}-{lines.boot}-1.jsonl", lines.lines)
    times = ["--before", "2026-03-01/2026-03-01T04:00", "--after", "2026-03-01T04:00/2026-03-01T08:00"]

    options = ["--engine", "embedded", "--what-if", SMALL_GRID]

    assert main(["compare", str(logs), *times, "--out", str(out), *options]) == 0

    shown = capsys.readouterr().out
    assert "A: 2026-03-01/2026-03-01T04:00, 2026-03-01 00:00:00 to 2026-03-01 03:59:00 UTC\n" in shown
    assert "B: 2026-03-01T04:00/2026-03-01T08:00, 2026-03-01 04:00:00 to 2026-03-01 07:59:00 UTC\n" in shown
    page = (out / "comparison.html").read_text()
    # 180 heartbeats and a start; 240 heartbeats, a start and three opened files
    assert "ns-1 and ns-2, 2026-03-01 00:00:00 to 2026-03-01 03:59:00 UTC, 425 lines" in page
    # 240 heartbeats and four opened files; the settings come from two starts and three opened files before.
    assert "ns-2, 2026-03-01 04:00:00 to 2026-03-01 07:59:00 UTC, 249 lines" in page
    made = json.loads((out / "comparison.json").read_text())
    assert {"measure": "lines", "unit": "", "a": 425, "b": 249, "judged": "neutral"} in made["measures"]
    assert {"setting": "broker_expiry_ms", "a": [60_000, 120_000], "b": [120_000]} in made["settings"]
    before = json.loads((out / "a" / "summary.json").read_text())
    assert [row["evictions"] for row in before["what_if"]] == [0, 0]
    assert 'href="a/report.html"' in page
    other = tmp_path / "other"
    assert main(["compare", str(out / "b"), str(logs), "--out", str(other), "--quiet", *options]) == 0
    assert {"measure": "lines", "unit": "", "a": 249, "b": 669, "judged": "neutral"} in json.loads(
        (other / "comparison.json").read_text()
    )["measures"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{a}"], "compare takes A and B, or one log with --before and --after; 1 given"),
        (["{a}", "{b}", "--before", "2026-03-01/2026-03-02"], "--before needs --after"),
        (
            [
                "{a}",
                *("--before", "2026-03-01/2026-03-02", "--after", "2026-03-02/2026-03-03", "--since", "2026-03-01"),
            ],
            "--before and --after cannot be combined with --since and --until",
        ),
        (["{a}", "{b}", "--follow"], "--follow and --print-submit cannot be combined with compare"),
        (["{a}", "{tmp}/none.json"], "{tmp}/none.json: no such file or directory"),
        (["{a}", "{tmp}/other.json"], "{tmp}/other.json: not a summary of namesrv-staleness"),
        (["{a}", "{tmp}/torn.json"], "{tmp}/torn.json: not JSON: "),
        (["{a}", "{tmp}/new.json"], "{tmp}/new.json: summary of schema 2, this version compares schema 1"),
        (["{tmp}/old.json", "{b}"], "{tmp}/old.json: summary without p99.9; make its report again"),
    ],
)
def test_incomparable_input_is_named(
    summaries: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """The exit code is 2, and nothing is written."""
    old = empty_summary()
    old["registry"]["all"] = {name: value for name, value in old["registry"]["all"].items() if name != "p999"}
    new = {**empty_summary(), "schema": 2}
    for name, text in (("other", '{"a": 1}'), ("torn", "{"), ("new", as_json(new)), ("old", as_json(old))):
        (tmp_path / f"{name}.json").write_text(text)
    places = {"a": summaries[0], "b": summaries[1], "tmp": tmp_path}

    assert main(["compare", *(one.format(**places) for one in arguments), "--out", str(tmp_path / "out")]) == 2

    assert capsys.readouterr().err.startswith(f"namesrv-staleness: {message.format(**places)}")
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_time_without_its_end_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is about the form of the option, and not about a time without lines."""
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "logs", "--before", "2026-03-01", "--after", "2026-03-02", "--out", "changes"])

    assert "argument --before: '2026-03-01' is not FROM/TO (for example" in capsys.readouterr().err
