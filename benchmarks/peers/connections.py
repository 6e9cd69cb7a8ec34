"""100,000 connections: clients that pull, or pull and watch, beside 200 brokers with 1,000 topics.

Each topic is on four brokers. A client that pulls has one topic, and requests its route every 15 to 45 s. A client that
watches has ten, pulls them at once, and is notified of changes. Brokers register every 15 to 45 s.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness.crowd import Crowd, Habits, crowd
from benchmarks.harness.figures import Figure, Unit, percentile
from benchmarks.harness.rounds import Bench, Repeating, until
from benchmarks.harness.servers import WITHOUT_LOG, Server
from benchmarks.harness.wire import Broker, Wire, native_request, route_request, topics
from benchmarks.peers import rocketmq
from benchmarks.peers.peers import Peer, against
from benchmarks.peers.registry import Registry
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.frames import Frame, cut_frame

CLIENTS: Final = 100_000
_BROKERS: Final = 200
_TOPICS: Final = 1_000
_TOPIC: Final = "ConnectedTopic%d"
# brokers of each topic, which have the numbers that follow each other
_COPIES: Final = 4
_WATCHED_TOPICS: Final = 10
_EVERY_SECONDS: Final = 30.0
_WATCH_MS: Final = 300_000
_EXPIRY_MS: Final = 600_000
_MEMORY_BYTES: Final = 4 << 30
_PULLS_A_SECOND: Final = 50
_STEADY_SECONDS: Final = 45
# Notifications end when none has come for so long.
_QUIET_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 600
# of a server, in addition to its connections
_OTHER_FILES: Final = 1_000


def files_needed(clients: int) -> int:
    """The open files that a server with so many clients needs."""
    return _max_connections(clients) + _OTHER_FILES


def ours_with(clients: int, data_dir: Path, *flags: str) -> Peer:
    """Our NameServer, which as by default evicts the brokers of a closed connection."""
    limits = ("--max-memory-bytes", str(_MEMORY_BYTES), "--max-connections", str(_max_connections(clients)))

    def start(bench: Bench, port: int = 0) -> AbstractContextManager[Registry]:
        place = ("--data-dir", str(data_dir), "--listen-port", str(port))
        return rocketmq.ours(bench, *WITHOUT_LOG, *limits, *flags, *place)

    return Peer("ours", "ours", start)


def _max_connections(clients: int) -> int:
    # A tenth of the connections is reserved for brokers.
    return clients * 5 // 4 + 2 * _BROKERS


def measured(peer: Peer, restarted: Peer, bench: Bench, clients: int, *, watching: int = 0) -> dict[str, float]:
    """The figures of one server with so many clients, of which some watch, by the end of their names."""
    with ExitStack() as stack:
        return _Measurement(peer, restarted, bench, clients - watching, watching, stack).run()


# -- brokers and clients ----------------------------------------------------------------------------------------------


def brokers() -> list[Broker]:
    """All brokers; each has the topics of its number and of the numbers before it."""
    size = _TOPICS // _BROKERS
    slices = [topics(_TOPIC, size, first) for first in range(0, _TOPICS, size)]
    return [
        Broker(
            f"broker-{number}",
            f"10.1.0.{number}:10911",
            [topic for back in range(_COPIES) for topic in slices[number - back]],
            expiry_ms=_EXPIRY_MS,
        )
        for number in range(_BROKERS)
    ]


def watched_topics(client: int) -> list[str]:
    """The topics of a watching client, as far apart as possible."""
    apart = _TOPICS // _WATCHED_TOPICS
    return [_TOPIC % ((client + apart * number) % _TOPICS) for number in range(_WATCHED_TOPICS)]


class _Known(msgspec.Struct):
    """How far the routes in a response go."""

    boot_id: str
    revision: int


def watch_after(first: bytes, response: Frame) -> bytes:
    """The watch of the topics in a client's first request, from a response on."""
    known = msgspec.msgpack.decode(response.body, type=_Known)
    wanted = msgspec.msgpack.decode(cut_frame(first).body)
    since = {"boot_id": known.boot_id, "since": known.revision, "wait_ms": _WATCH_MS}
    return native_request(RequestCode.PULL_ROUTES, topics=wanted["topics"], **since)


