"""Audit: changes and refusals with their accounts, from the audit trails in the given directories.

Without a directory the page shows the servers' last events, which have no accounts.
"""

from functools import partial
from heapq import merge
from pathlib import Path
from typing import Any, Final

from namesrv_client.ctl.audit_trail import KINDS, NO_DIRECTORY, Filters, Line, Trail, directory_error, sentence
from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.events import acts, last_events
from namesrv_runtime.threads import in_thread

_SHOWN: Final = 200
_HOURS: Final = {"hour": 1, "day": 24, "week": 168, "quarter": 2160}
_KINDS: Final = ("all", *KINDS)
# Fields of a filter that the query may set; `*` matches any text.
_FIELDS: Final = ("account", "peer", "request", "broker", "topic")


async def show(visit: Visit) -> Content:
    """The last acts that match the query, newest first."""
    settings, query = visit.console.settings, visit.query
    own = settings.access.audit_log_dir
    directories = [*settings.audit, *([] if own is None else [own])]
    if not directories:
        return {"directories": [], "events": last_events(visit.cluster, visit.console.moment_ms, most=_SHOWN)}
    if visit.now is None:
        # The list of acts is not live, since a trail may have hundreds of megabytes.
        return {"directories": directories}
    since, kind = visit.choice("since", tuple(_HOURS)), visit.choice("event", _KINDS)
    filters = Filters(
        kinds=frozenset() if kind == "all" else frozenset({kind}),
        since_ms=(visit.wall - _HOURS[since] * 3600) * 1000,
        **{name: query.get(name) or None for name in _FIELDS},
    )
    lines, problems = await in_thread(_read, directories, filters)
    return {
        "directories": directories,
        "acts": acts(lines),
        "sentence": partial(sentence, text=visit.catalogue.section("act")),
        "problems": problems,
        "since": since,
        "sinces": tuple(_HOURS),
        "kind": kind,
        "kinds": _KINDS,
        "fields": {name: query.get(name, "") for name in _FIELDS},
        "read_ms": round(visit.wall * 1000),
    }


def _read(directories: list[Path], filters: Filters) -> tuple[list[Line], list[str]]:
    given = [Trail(directory, filters) for directory in directories]
    # A data directory and the trail in it may both be given.
    trails = {trail.directory.resolve(): trail for trail in given}.values()
    # The trail itself reports a place without permission.
    missing = [f"no such directory: {trail.place}" for trail in trails if directory_error(trail.place) == NO_DIRECTORY]
    found: Any = merge(*(reversed(trail.last(_SHOWN)) for trail in trails), key=lambda line: -int(line["ts_ms"]))
    lines = list(found)[:_SHOWN]
    return lines, missing + [problem for trail in trails for problem in trail.problems]


PAGE = Page(
    "audit",
    "/audit",
    "audit.title",
    show,
    parts=("events",),
    fields=("since", "event", *_FIELDS),
    group="changes",
    key="a",
)
