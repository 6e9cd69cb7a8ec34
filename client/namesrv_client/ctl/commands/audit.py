"""`audit`: shows the audit trail of a server from its files."""

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.audit_trail import (
    KINDS,
    NO_DIRECTORY,
    REQUESTS,
    Filters,
    Line,
    Trail,
    directory_error,
    request_name,
    sentence,
)
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options, check_known
from namesrv_client.ctl.output import Output, Report, complain, moment, table
from namesrv_client.ctl.running import connected, print_once, run
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.bodies.extensions import ServerInfo
from namesrv_runtime import loops
from namesrv_runtime.log import printable
from namesrv_runtime.state_dir import state_dir
from namesrv_runtime.suggestions import did_you_mean
from namesrv_spark_jobs.history.moments import moment_ms

_FOLLOW_SECONDS: Final = 0.5
# A file in the data directory that a server keeps open while it runs.
_LOCK: Final = "lock"
_NAME_IT: Final = (
    "name the server's audit-log-dir, or its data directory, which the server logs as data_dir when it starts"
)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def audit(  # noqa: PLR0913 - each is an option
    options: Options,
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIRECTORY",
            help="A server's data directory, or its audit-log-dir. Default: NAMESRV_DATA_DIR, else that of the "
            "server, if it runs on this machine under your account, else $XDG_STATE_HOME/namesrv "
            "(~/.local/state/namesrv).",
            show_default=False,
        ),
    ] = None,
    *,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing lines until Ctrl-C.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many of the last lines.")] = 50,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only from then on: 30m or 7d ago, or 2026-03-01T08:00 (UTC)."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            help=f"Only lines of this kind: {', '.join(KINDS)}.",
        ),
    ] = None,
    account: Annotated[str | None, typer.Option("--account", help="Only requests of this account (* for any).")] = None,
    peer: Annotated[str | None, typer.Option("--peer", metavar="ADDRESS", help="Only lines of this address.")] = None,
    request: Annotated[str | None, typer.Option("--request", help="Only this request, by RocketMQ's name.")] = None,
    broker: Annotated[str | None, typer.Option("--broker", help="Only lines with this broker.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only lines with this topic.")] = None,
) -> None:
    """Show the changes and refusals of a server, with account and address.

    Reads the files of the server's audit trail; run it where they are. Exits with 1 if there are
    none, or one of them is damaged.
    """
    check_known(kind or (), KINDS, option="--event")
    filters = Filters(frozenset(kind or ()), account, peer, request, broker, topic, _since(since))
    trail = Trail(_place(options, directory), filters)
    if follows:
        _follow(options, trail, limit)
    lines = list(deque(trail.news(), maxlen=limit))
    columns = ("time (UTC)", "event", "account", "peer", "request", "what")
    rows = [(moment(line["ts_ms"]), *_cells(line)) for line in lines]
    if not trail.exists() and not trail.problems:
        trail.problems.append(f"no audit trail in {trail.directory}; {_NAME_IT}")
    elif not lines and request is not None:
        trail.problems += _unknown_request(request)
    code = ExitCode.NO if trail.problems else ExitCode.OK
    if not lines and not trail.problems:
        trail.problems.append("no lines")
    document = {"directory": str(trail.directory), "lines": lines}
    print_once(options, Report(document, table(columns, rows), code, trail.problems))


def _follow(options: Options, trail: Trail, limit: int) -> None:
    async def stream(servers: Servers, output: Output) -> int:
        lines: Iterator[Line] = iter(deque(trail.news(), maxlen=limit))
        while True:
            for line in lines:
                cells = [moment(line["ts_ms"]), *_cells(line)]
                output.say(line, Text(printable("  ".join(cell or "-" for cell in cells))))
            complain(trail.problems)
            trail.problems.clear()
            await output.rest(servers.clock, _FOLLOW_SECONDS)
            lines = trail.news()

    run(options, stream, ExitCode.OK)


def _unknown_request(text: str) -> list[str]:
    """A line about a request that no line has and RocketMQ does not know."""
    name = request_name(text)
    if any(fnmatchcase(known, name) for known in REQUESTS):
        return []
    return [f"unknown request {text!r}{did_you_mean(name, REQUESTS)}"]


def _place(options: Options, directory: Path | None) -> Path:
    if directory is not None:
        if directory_error(directory) == NO_DIRECTORY:
            raise typer.BadParameter(f"no such directory: {directory}", param_hint="DIRECTORY")
        return directory
    if named := os.environ.get("NAMESRV_DATA_DIR"):
        return _existing(Path(named), "")
    servers = ", ".join(options.addresses)
    unseen = f"no open files of a server at {servers} can be seen from here"
    if found := _running_data_dir(options):
        server, running = found
        if len(options.addresses) > 1:
            complain([f"the lines of {server} only, from {running}"])
        return running
    usual = _existing(state_dir(os.environ, "namesrv"), f", and {unseen}")
    complain([f"{unseen}; the lines are from {usual}"])
    return usual


def _running_data_dir(options: Options) -> tuple[str, Path] | None:
    """The first server on this machine whose open files this user may see, and its data directory.

    A server does not send its directory, since every peer may send it a request; Linux shows the open files of a
    process to its owner.
    """

    async def ask() -> tuple[str, Path] | None:
        async with connected(options) as servers:
            responses = await servers.ask(NameServer.info)
        found = ((server, _data_dir(info)) for server, info in responses.given.items() if info is not None)
        return next(((server, directory) for server, directory in found if directory is not None), None)

    return loops.run(ask)


def _data_dir(info: ServerInfo) -> Path | None:
    """The data directory, unless the pid belongs to another process.

    The names of a server's log files contain its boot id.
    """
    paths = open_files(info.pid)
    if not any(info.boot_id in path.name for path in paths):
        return None
    return next((path.parent for path in paths if path.name == _LOCK), None)


def open_files(pid: int | None) -> list[Path]:
    """The open files of a process; empty without Linux's /proc, and for another account's process."""
    files = []
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            # The process may have closed the file since its directory was listed.
            with contextlib.suppress(FileNotFoundError):
                files.append(link.readlink())
    except OSError:
        pass
    return files


def _existing(default: Path, more: str) -> Path:
    if directory_error(default) == NO_DIRECTORY:
        raise typer.BadParameter(f"no such directory: {default}{more}; {_NAME_IT}", param_hint="DIRECTORY")
    return default


def _since(text: str | None) -> float:
    """The milliseconds since 1970 of `2h` (ago) or `2026-03-01T08:00`."""
    if text is None:
        return 0.0
    if ago := re.fullmatch(r"([0-9]+)([smhd])(?: ago)?", text.strip()):
        return (time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000
    try:
        return moment_ms(text)
    except ValueError:
        raise typer.BadParameter(
            f"not a time: {text!r} (for example 30m, 2h, 7d, 2026-03-01T08:00)", param_hint="--since"
        ) from None


def _cells(line: Line) -> tuple[str | None, ...]:
    return (line["event"], line.get("account") or None, line.get("peer"), line.get("request"), sentence(line) or None)
