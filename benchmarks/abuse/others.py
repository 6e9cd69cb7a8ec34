"""Well-behaved peers during an attack, in a process of their own: a puller, five brokers, newcomers, probes."""

import contextlib
import multiprocessing
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, Self

from benchmarks.abuse.payloads import registration
from benchmarks.abuse.records import any_certificate
from benchmarks.harness.figures import BenchError
from benchmarks.harness.servers import Server
from benchmarks.harness.wire import Wire, request, route_request
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.headers import BrokerHeartbeatRequestHeader

CLUSTER: Final = "DefaultCluster"
# all of the kinds that real brokers are: 4.9, 5.x with binary headers, native
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
# Limit for any response: a slow response does not count as a refusal.
PATIENCE_SECONDS: Final = 120.0
_OWN_TOPICS: Final = 200
_PULLS_A_SECOND: Final = 200
_NEWCOMERS_A_SECOND: Final = 4
_SCRAPES_A_SECOND: Final = 2
_PROBES_A_SECOND: Final = 10
_ANY_CERTIFICATE: Final = any_certificate()
_NEWCOMERS_ADDRESS: Final = "127.0.0.3"


@dataclass(frozen=True, slots=True)
class Pull:
    """One of the puller's requests."""

    # on the monotonic clock, which all processes of a machine share
    sent_at: float
    seconds: float
    # processor time of the server meanwhile: other processes do not make that longer
    cpu_seconds: float
    # live brokers that are missing in the response
    evicted: tuple[str, ...]
    has_dead: bool


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A peer that connects while the others are there."""

    came_at: float
    is_broker: bool
    # until the response or the refusal
    seconds: float
    # why not served; empty when it was
    refused: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What the well-behaved peers observed."""

    pulls: list[Pull]
    newcomers: list[Newcomer]
    # connections that the server closed
    lost: int
    # of each scrape: when, scans for silent brokers since the start, memory of the tables
    metrics: list[tuple[float, int, float]]
    # of each liveness probe: when it began, seconds until the response
    probes: list[tuple[float, float]]


# -- frames and pages -------------------------------------------------------------------------------------------------


def broker_frame(name: str, kind: SerializeType) -> bytes:
    """The registration of a broker that has the puller's topic and some of its own."""
    topics = [TopicConfig(TOPIC), *(TopicConfig(f"{name}-{number}") for number in range(_OWN_TOPICS))]
    body = RegisterBrokerBody(topics, DataVersion(1))
    is_native = kind == SerializeType.MSGPACK
    native = {"agent_id": f"agent-{name}", "registration_seq": 1} if is_native else {}
    encoded = encode_native_body(body) if is_native else encode_json_body(body)
    return registration(encoded, kind, broker_name=name, cluster_name=CLUSTER, **native)


def heartbeat_frame(name: str, kind: SerializeType, *, with_agent: bool = True) -> bytes:
    """A heartbeat that names a broker."""
    agent_id = f"agent-{name}" if with_agent and kind == SerializeType.MSGPACK else None
    header = BrokerHeartbeatRequestHeader(
        cluster_name=CLUSTER, broker_addr=f"{name}:10911", broker_name=name, broker_id=0, agent_id=agent_id
    )
    return request(RequestCode.BROKER_HEARTBEAT, header.to_ext(), kind=kind)


def scraped(http_url: str) -> str:
    """The server's metrics. Raises BenchError."""
    return _page(f"{http_url}/metrics")


def _page(url: str) -> str:
    try:
        # the server responds, however busy it is
        with urllib.request.urlopen(  # noqa: S310 - http or https, and this machine
            url, timeout=PATIENCE_SECONDS, context=_ANY_CERTIFICATE
        ) as page:
            text: str = page.read().decode()
            return text
    except OSError as error:
        raise BenchError(f"{url}: {error}") from error


def metric(metrics: str, name: str) -> float:
    """A metric without labels. Raises BenchError."""
    found = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    if found is None:
        raise BenchError(f"no {name} in the metrics")
    return float(found[1])


def scan_count(metrics: str) -> int:
    """Scans for silent brokers since the start. Raises BenchError."""
    return int(metric(metrics, "nameserver_scan_seconds_count"))


def has_broker(name: str, route: bytes) -> bool:
    """Whether the body of a route names a broker."""
    return b'"%b"' % name.encode() in route


# -- the peers --------------------------------------------------------------------------------------------------------


class _Brokers:
    """Five connections with heartbeats; a broker whose connection ends comes back at once.

    How long the server has to keep a broker follows from its responses: a heartbeat that had one within the expiry of
    the one before keeps the broker for another expiry, counted from when it was sent. On a slow machine one may come
    late; then the broker registers again, and its absence until then does not count as a failure.
    """

    def __init__(self, server: Server, expiry_seconds: float) -> None:
        self._server = server
        self._expiry_seconds = expiry_seconds
        self._frames = {name: heartbeat_frame(name, kind) for name, kind in LIVE.items()}
        # until when each has to be in every route that is requested from now on, on the monotonic clock
        self.alive_until = dict.fromkeys(LIVE, 0.0)
        self._wires = {name: self._registered(name) for name in LIVE}
        self.lost = 0

    def _registered(self, name: str, wire: Wire | None = None) -> Wire:
        wire = wire or Wire(self._server, PATIENCE_SECONDS)
        sent_at = time.monotonic()
        wire.request(broker_frame(name, LIVE[name]))
        self.alive_until[name] = sent_at + self._expiry_seconds
        return wire

    def heartbeat(self) -> None:
        """One heartbeat of each."""
        for name, frame in self._frames.items():
            sent_at, wire = time.monotonic(), self._wires[name]
            try:
                wire.request(frame)
            except BenchError:
                # a broker that is evicted for silence loses its connection as well
                self.lost += time.monotonic() <= self.alive_until[name]
                # it may be missing until it is back
                self.alive_until[name] = 0.0
                with contextlib.suppress(OSError, BenchError):
                    self._wires[name] = self._registered(name)
                continue
            if time.monotonic() <= self.alive_until[name]:
                self.alive_until[name] = sent_at + self._expiry_seconds
            else:
                self._registered(name, wire)


