"""The number of rows in an analysis grows linearly with the log."""

import re
from pathlib import Path
from typing import Any

from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.engines.embedded.tables import Table
from namesrv_spark_jobs.frames import written_in
from namesrv_spark_jobs.transforms import clients

MINUTE = 60_000_000


def rows_looked_at(engine: EmbeddedEngine, table: Table) -> int:
    """The largest number of rows between two steps of a query, with filters not pushed into joins."""
    engine.rows_of("SET disabled_optimizers = 'filter_pushdown'")
    (plan,) = (row["explain_value"] for row in engine.rows_of(f"EXPLAIN (ANALYZE, FORMAT json) {table.sql}"))
    rows = [int(number) for number in re.findall(r'"intermediate_rows": (\d+)', plan)]
    assert rows
    return max(rows)


def test_a_flapping_broker_before_many_clients(tmp_path: Path) -> None:
    """A broker dies each minute, seen by all clients: rows grow with deaths times clients, not with deaths squared."""
    deaths, listeners = 60, 10
    with EmbeddedEngine(tmp_path / "staging") as engine, written_in(engine):

        def table(columns: str, rows: str) -> Any:
            query = f"SELECT {columns} FROM {rows}"  # noqa: S608 - written below
            return engine.stored(Table(engine, query, engine.columns_of(query)), "given")

        minutes = f"(SELECT range * {MINUTE}::BIGINT AS began, range AS n FROM range({deaths}))"  # noqa: S608 - numbers
        died = "began + 30000000 AS removed, began AS last_ok, 86400000000 AS last, 5000000 AS scan_interval"
        broker = "1 AS boot, 'b' AS broker_name, 0 AS broker_id"
        dead = table(f"7 AS key, n AS evict_seq, true AS is_unannounced, {died}, {broker}", minutes)
        # The first revision of each minute has the broker; the second one lacks the broker.
        members = table(f"'t' AS topic, 2 * n AS revision, {broker}", minutes)
        routes = table("1 AS boot, 't' AS topic, range AS revision, true AS is_known", f"range({2 * deaths})")
        at = f"{MINUTE // 2}::BIGINT * t.range + 1000 + c.range AS mono, {listeners} * t.range + c.range AS seq"
        given = table(
            f"1 AS boot, 'k' || c.range AS client, 't' AS topic, t.range AS revision, 1 AS count, {at}",
            f"range({2 * deaths}) t, range({listeners}) c",
        )
        no_lines = table("1 AS boot, '' AS client, '' AS event, 0 AS mono", "range(0)")
        served = engine.stored(clients.served(given, routes), "served")
        exposures: Any = clients.exposures(dead, members, served, no_lines)
        pulls: Any = clients.exposed_pulls(dead, members, given)

        exposed = exposures.collect()
        assert len(exposed) == deaths * listeners
        assert {("seen", 30_001_000 + number) for number in range(listeners)} == {
            (row["outcome"], row["staleness"]) for row in exposed
        }
        # A response in the first half of a minute had the broker, before its eviction.
        assert sum(row["pulls"] for row in pulls.collect()) == deaths * listeners
        most = max(rows_looked_at(engine, exposures), rows_looked_at(engine, pulls))
        assert most <= 2 * (2 * deaths * listeners)
