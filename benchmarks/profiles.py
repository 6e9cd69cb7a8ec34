"""NameServers of three sizes, end to end: pulls, memory, start, restart, and a broker's death.

S is a team, M a company, L what one server should bear. The topics of a broker are its own slice and those of the three
brokers before it, so that each topic is on four brokers.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

import msgspec

from benchmarks import loads
from benchmarks.build import program
from benchmarks.connections import raise_file_limit
from benchmarks.figures import BenchError, Figure, Target, Unit
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, native_question, topics
from benchmarks.servers import Server, daemon
from namesrv_remoting.bodies.extensions import MAX_WAIT_MS, PullRoutesRequest, ServerInfo
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.headers import BrokerHeartbeatRequestHeader
from namesrv_remoting.serializers import encode_command


@dataclass(frozen=True, slots=True)
class Profile:
    """How much of everything there is."""

    brokers: int
    # of all brokers together
    topics: int
    clients: int


PROFILES: Final = {
    "S": Profile(10, 1_000, 1_000),
    "M": Profile(100, 20_000, 10_000),
    # 15,000 connections in all
    "L": Profile(1_000, 100_000, 14_000),
}
# brokers that have each topic
COPIES: Final = 4
TOPIC_NAME: Final = "ProfileTopic%d"
# instead of 120 and 10: when the next scan is, is chance
EXPIRY_SECONDS: Final = 3.0
SCAN_SECONDS: Final = 1.0
DEATHS: Final = 3
# what clients and brokers wait before they come again, give or take half of it
AGAIN_MS: Final = 1_000
_PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02


def measure(bench: Bench) -> list[Figure]:
    """Each profile once, on a server of its own: figures of whole minutes would not differ more than machines do."""
    raise_file_limit()
    return [figure for name in bench.effort.profiles for figure in figures(name, PROFILES[name], _seen(bench, name))]


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened on one server."""

    # from exec until it listened, until all brokers had registered, and all clients had a route
    listening_seconds: float
    registered_seconds: float
    served_seconds: float
    # with all connected
    resident_bytes: int
    # from SIGTERM to the server before: until all brokers had registered, and all clients had a route again
    brokers_back_seconds: float
    clients_back_seconds: float
    # what the new server had computed by then
    back_cpu_seconds: float
    # from the death until the last client had its answer
    closed_ms: Sequence[float]
    silent_seconds: float
    # of the server, from the end of the connection on, for each client
    told_cpu_us: Sequence[float]
    # as many as it can, and one from each client a second
    most: loads.Load
    usual: loads.Load


# -- what brokers and clients say -------------------------------------------------------------------------------------


def brokers_of(profile: Profile) -> list[Broker]:
    """All of them; number 0 is the one that dies."""
    size = profile.topics // profile.brokers
    slices = [topics(TOPIC_NAME, size, first) for first in range(0, profile.topics, size)]
    return [
        Broker(
            "DefaultCluster",
            f"broker-{number}",
            0,
            f"10.{number // 62500}.{number // 250 % 250}.{number % 250}:10911",
            [topic for back in range(COPIES) for topic in slices[number - back]],
        )
        for number in range(profile.brokers)
    ]


