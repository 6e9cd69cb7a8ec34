"""ZooKeeper with the work of a NameServer: a route is a node, a heartbeat a session's ping, watches notify clients."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO, Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.loads import Script
from benchmarks.harness.rounds import Bench
from benchmarks.harness.wire import PULLED_BODY_BYTES, PULLED_TOPICS
from benchmarks.peers.registry import ROUTE, Registry, responding

VERSION: Final = "3.9.5"
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# the heap of its start script
_HEAP: Final = "-Xmx1000m"
_PATIENCE_SECONDS: Final = 30
_PROBED_SECONDS: Final = 0.2

# -- the parts of its protocol that are used --------------------------------------------------------------------------

CREATE, DELETE, GET_DATA, SET_DATA, CHILDREN, PING, CLOSE = 1, 2, 4, 5, 8, 11, -11
PERSISTENT, EPHEMERAL = 0, 1
PING_XID: Final = -2
# xid, zxid, error code
REPLY_HEAD: Final = 16
# number and password of a session that does not exist yet
NO_SESSION: Final = bytes(8) + (16).to_bytes(4) + bytes(16)
# the longest session that a server with ticks of 2 s grants
_SESSION_MS: Final = 40_000


def integer(value: int) -> bytes:
    """A number of 32 bits."""
    return value.to_bytes(4, signed=True)


def buffer(value: bytes) -> bytes:
    """Bytes after their number."""
    return integer(len(value)) + value


def request(kind: int, body: bytes = b"", xid: int = 1) -> bytes:
    """A whole request."""
    return buffer(integer(xid) + integer(kind) + body)


def greeting(session_ms: int, session: bytes = NO_SESSION) -> bytes:
    """Protocol version, last zxid, timeout, and the number and password of the session; it may not be read-only."""
    return buffer(integer(0) + bytes(8) + integer(session_ms) + session + b"\0")


def create(path: bytes, data: bytes = b"", kind: int = PERSISTENT) -> bytes:
    """A request that creates a node, which every client may change."""
    every_permission_to_anyone = integer(1) + integer(31) + buffer(b"world") + buffer(b"anyone")
    return request(CREATE, buffer(path) + buffer(data) + every_permission_to_anyone + integer(kind))


def _get(path: bytes, *, watch: bool = False) -> bytes:
    return request(GET_DATA, buffer(path) + bytes((watch,)))


_GREETING: Final = greeting(_SESSION_MS)
_FAREWELL: Final = request(CLOSE)


# -- the server -------------------------------------------------------------------------------------------------------


@contextmanager
def zookeeper(bench: Bench, lib: Path) -> Iterator[Registry]:
    """A single ZooKeeper server with an empty data directory, until the block ends."""

    def alone(home: Path, port: int) -> list[str]:
        return command(lib, home, "127.0.0.1", port, "tickTime=2000\n")

    with responding(bench, "ZooKeeper", alone, _opens_sessions) as server:
        yield Registry(server, cache(partial(_fill, server.port)), _pulls(), _heartbeats(), _watch)


def command(lib: Path, home: Path, address: str, port: int, settings: str, *flags: str) -> list[str]:
    """The command of a server, alone unless the settings name several, with flags of Java."""
    path = home / "zoo.cfg"
    path.write_text(
        f"dataDir={home / 'data'}\nclientPort={port}\nclientPortAddress={address}\n"
        f"maxClientCnxns=0\nadmin.enableServer=false\n{settings}",
        encoding="utf-8",
    )
    return ["java", "-server", *(flags or (_HEAP,)), "-cp", f"{lib}/*", _MAIN, str(path)]


def _opens_sessions(port: int) -> bool:
    # The server listens before it accepts sessions; an earlier request may get no response.
    with _session(port, _PROBED_SECONDS):
        return True


@contextmanager
def _session(port: int, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[tuple[socket.socket, IO[bytes]]]:
    with (
        socket.create_connection(("127.0.0.1", port), patience_seconds) as connection,
        connection.makefile("rb") as responses,
    ):
        connection.sendall(_GREETING)
        _response(responses)
        yield connection, responses
        connection.sendall(_FAREWELL)
        _response(responses)


def _fill(port: int) -> None:
    nodes = [(b"/topics", b""), *((_path(number), ROUTE) for number in range(PULLED_TOPICS))]
    with _session(port) as (connection, responses):
        for path, data in nodes:
            connection.sendall(create(path, data))
        for path, _ in nodes:
            if error := int.from_bytes(_response(responses)[12:REPLY_HEAD], signed=True):
                raise BenchError(f"ZooKeeper: {path.decode()} was not created: error {error}")


def _pulls() -> Script:
    """Reads of nodes."""
    return _script([_get(_path(number)) for number in range(PULLED_TOPICS)], least_bytes=PULLED_BODY_BYTES)


def _heartbeats() -> Script:
    """Pings of the sessions of 200 connections."""
    return _script([request(PING, xid=PING_XID)])


def _watch() -> Script:
    """Reads with a watch; a notified client reads again, since the notification does not contain the change."""
    read = _get(_path(0), watch=True)
    change = request(SET_DATA, buffer(_path(0)) + buffer(ROUTE) + integer(-1))
    return _script([read] * 2, acks=2, change=change, least_bytes=PULLED_BODY_BYTES)


def _script(requests: list[bytes], *, acks: int = 1, change: bytes = b"", least_bytes: int = REPLY_HEAD) -> Script:
    # The farewell closes the session, which would otherwise expire while another peer is measured.
    return Script(requests, "length", _GREETING, acks, least_bytes, change, _FAREWELL)


def _response(responses: IO[bytes]) -> bytes:
    size = int.from_bytes(responses.read(4))
    response = responses.read(size)
    if not size or len(response) < size:
        raise ConnectionError("ZooKeeper closed the connection")
    return response


def _path(number: int) -> bytes:
    return b"/topics/TopicTest%d" % number
