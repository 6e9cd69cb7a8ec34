"""Fills the templates: whole pages, and the parts of them that changed.

All text is escaped, and characters that no screen shows (control characters, marks that turn the direction of writing)
appear as escapes, since every client of a NameServer can register any name.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from namesrv_client.ctl import output
from namesrv_client.health import RED_SHARE, YELLOW_SHARE, subject_of
from namesrv_console.catalogue import LANGUAGES, Catalogue, catalogue
from namesrv_console.console import Page, Visit
from namesrv_console.style import STYLE
from namesrv_console.views.events import sentence
from namesrv_runtime.log import printable
from namesrv_spark_jobs.history.spans import to_the_second, written

# Live parts of the frame, which every page has.
FRAME_PARTS: Final = ("verdict", "chips")
_ROW: Final = "<!--row-->"
_ID: Final = re.compile(r'\s*<[a-z]+ id="([^"]*)"')


class Templates:
    """The templates in every language."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages = pages
        self._environments = {language: _environment(catalogue(language)) for language in LANGUAGES}

    def page(
        self,
        page: Page,
        visit: Visit,
        content: Mapping[str, Any],
        *,
        theme: str | None = None,
        template: str | None = None,
    ) -> str:
        """A whole page; `template` replaces the page's own template."""
        return self._template(template or page.name, visit).render(**self._values(page, visit, content), theme=theme)

    def parts(self, page: Page, visit: Visit, content: Mapping[str, Any]) -> dict[str, str]:
        """The live parts of a page, by id."""
        frame, template = self._template("base", visit), self._template(page.name, visit)
        values = self._values(page, visit, content)
        return {name: _block(frame, name, values) for name in FRAME_PARTS} | {
            name: _block(template, name, values) for name in page.parts
        }

    def _template(self, name: str, visit: Visit) -> Template:
        return self._environments[visit.catalogue.language].get_template(f"{name}.html")

    def _values(self, page: Page, visit: Visit, content: Mapping[str, Any]) -> dict[str, Any]:
        menu: dict[str, list[Page]] = {}
        for one in self._pages:
            if one.key is not None:
                menu.setdefault(one.group, []).append(one)
        health = visit.console.health.report(visit.cluster)
        return {"page": page, "visit": visit, "cluster": visit.cluster, "menu": menu, "health": health, **content}


def rows(html: str) -> tuple[str, dict[str, str]]:
    """A part without its rows, and its rows by id; a row without an id belongs to the part itself."""
    pieces, found = html.split(_ROW), {}
    rest = [pieces[0]]
    for piece in pieces[1:]:
        matched = _ID.match(piece)
        if matched is None:
            rest.append(piece)
        else:
            found[matched[1]] = piece
    return "".join(rest), found


def link(path: str, /, **query: object) -> str:
    """A URL within the console; its query may contain any name."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='surrogatepass')}" if given else path


def lasting(seconds: float) -> str:
    """A duration as pages show it: 14.9 s, 1 m 45 s, 2 h 5 m, 4 d 1 h. static/console.js does the same."""
    # A server may send any number, also none that can be shown as a duration.
    return output.lasting(abs(seconds)) or str(seconds)


def moment(ts_ms: float) -> str:
    """A time in UTC, which the browser replaces by its local time."""
    try:
        return f"{datetime.fromtimestamp(ts_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        # A server may send any number.
        return str(ts_ms)


def utc(ts_ms: int) -> str:
    """A time in UTC, as form fields have it."""
    try:
        return written(ts_ms)
    except (ValueError, OverflowError, OSError):
        return str(ts_ms)


def _environment(words: Catalogue) -> Environment:
    environment = Environment(
        autoescape=True,
        loader=PackageLoader("namesrv_console"),
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        t=words.text,
        language=words.language,
        languages=LANGUAGES,
        link=link,
        style=STYLE,
        version=_static_version(),
        late_below=YELLOW_SHARE,
        dying_below=RED_SHARE,
    )
    environment.filters.update(
        lasting=lasting,
        moment=moment,
        what=output.event_text,
        sentence=sentence,
        subject=subject_of,
        utc=utc,
        seconds=to_the_second,
        reason=words.reason,
    )
    environment.globals["ui"] = environment.get_template("ui.html").module
    return environment


def _shown(value: object) -> object:
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _block(template: Template, name: str, values: Mapping[str, Any]) -> str:
    blocks: Iterator[str] = template.blocks[name](template.new_context(dict(values)))
    return "".join(blocks)


def _static_version() -> str:
    """A version that changes with the static files, since browsers cache them."""
    found = hashlib.sha256()
    for file in sorted(files("namesrv_console").joinpath("static").iterdir(), key=lambda it: it.name):
        found.update(file.read_bytes())
    return found.hexdigest()[:12]
