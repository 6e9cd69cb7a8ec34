"""How a command runs: once, again and again (--watch), or until it is interrupted."""

import sys
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

import typer

from namesrv_client.ctl import PROGRAM, exit_codes
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, Report, complain
from namesrv_client.ctl.servers import Servers
from namesrv_client.ctl.wording import shown
from namesrv_runtime import loops

Question = Callable[[Servers], Awaitable[Report]]
Stream = Callable[[Servers, Output], Awaitable[int]]


def show(options: Options, question: Question) -> NoReturn:
    """Ask and print, and with --watch again and again; ends the command."""
    if options.watch_seconds is None:
        _end(options, lambda servers, output: _once(servers, output, question), exit_codes.INTERRUPTED)
    _end(options, lambda servers, output: _repeatedly(options, servers, output, question), exit_codes.OK)


def change(options: Options, question: Question) -> NoReturn:
    """Ask once for something that changes a server; ends the command."""
    only_once(options)
    _end(options, lambda servers, output: _once(servers, output, question), exit_codes.INTERRUPTED)


def follow(options: Options, stream: Stream, *, when_interrupted: int = exit_codes.OK) -> NoReturn:
    """Print what comes; Ctrl-C is the ordinary end, unless it is said to be none."""
    only_once(options)
    _end(options, stream, when_interrupted)


def _end(options: Options, stream: Stream, when_interrupted: int) -> NoReturn:
    async def run() -> int:
        async with Servers(options.addresses, timeout_seconds=options.timeout_seconds) as servers:
            return await stream(servers, Output(options))

    try:
        code = loops.run(run)
    except KeyboardInterrupt:
        code = when_interrupted
    raise typer.Exit(code)


async def _once(servers: Servers, output: Output, question: Question) -> int:
    report = await question(servers)
    output.report(report)
    return report.code


async def _repeatedly(options: Options, servers: Servers, output: Output, question: Question) -> int:
    seconds = options.watch_seconds or 0.0
    while True:
        report = await question(servers)
        head = f"every {seconds:g} s, at {time.strftime('%H:%M:%S')}; Ctrl-C ends"
        output.repaint(report, head)
        await servers.clock.sleep(seconds)


def only_once(options: Options) -> None:
    """Refuse --watch where it makes no sense."""
    if options.watch_seconds is not None:
        raise typer.BadParameter("this command cannot be repeated", param_hint="--watch")


def confirm(options: Options, question: str) -> None:
    """Ask before something is changed, unless --yes was given; without somebody to ask it is not done."""
    only_once(options)
    if options.yes:
        return
    if not sys.stdin.isatty():
        complain([f"{shown(question)}? No terminal to ask on; pass --yes to confirm"])
        raise typer.Exit(exit_codes.USAGE)
    if not typer.confirm(f"{PROGRAM}: {shown(question)}?", err=True):
        raise typer.Exit(exit_codes.NO)


def on(options: Options) -> str:
    """The servers of a command, for a question."""
    return f"on {', '.join(options.addresses)}"
