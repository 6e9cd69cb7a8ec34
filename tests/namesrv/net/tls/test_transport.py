"""TLS on a server's port: refusals and their reasons, client certificates, and the cost of handshakes."""

import asyncio
import contextlib
import gc
import random
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from OpenSSL import SSL
from starlette.applications import Starlette

from benchmarks.abuse.records import KEY_UPDATE_BYTES, TlsRecords
from namesrv.net.dispatcher import Reply
from namesrv.net.fairness.budget import MemoryBudget
from namesrv.net.fairness.read_shares import ITERATION_COST, NetworkShare, ReadShares
from namesrv.net.protocol import ServerConnection
from namesrv.net.request import Request
from namesrv.net.tls.detector import ServerTls, TlsDetector
from namesrv.net.tls.session import TlsSession
from namesrv.net.tls.transport import HandshakeThreads, TlsTransport
from namesrv.observability.http import HttpListener
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.aio.tls import ClientTls, TlsFiles, client_context, server_context
from namesrv_remoting.errors import ConnectError, ConnectionClosedError
from namesrv_remoting.frames import FrameReader
from tests.support.certificates import Authority, Identity
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, settle, until
from tests.support.raw_peer import RawPeer
from tests.support.serving import ECHO, Feed, Serving, byte_by_byte, serving, whole
from tests.support.spelling import Response, binary_frame, json_frame, native_frame, read_response

ASK = 77
MEBIBYTE = 1024 * 1024
# One iteration of the loop decrypts four KeyUpdates, which takes about 0.2 ms.
IN_ONE_ITERATION = 4

PLAIN_REFUSED = "plain text received, but this server requires TLS (Java peers: tls.enable=true)"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority for all tests of this module, with a certificate for `server`."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("server")
    return authority


def tls(ca: Authority, mode: Any = "enforcing", client_auth: Any = "none") -> ServerTls:
    """The TLS settings of a server with a certificate."""
    issued = ca.issue("server")
    return ServerTls(mode, server_context(TlsFiles(issued.cert_file, issued.key_file, None, ca.ca_file), client_auth))


def client_of(
    served: Serving,
    ca: Authority | None,
    shown: Identity | None = None,
    *,
    version: ssl.TLSVersion | None = None,
    **options: Any,
) -> RemotingClient:
    """A client over TLS, or over plain text without an authority."""
    side = None
    if ca is not None:
        certificate, key = (None, None) if shown is None else (shown.cert_file, shown.key_file)
        side = ClientTls(TlsFiles(certificate, key, None, ca.ca_file), **{"verify_host": True, **options})
        if version is not None:
            side.context().maximum_version = version
    host, port = served.addresses[0]
    return RemotingClient(f"{host}:{port}", clock=FakeClock(), tls=side, protocols=ServerProtocols())


async def echo(client: RemotingClient, body: bytes = b"hello") -> bytes:
    """The body of the response to ECHO."""
    async with client:
        return (await client.invoke(ECHO, body=body, timeout_seconds=10.0)).body


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 3_000_000])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_bodies_of_any_size_pass(ca: Authority, mode: str, size: int) -> None:
    """Requests and responses of any number of TLS records arrive unchanged."""
    body = bytes(range(251)) * (size // 251) + bytes(size % 251)
    async with serving(tls=tls(ca, mode), large_frames={ECHO: 16 * 1024 * 1024}) as served:
        assert await echo(client_of(served, ca), body) == body


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_closed_connection_is_freed_without_a_garbage_collection(ca: Authority, mode: str) -> None:
    """Connection, transport and detector refer to each other only while the connection is open."""
    kinds = (ServerConnection, TlsTransport, TlsDetector, TlsSession)
    # of other tests' servers
    others = [thing for thing in gc.get_objects() if isinstance(thing, kinds)]
    known = set(map(id, others))
    gc.disable()
    try:
        async with serving(tls=tls(ca, mode)) as served:
            await echo(client_of(served, ca))
            silent, refused = await served.connect(), await served.connect()
            refused.send(b"GET / HTTP/1.1\r\n\r\n")
            silent.close()
            refused.close()

            await until(lambda: all(id(each) in known for each in gc.get_objects() if isinstance(each, kinds)))
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("sent", "opaque"),
    [
        (json_frame(ECHO, 7), 7),
        (native_frame(ECHO, 7), 7),
        (binary_frame(ECHO, 7), 7),
        (json_frame(ECHO, 7, body=b"x" * 500)[:-400], 7),
        (json_frame(ECHO, 7)[:20], None),
        (b"\0", None),
        (b"GET / HTTP/1.1\r\n\r\n", None),
        (b"\x15\x03\x01\0\x02\x02F", None),
        (bytes(range(32, 200)), None),
    ],
    ids=["json", "native", "binary", "begun", "cut", "byte", "http", "alert", "garbage"],
)
async def test_any_plain_text_is_refused(ca: Authority, sent: bytes, opaque: int | None) -> None:
    """A request gets the reason when its header is complete, and no handler runs; other bytes close the connection."""
    async with serving(tls=tls(ca)) as served:
        peer = await served.connect()
        peer.send(sent)
        if opaque is not None:
            response = await peer.receive()
            assert (response.opaque, response.code, response.remark) == (opaque, 1, PLAIN_REFUSED)

        assert await peer.at_end()
        assert [(reason, message) for _, reason, message in served.observer.refused] == [("tls", PLAIN_REFUSED)]
        assert served.server.dispatcher.answered == {}


