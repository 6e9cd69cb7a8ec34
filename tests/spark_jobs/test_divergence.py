"""Divergence of NameServers that share a name, in the report; test_reference.py has the other cases."""

from pathlib import Path

import pytest

from namesrv_spark_jobs.engines.engine import Engine
from tests.support.heartbeat_lines import HeartbeatLines
from tests.support.spark_logs import analysed


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

    summary = analysed(engine, tmp_path, first, second).summary

    texts = [finding["text"].partition(": ")[0] for finding in summary["findings"] if finding["code"] == "shared_name"]
    assert texts == ([] if overlap is None else [f"Boots {overlap} UTC"])
    assert summary["divergence"]["episodes"] == episodes
