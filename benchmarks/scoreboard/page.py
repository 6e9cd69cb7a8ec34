"""The page of the scoreboard, which also stores the measurements: one line for each row that was ever measured.

A row is green if its target was met in full, and neither the target nor the files of the row have changed since; yellow
if less was run than the target needs, or the target or a file has changed; red if the target was missed. Comments and
docstrings of Python files do not count.
"""

import ast
import functools
import hashlib
import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import table
from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import Figure, format_target, format_value
from benchmarks.scoreboard.programs import Measure

_COLUMNS: Final = ("id", "what", "target", "figures", "result", "how", "measured")
# first letter of an id -> heading of these rows
_HEADINGS: Final = {
    "L": "Load and connections",
    "H": "Hostile input",
    "D": "Detection and staleness",
    "F": "Faults",
    "M": "Correctness",
    "S": "Soak",
}
# separates run, date, commit, files and machine in the column `measured`
_BETWEEN: Final = "; "
_IN_FULL: Final = "in full"
GREEN: Final = "green"
RED: Final = "**red**"
_CROWDED_SHARE: Final = 0.5
# the rate of a record
_RATE: Final = re.compile(r" a second: \*\*([\d,.]+)/s\*\*")
# the value and the target of a figure on the page, without their units
_VALUE_AND_TARGET: Final = re.compile(r"\*\*([\d.,]+)[^*]*\*\* \((>=|<=) ([\d.,e+]+)")
_INTRODUCTION: Final = """\
# Scoreboard

After this page you know each promise of this project, its target, and when it was last met.

* **Green**: run in full, on the present version of the files that the row is about.
* **Yellow**: run shorter than the target says, or before those files or the target changed.
  Comments and docstrings do not count.
* **Red**: the target is missed.

[testing.md](testing.md#the-scoreboard) explains how to measure and to add a row.
"""
_CONDITIONS: Final = """\
## Conditions

*Measured* is the part of the target that was run; the date; the commit; the machine.
Before the machine stands a digest of the row's files and target.
A commit with a plus had uncommitted changes.
*Load* is the load average at the start, *others* the share of the processors that other processes took.

"""
_LOAD: Final = ", load "
_HAVE_DOCSTRINGS: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_MACHINE: Final = re.compile(r"^\* ([A-Z]): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """A promise, its target, and the experiment that gives its figures."""

    what: str
    target: str
    # how it is measured; {size} stands for the measured size
    how: str
    measure: Measure
    # folders and files whose change makes the row yellow
    files: tuple[str, ...]
    _: KW_ONLY
    # size that the target needs
    full: int = 1
    # size that is measured by default; 0: `full`
    size: int = 0
    # size in `make test-rest`; 0: the row is no test
    short: int = 0
    # True: the row takes so long that it is measured only when it is named.
    is_long: bool = False
    # True: the row runs numbered seeds, and a run goes on after those of its record
    goes_on: bool = False
    # reason for a missed target, which the page shows while it is missed
    why: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A measurement of a row, as texts of the page."""

    figures: str
    # reason for a missed target; empty if it is met
    missed: str
    how: str
    run: str
    date: str
    commit: str
    files: str
    machine: str

    @classmethod
    def of(cls, row: Row, size: int, figures: Sequence[Figure], conditions: Mapping[str, Any]) -> "Record":
        """The record of a measurement."""
        others = conditions["others_share"]
        # Other load on the machine makes times and rates worse, and leaves counts as they are.
        is_timed = any(figure.verdict == "missed" and figure.unit != "count" for figure in figures)
        is_crowded = is_timed and others >= _CROWDED_SHARE
        why = row.why or ("other processes took most of the machine" if is_crowded else "no reason is known")
        return cls(
            figures="<br>".join(map(format_figure, figures)),
            missed="" if is_met(figures) else why,
            how=row.how.format(size=f"{size:,}"),
            run=_IN_FULL if size >= row.full else f"{size:,} of {row.full:,}",
            date=conditions["date"],
            commit=f"`{conditions['commit']}`",
            files=conditions["files"],
            machine=f"{conditions['machine']}{_LOAD}{conditions['load_average']:g}, others {others:.0%}",
        )

    def result(self, row: Row) -> str:
        """The colour and its meaning, given the current files."""
        if self.missed:
            return f"{RED}: {self.missed}"
        # A page that was edited may contain figures that contradict its result.
        if not _are_met(self.figures):
            return f"{RED}: the figures miss their targets"
        if self.run != _IN_FULL:
            return f"yellow: {self.run}"
        if self.files != digest(row):
            return "yellow: its files have changed"
        # A page that was edited may say `in full` beside the size of a shortened run.
        if "{size}" in row.how and f"{row.full:,}" not in self.how:
            return f"{RED}: it says {_IN_FULL}, but was measured with less"
        return GREEN

    def size(self, row: Row) -> int:
        """The size that was run."""
        return row.full if self.run == _IN_FULL else int(self.run.partition(" of ")[0].replace(",", ""))

    def finished(self, row: Row, files: str) -> tuple[int, float]:
        """The number of seeds that a run on these files need not repeat, and the seconds that they took."""
        rate = _RATE.search(self.figures)
        if self.missed or self.files != files or rate is None:
            return 0, 0.0
        count = self.size(row)
        return count, count / float(rate[1].replace(",", ""))

    def is_outdated(self, row: Row, size: int) -> bool:
        """True if the row is red, was run shorter than this size, or has other files or another target now."""
        return self.result(row).startswith(RED) or self.size(row) < size or self.files != digest(row)


def is_met(figures: Sequence[Figure]) -> bool:
    """Whether every figure with a target meets it, and there is one."""
    return {figure.verdict for figure in figures} - {""} == {"met"}


def format_figure(figure: Figure) -> str:
    """A figure in one line, with its target and details."""
    target = format_target(figure.target, figure.unit)
    text = f"{figure.label}: **{format_value(figure.value, figure.unit)}**" + (f" ({target})" if target else "")
    return f"{text}; {figure.details}" if figure.details else text


def _are_met(figures: str) -> bool:
    """True if the figures on the page, whose values are rounded, meet their targets, and at least one has a target."""
    values = [
        (float(value.replace(",", "")), sign, float(bound.replace(",", "")))
        for value, sign, bound in _VALUE_AND_TARGET.findall(figures)
    ]
    return bool(values) and all(value >= bound if sign == ">=" else value <= bound for value, sign, bound in values)


def digest(row: Row) -> str:
    """A digest of the row's target, and of the files that the row is about."""
    return version_of(row.files, f"{row.target}\0{row.full}")


def version_of(files: Sequence[str], target: str = "") -> str:
    """A digest of files and folders, and of a target."""
    sha256 = hashlib.sha256(target.encode())
    for name in files:
        sha256.update(_digest(ROOT / name))
    return sha256.hexdigest()[:10]


def _digest(path: Path) -> bytes:
    sha256 = hashlib.sha256()
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if "__pycache__" not in each.parts and not each.is_dir():
            content = each.read_bytes()
            sha256.update(each.relative_to(ROOT).as_posix().encode() + b"\0")
            sha256.update(_program(content) if each.suffix == ".py" else content)
    return sha256.digest()


@functools.cache
def _program(source: bytes) -> bytes:
    """A Python file without its comments and docstrings."""
    lines = source.splitlines()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _HAVE_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            left_out.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            number, column = token.start
            # The column counts characters, not bytes.
            lines[number - 1] = token.line[:column].rstrip().encode()
            if not lines[number - 1]:
                left_out.add(number)
    return b"\n".join(line for number, line in enumerate(lines, 1) if number not in left_out)


# -- the page ---------------------------------------------------------------------------------------------------------


def records(page: str) -> dict[str, Record]:
    """The records of a page, by row id."""
    by_row, models = {}, dict(_MACHINE.findall(page))
    for name, cells in _lines(page).items():
        _, _, _, figures, result, how, measured = cells
        *rest, machine = how, *measured.split(_BETWEEN)
        missed = result.removeprefix(f"{RED}: ") if result.startswith(RED) else ""
        letter, _, load = machine.partition(_LOAD)
        rest.append(models[letter] + _LOAD + load)
        by_row[name] = Record(figures, missed, *rest)
    return by_row


def _lines(page: str) -> dict[str, list[str]]:
    rows = [
        line.removeprefix("| ").removesuffix(" |").split(" | ") for line in page.splitlines() if line.startswith("| ")
    ]
    return {row[0]: row for row in rows if len(row) == len(_COLUMNS) and row[0] not in ("id", "---")}


def results(rows: Mapping[str, Row], measured: Mapping[str, Record]) -> dict[str, str]:
    """The colour of each row with a record, given the current files."""
    return {name: measured[name].result(row) for name, row in rows.items() if name in measured}


def wrong_lines(rows: Mapping[str, Row], page: str) -> list[str]:
    """The lines of a page that do not follow from its records and the current files."""
    right = set(text(rows, records(page)).splitlines())
    return [line for line in page.splitlines() if line not in right]


def summary(rows: Mapping[str, Row], colours: Mapping[str, str]) -> str:
    """The number of rows of each colour, in a sentence."""
    counts = {colour: sum(each.startswith(colour) for each in colours.values()) for colour in (GREEN, "yellow", RED)}
    green, others = f"{counts[GREEN]} of {len(rows)} rows are green", f"{counts['yellow']} yellow, {counts[RED]} red"
    return f"{green}, {others}, {len(rows.keys() - colours.keys())} not measured."


def text(rows: Mapping[str, Row], measured: Mapping[str, Record]) -> str:
    """The page: each measured row under its heading, and at the end the ids of the others."""
    colours = results(rows, measured)
    missing = [name for name in rows if name not in measured]
    models = sorted({_model(record) for record in measured.values()})
    letters = {model: chr(ord("A") + number) for number, model in enumerate(models)}
    parts = [_INTRODUCTION, f"{summary(rows, colours)}\n"]
    for letter, title in _HEADINGS.items():
        names = [name for name in rows if name in measured and name.startswith(letter)]
        lines = [_line(name, rows[name], measured[name], colours[name], letters) for name in names]
        if lines:
            parts.append(f"## {title}\n\n{table.markdown([_COLUMNS, *lines])}\n")
    if missing:
        parts.append(f"## Not measured yet\n\n{', '.join(missing)}\n")
    machines = "".join(f"* {letter}: {model}\n" for model, letter in letters.items())
    return "\n".join(parts) + "\n" + _CONDITIONS + machines


def _model(record: Record) -> str:
    return record.machine.partition(_LOAD)[0]


def _line(name: str, row: Row, record: Record, colour: str, letters: Mapping[str, str]) -> Sequence[str]:
    # The reason of a yellow row is in the column `measured`.
    result = colour if colour.startswith(RED) else colour.partition(":")[0]
    machine = letters[_model(record)] + record.machine.removeprefix(_model(record))
    measured = _BETWEEN.join((record.run, record.date, record.commit, record.files, machine))
    return (name, row.what, row.target, record.figures, result, record.how, measured)


def read(path: Path) -> dict[str, Record]:
    """The records of a page; empty if the file does not exist."""
    return records(path.read_text(encoding="utf-8")) if path.exists() else {}
