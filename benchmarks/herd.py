"""Everybody at once: 5,000 clients come back after a restart, 2,000 brokers register anew."""

import errno
import heapq
import select
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks import loads
from benchmarks.connections import raise_file_limit
from benchmarks.figures import BenchError, Figure, Target, spelt_medians
from benchmarks.rounds import Bench
from benchmarks.seeding import Broker, Wire, pulled_brokers, register, topics
from benchmarks.servers import WITHOUT_LOG, Server, daemon
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command

CLIENTS: Final = 5_000
BROKERS: Final = 2_000
# of each broker, and nobody else's
TOPICS: Final = 10
# of a naive client: how many topics it asks for, one after the other, and how long it waits before it connects anew
_NAIVE_TOPICS: Final = 10
_NAIVE_SECONDS: Final = 1.0
# a client that backs off would come later; this one is as patient as RocketMQ's
_PATIENT_SECONDS: Final = 3.0
_GIVE_UP_SECONDS: Final = 60.0
_READ_AT_ONCE: Final = 1 << 16


def measure(bench: Bench) -> list[Figure]:
    """Each crowd on a fresh server, once a round; the probe of stalls beside the brokers."""
    raise_file_limit()
    found: dict[str, list[Crowd]] = {"polite": [], "naive": []}
    stalls: list[float] = []
    quiets: list[float] = []
    brokers: list[Crowd] = []
    for number in range(bench.effort.rounds):
        bench.progress(f"herd: round {number + 1} of {bench.effort.rounds}")
        for name, (count, patience) in {
            "polite": (1, _PATIENT_SECONDS),
            "naive": (_NAIVE_TOPICS, _NAIVE_SECONDS),
        }.items():
            with daemon(bench, *WITHOUT_LOG) as server, Wire(server) as wire:
                register(wire, pulled_brokers())
                questions = [[_question(each + n) for n in range(count)] for each in range(CLIENTS)]
                found[name].append(served(server, questions, patience))
        stall, quiet, crowd = _registering(bench)
        stalls.append(stall)
        quiets.append(quiet)
        brokers.append(crowd)
    return [
        *(_figure(name, what, found[name]) for name, what in _WHAT.items()),
        Figure(
            "herd.stall",
            f"{BROKERS:,} brokers with {BROKERS * TOPICS:,} topics register at once: longest stall",
            "milliseconds",
            tuple(stalls),
            Target("<=", 50),
            behind=f"{spelt_medians('milliseconds', quiets)} before; "
            f"all registered after {max(each.seconds for each in brokers):.1f} s",
        ),
    ]


_WHAT: Final = {
    "polite": f"{CLIENTS:,} clients connect at once, a topic each: all are served after",
    "naive": f"the same, {_NAIVE_TOPICS} topics each, and who waits for {_NAIVE_SECONDS:g} s connects anew",
}


@dataclass(frozen=True, slots=True)
class Crowd:
    """How a crowd was served."""

    # from the first connection on: until all had begun to connect, and until all had all of their answers
    began_seconds: float
    seconds: float
    # connections that were given up, by either side
    again: int


def _figure(name: str, what: str, crowds: Sequence[Crowd]) -> Figure:
    begun = 1000 * max(each.began_seconds for each in crowds)
    behind = f"all had begun within {begun:.0f} ms, {max(each.again for each in crowds):,} connected again"
    return Figure(
        f"herd.{name}", what, "seconds", tuple(each.seconds for each in crowds), Target("<=", 10), behind=behind
    )


def _question(number: int) -> bytes:
    fields = {"topic": f"TopicTest{number % 1000}"}
    return encode_command(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields))


def _registering(bench: Bench) -> tuple[float, float, Crowd]:
    """What a connection that always asks waits at most in milliseconds, with them and before, and how they fared."""
    frames = [
        [
            Broker(
                cluster="DefaultCluster",
                name=f"herd{number}",
                broker_id=0,
                addr=f"10.0.{number // 250}.{number % 250}:10911",
                topics=topics(f"Herd{number}Topic%d", TOPICS),
            ).native_frame()
        ]
        for number in range(BROKERS)
    ]
    crowds: list[Crowd] = []
    with daemon(bench, *WITHOUT_LOG) as server, Wire(server) as wire:
        register(wire, pulled_brokers())
        quiet = loads.run(bench, server, *loads.PROBE)
        # they come while the probe asks, and are done before it ends
        coming = threading.Timer(0.5, lambda: crowds.append(served(server, frames, _GIVE_UP_SECONDS)))
        coming.start()
        load = loads.run(bench, server, *loads.PROBE, seconds=10)
        coming.join()
    if not crowds:
        raise BenchError("herd: not all brokers could register")
    return load.longest_us / 1000, quiet.longest_us / 1000, crowds[0]


