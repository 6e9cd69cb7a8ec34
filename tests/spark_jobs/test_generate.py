"""The generator of logs keeps the contract, is deterministic for a seed, and reports the truth about its log."""

import gzip
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.spark_jobs.reference import Analysis
from tests.spark_jobs.reference.registration_periods import UNANNOUNCED
from tools.heartbeat_logs import Settings, generate
from tools.heartbeat_logs.cli import main
from tools.heartbeat_logs.settings import BEGIN, MINUTE

QUIET = Settings(duration=100 * MINUTE, brokers=20, clients=10, deaths=20.0)
# All faults at once.
ROUGH = replace(QUIET, seed=7, brokers=24, clients=30, deaths=40.0, skew=0.3, jitter=0.1, missed=0.15)
ROUGH = replace(
    ROUGH, session=20 * MINUTE, restarts=2, clock_steps=3, lates=12, torn=True, duplicates=0.01, out_of_order=0.05
)


def contents(directory: Path) -> dict[str, bytes]:
    """The unpacked content of every log file below a directory, by path."""
    found = {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*.jsonl*"))}
    del found["_truth.jsonl"]
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in found.items()}


def events(directory: Path) -> list[dict[str, Any]]:
    """Every complete line of a log."""
    return [json.loads(line) for data in contents(directory).values() for line in data.splitlines()]


def truth(directory: Path) -> list[dict[str, Any]]:
    """The generator's list of deaths, with their causes."""
    return [json.loads(line) for line in (directory / "_truth.jsonl").read_bytes().splitlines()]


def analysed(directory: Path) -> Analysis:
    """The reference's analysis of the log."""
    return Analysis({name: data.split(b"\n") for name, data in contents(directory).items()})


def test_files_have_the_paths_of_the_contract(tmp_path: Path) -> None:
    """Each server and hour has a file; the first begins with `start`, the second with `opened`; numbers continue."""
    lines = generate(QUIET, tmp_path)

    files = contents(tmp_path)
    name = re.compile(r"dt=2026-03-01/hour=0([01])/ns-[12]-[0-9a-f]{16}-([12])\.jsonl\.gz")
    matches = [name.fullmatch(path) for path in files]
    assert len(matches) == 4
    assert all(match is not None and int(match[1]) + 1 == int(match[2]) for match in matches)
    for path, data in files.items():
        first = json.loads(data.splitlines()[0])
        assert first["event"] == ("start" if path.endswith("-1.jsonl.gz") else "opened")
        assert (first["scan_interval_ms"], first["broker_expiry_ms"]) == (5_000, 120_000)
    for server in ("ns-1", "ns-2"):
        seqs = [line["seq"] for line in events(tmp_path) if line["nameserver"] == server]
        assert list(range(1, len(seqs) + 1)) == seqs
    assert len(events(tmp_path)) == lines


@pytest.mark.slow
def test_the_reference_finds_the_truth_in_it(tmp_path: Path) -> None:
    """Every removal, and the staleness at every client, is exact to the microsecond, as is the replay."""
    generate(ROUGH, tmp_path)

    analysis = analysed(tmp_path)
    _check_that_what_goes_wrong_is_there(analysis, tmp_path)
    removals = [removal for death in truth(tmp_path) for removal in death["removals"]]
    assert Counter(
        (x["boot_id"], x["broker_addr"], x["reason"], _between(x["last_ok_ms"], x["removed_ms"])) for x in removals
    ) == Counter(
        (x.boot.boot, x.broker.broker_addr, x.reason, (x.removed or 0) - x.last_ok) for x in analysis.intervals
    )
    assert Counter(
        (x["boot_id"], x["broker_addr"], client["client"], client["topic"], client["outcome"])
        + (() if client["at_ms"] is None else (_between(x["last_ok_ms"], client["at_ms"]),))
        for x in removals
        if x["reason"] in UNANNOUNCED
        for client in x["clients"]
    ) == Counter(
        (x.period.boot.boot, x.period.broker.broker_addr, x.client, x.topic, x.outcome)
        + (() if x.outcome == "log_end" else (x.staleness,))
        for x in analysis.clients
    )
    assert analysis.as_logged["exact"]
    assert analysis.as_logged["logged"]
    assert analysis.unknown_revisions == 0
    assert not any(period.is_over_bound for period in analysis.intervals)


def _between(begin_ms: float, end_ms: float) -> int:
    return round((end_ms - begin_ms) * 1000)


def _check_that_what_goes_wrong_is_there(analysis: Analysis, directory: Path) -> None:
    """Check the faults: truncated lines, clock steps, repeated and late lines, closed connections, false silences."""
    count: Counter[str] = sum(analysis.files.values(), Counter())
    assert len(analysis.boots) == 6
    # The last line of every boot, two of these in files that stayed open.
    assert count["bad"] == 6
    assert sum(path.endswith(".jsonl.open") for path in contents(directory)) == 2
    assert 0 < count["duplicates"] < 0.02 * count["lines"]
    assert count["clock_steps"] > 0
    assert any(boot.of("late") for boot in analysis.boots)
    assert any(later.seq < earlier.seq for boot in analysis.boots for earlier, later in pairwise(boot.lines))
    assert {"seen", "returned", "client_gone"} <= {one.outcome for one in analysis.clients}
    kinds = {death["kind"] for death in truth(directory)}
    assert kinds == {"crash", "silence", "unregister", "false_silence", "missed_beats"}
    assert analysis.false_evictions
    assert analysis.near_misses


@pytest.mark.slow
def test_every_false_silence_that_was_noticed_is_a_false_eviction(tmp_path: Path) -> None:
    """After a false silence the same process sends the next heartbeat."""
    generate(Settings(duration=100 * MINUTE, brokers=40, deaths=40.0, native=1.0, false_silence=9.0), tmp_path)

    noticed = {
        (removal["boot_id"], removal["broker_addr"], _between(removal["last_ok_ms"], removal["removed_ms"]))
        for death in truth(tmp_path)
        # The broker is back before the log ends.
        if death["kind"] == "false_silence" and death["back_ms"] < (BEGIN + 99 * MINUTE) / 1000
        for removal in death["removals"]
    }
    assert noticed
    assert noticed <= {(x.boot.boot, x.broker.broker_addr, x.upper) for x in analysed(tmp_path).false_evictions}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """The same seed gives the same bytes; another seed gives other lines."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate(Settings(seed=seed, duration=140 * MINUTE, brokers=4, restarts=1, torn=True), tmp_path / name)

    first, second, third = (
        {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in "abc"
    )
    assert first == second
    assert first != third


def test_invalid_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has one line, and nothing is overwritten."""
    with pytest.raises(ValueError, match=r"^skew must be a share from 0 to less than 1: 1\.5$"):
        Settings(skew=1.5)
    (tmp_path / "mine").touch()
    assert main(["--out", str(tmp_path)]) == 2

    assert capsys.readouterr().err == f"heartbeat_logs: {tmp_path} is not empty\n"