_BROKERS_HABITS: Final = Habits(every_seconds=_EVERY_SECONDS, lifetime_seconds=3_600)
# Addresses for 100,000 clients and more; they are as many with fewer clients.
_PULLING: Final = replace(_BROKERS_HABITS, addresses=8)
_WATCHING: Final = replace(_PULLING, every_seconds=0.0, following=watch_after)


class _Measurement:
    """The measurement of one server; the stack ends clients, brokers and servers."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is a value of its own
        self, peer: Peer, restarted: Peer, bench: Bench, pulling: int, watching: int, stack: ExitStack
    ) -> None:
        self._peer = peer
        self._restarted = restarted
        self._bench = bench
        self._stack = stack
        self._pulling = pulling
        self._watching = watching
        self._brokers = brokers()
        self._figures: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Measure everything, in the order of the table."""
        with ExitStack() as first:
            server = first.enter_context(self._peer.start(self._bench)).server
            dead = self._brokers[0], *self._brokers[1::2]
            self._registered(server, self._brokers[2::2], self._stack)
            one, hundred = ExitStack(), ExitStack()
            with one, hundred:
                self._registered(server, dead[:1], one)
                self._registered(server, dead[1:], hundred)
                clients = self._connect(server)
                self._rest(server)
                self._die("death1", server, clients, dead[:1], one)
                self._die("death100", server, clients, dead[1:], hundred)
            self._registered(server, dead, self._stack)
            self._progress("restart")
            began = time.monotonic()
        self._stack.enter_context(self._restarted.start(self._bench, port=server.port))
        self._figures["restart.seconds"] = max(_served_after(began, each) for each in clients) - began
        return self._figures

    def _progress(self, what: str) -> None:
        self._bench.progress(f"{self._peer.label}, {self._pulling:,} clients pull and {self._watching:,} watch: {what}")

    def _registered(self, server: Server, some: Sequence[Broker], stack: ExitStack) -> None:
        """Register brokers until the stack is closed, which closes their connections."""
        frames = [broker.json_frame() for broker in some]
        stack.enter_context(crowd(server, frames, habits=_BROKERS_HABITS)).served()

    def _connect(self, server: Server) -> list[Crowd]:
        """Connect all clients; those that watch, if there are any, are the last crowd."""
        self._progress("they connect")
        pulls = [route_request(_TOPIC % number) for number in range(_TOPICS)]
        sets = [watched_topics(number) for number in range(_TOPICS // _WATCHED_TOPICS)]
        watches = [native_request(RequestCode.PULL_ROUTES, topics=each) for each in sets]
        kinds = [(pulls, self._pulling, _PULLING), (watches, self._watching, _WATCHING)]
        with self._pulled(server, "connected"):
            clients = [
                self._stack.enter_context(crowd(server, frames, members=count, habits=habits))
                for frames, count, habits in kinds
                if count
            ]
            self._figures["connected.seconds"] = max(each.served() for each in clients) - clients[0].began_at
        return clients

    def _rest(self, server: Server) -> None:
        if self._watching:
            with Wire(server, _PATIENCE_SECONDS) as wire:
                until("all watch", lambda: wire.info()["watchers"] == self._watching, _PATIENCE_SECONDS, 0.5)
        self._progress(f"{_STEADY_SECONDS} s without a change")
        with self._pulled(server, "steady"):
            time.sleep(_STEADY_SECONDS)
        self._figures["memory"] = server.status_bytes() / 1e6

    def _die(
        self, name: str, server: Server, clients: Sequence[Crowd], dead: Sequence[Broker], alive: ExitStack
    ) -> None:
        self._progress(f"deaths of brokers: {len(dead)}")
        responses = clients[-1].responses
        concerned = _concerned(self._watching, dead)
        before = responses.count
        with Wire(server, _PATIENCE_SECONDS) as wire, self._pulled(server, name):
            died = time.monotonic()
            alive.close()
            _wait_until_gone(wire, dead)
            self._figures[f"{name}.seconds"] = time.monotonic() - died
            if self._watching:
                until("all are notified", lambda: responses.count - before >= concerned, _PATIENCE_SECONDS)
                until(
                    "no more are",
                    lambda: time.monotonic() - responses.last_at > _QUIET_SECONDS,
                    _PATIENCE_SECONDS,
                )
                self._figures[f"{name}.notified"] = responses.last_at - died

    @contextmanager
    def _pulled(self, server: Server, name: str) -> Iterator[None]:
        """Note the waits of a client that pulls one route until the block ends."""
        waits_ms: list[float] = []
        frame = route_request(_TOPIC % (_TOPICS // 2))
        with Wire(server, _PATIENCE_SECONDS) as wire:

            def pull() -> None:
                began = time.monotonic()
                wire.request(frame)
                waits_ms.append(1000 * (time.monotonic() - began))

            with Repeating(pull, at_most=_PULLS_A_SECOND):
                yield
        self._figures[f"{name}.p99"] = percentile(waits_ms, 0.99)
        self._figures[f"{name}.longest"] = max(waits_ms)


def _concerned(watching: int, dead: Sequence[Broker]) -> int:
    """The number of watching clients with a topic of these brokers."""
    lost = {topic.topic_name for broker in dead for topic in broker.topics}
    return sum(not lost.isdisjoint(watched_topics(number)) for number in range(watching))


def _wait_until_gone(wire: Wire, dead: Sequence[Broker]) -> None:
    """Wait until no route has one of these brokers any more; those of every tenth broker and of the last are enough."""
    names = frozenset(broker.name for broker in dead)
    for broker in dead[::-10]:
        topic = broker.topics[0].topic_name
        until("no route has a dead broker", partial(_is_without, wire, topic, names), _PATIENCE_SECONDS, 0.001)


def _is_without(wire: Wire, topic: str, names: frozenset[str]) -> bool:
    response = wire.success(route_request(topic))
    return names.isdisjoint(each["brokerName"] for each in msgspec.json.decode(response.body)["brokerDatas"])


def _served_after(began: float, clients: Crowd) -> float:
    """When all clients had a response again; some may have reconnected before."""
    while (served_at := clients.served()) < began:
        pass
    return served_at


# end of a figure's name -> description and unit; in the order of the table
_FIGURES: Final[Mapping[str, tuple[str, Unit]]] = {
    "connected.seconds": ("all clients have their first response", "seconds"),
    "connected.p99": ("p99 of pulls meanwhile", "milliseconds"),
    "connected.longest": ("longest stall meanwhile", "milliseconds"),
    "steady.p99": ("p99 of pulls with all connected", "milliseconds"),
    "steady.longest": ("longest stall then", "milliseconds"),
    "memory": ("resident then", "megabytes"),
    "death1.seconds": ("a dead broker is gone", "seconds"),
    "death1.notified": ("the last client is notified of it", "seconds"),
    "death100.seconds": ("a hundred dead brokers are gone", "seconds"),
    "death100.notified": ("the last client is notified of them", "seconds"),
    "death100.longest": ("longest stall then (a hundred deaths)", "milliseconds"),
    "restart.seconds": ("from SIGTERM until all clients have a response", "seconds"),
}
WATCHING_COLUMN: Final = "ours, half of the clients watch"


def figures_of(
    results: Mapping[str, Mapping[str, float]], watched: Mapping[str, float], others: Sequence[Peer]
) -> list[Figure]:
    """The figures of all servers whose clients pull, as ratios, and those of ours if half of them watch."""
    figures: list[Figure] = []
    for key, (what, unit) in _FIGURES.items():
        samples = {peer: [found[key]] for peer, found in results.items() if key in found}
        figures += against(f"connections.{key}", what, unit, samples, others) if samples else []
        figures.append(Figure(f"peers.connections.{key}.watching", what, unit, [watched[key]], column=WATCHING_COLUMN))
    return figures
