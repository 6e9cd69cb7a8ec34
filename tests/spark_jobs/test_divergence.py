"""Divergence of NameServers about a broker, in the report."""

from pathlib import Path

import pytest

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.options import Options
from tests.support.heartbeat_lines import HeartbeatLines, broker
from tests.support.spark_logs import write_plain

SLAVE, MASTER = (broker("broker-a", number, broker_addr="10.0.0.1:10911") for number in (1, 0))


def test_slave_that_is_elected_master_stays_the_same_broker(engine: Engine, tmp_path: Path) -> None:
    """A server that restarted before the election knows the broker only as master, the other server as both."""
    before = HeartbeatLines("boot-1", "ns-1").start(0).heartbeats(10_000, 40_000, of=SLAVE).scan(50_000, 10)
    after = HeartbeatLines("boot-2", "ns-1").start(60_000).heartbeat(70_000, SLAVE).heartbeat(100_000, MASTER)
    other = HeartbeatLines("boot-3", "ns-2").start(0).heartbeats(10_000, 40_000, 70_000, of=SLAVE)
    boots = [before, after.scan(105_000, 9), other.heartbeat(100_000, MASTER).scan(105_000, 21)]
    files = [str(write_plain(tmp_path / "logs", f"{boot.boot}.jsonl", boot.lines)) for boot in boots]

    divergence = analyse(engine, files, Options(), lambda _step: None).summary["divergence"]

    # The restarted server lacked the broker until its next heartbeat.
    once = {"episodes": 1, "longest_ms": 10_000, "total_ms": 10_000}
    assert divergence == {**once, "by_broker": {"c1/broker-a/0": once}}


@pytest.mark.parametrize(
    ("names", "restarted_at", "overlap", "episodes"),
    [
        (
            *(("ns-1", "ns-1"), 10_000),
            *("boot-1 and boot-2 of ns-1 overlap from 2026-03-01 00:00:10 to 2026-03-01 00:01:40", 1),
        ),
        (("ns-1", "ns-2"), 10_000, None, 1),
        # The clocks of two boots are not exact to the millisecond.
        (("ns-1", "ns-1"), 99_000, None, 0),
    ],
)
def test_servers_disagree_whether_they_share_a_name_or_not(
    engine: Engine, tmp_path: Path, names: tuple[str, str], restarted_at: int, overlap: str | None, episodes: int
) -> None:
    """Two servers disagree about a broker, whether or not the servers share a name."""
    first = HeartbeatLines("boot-1", names[0]).start().heartbeats(1_000, 31_000).scan(100_000, 20)
    second = HeartbeatLines("boot-2", names[1]).start(restarted_at).scan(200_000, 20)
    files = [str(write_plain(tmp_path / one.boot, "log.jsonl", one.lines)) for one in (first, second)]

    summary = analyse(engine, files, Options(), lambda _step: None).summary

    texts = [finding["text"].partition(": ")[0] for finding in summary["findings"] if finding["code"] == "shared_name"]
    assert texts == ([] if overlap is None else [f"Boots {overlap} UTC"])
    assert summary["divergence"]["episodes"] == episodes


def test_log_that_begins_while_a_broker_is_down(engine: Engine, tmp_path: Path) -> None:
    """Both servers lack the broker until it registers again; one server was restarted after the log began."""
    first = HeartbeatLines("boot-1", "ns-1").scan(0, 9).heartbeat(60_000, silent_ms=0).scan(100_000, 19)
    second = HeartbeatLines("boot-2", "ns-2").start(10_000).heartbeat(60_500).scan(100_000, 18)
    files = [str(write_plain(tmp_path / "logs", f"{one.boot}.jsonl", one.lines)) for one in (first, second)]

    divergence = analyse(engine, files, Options(), lambda _step: None).summary["divergence"]

    assert (divergence["episodes"], divergence["total_ms"]) == (1, 500)


def test_server_whose_log_ends_before_a_line_about_a_broker(engine: Engine, tmp_path: Path) -> None:
    """A server whose log ends early may have the broker all the time, while a server with a longer log lacks it."""
    ends = HeartbeatLines("boot-1", "ns-1").scan(0, 9).late(130_000, 40_000).scan(155_000, 40)
    lacks = HeartbeatLines("boot-2", "ns-2").scan(0, 9).scan(200_000, 49)
    has = HeartbeatLines("boot-3", "ns-3").start(0).heartbeat(10_000).scan(200_000, 40)
    all_lines = {one.boot: one.lines for one in (ends, lacks, has)}
    logs = {boot: str(write_plain(tmp_path / "logs", f"{boot}.jsonl", lines)) for boot, lines in all_lines.items()}

    totals = [
        analyse(engine, [logs[boot], logs["boot-3"]], Options(), lambda _step: None).summary["divergence"]["total_ms"]
        for boot in ("boot-1", "boot-2")
    ]

    assert totals == [0, 190_000]
