"""The command of `make demo`: brokers of a small cluster die, hang and leave, and the demo times who notices when."""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.cluster import Cluster, Times
from demo.screen import InterruptedStoryError, Screen, TimeoutInStoryError
from demo.story import SCENES, play

_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 130
_KEEP_SECONDS: Final = 600.0
# Time limit of the report, which takes a few seconds.
_REPORT_SECONDS: Final = 600.0
_CONSOLE: Final = "namesrv-console: "


def demo(options: argparse.Namespace, screen: Screen) -> int:
    """Run the demo, and return its exit code."""
    directory, times = options.directory, Times(options.factor)
    for old in ("ns1", "ns2"):
        shutil.rmtree(directory / old, ignore_errors=True)
        (directory / old).mkdir(parents=True)
    screen.note(
        f"Two NameServers, three brokers (one with a slave), a producer and a consumer, all in this process.\n"
        f"Time runs {times.factor:g} times faster than by default: heartbeats and polls every {times[30]:g} s instead "
        f"of 30, expiry of silent brokers after {times[120]:g} s instead of 120, scans every {times[10]:g} s instead "
        f"of 10.\nA client therefore sees a dead broker for at most {times.bound_seconds:g} s instead of 160."
    )
    screen.heading("Servers, brokers and clients start.")
    with Cluster(directory, times, screen) as cluster, _console(cluster) as url:
        play(cluster, options.scenes)
        screen.heading("Which server or client noticed the loss of a broker, and after how long?")
        screen.table([*cluster.servers, "producer", "consumer"], times.bound_seconds)
        screen.note(
            f"\n  {cluster.sent} messages sent, {cluster.repeated} of them at the second or a later attempt; "
            f"{cluster.failed} could not be sent."
        )
        code = _report(cluster, directory / "report") if options.report else 0
        if options.keep:
            _keep(url, options.keep, screen)
    return code


@contextmanager
def _console(cluster: Cluster) -> Iterator[str]:
    """Context with the web console in its own process; yields the URL, which a browser opens if there is a display."""
    flags = [f"--server={server.address}" for server in cluster.servers.values()]
    flags += [f"--logs={directory / 'heartbeats'}" for directory in cluster.directories.values()]
    command = [sys.executable, "-m", "namesrv_console", "--listen=127.0.0.1:0", *flags]
    # The user's variables are settings for other servers.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
    # In its own session the console gets no Ctrl-C; the demo ends the console.
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, env=environ, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.terminate)
        lines = process.stdout or ()
        url = next((line.removeprefix(_CONSOLE).strip() for line in lines if f"{_CONSOLE}http" in line), "")
        if not url:
            raise TimeoutInStoryError("the console failed to start")
        cluster.screen.line("console", f"shows the cluster: {url}")
        if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            # A browser in the terminal would hide the timeline of the demo.
            webbrowser.open(url)
        yield url


def _report(cluster: Cluster, directory: Path) -> int:
    """Make the staleness report from the servers' logs; returns the exit code."""
    times, screen = cluster.times, cluster.screen
    logs = [str(each / "heartbeats") for each in cluster.directories.values()]
    grid = (
        f"expiry={times[30]:g},{times[60]:g},{times[120]:g} scan={times[5]:g},{times[10]:g} "
        f"poll={times[5]:g},{times[30]:g}"
    )
    screen.heading("How long did stale routes last? The staleness report of these logs:")
    flags = ("--out", str(directory), "--poll", f"{times[30]:g}", "--what-if", grid)
    command = [sys.executable, "-m", "namesrv_spark_jobs", *logs, *flags]
    # In its own session the report gets no Ctrl-C; the demo ends the report.
    with subprocess.Popen(command, start_new_session=True) as process:  # noqa: S603 - our own program
        try:
            screen.until("the report ends", lambda: process.poll() is not None, _REPORT_SECONDS)
        finally:
            process.terminate()
    code = process.returncode
    if not code:
        screen.note(f"The report: {(directory / 'report.html').resolve().as_uri()}")
    return code


def _keep(url: str, seconds: float, screen: Screen) -> None:
    """Return after this time, or after Ctrl-C, which is no error here."""
    screen.note(f"\nThe cluster runs for another {seconds / 60:g} min; its console: {url}\nCtrl-C ends the demo.")
    with contextlib.suppress(InterruptedStoryError):
        screen.pause(seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Run a cluster on this machine whose brokers die, hang and leave, and time who notices when.",
    )
    keep = _KEEP_SECONDS if sys.stdout.isatty() else 0.0
    directory = Path("build/demo").resolve()
    parser.add_argument("--factor", type=float, default=20.0, help="divide default times by this factor (20)")
    parser.add_argument(
        "--scenes", nargs="*", choices=SCENES, default=list(SCENES), help="scenes to play (default: all)"
    )
    # A server resolves a relative path of its log against its data directory, not against the current directory.
    parser.add_argument(
        "--directory",
        type=lambda text: Path(text).resolve(),
        default=directory,
        help="directory of logs and report (build/demo)",
    )
    parser.add_argument(
        "--report", action=argparse.BooleanOptionalAction, default=True, help="make the staleness report"
    )
    parser.add_argument(
        "--keep", type=float, default=keep, metavar="SECONDS",
        help="keep the cluster running at the end, for the console (600 on a terminal, else 0)",
    )  # fmt: skip
    options = parser.parse_args(argv)
    screen = Screen()

    def interrupt(*_: object) -> None:
        screen.interrupt()
        # A second Ctrl-C ends the demo even if it does not check for interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        return demo(options, screen)
    except (InterruptedStoryError, KeyboardInterrupt):
        with contextlib.suppress(OSError):
            screen.note("\ninterrupted; all processes are stopped")
        return _EXIT_INTERRUPTED
    except TimeoutInStoryError as error:
        sys.stderr.write(f"demo: {error}\n")
        return _EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
