"""Tables for a terminal of any width."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from namesrv_client.ctl.wording import shown

# a value that is not there
ABSENT: Final = "-"
# between two columns
_GAP: Final = 2


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[RenderableType]:
    """A table of these; without rows nothing, and without the columns that are empty in all of them."""
    if not rows:
        return []
    used = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return [_Rows([columns[at] for at in used], [[row[at] for at in used] for row in rows])]


class _Rows:
    """Lines without a frame, so that they can be cut with awk; where they are too long, a block for each row.

    Nothing is ever folded or cut: half a name is none.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self._columns = columns
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        cells = [[cell(value) for value in row] for row in self._rows]
        widths = [max(len(name), *(row[at].cell_len for row in cells)) for at, name in enumerate(self._columns)]
        if sum(widths) + _GAP * (len(widths) - 1) > options.max_width:
            yield from self._blocks(cells)
            return
        made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for at, name in enumerate(self._columns):
            is_numeric = {type(row[at]) for row in self._rows} <= {int, float}
            made.add_column(name.upper(), justify="right" if is_numeric else "left", no_wrap=True, min_width=widths[at])
        for row in cells:
            made.add_row(*row)
        yield made

    def _blocks(self, cells: Sequence[Sequence[Text]]) -> Iterator[RenderableType]:
        width = max(map(len, self._columns))
        for number, row in enumerate(cells):
            if number:
                yield Text("")
            for name, value in zip(self._columns, row, strict=True):
                yield Text.assemble((name.upper().ljust(width + _GAP), "bold"), value, overflow="ignore", no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)


def cell(value: object) -> Text:
    """A value as it stands in a table."""
    if isinstance(value, Text):
        return value
    if value is None:
        return Text(ABSENT, style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(shown(str(value)))
