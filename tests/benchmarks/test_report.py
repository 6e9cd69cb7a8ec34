"""Reports for people and for programs."""

import json

import pytest

from benchmarks.figures import BenchError, Figure, Target
from benchmarks.report import BEGIN, END, markdown, summary, text_table, to_json, with_block

RATE = Figure("pulls.rate", "rate", "times", (0.6, 0.4, 0.55), Target(">=", 0.5), "150,000/s / 270,000/s")
STALL = Figure("stall", "longest stall", "milliseconds", (25.0,), Target("<=", 20))
COST = Figure("cost", "cost", "milliseconds", (1.5, 2.5))


def test_the_columns_of_all_sections_are_in_line() -> None:
    """One table, whatever its sections hold; no blanks at the ends of lines."""
    expected = """\
  what           measured       rounds  target            behind it

How fast?
  rate               0.55  0.40 - 0.60  >= 0.5    met     150,000/s / 270,000/s

How late?
  longest stall  25.00 ms               <= 20 ms  missed
  cost            2.00 ms  1.50 - 2.50"""

    assert expected == text_table({"How fast?": [RATE], "How late?": [STALL, COST]})


def test_the_summary_names_what_was_missed() -> None:
    """Figures without a target do not count."""
    assert summary([RATE, STALL, COST]) == "1 of 2 targets met; missed: stall"
    assert summary([RATE, COST]) == "1 of 1 targets met"


def test_markdown_has_a_table_for_each_question() -> None:
    """Numbers are aligned to the right, and a stroke in a cell does not end it."""
    lines = markdown({"How fast?": [Figure("a", "a|b", "times", (2.0,))]}, "On two cores.").splitlines()

    assert ["On two cores.", "", "### How fast?", "", "| what | measured | rounds | target |  | behind it |"] == lines[
        :5
    ]
    assert ["| --- | --: | --: | --- | --- | --- |", "| a\\|b | 2.00 |  |  |  |  |"] == lines[5:]


def test_only_the_block_of_a_page_is_replaced() -> None:
    """What stands above and below stays, and writing the same twice changes nothing; without one block, nothing is."""
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nMore.\n"
    expected = f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nMore.\n"

    assert expected == with_block(page, "new") == with_block(expected, "new")
    for wrong in ("", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"):
        with pytest.raises(BenchError, match="no block to write into"):
            with_block(wrong, "new")


def test_json_has_every_round() -> None:
    """Programs get the values, and null where people get an empty cell."""
    found = json.loads(to_json({"How fast?": [RATE], "How late?": [COST]}, {"python": "3.11"}))

    assert found["conditions"] == {"python": "3.11"}
    assert found["figures"][0] == {
        "name": "pulls.rate",
        "what": "rate",
        "unit": "times",
        "value": 0.55,
        "values": [0.6, 0.4, 0.55],
        "target": {"sign": ">=", "bound": 0.5},
        "verdict": "met",
        "behind": "150,000/s / 270,000/s",
    }
    assert (None, None) == (found["figures"][1]["target"], found["figures"][1]["verdict"])