class _Puller:
    """One connection, one request after another at a steady rate."""

    def __init__(self, server: Server, brokers: _Brokers) -> None:
        self._server = server
        self._brokers = brokers
        self._wire = Wire(server, PATIENCE_SECONDS)
        self.lost = 0
        self.pulls: list[Pull] = []

    def pull(self) -> None:
        """Request the route, and note which brokers it has."""
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


class _Newcomers:
    """Clients and brokers in turn, each with a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._frames = (PULL, broker_frame("newcomer", SerializeType.JSON))
        self.seen: list[Newcomer] = []

    def come(self) -> None:
        """Let the next one come, and go."""
        is_broker, came_at = len(self.seen) % 2 == 1, time.monotonic()
        refused = self._refused(self._frames[is_broker])
        self.seen.append(Newcomer(came_at, is_broker, time.monotonic() - came_at, refused))

    def _refused(self, frame: bytes) -> str:
        address = ("127.0.0.1", self._server.port)
        try:
            with socket.create_connection(address, PATIENCE_SECONDS, (_NEWCOMERS_ADDRESS, 0)) as peer:
                peer.sendall(frame)
                return "" if peer.recv(4) else "closed"
        except OSError as error:
            return str(error)


class _HttpPeers:
    """A scraper of the metrics, and a liveness probe as a kubelet's, though more frequent."""

    def __init__(self, http_url: str) -> None:
        self._http_url = http_url
        # of each scrape that had a response: when, scans for silent brokers so far, memory of the tables
        self.scrapes: list[tuple[float, int, float]] = []
        # of each probe that had a response: when it began, seconds until the response
        self.probes: list[tuple[float, float]] = []

    def scrape(self) -> None:
        """Note two of the metrics."""
        with contextlib.suppress(BenchError):
            metrics = scraped(self._http_url)
            self.scrapes.append((time.monotonic(), scan_count(metrics), metric(metrics, TABLE_BYTES)))

    def probe(self) -> None:
        """Note how long the probe takes."""
        began = time.monotonic()
        with contextlib.suppress(BenchError):
            _page(f"{self._http_url}/livez")
            self.probes.append((began, time.monotonic() - began))


def _thread(stopped: threading.Event, per_second: float, work: Callable[[], None]) -> threading.Thread:
    """A thread that works so often until it is stopped; what was late is not made up for."""

    def repeat() -> None:
        due = time.monotonic()
        while not stopped.wait(max(0.0, due - time.monotonic())):
            work()
            due = max(due + 1 / per_second, time.monotonic())

    thread = threading.Thread(target=repeat)
    thread.start()
    return thread


def _observe(server: Server, http_url: str, heartbeat_seconds: float, expiry_seconds: float, pipe: Connection) -> None:
    """Behave until the first message, and send what was observed."""
    brokers = _Brokers(server, expiry_seconds)
    puller, newcomers, http = _Puller(server, brokers), _Newcomers(server), _HttpPeers(http_url)
    stopped = threading.Event()
    work: list[tuple[float, Callable[[], None]]] = [
        (1 / heartbeat_seconds, brokers.heartbeat),
        (_PULLS_A_SECOND, puller.pull),
        (_NEWCOMERS_A_SECOND, newcomers.come),
        (_SCRAPES_A_SECOND, http.scrape),
        (_PROBES_A_SECOND, http.probe),
    ]
    threads = [_thread(stopped, per_second, each) for per_second, each in work]
    pipe.send("ready")
    pipe.recv()
    stopped.set()
    for thread in threads:
        thread.join()
    # however slow all was, there is one
    puller.pull()
    pipe.send(Seen(puller.pulls, newcomers.seen, puller.lost + brokers.lost, http.scrapes, http.probes))


class Others:
    """The process of these peers, from when all brokers are registered until the block ends."""

    def __init__(self, server: Server, http_url: str, heartbeat_seconds: float, expiry_seconds: float) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        arguments = (server, http_url, heartbeat_seconds, expiry_seconds, theirs)
        self._process = multiprocessing.get_context("spawn").Process(target=_observe, args=arguments)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        try:
            self._pipe.recv()
        except EOFError:
            self.__exit__()
            raise BenchError("brokers cannot be registered") from None
        return self

    def seen(self) -> Seen:
        """What they have observed until now; they end. Raises BenchError."""
        self._pipe.send("end")
        if not self._pipe.poll(2 * PATIENCE_SECONDS):
            raise BenchError("the well-behaved peers do not end")
        seen: Seen = self._pipe.recv()
        return seen

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()
