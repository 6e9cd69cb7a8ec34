"""Ten thousand peers that begin a TLS handshake and stall delay no connected peer, and are disconnected.

Their address has a share of the memory for about 2,300 handshakes; further ones are refused.
"""

import asyncio
import contextlib
import re
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.servers import status_bytes
from tests.support.certificates import Authority
from tests.support.daemon import Daemon, Start
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.http_peer import ask
from tests.support.peer import Peer, until

HELLOS = 10_000
# An address with a share of its own.
ATTACKER = ("127.0.0.2", 0)
# Number of concurrent connection attempts.
_AT_ONCE = 200

# one loop is enough: memory and deadlines of handshakes do not depend on it
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("loop", ["auto"])]


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < HELLOS + 1000:
        pytest.skip(f"{hard} open files are allowed (ulimit -Hn), {HELLOS + 1000} needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def hello(context: ssl.SSLContext) -> bytes:
    """The ClientHello of a client."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def over_tls(daemon: Daemon, context: ssl.SSLContext) -> Peer:
    """A peer that has completed its handshake."""
    plain = socket.create_connection(daemon.address, GUARD_SECONDS)
    return Peer(context.wrap_socket(plain, server_hostname="127.0.0.1"))


async def stall(daemon: Daemon, begin: bytes) -> list[socket.socket]:
    """Open connections that send a ClientHello and nothing more."""
    loop, gate = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)

    async def one() -> socket.socket:
        async with gate:
            peer = socket.socket()
            peer.setblocking(False)  # noqa: FBT003 - positional only
            peer.bind(ATTACKER)
            await loop.sock_connect(peer, daemon.address)
            # Some connections are refused before they send a byte.
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(peer, begin)
            return peer

    return await asyncio.gather(*(one() for _ in range(HELLOS)))


def open_connections(daemon: Daemon) -> int:
    """Number of open connections, from the metrics."""
    text = ask(daemon.http_address, "/metrics").text
    return int(sum(float(count) for count in re.findall(r"(?m)^nameserver_connections\{.*\} (\S+)$", text)))


async def test_ten_thousand_hellos(start: Start, tmp_path: Path) -> None:
    """The stalled peers use no more than their share of memory; other peers connect, and no connected one waits."""
    ca = Authority(tmp_path)
    server = ca.issue("server")
    flags = ("--tls-mode=enforcing", f"--tls-cert-file={server.cert_file}", f"--tls-key-file={server.key_file}")
    # Includes the newcomer's own handshake, which may take a while on a busy machine.
    patient = ("--whole-frame-timeout-seconds=180", "--http-listen=127.0.0.1:0")
    daemon = start(*flags, *patient, "--max-connections=20000", "--share-per-ip-percent=100")
    context = ssl.create_default_context(cafile=str(ca.ca_file))
    status = Path(f"/proc/{daemon.pid}/status")
    with over_tls(daemon, context) as connected:
        assert connected.ask(105, {"topic": "orders"}).code == 17
        before = status_bytes(status.read_text())
        stalled = asyncio.create_task(stall(daemon, hello(context)))
        answered = 0
        while not stalled.done():
            assert (await asyncio.to_thread(connected.ask, 105, {"topic": "orders"})).code == 17
            answered += 1
        peers = await stalled
        with over_tls(daemon, context) as newcomer:
            assert newcomer.ask(105, {"topic": "orders"}).code == 17
        # An eighth of max-memory-bytes for one address, plus the process's own needs for thousands of connections.
        assert status_bytes(status.read_text()) - before < 160 * 1024 * 1024
        daemon.wait_for("connection_refused", reason="tls", error="timed out waiting for the TLS handshake")
        until(lambda: open_connections(daemon) == 1)
        assert connected.ask(105, {"topic": "orders"}).code == 17
    # While the stalled peers connected.
    assert answered
    for peer in peers:
        peer.close()
