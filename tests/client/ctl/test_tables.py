"""Formatting of tables, times and permissions."""

import pytest
from rich.console import Console
from rich.text import Text

from namesrv_client.ctl.output import cell, table
from namesrv_client.ctl.wording import lasting, moment, perm_text

ROWS = [("broker-a", 0, None, True, "10.0.0.1:10911"), ("b", 10, None, False, "[::1]:1")]
HEADS = ("name", "id", "zone", "wiped", "address")


def rendered(width: int, *rows: tuple[object, ...], heads: tuple[str, ...] = HEADS) -> list[str]:
    """A table as a console of that width prints it."""
    console = Console(width=width, markup=False, color_system=None, highlight=False)
    with console.capture() as captured:
        for part in table(heads, rows):
            console.print(part, crop=False)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_table_is_columns_without_lines() -> None:
    """Numbers to the right; a column that is empty in all rows is left out."""
    assert [
        "NAME      ID  WIPED  ADDRESS",
        "broker-a   0  yes    10.0.0.1:10911",
        "b         10  no     [::1]:1",
    ] == rendered(100, *ROWS)
    assert rendered(100, *ROWS) == rendered(35, *ROWS)


def test_rows_that_are_too_long_become_blocks() -> None:
    """Nothing is folded or cut, however narrow the terminal."""
    blocks = [
        "NAME     broker-a",
        "ID       0",
        "WIPED    yes",
        "ADDRESS  10.0.0.1:10911",
        "",
        "NAME     b",
        "ID       10",
        "WIPED    no",
        "ADDRESS  [::1]:1",
    ]
    assert blocks == rendered(34, *ROWS)
    assert blocks == rendered(5, *ROWS)


def test_wide_characters_are_counted_as_they_are_shown() -> None:
    """Two columns each."""
    assert ["NAME      ID", "主题主题   1"] == rendered(12, ("主题主题", 1), heads=("name", "id"))
    assert ["NAME  主题主题", "ID    1"] == rendered(11, ("主题主题", 1), heads=("name", "id"))


def test_table_without_rows_is_nothing() -> None:
    """Not even its heads."""
    assert [] == rendered(100)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (True, "yes"), (False, "no"), (1.5, "1.5"), ("[red]\x1b", r"[red]\x1b"), (Text("x"), "x")],
)
def test_cells(value: object, shown: str) -> None:
    """Literally, whatever it is."""
    assert shown == cell(value).plain


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (0, "0.0 s"),
        (0.349, "0.3 s"),
        (-0.5, "-0.5 s"),
        (59.9, "59.9 s"),
        (60, "1 m 0 s"),
        (125.9, "2 m 5 s"),
        (-125.9, "-2 m 5 s"),
        (3_600, "1 h 0 m"),
        (86_399, "23 h 59 m"),
        (90_000, "1 d 1 h"),
        (1e18, "11574074074074 d 1 h"),
    ],
)
def test_lasting(seconds: float | None, said: str | None) -> None:
    """In the two largest units."""
    assert said == lasting(seconds)


@pytest.mark.parametrize("ts_ms", [None, 10**30, -(10**30)])
def test_moment_that_is_none_is_shown_as_it_came(ts_ms: int | None) -> None:
    """A server may say anything, or nothing."""
    assert (None if ts_ms is None else str(ts_ms)) == moment(ts_ms)


@pytest.mark.parametrize(("perm", "said"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (8, "---")])
def test_permissions_are_written_as_rocketmq_does(perm: int, said: str) -> None:
    """Read, write, inherit."""
    assert said == perm_text(perm)
