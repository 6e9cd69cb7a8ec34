"""`events` and `watch`: the last events of each server, and changes as they happen."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Annotated, Final, NamedTuple, NoReturn

import typer
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.commands.topics import Routes, TopicsArgument, route_members
from namesrv_client.ctl.comparison import Fact, Value, differing_facts, facts_with_addresses, spelled
from namesrv_client.ctl.nameserver import MAX_EVENTS, NameServer
from namesrv_client.ctl.options import Options, check_known
from namesrv_client.ctl.output import ABSENT, Output, complain, counted, event_text, moment
from namesrv_client.ctl.running import Columns, run, show_list
from namesrv_client.ctl.servers import Servers, failure_line, reason
from namesrv_remoting.bodies.extensions import EVENT_TYPES, Event, Events
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.errors import NoPermissionError, RemotingError, RequestCodeNotSupportedError
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import printable

# Intervals of requests for events, and for the routes of Apache's server, which has no watches.
_EVENTS_SECONDS: Final = 1.0
_ROUTES_SECONDS: Final = 2.0
# Duration of one watch, below the time after which a NAT or a proxy drops an idle connection.
_WAIT_SECONDS: Final = 25.0
_RETRY_SECONDS: Final = 1.0
# Largest number that a request can carry.
_MAX_NUMBER: Final = 2**64 - 1


# Requests news of one server, without delay the first time; returns a function that prints the news.
Ask = Callable[[], Awaitable[Callable[[], None]]]
Start = Callable[[NameServer, Servers, Output], Ask]


class _EnoughError(Exception):
    """As many changes as the options name were printed."""


def _follow(options: Options, start: Start, refusals: Collection[str] = ()) -> NoReturn:
    """Print news of each server until enough changes were printed, or until Ctrl-C, which is the usual end.

    Ends at once if no server answers. The exit code is NO if there are `refusals` at the end.
    """

    async def stream(servers: Servers, output: Output) -> int:
        responses = await servers.ask(lambda server: server.is_native())
        if not responses.given:
            complain(responses.failures())
            return responses.code()
        try:
            is_usual_end = await _printed_enough(servers, output, start)
        except asyncio.CancelledError:
            is_usual_end = True
        return ExitCode.OK if is_usual_end and not refusals else ExitCode.NO

    run(options, stream, ExitCode.OK)


async def _printed_enough(servers: Servers, output: Output, start: Start) -> bool:
    """Print news of each server; return True after enough changes, and False if no server supports the request."""
    is_enough = False
    try:
        async with asyncio.TaskGroup() as resting:
            rest = resting.create_task(output.rest(servers.clock, math.inf))
            async with asyncio.TaskGroup() as tasks:
                for server in servers.all:
                    tasks.create_task(_keep_asking(server.address, start(server, servers, output), servers.clock))
            rest.cancel()
    except* _EnoughError:
        is_enough = True
    return is_enough


async def _keep_asking(address: str, ask: Ask, clock: Clock) -> None:
    """Request news for ever; report once when the server stops answering, and once when it answers again."""
    trouble = ""
    while True:
        try:
            print_news = await ask()
        except RemotingError as error:
            if reason(error) != trouble:
                trouble = reason(error)
                complain([failure_line(address, error)])
            if isinstance(error, RequestCodeNotSupportedError):
                # The server will not support the request later either.
                return
            await clock.sleep(_RETRY_SECONDS)
            continue
        if trouble:
            trouble = ""
            complain([f"{address}: answers again"])
        print_news()


_COLUMNS: Final[Columns[Event]] = {
    "time (UTC)": lambda event: moment(event.ts_ms),
    "number": lambda event: event.seq,
    "event": lambda event: event.event,
    "what": event_text,
}


def events(
    options: Options,
    *,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing events until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_EVENTS, help="How many of the last events.")] = 50,
    since: Annotated[
        int, typer.Option("--since", min=0, max=_MAX_NUMBER, help="Only events with a larger number.")
    ] = 0,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", help=f"Only events of this type: {', '.join(EVENT_TYPES)}.", show_default=False),
    ] = None,
) -> None:
    """Show the last registrations, evictions and route changes; a server remembers 1,000.

    Times are those of each server's clock: those of two servers can be compared as far as their clocks agree. Not
    available from Apache's NameServer.
    """
    wanted = _Wanted(since, limit, frozenset(kind or ()))
    check_known(wanted.kinds, EVENT_TYPES, option="--type")
    if follows:
        _follow(options, lambda server, servers, output: _Events(server, servers, output, wanted).ask)

    def remarks(given: Mapping[str, _First]) -> list[str]:
        left_out = [line for server, first in given.items() for line in wanted.left_out(server, first.received)]
        restarted = [server for server, first in given.items() if first.counts_anew]
        return left_out + [f"{server}: restarted: its last event is before {since}" for server in restarted]

    show_list(
        options,
        wanted.first,
        "events",
        _COLUMNS,
        lambda first: wanted.last_of(first.received),
        document=lambda first: [event.members() for event in wanted.last_of(first.received)],
        remarks=remarks,
    )


class _First(NamedTuple):
    """The first response of a server."""

    received: Events
    # True if the last event of the server is before the given one: the server has restarted, and counts anew.
    counts_anew: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The events that the options select."""

    # Only events with a larger number.
    since: int
    # Number of the last events.
    limit: int
    # Types of the events; empty for all types.
    kinds: frozenset[str]

    async def first(self, server: NameServer) -> _First:
        """The first response of a server."""
        # With a filter all events are requested, since the last `limit` events may contain too few of these kinds; with
        # a start all are, since the first event shows how many the server has forgotten.
        received = await server.events(self.since, MAX_EVENTS if self.kinds or self.since else self.limit)
        if not self.since or received.events:
            return _First(received, counts_anew=False)
        newest = (await server.events(0, 1)).events
        return _First(received, counts_anew=not newest or newest[-1].seq < self.since)

    def of_kinds(self, received: Events) -> list[Event]:
        """The events of the selected types."""
        return [event for event in received.events if not self.kinds or event.event in self.kinds]

    def last_of(self, received: Events) -> list[Event]:
        """The last events of the selected types."""
        return self.of_kinds(received)[-self.limit :]

    def left_out(self, server: str, received: Events) -> list[str]:
        """Lines about the events after `since` that are not shown; empty without `since`."""
        if not self.since:
            return []
        forgotten, more = missed_after(self.since, received), len(self.of_kinds(received)) - self.limit
        after = f"after {self.since}"
        lines = []
        if forgotten:
            lines.append(f"{server}: {counted(forgotten, 'event')} {after} forgotten by the server{self.of_all}")
        if more > 0:
            lines.append(f"{server}: {counted(more, 'event')} {after} not shown; see --limit")
        return lines

    @property
    def of_all(self) -> str:
        """A remark for a count of events of unknown types, if only some types were requested."""
        return ", of all types" if self.kinds else ""


