"""TLS on a server's port: who is let in, who is refused and told why, and what handshakes may take."""

from typing import Any

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.aio.tls import ClientTls, TlsFiles, server_context
from namesrv_remoting.aio.tls_server import ServerTls
from namesrv_remoting.errors import ConnectError, SystemError_
from tests.support.certificates import Authority, Identity
from tests.support.fake_clock import FakeClock
from tests.support.raw_peer import until
from tests.support.serving import ECHO, Serving, serving

PLAIN_REFUSED = "plain text received, but this server requires TLS (Java peers: tls.enable=true)"
TLS_IS_OFF = "this server does not speak TLS (tls-mode is off)"


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority for all tests here; it has certified `server`."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    authority.issue("server")
    return authority


def tls(ca: Authority, mode: Any = "enforcing", client_auth: Any = "none") -> ServerTls:
    """A server's side, with its certificate."""
    issued = ca.issue("server")
    return ServerTls(mode, server_context(TlsFiles(issued.cert_file, issued.key_file, None, ca.ca_file), client_auth))


def client_of(served: Serving, ca: Authority | None, shown: Identity | None = None, **options: Any) -> RemotingClient:
    """A client over TLS, or without an authority over plain text."""
    side = None
    if ca is not None:
        certificate, key = (None, None) if shown is None else (shown.cert_file, shown.key_file)
        side = ClientTls(TlsFiles(certificate, key, None, ca.ca_file), **{"verify_host": True, **options})
    host, port = served.addresses[0]
    return RemotingClient(f"{host}:{port}", clock=FakeClock(), tls=side, protocols=ServerProtocols())


async def said(client: RemotingClient, body: bytes = b"hello") -> bytes:
    """What a server answers to ECHO."""
    async with client:
        return (await client.invoke(ECHO, body=body, timeout_seconds=10.0)).body


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 3_000_000])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_requests_and_answers_of_any_size_pass(ca: Authority, mode: str, size: int) -> None:
    """Whatever the size, records or not, both ways."""
    body = bytes(range(251)) * (size // 251) + bytes(size % 251)
    async with serving(tls=tls(ca, mode), large_frames={ECHO: 16 * 1024 * 1024}) as served:
        assert body == await said(client_of(served, ca), body)


async def test_permissive_takes_both_on_one_port(ca: Authority) -> None:
    """The first byte says what a connection is."""
    async with serving(tls=tls(ca, "permissive")) as served:
        assert b"hello" == await said(client_of(served, ca))
        assert b"hello" == await said(client_of(served, None))
        assert 1 == served.server.tls.handshakes["TLSv1.3"]


async def test_plain_text_to_an_enforcing_server_is_told_so(ca: Authority) -> None:
    """The peer gets an answer to its request, the log the same; nothing was carried out."""
    async with serving(tls=tls(ca)) as served:
        with pytest.raises(SystemError_, match="requires TLS"):
            await said(client_of(served, None))
        await until(lambda: served.heard.closed)

        assert [("tls", PLAIN_REFUSED)] == [(reason, message) for _, reason, message in served.heard.refused]
        assert {} == served.server.dispatcher.answered


async def test_tls_to_a_server_without_is_told_so(ca: Authority) -> None:
    """The client's error says that the server answered in plain text, the server's log that TLS came."""
    async with serving() as served:
        with pytest.raises(ConnectError, match="the server does not speak TLS: it answered in plain text"):
            await said(client_of(served, ca))
        await until(lambda: served.heard.closed)

        assert ["tls"] == served.heard.reasons
