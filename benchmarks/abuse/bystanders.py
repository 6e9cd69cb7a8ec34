"""Well-behaved peers during an attack, in a process of their own: a puller, five brokers, newcomers, until stdin ends.

Prints a line when all brokers are registered, and another, the observations as JSON, at its end.
"""

import argparse
import contextlib
import dataclasses
import json
import re
import socket
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from typing import Final

from benchmarks.abuse.payloads import frame, registration
from benchmarks.abuse.records import any_certificate
from benchmarks.figures import BenchError
from benchmarks.seeding import Wire
from benchmarks.servers import Server
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.headers import BrokerHeartbeatRequestHeader, GetRouteInfoRequestHeader

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
_OWN_TOPICS: Final = 200
_PULLS_A_SECOND: Final = 200
_NEWCOMERS_A_SECOND: Final = 4
_SCRAPES_A_SECOND: Final = 2
_PROBES_A_SECOND: Final = 10
_ANY_CERTIFICATE: Final = any_certificate()
TABLE_BYTES: Final = "nameserver_table_bytes"
# for anything that is answered at all: slow is not refused
PATIENCE_SECONDS: Final = 120.0
_NEWCOMERS_ADDRESS: Final = "127.0.0.3"


def broker_frame(name: str, kind: SerializeType) -> bytes:
    """The registration of a broker that has the puller's topic and some of its own."""
    topics = [TopicConfig(TOPIC), *(TopicConfig(f"{name}-{number}") for number in range(_OWN_TOPICS))]
    body = RegisterBrokerBody(topics, DataVersion(1))
    is_native = kind == SerializeType.MSGPACK
    encoded = encode_native_body(body) if is_native else encode_json_body(body)
    native = {"agent_id": f"agent-{name}", "registration_seq": 1} if is_native else {}
    return registration(encoded, kind, broker_name=name, cluster_name=CLUSTER, **native)


def heartbeat_frame(name: str, kind: SerializeType, *, with_agent: bool = True) -> bytes:
    """A heartbeat that names a broker."""
    header = BrokerHeartbeatRequestHeader(
        cluster_name=CLUSTER,
        broker_addr=f"{name}:10911",
        broker_name=name,
        broker_id=0,
        agent_id=f"agent-{name}" if with_agent and kind == SerializeType.MSGPACK else None,
    )
    return frame(RequestCode.BROKER_HEARTBEAT, header.to_ext(), kind=kind)


def route_frame(topic: str = TOPIC) -> bytes:
    """A route question."""
    return frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic).to_ext())


@dataclass(frozen=True, slots=True)
class Pull:
    """One of the puller's questions."""

    # on the monotonic clock, which all processes of a machine share
    asked_at: float
    seconds: float
    # what the server's process computed meanwhile: no other process makes that longer
    cpu_seconds: float
    # live brokers that the answer should have had, and has not
    evicted: tuple[str, ...]
    has_dead: bool


@dataclass(frozen=True, slots=True)
class Newcomer:
    """One who came while the others were there."""

    came_at: float
    is_broker: bool
    # until the answer or the refusal
    seconds: float
    # why not served; empty when it was
    refused: str


def scraped(http_url: str) -> str:
    """The server's metrics.

    Raises:
        BenchError: it shows none.
    """
    return _page(f"{http_url}/metrics")


def _page(url: str) -> str:
    try:
        # the server answers, however busy it is
        with urllib.request.urlopen(  # noqa: S310 - http or https, and this machine
            url, timeout=PATIENCE_SECONDS, context=_ANY_CERTIFICATE
        ) as answer:
            text: str = answer.read().decode()
            return text
    except OSError as error:
        raise BenchError(f"{url}: {error}") from error


def metric(metrics: str, name: str) -> float:
    """One without labels.

    Raises:
        BenchError: the metrics do not say.
    """
    found = re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)
    if found is None:
        raise BenchError(f"no {name} in the metrics")
    return float(found[1])


def scan_count(metrics: str) -> int:
    """Searches for silent brokers since the start. Raises BenchError."""
    return int(metric(metrics, "nameserver_scan_seconds_count"))


def has_broker(name: str, route: bytes) -> bool:
    """Whether the body of a route's answer names a broker."""
    return b'"%b"' % name.encode() in route


class _Puller:
    """One connection, one question after another at a steady rate."""

    def __init__(self, server: Server, brokers: "_Brokers") -> None:
        self._server = server
        self._brokers = brokers
        self._wire = Wire(server, PATIENCE_SECONDS)
        self._frame = route_frame()
        self.lost = 0
        self.pulls: list[Pull] = []

    def run(self, stopped: threading.Event) -> None:
        due = time.monotonic()
        while not stopped.wait(max(0.0, due - time.monotonic())):
            self._pull()
            # what was late is not made up for
            due = max(due + 1 / _PULLS_A_SECOND, time.monotonic())
        # however slow all was
        self._pull()

    def _pull(self) -> None:
        alive_until = self._brokers.alive_until()
        asked_at, cpu = time.monotonic(), self._server.cpu_seconds()
        route: bytes | None = None
        try:
            route = self._wire.ask(self._frame).body
        except BenchError:
            self.lost += 1
            with contextlib.suppress(OSError):
                self._wire = Wire(self._server, PATIENCE_SECONDS)
        answered_at, computed = time.monotonic(), self._server.cpu_seconds() - cpu
        evicted: tuple[str, ...] = ()
        if route is not None:
            evicted = tuple(
                name for name, until in alive_until.items() if answered_at <= until and not has_broker(name, route)
            )
        has_dead = route is not None and has_broker(DEAD, route)
        self.pulls.append(Pull(asked_at, answered_at - asked_at, computed, evicted, has_dead))


