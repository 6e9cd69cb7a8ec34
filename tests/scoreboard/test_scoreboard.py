"""The scoreboard: what was measured is kept row by row, and its short form is green where no clock decides."""

from pathlib import Path
from typing import Final

import pytest

from benchmarks.figures import Figure, Target
from tests.scoreboard import results
from tests.scoreboard.__main__ import main
from tests.scoreboard.row import Row, latest, none_of
from tests.scoreboard.rows import ROWS, SECTIONS

# what a busy machine makes worse is left to `make scoreboard`
TIMED: Final = ("seconds", "milliseconds", "microseconds", "per_second", "times", "percent")
CONDITIONS: Final = {"date": "2030-01-02", "commit": "abc", "machine": "M", "load_average": 1.5, "others_share": 0.25}


def row(why: str = "") -> Row:
    """One that nobody runs."""
    return Row("a promise", "none", "{size} trials", lambda _: [], 1_000, why=why)


def test_every_row_has_a_place() -> None:
    """Under one heading, in the order of the page."""
    assert list(ROWS) == [name for names in SECTIONS.values() for name in names]


def test_page_shows_what_was_measured(tmp_path: Path) -> None:
    """Green ones, red ones with the reason, and the names of those without a figure."""
    met, missed = none_of("lost", "lost", 0), latest("late", "p99", [5.0, 7.0], "seconds", 1.0, Target("<=", 6))
    found = {
        "X1": results.result("X1", row("nobody knows"), 50, [met], CONDITIONS),
        "X2": results.result("X2", row("too slow"), 1_000, [met, missed], CONDITIONS),
    }
    results.save(tmp_path / "board.json", found)

    page = results.page({"Xs": ("X1", "X2", "X3", "X4")}, results.load(tmp_path / "board.json"))

    assert "1 of 4 rows are green, 1 red, 2 not measured." in page
    assert "| X1 | a promise | none | lost: **0** (<= 0) | green | 50 trials | 2030-01-02 | `abc` | A, load 1.5" in page
    assert "others 25% | `make scoreboard ARGS='--only X1'` |" in page
    assert "p99: **7.00 s** (<= 6 s); p50 5.00 s, max 7.00 s, of 2 | **red**: too slow | 1,000 trials |" in page
    assert "* A: M\n" in page
    assert page.endswith("## Not measured yet\n\nX3, X4\n")


def test_rows_of_another_page_are_taken_over(tmp_path: Path) -> None:
    """With the figures, the commit and the machine of their run; a row that only this page has stays."""
    for board, name in (("here", "D1"), ("there", "S1")):
        found = {name: results.result(name, row(), 50, [none_of("lost", "lost", 0)], {**CONDITIONS, "commit": board})}
        results.save(tmp_path / f"{board}.json", found)

    assert 0 == main(["--take", str(tmp_path / "there.json"), "--page", str(tmp_path / "here.md")])

    assert {"D1": "here", "S1": "there"} == {
        name: each["commit"] for name, each in results.load(tmp_path / "here.json").items()
    }
    assert "`there`" in (tmp_path / "here.md").read_text()


def test_row_without_a_target_is_not_green() -> None:
    """A figure that cannot miss anything proves nothing."""
    assert not results.is_green([Figure("rate", "rate", "per_second", (1.0,))])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in ROWS.items() if each.short is not None])
def test_short_form_is_green(name: str) -> None:
    """As far as no clock decides: a row runs, and what is counted meets its target."""
    each = ROWS[name]
    assert each.short is not None
    figures = each.measure(each.short)

    assert figures
    assert [] == [figure for figure in figures if figure.verdict == "missed" and figure.unit not in TIMED]
