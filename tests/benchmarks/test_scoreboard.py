"""The scoreboard: its page with three colours, and a short run of the rows that do not depend on a clock."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import BenchError, Figure, none_of
from benchmarks.scoreboard import page, slices, suite
from benchmarks.scoreboard.page import Record, Row
from benchmarks.scoreboard.programs import noticed, passing
from benchmarks.scoreboard.rows import ROWS

# Times are left to `make scoreboard`, since a busy machine makes them worse.
TIMED: Final = ("seconds", "milliseconds", "microseconds", "per_second", "times", "percent")
CONDITIONS: Final = {"date": "2030-01-02", "commit": "abc", "machine": "M", "load_average": 1.5, "others_share": 0.25}
ROW: Final = Row("a promise", "none", "{size} trials", lambda _: [], ("tests/benchmarks",), full=1_000, why="too slow")


def record(size: int = 1_000, count: int = 0, row: Row = ROW) -> Record:
    """The record of a row."""
    return Record.of(row, size, [none_of("lost", "lost", count)], {**CONDITIONS, "files": page.digest(row)})


@pytest.mark.parametrize(
    ("found", "row", "colour"),
    [
        (record(), ROW, "green"),
        (record(size=20), ROW, "yellow: 20 of 1,000"),
        (replace(record(), files="0123456789"), ROW, "yellow: its files have changed"),
        (record(), replace(ROW, target="none at all"), "yellow: its files have changed"),
        (record(), replace(ROW, full=2_000), "yellow: its files have changed"),
        (record(count=1), ROW, "**red**: too slow"),
        (record(size=20, count=1), ROW, "**red**: too slow"),
        (replace(record(count=1), missed=""), ROW, "**red**: the figures miss their targets"),
        (replace(record(), figures="lost: **0**"), ROW, "**red**: the figures miss their targets"),
        (replace(record(size=20), run="in full"), ROW, "**red**: it says in full, but was measured with less"),
    ],
)
def test_only_a_full_run_on_these_files_is_green(found: Record, row: Row, colour: str) -> None:
    """A shortened run is yellow, as is one before the files or the target changed; a missed target is always red."""
    assert page.results({"S1": row}, {"S1": found}) == {"S1": colour}


@pytest.mark.parametrize("file", ["module.py", "registry.tla", "frames.jsonl"])
def test_digest_covers_every_file_but_bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str) -> None:
    """Models, recordings and sources count, compiled modules do not."""
    monkeypatch.setattr(page, "ROOT", tmp_path)
    (tmp_path / "here/__pycache__").mkdir(parents=True)
    (tmp_path / "here" / file).write_text("1")
    row = replace(ROW, files=("here",))
    before = page.digest(row)

    (tmp_path / "here/__pycache__/module.pyc").write_text("2")
    assert page.digest(row) == before
    (tmp_path / "here" / file).write_text("2")
    assert page.digest(row) != before


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ('"""Adds."""\nA = 1  # one\n', '"""Sums up."""\n# why\nA = 1\n', True),
        ('def add():\n    """Add."""\n', 'def add():\n    # Add\n    """Two\n    lines."""\n', True),
        ('Ä = "# text"  # Ä\n', 'Ä = "# text"\n', True),
        ('A = "# text"\n', 'A = "# words"\n', False),
        ('A = """\n\n"""\n', 'A = """\n"""\n', False),
        ("if A:\n    b()\n", "if A:\n    pass\nb()\n", False),
    ],
)
def test_digest_ignores_comments_and_docstrings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str, after: str, is_same: bool
) -> None:
    """Every other change of a Python file counts."""
    monkeypatch.setattr(page, "ROOT", tmp_path)
    row = replace(ROW, files=("module.py",))
    digests = []
    for source in (before, after):
        (tmp_path / "module.py").write_text(source)
        digests.append(page.digest(row))

    assert (digests[0] == digests[1]) is is_same


def test_run_in_slices_is_continued_on_the_same_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A later run does only what is missing; slices of other files do not count."""
    monkeypatch.setattr(page, "ROOT", tmp_path)
    (tmp_path / "file").write_text("1")

    def run(first: int, left: int) -> dict[str, Any]:
        return {"count": min(2, left), "first": first, "failed": ["broken"] * (first == 5)}

    def firsts(total: int) -> list[int]:
        return [entry["first"] for entry in slices.finished(tmp_path / "S1.jsonl", ["file"], total, run)]

    assert firsts(3) == [0, 2]
    assert firsts(6) == [0, 2, 3, 5]
    assert firsts(1) == [0, 2, 3, 5]
    # a failed slice ends the run
    assert firsts(100) == [0, 2, 3, 5]
    (tmp_path / "file").write_text("2")
    assert firsts(1) == [0]


