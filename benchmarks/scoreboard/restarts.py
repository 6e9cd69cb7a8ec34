"""Rows about restarts: a killed server, and upgrades from an older version."""

import asyncio
import os
import subprocess
import sys
import tarfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Final

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import BenchError, Figure, at_most, latest
from benchmarks.harness.fleet import Fleet, agent, entered, registered
from benchmarks.harness.rounds import Bench, until
from benchmarks.harness.servers import WAITING, WITHOUT_LOG, Server, temporary_directory
from benchmarks.harness.wire import Wire, route_request
from benchmarks.scoreboard.programs import in_event_loop
from benchmarks.speed import rolling

_BROKERS: Final = 10
_TOPICS: Final = 1_000
_PATIENCE_SECONDS: Final = 120.0
# Level debug has the log entry of a written snapshot.
_FLAGS: Final = ("--log-level", "debug", *WITHOUT_LOG, *WAITING)
_LAST_TOPICS: Final = [f"topic-{number}-{topic}" for number in range(_BROKERS) for topic in (0, _TOPICS - 1)]


@in_event_loop
async def kills(times: int) -> list[Figure]:
    """A server with 10,000 topics is killed and started again; its brokers reconnect."""
    listening, served = [], []
    with Fleet(Bench(), *_FLAGS, count=1) as fleet:
        async with AsyncExitStack() as stack:
            names = [[f"topic-{number}-{topic}" for topic in range(_TOPICS)] for number in range(_BROKERS)]
            agents = [agent(number, fleet.addresses, each) for number, each in enumerate(names)]
            await entered(stack, agents, 1)
            for _ in range(times):
                await registered(agents, 1)
                # The snapshot is written every few seconds, and must contain all brokers before the server is killed.
                await asyncio.to_thread(_until_saved, fleet.servers[0])
                fleet.kill(0)
                began = time.monotonic()
                await asyncio.to_thread(fleet.start, 0)
                listening.append(time.monotonic() - began)
                await asyncio.to_thread(_until_served, fleet.servers[0])
                served.append(time.monotonic() - began)
    what = "every topic pulled, at the latest"
    return [
        latest("listening", "listens, at the latest", "seconds", listening, target=at_most(1)),
        latest("served", what, "seconds", served, target=at_most(1.5)),
    ]


def _until_saved(server: Server) -> None:
    def is_saved() -> bool:
        written = (entry for entry in server.log() if entry["event"] == "snapshot_written")
        return any(entry["brokers"] == _BROKERS for entry in written)

    until("all brokers are in the snapshot", is_saved, _PATIENCE_SECONDS, 0.1)


def _until_served(server: Server) -> None:
    """Wait until every broker's topics have a route; the server closes connections of clients that pull earlier."""
    left = list(_LAST_TOPICS)

    def has_all() -> bool:
        try:
            with Wire(server) as wire:
                while left and wire.request(route_request(left[-1])).code == 0:
                    left.pop()
        except BenchError:
            return False
        return not left

    until("every topic has a route after a restart", has_all, _PATIENCE_SECONDS)


# -- upgrades ---------------------------------------------------------------------------------------------------------

# The last commit before quotas and the audit trail, as an example of an older version.
_OLD_VERSION: Final = "889f626"
_PACKAGES: Final = ("runtime", "remoting", "namesrv")


def upgrades(_: int) -> list[Figure]:
    """A rolling restart of three servers from an older version to this one, and back."""
    with temporary_directory("scoreboard") as root:
        old = _checked_out(root)
        ways = {"to this version": (old, None), "back": (None, old)}
        return [
            replace(figure, what=f"{way}: {figure.what}")
            for way, (before, after) in ways.items()
            for figure in rolling.figures(rolling.restarted(Bench(), before, after))
        ]


def _checked_out(root: Path) -> dict[str, str]:
    """The environment of a server of the older version."""
    command = ["git", "archive", "--format=tar", _OLD_VERSION, *_PACKAGES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise BenchError(f"no version {_OLD_VERSION} in this clone: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(root, filter="data")
    environ = {"PYTHONPATH": os.pathsep.join(str(root / package) for package in _PACKAGES)}
    script = "import namesrv, namesrv_remoting, namesrv_runtime as r; print(namesrv.__file__, r.__file__)"
    command = [sys.executable, "-c", script]
    imported = subprocess.run(command, env={**os.environ, **environ}, check=True, capture_output=True, text=True)
    if imported.stdout.count(str(root)) != 2:
        raise BenchError(f"another version would run: {imported.stdout}")
    return environ
