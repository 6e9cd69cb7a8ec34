"""docs/security.md agrees with the server: access files are valid, and commands work."""

import re
import socket
import ssl
import tomllib
from pathlib import Path

import pytest

from namesrv.settings.model import Settings
from namesrv_remoting.access import parse_access_file
from tests.docs.request_classes import SECURITY
from tests.support import ctl
from tests.support.daemon import Daemon
from tests.support.tutorial import Reader

PAGE = SECURITY.read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

FILES = {"tls-ca-file": "ca.pem", "tls-cert-file": "server.pem", "tls-key-file": "server.key"}


@pytest.mark.parametrize("text", BLOCKS)
def test_access_and_settings_files_are_valid(text: str) -> None:
    """Each access file is valid, and each settings file has valid settings."""
    if "[accounts." in text:
        assert parse_access_file(text).accounts
    else:
        Settings.model_validate(tomllib.loads(text))


@pytest.mark.slow
def test_certificates_are_made_used_and_replaced(tmp_path: Path) -> None:
    """With certificates from the page's openssl commands a server accepts clients, and loads a renewed certificate."""
    reader = Reader(tmp_path, "docs/security.md", {"ns1.example.com": "localhost", "10.0.0.1": "127.0.0.1"})
    for step in ("certificates-ca", "certificates-server", "certificates-client"):
        reader.does(step)
    access = tmp_path / "access.toml"
    access.write_text('[accounts.brokers]\ncertificates = ["broker-1.example.com"]\nmay = ["broker-control"]\n')
    files = {name: f"--{name}={tmp_path / file}" for name, file in FILES.items()}
    flags = ("--tls-mode=enforcing", "--tls-client-auth=require", f"--access={access}")
    client = ("--tls", f"--tls-ca-file={tmp_path / 'ca.pem'}")
    broker = (*client, f"--tls-cert-file={tmp_path / 'broker-1.pem'}", f"--tls-key-file={tmp_path / 'broker-1.key'}")
    with Daemon(tmp_path / "data", *files.values(), *flags) as daemon:
        known = ctl.run(*broker, "-s", daemon.where, "whoami", "-o", "json")
        (server,) = known.json["servers"]
        assert (server["identity"]["account"], server["identity"]["by"]) == ("brokers", "certificate")
        refused = ctl.run(*client, "-s", daemon.where, "whoami")
        assert "the server requires a client certificate" in refused.err
        before = _shown(daemon.address, tmp_path)

        reader.does("certificates-rotation")

        daemon.wait_for("tls_certificate_changed")
        assert _shown(daemon.address, tmp_path) != before


@pytest.mark.slow
def test_certificates_are_revoked(tmp_path: Path) -> None:
    """With the page's commands a running server refuses the revoked client, and clients refuse a revoked server."""
    reader = Reader(tmp_path, "docs/security.md", {"ns1.example.com": "localhost", "10.0.0.1": "127.0.0.1"})
    for step in ("certificates-ca", "certificates-server", "certificates-client", "certificates-crl"):
        reader.does(step)
    crl = f"--tls-crl-file={tmp_path / 'crl.pem'}"
    files = [*(f"--{name}={tmp_path / file}" for name, file in FILES.items()), crl]
    client = ("--tls", f"--tls-ca-file={tmp_path / 'ca.pem'}", crl)
    broker = (*client, f"--tls-cert-file={tmp_path / 'broker-1.pem'}", f"--tls-key-file={tmp_path / 'broker-1.key'}")
    with Daemon(tmp_path / "data", *files, "--tls-mode=enforcing", "--tls-client-auth=require") as daemon:
        assert ctl.run(*broker, "-s", daemon.where, "whoami").code == 0

        reader.does("certificates-revoke")

        daemon.wait_for("tls_certificate_changed")
        assert ctl.run(*broker, "-s", daemon.where, "whoami").code != 0
        refused = daemon.wait_for("connection_refused")
        assert "certificate revoked (names in it, not verified: broker-1.example.com)" in refused["error"]
        Reader(tmp_path, "docs/security.md", {"broker-1.pem": "server.pem"}).does("certificates-revoke")
        assert (
            "the server's certificate is refused: certificate revoked"
            in ctl.run(*client, "-s", daemon.where, "whoami").err
        )


def _shown(address: tuple[str, int], directory: Path) -> bytes | None:
    """The server certificate of a new connection, verified by name."""
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    # The default flag from Python 3.13 on.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(directory / "broker-1.pem", directory / "broker-1.key")
    with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        return secure.getpeercert(binary_form=True)