def test_run_without_its_journal_continues_after_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seeds of the record count while the row's files are the same, unless one of them failed."""
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(slices, "JOURNALS", tmp_path / "build")
    (tmp_path / "file").write_text("1")
    begun: list[int] = []
    path = tmp_path / "build" / "S1.jsonl"

    def run(first: int, left: int) -> dict[str, Any]:
        begun.append(first)
        return {"count": left, "seconds": left / 4, "failed": ["seed 9"] * (first == 9)}

    def measure(total: int) -> list[Figure]:
        done = slices.finished(path, ["file"], total, run)
        rate = slices.count_of(done) / sum(each["seconds"] for each in done)
        return [
            slices.failed("failed", "seeds that failed", done),
            Figure("rate", "seeds a second", "per_second", (rate,)),
        ]

    row = replace(ROW, files=("file",), measure=measure, goes_on=True)
    monkeypatch.setattr(suite, "ROWS", {"S1": row})
    shown = tmp_path / "page.md"
    for total in (6, 9, 10, 11):
        assert suite._measured("S1", total, shown)
        path.unlink()

    assert begun == [0, 6, 9, 0]
    record = page.read(shown)["S1"]
    assert (record.run, record.figures) == (
        "11 of 1,000",
        "seeds that failed: **0** (<= 0); of 11<br>seeds a second: **4/s**",
    )
    (tmp_path / "file").write_text("2")
    assert suite._measured("S1", 2, shown)
    assert begun[-1] == 0


def test_page_keeps_all_records() -> None:
    """Records read from a page equal the written ones, so that a single row can be measured again."""
    rows = {"S1": ROW, "S2": ROW, "S3": ROW}
    found = {"S1": record(), "S2": record(size=20, count=1)}

    assert page.records(page.text(rows, found)) == found


OLD: Final = replace(record(row=ROWS["D1"]), files="0123456789")
MISSED: Final = record(count=1, row=ROWS["D1"])


@pytest.mark.parametrize(
    ("found", "honest", "claimed"),
    [
        (OLD, "| yellow |", "| green |"),
        (MISSED, "| **red**: no reason is known |", "| green |"),
        (MISSED, "| **red**: no reason is known |", "| yellow |"),
        (OLD, "\n0 of", "\n9 of"),
    ],
)
def test_check_fails_until_the_page_claims_what_its_records_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Record, honest: str, claimed: str
) -> None:
    """A colour that is better than the record's is an error, as is a wrong count; a refresh mends both."""
    rows = {"D1": ROWS["D1"]}
    monkeypatch.setattr(suite, "ROWS", rows)
    path = tmp_path / "board.md"
    text = page.text(rows, {"D1": found})
    path.write_text(text)
    assert suite.main(["--check", "--page", str(path)]) == 0
    path.write_text(text.replace(honest, claimed))

    codes = [suite.main([option, "--page", str(path)]) for option in ("--check", "--refresh", "--check")]
    assert codes == [1, 0, 0]
    assert claimed not in path.read_text()