async def test_plain_text_is_accepted_after_a_reload_without_tls(ca: Authority) -> None:
    """RocketMQ 5.x connects in advance: its first request may come after the server's TLS was turned off."""
    state = tls(ca, "permissive")
    async with serving(tls=state) as served:
        peer = await served.connect()
        state.mode, state.context = "off", None
        peer.send(json_frame(ECHO, 7))

        assert (await peer.receive()).code == 0


async def test_tls_to_a_server_without_tls_is_refused(ca: Authority) -> None:
    """The client's error names the plain-text response, and the server's log names TLS as the reason."""
    async with serving() as served:
        with pytest.raises(ConnectError, match="the server does not speak TLS: it answered in plain text"):
            await echo(client_of(served, ca))
        await until(lambda: served.observer.closed)

        assert served.observer.reasons == ["tls"]


class Side:
    """A client's end of TLS in memory, whose bytes the test sends."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost", session=session)

    def hello(self) -> bytes:
        """The ClientHello."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    async def finish(self, peer: RawPeer) -> bytes:
        """The last bytes of the handshake, which the test has yet to send, after the server has the hello."""
        while True:
            self._incoming.write(await peer.reader.read(65536))
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                peer.send(self._outgoing.read())
            else:
                return self._outgoing.read()

    async def shake_hands(self, peer: RawPeer) -> None:
        """Complete the handshake."""
        peer.send(self.hello())
        peer.send(await self.finish(peer))

    async def is_answered(self, peer: RawPeer) -> bool:
        """True if the server answers a request."""
        peer.send(self.sealed(json_frame(ECHO, 7)))
        return [response.opaque for response in await self.frames(peer, 1)] == [7]

    def sealed(self, data: bytes) -> bytes:
        """TLS records with the data."""
        self.tls.write(data)
        return self._outgoing.read()

    async def frames(self, peer: RawPeer, count: int) -> list[Response]:
        """The next frames from the server."""
        reader, found = FrameReader(), list[Response]()
        while len(found) < count:
            try:
                found += [read_response(*frame) for frame in reader.receive_data(self.tls.read(65536))]
            except ssl.SSLWantReadError:
                data = await peer.reader.read(65536)
                assert data, "the server closed the connection"
                self._incoming.write(data)
        return found