class _Brokers:
    """Five connections with heartbeats; a broker whose connection ends comes back at once.

    How long the server has to keep a broker follows from its answers: a heartbeat that was answered within the expiry
    of the one before keeps the broker for another expiry, counted from when it was sent. On a slow machine one may come
    too late; then the broker registers again, and nobody is to blame for its absence.
    """

    def __init__(self, server: Server, between: float, expiry: float) -> None:
        self._server = server
        self._between = between
        self._expiry = expiry
        # on the monotonic clock
        self._alive_until = dict.fromkeys(LIVE, 0.0)
        self._peers = {name: self._registered(name) for name in LIVE}
        self.lost = 0

    def alive_until(self) -> dict[str, float]:
        """Until when each has to be in every answer to a question that is asked from now on."""
        return self._alive_until.copy()

    def _registered(self, name: str, peer: socket.socket | None = None) -> socket.socket:
        peer = peer or socket.create_connection(("127.0.0.1", self._server.port), PATIENCE_SECONDS)
        sent_at = time.monotonic()
        self._ask(peer, broker_frame(name, LIVE[name]))
        self._alive_until[name] = sent_at + self._expiry
        return peer

    def _ask(self, peer: socket.socket, question: bytes) -> None:
        peer.sendall(question)
        size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL)) or 1
        if len(peer.recv(size, socket.MSG_WAITALL)) < size:
            raise ConnectionResetError

    def run(self, stopped: threading.Event) -> None:
        frames = {name: heartbeat_frame(name, kind) for name, kind in LIVE.items()}
        while not stopped.wait(self._between):
            for name, heartbeat in frames.items():
                try:
                    self._beat(name, heartbeat)
                except OSError:
                    # a broker that is evicted for silence loses its connection as well
                    self.lost += time.monotonic() <= self._alive_until[name]
                    # nobody can expect it in the routes until it is back
                    self._alive_until[name] = 0.0
                    with contextlib.suppress(OSError):
                        self._peers[name] = self._registered(name)

    def _beat(self, name: str, heartbeat: bytes) -> None:
        sent_at, peer = time.monotonic(), self._peers[name]
        self._ask(peer, heartbeat)
        if time.monotonic() <= self._alive_until[name]:
            self._alive_until[name] = sent_at + self._expiry
        else:
            self._registered(name, peer)


class _Scraper:
    """Asks for the metrics now and then."""

    def __init__(self, http_url: str) -> None:
        self._http_url = http_url
        # of each scrape that was answered: when, scans for silent brokers so far, memory of the tables
        self.seen: list[tuple[float, int, float]] = []

    def run(self, stopped: threading.Event) -> None:
        while not stopped.wait(1 / _SCRAPES_A_SECOND):
            with contextlib.suppress(BenchError):
                metrics = scraped(self._http_url)
                self.seen.append((time.monotonic(), scan_count(metrics), metric(metrics, TABLE_BYTES)))


class _Prober:
    """Asks whether the server lives, as a kubelet does, though more often."""

    def __init__(self, http_url: str) -> None:
        self._url = f"{http_url}/livez"
        # of each probe that was answered: when it began, seconds until the response
        self.seen: list[tuple[float, float]] = []

    def run(self, stopped: threading.Event) -> None:
        while not stopped.wait(1 / _PROBES_A_SECOND):
            began = time.monotonic()
            with contextlib.suppress(BenchError):
                _page(self._url)
                self.seen.append((began, time.monotonic() - began))


class _Newcomers:
    """Clients and brokers in turn, each with a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.seen: list[Newcomer] = []

    def run(self, stopped: threading.Event) -> None:
        questions = (route_frame(), broker_frame("newcomer", SerializeType.JSON))
        while not stopped.wait(1 / _NEWCOMERS_A_SECOND):
            is_broker = len(self.seen) % 2 == 1
            came_at = time.monotonic()
            refused = self._refused(questions[is_broker])
            self.seen.append(Newcomer(came_at, is_broker, time.monotonic() - came_at, refused))

    def _refused(self, question: bytes) -> str:
        address = ("127.0.0.1", self._server.port)
        try:
            with socket.create_connection(address, PATIENCE_SECONDS, (_NEWCOMERS_ADDRESS, 0)) as peer:
                peer.sendall(question)
                return "" if peer.recv(4) else "closed"
        except OSError as error:
            return str(error)


def main() -> None:
    """Behave, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--http-url", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--heartbeat-seconds", type=float, required=True)
    parser.add_argument("--expiry-seconds", type=float, required=True)
    options = parser.parse_args()
    server = Server(options.pid, options.port, 0.0)
    brokers = _Brokers(server, options.heartbeat_seconds, options.expiry_seconds)
    puller, newcomers = _Puller(server, brokers), _Newcomers(server)
    scraper, prober = _Scraper(options.http_url), _Prober(options.http_url)
    stopped = threading.Event()
    peers = (brokers, puller, newcomers, scraper, prober)
    threads = [threading.Thread(target=one.run, args=(stopped,)) for one in peers]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    seen = {
        "pulls": [dataclasses.astuple(pull) for pull in puller.pulls],
        "newcomers": [dataclasses.astuple(one) for one in newcomers.seen],
        "metrics": scraper.seen,
        "probes": prober.seen,
        "lost": puller.lost + brokers.lost,
    }
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