def test_check_fails_if_a_row_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that was deleted from the page is named, even if the page counts it as not measured."""
    rows = {"S1": ROW, "S2": ROW}
    monkeypatch.setattr(suite, "ROWS", rows)
    path = tmp_path / "board.md"
    path.write_text(page.text(rows, {"S1": record()}))

    assert suite.main(["--check", "--page", str(path)]) == 1
    assert "scoreboard: S2 is not measured" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("found", "size", "is_outdated"),
    [
        (record(), 1_000, False),
        (record(size=20), 20, False),
        (record(size=20), 1_000, True),
        (replace(record(), files="0123456789"), 1_000, True),
        (replace(record(size=20), files="0123456789"), 20, True),
        (record(count=1), 1_000, True),
    ],
)
def test_row_is_run_again_when_that_can_change_its_colour(found: Record, size: int, is_outdated: bool) -> None:
    """A shortened row whose files are the same needs a longer run, and none of the same size."""
    assert found.is_outdated(ROW, size) == is_outdated


@pytest.mark.parametrize(
    ("options", "others", "more_ran"),
    [
        ([], ["S5 is yellow: 20 of 1,000 (left out, as it takes long: --only S5 --in-full)"], []),
        (
            ["--all"],
            [
                "S1 is green",
                "S5 is yellow: 20 of 1,000 (shortened; in full: --only S5 --in-full)",
                "S7 is green (left out, as it takes long: --only S7 --in-full)",
            ],
            [("S1", 1_000), ("S5", 20)],
        ),
    ],
)
def test_command_names_yellow_rows_and_runs_them(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    others: list[str],
    more_ran: list[tuple[str, int]],
) -> None:
    """Rows that have gone yellow or were never measured run; long rows, and rows that need a longer run, do not.

    `--all` runs all others, but none that a shorter run would turn from green to yellow.
    """
    ran: list[tuple[str, int]] = []

    def row(name: str, **fields: Any) -> Row:
        def measure(size: int) -> list[Figure]:
            ran.append((name, size))
            return [none_of("lost", "lost", 0)]

        return replace(ROW, measure=measure, **fields)

    rows = {
        "S1": row("S1"),
        "S2": row("S2"),
        "S3": row("S3", size=20),
        "S4": row("S4", is_long=True),
        "S5": row("S5", size=20),
        "S6": row("S6", size=20, is_long=True),
        "S7": row("S7", size=20),
    }
    monkeypatch.setattr(suite, "ROWS", rows)
    path = tmp_path / "board.md"
    old = replace(record(), files="0123456789")
    found = {"S1": record(), "S2": old, "S5": record(size=20), "S6": old, "S7": record()}
    path.write_text(page.text(rows, found))

    assert suite.main(["--page", str(path), *options]) == 0
    named = [line for line in capsys.readouterr().out.splitlines() if " is " in line and ", after " not in line]
    assert named == [
        f"scoreboard: {line}"
        for line in sorted(
            [
                "S2 is yellow: its files have changed",
                "S3 is not measured (shortened; in full: --only S3 --in-full)",
                "S4 is not measured (left out, as it takes long: --only S4)",
                "S6 is yellow: its files have changed (left out, as it takes long: --only S6 --in-full)",
                *others,
            ]
        )
    ]
    assert ran == sorted([("S2", 1_000), ("S3", 20), *more_ran])
    assert "3 of 7 rows are green, 3 yellow, 0 red, 1 not measured." in path.read_text()


def test_row_without_a_target_is_not_met() -> None:
    """A figure without a target cannot meet a row."""
    assert not page.is_met([Figure("rate", "rate", "per_second", (1.0,))])


@pytest.mark.parametrize(
    ("second", "options", "error"),
    [
        ("pass", ["-k", "renamed"], "ended with 5"),
        ("pytest.exit('interrupted')", [], "ended with 2"),
        ("pytest.skip('no Java')", [], "1 of 2 tests cannot run here"),
    ],
    ids=["none selected", "interrupted", "one skipped"],
)
def test_row_of_tests_that_did_not_all_run_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, options: list[str], error: str
) -> None:
    """Tests that passed do not meet a row if others were skipped, not selected, or not reached."""
    path = tmp_path / "test_two.py"
    path.write_text(f"import pytest\n\ndef test_1(): pass\ndef test_2(): {second}\n")
    # The other plugins take two seconds to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    with pytest.raises(BenchError, match=error):
        passing([str(path)], ["-p", "xdist", *options])(1)


@pytest.mark.parametrize("remoting", ["", "namesrv_remoting: noticed 0 of 0, 0 %\n"])
def test_row_of_mutants_that_were_not_tried_is_not_measured(remoting: str) -> None:
    """Each package needs mutants; a package without them is not met by the others."""
    tried = "namesrv: noticed 33 of 40, 82 %\n"

    assert [figure.details for figure in noticed(f"{tried}namesrv_remoting: noticed 36 of 39, 92 %\n")] == [
        "33 of 40",
        "36 of 39",
    ]
    with pytest.raises(BenchError, match="did not try mutants"):
        noticed(tried + remoting)


def test_page_has_no_unknown_row() -> None:
    """A row that was removed is removed from docs/scoreboard.md, too."""
    assert page.read(ROOT / "docs" / "scoreboard.md").keys() <= ROWS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.short])
def test_short_form_is_met(name: str) -> None:
    """A short run of a row meets the targets of its counts."""
    figures = ROWS[name].measure(ROWS[name].short)

    assert figures
    assert [figure for figure in figures if figure.verdict == "missed" and figure.unit not in TIMED] == []
