"""Servers that are killed: how soon they serve again, what a damaged snapshot costs, and upgrades."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import AsyncExitStack
from io import BytesIO
from pathlib import Path
from typing import Final

from benchmarks import rolling
from benchmarks.figures import BenchError, Figure, Target
from benchmarks.rounds import QUICK, Bench, Cores
from namesrv.state.snapshot import ExpectedBroker, Snapshot, decode, load, save
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_runtime import loops
from namesrv_runtime.durable_file import SealedFileError
from tests.scoreboard.row import latest, none_of
from tests.support.daemon import Daemon
from tests.support.peer import Peer

ROOT: Final = Path(__file__).parents[2]
_ROUTE: Final = 105
_BROKERS: Final = 10
_TOPICS: Final = 1_000
_HEARTBEAT_SECONDS: Final = 30.0
_PATIENCE_SECONDS: Final = 120.0


def kills(trials: int) -> list[Figure]:
    """A server with 10,000 topics is killed and started again; its brokers come back by themselves."""
    return loops.run(lambda: _kills(trials))


async def _kills(trials: int) -> list[Figure]:
    listening, answered = [], []
    with tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root:
        daemon = await asyncio.to_thread(_started, Path(root), 0)
        port = daemon.address[1]
        async with AsyncExitStack() as stack:
            stack.callback(lambda: daemon.__exit__(None, None, None))
            agents = [await stack.enter_async_context(_agent(number, port)) for number in range(_BROKERS)]
            for _ in range(trials):
                for agent in agents:
                    await agent.registered(count=1, timeout_seconds=_PATIENCE_SECONDS)
                # all brokers are in the snapshot, which is written every few seconds
                await asyncio.to_thread(daemon.wait_for, "snapshot_written", brokers=_BROKERS)
                daemon.kill()
                daemon.__exit__(None, None, None)
                began = time.monotonic()
                daemon = await asyncio.to_thread(_started, Path(root), port)
                listening.append(time.monotonic() - began)
                await asyncio.to_thread(_until_answered, daemon)
                answered.append(time.monotonic() - began)
    return [
        latest("listening", "listens, at the latest", listening, "seconds", 1.0, Target("<=", 1)),
        latest("answered", "answers every topic, at the latest", answered, "seconds", 1.0, _ANSWERED),
    ]


_ANSWERED: Final = Target("<=", 1.5)


def _started(root: Path, port: int) -> Daemon:
    flags = ("--log-level=debug", "--heartbeat-log-dir=", "--share-per-ip-percent=100")
    return Daemon(root, f"--listen-port={port}", *flags).__enter__().listening()


def _agent(number: int, port: int) -> BrokerAgent:
    settings = AgentSettings(
        cluster_name="DefaultCluster",
        broker_name=f"broker-{number}",
        broker_addr=f"10.0.0.{number}:10911",
        name_servers=f"127.0.0.1:{port}",
        heartbeat_seconds=_HEARTBEAT_SECONDS,
    )
    return BrokerAgent(settings, [TopicConfig(f"topic-{number}-{topic}", 8, 8) for topic in range(_TOPICS)])


def _until_answered(daemon: Daemon) -> None:
    """Until every broker's topics are answered; a client that asks too early is sent away."""
    topics = [f"topic-{number}-{topic}" for number in range(_BROKERS) for topic in (0, _TOPICS - 1)]
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while topics:
        if time.monotonic() > deadline:
            raise BenchError(f"{topics[-1]} is not answered {_PATIENCE_SECONDS:g} s after a restart")
        with Peer(daemon.address) as peer:
            while topics and peer.ask(_ROUTE, {"topic": topics[-1]}).code == 0:
                topics.pop()
        time.sleep(0.01)


# -- snapshots ---------------------------------------------------------------------------------------------------------


def damaged_snapshots(trials: int) -> list[Figure]:
    """Every bit of a small snapshot is flipped once, every length of it cut off, and writers are killed."""
    with tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root:
        path = Path(root) / "snapshot.json"
        small = _snapshot(2)
        save(path, small)
        data = path.read_bytes()
        flips = [
            data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at in range(len(data)) for bit in range(8)
        ]
        cuts = [data[:length] for length in range(len(data))]
        believed = sum(_is_believed(each, small) for each in (*flips, *cuts))
        wrong = _killed_writers(path, trials)
    return [
        none_of(
            "believed", "damaged files believed", believed, f"of {len(flips):,} flipped bits, {len(cuts):,} lengths"
        ),
        none_of("torn", "killed writers that left another file than the old or the new one", wrong, f"of {trials:,}"),
    ]


def _snapshot(brokers: int) -> Snapshot:
    expected = (ExpectedBroker("c", f"broker-{number}", 0, f"10.0.0.{number}:10911") for number in range(brokers))
    return Snapshot(saved_ms=1, boot_id="b", brokers=tuple(expected))


def _is_believed(data: bytes, original: Snapshot) -> bool:
    """Whether a file is taken for one, and says something else."""
    try:
        return decode(data) != original
    except SealedFileError:
        return False


def _killed_writers(path: Path, trials: int) -> int:
    old, new = _snapshot(200), _snapshot(400)
    wrong = 0
    chosen = random.Random(1)
    for _ in range(trials):
        save(path, old)
        child = os.fork()
        if not child:
            while True:
                save(path, new)
                save(path, old)
        time.sleep(chosen.uniform(0.0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        wrong += load(path) not in {old, new}
    return wrong


# -- upgrades ----------------------------------------------------------------------------------------------------------

# The last one before mass silence, quotas and the audit trail: what an operator of then upgrades from.
_OLD_VERSION: Final = "889f626"
_PACKAGES: Final = ("runtime", "remoting", "namesrv")


def upgrades(_: int) -> list[Figure]:
    """A rolling restart of three servers from an older version to this one, and back."""
    bench = Bench(QUICK, Cores(None, None), Path(), Path())
    with tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root:
        old = _checked_out(Path(root))
        figures = [
            *rolling.figures(rolling.restarted(bench, before=old)),
            *rolling.figures(rolling.restarted(bench, after=old)),
        ]
    ways = ["to this version"] * (len(figures) // 2) + ["back"] * (len(figures) // 2)
    return [
        Figure(each.name, f"{way}: {each.what}", each.unit, each.values, each.target, each.behind)
        for way, each in zip(ways, figures, strict=True)
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
    said = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environ}, check=True, capture_output=True, text=True
    )
    if said.stdout.count(str(root)) != 2:
        raise BenchError(f"another version would run: {said.stdout}")
    return environ
