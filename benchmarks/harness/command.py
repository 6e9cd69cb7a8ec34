"""Command-line options that all suites share, the run of their subjects, and the output of their results."""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import table
from benchmarks.harness.build import BUILT
from benchmarks.harness.conditions import Conditions, sentence
from benchmarks.harness.figures import BenchError, Figure
from benchmarks.harness.rounds import Bench
from benchmarks.harness.table import with_block

# Errors of a measurement that is impossible here; `ip` raises AssertionError (tests/netns/network.py).
IMPOSSIBLE: Final = (BenchError, OSError, AssertionError)

# Measures one subject, which the first line of the function's docstring describes. Raises one of IMPOSSIBLE.
Measure = Callable[[Bench], list[Figure]]
# name of a subject -> its figures
Found = Mapping[str, list[Figure]]


class Command:
    """The command line of one suite; `parse` reads it."""

    def __init__(self, suite: str, description: str, subjects: Mapping[str, str]) -> None:
        self.parser = argparse.ArgumentParser(prog=f"python -m benchmarks {suite}", description=description)
        self.parser.set_defaults(only=[], list=False, quick=False, write=None)
        self._suite = suite
        self._subjects = subjects
        if subjects:
            self.parser.add_argument("--only", nargs="+", metavar="NAME", help="what to measure; default: everything")
            self.parser.add_argument("--list", action="store_true", help="list the names and exit")

    def add_results(self) -> None:
        """Add the options for files with the results."""
        self.parser.add_argument(
            "--json", type=Path, default=BUILT / f"{self._suite}.json", metavar="FILE",
            help=f"write every figure of every round to this file (build/benchmarks/{self._suite}.json)",
        )  # fmt: skip
        self.parser.add_argument(
            "--write", type=Path, metavar="FILE", help="replace the marked block of a Markdown file"
        )

    def add_quick(self) -> None:
        """Add the option --quick."""
        self.parser.add_argument("--quick", action="store_true", help="two short rounds instead of five: a rough idea")

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parse the options; `only` has each requested name once, in the given order."""
        options = self.parser.parse_args(arguments)
        if options.list:
            width = max(map(len, self._subjects))
            print("\n".join(f"{name:<{width}}  {what}" for name, what in self._subjects.items()))
            self.parser.exit(0)
        options.only = list(dict.fromkeys(options.only))
        if unknown := [name for name in options.only if name not in self._subjects]:
            self.parser.error(f"unknown name {unknown[0]!r}; --list shows all")
        if options.write is not None:
            if options.quick:
                self.parser.error("--write needs all rounds: leave out --quick")
            # A page without a marked block is an error now, not after minutes of measuring.
            with_block(options.write.read_text(encoding="utf-8"), "")
        return options


def measure_and_report(
    bench: Bench,
    subjects: Mapping[str, Measure],
    options: argparse.Namespace,
    sections: Callable[[Found], table.Sections],
) -> tuple[list[Figure], bool]:
    """Measure the requested subjects, or all, and report their figures in sections.

    Return the figures, and True if every subject could be measured; a message explains each other one.

    Raises:
        BenchError: some subjects are left out, and the page to be written would lose their figures.
    """
    names = options.only or list(subjects)
    if options.write is not None and (lost := [name for name in subjects if name not in names]):
        raise BenchError(f"{options.write} would lose the figures of {', '.join(lost)}: --write needs all of them")
    conditions, found = Conditions.now(), dict[str, list[Figure]]()
    for name in names:
        began = time.monotonic()
        try:
            found[name] = subjects[name](bench)
        except IMPOSSIBLE as error:
            bench.progress(f"{name} cannot be measured: {error}")
        else:
            bench.progress(f"{name} took {time.monotonic() - began:.0f} s: {table.summary(found[name])}")
    figures, is_complete = [figure for each in found.values() for figure in each], len(found) == len(names)
    _report(options, conditions.members(), sections(found), figures, is_complete=is_complete)
    return figures, is_complete


def judged(figures: Sequence[Figure], *, is_complete: bool) -> int:
    """The exit code of a suite whose targets are bounds: 1 when one is missed, 2 when a subject was not measured."""
    return int(any(figure.verdict == "missed" for figure in figures)) if is_complete else 2


def titles(subjects: Mapping[str, object]) -> dict[str, str]:
    """The description of each subject."""
    return {name: (each.__doc__ or "").partition("\n")[0].rstrip(".") for name, each in subjects.items()}


def by_title(subjects: Mapping[str, object], found: Found) -> table.Sections:
    """A section for each measured subject."""
    what = titles(subjects)
    return {what[name]: figures for name, figures in found.items()}


def _report(
    options: argparse.Namespace,
    conditions: Mapping[str, Any],
    sections: table.Sections,
    figures: Sequence[Figure],
    *,
    is_complete: bool,
) -> None:
    """Print the sections of figures, write all figures as JSON, and, if none is missing, the page that was named."""
    shown, summary = table.figures_markdown(sections), table.summary(figures)
    print(f"{shown}\n\n{sentence(conditions)}\n{summary}")
    results = {"conditions": conditions, "figures": [figure.members() for figure in figures]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.write is not None and is_complete:
        page = options.write.read_text(encoding="utf-8")
        block = f"{sentence(conditions)}\n\n{shown}\n\n{summary}."
        options.write.write_text(with_block(page, block), encoding="utf-8")
