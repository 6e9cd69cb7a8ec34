"""The scoreboard: measures each promise of the project, row by row, and writes each result to the page at once.

A red row is a result: the exit code is 1 only if a row could not be measured or, with --check, if the page says
anything else than its records, or lacks a row.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.build import ROOT
from benchmarks.harness.command import IMPOSSIBLE, Command
from benchmarks.harness.conditions import Conditions
from benchmarks.scoreboard import page, slices
from benchmarks.scoreboard.rows import ROWS

_PAGE: Final = ROOT / "docs" / "scoreboard.md"
_SHOWN_CHARACTERS: Final = 100


def main(arguments: Sequence[str]) -> int:
    """Measure the rows of the scoreboard."""
    command = Command(
        "scoreboard", "Measure the promises of this project, and write the page.", {n: r.what for n, r in ROWS.items()}
    )
    add = command.parser.add_argument
    add(
        "--all",
        action="store_true",
        help="also rows whose colour a run cannot change, but for those that need a longer run",
    )
    add("--in-full", action="store_true", help="as much of each row as its target needs, which may take days")
    add("--page", type=Path, default=_PAGE, metavar="FILE", help="write this page (docs/scoreboard.md)")
    add("--check", action="store_true", help="measure nothing: fail if the page lacks a row or contradicts its records")
    add("--refresh", action="store_true", help="measure nothing: show on the page which rows have gone yellow")
    options = command.parse(arguments)
    if options.check:
        return _checked(options.page)
    sizes = {name: _size(row, options) for name, row in ROWS.items()}
    names = [] if options.refresh else options.only or _outdated(options, sizes)
    failed = [name for name in names if not _measured(name, sizes[name], options.page)]
    # Rows that were not measured may have become yellow.
    _write(options.page, {})
    if failed:
        print(f"scoreboard: could not be measured: {' '.join(failed)}")
    return int(bool(failed))


def _checked(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    wrong, missing = page.wrong_lines(ROWS, text), ROWS.keys() - page.records(text).keys()
    for line in wrong:
        print(f"scoreboard: the page's records do not say: {line[:_SHOWN_CHARACTERS]}")
    if wrong:
        print("scoreboard: measure these rows again, or show their colours: make scoreboard ARGS=--refresh")
    for name in sorted(missing):
        print(f"scoreboard: {name} is not measured")
    return int(bool(wrong or missing))


def _size(row: page.Row, options: argparse.Namespace) -> int:
    """The size of a row's run, as the options choose it."""
    return (options.in_full and row.full) or row.size or row.full


def _outdated(options: argparse.Namespace, sizes: Mapping[str, int]) -> list[str]:
    """The rows to be run, since a run may change their colour or `--all` was given.

    Prints these rows, and those that are left out, since they take long or a run would be shorter than the last one;
    without `--all`, green rows are not printed.
    """
    records = page.read(options.page)
    colours = page.results(ROWS, records)
    chosen = []
    for name, row in ROWS.items():
        record, size = records.get(name), sizes[name]
        is_outdated = record is None or record.is_outdated(row, size)
        # A shorter run of a row whose files are the same would show less than the page does.
        is_repeated = options.all and record is not None and record.size(row) <= size
        is_chosen = (is_outdated or is_repeated) and not row.is_long
        if is_chosen:
            chosen.append(name)
        if options.all or is_outdated or colours[name] != page.GREEN:
            hint = _hint(name, sizes[name], is_chosen=is_chosen)
            print(f"scoreboard: {name} is {colours.get(name, 'not measured')}{hint}", flush=True)
    return chosen


def _hint(name: str, size: int, *, is_chosen: bool) -> str:
    """The options that measure a row in full, unless the present run does."""
    in_full = size >= ROWS[name].full
    command = f"--only {name}" if in_full else f"--only {name} --in-full"
    if not is_chosen:
        return f" (left out, as it takes long: {command})"
    return "" if in_full else f" (shortened; in full: {command})"


def _measured(name: str, size: int, path: Path) -> bool:
    """Measure a row and write it to the page; False if it could not be measured."""
    row, conditions, began = ROWS[name], Conditions.now(), time.monotonic()
    # The digest is made before the run, so that a file that changes during the run makes the row yellow.
    files = page.digest(row)
    if row.goes_on and (known := page.read(path).get(name)) is not None:
        slices.begin_after(slices.JOURNALS / f"{name}.jsonl", row.files, *known.finished(row, files))
    try:
        figures = row.measure(size)
    except IMPOSSIBLE as error:
        print(f"scoreboard: {name} cannot be measured: {error}")
        return False
    record = page.Record.of(row, size, figures, {**conditions.members(), "files": files})
    _write(path, {name: record})
    colour = record.result(row)
    print(f"scoreboard: {name} is {colour}, after {time.monotonic() - began:.0f} s")
    for figure in figures:
        print(f"  {page.format_figure(figure)}", flush=True)
    return True


def _write(path: Path, new: dict[str, page.Record]) -> None:
    # The page is read again, because another run may have written rows in the meantime.
    path.write_text(page.text(ROWS, {**page.read(path), **new}), encoding="utf-8")