class _Peer:
    """One of the crowd: it asks one question after the other."""

    def __init__(self, number: int, questions: Sequence[bytes]) -> None:
        self.number = number
        self.questions = questions
        # of them, answered
        self.answered = 0
        # what it waits for, numbered over all of its connections
        self.turn = 0
        # of the answer that is being read
        self.received = b""
        self.socket: socket.socket | None = None


def served(server: Server, questions: Sequence[Sequence[bytes]], patience_seconds: float) -> Crowd:
    """Have as many peers as there are lists of questions ask them, all at once.

    Raises:
        BenchError: not all have their answers after a minute.
    """
    crowd = _Herd(server.port, [_Peer(*each) for each in enumerate(questions)], patience_seconds)
    try:
        return crowd.run()
    finally:
        crowd.close()


class _Herd:
    """Peers that all come at once."""

    def __init__(self, port: int, peers: Sequence[_Peer], patience_seconds: float) -> None:
        self._port = port
        self._patience_seconds = patience_seconds
        self._poll = select.epoll()
        self._peers = peers
        # descriptor -> who is on it
        self._on: dict[int, _Peer] = {}
        # (when a peer gives its connection up, its number, unless it waits for something else than in this turn)
        self._deadlines: list[tuple[float, int, int]] = []
        self._again = 0

    def run(self) -> Crowd:
        """Return when all have their answers."""
        began = time.monotonic()
        for peer in self._peers:
            self._connect(peer)
        all_began = time.monotonic() - began
        waiting = len(self._peers)
        while waiting:
            for descriptor, _ in self._poll.poll(0.05):
                if descriptor in self._on:
                    waiting -= self._go_on(self._on[descriptor])
            now = time.monotonic()
            if now - began > _GIVE_UP_SECONDS:
                raise BenchError(f"herd: {waiting} of {len(self._peers)} are not served after {now - began:.0f} s")
            self._lose_patience(now)
        return Crowd(all_began, time.monotonic() - began, self._again)

    def close(self) -> None:
        """Hang up."""
        for peer in list(self._on.values()):
            self._leave(peer)
        self._poll.close()

    def _connect(self, peer: _Peer) -> None:
        peer.socket = socket.socket()
        peer.socket.setblocking(False)  # noqa: FBT003 - its only argument
        peer.socket.connect_ex(("127.0.0.1", self._port))
        peer.received = b""
        descriptor = peer.socket.fileno()
        self._on[descriptor] = peer
        self._poll.register(descriptor, select.EPOLLOUT)
        self._wait(peer)

    def _wait(self, peer: _Peer) -> None:
        peer.turn += 1
        heapq.heappush(self._deadlines, (time.monotonic() + self._patience_seconds, peer.number, peer.turn))

    def _leave(self, peer: _Peer) -> None:
        assert peer.socket is not None  # noqa: S101 - it is connected
        del self._on[peer.socket.fileno()]
        peer.socket.close()

    def _lose_patience(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] < now:
            _, number, turn = heapq.heappop(self._deadlines)
            peer = self._peers[number]
            if peer.turn == turn and peer.answered < len(peer.questions):
                self._come_again(peer)

    def _come_again(self, peer: _Peer) -> None:
        self._again += 1
        self._leave(peer)
        self._connect(peer)

    def _go_on(self, peer: _Peer) -> bool:
        """Do what a peer's socket is ready for; whether it has its last answer now."""
        # one that has all stays connected, as clients do
        if peer.answered == len(peer.questions) or not self._has_received(peer):
            return False
        if len(peer.received) < 4 or len(peer.received) < 4 + int.from_bytes(peer.received[:4]):
            return False
        peer.received = b""
        peer.answered += 1
        if peer.answered == len(peer.questions):
            return True
        self._ask(peer)
        return False

    def _has_received(self, peer: _Peer) -> bool:
        """Whether something came; a new connection is asked over, an ended one replaced."""
        assert peer.socket is not None  # noqa: S101 - it is connected
        try:
            data = peer.socket.recv(_READ_AT_ONCE)
        except BlockingIOError:
            # connected: it can be written to
            self._poll.modify(peer.socket, select.EPOLLIN)
            self._ask(peer)
            return False
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                # the event was of a connection before, with the same descriptor
                return False
            data = b""
        if not data:
            self._come_again(peer)
        peer.received += data
        return bool(data)

    def _ask(self, peer: _Peer) -> None:
        assert peer.socket is not None  # noqa: S101 - it is connected
        try:
            # a few hundred bytes, which fit into any socket's buffer
            peer.socket.send(peer.questions[peer.answered])
        except OSError:
            self._come_again(peer)
            return
        self._wait(peer)
