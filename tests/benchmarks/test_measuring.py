"""What is measured, in which order and where, and what the measuring programs print, becomes figures."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import agents
from benchmarks.eviction import in_rounds
from benchmarks.figures import BenchError
from benchmarks.loads import Load, read_load
from benchmarks.rounds import Bench, Cores, Effort

LINE = (
    '{"mode":"route","header":"json","connections":200,"depth":1,"seconds":2.000,"answers":200000,'
    '"answers_per_second":100000,"bytes_per_second":1,"p50_us":900.5,"p99_us":2100.0,"p999_us":3000.0,'
    '"max_us":4000.0,"oldest_unanswered_us":12.0,"failed":3}\n'
)


def test_every_other_round_goes_backwards(capsys: pytest.CaptureFixture[str]) -> None:
    """No case always comes first, and each case's values are in the order of the rounds."""
    bench = Bench(Effort(rounds=3, seconds=1), Cores(None, None), Path("load"), Path("limit"))
    called: list[str] = []

    def call(name: str) -> int:
        called.append(name)
        return len(called)

    found = bench.in_turn("things", {name: partial(call, name) for name in ("a", "b")})

    assert ["a", "b", "b", "a", "a", "b"] == called
    assert {"a": [1, 4, 5], "b": [2, 3, 6]} == found
    assert capsys.readouterr().err.splitlines()[-1] == "bench: things, round 3 of 3"


@pytest.mark.parametrize(
    ("allowed", "expected"), [({3}, Cores(None, None)), ({5, 2}, Cores(2, 5)), ({0, 1, 2}, Cores(0, 1))]
)
def test_server_and_load_get_a_core_each(allowed: set[int], expected: Cores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two that we may use; with a single one nobody is pinned."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)

    assert expected == Cores.ours()


def test_a_round_is_the_median_of_deaths_that_follow_one_another() -> None:
    """One slow death in a round does not move it; a last, shorter round counts, too."""
    assert [2.0, 5.0, 7.5] == in_rounds([1.0, 2.0, 90.0, 5.0, 5.0, 4.0, 7.0, 8.0], each=3)


def test_a_line_of_load_is_read() -> None:
    """The server's computing time is shared out among the answers; who still waits may have waited longest."""
    found: dict[str, Any] = {
        "answers": 200_000,
        "answers_per_second": 100_000,
        "p50_us": 900.5,
        "p99_us": 2100,
        "p999_us": 3000,
        "failed": 3,
    }
    waiting = LINE.replace('"oldest_unanswered_us":12.0', '"oldest_unanswered_us":90000.0')

    assert Load(**found, longest_us=4000, computing_us=9.0) == read_load(LINE, computing_seconds=1.8)
    assert read_load(waiting, 1.0).longest_us == 90_000
    for line in ("", "load: done\n", "[]", '{"answers":1}', LINE.replace(":200000,", ":0,")):
        with pytest.raises(BenchError, match="load printed"):
            read_load(line, 1.0)


def test_rounds_of_agents_become_figures_with_their_targets() -> None:
    """A quarter of a core, and 20 ms at the median of a round; the longest has no target.

    Brokers that had to register again are no measurement: connections that break cost more than heartbeats do.
    """
    said: dict[str, Any] = {
        "cores": [0.05, 0.3, 0.04],
        "reached_ms": [[2.0, 3.0, 90.0], [1.0, 1.0, 1.0], [30.0, 40.0, 50.0]],
        "registering_seconds": 3.84,
        "surplus_registrations": 0,
    }
    cores, reached, longest = agents.figures(said)

    assert (0.05, "met", "all registered 3.8 s after the first began") == (cores.value, cores.verdict, cores.behind)
    assert ((3.0, 1.0, 40.0), 3.0, "met") == (reached.values, reached.value, reached.verdict)
    assert ((90.0, 1.0, 50.0), "") == (longest.values, longest.verdict)
    with pytest.raises(BenchError, match=r"^agents: 3 registrations too many, connections broke$"):
        agents.figures({**said, "surplus_registrations": 3})