def pulls_of(profile: Profile) -> list[bytes]:
    """What each client asks when it connects."""
    names = [topic.topic_name for topic in topics(TOPIC_NAME, min(profile.clients, profile.topics))]
    return [
        encode_command(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": name}))
        for name in names
    ]


def watches_of(dying: Sequence[TopicConfig], boot_id: str, since: int) -> list[bytes]:
    """Questions of clients that wait for a change of one topic each."""
    return [
        native_question(RequestCode.PULL_ROUTES, PullRoutesRequest([topic.topic_name], boot_id, since, MAX_WAIT_MS))
        for topic in dying
    ]


# -- one profile ------------------------------------------------------------------------------------------------------


def _seen(bench: Bench, name: str) -> Seen:
    profile = PROFILES[name]
    dying, *others = brokers_of(profile)
    with tempfile.TemporaryDirectory(prefix="namesrv-profiles-") as root, ExitStack() as run:
        registrations = _file(Path(root, "registrations"), [broker.json_frame() for broker in others])
        pulls = _file(Path(root, "pulls"), pulls_of(profile))
        flags = (
            *("--data-dir", f"{root}/data", "--wait-for-service-seconds", "45"),
            *("--scan-interval-seconds", str(SCAN_SECONDS), "--max-memory-bytes", str(4 << 30)),
            # none of the clients begins like a broker, and a tenth of all connections is reserved for brokers
            *("--max-connections", "19000"),
        )
        first = ExitStack()
        run.push(first)
        bench.progress(f"profile {name}: {profile.brokers:,} brokers, {profile.topics:,} topics start")
        began = time.monotonic()
        server = first.enter_context(daemon(bench, *flags))
        brokers = run.enter_context(crowd(server, registrations, len(others)))
        registered = brokers.next("answered")
        with crowd(server, pulls, profile.clients) as clients:
            served = clients.next("answered")
            resident = server.resident_bytes()
            bench.progress(f"profile {name}: {profile.clients:,} clients through a restart")
            stopped = time.monotonic()
            first.close()
            again = run.enter_context(daemon(bench, *flags, "--listen-port", str(server.port)))
            back = brokers.next("answered"), clients.next("answered")
            back_cpu = again.cpu_seconds()
        bench.progress(f"profile {name}: deaths before {profile.clients:,} clients")
        watchers = _Watchers(again, dying, profile.clients, Path(root, "watches"))
        closed = [watchers.told(is_silent=False) for _ in range(DEATHS)]
        silent, _ = watchers.told(is_silent=True)
        bench.progress(f"profile {name}: pulls")
        asked = (
            *("--connections", str(profile.clients), "--own", "--topic", TOPIC_NAME, "--topics", str(profile.topics)),
            # each has asked once by then, so that its next answer is no line of the log
            *("--warmup", str(bench.effort.seconds)),
        )
        most = loads.run(bench, again, *asked)
        usual = loads.run(bench, again, *asked, "--rate", str(profile.clients), seconds=2 * bench.effort.seconds)
    return Seen(
        listening_seconds=server.listening_after_seconds,
        registered_seconds=registered - began,
        served_seconds=served - began,
        resident_bytes=resident,
        brokers_back_seconds=back[0] - stopped,
        clients_back_seconds=back[1] - stopped,
        back_cpu_seconds=back_cpu,
        closed_ms=[seconds * 1000 for seconds, _ in closed],
        silent_seconds=silent,
        told_cpu_us=[cpu_seconds * 1e6 / profile.clients for _, cpu_seconds in closed],
        most=most,
        usual=usual,
    )


def _file(path: Path, frames: Sequence[bytes]) -> Path:
    path.write_bytes(b"".join(frames))
    return path


class _Crowd:
    """Everybody of one kind, in a process of its own (crowd.c)."""

    def __init__(self, output: IO[str]) -> None:
        self._output = output

    def next(self, what: str) -> float:
        """When all have been asked, or answered, the next time, by the monotonic clock.

        Raises:
            BenchError: the crowd has ended.
        """
        for line in self._output:
            said = json.loads(line)
            if said["all"] == what:
                return float(said["at"])
        raise BenchError(f"not everybody was {what} within {_PATIENCE_SECONDS:g} s")


@contextmanager
def crowd(server: Server, frames: Path, members: int) -> Iterator[_Crowd]:
    """Members who ask the frames of a file, each on a connection of its own, until the block ends."""
    command = [str(program("crowd")), "--port", str(server.port), "--frames", str(frames), "--members", str(members)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            yield _Crowd(process.stdout)
        finally:
            process.kill()


class _Watchers:
    """Clients that all wait for a broker that dies: as bad as it can be, for seldom all have a topic of it."""

    def __init__(self, server: Server, dying: Broker, clients: int, frames: Path) -> None:
        self._server = server
        self._dying = dying
        self._clients = clients
        self._frames = frames

    def told(self, *, is_silent: bool) -> tuple[float, float]:
        """Seconds from a broker's last word, or its connection's end, until the last client has its answer.

        And how long the server computed meanwhile.
        """
        broker = replace(self._dying, expiry_ms=round(EXPIRY_SECONDS * 1000) if is_silent else None)
        with Wire(self._server) as admin, Wire(self._server) as wire:
            wire.ask_well(broker.json_frame())
            info = _info(admin)
            watches = watches_of(broker.topics, info.boot_id, info.revision)
            with crowd(self._server, _file(self._frames, watches), self._clients) as clients:
                self._await_watches(admin, wire)
                if not is_silent:
                    wire.close()
                died, computed = time.monotonic(), self._server.cpu_seconds()
                return clients.next("answered") - died, self._server.cpu_seconds() - computed

    def _await_watches(self, admin: Wire, wire: Wire) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while _info(admin).watchers != self._clients:
            if time.monotonic() > until:
                raise BenchError(f"{_info(admin).watchers} of {self._clients} clients wait for a change")
            time.sleep(_POLL_SECONDS)
            wire.ask_well(_heartbeat(self._dying))
        wire.ask_well(_heartbeat(self._dying))


def _info(wire: Wire) -> ServerInfo:
    return msgspec.msgpack.decode(wire.ask_well(native_question(RequestCode.SERVER_INFO)).body, type=ServerInfo)


def _heartbeat(broker: Broker) -> bytes:
    header = BrokerHeartbeatRequestHeader(
        cluster_name=broker.cluster, broker_addr=broker.addr, broker_name=broker.name, broker_id=broker.broker_id
    )
    return encode_command(RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=header.to_ext()))


# -- figures ----------------------------------------------------------------------------------------------------------


def figures(name: str, profile: Profile, seen: Seen) -> list[Figure]:
    """What one server was like; targets are what people would notice."""
    sizes = f"{profile.brokers:,} brokers, {profile.topics:,} topics, {profile.clients:,} clients"

    def figure(what: str, text: str, unit: Unit, *values: float, most: float | None = None, behind: str = "") -> Figure:
        target = None if most is None else Target("<=", most)
        return Figure(f"profiles.{name}.{what}", f"{name}: {text}", unit, values, target, behind)

    def late(share: str, latency_us: float, most: float) -> Figure:
        each = f"pulls of one a second from each client: {share}"
        return figure(f"pulls.{share}", each, "milliseconds", latency_us / 1000, most=most)

    again = f"{AGAIN_MS / 1000:g} s pass before anybody comes again, give or take half"
    return [
        figure("start", "from exec to listening", "seconds", seen.listening_seconds, most=0.7, behind=sizes),
        figure("registered", "and until all brokers have registered", "seconds", seen.registered_seconds),
        figure("served", "and until all clients have a route", "seconds", seen.served_seconds),
        figure("resident", "resident with all of them", "megabytes", seen.resident_bytes / 1e6),
        figure(
            "restart.brokers", "restart: from SIGTERM until all brokers are back", "seconds", seen.brokers_back_seconds
        ),
        figure(
            "restart.clients",
            "and until all clients have a route again",
            "seconds",
            seen.clients_back_seconds,
            most=10,
            behind=again,
        ),
        figure("restart.computing", "the new server's computing time until then", "seconds", seen.back_cpu_seconds),
        figure(
            "death.closed",
            "a broker's connection ends: until the last client has been told",
            "milliseconds",
            *seen.closed_ms,
            most=1000,
            behind="all clients wait for a topic of it",
        ),
        figure(
            "death.computing",
            "the server's computing time for each that is told",
            "microseconds",
            *seen.told_cpu_us,
        ),
        figure(
            "death.silent",
            "a broker falls silent: until the last client has been told",
            "seconds",
            seen.silent_seconds,
            behind=f"of which {EXPIRY_SECONDS:g} s are its expiry, and up to {SCAN_SECONDS:g} s the next scan",
        ),
        figure(
            "pulls.rate",
            "pulls of all clients at once, as many as it can",
            "per_second",
            seen.most.answers_per_second,
        ),
        figure("pulls.computing", "the server's computing time for each", "microseconds", seen.most.computing_us),
        late("p50", seen.usual.p50_us, 1),
        late("p99", seen.usual.p99_us, 10),
        late("p99.9", seen.usual.p999_us, 50),
    ]
