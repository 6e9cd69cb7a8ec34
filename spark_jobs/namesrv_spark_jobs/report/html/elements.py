"""What is the page made of? Tables, figures, notes; every text that comes from a log is escaped here."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from namesrv_spark_jobs.report.charts.svg import NARROW, WIDE, Picture


class Html(str):
    """Text that is markup already; everything else is escaped."""

    __slots__ = ()


def markup(value: object) -> Html:
    """A value as markup."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def joined(parts: Iterable[object]) -> Html:
    """One after the other."""
    return Html("".join(markup(part) for part in parts))


def element(name: str, content: object, **attributes: str) -> Html:
    """One element; `kind` is its class, an underscore in a name is a hyphen."""
    names = {"kind": "class"}
    written = "".join(
        f' {names.get(key, key.rstrip("_")).replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{markup(content)}</{name}>")


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    # the class of its cells: number, time, name, nowrap or nothing
    kind: str = ""


# the class of a table whose few columns belong closely together
COMPACT: Final = "scroll compact"
# the class of most cells that hold a count or a duration
NUMBER: Final = "number"


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    row_kind: Callable[[int], str] = lambda _: "",
    kind: str = "scroll",
) -> Html:
    """A table in a frame that scrolls by itself when the screen is too small; the first cell names the row."""
    head = joined(element("th", column.title, kind=column.kind, scope="col") for column in columns)
    body = joined(element("tr", _cells(columns, row), kind=row_kind(index)) for index, row in enumerate(rows))
    whole = joined([element("caption", caption), element("thead", element("tr", head)), element("tbody", body)])
    return element("div", element("table", whole), kind=kind, role="region", aria_label=caption, tabindex="0")


def _cells(columns: Sequence[Column], row: Sequence[object]) -> Html:
    first, *rest = zip(columns, row, strict=True)
    cells = [element("th", first[1], kind=first[0].kind, scope="row")]
    return joined([*cells, *(element("td", value, kind=column.kind) for column, value in rest)])


def figure(name: str, draw: Callable[[int], Picture], *, below: object = "") -> Html:
    """A picture, drawn once for a screen and once for a phone; the page shows the one that fits."""
    wide = Html(draw(WIDE).render(f"{name}-wide", kind="wide"))
    narrow = Html(draw(NARROW).render(f"{name}-narrow", kind="narrow"))
    return element("figure", joined([wide, narrow, below]), id=name)


def legend(entries: Iterable[tuple[str, str, str]]) -> Html:
    """What the colours mean: shape (`line`, `box`, `dot`), class, words."""
    return element("ul", joined(_legend_entry(*entry) for entry in entries), kind="legend")


def _legend_entry(shape: str, kind: str, words: str) -> Html:
    drawn = {
        "line": f'<path class="{escape(kind)}" d="M1 6L21 6"/>',
        "dash": f'<line class="{escape(kind)}" x1="1" y1="6" x2="21" y2="6"/>',
        "box": f'<rect class="{escape(kind)}" x="1" y="1" width="20" height="10" rx="2"/>',
        "dot": f'<circle class="{escape(kind)}" cx="11" cy="6" r="5"/>',
    }[shape]
    picture = Html(f'<svg viewBox="0 0 22 12" aria-hidden="true">{drawn}</svg>')
    return element("li", joined([picture, element("span", words)]))


def details(title: object, content: object, *, is_open: bool = False) -> Html:
    """What is not in everyone's way."""
    start = "<details open>" if is_open else "<details>"
    return Html(f"{start}{element('summary', title)}{markup(content)}</details>")


def empty(words: str) -> Html:
    """In place of a picture that would show nothing."""
    return element("p", words, kind="empty")


def card(name: str, title: str, *content: object) -> Html:
    """One subject of the page."""
    heading = element("h2", title, id=f"{name}-heading")
    return element("section", joined([heading, *content]), kind="card", id=name, aria_labelledby=f"{name}-heading")
