"""Running of commands: requests to all servers, printed once or repeatedly with --watch, until the end or Ctrl-C."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import msgspec
import typer
from rich.console import RenderableType

from namesrv_client.ctl import PROGRAM, ExitCode
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, Report, complain, table
from namesrv_client.ctl.servers import Responses, Servers
from namesrv_remoting.aio.tls import TlsError
from namesrv_remoting.errors import ConnectError, RemotingError, ResponseError
from namesrv_runtime import loops
from namesrv_runtime.log import printable

T = TypeVar("T")
Item = TypeVar("Item")

Request = Callable[[NameServer], Awaitable[T]]
Stream = Callable[[Servers, Output], Awaitable[int]]
# The result of a change that found nothing to change.
UNCHANGED: Final = "nothing changed"
# Head of a column -> the cell of the column for an item of the table.
Columns = Mapping[str, Callable[[Item], object]]


def show(options: Options, ask: Callable[[Servers], Awaitable[Report]]) -> NoReturn:
    """Request a report and print it, repeatedly with --watch; ends the command."""
    seconds = options.watch_seconds

    async def stream(servers: Servers, output: Output) -> int:
        while True:
            report = await ask(servers)
            if seconds is None:
                output.report(report)
                return report.code
            now = time.strftime("%H:%M:%S", time.gmtime())
            output.report(report, head=f"every {seconds:g} s, at {now} UTC; Ctrl-C ends")
            await output.rest(servers.clock, seconds)

    run(options, stream, ExitCode.INTERRUPTED if seconds is None else ExitCode.OK, may_repeat=True)


def run(options: Options, stream: Stream, when_interrupted: ExitCode, *, may_repeat: bool = False) -> NoReturn:
    """Run a stream of output on the servers; ends the command."""
    if not may_repeat:
        _check_once(options)

    async def work() -> int:
        async with connected(options) as servers:
            return await stream(servers, Output(options))

    try:
        code = loops.run(work)
    except KeyboardInterrupt:
        code = when_interrupted
    raise typer.Exit(code)


def connected(options: Options) -> Servers:
    """The servers of the options; each connection is made with the first request.

    Raises BadParameter for a TLS file that cannot be used, which would look like a failure of each server.
    """
    signing, tls = options.signing, options.tls.client_tls
    if tls is not None:
        try:
            tls.context()
        except TlsError as error:
            raise typer.BadParameter(str(error), param_hint="options or environment") from None
    return Servers(options.addresses, timeout_seconds=options.timeout_seconds, signing=signing, tls=tls)


def print_once(options: Options, report: Report) -> NoReturn:
    """Print a report that needs no server; ends the command."""
    _check_once(options)
    Output(options).report(report)
    raise typer.Exit(report.code)


def _check_once(options: Options) -> None:
    if options.watch_seconds is not None:
        raise typer.BadParameter("this command cannot be repeated", param_hint="--watch")


def show_list(  # noqa: PLR0913 - by keyword
    options: Options,
    request: Request[T],
    name: str,
    columns: Columns[Item],
    items: Callable[[T], Iterable[Item]],
    *,
    document: Callable[[T], Any] = msgspec.to_builtins,
    absent: Callable[[T], Iterable[str]] = lambda _: (),
    refused: Callable[[T], Iterable[str]] = lambda _: (),
    merged: Callable[[Mapping[str, T]], list[RenderableType]] | None = None,
    remarks: Callable[[Mapping[str, T]], list[str]] = lambda _: [],
) -> NoReturn:
    """Show a list of each server, or with `merged` one list of several servers; ends the command.

    `absent` returns the names of requested things that a server does not have, `refused` lines about those that it
    denies, `remarks` lines about the responses.
    """

    async def ask(servers: Servers) -> Report:
        responses = await servers.ask(request)
        body = server_table(responses, columns, items)
        if merged is not None and len(responses.given) > 1:
            body = merged(responses.given)
        refusals = [f"{server}: {line}" for server, value in responses.given.items() for line in refused(value)]
        absences = [*refusals, *absences_in(responses, absent)]
        nothing = [f"no {name}"] if responses.given and not body and not absences else []
        return Report(
            {"servers": responses.documents(lambda value: {name: document(value)})},
            body,
            max(responses.code(), ExitCode.NO if absences else ExitCode.OK),
            [*responses.failures(), *absences, *nothing, *remarks(responses.given)],
        )

    show(options, ask)


def server_table(
    responses: Responses[T], columns: Columns[Item], items: Callable[[T], Iterable[Item]]
) -> list[RenderableType]:
    """The items of each response; with several servers the first column has the server."""
    heads = ("server", *columns)
    rows = [
        (server, *(cell(item) for cell in columns.values()))
        for server, value in responses.given.items()
        for item in items(value)
    ]
    first = 0 if len(responses.outcomes) > 1 else 1
    return table(heads[first:], [row[first:] for row in rows])


def absences_in(responses: Responses[T], absent: Callable[[T], Iterable[str]]) -> list[str]:
    """A line for each requested thing that a server reports as absent."""
    return [f"{server}: no {what}" for server, value in responses.given.items() for what in absent(value)]


def change(  # noqa: PLR0913 - by keyword
    options: Options,
    request: Request[T],
    document: Mapping[str, Any],
    *,
    confirming: str | None = None,
    objections: Request[list[str]] | None = None,
    members: Callable[[T], Mapping[str, Any]] = lambda _: {},
    absences: Callable[[Responses[T]], list[str]] = lambda _: [],
    result: Callable[[T], str] = lambda _: "done",
) -> NoReturn:
    """Change something on all servers, and print the results; a server that was not reached makes the exit code 1.

    `objections` are reasons why a server would not make the change: any objection prevents the change on all servers.
    Without --yes the change is then confirmed on the terminal; without a terminal it is not made.
    """
    _check_once(options)
    if objections is not None:
        _stop_on(options, objections)
    if confirming is not None and not options.yes:
        _confirm(printable(f"{confirming} on {', '.join(options.addresses)}"))

    async def ask(servers: Servers) -> Report:
        responses = await send_change(servers, request)
        results = {server: {"result": result(value), **members(value)} for server, value in responses.given.items()}
        heads = next((tuple(it) for it in results.values()), ())
        absent = absences(responses)
        return Report(
            {**document, "servers": responses.documents(members)},
            table(("server", *heads), [(server, *it.values()) for server, it in results.items()]),
            max(responses.code(needs_all=True), ExitCode.NO if absent else ExitCode.OK),
            [*responses.failures(), *absent],
        )

    show(options, ask)


async def send_change(servers: Servers, request: Request[T]) -> Responses[T]:
    """Send a change to all servers; an interruption prints what is known of each server."""
    outcomes = {server.address: "interrupted; the change may have been made" for server in servers.all}

    async def ask_one(server: NameServer) -> T:
        try:
            value = await request(server)
        except ConnectError as error:
            outcomes[server.address] = f"not changed: {error}"
            raise
        except ResponseError as error:
            outcomes[server.address] = f"refused before the interruption: {error}"
            raise
        except RemotingError as error:
            outcomes[server.address] = f"{error}; the change may have been made"
            raise
        outcomes[server.address] = "done before the interruption"
        return value

    try:
        return await servers.ask(ask_one)
    except asyncio.CancelledError:
        complain([f"{address}: {outcome}" for address, outcome in outcomes.items()])
        raise


def _confirm(what: str) -> None:
    """Ask for confirmation on the terminal; end the command unless the user confirms."""
    if not sys.stdin.isatty():
        complain([f"{what}? No terminal to ask on; pass --yes to confirm"])
        raise typer.Exit(ExitCode.USAGE)
    if not typer.confirm(f"{PROGRAM}: {what}?", err=True):
        raise typer.Exit(ExitCode.NO)


def _stop_on(options: Options, objections: Request[list[str]]) -> None:
    """Print the objections of the servers, and end the command with exit code 1; return if there are none.

    A server that does not answer has no objection: the change itself reports that.
    """

    async def ask() -> list[str]:
        async with connected(options) as servers:
            responses = await servers.ask(objections)
        return [f"{server}: {line}" for server, lines in responses.given.items() for line in lines]

    if reasons := loops.run(ask):
        complain(reasons)
        raise typer.Exit(ExitCode.NO)
