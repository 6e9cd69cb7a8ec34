"""`top`: the remaining expiry of every broker, on all servers side by side, continuously."""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, NoReturn

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.commands.brokers import (
    HEALTHY,
    BrokerKey,
    ClusterOption,
    NameOption,
    key_of,
    state_word,
    wanted_brokers,
)
from namesrv_client.ctl.comparison import same_servers
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, Report, cell, counted, lasting, speaks_unicode, table
from namesrv_client.ctl.problems import code_of, document_of, line_of, listing
from namesrv_client.ctl.running import run, show
from namesrv_client.ctl.servers import Servers, reason
from namesrv_client.health import (
    RED_SHARE,
    YELLOW_SHARE,
    Problem,
    Server,
    failure_state,
    liveness,
    missing_brokers,
    problems,
    state_of,
)
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo
from namesrv_remoting.errors import RemotingError, ResponseError
from namesrv_runtime.clock import Clock

# A server that hangs turns grey within 3 s of its last response: it gets a request every second, and the screen is
# painted four times a second.
_ASK_SECONDS: Final = 1.0
_PAINT_SECONDS: Final = 0.25
_SILENT_SECONDS: Final = 2.5

_STYLES: Final = {"missing": "red", "not yet": "dim", "unknown": ""}
# Verdicts of the brokers at the top of the table, which an operator should check.
_URGENT: Final = ("missing", "overdue", "late")
_SERVER: Final = ("server", "state", "brokers", "topics", "connections", "revision")
_PROBLEM_LINES: Final = 5
# Problems that the state of a server names.
_STATES: Final = ("server_unreachable", "server_frozen", "tls_failed", "server_refuses", "server_not_ready")
_LEVEL_STYLES: Final = {"critical": "red"}
# Width of an age bar.
_BAR_CELLS: Final = 8
_EIGHTHS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")

Ask = Callable[[NameServer, Clock], Awaitable["Seen"]]


@dataclass(frozen=True, slots=True)
class Seen:
    """The last response of one server, and its time."""

    server: str
    # Time on our monotonic clock; before the first response, the time of the first request.
    answered_at: float
    # None: the server has not answered yet.
    state: str | None = None
    # None: the server has not answered yet, or is Apache's.
    info: ServerInfo | None = None
    brokers: Mapping[BrokerKey, LiveBroker] = field(default_factory=dict)
    # The reason that the server denies its brokers; empty if it lists them.
    refusal: str = ""
    # The reason that the last request has no response.
    error: RemotingError | None = None

    def is_silent(self, now: float) -> bool:
        """True if a response is overdue."""
        return self.error is not None or now - self.answered_at >= _SILENT_SECONDS

    def state_at(self, now: float) -> str:
        """The state in words."""
        failure = None if self.error is None else failure_state(self.error)
        if failure is not None and failure != "frozen":
            return failure.replace("_", " ")
        if self.is_silent(now):
            return f"no answer for {lasting(now - self.answered_at)}"
        return self.state or "connecting"

    def report(self, now: float) -> Server:
        """The report for the health model."""
        passed = now - self.answered_at
        if self.is_silent(now):
            state = "frozen" if self.error is None else failure_state(self.error)
            return Server(self.server, state, "" if self.error is None else reason(self.error), passed)
        if self.state is None:
            return Server(self.server, "asking")
        if self.refusal:
            return Server(self.server, state_of(self.info), info=self.info, refusal=self.refusal)
        return listing(self.server, self.info, self.brokers.values(), passed)

    def broker(self, key: BrokerKey, now: float) -> tuple[str, LiveBroker | None]:
        """The verdict on a broker and its live entry on this server, with ages as of now."""
        live = self.brokers.get(key)
        if live is None and (self.state is None or self.refusal or self.is_silent(now)):
            return "unknown", None
        if live is None:
            # A server that is not ready is still waiting for brokers to register.
            return "not yet" if self.info is not None and not self.info.ready else "missing", None
        if live.age_seconds is not None and live.expires_in_seconds is not None:
            passed = now - self.answered_at
            age, left = live.age_seconds + passed, live.expires_in_seconds - passed
            live = msgspec.structs.replace(live, age_seconds=age, expires_in_seconds=left)
        return liveness(live), live


