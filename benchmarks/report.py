"""Figures as a table for people, as a block in a Markdown file, and as JSON for programs."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.figures import BenchError, Figure, spelt, spelt_spread, spelt_target

HEADINGS: Final = ("what", "measured", "rounds", "target", "", "behind it")
# numbers are read from the right
_RIGHT: Final = frozenset({1, 2})
BEGIN: Final = "<!-- figures: begin, written by `python -m benchmarks --write` -->"
END: Final = "<!-- figures: end -->"

Row = tuple[str, ...]


def row(figure: Figure) -> Row:
    """A figure, cell by cell."""
    return (
        figure.what,
        spelt(figure.value, figure.unit),
        spelt_spread(figure.values, figure.unit),
        spelt_target(figure.target, figure.unit),
        figure.verdict,
        figure.behind,
    )


def text_table(sections: Mapping[str, Sequence[Figure]]) -> str:
    """All figures under their questions, in columns that are as wide as what is in them."""
    rows = {title: [row(figure) for figure in figures] for title, figures in sections.items()}
    every = [HEADINGS, *(cells for section in rows.values() for cells in section)]
    widths = [max(len(cells[column]) for cells in every) for column in range(len(HEADINGS))]
    lines = [_line(HEADINGS, widths)]
    for title, section in rows.items():
        lines += ["", title, *(_line(cells, widths) for cells in section)]
    return "\n".join(lines)


def _line(cells: Row, widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if column in _RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return ("  " + "  ".join(padded)).rstrip()


def summary(figures: Sequence[Figure]) -> str:
    """How many targets there were, and which were missed."""
    aimed = [figure for figure in figures if figure.target is not None]
    if not aimed:
        return "no targets: the ratios are the result"
    missed = [figure.name for figure in aimed if figure.verdict == "missed"]
    met = f"{len(aimed) - len(missed)} of {len(aimed)} targets met"
    return f"{met}; missed: {', '.join(missed)}" if missed else met


def markdown(sections: Mapping[str, Sequence[Figure]], conditions: str) -> str:
    """The figures as Markdown tables, with the conditions they were measured under."""
    parts = [conditions]
    for title, figures in sections.items():
        lines = [f"### {title}", "", _cells(HEADINGS), _cells(["---", "--:", "--:", "---", "---", "---"])]
        lines += (_cells(row(figure)) for figure in figures)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def with_block(page: str, block: str) -> str:
    """The page with its marked block replaced; the rest is somebody's prose.

    Raises:
        BenchError: the page has no such block, or more than one.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise BenchError(f"no block to write into: one line {BEGIN} and, below it, one line {END}")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"


def to_json(sections: Mapping[str, Sequence[Figure]], conditions: Mapping[str, Any]) -> str:
    """The figures with every round."""
    figures = [
        {
            "name": figure.name,
            "what": figure.what,
            "unit": figure.unit,
            "value": figure.value,
            "values": list(figure.values),
            "target": None if figure.target is None else {"sign": figure.target.sign, "bound": figure.target.bound},
            "verdict": figure.verdict or None,
            "behind": figure.behind,
        }
        for section in sections.values()
        for figure in section
    ]
    return json.dumps({"conditions": dict(conditions), "figures": figures}, indent=2)


def listing(questions: Mapping[str, str]) -> str:
    """What can be asked for, with one line about each."""
    width = max(map(len, questions))
    return "\n".join(
        textwrap.fill(asks, 100, initial_indent=f"{name:<{width}}  ", subsequent_indent=" " * (width + 2))
        for name, asks in questions.items()
    )
