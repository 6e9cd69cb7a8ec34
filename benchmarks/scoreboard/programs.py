"""Kinds of rows: coroutines, and figures of the other suites, of tests and of mutation tests."""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from xml.etree import ElementTree as ET

from benchmarks.abuse import scenario
from benchmarks.abuse.attacks import ATTACKS
from benchmarks.abuse.suite import unpinned_bench
from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import BenchError, Figure, Target, at_least, none_of
from benchmarks.harness.rounds import FULL, QUICK, Bench
from benchmarks.harness.servers import temporary_directory
from benchmarks.speed.suite import SUBJECTS
from namesrv_runtime import loops

_PATIENCE_SECONDS: Final = 3_600
# packages with mutants
_MUTATED: Final = ("namesrv", "namesrv_remoting")
# pytest's exit codes after a whole run: all tests passed, or some failed
_FINISHED: Final = (0, 1)

# Measures a row with the given size. Raises BenchError.
Measure = Callable[[int], list[Figure]]


def in_event_loop(measure: Callable[[int], Coroutine[Any, Any, list[Figure]]]) -> Measure:
    """Turn a coroutine function into a measure that runs it in an event loop of its own."""

    @functools.wraps(measure)
    def measured(size: int) -> list[Figure]:
        return loops.run(lambda: measure(size))

    return measured


def together(*measures: Measure) -> Measure:
    """The figures of several experiments."""
    return lambda size: [figure for measure in measures for figure in measure(size)]


def speed(subject: str, targets: Mapping[str, Target | None]) -> Measure:
    """Figures of a subject of `make bench`, with the targets of the row, or with their own (None)."""

    def measured(rounds: int) -> list[Figure]:
        with Bench.pinned(QUICK if rounds < FULL.rounds else FULL) as bench:
            return _with_targets(SUBJECTS[subject](bench), targets)

    return measured


def attack(name: str, targets: Mapping[str, Target | None]) -> Measure:
    """Figures of an attack of `make abuse`, with the targets of the row, and the number of missed targets."""

    def measured(_: int) -> list[Figure]:
        figures = scenario.run(unpinned_bench(), name, ATTACKS[name], scenario.FULL)
        missed = [figure.name for figure in figures if figure.verdict == "missed"]
        what = f"targets missed by attack {name}"
        return [none_of("missed", what, len(missed), " ".join(missed)), *_with_targets(figures, targets)]

    return measured


def _with_targets(figures: Sequence[Figure], targets: Mapping[str, Target | None]) -> list[Figure]:
    """The named figures, with the given targets, or with their own (None). Raises BenchError."""
    by_name = {figure.name: figure for figure in figures}
    if missing := targets.keys() - by_name.keys():
        raise BenchError(f"no figure {', '.join(sorted(missing))}, only {', '.join(by_name)}")
    return [replace(by_name[name], target=target or by_name[name].target) for name, target in targets.items()]


def passing(nodes: Sequence[str], options: Sequence[str] = (), variable: str = "") -> Measure:
    """The number of these tests that fail; the environment variable, if any, passes the size to them."""

    def measured(size: int) -> list[Figure]:
        with temporary_directory("scoreboard") as root:
            report = root / "report.xml"
            command = ("-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options, *nodes)
            done = run_command(sys.executable, *command, environ={variable: str(size)} if variable else {})
            # The report of a run that broke off has only the tests that ran before.
            if done.returncode not in _FINISHED or not report.exists():
                raise BenchError(f"pytest {' '.join(nodes)} ended with {done.returncode}: {done.stdout[-1000:]}")
            suite = ET.parse(report).getroot()[0]  # noqa: S314 - pytest has written it
        count, skipped, failures, errors = (
            int(suite.attrib[name]) for name in ("tests", "skipped", "failures", "errors")
        )
        if skipped:
            raise BenchError(f"{skipped} of {count} tests cannot run here: {done.stdout[-1000:]}")
        return [none_of("failed", "tests that failed", failures + errors, f"of {count:,}")]

    return measured


def histories(count: int) -> list[Figure]:
    """Test the tables against a model with 20,000 histories, or with 200 if `count` is less (tests/conftest.py)."""
    profile = "long" if count >= 20_000 else "full"
    # On a slow machine, 20,000 histories take longer than the ten minutes that pytest gives a test.
    options = [f"--hypothesis-profile={profile}", "-o", f"faulthandler_timeout={_PATIENCE_SECONDS}"]
    return passing(["tests/namesrv/routeinfo/test_state_machine.py"], options)(count)


def mutation(count: int) -> list[Figure]:
    """The share of `count` mutants of each package that its tests notice."""
    done = run_command("make", "mutation", f"MUTANTS={count}", f"PACKAGES={' '.join(_MUTATED)}")
    if done.returncode:
        raise BenchError(f"make mutation ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return noticed(done.stdout)


def noticed(printed: str) -> list[Figure]:
    """The figures in the output of `make mutation`. Raises BenchError if no mutant of one of the packages was tried."""
    matches = re.findall(r"^(\w+): noticed (\d+) of ([1-9]\d*)", printed, re.MULTILINE)
    if {package for package, _, _ in matches} != set(_MUTATED):
        raise BenchError(f"make mutation did not try mutants of {' and '.join(_MUTATED)}: {printed[-1000:]}")
    return [
        Figure(package, package, "times", (int(count) / int(of),), at_least(0.8), f"{count} of {of}")
        for package, count, of in matches
    ]


def run_command(*command: str, environ: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command in the repository's root, and return its output and exit code. Raises BenchError after an hour."""
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(command)}: not done after {_PATIENCE_SECONDS} s") from error
