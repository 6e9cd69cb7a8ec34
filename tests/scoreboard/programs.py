"""Rows whose figures other programs of ours give: `make bench`, `make abuse` and the tests."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from benchmarks.figures import BenchError, Figure, Target
from tests.scoreboard.results import figure_of
from tests.scoreboard.row import none_of

ROOT: Final = Path(__file__).parents[2]
_PATIENCE_SECONDS: Final = 1800


Measure = Callable[[int], list[Figure]]


def together(*measures: Measure) -> Measure:
    """The figures of several experiments."""
    return lambda size: [figure for measure in measures for figure in measure(size)]


def bench(question: str, targets: Mapping[str, Target | None]) -> Measure:
    """Figures of `make bench` by name, each with the target of this row, or with its own."""

    def measured(rounds: int) -> list[Figure]:
        quick = ("--quick",) if rounds < 5 else ()
        said = _said("benchmarks", "--only", question, *quick)
        found = {figure["name"]: figure_of(figure) for figure in said["figures"]}
        if missing := targets.keys() - found.keys():
            raise BenchError(f"{question} has no figure {', '.join(sorted(missing))}, only {', '.join(found)}")
        return [_aimed(found[name], target) for name, target in targets.items()]

    return measured


def _aimed(figure: Figure, target: Target | None) -> Figure:
    return Figure(figure.name, figure.what, figure.unit, figure.values, target or figure.target, figure.behind)


def attack(name: str, figures: Callable[[dict[str, Any]], list[Figure]]) -> Measure:
    """What an attack of `make abuse` cost; `figures` reads its line of the JSON."""

    def measured(_: int) -> list[Figure]:
        said = _said("benchmarks.abuse", "--only", name)["attacks"][0]
        what = f"targets of `make abuse` missed, attack {name}"
        return [none_of("missed", what, len(said["missed"]), " ".join(said["missed"])), *figures(said)]

    return measured


def soak(minutes: int) -> list[Figure]:
    """What `make soak` finds; it says on standard error how far it is."""
    patience_seconds = minutes * 60 + _PATIENCE_SECONDS
    said = _said("benchmarks.soak", "--minutes", str(minutes), patience_seconds=patience_seconds, stderr=None)
    times = ", ".join(f"{count:,} {name}" for name, count in said["done"].items())
    return [
        none_of("missed", "bounds of `make soak` broken", len(said["missed"]), "; ".join(said["missed"])),
        Figure(
            "rss",
            "memory grown in an hour",
            "megabytes",
            (1.048576 * said["rss_mib_per_hour"],),
            behind=f"{said['rss_mib']:g} MiB in the end",
        ),
        none_of("untrue", "times the tables were not the truth", said["untrue_tables"], times),
        none_of("lines", "unexpected log lines", said["unexpected_log_lines"]),
    ]


def _said(
    module: str, *arguments: str, patience_seconds: float = _PATIENCE_SECONDS, stderr: int | None = subprocess.PIPE
) -> dict[str, Any]:
    """What a program of ours writes as JSON. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root:
        out = Path(root) / "figures.json"
        done = _run(*("-m", module, *arguments, "--json", str(out)), patience_seconds=patience_seconds, stderr=stderr)
        if not out.exists():
            why = (done.stderr or "")[-1000:]
            raise BenchError(f"{module} {' '.join(arguments)} ended with {done.returncode}: {why}")
        said: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return said


def passing(nodes: Sequence[str], options: Sequence[str] = (), variable: str = "") -> Measure:
    """How many of these tests fail; the variable, if any, tells them the size."""

    def measured(size: int) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root:
            report = Path(root) / "report.xml"
            done = _run(
                *("-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"),
                *options,
                *nodes,
                environ={variable: str(size)} if variable else {},
            )
            if not report.exists():
                raise BenchError(f"pytest {' '.join(nodes)} ended with {done.returncode}: {done.stdout[-1000:]}")
            suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314 - pytest has written it
        assert suite is not None, report
        count, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
        if count == skipped:
            raise BenchError(f"none of {count} tests can run here: {done.stdout[-1000:]}")
        failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        behind = f"of {count - skipped:,}" + (f", {skipped} skipped" if skipped else "")
        return [none_of("failed", "tests that failed", failed, behind)]

    return measured


def _run(
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    patience_seconds: float = _PATIENCE_SECONDS,
    stderr: int | None = subprocess.PIPE,
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
            timeout=patience_seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(arguments)}: not done after {patience_seconds:g} s") from error