def problems_in(seen: Sequence[Seen], now: float) -> list[Problem]:
    """All problems but those that the tables of servers and of brokers show."""
    reports = [one.report(now) for one in seen]
    return [
        one
        for one in problems(reports, missing=missing_brokers(reports))
        if one.kind not in ("server_asked", "no_brokers", "missing_broker")
    ]


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker, and its liveness on each server."""

    key: BrokerKey
    # Server -> verdict and live entry of the broker there.
    on: Mapping[str, tuple[str, LiveBroker | None]]

    @property
    def order(self) -> tuple[int, BrokerKey]:
        """Sort key: brokers with urgent verdicts first; the others by name, so that rows do not move."""
        verdicts = {verdict for verdict, _ in self.on.values()}
        return next((at for at, verdict in enumerate(_URGENT) if verdict in verdicts), len(_URGENT)), self.key

    def members(self, server: str) -> dict[str, Any]:
        """The broker on one server, for JSON and YAML."""
        verdict, live = self.on[server]
        ages = {name: getattr(live, name, None) for name in ("age_seconds", "expires_in_seconds", "expiry_seconds")}
        names = ("cluster", "broker_name", "broker_id", "broker_addr")
        return {**dict(zip(names, self.key, strict=True)), "verdict": verdict, **ages}


def top(
    options: Options,
    *,
    cluster: ClusterOption = None,
    broker: NameOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit, for scripts.")] = False,
) -> None:
    """Show live when each broker was last seen and when it expires, on all servers side by side, until Ctrl-C.

    A server that hangs turns grey within 3 s and delays no other. First come the brokers to look at: missing (only
    other servers have it), overdue (the next scan evicts it) or late (silent for over half of its time).
    Below the servers come their problems and those of the broker groups.
    With --once, exits with 1 if a server did not answer, a broker is missing or overdue, the given cluster or name
    matches no broker, or a problem is critical.
    """
    is_repeated = once or options.watch_seconds is not None
    if not is_repeated and (options.output != "table" or not sys.stdout.isatty()):
        raise typer.BadParameter("without --once it needs a terminal and prints a table", param_hint="--once")

    async def ask(server: NameServer, clock: Clock) -> Seen:
        info = await server.info()
        try:
            live_brokers = await server.brokers(cluster, broker)
        except ResponseError as error:
            return Seen(server.address, clock.monotonic(), state_word(info), info, refusal=reason(error))
        brokers = {key_of(one): one for one in live_brokers}
        return Seen(server.address, clock.monotonic(), state_word(info), info, brokers)

    if is_repeated:
        show(options, lambda servers: _report(servers, ask, wanted_brokers(cluster, broker)))
    run(options, lambda servers, output: _paint(servers, output, ask), ExitCode.OK)


async def _report(servers: Servers, ask: Ask, wanted: str | None) -> Report:
    began = servers.clock.monotonic()
    responses = await servers.ask(lambda server: ask(server, servers.clock))
    now = servers.clock.monotonic()
    seen = [
        Seen(server, began, error=outcome) if isinstance(outcome, RemotingError) else outcome
        for server, outcome in responses.outcomes.items()
    ]
    rows = broker_rows(seen, now)
    listed = problems_in(seen, now)
    absent = [f"no {wanted}"] if wanted and not rows and _all_have_listed(seen, now) else []
    is_wrong = bool(absent) or any(verdict in {"missing", "overdue"} for row in rows for verdict, _ in row.on.values())
    return Report(
        {
            "servers": responses.documents(
                lambda one: {"state": one.state, "brokers": [row.members(one.server) for row in rows]}
            ),
            "problems": [document_of(one) for one in listed],
        },
        page(seen, now),
        max(responses.code(needs_all=True), ExitCode.NO if is_wrong else code_of(listed)),
        [*responses.failures(), *absent],
    )


async def _paint(servers: Servers, output: Output, ask: Ask) -> NoReturn:
    clock = servers.clock
    seen = {server.address: Seen(server.address, clock.monotonic()) for server in servers.all}

    async def keep_asking(server: NameServer) -> None:
        while True:
            try:
                seen[server.address] = await ask(server, clock)
            except RemotingError as error:
                seen[server.address] = replace(seen[server.address], error=error)
            await clock.sleep(_ASK_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        for server in servers.all:
            tasks.create_task(keep_asking(server))
        with output.live() as live:
            while True:
                live.update(Group(*page([*seen.values()], clock.monotonic(), live.console)), refresh=True)
                await clock.sleep(_PAINT_SECONDS)


def broker_rows(seen: Sequence[Seen], now: float) -> list[BrokerRow]:
    """Every broker on any server."""
    keys = frozenset[BrokerKey]().union(*(one.brokers for one in seen))
    rows = [BrokerRow(key, {one.server: one.broker(key, now) for one in seen}) for key in keys]
    return sorted(rows, key=lambda row: row.order)


def page(seen: Sequence[Seen], now: float, console: Console | None = None) -> list[RenderableType]:
    """The servers, and below them the brokers: on a console as many as there is room for, but at least one."""
    silent = {one.server for one in seen if one.is_silent(now)}
    rows = broker_rows(seen, now)
    remarks = [*(Text(line, style="yellow") for line in _same_servers(seen)), *_problem_lines(seen, now)]
    above = [*table(_SERVER, [_server_cells(one, now) for one in seen]), *remarks, Text("")]
    heads = ("cluster", "broker", "id", "address", *(one.server for one in seen))
    if not rows:
        return [*above, Text("no brokers" if _all_have_listed(seen, now) else "brokers unknown", style="dim")]
    if console is None:
        return [*above, *_broker_table(heads, rows, silent, sys.maxsize)]
    room = console.height - _height(above, console)
    count = max(1, min(len(rows), room))
    while True:
        more = len(rows) - count
        left_out = [Text(f"... {counted(more, 'more broker')}", style="dim")] if more else []
        below = [*_broker_table(heads, rows[:count], silent, console.width), *left_out]
        excess = _height(below, console) - room
        if excess <= 0 or count == 1:
            return [*above, *below]
        # A broker takes a line, or on a narrow console a block of lines.
        count = max(1, count - max(1, excess * count // (room + excess)))


def _all_have_listed(seen: Sequence[Seen], now: float) -> bool:
    """True if every server has listed its brokers."""
    return all(one.state is not None and not one.refusal and not one.is_silent(now) for one in seen)


def _height(parts: Sequence[RenderableType], console: Console) -> int:
    return len(console.render_lines(Group(*parts), pad=False))


def _broker_table(
    heads: Sequence[str], rows: Sequence[BrokerRow], silent: Container[str], width: int
) -> list[RenderableType]:
    """The brokers with their ages and expiries, or where these do not fit into the width, with their ages."""
    cells = [_broker_cells(row, silent, _sentence) for row in rows]
    widths = (max(cell(it).cell_len for it in column) for column in zip(heads, *cells, strict=True))
    if sum(widths) + 2 * (len(heads) - 1) > width:
        cells = [_broker_cells(row, silent, _age) for row in rows]
    return table(heads, cells)


def _same_servers(seen: Sequence[Seen]) -> list[str]:
    return same_servers({one.server: None if one.info is None else one.info.boot_id for one in seen})


def _problem_lines(seen: Sequence[Seen], now: float) -> list[RenderableType]:
    """The worst problems that the states of the servers do not show, a line each."""
    listed = [one for one in problems_in(seen, now) if one.kind not in _STATES]
    shown = [Text(line_of(one), style=_LEVEL_STYLES.get(one.level, "yellow")) for one in listed[:_PROBLEM_LINES]]
    left_out = len(listed) - len(shown)
    return [*shown, *([Text(f"... {counted(left_out, 'more problem')}", style="dim")] if left_out else [])]


def _server_cells(seen: Seen, now: float) -> list[object]:
    counts = [getattr(seen.info, name, None) for name in _SERVER[2:]]
    if seen.info is None and seen.state is not None:
        counts[0] = len(seen.brokers)
    if seen.is_silent(now):
        counts = [it and Text(str(it), style="dim") for it in counts]
    state = seen.state_at(now)
    style = "green" if state in HEALTHY else "dim" if state == "connecting" else "red"
    return [seen.server, Text(state, style=style), *counts]


def _broker_cells(row: BrokerRow, silent: Container[str], text_of: Callable[[LiveBroker], str]) -> list[object]:
    return [
        *row.key,
        *(
            Text(verdict if live is None else text_of(live), style="dim" if server in silent else _style(verdict, live))
            for server, (verdict, live) in row.on.items()
        ),
    ]


def _style(verdict: str, live: LiveBroker | None) -> str:
    if live is None or live.expires_in_seconds is None or not live.expiry_seconds:
        return _STYLES.get(verdict, "")
    share = live.expires_in_seconds / live.expiry_seconds
    return "red" if share < RED_SHARE else "yellow" if share < YELLOW_SHARE else "green"


def _age(live: LiveBroker) -> str:
    if live.age_seconds is None or live.expires_in_seconds is None or not live.expiry_seconds:
        # Apache's server reports no ages.
        return "present"
    return f"{bar(live.expires_in_seconds / live.expiry_seconds)} {lasting(live.age_seconds)}"


def _sentence(live: LiveBroker) -> str:
    age, left = live.age_seconds, live.expires_in_seconds
    if age is None or left is None or not live.expiry_seconds:
        return _age(live)
    fate = "overdue" if left < 0 else f"expires in {lasting(left)}"
    return f"{bar(left / live.expiry_seconds)} seen {lasting(age)} ago, {fate}"


def bar(share: float) -> str:
    """A bar for the share of the expiry that is left."""
    eighths = math.ceil(max(0.0, min(1.0, share)) * _BAR_CELLS * 8)
    whole, part = divmod(eighths, 8)
    if not speaks_unicode():
        return ("#" * (whole + bool(part))).ljust(_BAR_CELLS, ".")
    return ("█" * whole + _EIGHTHS[part]).ljust(_BAR_CELLS, "·")
