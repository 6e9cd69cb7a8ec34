"""The scoreboard: its page with three colours, and a short run of the rows that do not depend on a clock."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import Figure, none_of
from benchmarks.scoreboard import page, suite
from benchmarks.scoreboard.page import Record, Row
from benchmarks.scoreboard.rows import ROWS, SECTIONS

# Times are left to `make scoreboard`, since a busy machine makes them worse.
TIMED: Final = ("seconds", "milliseconds", "microseconds", "per_second", "times", "percent")
CONDITIONS: Final = {"date": "2030-01-02", "commit": "abc", "machine": "M", "load_average": 1.5, "others_share": 0.25}
ROW: Final = Row("a promise", "none", "{size} trials", lambda _: [], ("tests/benchmarks",), full=1_000, why="too slow")


def record(size: int = 1_000, count: int = 0, row: Row = ROW) -> Record:
    """The record of a row."""
    return Record.of(row, size, [none_of("lost", "lost", count)], CONDITIONS)


@pytest.mark.parametrize(
    ("found", "colour"),
    [
        (record(), "green"),
        (record(size=20), "yellow: 20 of 1,000"),
        (replace(record(), files="0123456789"), "yellow: its files have changed"),
        (record(count=1), "**red**: too slow"),
        (record(size=20, count=1), "**red**: too slow"),
    ],
)
def test_only_a_full_run_on_these_files_is_green(found: Record, colour: str) -> None:
    """A shortened run is yellow, as is one before the files changed; a missed target is always red."""
    assert page.results({"X1": ROW}, {"X1": found}) == {"X1": colour}


def test_page_keeps_all_records() -> None:
    """Records read from a page equal the written ones, so that a single row can be measured again."""
    rows, sections = {"X1": ROW, "X2": ROW, "X3": ROW}, {"Xs": ("X1", "X2", "X3")}
    found = {"X1": record(), "X2": record(size=20, count=1)}
    text = page.text(sections, rows, found)

    assert page.records(text) == found
    assert page.claims(text) == {"X1": "green", "X2": "**red**: too slow"}
    assert (text.count("; A, load 1.5, others 25% |"), text.endswith("\n* A: M\n")) == (2, True)
    assert "1 of 3 rows are green, 0 yellow, 1 red, 1 not measured." in text
    assert "| X1 | a promise | none | lost: **0** (<= 0) | green | 1,000 trials | in full; 2030-01-02; `abc`; " in text
    assert "## Not measured yet\n\nX3\n" in text


def test_check_fails_when_the_page_claims_more_than_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that is green on the page although its files have changed is an error."""
    path = tmp_path / "board.md"
    honest = page.text(SECTIONS, ROWS, {"D1": replace(record(row=ROWS["D1"]), files="0123456789")})
    path.write_text(honest.replace("| yellow |", "| green |"))

    assert suite.main(["--check", "--page", str(path)]) == 1
    claimed = "scoreboard: the page says that D1 is green; it is yellow: its files have changed"
    assert capsys.readouterr().out.splitlines()[0] == claimed
    assert suite.main(["--refresh", "--page", str(path)]) == 0
    assert path.read_text() == honest


def test_row_without_a_target_is_not_met() -> None:
    """A figure without a target cannot meet a row."""
    assert not page.is_met([Figure("rate", "rate", "per_second", (1.0,))])


def test_sections_list_every_row() -> None:
    """Every row is in a section, and docs/scoreboard.md has no unknown row."""
    assert list(ROWS) == [name for names in SECTIONS.values() for name in names]
    assert page.read(ROOT / "docs" / "scoreboard.md").keys() <= ROWS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.short])
def test_short_form_is_met(name: str) -> None:
    """A short run of a row meets the targets of its counts."""
    figures = ROWS[name].measure(ROWS[name].short)

    assert figures
    assert [figure for figure in figures if figure.verdict == "missed" and figure.unit not in TIMED] == []
