"""Tables of figures, for a terminal and as a block in a Markdown page."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, spelt, spelt_spread, spelt_target

HEADINGS: Final = ("what", "measured", "rounds", "target", "absolute")
# numbers are read from the right
RIGHT: Final = frozenset({1, 2})
BEGIN: Final = "<!-- figures: begin, written by `python -m benchmarks --write` -->"
END: Final = "<!-- figures: end -->"

Row = Sequence[str]
Sections = Mapping[str, Sequence[Figure]]


def markdown(rows: Sequence[Row], right: Collection[int] = ()) -> str:
    """A Markdown table whose first row is its heading."""
    marks = ["--:" if number in right else "---" for number in range(len(rows[0]))]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (rows[0], marks, *rows[1:])
    )


def with_block(page: str, block: str) -> str:
    """The page with its marked block replaced; the rest stays.

    Raises:
        BenchError: the page has no such block, or more than one.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise BenchError(f"no block to write into: one line {BEGIN} and, below it, one line {END}")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"


# -- of figures -------------------------------------------------------------------------------------------------------


def row(figure: Figure) -> Row:
    """A figure, cell by cell."""
    return (
        figure.label,
        spelt(figure.value, figure.unit),
        spelt_spread(figure.values, figure.unit),
        spelt_target(figure.target, figure.unit) + (", missed" if figure.verdict == "missed" else ""),
        figure.behind,
    )


def figures_markdown(sections: Sections) -> str:
    """The figures under the titles of their subjects."""
    return "\n\n".join(f"### {title}\n\n{_section(figures)}" for title, figures in sections.items())


def _section(figures: Sequence[Figure]) -> str:
    """A table of the figures: one row each, or one cell each when they have columns."""
    columns = list(dict.fromkeys(figure.column for figure in figures))
    if columns == [""]:
        return markdown([HEADINGS, *map(row, figures)], RIGHT)
    rows: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        rows.setdefault(figure.what, {})[figure.column] = figure
    lines = [(what, *(_cell(cells.get(column)) for column in columns)) for what, cells in rows.items()]
    return markdown([("what", *columns), *lines], range(1, 1 + len(columns)))


def _cell(figure: Figure | None) -> str:
    """The median, the spread, a target if there is one, and the absolute figures on a line of their own."""
    if figure is None:
        return ""
    _, measured, spread, target, behind = row(figure)
    notes = ", ".join(filter(None, (spread, target)))
    return "<br>".join(filter(None, (f"{measured} ({notes})" if notes else measured, behind)))


def summary(figures: Sequence[Figure]) -> str:
    """How many targets there were, and which were missed."""
    aimed = [figure for figure in figures if figure.target is not None]
    if not aimed:
        return "no targets: the ratios are the result"
    missed = [figure.name for figure in aimed if figure.verdict == "missed"]
    met = f"{len(aimed) - len(missed)} of {len(aimed)} targets met"
    return f"{met}; missed: {', '.join(missed)}" if missed else met