def trusting(ca: Authority, shown: Identity | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A client's context."""
    certificate, key = (None, None) if shown is None else (shown.cert_file, shown.key_file)
    context = client_context(TlsFiles(certificate, key, None, ca.ca_file), verify_host=True)
    if version is not None:
        context.maximum_version = version
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("header", [b"", b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n"], ids=["direct", "proxied"])
@pytest.mark.parametrize("feed", [whole, byte_by_byte])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_handshake_in_any_pieces(
    ca: Authority, mode: str, feed: Feed, header: bytes, version: ssl.TLSVersion
) -> None:
    """A PROXY header in plain text, the handshake and two requests may arrive byte by byte."""
    async with serving(tls=tls(ca, mode), proxy_protocol=True) as served:
        peer, side = await served.connect(), Side(trusting(ca, version=version))
        await feed(peer, header + side.hello())
        await feed(peer, await side.finish(peer))
        await feed(peer, side.sealed(json_frame(ECHO, 7)) + side.sealed(native_frame(ECHO, 8)))

        assert [response.opaque for response in await side.frames(peer, 2)] == [7, 8]
        assert served.connection_of(peer).peer.proxied == ("192.0.2.1:56324" if header else None)


STRANGER_REFUSED = (
    "TLS handshake failed: the peer's certificate is refused: unable to get local issuer certificate "
    "(names in it, not verified: Broker A, broker-a.example)"
)
NO_CERTIFICATE = "TLS handshake failed: the peer shows no certificate"


@pytest.mark.parametrize(
    ("client_auth", "shown", "names", "refused"),
    [
        ("none", None, (), None),
        ("none", "client", (), None),
        ("optional", None, (), None),
        ("optional", "client", ("Broker A", "broker-a.example"), None),
        ("optional", "stranger", None, STRANGER_REFUSED),
        ("require", None, None, NO_CERTIFICATE),
        ("require", "client", ("Broker A", "broker-a.example"), None),
        ("require", "stranger", None, STRANGER_REFUSED),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_client_certificates(
    ca: Authority,
    tmp_path: Path,
    client_auth: str,
    shown: str | None,
    names: tuple[str, ...] | None,
    refused: str | None,
    version: ssl.TLSVersion,
) -> None:
    """Only names of certificates of the authority count; client and server log report a refused certificate."""
    issuer = Authority(tmp_path, "others") if shown == "stranger" else ca
    identity = None if shown is None else issuer.issue("peer", "broker-a.example", common_name="Broker A")
    received_names: list[tuple[str, ...]] = []

    async def note(request: Request) -> Reply:
        received_names.append(request.connection.certificate_names)
        return Reply()

    async with serving({ASK: note}, tls=tls(ca, "enforcing", client_auth)) as served:
        client = client_of(served, ca, identity, version=version)
        async with client:
            if names is not None:
                await client.invoke(ASK, timeout_seconds=10.0)
            else:
                with pytest.raises((ConnectError, ConnectionClosedError), match=r"certificate|authority"):
                    await client.invoke(ASK, timeout_seconds=10.0)
                await until(lambda: served.observer.refused)

        assert received_names == ([] if names is None else [names])
        assert [message for _, _, message in served.observer.refused] == ([] if refused is None else [refused])


async def test_expired_certificate_does_not_count_in_a_resumed_session(ca: Authority) -> None:
    """A TLS 1.2 session cannot be resumed after its client certificate, verified at the start, has expired."""
    issued = ca.issue("peer", expires=datetime(2090, 1, 1, tzinfo=UTC))
    context = trusting(ca, issued, ssl.TLSVersion.TLSv1_2)
    async with serving(tls=tls(ca, "enforcing", "require")) as served:

        async def resumed(session: ssl.SSLSession | None) -> tuple[Side, RawPeer]:
            peer, side = await served.connect(), Side(context, session)
            await side.shake_hands(peer)
            return side, peer

        first, peer = await resumed(None)
        assert await first.is_answered(peer)
        session = first.tls.session
        assert session is not None
        assert not session.has_ticket
        second, peer = await resumed(session)
        assert await second.is_answered(peer)
        assert second.tls.session_reused
        # a hundred years
        served.clock.step_wall(36_525 * 86_400.0)
        third, peer = await resumed(session)
        assert third.tls.session_reused
        await until(lambda: served.observer.closed)

        assert [message for _, _, message in served.observer.refused] == [
            "TLS handshake failed: the peer's certificate has expired"
        ]
        assert served.server.dispatcher.answered == {(ECHO, 0): 2}


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_old_tls_versions_are_refused(ca: Authority, version: str) -> None:
    """TLS 1.0 and 1.1 are refused, also with weak ciphers that the client allows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca.ca_file)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion[version]
    async with serving(tls=tls(ca, "permissive")) as served:
        peer = await served.connect()
        peer.send(Side(context).hello())
        await until(lambda: served.observer.closed)

        [message] = [message for _, _, message in served.observer.refused]
        assert message == "TLS handshake failed: the peer offers neither TLS 1.2 nor TLS 1.3"


async def test_renegotiation_is_refused(ca: Authority) -> None:
    """A TLS 1.2 client cannot renegotiate, which would cost the server more than the client."""
    server_tls = tls(ca)
    async with serving(tls=server_tls) as served:
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        peer, side = await served.connect(), SSL.Connection(context, None)
        side.set_connect_state()
        for _ in range(2):
            with contextlib.suppress(SSL.WantReadError):
                side.do_handshake()
            peer.send(side.bio_read(65536))
            side.bio_write(await peer.reader.read(65536))
        side.do_handshake()
        await until(lambda: server_tls.handshakes.total() == 1)
        side.renegotiate()
        with contextlib.suppress(SSL.WantReadError):
            side.do_handshake()
        peer.send(side.bio_read(65536))
        side.bio_write(await peer.reader.read(65536))
        with pytest.raises(SSL.Error, match="no renegotiation"):
            side.do_handshake()

        assert server_tls.handshakes.total() == 1


@pytest.mark.parametrize(
    ("mode", "cut", "seconds", "reason"),
    [
        ("enforcing", 0, 5.0, "tls"),
        ("enforcing", 1, 5.0, "tls"),
        ("enforcing", 100, 5.0, "tls"),
        ("enforcing", None, 5.0, "tls"),
        ("permissive", 0, 120.0, "silent"),
        ("permissive", 1, 5.0, "tls"),
        ("permissive", None, 5.0, "tls"),
    ],
)
async def test_incomplete_handshake_is_closed(
    ca: Authority, mode: str, cut: int | None, seconds: float, reason: str
) -> None:
    """The deadline of a handshake begins with the connection, or in permissive mode with the first byte."""
    server_tls = tls(ca, mode)
    async with serving(tls=server_tls) as served:
        peer, threads = await served.connect(), server_tls.threads
        peer.send(Side(trusting(ca)).hello()[:cut])
        # A step begins when its records are complete.
        steps = 1 if cut is None else 0
        await settle()
        await until(lambda: f"{steps} ended | 0 waiting" in repr(threads))
        await served.clock.advance(seconds - 1)
        assert (len(served.server.connections), served.observer.refused) == (1, [])
        await served.clock.advance(2)
        await until(lambda: served.observer.closed)

        assert served.observer.reasons == [reason]


async def test_handshakes_count_as_connections(ca: Authority) -> None:
    """Incomplete handshakes count towards `max_connections`; one more is refused before its hello."""
    async with serving(tls=tls(ca), max_connections=3) as served:
        for cut in (0, 1, 200):
            (await served.connect()).send(Side(trusting(ca)).hello()[:cut])
        await settle()
        last = await served.connect()

        assert await last.at_end()
        assert served.observer.reasons == ["connections"]


async def test_handshakes_are_charged_to_the_memory_budget(ca: Authority) -> None:
    """Incomplete handshakes are charged until they end; a connection beyond the budget is refused."""
    budget = MemoryBudget(1024 * 1024)
    async with serving(tls=tls(ca), budget=budget) as served:

        def taken() -> bool:
            # 48 KiB for the handshake and 8 KiB for the connection
            return bool(served.observer.refused) or budget.used_bytes == len(served.peers) * 56 * 1024

        while not served.observer.refused:
            (await served.connect()).send(Side(trusting(ca)).hello())
            await until(taken)
        assert served.observer.reasons == ["memory"]
        for peer in served.peers:
            peer.close()
        await until(lambda: not served.server.connections)

        assert budget.used_bytes == 0


@pytest.mark.parametrize(
    ("host", "message"),
    [("elsewhere.example", "the server's certificate is refused: IP address mismatch"), ("127.0.0.1", None)],
)
async def test_host_of_the_certificate_is_verified(ca: Authority, host: str, message: str | None) -> None:
    """The certificate must name the server's address unless `verify_host` is false."""
    issued = ca.issue("elsewhere", host)
    side = ServerTls("enforcing", server_context(TlsFiles(issued.cert_file, issued.key_file), "none"))
    async with serving(tls=side) as served:
        assert await echo(client_of(served, ca, verify_host=False)) == b"hello"
        if message is None:
            assert await echo(client_of(served, ca)) == b"hello"
        else:
            with pytest.raises(ConnectError, match=message):
                await echo(client_of(served, ca))


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n"])
async def test_https_port_releases_the_share_of_a_peer_without_tls(ca: Authority, sent: bytes) -> None:
    """A port check or plain HTTP releases its read share, and does not count as a failed handshake."""
    shares, counts = ReadShares(), Counter[tuple[str, int | str]]()
    listener = HttpListener(Starlette(), counts, tls=tls(ca), read_shares=shares)
    async with asyncio.timeout(GUARD_SECONDS):
        (address,) = await listener.listen("127.0.0.1", 0)
        peer = await RawPeer.connect(address)
        await until(lambda: "1 networks" in repr(shares))
        peer.send(sent)
        peer.writer.write_eof()
        await peer.reader.read()
        peer.writer.transport.abort()
        await until(lambda: "0 networks" in repr(shares))
        await listener.close()

    assert ("other", "tls") not in counts


async def test_unknown_authority_is_reported_on_both_sides(ca: Authority, tmp_path: Path) -> None:
    """The client's error and the server's log report a server certificate of an unknown authority."""
    async with serving(tls=tls(ca)) as served:
        with pytest.raises(ConnectError, match="the server's certificate is refused: self-signed certificate in"):
            await echo(client_of(served, Authority(tmp_path, "others")))
        await until(lambda: served.observer.closed)

        [message] = [message for _, _, message in served.observer.refused]
        assert message.startswith("TLS handshake failed: the peer ")


async def test_broken_record_ends_the_connection(ca: Authority) -> None:
    """A changed byte in a record closes the connection; the request before it is answered."""
    async with serving(tls=tls(ca)) as served:
        peer, side = await served.connect(), Side(trusting(ca))
        await side.shake_hands(peer)
        assert await side.is_answered(peer)
        record = side.sealed(json_frame(ECHO, 8))
        peer.send(record[:-1] + bytes([record[-1] ^ 1]))
        await until(lambda: served.observer.closed)

        [message] = [message for _, _, message in served.observer.refused]
        # messages of OpenSSL before and since 3.5
        broken = ("decryption failed or bad record mac", "record layer failure")
        assert message.removeprefix("TLS connection broken: ") in broken


async def test_responses_over_tls_wait_for_a_slow_reader(ca: Authority) -> None:
    """No further request of a peer that does not read is received; once it reads, it gets every response in order."""
    body = b"x" * 60_000
    async with serving(tls=tls(ca)) as served:
        peer, side = await served.connect(receive_buffer=4096), Side(trusting(ca))
        await side.shake_hands(peer)
        for number in range(100):
            peer.send(side.sealed(json_frame(ECHO, number, body=body)))
        await until(lambda: served.observer.closed or served.connection_of(peer).is_write_paused)
        assert not served.observer.closed, (served.observer.refused, served.observer.closed)
        assert served.connection_of(peer).peer.requests < 100
        peer.widen()

        assert list(range(100)) == [response.opaque for response in await side.frames(peer, 100)]


async def test_large_frame_over_tls_is_read_in_chunks(ca: Authority) -> None:
    """The server takes a bounded part of a large frame from the socket at a time, so that others are served."""
    body = bytes(8 * 1024 * 1024)
    async with serving(tls=tls(ca), large_frames={ECHO: 2 * len(body)}) as served:
        peer, side = await served.connect(), Side(trusting(ca))
        await side.shake_hands(peer)
        await until(lambda: served.connection_of(peer).peer.tls_version)
        accepted = served.connection_of(peer).socket
        assert accepted is not None
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        frame = json_frame(ECHO, 7, body=body)
        sealed = b"".join(side.sealed(frame[at : at + 16384]) for at in range(0, len(frame), 16384))
        peer.send(sealed)
        most = 0
        while served.server.bytes_received < len(frame):
            await asyncio.sleep(0)
            gone = len(sealed) - peer.writer.transport.get_write_buffer_size()
            most = max(most, gone - served.server.bytes_received)

        assert [response.opaque for response in await side.frames(peer, 1)] == [7]
    # the size of one read of a transport, and the buffers of both sockets
    assert most <= 256 * 1024 + 2 * 256 * 1024


async def test_close_notify_ends_the_connection(ca: Authority) -> None:
    """A request followed by the TLS close is handled, and the end is not a refusal."""
    async with serving(tls=tls(ca)) as served:
        peer, side = await served.connect(), Side(trusting(ca))
        peer.send(side.hello())
        last = await side.finish(peer) + side.sealed(json_frame(ECHO, 7))
        with contextlib.suppress(ssl.SSLError):
            side.tls.unwrap()
        peer.send(last + side._outgoing.read())
        await until(lambda: served.observer.closed)
        assert served.server.dispatcher.answered == {(ECHO, 0): 1}

        assert (served.observer.closed, served.observer.refused) == ([(1, "closed")], [])


@contextlib.contextmanager
def busy(threads: HandshakeThreads, *, is_urgent: bool = False) -> Iterator[threading.Event]:
    """A thread of these is busy until the event is set, or until the end of the block."""
    go_on = threading.Event()

    def wait() -> None:
        assert go_on.wait(GUARD_SECONDS)

    threads.run(wait, lambda _: None, is_urgent=is_urgent)
    try:
        yield go_on
    finally:
        go_on.set()


async def test_started_handshakes_precede_new_ones(ca: Authority) -> None:
    """The second half of a handshake precedes waiting hellos, because a handshake that times out is lost work."""
    # number of finished handshakes at each hello of the crowd
    completed: list[int] = []
    # The server requests a certificate, and would verify it in the last step.
    tls_side = ServerTls("enforcing", tls(ca, client_auth="optional").context, HandshakeThreads(1))
    threads = tls_side.threads
    async with serving(tls=tls_side) as served:
        peer, side = await served.connect(), Side(trusting(ca))
        late, piecemeal = await served.connect(), Side(trusting(ca)).hello()
        # an incomplete hello has no response yet
        late.send(piecemeal[:100])
        peer.send(side.hello())
        last = await side.finish(peer)
        await until(lambda: "1 ended | 0 waiting" in repr(threads))
        with busy(threads) as go_on:
            for _ in range(50):
                threads.run(lambda: None, lambda _: completed.append(tls_side.handshakes.total()), is_urgent=False)
            with busy(threads):
                late.send(piecemeal[100:])
                peer.send(last)
                await until(lambda: "54 waiting" in repr(threads))
                go_on.set()
                await until(lambda: len(completed) == 50)
                assert "2 waiting" in repr(threads)

    assert completed == [1] * 50


async def test_short_last_step_waits_for_no_thread(ca: Authority) -> None:
    """A client without a certificate may close once its part of the handshake is sent: no handshake has failed."""
    tls_side = ServerTls("enforcing", tls(ca).context, HandshakeThreads(1))
    async with serving(tls=tls_side) as served:
        peer, side = await served.connect(), Side(trusting(ca))
        peer.send(side.hello())
        last = await side.finish(peer)
        with busy(tls_side.threads, is_urgent=True):
            peer.send(last)
            peer.writer.close()
            await until(lambda: served.observer.closed)

        assert (tls_side.handshakes.total(), served.observer.closed, served.observer.refused) == (
            1,
            [(1, "closed")],
            [],
        )


ENCRYPTED, HELLO = b"\x17\x03\x03\0\1x", b"\x16\x03\x03\0\1x"


@pytest.mark.parametrize(
    ("received", "is_short"),
    [
        (b"\x14\x03\x03\0\1\1" + ENCRYPTED + ENCRYPTED, True),
        (HELLO, False),
        (ENCRYPTED + HELLO + ENCRYPTED, False),
        (33 * ENCRYPTED + HELLO, True),
    ],
    ids=["end", "hello", "hello between", "next step"],
)
def test_step_with_an_unencrypted_message_is_not_short(ca: Authority, received: bytes, *, is_short: bool) -> None:
    """Only encrypted records are processed in the event loop, at most 32 of them at once; a cut record waits."""
    context = tls(ca).context
    assert context is not None
    session = TlsSession(context)
    session.receive(received + HELLO[:-1])

    assert session.begin_step() == is_short
    assert session.received_bytes == max(0, len(received) - 32 * 6) + len(HELLO) - 1


def test_step_of_a_handshake_has_few_bytes(ca: Authority) -> None:
    """A peer may send large records after its hello: they are not kept in memory beside those that wait."""
    context = tls(ca).context
    assert context is not None
    session, record = TlsSession(context), b"\x17\x03\x03\x20\0" + bytes(8192)
    session.receive(20 * record)
    session.begin_step()

    assert session.received_bytes == 18 * len(record)


async def test_bytes_after_a_hello_take_memory_of_the_peer(ca: Authority) -> None:
    """A peer that sends more while its hello waits for a thread is refused once its share of the memory is used up."""
    budget = MemoryBudget(MEBIBYTE)
    tls_side = ServerTls("enforcing", tls(ca).context, HandshakeThreads(1))
    async with serving(tls=tls_side, budget=budget) as served:
        with busy(tls_side.threads):
            peer = await served.connect()
            peer.send(Side(trusting(ca)).hello())
            await until(lambda: "2 waiting" in repr(tls_side.threads))
            assert served.observer.refused == []
            # the share of an address is 128 KiB
            peer.send(bytes(128 * 1024))
            await until(lambda: served.observer.closed)

    assert served.observer.refused == [(1, "memory", "no memory for a TLS handshake")]
    assert budget.used_bytes == 0


async def test_closed_connection_leaves_the_handshake_queue(ca: Authority) -> None:
    """The TLS objects of a closed connection are freed before its turn, and later peers do not wait for its step."""
    tls_side = ServerTls("enforcing", tls(ca).context, HandshakeThreads(1))
    known = {id(thing) for thing in gc.get_objects() if isinstance(thing, TlsTransport)}
    async with serving(tls=tls_side) as served:
        with busy(tls_side.threads):
            peer = await served.connect()
            peer.send(Side(trusting(ca)).hello())
            await until(lambda: len(tls_side.threads) == 2)
            peer.reset()
            await until(lambda: not served.server.connections)

            assert len(tls_side.threads) == 1
            transports = [thing for thing in gc.get_objects() if isinstance(thing, TlsTransport)]
            assert [transport for transport in transports if id(transport) not in known] == []
        later, side = await served.connect(), Side(trusting(ca))
        await side.shake_hands(later)
        assert await side.is_answered(later)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_time_in_the_handshake_queue_does_not_count(ca: Authority, mode: Any) -> None:
    """A peer has 5 s for its own part of the handshake; the wait for a thread comes on top."""
    tls_side = ServerTls(mode, tls(ca).context, HandshakeThreads(1))
    async with serving(tls=tls_side) as served:
        peer, side = await served.connect(), Side(trusting(ca))
        stalled = await served.connect()
        with busy(tls_side.threads):
            peer.send(side.hello())
            stalled.send(Side(trusting(ca)).hello())
            await until(lambda: "3 waiting" in repr(tls_side.threads))
            await served.clock.advance(600)
            assert served.observer.refused == []
        last = await side.finish(peer)
        assert await stalled.reader.read(1)
        await served.clock.advance(4)
        peer.send(last)
        assert await side.is_answered(peer)
        await served.clock.advance(2)
        await until(lambda: served.observer.closed)

        assert [refusal[1:] for refusal in served.observer.refused] == [
            ("tls", "timed out waiting for the TLS handshake")
        ]


PROXY_HEADER = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n"


def use_up(share: NetworkShare, iterations: int) -> None:
    """Use up the share of an address in the next iterations, as other connections of the address would."""
    share.spend(ITERATION_COST)
    if iterations:
        share.wait(partial(use_up, share, iterations - 1))


@pytest.mark.parametrize("iterations", [0, 10])
async def test_proxy_header_does_not_extend_the_handshake(ca: Authority, iterations: int) -> None:
    """The 5 s run from connecting, even if the header waits for the share of its address in an iteration."""
    async with serving(tls=tls(ca), proxy_protocol=True) as served:
        peer = await served.connect()
        await served.clock.advance(4)
        use_up(served.connection_of(peer).read_share, iterations)
        peer.send(PROXY_HEADER)
        await until(lambda: served.connection_of(peer).peer.proxied)
        await served.clock.advance(2)

        assert served.observer.refused == [(1, "tls", "timed out waiting for the TLS handshake")]


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
@pytest.mark.parametrize("seed", range(4))
async def test_corrupted_hellos_are_refused_in_time(ca: Authority, mode: str, seed: int) -> None:
    """Connections with a corrupted hello are closed in time, other peers are served, and all memory is released."""
    dice = random.Random(seed)
    async with serving(tls=tls(ca, mode)) as served:
        for _ in range(50):
            data = bytearray(Side(trusting(ca)).hello())
            for _ in range(dice.choice([1, 1, 2, 20])):
                at = dice.randrange(1, max(2, len(data)))
                match dice.randrange(4):
                    case 0:
                        data[at : at + 1] = dice.randbytes(1)
                    case 1:
                        del data[at:]
                        data += b"\x16"
                    case 2:
                        data[at:at] = dice.randbytes(dice.choice([1, 100, 70_000]))
                    case _:
                        del data[at : at + dice.randrange(1, 50)]
            (await served.connect()).send(bytes(data))
        await settle()
        assert await echo(client_of(served, ca)) == b"hello"
        while served.server.connections:
            await served.clock.advance(6)
            await asyncio.sleep(0)
        budget = served.server.budget

        assert budget.used_bytes == 0


@pytest.mark.parametrize(
    ("mode", "seconds", "reason", "message"),
    [
        # The peer may continue in plain text, so it has the time of a first frame.
        ("permissive", 10, "slow_frame", "timed out waiting for the first frame"),
        ("enforcing", 5, "tls", "timed out waiting for the TLS handshake"),
    ],
)
async def test_bad_proxy_headers_before_tls_are_refused(
    ca: Authority, mode: str, seconds: float, reason: str, message: str
) -> None:
    """A malformed PROXY header before TLS closes the connection, and so does an incomplete one when its time is up."""
    async with serving(tls=tls(ca, mode), proxy_protocol=True) as served:
        broken, slow = await served.connect(), await served.connect()
        broken.send(b"PROXY TCP4 nonsense\r\n" + Side(trusting(ca)).hello())
        assert await broken.at_end()
        slow.send(b"PROXY TCP4 192.0.2.1")
        await settle()
        await served.clock.advance(seconds)
        assert served.observer.reasons == ["proxy_header"]
        await served.clock.advance(1)
        assert await slow.at_end()

        assert served.observer.refused[1:] == [(2, reason, message)]


async def opened(served: Serving, peer: socket.socket) -> tuple[TlsRecords, ServerConnection, TlsTransport]:
    """The records of a peer after its handshake, its connection in the server, and the receiver of their bytes."""
    records = await asyncio.to_thread(TlsRecords, peer)
    [connection] = served.server.connections.values()
    transport = connection._transport
    assert isinstance(transport, TlsTransport)
    await until(lambda: connection.peer.tls_version)
    return records, connection, transport


async def test_records_without_data_count_towards_share_and_memory(ca: Authority) -> None:
    """An iteration of the loop decrypts four KeyUpdates of a peer, and 64 KiB of them close the connection."""
    async with serving(tls=tls(ca)) as served:
        with socket.create_connection(served.addresses[0]) as peer:
            records, connection, transport = await opened(served, peer)
            share = connection.read_share
            await settle()
            transport.data_received(records.key_updates(IN_ONE_ITERATION - 1))
            assert share.left > 0
            transport.data_received(records.key_updates(1))
            assert share.left <= 0
            await settle()
            assert connection.is_open

            peer.sendall(records.key_updates(MEBIBYTE // 16 // KEY_UPDATE_BYTES))
            await until(lambda: not served.server.connections)

        [(_, reason, message)] = served.observer.refused
        assert reason == "tls"
        assert re.fullmatch(r"TLS records of 6\d{4} bytes without data", message)


async def test_records_that_wait_take_memory_of_the_peer(ca: Authority) -> None:
    """A peer whose records wait for their share of the loop is cut off once they exceed its share of the memory."""
    budget = MemoryBudget(MEBIBYTE)
    async with serving(tls=tls(ca), budget=budget) as served:
        with socket.create_connection(served.addresses[0]) as peer:
            records, connection, transport = await opened(served, peer)
            await settle()
            before = budget.used_bytes
            connection.read_share.spend(ITERATION_COST)
            # the share of an address is 128 KiB
            some, more = records.sealed(json_frame(ECHO, 7) * 700), records.sealed(json_frame(ECHO, 8) * 2000)
            transport.data_received(some)
            assert budget.used_bytes == before + len(some)
            transport.data_received(more)
            await until(lambda: not served.server.connections)

        assert served.observer.refused == [(1, "memory", "no memory for received bytes")]
        assert budget.used_bytes == 0


async def test_waiting_records_of_a_dropped_body_take_memory_of_the_peer(ca: Authority) -> None:
    """A large frame whose records exceed the peer's share is declined; then its waiting records exceed the share."""
    large = {ECHO: MEBIBYTE}
    budget = MemoryBudget(MEBIBYTE)
    async with serving(tls=tls(ca), budget=budget, large_frames=large) as served:
        with socket.create_connection(served.addresses[0]) as peer:
            records, connection, transport = await opened(served, peer)
            await settle()
            frame = json_frame(ECHO, 7, None, bytes(800 * 1024))
            # the share of an address is 128 KiB
            transport.data_received(records.sealed(frame[: 200 * 1024]))
            await until(lambda: served.server.dispatcher.answered)
            assert served.server.dispatcher.answered == {(ECHO, 2): 1}
            assert served.observer.reasons == ["memory"]
            assert connection.is_open
            connection.read_share.spend(ITERATION_COST)
            transport.data_received(records.sealed(frame[200 * 1024 : 400 * 1024]))
            await until(lambda: not served.server.connections)

        assert [message for _, _, message in served.observer.refused] == [
            f"no memory for a frame of {len(frame)} bytes",
            "no memory for received bytes",
        ]
        assert budget.used_bytes == 0


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole record", "part of a record"])
async def test_records_that_wait_for_their_share_are_unread_input(ca: Authority, is_whole: bool) -> None:
    """A frame whose last record arrived in time, and waits for the share of its address, is not late."""
    async with serving(tls=tls(ca)) as served:
        with socket.create_connection(served.addresses[0]) as peer:
            records, connection, transport = await opened(served, peer)
            frame = json_frame(ECHO, 7)
            transport.data_received(records.sealed(frame[:9]))
            await served.clock.advance(8)
            connection.read_share.spend(ITERATION_COST)
            record = records.sealed(frame[9:])
            transport.data_received(record if is_whole else record[:-1])
            served.clock.stall(5)
            connection.check_deadlines(served.clock.monotonic())
            await settle()

        assert served.server.dispatcher.answered == ({(ECHO, 0): 1} if is_whole else {})
        assert [message for _, _, message in served.observer.refused] == (
            [] if is_whole else ["timed out waiting for the first frame"]
        )
