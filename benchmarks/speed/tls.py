"""TLS: pulls compared with plain ones, handshakes during pulls, memory of an idle connection."""

import os
import select
import socket
import ssl
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_least, at_most, compared, percentile
from benchmarks.harness.loads import PULLS, Load, compared_loads, run
from benchmarks.harness.rounds import Bench, Repeating
from benchmarks.harness.servers import WITHOUT_LOG, Server, daemon, temporary_directory
from benchmarks.harness.wire import Wire, pulled_brokers, register, route_request
from tests.support.certificates import Authority

# connections that pull, each with one request in flight
_CONNECTIONS: Final = 50
# as many idle connections as fit into the memory share of one address
_IDLE: Final = 2_000
_HANDSHAKES_PER_SECOND: Final = 300
# clients that shake hands at the same time, since one of them alone would mostly wait for the server
_NEWCOMERS: Final = 8
# A small load during the handshakes, which leaves part of its core to the clients that shake hands.
_ESTABLISHED: Final = ("--connections", "4", "--depth", "1")
_PATIENCE_SECONDS: Final = 10.0
_RESPONSE_BYTES: Final = 64 * 1024
_REQUEST: Final = route_request("TopicTest1")


def measure(bench: Bench) -> list[Figure]:
    """TLS: pulls over it beside plain ones, handshakes beside pulls, memory of an idle connection."""
    # The server accepts TLS and plain connections; the certificate has a P-256 key, as CAs issue them today.
    with temporary_directory("tls") as directory, ExitStack() as stack:
        flags, context = certified(directory)
        server = stack.enter_context(daemon(bench, *WITHOUT_LOG, *flags, "--max-connections", str(2 * _IDLE)))
        register(stack.enter_context(Wire(server)), pulled_brokers())
        # Memory is measured first: later, connections would reuse memory that others have freed.
        idle = _idle(bench, server, context)
        pulls = bench.in_turn(
            "pulls over TLS",
            {"tls": partial(_pull, bench, server, context), "plain": partial(_pull, bench, server, None)},
        )
        alone = [_handshakes(server, context) for _ in range(bench.effort.rounds)]
        reached: list[float] = []
        waited: list[float] = []

        def beside_handshakes() -> Load:
            waits: list[float] = []
            newcomers = [
                Repeating(
                    lambda: waits.append(_shake_hands(server, context)), at_most=_HANDSHAKES_PER_SECOND / _NEWCOMERS
                )
                for _ in range(_NEWCOMERS)
            ]
            with ExitStack() as running:
                for newcomer in newcomers:
                    running.enter_context(newcomer)
                load = run(bench, server, PULLS, *_ESTABLISHED)
            reached.append(sum(newcomer.per_second for newcomer in newcomers))
            waited.append(percentile(waits, 0.99))
            return load

        crowd = bench.in_turn(
            "pulls beside handshakes",
            {"crowd": beside_handshakes, "quiet": lambda: run(bench, server, PULLS, *_ESTABLISHED)},
        )
    rates, cpu = ([[each[which] for each in pulls[key]] for key in ("tls", "plain")] for which in (0, 1))
    what = f"{_CONNECTIONS} connections x 1, JSON: "
    crowded = f"p99 of plain pulls beside {_HANDSHAKES_PER_SECOND} handshakes/s / without"
    of = "processor time of a response over TLS / plain"
    return [
        compared("tls.pulls.rate", f"{what}rate over TLS / plain", "per_second", rates, at_least(0.5)),
        compared("tls.pulls.computing", f"{what}{of}", "microseconds", cpu, at_most(2)),
        Figure("tls.handshake", "processor time of a handshake", "milliseconds", alone, at_most(3)),
        compared_loads("tls.handshakes.p99", crowded, "p99_ms", list(crowd.values()), at_most(2)),
        Figure("tls.handshakes.rate", "handshakes beside the pulls", "per_second", reached),
        Figure("tls.handshakes.wait", "p99 of a newcomer's connection and handshake", "milliseconds", waited),
        Figure("tls.idle", f"each of {_IDLE:,} idle connections over TLS", "kibibytes", (idle,), at_most(32)),
    ]


def certified(directory: Path) -> tuple[tuple[str, ...], ssl.SSLContext]:
    """The flags of a server that accepts TLS and plain connections, and a context for its clients."""
    authority = Authority(directory)
    issued = authority.issue("server")
    files = ("--tls-cert-file", str(issued.cert_file), "--tls-key-file", str(issued.key_file))
    return ("--tls-mode", "permissive", *files), ssl.create_default_context(cafile=authority.ca_file)


def _connected(server: Server, context: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", server.port), _PATIENCE_SECONDS)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")


def _shake_hands(server: Server, context: ssl.SSLContext) -> float:
    """Milliseconds until a newcomer is connected, with its own part of the handshake."""
    # Idle priority for this thread: its share of a handshake must not delay the load on the same core.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    began = time.monotonic()
    _connected(server, context).close()
    return (time.monotonic() - began) * 1000


def _handshakes(server: Server, context: ssl.SSLContext, count: int = 200) -> float:
    """The server's processor time for a handshake in milliseconds, including connecting and closing."""
    cpu = server.cpu_seconds()
    for _ in range(count):
        _connected(server, context).close()
    return (server.cpu_seconds() - cpu) * 1000 / count


def _pull(bench: Bench, server: Server, context: ssl.SSLContext | None) -> tuple[float, float]:
    """Responses a second, and the server's processor time for each in microseconds; load.c does not support TLS."""
    with ExitStack() as stack, select.epoll() as ready:
        peers = [stack.enter_context(_connected(server, context)) for _ in range(_CONNECTIONS)]
        by_descriptor = {peer.fileno(): peer for peer in peers}
        for peer in peers:
            _pull_once(peer)
            ready.register(peer, select.EPOLLIN)
        responses, began, cpu = 0, time.perf_counter(), server.cpu_seconds()
        for peer in peers:
            peer.sendall(_REQUEST)
        while (elapsed := time.perf_counter() - began) < bench.effort.seconds:
            events = ready.poll(_PATIENCE_SECONDS)
            if not events:
                raise BenchError(f"no response within {_PATIENCE_SECONDS:g} s")
            for descriptor, _ in events:
                # One read is a whole response, because the server writes a small response at once.
                if not by_descriptor[descriptor].recv(_RESPONSE_BYTES):
                    raise BenchError("the server closed a connection")
                by_descriptor[descriptor].sendall(_REQUEST)
            responses += len(events)
        return responses / elapsed, (server.cpu_seconds() - cpu) * 1e6 / responses


def _pull_once(peer: socket.socket) -> None:
    peer.sendall(_REQUEST)
    response = peer.recv(_RESPONSE_BYTES)
    if b'"code":0' not in response[:64]:
        raise BenchError(f"not a good response: {response[:200]!r}")


def _idle(bench: Bench, server: Server, context: ssl.SSLContext) -> float:
    """KiB for each connection that has pulled one route and is idle."""
    bench.progress(f"{_IDLE:,} idle connections over TLS")
    before = server.status_bytes()
    with ExitStack() as stack:
        for _ in range(_IDLE):
            _pull_once(stack.enter_context(_connected(server, context)))
        return (server.status_bytes() - before) / 1024 / _IDLE
