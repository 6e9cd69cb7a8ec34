"""The command of `make demo`."""

import argparse
import asyncio
import contextlib
import logging
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from demo.console import console, keep
from demo.report import report
from demo.screen import Screen
from demo.stage import Stage, stage
from demo.story import SCENES, play
from demo.times import Times
from demo.witness import NothingCameError

_EXIT_OK: Final = 0
_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 130
_FACTOR: Final = 20.0
_KEEP_SECONDS: Final = 600.0
_DIRECTORY: Final = "build/demo"


async def demo(options: argparse.Namespace, screen: Screen) -> int:
    """The whole of it; the exit code."""
    directory: Path = options.directory
    times = Times(options.factor)
    for old in ("ns1", "ns2"):
        shutil.rmtree(directory / old, ignore_errors=True)
        (directory / old).mkdir(parents=True)
    screen.note(
        f"Two NameServers, three brokers (one with a slave), a producer and a consumer, all on this machine.\n"
        f"Time runs {times.factor:g} times faster than by default: heartbeats and polls every "
        f"{times.heartbeat_seconds:g} s instead of 30; a broker may be silent for {times.expiry_seconds:g} s instead "
        f"of 120, looked for every {times.scan_seconds:g} s instead of 10.\n"
        f"So a client sees a dead broker for at most {times.bound_seconds:g} s instead of 160."
    )
    screen.heading("Everybody finds everybody.")
    async with (
        stage(directory, times, screen) as playing,
        console(playing.servers.values(), screen, playing.witness) as url,
    ):
        await play(playing, options.scenes)
        if options.keep:
            code = await _end(playing, options, times, screen)
            await keep(url, options.keep, screen)
            return code
    return await _end(playing, options, times, screen)


async def _end(playing: Stage, options: argparse.Namespace, times: Times, screen: Screen) -> int:
    """What came of it; the exit code."""
    servers, producer, consumer = list(playing.servers.values()), playing.producer, playing.consumer
    screen.heading("Who noticed the loss of a broker, and after how long?")
    for line in playing.witness.table([*playing.servers, producer.name, consumer.name], times.bound_seconds):
        screen.note(f"  {line}")
    screen.note(
        f"\n  {producer.sent} messages sent, {producer.repeated} of them at the second or a later attempt; "
        f"{producer.failed} could not be sent.\n"
        f"  {len(consumer.received)} received; what a killed broker still had is lost, because the example keeps "
        f"messages in memory."
    )
    if not options.report:
        return _EXIT_OK
    return await report([server.log_directory for server in servers], options.directory / "report", times, screen)


async def _until_told(options: argparse.Namespace, screen: Screen) -> int:
    """The demo, ended in order by SIGTERM and SIGHUP as by Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # asyncio.run makes one
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await demo(options, screen)


def _directory(text: str) -> Path:
    """Absolute: a server takes the folder of its log from its data directory, and not from where we are."""
    return Path(text).resolve()


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="A cluster on this machine: brokers die, hang and leave; who notices, and when?",
    )
    parser.add_argument("--factor", type=float, default=_FACTOR, help="how much faster than by default (20)")
    parser.add_argument("--scenes", nargs="*", choices=SCENES, default=list(SCENES), help="all, if none is named")
    parser.add_argument(
        "--directory", type=_directory, default=str(_DIRECTORY), help="for logs and report (build/demo)"
    )
    parser.add_argument("--report", action=argparse.BooleanOptionalAction, default=True, help="the staleness report")
    parser.add_argument(
        "--keep",
        type=float,
        default=_KEEP_SECONDS if sys.stdout.isatty() else 0.0,
        metavar="SECONDS",
        help="let everything run on at the end, for the console (600 on a terminal, else 0)",
    )
    options = parser.parse_args(argv)
    # what the libraries log is for operators; here it is told in other words
    logging.getLogger().addHandler(logging.NullHandler())
    screen = Screen()
    try:
        return asyncio.run(_until_told(options, screen))
    except (KeyboardInterrupt, asyncio.CancelledError):
        with contextlib.suppress(OSError):
            screen.note("\ninterrupted; everything is stopped")
        return _EXIT_INTERRUPTED
    except NothingCameError as error:
        sys.stderr.write(f"demo: {error}\n")
        return _EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
