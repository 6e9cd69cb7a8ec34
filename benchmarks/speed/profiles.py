"""NameServers of three sizes, end to end: pulls, memory, start, restart, and a broker's death.

S is the size of a team, M of a company, L the most for one server. A broker has its own topics and those of the three
brokers before it, so that each topic is on four brokers.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.harness.crowd import crowd
from benchmarks.harness.figures import Column, Figure, at_most
from benchmarks.harness.loads import Script, run
from benchmarks.harness.rounds import Bench, until
from benchmarks.harness.servers import WAITING, Server, daemon, temporary_directory
from benchmarks.harness.wire import Broker, Wire, broker_addr, route_request, topics


@dataclass(frozen=True, slots=True)
class _Profile:
    """The size of an installation."""

    brokers: int
    # topics of all brokers together
    topics: int
    clients: int


_PROFILES: Final = {
    "S": _Profile(10, 1_000, 1_000),
    "M": _Profile(100, 20_000, 10_000),
    # 15,000 connections in all
    "L": _Profile(1_000, 100_000, 14_000),
}
# brokers that have each topic
_COPIES: Final = 4
_TOPIC: Final = "ProfileTopic%d"
# shorter than the defaults (120 s and 10 s), because the time until the next scan is random
_EXPIRY_SECONDS: Final = 3.0
_SCAN_SECONDS: Final = 1.0
_DEATHS: Final = 3


def measure(bench: Bench) -> list[Figure]:
    """NameServers of three sizes, end to end: pulls, memory, start, restart, and a broker's death."""
    # Measured once, not in rounds: a size takes minutes.
    figures: list[Figure] = []
    for name in ["S"] if bench.effort.is_quick else _PROFILES:
        with temporary_directory("profiles") as root, ExitStack() as stack:
            figures += _Measurement(bench, name, root, stack).run()
    return figures


def _brokers_of(profile: _Profile) -> list[Broker]:
    """All brokers; broker 0 is the one whose death is measured."""
    size = profile.topics // profile.brokers
    slices = [topics(_TOPIC, size, first) for first in range(0, profile.topics, size)]
    return [
        Broker(
            f"broker-{number}",
            broker_addr(number),
            [topic for back in range(_COPIES) for topic in slices[number - back]],
        )
        for number in range(profile.brokers)
    ]


