"""Ten thousand peers that begin a TLS handshake and go no further: nobody who is connected notices, and it ends.

They come from one address, whose share of the memory is enough for about 2,300 handshakes; the others are refused.
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
# elsewhere, as far as shares for each address go
ATTACKER = ("127.0.0.2", 0)
# at a time on their way
_AT_ONCE = 200

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < HELLOS + 1000:
        pytest.skip(f"{hard} open files are allowed (ulimit -Hn), {HELLOS + 1000} needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def hello(context: ssl.SSLContext) -> bytes:
    """How a client begins."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def over_tls(daemon: Daemon, context: ssl.SSLContext) -> Peer:
    """One that completes its handshake."""
    plain = socket.create_connection(daemon.address, GUARD_SECONDS)
    return Peer(context.wrap_socket(plain, server_hostname="127.0.0.1"))


async def stall(daemon: Daemon, begin: bytes) -> list[socket.socket]:
    """Connect, send the beginning and say no more."""
    loop, gate = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)

    async def one() -> socket.socket:
        async with gate:
            peer = socket.socket()
            peer.setblocking(False)  # noqa: FBT003 - positional only
            peer.bind(ATTACKER)
            await loop.sock_connect(peer, daemon.address)
            # some are refused before they have said anything
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(peer, begin)
            return peer

    return await asyncio.gather(*(one() for _ in range(HELLOS)))


def open_connections(daemon: Daemon) -> int:
    """As its metrics count them."""
    text = ask(daemon.http_address, "/metrics").text
    return int(sum(float(count) for count in re.findall(r"(?m)^nameserver_connections\{.*\} (\S+)$", text)))


async def test_ten_thousand_hellos(start: Start, tmp_path: Path) -> None:
    """They take no more memory than their share; others get in meanwhile; nobody who is connected waits or is lost."""
    ca = Authority(tmp_path)
    server = ca.issue("server")
    flags = ("--tls-mode=enforcing", f"--tls-cert-file={server.cert_file}", f"--tls-key-file={server.key_file}")
    # the newcomer's time, too: on a busy machine it may need a while for its part
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
        # an eighth of max-memory-bytes for one address, and what a process of this size takes to answer thousands
        assert status_bytes(status.read_text()) - before < 160 * 1024 * 1024
        daemon.wait_for("connection_refused", reason="tls", error="timed out waiting for the TLS handshake")
        until(lambda: open_connections(daemon) == 1)
        assert connected.ask(105, {"topic": "orders"}).code == 17
    # while they came
    assert answered
    for peer in peers:
        peer.close()
