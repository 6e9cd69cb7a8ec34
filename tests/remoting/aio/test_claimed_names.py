"""Names in a refused client certificate, in both versions of TLS."""

import ssl
from pathlib import Path

import pytest

from namesrv_remoting.aio.claimed_names import WatchedHandshake, claimed_names, handshake_is_over
from namesrv_remoting.aio.tls import TlsFiles, client_context, server_context
from tests.support.certificates import Authority, Identity


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    """The server's certificate authority."""
    return Authority(tmp_path)


class Pair:
    """The TLS connections of a server and a client in memory."""

    def __init__(self, ca: Authority, shown: Identity, version: ssl.TLSVersion) -> None:
        issued = ca.issue("server")
        context = server_context(TlsFiles(issued.cert_file, issued.key_file, None, ca.ca_file), "require")
        context.maximum_version = version
        client = client_context(TlsFiles(shown.cert_file, shown.key_file, None, ca.ca_file), verify_host=False)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(to_server, to_client, server_side=True)
        self.client = client.wrap_bio(to_client, to_server)

    def shake_hands(self) -> None:
        """Run the handshake until it is complete or refused."""
        waiting = [self.client, self.server]
        # a handshake has a few messages
        for _ in range(100):
            if not waiting:
                break
            side = waiting.pop(0)
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_refused_certificate_has_its_names(ca: Authority, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """The names are those of the peer's own certificate, shortened, escaped and at most five."""
    hosts = [f"{number}.example.com" for number in range(6)]
    forged = Authority(tmp_path, "foreign").issue("forged", *hosts, common_name="op\n" + "x" * 60)
    pair = Pair(ca, forged, version)

    with pytest.raises(ssl.SSLCertVerificationError):
        pair.shake_hands()

    assert claimed_names(pair.server) == ", ".join(["op\\n" + "x" * 60, *hosts[:4]])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_message_callback_is_removed_after_the_handshake(ca: Authority, version: ssl.TLSVersion) -> None:
    """Verified names stay, and data flows without the callback."""
    pair = Pair(ca, ca.issue("client", "client.example.com"), version)
    pair.shake_hands()

    handshake_is_over(pair.server)

    assert isinstance(pair.server, WatchedHandshake)
    assert pair.server.leaf == b""
    assert pair.server.context._msg_callback is None  # type: ignore[attr-defined]
    assert pair.server.getpeercert()
    pair.client.write(b"x")
    assert pair.server.read(1) == b"x"
    pair.server.write(b"y")
    assert pair.client.read(1) == b"y"