class _Measurement:
    """The measurement of one profile; the stack stops servers and brokers."""

    def __init__(self, bench: Bench, name: str, root: Path, stack: ExitStack) -> None:
        self._bench = bench
        self._name = name
        self._stack = stack
        self._profile = _PROFILES[name]
        self._column = Column(f"profiles.{name}", name)
        self._dying, *self._others = _brokers_of(self._profile)
        self._routes = [route_request(_TOPIC.replace("%d", str(number))) for number in range(self._profile.topics)]
        self._flags = (
            *("--data-dir", f"{root}/data", *WAITING),
            *("--scan-interval-seconds", str(_SCAN_SECONDS), "--max-memory-bytes", str(4 << 30)),
            # A tenth of the connections is reserved for brokers; the rest is enough for 15,000 clients.
            *("--max-connections", "19000"),
        )

    def run(self) -> list[Figure]:
        """Measure everything, in the order of the report."""
        server = self._started_and_restarted()
        self._measure_deaths(server)
        self._measure_pulls(server)
        return self._column.figures

    def _progress(self, what: str) -> None:
        self._bench.progress(f"profile {self._name}: {what}")

    def _started_and_restarted(self) -> Server:
        """Start a server with brokers and clients, restart it, and return the new server, with the brokers."""
        profile, add = self._profile, self._column.add
        sizes = f"{profile.brokers:,} brokers, {profile.topics:,} topics, {profile.clients:,} clients"
        self._progress(sizes)
        first = self._stack.enter_context(ExitStack())
        server = first.enter_context(daemon(self._bench, *self._flags))
        seconds = server.listening_after_seconds
        add("start", "start: from exec to listening", "seconds", seconds, target=at_most(0.7), details=sizes)
        brokers = self._stack.enter_context(crowd(server, [broker.json_frame() for broker in self._others]))
        add("registered", "until all brokers have registered", "seconds", brokers.served() - brokers.began_at)
        with crowd(server, self._routes[: profile.clients], members=profile.clients) as clients:
            add("served", "until all clients have a route", "seconds", clients.served() - clients.began_at)
            add("resident", "resident with all of them", "megabytes", server.status_bytes() / 1e6)
            self._progress("a restart")
            stopped = time.monotonic()
            first.close()
            restarted = daemon(self._bench, *self._flags, "--listen-port", str(server.port))
            server = self._stack.enter_context(restarted)
            seconds = brokers.served() - stopped
            add("restart.brokers", "restart: from SIGTERM until all brokers are back", "seconds", seconds)
            what = "and until all clients have a route; each connects again after 0.5 to 1.5 s"
            add("restart.clients", what, "seconds", clients.served() - stopped, target=at_most(10))
            what = "processor time of the new server until then"
            add("restart.computing", what, "seconds", server.cpu_seconds())
        return server

    def _measure_deaths(self, server: Server) -> None:
        self._progress("deaths")
        clients, add = self._profile.clients, self._column.add
        deaths = [_death(server, self._dying, clients, is_silent=False) for _ in range(_DEATHS)]
        what = "a broker's connection ends, all clients watch a topic of it: until the last client is notified"
        add("death.closed", what, "milliseconds", *(1000 * seconds for seconds, _ in deaths), target=at_most(1000))
        each = [1e6 * cpu_seconds / clients for _, cpu_seconds in deaths]
        add("death.computing", "processor time of a notification", "microseconds", *each)
        seconds, _ = _death(server, self._dying, clients, is_silent=True)
        what = f"a broker falls silent (expiry {_EXPIRY_SECONDS:g} s, scan {_SCAN_SECONDS:g} s): the same"
        add("death.silent", what, "seconds", seconds)

    def _measure_pulls(self, server: Server) -> None:
        """Measure as many pulls as the server can serve, and one pull a second from each client."""
        self._progress("pulls")
        clients, add, seconds = str(self._profile.clients), self._column.add, self._bench.effort.seconds
        # In the warm-up each client gets its first response, the only one with a line in the heartbeat log.
        flags = ("--connections", clients, "--own", "--warmup", str(seconds))
        script = Script(self._routes)
        most = run(self._bench, server, script, *flags)
        usual = run(self._bench, server, script, *flags, "--rate", clients, seconds=2 * seconds)
        add("pulls.rate", "pulls of all clients, as many as it can", "per_second", most.per_second)
        add("pulls.computing", "processor time of a pull", "microseconds", most.cpu_us)
        for share, late, bound in (("p50", usual.p50_ms, 1), ("p99", usual.p99_ms, 10), ("p99.9", usual.p999_ms, 50)):
            what = f"a pull a second from each client: {share}"
            add(f"pulls.{share}", what, "milliseconds", late, target=at_most(bound))


def _death(server: Server, dying: Broker, clients: int, *, is_silent: bool) -> tuple[float, float]:
    """Seconds from a broker's death until all clients are notified, and the server's processor time in them.

    Death counts from the last request of a silent broker, or from the end of its connection. All clients watch the
    broker's topics, which is more than usual.
    """
    with Wire(server) as admin, Wire(server) as wire:
        wire.success(dying.json_frame())
        watches = [admin.watch_frame([topic.topic_name]) for topic in dying.topics]
        with crowd(server, watches, members=clients) as watching:
            until("all clients watch", lambda: admin.info()["watchers"] == clients, every=0.02)
            if is_silent:
                # The same registration again, with a short expiry.
                wire.success(replace(dying, expiry_ms=round(_EXPIRY_SECONDS * 1000)).json_frame())
            else:
                wire.close()
            died, cpu = time.monotonic(), server.cpu_seconds()
            return watching.served() - died, server.cpu_seconds() - cpu
