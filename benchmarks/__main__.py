"""Speed and size of the NameServer: `python -m benchmarks` (or `make bench`) measures and reports them.

A target that is missed is a result, not a failure: the exit code is 1 only when something could not be measured.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from benchmarks import (
    agents,
    client,
    connections,
    console,
    eviction,
    heartbeat_log,
    heartbeats,
    herd,
    memory,
    profiles,
    pulls,
    registration,
    registration_cost,
    report,
    rolling,
    scrapes,
    staleness,
    startup,
    tls,
)
from benchmarks.build import BuildError, program
from benchmarks.conditions import Conditions
from benchmarks.figures import BenchError, Figure
from benchmarks.rounds import FULL, QUICK, Bench, Cores, Effort
from benchmarks.servers import end_in_order


class Question(Protocol):
    """A file of this folder that measures something; its docstring says what."""

    __doc__: str | None

    def measure(self, bench: Bench) -> list[Figure]:
        """The answer. Raises BenchError when there is none."""
        ...


# in the order of the report
QUESTIONS: Final[Mapping[str, Question]] = {
    "pulls": pulls,
    "heartbeats": heartbeats,
    "heartbeat_log": heartbeat_log,
    "registration": registration,
    "registration_cost": registration_cost,
    "eviction": eviction,
    "memory": memory,
    "connections": connections,
    "herd": herd,
    "rolling": rolling,
    "profiles": profiles,
    "tls": tls,
    "scrapes": scrapes,
    "startup": startup,
    "agents": agents,
    "client": client,
    "staleness": staleness,
    "console": console,
}


def title(question: object) -> str:
    """What a file measures: the first line of its docstring."""
    return (question.__doc__ or "").partition("\n")[0].rstrip(".")


def main(
    arguments: Sequence[str] | None = None,
    questions: Mapping[str, Question] = QUESTIONS,
    command: str = "python -m benchmarks",
    parents: Sequence[argparse.ArgumentParser] = (),
) -> int:
    """Measure, print, and write where the options say; those of the parents are theirs."""
    options = _options(questions, command, parents).parse_args(arguments)
    if options.list:
        print(report.listing({name: title(question) for name, question in questions.items()}))
        return 0
    end_in_order()
    try:
        bench = _bench(_effort(options))
        if options.write is not None:
            # before minutes are spent: there is a place for what comes out
            report.with_block(options.write.read_text(encoding="utf-8"), "")
        return _run(bench, options, questions)
    except (BuildError, BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(bench: Bench, options: argparse.Namespace, questions: Mapping[str, Question]) -> int:
    conditions = Conditions.now(bench)
    sections, failed = _measured(bench, {name: questions[name] for name in options.only or questions})
    conditions = conditions.ended()
    print(report.text_table(sections))
    print(f"\n{conditions}\n{report.summary([figure for section in sections.values() for figure in section])}")
    if options.json is not None:
        options.json.write_text(report.to_json(sections, conditions.members()) + "\n", encoding="utf-8")
    if options.write is not None and not failed:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(report.with_block(page, report.markdown(sections, str(conditions))), encoding="utf-8")
    return 1 if failed else 0


def _effort(options: argparse.Namespace) -> Effort:
    effort = QUICK if options.quick else FULL
    return replace(effort, profiles=tuple(options.profile)) if options.profile else effort


def _bench(effort: Effort) -> Bench:
    cores = Cores.ours()
    programs = program("load"), program("limit")
    if cores.load is not None:
        # for ourselves and every load; servers are moved to their own
        os.sched_setaffinity(0, {cores.load})
    return Bench(effort, cores, *programs)


def _options(
    questions: Mapping[str, Question], command: str, parents: Sequence[argparse.ArgumentParser]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=command,
        parents=parents,
        description="Measure speed and size of the NameServer. Missed targets are reported and are no failure.",
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(questions), metavar="NAME", help="these questions (see --list)"
    )
    parser.add_argument("--quick", action="store_true", help="two short rounds instead of five: a rough idea")
    parser.add_argument(
        "--profile", nargs="+", choices=list(profiles.PROFILES), help="these sizes of `profiles` (all; with --quick S)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure with all of its rounds")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the marked block of a Markdown file")
    parser.add_argument("--list", action="store_true", help="list the questions and end")
    return parser


def _measured(bench: Bench, questions: Mapping[str, Question]) -> tuple[dict[str, list[Figure]], bool]:
    """The figures under their titles, and whether any could not be measured."""
    sections: dict[str, list[Figure]] = {}
    failed = False
    for name, question in questions.items():
        began = time.monotonic()
        try:
            sections[title(question)] = question.measure(bench)
        except (BenchError, OSError) as error:
            bench.progress(f"{name} cannot be measured: {error}")
            failed = True
        bench.progress(f"{name} took {time.monotonic() - began:.0f} s")
    return sections, failed


if __name__ == "__main__":
    sys.exit(main())
