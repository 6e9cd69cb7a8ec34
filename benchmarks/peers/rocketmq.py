"""NameServers that speak RocketMQ's protocol: ours, Apache's, rocketmq-rust's; how they are seeded and asked."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from benchmarks import heartbeats, loads
from benchmarks.figures import BenchError
from benchmarks.loads import Load
from benchmarks.peers.asking import Script, told
from benchmarks.pulls import PIPELINED
from benchmarks.rounds import Bench
from benchmarks.seeding import PULLED_BODY_BYTES, Broker, Wire, native_question, pulled_brokers, register, topics
from benchmarks.servers import Server, daemon
from namesrv_remoting.bodies.extensions import PullRoutesRequest, read_routes
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.headers import GetRouteInfoRequestHeader
from namesrv_remoting.serializers import encode_command

_BEATING: Final = [
    Broker("DefaultCluster", f"broker-{number}", 0, f"127.0.0.1:{number}", counter=1)
    for number in range(heartbeats.BROKERS)
]
# rocketmq-rust names members that are null, too: 2,050 bytes for the same route
_MOST_TIMES: Final = 1.2
_WATCHED: Final = "TopicWatched"
_PROBED_SECONDS: Final = 1.0
_WAIT_MS: Final = 30_000
# longer than any TopicRouteData without the brokers that are watched
_LEAST_BYTES: Final = 500


class Asked(Protocol):
    """A server that runs, and how it is asked to do a NameServer's work."""

    @property
    def server(self) -> Server:
        """The process."""
        ...

    def seed(self) -> None:
        """1,000 routes of 1.9 kB, and 1,000 who send heartbeats; again and again, for it may forget those."""
        ...

    def pull(self, seconds: int | None = None) -> Load:
        """Routes, asked for on 200 connections."""
        ...

    def beat(self, seconds: int | None = None) -> Load:
        """Heartbeats, on 200 connections."""
        ...

    def tell(self) -> Load | None:
        """How soon 1,000 watchers know of a change; None where there is no watch, and clients poll."""
        ...


class NameServer:
    """One that is asked with load.c."""

    def __init__(self, bench: Bench, server: Server, wire: Wire) -> None:
        self.server = server
        self._bench = bench
        # of all brokers: as long as it is open they live
        self._wire = wire

    def seed(self) -> None:
        """Register everybody, which is unchanged from the second time on.

        Raises:
            BenchError: routes are not what is compared.
        """
        register(self._wire, pulled_brokers())
        size = len(self._wire.ask_well(_ROUTE).body)
        if not PULLED_BODY_BYTES <= size <= _MOST_TIMES * PULLED_BODY_BYTES:
            raise BenchError(f"answers have bodies of {size} bytes, not of {PULLED_BODY_BYTES} as ours")
        register(self._wire, _BEATING)

    def pull(self, seconds: int | None = None) -> Load:
        """GET_ROUTEINFO_BY_TOPIC, JSON."""
        return loads.run(self._bench, self.server, seconds=seconds)

    def pull_pipelined(self) -> Load:
        """The same with 8 questions in flight on each of 50 connections."""
        return loads.run(self._bench, self.server, *PIPELINED)

    def beat(self, seconds: int | None = None) -> Load:
        """BROKER_HEARTBEAT of all brokers in turn."""
        return loads.run(self._bench, self.server, *heartbeats.BEAT, seconds=seconds)

    def tell(self) -> Load | None:
        """Its clients ask every 30 s."""
        return None


class WatchedNameServer(NameServer):
    """Ours, whose native clients may leave a question open until there is news."""

    def __init__(self, bench: Bench, server: Server, wire: Wire) -> None:
        super().__init__(bench, server, wire)
        # of as many brokers as serve any other topic, so that the answer is as large
        self._brokers = [
            replace(
                broker,
                name=f"watched-{broker.name}",
                addr=broker.addr.replace("127.0.0.1", "127.0.0.2"),
                # a first registration of one topic is refused: it might be a part taken for the whole
                topics=topics(f"{_WATCHED}%d", 2),
            )
            for broker in pulled_brokers()
        ]

    def tell(self) -> Load:
        """The first of the topic's brokers registers it with other queues."""
        register(self._wire, self._brokers)
        known = read_routes(
            self._wire.ask_well(native_question(RequestCode.PULL_ROUTES, PullRoutesRequest([f"{_WATCHED}0"]))).body
        )
        changed = self._brokers[0].changed(read_queue_nums=4)
        watch = PullRoutesRequest([f"{_WATCHED}0"], known.boot_id, known.revision, _WAIT_MS)
        question = native_question(RequestCode.PULL_ROUTES, watch)
        script = Script("length", [question], change=changed.json_frame(), least_bytes=_LEAST_BYTES)
        return told(self.server, script)


@contextmanager
def ours(bench: Bench, *flags: str) -> Iterator[WatchedNameServer]:
    """Ours, until the block ends."""
    # the end of a load's connection is not the death of the broker that it spoke for
    with daemon(bench, *flags, "--no-evict-on-disconnect") as server, Wire(server) as wire:
        yield WatchedNameServer(bench, _answered(server, wire), wire)


@contextmanager
def name_server(bench: Bench, server: Server) -> Iterator[NameServer]:
    """Somebody else's, until the block ends."""
    with Wire(server) as wire:
        yield NameServer(bench, server, wire)


def _answered(server: Server, wire: Wire) -> Server:
    """The server when it has answered a question: it said that it listens before."""
    began = time.monotonic()
    wire.ask(_ROUTE)
    return replace(server, listening_after_seconds=server.listening_after_seconds + time.monotonic() - began)


def is_answering(port: int) -> bool:
    """Whether somebody answers such a question there."""
    with Wire(Server(0, port, 0.0), _PROBED_SECONDS) as wire:
        try:
            wire.ask(_ROUTE)
        except BenchError:
            return False
    return True


_ROUTE: Final = encode_command(
    RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=GetRouteInfoRequestHeader(topic="TopicTest0").to_ext()
    )
)
