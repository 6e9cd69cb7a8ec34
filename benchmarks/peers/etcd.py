"""etcd with the work of a NameServer: a route is a value, a heartbeat keeps a lease alive, watches notify clients."""

import base64
import json
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.loads import Script
from benchmarks.harness.rounds import Bench
from benchmarks.harness.wire import PULLED_BODY_BYTES, PULLED_TOPICS
from benchmarks.peers.fetching import INTO, fetched
from benchmarks.peers.registry import ROUTE, Registry, responding
from tests.support.ports import free_port

VERSION: Final = "3.7.3"
_PACKAGE: Final = "go.etcd.io/etcd/server/v3"
_LEASES: Final = 1_000
# longer than any run
_LEASE_SECONDS: Final = 3600
# operations in a transaction, of which etcd allows 128
_AT_ONCE: Final = 100
_GRANTED_AT_ONCE: Final = 20
_PATIENCE_SECONDS: Final = 30

# -- the parts of HTTP/2 and gRPC for one request on a stream ---------------------------------------------------------

_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_STREAM, _END_HEADERS = 1, 4
# Flow control windows of 2 GB, more than a connection receives, so that no response waits for a window update.
_INITIAL_WINDOW_SIZE: Final = 4
_WINDOW: Final = 2**31 - 1
_FIRST_WINDOW: Final = 65_535
# HPACK's numbers of `:method: POST` and `:scheme: http`
_PSEUDO: Final = b"\x83\x86"
# the other four headers, once they are in the connection's table: the one that was added last has number 62
_REPEATED: Final = _PSEUDO + bytes(0x80 | number for number in (65, 64, 63, 62))


def _h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _headers(path: str) -> bytes:
    """The headers of the first request, which later requests refer to by number, as every client does."""
    literals = b"".join(
        # 0x40 + number of the name: add the header to the table.
        bytes((0x40 | name, len(value))) + value
        for name, value in ((4, path.encode()), (1, b"127.0.0.1"), (31, b"application/grpc"))
    )
    return _PSEUDO + literals + b"\x40\x02te\x08trailers"


def _message(payload: bytes) -> bytes:
    # flag 0: not compressed
    return b"\0" + len(payload).to_bytes(4) + payload


def _greeting() -> bytes:
    settings = _INITIAL_WINDOW_SIZE.to_bytes(2) + _WINDOW.to_bytes(4)
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _h2_frame(_SETTINGS, 0, 0, settings)
        + _h2_frame(_WINDOW_UPDATE, 0, 0, (_WINDOW - _FIRST_WINDOW).to_bytes(4))
    )


def _call(headers: bytes, payload: bytes) -> bytes:
    """A request with one response."""
    return _h2_frame(_HEADERS, _END_HEADERS, 1, headers) + _h2_frame(_DATA, _END_STREAM, 1, _message(payload))


def _varint(value: int) -> bytes:
    """A non-negative integer in protobuf's encoding."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | int) -> bytes:
    """A member of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


# -- the server -------------------------------------------------------------------------------------------------------


def program(bench: Bench) -> Path:
    """The server's program, with the dependencies that its own go.mod names. Raises BenchError."""
    # `go install PACKAGE@VERSION` refuses modules that replace dependencies, as etcd's does.
    module = f"cd {INTO} && go mod init etcd && go get {_PACKAGE}@v{VERSION}"
    command = ["sh", "-c", f"{module} && go build -o etcd {_PACKAGE}"]
    return fetched(bench, f"etcd-{VERSION}", ["go"], command) / "etcd"


@contextmanager
def etcd(bench: Bench, program: Path) -> Iterator[Registry]:
    """A single etcd server with an empty data directory, until the block ends."""
    peers = {"default": f"http://127.0.0.1:{free_port()}"}

    def alone(home: Path, port: int) -> list[str]:
        return command(program, home, f"http://127.0.0.1:{port}", "default", peers)

    with responding(bench, "etcd", alone, _is_healthy) as server:
        yield Registry(server, cache(partial(_fill, server.port)), _pulls(), _heartbeats(), _watch)


def command(program: Path, home: Path, url: str, name: str, peers: Mapping[str, str]) -> list[str]:
    """The command of a server with this URL for clients; `peers` has the URL of each server for the others."""
    cluster = ",".join(f"{each}={peer}" for each, peer in peers.items())
    return [
        *(str(program), "--name", name, "--data-dir", str(home / "data"), "--log-level", "error"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name]),
        *("--initial-cluster", cluster),
    ]


def _is_healthy(port: int) -> bool:
    # A server that is not healthy responds with status 503, an OSError.
    return "health" in _gateway(port, "/health")


def _fill(port: int) -> None:
    """Store 1,000 routes and create as many leases, through the JSON gateway."""
    for first in range(0, PULLED_TOPICS, _AT_ONCE):
        puts = [{"key": _text(_key(n)), "value": _text(ROUTE)} for n in range(first, first + _AT_ONCE)]
        _gateway(port, "/v3/kv/txn", {"success": [{"requestPut": put} for put in puts]})
    leases = [{"ID": number, "TTL": _LEASE_SECONDS} for number in range(1, _LEASES + 1)]
    # Several at the same time, because each waits for the disk.
    with ThreadPoolExecutor(_GRANTED_AT_ONCE) as pool:
        list(pool.map(partial(_gateway, port, "/v3/lease/grant"), leases))
    if "TTL" not in _gateway(port, "/v3/lease/keepalive", {"ID": _LEASES})["result"]:
        raise BenchError(f"etcd: lease {_LEASES} is not kept alive")


def _gateway(port: int, path: str, members: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The response to a request of the JSON gateway, a GET without members. Raises OSError for any other status."""
    body = None if members is None else json.dumps(members).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=_PATIENCE_SECONDS) as response:
        decoded: dict[str, Any] = json.load(response)
        return decoded


def _pulls() -> Script:
    """Serializable reads, which like those of a NameServer need no quorum."""
    reads = [field(1, _key(number)) + field(7, 1) for number in range(PULLED_TOPICS)]
    return Script(
        [_call(_REPEATED, read) for read in reads],
        "http2",
        greeting=_greeting() + _call(_headers("/etcdserverpb.KV/Range"), reads[0]),
        acks=1,
        least_bytes=PULLED_BODY_BYTES,
    )


def _heartbeats() -> Script:
    """Messages that keep leases alive, on one stream of each connection."""
    opening = _h2_frame(_HEADERS, _END_HEADERS, 1, _headers("/etcdserverpb.Lease/LeaseKeepAlive"))
    heartbeats = [_h2_frame(_DATA, 0, 1, _message(field(1, number))) for number in range(1, _LEASES + 1)]
    return Script(heartbeats, "http2", _greeting() + opening)


def _watch() -> Script:
    """Watches of a route, whose notification contains the changed route."""
    opening = _h2_frame(_HEADERS, _END_HEADERS, 1, _headers("/etcdserverpb.Watch/Watch"))
    watch = _h2_frame(_DATA, 0, 1, _message(field(1, field(1, _key(0)))))
    change = _call(_headers("/etcdserverpb.KV/Put"), field(1, _key(0)) + field(2, ROUTE))
    # The first frame on a stream confirms the watch.
    return Script([opening + watch], "http2", _greeting(), 1, PULLED_BODY_BYTES, change)


def _key(number: int) -> bytes:
    return b"/topics/TopicTest%d" % number


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
