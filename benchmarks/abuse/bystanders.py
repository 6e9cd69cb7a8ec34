"""Well-behaved peers during an attack, in a process of their own: a puller, five brokers, newcomers, until stdin ends.

Prints a line when all brokers are registered, and another, the observations as JSON, at its end.
"""

import argparse
import contextlib
import json
import re
import socket
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.abuse.payloads import frame, registration
from benchmarks.figures import BenchError
from benchmarks.seeding import Wire
from benchmarks.servers import Server
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.headers.broker import BrokerHeartbeatRequestHeader
from namesrv_remoting.headers.client import GetRouteInfoRequestHeader

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
# Whoever comes new waits that long: a client's time-out is 3 s, a broker's 6.
_PATIENCE_SECONDS: Final = 6.0
_SCRAPE_SECONDS: Final = 30.0
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
    is_answered: bool
    missing: tuple[str, ...]
    has_dead: bool


@dataclass(frozen=True, slots=True)
class Newcomer:
    """One who came while the others were there."""

    came_at: float
    is_broker: bool
    # why not served; empty when it was
    refused: str


def scraped(http_port: int) -> str:
    """The server's metrics.

    Raises:
        BenchError: it shows none.
    """
    url = f"http://127.0.0.1:{http_port}/metrics"
    try:
        # the server answers, however busy it is
        with urllib.request.urlopen(url, timeout=_SCRAPE_SECONDS) as answer:
            text: str = answer.read().decode()
            return text
    except OSError as error:
        raise BenchError(f"{url}: {error}") from error


def scan_count(metrics: str) -> int:
    """Searches for silent brokers since the start.

    Raises:
        BenchError: the metrics do not say.
    """
    found = re.search(r"^nameserver_scan_seconds_count (\S+)$", metrics, re.MULTILINE)
    if found is None:
        raise BenchError("no nameserver_scan_seconds_count in the metrics")
    return int(float(found[1]))


class _Puller:
    """One connection, one question after another at a steady rate."""

    def __init__(self, server: Server, http_port: int) -> None:
        self._server = server
        self._http_port = http_port
        # searches for silent brokers until the dead one was gone; None until it is, and when the metrics cannot be had
        self.scans: int | None = None
        self._wire = Wire(server)
        self._frame = route_frame()
        self.lost = 0
        self.pulls: list[Pull] = []

    def run(self, stopped: threading.Event) -> None:
        due = time.monotonic()
        while not stopped.wait(max(0.0, due - time.monotonic())):
            self._pull()
            # what was late is not made up for
            due = max(due + 1 / _PULLS_A_SECOND, time.monotonic())

    def _pull(self) -> None:
        asked_at, cpu = time.monotonic(), self._server.cpu_seconds()
        body: bytes | None = None
        try:
            body = self._wire.ask(self._frame).body
        except BenchError:
            self.lost += 1
            with contextlib.suppress(OSError):
                self._wire = Wire(self._server)
        seconds, computed = time.monotonic() - asked_at, self._server.cpu_seconds() - cpu
        said = body or b""
        missing = () if body is None else tuple(name for name in LIVE if b'"%b"' % name.encode() not in said)
        has_dead = b'"%b"' % DEAD.encode() in said
        if body is not None and not has_dead and self.pulls and self.pulls[-1].has_dead:
            with contextlib.suppress(BenchError):
                self.scans = scan_count(scraped(self._http_port))
        self.pulls.append(Pull(asked_at, seconds, computed, body is not None, missing, has_dead))


class _Brokers:
    """Five connections with heartbeats; a broker whose connection ends comes back at once."""

    def __init__(self, server: Server, between: float) -> None:
        self._server = server
        self._between = between
        self._peers = {name: self._registered(name) for name in LIVE}
        self.lost = 0

    def _registered(self, name: str) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self._server.port), _PATIENCE_SECONDS)
        peer.sendall(broker_frame(name, LIVE[name]))
        peer.recv(4)
        peer.setblocking(False)  # noqa: FBT003 - its only parameter
        return peer

    def run(self, stopped: threading.Event) -> None:
        frames = {name: heartbeat_frame(name, kind) for name, kind in LIVE.items()}
        while not stopped.wait(self._between):
            for name, heartbeat in frames.items():
                if not self._beat(self._peers[name], heartbeat):
                    self.lost += 1
                    with contextlib.suppress(OSError):
                        self._peers[name] = self._registered(name)

    def _beat(self, peer: socket.socket, heartbeat: bytes) -> bool:
        try:
            peer.send(heartbeat)
            while peer.recv(65536):
                pass
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


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
            self.seen.append(Newcomer(came_at, is_broker, self._refused(questions[is_broker])))

    def _refused(self, question: bytes) -> str:
        address = ("127.0.0.1", self._server.port)
        try:
            with socket.create_connection(address, _PATIENCE_SECONDS, (_NEWCOMERS_ADDRESS, 0)) as peer:
                peer.sendall(question)
                return "" if peer.recv(4) else "closed"
        except OSError as error:
            return str(error)


def main() -> None:
    """Behave, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--http-port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--heartbeat-seconds", type=float, required=True)
    options = parser.parse_args()
    server = Server(options.pid, options.port, 0.0)
    brokers = _Brokers(server, options.heartbeat_seconds)
    puller, newcomers = _Puller(server, options.http_port), _Newcomers(server)
    stopped = threading.Event()
    threads = [threading.Thread(target=one.run, args=(stopped,)) for one in (brokers, puller, newcomers)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    json.dump(_members(puller, brokers, newcomers), sys.stdout)


def _members(puller: _Puller, brokers: _Brokers, newcomers: _Newcomers) -> dict[str, Any]:
    return {
        "pulls": [
            [pull.asked_at, pull.seconds, pull.cpu_seconds, pull.is_answered, pull.missing, pull.has_dead]
            for pull in puller.pulls
        ],
        "newcomers": [[one.came_at, one.is_broker, one.refused] for one in newcomers.seen],
        "scans": puller.scans,
        "lost": puller.lost + brokers.lost,
    }


if __name__ == "__main__":
    main()
