"""Well-behaved peers, in a process of their own: a puller, five brokers, newcomers, a scraper and a probe.

Their responses show what an attack costs other peers.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from benchmarks.harness.crowd import child
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Repeating
from benchmarks.harness.servers import Server
from benchmarks.harness.wire import Broker, Wire, route_request
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import SerializeType

CLUSTER: Final = "DefaultCluster"
# brokers with heartbeats: two of RocketMQ with JSON headers, one with binary headers, two native
LIVE: Final = {
    "live-0": SerializeType.JSON,
    "live-1": SerializeType.JSON,
    "live-2": SerializeType.ROCKETMQ,
    "live-3": SerializeType.MSGPACK,
    "live-4": SerializeType.MSGPACK,
}
DEAD: Final = "dead-0"
TOPIC: Final = "Steady"
PULL: Final = route_request(TOPIC)
TABLE_BYTES: Final = "nameserver_table_bytes"
# Longest wait for a response; a response that is merely slow does not count as a refusal.
PATIENCE_SECONDS: Final = 120.0
_OWN_TOPICS: Final = 200
_PULLS_A_SECOND: Final = 200
_NEWCOMERS_A_SECOND: Final = 4
_SCRAPES_A_SECOND: Final = 2
_PROBES_A_SECOND: Final = 10
_NEWCOMERS_ADDRESS: Final = "127.0.0.3"


@dataclass(frozen=True, slots=True)
class Pull:
    """One of the puller's requests."""

    # on the monotonic clock, which all processes of a machine share
    sent_at: float
    seconds: float
    # The server's processor time during the request, which does not depend on other processes.
    cpu_seconds: float
    # live brokers that were missing in the response
    evicted: tuple[str, ...]
    has_dead: bool


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A client or broker that connects, sends one request and disconnects."""

    came_at: float
    is_broker: bool
    # time until the response or the refusal
    seconds: float
    # reason of the refusal; empty for a peer that was served
    refused: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What the well-behaved peers observed."""

    pulls: list[Pull]
    newcomers: list[Newcomer]
    # connections that the server closed
    lost: int
    # memory of the tables at each scrape
    table_bytes: list[float]
    # as in HttpPeers
    probes: list[tuple[float, float]]


# -- frames -----------------------------------------------------------------------------------------------------------


def broker(name: str, kind: SerializeType) -> Broker:
    """A broker with the puller's topic and with topics that no other broker has."""
    own_topics = [TopicConfig(TOPIC), *(TopicConfig(f"{name}-{number}") for number in range(_OWN_TOPICS))]
    agent_id = f"agent-{name}" if kind == SerializeType.MSGPACK else None
    return Broker(name, f"{name}:10911", own_topics, CLUSTER, agent_id=agent_id)


def registration(name: str, kind: SerializeType) -> bytes:
    """The registration of the broker with this name."""
    registering = broker(name, kind)
    return registering.native_frame() if kind == SerializeType.MSGPACK else registering.json_frame(kind)


def has_broker(name: str, route: bytes) -> bool:
    """True if the body of a route contains the broker."""
    return b'"%b"' % name.encode() in route


# -- the peers --------------------------------------------------------------------------------------------------------


class _Brokers:
    """Five brokers with a connection each; a broker whose connection ends reconnects at once.

    A heartbeat whose response came before the broker expired keeps the broker for another expiry, counted from the
    sending. On a slow machine a response may come too late: then the broker registers again, and its absence from
    routes until then does not count as an eviction.
    """

    def __init__(self, server: Server, expiry_seconds: float) -> None:
        self._server = server
        self._expiry_seconds = expiry_seconds
        self._frames = {name: broker(name, kind).heartbeat(kind) for name, kind in LIVE.items()}
        # broker -> time on the monotonic clock until which every route must contain the broker
        self.alive_until = dict.fromkeys(LIVE, 0.0)
        self._wires = {name: self._registered(name) for name in LIVE}
        self.lost = 0

    def _registered(self, name: str, wire: Wire | None = None) -> Wire:
        wire = wire or Wire(self._server, PATIENCE_SECONDS)
        sent_at = time.monotonic()
        wire.request(registration(name, LIVE[name]))
        self.alive_until[name] = sent_at + self._expiry_seconds
        return wire

    def heartbeat(self) -> None:
        """Send one heartbeat of each broker."""
        for name, frame in self._frames.items():
            sent_at, wire = time.monotonic(), self._wires[name]
            try:
                wire.request(frame)
            except BenchError:
                # A closed connection is a loss only while the broker cannot have expired.
                self.lost += time.monotonic() <= self.alive_until[name]
                # Routes need not contain the broker until it has registered again.
                self.alive_until[name] = 0.0
                with contextlib.suppress(OSError, BenchError):
                    self._wires[name] = self._registered(name)
                continue
            if time.monotonic() <= self.alive_until[name]:
                self.alive_until[name] = sent_at + self._expiry_seconds
            else:
                # If the server closes the connection instead, the next heartbeat reconnects.
                with contextlib.suppress(BenchError):
                    self._registered(name, wire)


