"""`history`: the changes of a topic's route, from the servers' last events or from heartbeat logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.commands.topics import TopicArgument
from namesrv_client.ctl.nameserver import MAX_EVENTS, NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import ABSENT, Report, moment, table
from namesrv_client.ctl.running import Columns, print_once, show_list
from namesrv_remoting.bodies.extensions import Event
from namesrv_runtime.program import not_installed
from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.history.topic import topic_past

_OLDER: Final = "older ones are in the heartbeat logs: --logs DIR"
_CLOCKS: Final = "times are those of each server's clock; the order across servers is as exact as these clocks"
_CAUSES: Final = {"register": "registered", "evict": "removed"}
_PERMISSION: Final = "write_permission"

Document = Mapping[str, Any]
# What has changed in a route with the same brokers as before: the logs have no more than its brokers.
_SAME_BROKERS: Final = "permissions, queues or addresses"


@dataclass(frozen=True, slots=True)
class Change:
    """One route change, and the event that caused it; no event for a deleted topic."""

    event: Event
    causes: Sequence[Event]
    # False: the event names only the first of many topics, and this topic is not among them.
    is_certain: bool

    def members(self) -> dict[str, Any]:
        """The event as the server sent it, and its `causes`."""
        causes = [cause.members() for cause in self.causes]
        return {**self.event.members(), "causes": causes, "certain": self.is_certain}

    def brokers(self) -> object:
        """The broker of the change, and whether it registered, was removed, or its write permission changed."""
        return ", ".join(map(_cause_text, self.causes)) or self.event.fields.get("broker_name")


def _cause_text(cause: Event) -> str:
    fields = cause.fields
    if cause.event == _PERMISSION:
        # The event is about a whole group.
        return f"{fields.get('broker_name')} write permission {'removed' if fields.get('removed') else 'added'}"
    why = f" ({fields['reason']})" if "reason" in fields else ""
    return f"{fields.get('broker_name')}/{fields.get('broker_id')} {_CAUSES[cause.event]}{why}"


_COLUMNS: Final[Columns[Change]] = {
    "time (UTC)": lambda change: moment(change.event.ts_ms),
    "revision": lambda change: change.event.fields.get("revision"),
    "topics changed": lambda change: change.event.fields.get("count"),
    "this topic": lambda change: None if change.is_certain else "perhaps",
    "broker": Change.brokers,
}


def history(
    options: Options,
    topic: TopicArgument,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--logs",
            metavar="DIR",
            help="Directory of heartbeat logs, or a server's data directory, which the server logs as data_dir when "
            "it starts: the routes themselves, and what clients received (repeatable).",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="As it was then (2026-03-01T03:01:52, UTC).", show_default=False),
    ] = None,
) -> None:
    """Show how the route of a topic changed, from the servers' last events or from heartbeat logs.

    A server remembers its last 1,000 events, and which topics a change touched, not their routes: of a large change
    the first few, so that it touched any other topic only perhaps. With --logs the routes of the last week are shown,
    also of servers that no longer run. Times are those of each server's clock. Not available from Apache's NameServer
    without --logs. Exits with 1 if nothing is known of the topic.
    """
    until_ms = None if at is None else _moment_ms(at)
    if logs:
        print_once(options, _report(_from_logs(logs, topic, at), shows_all=at is None))
    until = "" if until_ms is None else f" until {moment(until_ms)}"

    async def ask(server: NameServer) -> list[Change]:
        return _touching((await server.events(0, MAX_EVENTS)).events, topic, until_ms)

    show_list(
        options,
        ask,
        "changes",
        _COLUMNS,
        # With --at only the last change until then matters.
        lambda changes: changes if at is None else changes[-1:],
        document=lambda changes: [change.members() for change in (changes if at is None else changes[-1:])],
        absent=lambda changes: (
            [] if changes else [f"change of {topic}{until} among the last {MAX_EVENTS} events; {_OLDER}"]
        ),
    )


def _touching(events: Sequence[Event], topic: str, until_ms: int | None) -> list[Change]:
    """The changes that touched a topic, or may have: a server names the first few topics of a large change."""
    past = [event for event in events if until_ms is None or (event.ts_ms is not None and event.ts_ms <= until_ms)]
    return [
        Change(event, _causes_of(event, past[number + 1 : number + 2]), is_certain=touches is True)
        for number, event in enumerate(past)
        if event.event == "route" and (touches := event.touches(topic)) is not False
    ]


def _causes_of(route: Event, following: Sequence[Event]) -> list[Event]:
    """The event that follows a route change, if both name the same broker."""
    name = route.fields.get("broker_name")
    kinds = (*_CAUSES, _PERMISSION)
    return [event for event in following if event.event in kinds and event.fields.get("broker_name") == name]


def _moment_ms(text: str) -> int:
    try:
        return moment_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from None


def _from_logs(logs: Sequence[str], topic: str, at: str | None) -> Document:
    try:
        return topic_past(logs, topic, at)
    except ModuleNotFoundError as error:
        missing = not_installed(str(error.name).partition(".")[0], "namesrv-report")
        raise typer.BadParameter(missing, param_hint="--logs") from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--logs") from error


def _report(past: Document, *, shows_all: bool) -> Report:
    """All changes, oldest first; or the routes at the moment, and the last routes that clients had received by then."""
    body = _all_changes(past) if shows_all else _at_the_moment(past)
    left_out = past["changes_left_out" if shows_all else "clients_left_out"]
    problems = [f"{left_out} more are not shown"] if left_out else []
    if len({one["nameserver"] for one in past["changes" if shows_all else "servers"]}) > 1:
        problems.append(_CLOCKS)
    if not past["changes"]:
        problems.append(f"no change of {past['topic']} in the logs of the week before {moment(past['at_ms'])} UTC")
    return Report(past, body, ExitCode.OK if past["changes"] else ExitCode.NO, problems)


def _all_changes(past: Document) -> list[RenderableType]:
    rows = [
        (moment(one["at_ms"]), one["nameserver"], one["revision"], _difference(one), _route(one))
        for one in past["changes"][::-1]
    ]
    return table(("time (UTC)", "server", "revision", "change", "route"), rows)


def _at_the_moment(past: Document) -> list[RenderableType]:
    servers = [
        (
            one["nameserver"],
            _route(one["change"]) if one["is_logged"] else "not running, or its log is missing",
            _since(one["change"]),
        )
        for one in past["servers"]
    ]
    received = [
        (
            *(one["client"], one["nameserver"], moment(one["received_ms"]), _route(one["change"])),
            "old" if one["is_old"] else None,
        )
        for one in past["clients"]
    ]
    clients = table(("client", "server", "received at (UTC)", "route", "state"), received)
    return [*table(("server", "route", "since (UTC)"), servers), *([Text()] if clients else []), *clients]


def _difference(change: Document) -> Text:
    """The brokers that came and left; after `=` the brokers of a group whose earlier ones are not in the logs."""
    parts = (("+", "came", "green"), ("-", "left", "red"), ("=", "now", ""))
    words = [Text(f"{sign}{_member(one)}", style=style) for sign, name, style in parts for one in change[name]]
    if words:
        return Text(" ").join(words)
    return Text(ABSENT if change["route"] is None else _SAME_BROKERS)


def _route(change: Document | None) -> str:
    if change is None or change["route"] is None:
        return "not in the logs"
    return " ".join(map(_member, change["route"])) or "none"


def _member(one: Document) -> str:
    ids = ",".join(map(str, one["ids"]))
    return f"{one['broker_name']}:{ids}" if ids else str(one["broker_name"])


def _since(change: Document | None) -> str | None:
    return None if change is None else moment(change["at_ms"])
