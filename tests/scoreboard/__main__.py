"""Scoreboard: `python -m tests.scoreboard` (or `make scoreboard`) measures what we promise and writes the page.

A row that is red is a result: the exit code is 1 only when a row could not be measured.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.build import BuildError
from benchmarks.figures import BenchError
from tests.scoreboard import results
from tests.scoreboard.rows import ROWS, SECTIONS

PAGE: Final = Path(__file__).parents[2] / "docs" / "scoreboard.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and put each row on the page as soon as it is there."""
    options = _options().parse_args(arguments)
    names = options.only or [
        name for name, row in ROWS.items() if (row.short is not None if options.short else not row.is_long)
    ]
    if options.timed:
        names = [name for name in names if ROWS[name].is_timed]
    if options.list:
        names = []
        _say(*(f"{name:4} {row.what}" for name, row in ROWS.items()))
    data = options.page.with_suffix(".json")
    if options.take is not None:
        names = []
        _keep(data, options.take)
    failed = [name for name in names if not _measured(name, data, is_short=options.short)]
    found = results.load(data)
    options.page.write_text(results.page(SECTIONS, found), encoding="utf-8")
    if failed:
        _say(f"scoreboard: could not be measured: {' '.join(failed)}")
    return int(bool(failed))


def _measured(name: str, data: Path, *, is_short: bool) -> bool:
    """Measure a row, and keep what was found among all that was found before; whether it could be."""
    row = ROWS[name]
    size = row.short if is_short and row.short is not None else row.size
    began, conditions = time.monotonic(), results.Conditions.now()
    try:
        figures = row.measure(size)
    except (BenchError, BuildError, OSError, AssertionError) as error:
        _say(f"scoreboard: {name} cannot be measured: {error}")
        return False
    _keep(data, {name: results.result(name, row, size, figures, conditions.members())})
    verdict = "green" if results.is_green(figures) else "red"
    _say(f"scoreboard: {name} is {verdict}, after {time.monotonic() - began:.0f} s")
    _say(*(f"  {results.spelt_figure(figure)}" for figure in figures))
    return True


def _keep(data: Path, new: results.Results) -> None:
    """Add what was found to all that was found before."""
    found = results.load(data) | new
    results.save(data, {each: found[each] for each in ROWS if each in found})


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _taken(path: str) -> results.Results:
    found = results.load(Path(path))
    if not found:
        raise argparse.ArgumentTypeError(f"no rows in {path}")
    return found


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.scoreboard", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(ROWS), metavar="ROW", help="these rows (see --list)")
    parser.add_argument("--timed", action="store_true", help="only rows whose figures a busy machine makes worse")
    parser.add_argument("--short", action="store_true", help="the short form of those rows that have one")
    parser.add_argument(
        "--page", type=Path, default=PAGE, metavar="FILE", help="write this page, and its JSON beside it"
    )
    parser.add_argument(
        "--take", type=_taken, metavar="JSON", help="take over the rows of another page's JSON, and measure nothing"
    )
    parser.add_argument(
        "--list", action="store_true", help="list the rows, measure nothing, and write the page from its JSON"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