class _Puller:
    """A client that requests the same route again and again on one connection."""

    def __init__(self, server: Server, brokers: _Brokers) -> None:
        self._server = server
        self._brokers = brokers
        self._wire = Wire(server, PATIENCE_SECONDS)
        self.lost = 0
        self.pulls: list[Pull] = []

    def pull(self) -> None:
        """Request the route, and note its latency and its brokers."""
        alive_until = self._brokers.alive_until.copy()
        sent_at, cpu = time.monotonic(), self._server.cpu_seconds()
        route: bytes | None = None
        try:
            route = self._wire.request(PULL).body
        except BenchError:
            self.lost += 1
            with contextlib.suppress(OSError):
                self._wire = Wire(self._server, PATIENCE_SECONDS)
        at, computed = time.monotonic(), self._server.cpu_seconds() - cpu
        evicted: tuple[str, ...] = ()
        if route is not None:
            evicted = tuple(name for name, until in alive_until.items() if at <= until and not has_broker(name, route))
        has_dead = route is not None and has_broker(DEAD, route)
        self.pulls.append(Pull(sent_at, at - sent_at, computed, evicted, has_dead))


class Newcomers:
    """New clients and new brokers in turn, each with a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._registration = registration("newcomer", SerializeType.JSON)
        self.seen: list[Newcomer] = []

    def come(self) -> None:
        """Let the next newcomer connect, send a request and disconnect."""
        is_broker, came_at = len(self.seen) % 2 == 1, time.monotonic()
        refused = self._refused(self._registration if is_broker else PULL)
        self.seen.append(Newcomer(came_at, is_broker, time.monotonic() - came_at, refused))

    def _refused(self, frame: bytes) -> str:
        try:
            with Wire(self._server, PATIENCE_SECONDS, source=_NEWCOMERS_ADDRESS) as wire:
                wire.success(frame)
        except (BenchError, OSError) as error:
            return str(error)
        return ""


class HttpPeers:
    """A scraper of metrics, and a liveness probe like a kubelet's, but more frequent."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # memory of the tables at each scrape with a response
        self.table_bytes: list[float] = []
        # for each probe: its time, seconds until the response, or PATIENCE_SECONDS if there was none
        self.probes: list[tuple[float, float]] = []

    def scrape(self) -> None:
        """Note the memory of the tables."""
        with contextlib.suppress(BenchError):
            self.table_bytes.append(self._server.metric(TABLE_BYTES))

    def probe(self) -> None:
        """Note how long a liveness probe takes."""
        began = time.monotonic()
        try:
            self._server.page("/livez")
        except BenchError:
            self.probes.append((began, PATIENCE_SECONDS))
        else:
            self.probes.append((began, time.monotonic() - began))


def _observe(server: Server, heartbeat_seconds: float, expiry_seconds: float, pipe: Connection) -> None:
    """Let the peers work until a message comes over the pipe, then send over it what they have seen."""
    brokers = _Brokers(server, expiry_seconds)
    puller, newcomers, http = _Puller(server, brokers), Newcomers(server), HttpPeers(server)
    with (
        Repeating(brokers.heartbeat, at_most=1 / heartbeat_seconds),
        Repeating(puller.pull, at_most=_PULLS_A_SECOND),
        Repeating(newcomers.come, at_most=_NEWCOMERS_A_SECOND),
        Repeating(http.scrape, at_most=_SCRAPES_A_SECOND),
        Repeating(http.probe, at_most=_PROBES_A_SECOND),
    ):
        pipe.send("ready")
        pipe.recv()
    # At least one pull is after the attack, however slow the server was.
    puller.pull()
    pipe.send(Seen(puller.pulls, newcomers.seen, puller.lost + brokers.lost, http.table_bytes, http.probes))


@contextmanager
def well_behaved_peers(server: Server, heartbeat_seconds: float, expiry_seconds: float) -> Iterator[Callable[[], Seen]]:
    """The process of the well-behaved peers; the block begins when their brokers are registered.

    The function stops the peers, and returns what they have observed. Raises BenchError.
    """
    with child(_observe, server, heartbeat_seconds, expiry_seconds) as pipe:

        def received() -> Any:
            if not pipe.poll(2 * PATIENCE_SECONDS):
                raise BenchError("the well-behaved peers are not done")
            try:
                return pipe.recv()
            except EOFError:
                raise BenchError("the well-behaved peers have failed") from None

        def seen() -> Seen:
            pipe.send("end")
            observed: Seen = received()
            return observed

        received()
        yield seen