@dataclass(slots=True)
class _Events:
    server: NameServer
    servers: Servers
    output: Output
    wanted: _Wanted
    # The number of the last known event.
    last: int = field(init=False)
    # Boot id of the last response; None before the first one.
    boot_id: str | None = None

    def __post_init__(self) -> None:
        self.last = self.wanted.since

    async def ask(self) -> Callable[[], None]:
        """Request the events since the last known one."""
        if self.boot_id is None:
            received = await self._first()
            return lambda: self._print_first(received)
        await self.servers.clock.sleep(_EVENTS_SECONDS)
        received = await self.server.events(self.last, MAX_EVENTS)
        if received.boot_id != self.boot_id:
            # All events of another boot are new.
            received = await self.server.events(0, MAX_EVENTS)
        return lambda: self._print_next(received)

    async def _first(self) -> Events:
        first = await self.wanted.first(self.server)
        if not first.counts_anew:
            return first.received
        complain([f"{self.server.address}: restarted"])
        self.wanted, self.last = replace(self.wanted, since=0), 0
        return await self.server.events(0, MAX_EVENTS)

    def _print_first(self, received: Events) -> None:
        complain(self.wanted.left_out(self.server.address, received))
        self._print(received, self.wanted.last_of(received))

    def _print_next(self, received: Events) -> None:
        if received.boot_id != self.boot_id:
            complain([f"{self.server.address}: restarted"])
            self.last = 0
        elif missed := missed_after(self.last, received):
            complain([f"{self.server.address}: {counted(missed, 'event')} missed{self.wanted.of_all}"])
        self._print(received, self.wanted.of_kinds(received))

    def _print(self, received: Events, shown: Sequence[Event]) -> None:
        for event in shown:
            cells = [str(cell(event)) for cell in _COLUMNS.values()]
            line = "  ".join([self.server.address, *cells] if len(self.servers.all) > 1 else cells)
            # Members come from the server, and must not replace our member "server".
            self.output.say({"server": "", **event.members()} | {"server": self.server.address}, Text(printable(line)))
        self.boot_id = received.boot_id
        if received.events:
            self.last = received.events[-1].seq


