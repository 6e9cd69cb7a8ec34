"""Tables of figures, for a terminal and as a block in a Markdown page."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, format_spread, format_target, format_value

HEADINGS: Final = ("what", "measured", "rounds", "target", "absolute")
# columns that are aligned to the right
_RIGHT: Final = frozenset({1, 2})
BEGIN: Final = "<!-- figures: begin, written by `python -m benchmarks --write` -->"
END: Final = "<!-- figures: end -->"

Row = Sequence[str]
Sections = Mapping[str, Sequence[Figure]]


def markdown(rows: Sequence[Row], right: Collection[int] = ()) -> str:
    """A Markdown table; the first row has the headings, and the columns in `right` are aligned to the right."""
    marks = ["--:" if number in right else "---" for number in range(len(rows[0]))]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (rows[0], marks, *rows[1:])
    )


def with_block(page: str, block: str) -> str:
    """The page with its marked block replaced.

    Raises:
        BenchError: the page does not have exactly one such block.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise BenchError(f"no block to write into: one line {BEGIN} and, below it, one line {END}")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"


# -- figures ----------------------------------------------------------------------------------------------------------


def row(figure: Figure) -> Row:
    """The cells of a figure, for the columns HEADINGS."""
    return (
        figure.label,
        format_value(figure.value, figure.unit),
        format_spread(figure.values, figure.unit),
        format_target(figure.target, figure.unit) + (", missed" if figure.verdict == "missed" else ""),
        figure.details,
    )


def figures_markdown(sections: Sections) -> str:
    """Markdown tables of figures, each under the title of its section."""
    return "\n\n".join(f"### {title}\n\n{_section(figures)}" for title, figures in sections.items())


def _section(figures: Sequence[Figure]) -> str:
    """A table with a row for each figure, or with a cell for each figure if figures have columns."""
    columns = list(dict.fromkeys(figure.column for figure in figures))
    if columns == [""]:
        return markdown([HEADINGS, *map(row, figures)], _RIGHT)
    rows: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        rows.setdefault(figure.what, {})[figure.column] = figure
    lines = [(what, *(_cell(cells.get(column)) for column in columns)) for what, cells in rows.items()]
    return markdown([("what", *columns), *lines], range(1, 1 + len(columns)))


def _cell(figure: Figure | None) -> str:
    """The median with spread and target in parentheses, and a second line that explains the value."""
    if figure is None:
        return ""
    _, measured, spread, target, details = row(figure)
    notes = ", ".join(filter(None, (spread, target)))
    return "<br>".join(filter(None, (f"{measured} ({notes})" if notes else measured, details)))


def summary(figures: Sequence[Figure]) -> str:
    """How many targets were met, and the names of figures that missed theirs."""
    aimed = [figure for figure in figures if figure.target is not None]
    if not aimed:
        return "no targets: the ratios are the result"
    missed = [figure.name for figure in aimed if figure.verdict == "missed"]
    met = f"{len(aimed) - len(missed)} of {len(aimed)} targets met"
    return f"{met}; missed: {', '.join(missed)}" if missed else met
