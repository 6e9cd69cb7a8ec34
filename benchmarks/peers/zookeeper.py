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
from benchmarks.harness.servers import data_directory, free_port
from benchmarks.harness.wire import PULLED_BODY_BYTES, PULLED_TOPICS
from benchmarks.peers.registry import ROUTE, Registry, responding
from benchmarks.peers.rocketmq import java

VERSION: Final = "3.9.5"
_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
# the main class of a server of several
ENSEMBLE_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# the heap of its start script
_HEAP: Final = "-Xmx1000m"
_SETTINGS: Final = """\
tickTime=2000
dataDir={directory}
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
"""
_PATIENCE_SECONDS: Final = 30
_PROBED_SECONDS: Final = 0.2

# -- the parts of its protocol that are used --------------------------------------------------------------------------

_CREATE, _GET_DATA, _SET_DATA, _PING, _CLOSE = 1, 4, 5, 11, -11
_PING_XID: Final = -2
# xid, zxid, error code
_REPLY_HEAD: Final = 16
# the longest session that a server with ticks of 2 s grants
_SESSION_MS: Final = 40_000


def _int(value: int) -> bytes:
    return value.to_bytes(4, signed=True)


def _buffer(value: bytes) -> bytes:
    return _int(len(value)) + value


def _request(kind: int, body: bytes = b"", xid: int = 1) -> bytes:
    return _buffer(_int(xid) + _int(kind) + body)


def _get(path: bytes, *, watch: bool = False) -> bytes:
    return _request(_GET_DATA, _buffer(path) + bytes((watch,)))


def _create(path: bytes, data: bytes) -> bytes:
    every_permission_to_anyone = _int(1) + _int(31) + _buffer(b"world") + _buffer(b"anyone")
    return _request(_CREATE, _buffer(path) + _buffer(data) + every_permission_to_anyone + _int(0))


# protocol version, last zxid, session time-out, number and password of the session (0: a new one), not read-only
_GREETING: Final = _buffer(_int(0) + bytes(8) + _int(_SESSION_MS) + bytes(8) + _buffer(bytes(16)) + b"\0")
_FAREWELL: Final = _request(_CLOSE)


# -- the server -------------------------------------------------------------------------------------------------------


@contextmanager
def zookeeper(bench: Bench, lib: Path) -> Iterator[Registry]:
    """A single ZooKeeper server with an empty data directory, until the block ends."""
    port = free_port()
    with data_directory("zookeeper") as directory:
        settings = directory / "zoo.cfg"
        settings.write_text(_SETTINGS.format(directory=directory / "data", port=port), encoding="utf-8")
        command = [java(), "-server", _HEAP, "-cp", f"{lib}/*", _MAIN, str(settings)]
        with responding(
            bench, "ZooKeeper", command=command, port=port, is_responding=_opens_sessions, home=directory
        ) as server:
            yield Registry(server, cache(partial(_fill, port)), _pulls(), _heartbeats(), _watch)


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
            connection.sendall(_create(path, data))
        for path, _ in nodes:
            if error := int.from_bytes(_response(responses)[12:_REPLY_HEAD], signed=True):
                raise BenchError(f"ZooKeeper: {path.decode()} was not created: error {error}")


def _pulls() -> Script:
    """Reads of nodes."""
    return _script([_get(_path(number)) for number in range(PULLED_TOPICS)], least_bytes=PULLED_BODY_BYTES)


def _heartbeats() -> Script:
    """Pings of the sessions of 200 connections."""
    return _script([_request(_PING, xid=_PING_XID)])


def _watch() -> Script:
    """Reads with a watch; a notified client reads again, since the notification does not contain the change."""
    read = _get(_path(0), watch=True)
    change = _request(_SET_DATA, _buffer(_path(0)) + _buffer(ROUTE) + _int(-1))
    return _script([read] * 2, acks=2, change=change, least_bytes=PULLED_BODY_BYTES)


def _script(requests: list[bytes], *, acks: int = 1, change: bytes = b"", least_bytes: int = _REPLY_HEAD) -> Script:
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
