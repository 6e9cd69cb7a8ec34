"""TLS: pulls over it beside plain ones, handshakes beside pulls, memory of an idle connection."""

import os
import select
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trustme

from benchmarks import loads
from benchmarks.connections import raise_file_limit
from benchmarks.figures import BenchError, Figure, Target, ratios, spelt_medians
from benchmarks.loads import Load
from benchmarks.repeating import Repeating
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire, pulled_brokers, register
from benchmarks.servers import WITHOUT_LOG, Server, daemon
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command

# each with one question on its way
CONNECTIONS: Final = 50
# as many as one address has memory for by default
IDLE: Final = 2_000
HANDSHAKES_PER_SECOND: Final = 300
# who is connected while others come: so few that they leave the newcomers some of the load's core
ESTABLISHED: Final = ("--connections", "4", "--depth", "1")
_PATIENCE_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 64 * 1024
_QUESTION: Final = encode_command(
    RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "TopicTest1"})
)


@dataclass(frozen=True, slots=True)
class Pulls:
    """What one run of this file's own load found: load.c speaks no TLS."""

    per_second: float
    # the server's computing time for each
    computing_us: float


def measure(bench: Bench) -> list[Figure]:
    """One server that takes both; certificates with keys on P-256, as CAs issue them today."""
    raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-tls-") as name, ExitStack() as stack:
        flags, context = certified(Path(name))
        server = stack.enter_context(daemon(bench, *WITHOUT_LOG, *flags, "--max-connections", str(2 * IDLE)))
        register(stack.enter_context(Wire(server)), pulled_brokers())
        # first: what others have given back would be taken again, and not count
        idle = _idle(bench, server, context)
        pulls = bench.in_turn(
            "pulls over TLS",
            {"tls": partial(_pull, bench, server, context), "plain": partial(_pull, bench, server, None)},
        )
        reached: list[float] = []
        alone = [_handshakes(server, context) for _ in range(bench.effort.rounds)]

        def beside_handshakes() -> Load:
            with Repeating(partial(_shake_hands, server, context), at_most=HANDSHAKES_PER_SECOND) as crowd:
                load = loads.run(bench, server, *ESTABLISHED)
            reached.append(crowd.per_second)
            return load

        cases: dict[str, Callable[[], Load]] = {
            "crowd": beside_handshakes,
            "quiet": lambda: loads.run(bench, server, *ESTABLISHED),
        }
        crowd = bench.in_turn("pulls beside handshakes", cases)
    rates = [[run.per_second for run in pulls[each]] for each in ("tls", "plain")]
    computing = [[run.computing_us for run in pulls[each]] for each in ("tls", "plain")]
    late = [loads.p99s(crowd[each]) for each in ("crowd", "quiet")]
    return [
        Figure(
            "tls.pulls.rate",
            f"{CONNECTIONS} connections x 1, JSON: rate over TLS / plain",
            "times",
            ratios(*rates),
            Target(">=", 0.5),
            behind=spelt_medians("per_second", *rates),
        ),
        Figure(
            "tls.pulls.computing",
            f"{CONNECTIONS} connections x 1, JSON: computing time of an answer over TLS / plain",
            "times",
            ratios(*computing),
            Target("<=", 2),
            behind=spelt_medians("microseconds", *computing),
        ),
        Figure("tls.handshake", "computing time of a handshake", "milliseconds", tuple(alone), Target("<=", 3)),
        Figure(
            "tls.handshakes.p99",
            f"p99 of plain pulls beside {HANDSHAKES_PER_SECOND} handshakes/s / without",
            "times",
            ratios(*late),
            Target("<=", 2),
            behind=spelt_medians("milliseconds", *late),
        ),
        Figure("tls.handshakes.rate", "handshakes beside the pulls", "per_second", tuple(reached)),
        Figure(
            "tls.idle",
            f"each of {IDLE:,} idle connections over TLS",
            "kibibytes",
            (idle,),
            Target("<=", 32),
        ),
    ]


def certified(directory: Path) -> tuple[tuple[str, ...], ssl.SSLContext]:
    """The flags of a server that takes both, and what its clients trust."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = directory / "server.pem", directory / "server.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    flags = ("--tls-mode", "permissive", "--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    return flags, context


def _connected(server: Server, context: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", server.port), _PATIENCE_SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")


def _shake_hands(server: Server, context: ssl.SSLContext) -> None:
    # this thread alone: a newcomer's half of the work must not make who measures the pulls late, on the same core
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _connected(server, context).close()


def _handshakes(server: Server, context: ssl.SSLContext, count: int = 200) -> float:
    """Milliseconds that the server computes for one, connecting and closing included."""
    computed = server.cpu_seconds()
    for _ in range(count):
        _connected(server, context).close()
    return (server.cpu_seconds() - computed) * 1000 / count


def _pull(bench: Bench, server: Server, context: ssl.SSLContext | None) -> Pulls:
    """Ask over each connection as soon as it has its answer."""
    with ExitStack() as stack, select.epoll() as ready:
        peers = [stack.enter_context(_connected(server, context)) for _ in range(CONNECTIONS)]
        by_descriptor = {peer.fileno(): peer for peer in peers}
        for peer in peers:
            _check(_asked(peer))
            ready.register(peer, select.EPOLLIN)
        answers, began, computed = 0, time.perf_counter(), server.cpu_seconds()
        for peer in peers:
            peer.sendall(_QUESTION)
        while (elapsed := time.perf_counter() - began) < bench.effort.seconds:
            found = ready.poll(_PATIENCE_SECONDS)
            if not found:
                raise BenchError(f"no answer within {_PATIENCE_SECONDS:g} s")
            for descriptor, _ in found:
                peer = by_descriptor[descriptor]
                # a whole answer: it is small, and the server writes it at once
                if not peer.recv(_ANSWER_BYTES):
                    raise BenchError("the server closed a connection")
                peer.sendall(_QUESTION)
            answers += len(found)
        return Pulls(answers / elapsed, (server.cpu_seconds() - computed) * 1e6 / answers)


def _asked(peer: socket.socket) -> bytes:
    peer.sendall(_QUESTION)
    return peer.recv(_ANSWER_BYTES)


def _check(answer: bytes) -> None:
    if b'"code":0' not in answer[:64]:
        raise BenchError(f"not a good answer: {answer[:200]!r}")


def _idle(bench: Bench, server: Server, context: ssl.SSLContext) -> float:
    """KiB of each connection that has pulled one route and says nothing more."""
    bench.progress(f"{IDLE:,} idle connections over TLS")
    before = server.resident_bytes()
    with ExitStack() as stack:
        for _ in range(IDLE):
            _check(_asked(stack.enter_context(_connected(server, context))))
        return (server.resident_bytes() - before) / 1024 / IDLE