def missed_after(last: int, received: Events) -> int:
    """The number of events that the server has forgotten since the last known event."""
    return max(0, received.events[0].seq - last - 1) if received.events else 0


def watch(
    options: Options,
    topics: TopicsArgument,
    changes: Annotated[
        int | None, typer.Option("--changes", min=1, help="Stop after this many changes.", show_default=False)
    ] = None,
) -> None:
    """Show the routes of topics, then every change as it happens, until Ctrl-C.

    Apache's NameServer does not support watches; it is polled every 2 s.
    """
    names = list(dict.fromkeys(topics))
    # One item for each change that may still be printed.
    left = iter(range(changes - 1, -1, -1)) if changes else repeat(1)
    refusals: list[str] = []
    _follow(
        options,
        lambda server, servers, output: _Routes(server, servers, output, names, left, refusals).ask,
        refusals,
    )


@dataclass(slots=True)
class _Routes:
    server: NameServer
    servers: Servers
    output: Output
    topics: list[str]
    # Yields the number of changes that are still to be printed.
    left: Iterator[int]
    # The topics whose routes a server denies.
    refusals: list[str]
    # Boot id of the last response, and the known revision of that boot.
    boot_id: str | None = None
    revision: int = 0
    # Topic -> route; None: the server reported that the topic does not exist.
    known: dict[str, TopicRouteData | None] = field(default_factory=dict)

    async def ask(self) -> Callable[[], None]:
        """Request the changed routes; our server answers as soon as a route changes, Apache's server is polled.

        If the server denies some of several topics, the others are requested from then on.
        """
        try:
            return await self._ask()
        except NoPermissionError as refusal:
            refused = await self.server.refused_topics(self.topics, refusal)
            complain([f"{self.server.address}: topic {topic}: {reason(error)}" for topic, error in refused.items()])
            self.refusals.extend(refused)
            self.topics = [topic for topic in self.topics if topic not in refused]
            return await self._ask()

    async def _ask(self) -> Callable[[], None]:
        if not await self.server.is_native():
            if self.known:
                await self.servers.clock.sleep(_ROUTES_SECONDS)
            routes: Routes = await self.server.routes(self.topics)
        else:
            clock, wait_seconds = self.servers.clock, 0.0 if self.boot_id is None else _WAIT_SECONDS
            began = clock.monotonic()
            pulled = await self.server.pull_routes(
                self.topics, boot_id=self.boot_id, since=self.revision, wait_seconds=wait_seconds
            )
            self.boot_id, self.revision, routes = pulled.boot_id, pulled.revision, pulled.routes
            if wait_seconds and not routes and clock.monotonic() - began < _RETRY_SECONDS:
                # A server that is shutting down holds no watch.
                await clock.sleep(_RETRY_SECONDS)

        def print_news() -> None:
            for topic in self.topics:
                if topic in routes:
                    self._print(topic, routes[topic])

        return print_news

    def _print(self, topic: str, new: TopicRouteData | None) -> None:
        is_first, old = topic not in self.known, self.known.get(topic)
        self.known[topic] = new
        changed = differing_facts(
            {"old": facts_with_addresses(old) if old else {}, "new": facts_with_addresses(new) if new else {}}
        )
        if not is_first and (old is None) == (new is None) and not changed:
            return
        change = "first" if is_first else "vanished" if new is None else "appeared" if old is None else "changed"
        ts_ms = int(self.servers.clock.wall() * 1000)
        words = [moment(ts_ms), self.server.address if len(self.servers.all) > 1 else None, topic]
        document = {
            "ts_ms": ts_ms,
            "server": self.server.address,
            "topic": topic,
            "change": change,
            "facts": {} if is_first else {str(fact): spelled(values) for fact, values in changed.items()},
            "route": new and route_members(new),
        }
        line = "  ".join([*(word for word in words if word), _sentence(change, new, changed)])
        self.output.say(document, Text(printable(line)))
        if not is_first and next(self.left) == 0:
            raise _EnoughError


def _sentence(change: str, new: TopicRouteData | None, changed: Mapping[Fact, Mapping[str, Value]]) -> str:
    if new is None:
        return "absent" if change == "first" else "vanished"
    if change == "changed":
        texts = {fact: [ABSENT if it is None else it for it in values.values()] for fact, values in changed.items()}
        return "; ".join(f"{fact}: {old} -> {now}" for fact, (old, now) in texts.items())
    names = sorted(queues.broker_name for queues in new.queue_datas)
    return f"{'' if change == 'first' else 'appeared '}on {', '.join(names)}"
