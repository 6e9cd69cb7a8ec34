"""`events`: the last registrations, evictions and route changes, and what happens now."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final

import typer
from rich.text import Text

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.listing import listing
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, Report, complain
from namesrv_client.ctl.running import follow, show
from namesrv_client.ctl.servers import Servers, problem, reason
from namesrv_client.ctl.wording import moment, shown
from namesrv_remoting.bodies.extension_answers import Event, Events
from namesrv_remoting.errors import RemotingError, RequestCodeNotSupportedError

_FOLLOW_SECONDS: Final = 1.0
# what a server remembers
_MAX_EVENTS: Final = 1000
Tell = Callable[[NameServer, Sequence[Event]], None]

_LEADING: Final = ("cluster", "broker_name", "broker_id", "broker_addr")


def events(
    options: Options,
    *,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing events until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=_MAX_EVENTS, help="How many of the last events.")] = 50,
    since: Annotated[int, typer.Option("--since", min=0, help="Only events with a larger number.")] = 0,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Only events of this type: register, unregister, evict, route, fenced.", show_default=False
        ),
    ] = None,
) -> None:
    """Show the last registrations, evictions and route changes; a server remembers 1,000.

    Not available from Apache's NameServer.
    """
    if follows:
        follow(options, lambda servers, output: _follow(servers, output, since, limit, kind or ()))
    show(options, lambda servers: _events(servers, since, limit, kind or ()))


async def _events(servers: Servers, since: int, limit: int, kinds: Collection[str]) -> Report:
    # what is left out of the last ones would not make room for earlier ones
    asked = _MAX_EVENTS if kinds else limit
    answers = await servers.ask(lambda server: server.events(since, asked))
    return listing(
        answers,
        "events",
        document=lambda found: [event.members() for event in _chosen(found.events, kinds)[-limit:]],
        columns=("time", "number", "event", "what"),
        rows=lambda found: (_row(event) for event in _chosen(found.events, kinds)[-limit:]),
    )


def _chosen(found: Iterable[Event], kinds: Collection[str]) -> list[Event]:
    return [event for event in found if not kinds or event.event in kinds]


def _row(event: Event) -> tuple[object, ...]:
    return (moment(event.ts_ms), event.seq, event.event, _what(event.fields))


def _what(fields: Mapping[str, object]) -> str:
    """Who, in one word if it is a broker, and everything else by name."""
    broker = "/".join(str(fields[name]) for name in _LEADING[:3]) if all(name in fields for name in _LEADING) else ""
    rest = {name: value for name, value in fields.items() if not broker or name not in _LEADING}
    words = [broker, str(fields["broker_addr"])] if broker else []
    words += [f"{name}={_value(value)}" for name, value in rest.items() if value is not None]
    return " ".join(words)


def _value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


# -- following --------------------------------------------------------------------------------------------------------


async def _follow(servers: Servers, output: Output, since: int, limit: int, kinds: Collection[str]) -> int:
    asked = _MAX_EVENTS if kinds else limit
    first = await servers.ask(lambda server: server.events(since, asked))
    complain(first.problems())
    if not first.given:
        return first.code()
    several = len(servers.all) > 1

    def tell(server: NameServer, found: Sequence[Event]) -> None:
        for event in _chosen(found, kinds):
            cells = [str(cell) for cell in _row(event)]
            line = "  ".join([server.address, *cells] if several else cells)
            # a server may name a member as it likes, and cannot take ours away
            output.line(Text(shown(line)), {"server": "", **event.members()} | {"server": server.address})

    async with asyncio.TaskGroup() as tasks:
        for server in servers.all:
            known = first.given.get(server.address)
            if known is not None:
                tell(server, _chosen(known.events, kinds)[-limit:])
            # Apache's will not tell later either
            if server.address not in first.refused:
                tasks.create_task(_follow_one(servers, server, known, tell))
    return exit_codes.NO


async def _follow_one(servers: Servers, server: NameServer, known: Events | None, tell: Tell) -> None:
    trouble: str | None = None
    while True:
        await servers.clock.sleep(_FOLLOW_SECONDS)
        try:
            found = await server.events(_last(known), _MAX_EVENTS)
            if known is not None and found.boot_id != known.boot_id:
                complain([f"{server.address}: restarted"])
                known = None
                found = await server.events(0, _MAX_EVENTS)
        except RequestCodeNotSupportedError as error:
            complain([problem(server.address, reason(error))])
            return
        except RemotingError as error:
            if reason(error) != trouble:
                trouble = reason(error)
                complain([problem(server.address, trouble)])
            continue
        if trouble is not None:
            trouble = None
            complain([f"{server.address}: answers again"])
        complain(_missed(server, known, found))
        tell(server, found.events)
        known = Events(found.boot_id, found.events or ([] if known is None else known.events[-1:]))


def _last(known: Events | None) -> int:
    return known.events[-1].seq if known is not None and known.events else 0


def _missed(server: NameServer, known: Events | None, found: Events) -> Iterator[str]:
    if known is not None and found.events and found.events[0].seq > _last(known) + 1:
        yield f"{server.address}: {found.events[0].seq - _last(known) - 1} events missed"
