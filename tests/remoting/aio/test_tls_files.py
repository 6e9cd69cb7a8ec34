"""Certificates, keys and CAs in files, and errors for unusable ones."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from namesrv_remoting.aio.tls import (
    ClientTls,
    TlsClientSettings,
    TlsError,
    TlsFiles,
    client_context,
    crl_validities,
    expires_at,
    server_context,
)
from tests.support.certificates import Authority

PASSWORD = "correct horse"


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    """A certificate authority."""
    return Authority(tmp_path)


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TlsClientSettings.model_fields:
        monkeypatch.delenv(f"NAMESRV_{name.upper()}", raising=False)


@pytest.mark.parametrize(
    "when",
    [
        datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC),
        datetime(2033, 1, 1, tzinfo=UTC),
        # the last second with two digits of the year, and the first with four
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2050, 1, 1, tzinfo=UTC),
    ],
)
def test_expiry_is_the_earliest_of_the_chain(ca: Authority, when: datetime) -> None:
    """The expiry is exact to the second."""
    longest = ca.issue("longest", expires=datetime(2060, 1, 1, tzinfo=UTC)).cert_file
    issued = ca.issue("server", expires=when).cert_file
    both = issued.with_name("both.pem")
    key = issued.with_suffix(".key").read_bytes()
    both.write_bytes(key + longest.read_bytes() + b"a line between them\n" + issued.read_bytes())

    assert [when.timestamp()] * 2 == [expires_at(issued), expires_at(both)]


@pytest.mark.parametrize(
    "text", ["", "-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_file_without_a_certificate_has_no_expiry(tmp_path: Path, text: str) -> None:
    """An empty file and one with other content have no expiry."""
    (tmp_path / "f").write_text(text)
    with pytest.raises(TlsError, match="f: no certificate"):
        expires_at(tmp_path / "f")


@pytest.mark.parametrize("is_key_first", [False, True])
def test_key_in_the_same_file(ca: Authority, *, is_key_first: bool) -> None:
    """The key may come before or after the certificate."""
    issued = ca.issue("server")
    parts = [issued.cert_file.read_bytes(), issued.key_file.read_bytes()]
    issued.cert_file.write_bytes(b"".join(reversed(parts) if is_key_first else parts))

    assert server_context(TlsFiles(issued.cert_file), "none").verify_mode == ssl.CERT_NONE
    assert expires_at(issued.cert_file) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cert_file": Path("absent")}, "absent: no such file or directory"),
        ({"key_file": Path("absent")}, "absent: no such file or directory"),
        ({"ca_file": Path("absent")}, "absent: no such file or directory"),
        ({"ca_file": Path("empty")}, "empty: no certificates"),
        ({"cert_file": Path("empty")}, "empty: no certificate"),
        ({"key_file": Path("empty")}, "empty: no private key"),
        ({"key_file": None}, "server.pem: no private key"),
        ({"key_file": Path("other.key")}, "other.key: not the key of the certificate in server.pem"),
        ({"key_file": Path("locked.key")}, "locked.key: encrypted, but tls_key_password is not set"),
        ({"key_file": Path("locked.key"), "key_password": SecretStr("wrong")}, "locked.key: wrong passphrase"),
        ({"cert_file": None}, "no certificate: set tls-cert-file"),
        ({"ca_file": None}, "client certificates need a CA file: set tls-ca-file"),
    ],
)
def test_unusable_file_is_reported(
    ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    """The message names the file and the reason, and never a passphrase."""
    monkeypatch.chdir(tmp_path)
    for name, password in (("server", ""), ("other", ""), ("locked", PASSWORD)):
        ca.issue(name, password=password)
    (tmp_path / "empty").touch()
    files = {"cert_file": Path("server.pem"), "key_file": Path("server.key"), "ca_file": Path("ca.pem")}

    with pytest.raises(TlsError) as error:
        server_context(TlsFiles(**{**files, **change}), "optional")

    assert str(error.value).startswith(message)
    assert "wrong" not in str(error.value).replace("wrong passphrase", "")


@pytest.mark.parametrize("is_server", [True, False])
def test_revocation_list_is_checked(ca: Authority, *, is_server: bool) -> None:
    """Either side checks every certificate of the chain; a server without client certificates needs no list."""
    issued = ca.issue("server")
    files = TlsFiles(issued.cert_file, issued.key_file, None, ca.ca_file, ca.revocation_list(issued))

    context = server_context(files, "require") if is_server else client_context(files, verify_host=True)

    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_CHAIN == ssl.VERIFY_CRL_CHECK_CHAIN
    assert context.cert_store_stats()["crl"] == 1
    assert server_context(files, "none").cert_store_stats()["crl"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "ca.crl: no such file or directory"),
        ("", "ca.crl: no revocation list"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "ca.crl: no usable revocation list"),
        ("-----BEGIN X509 CRL-----\nA", "ca.crl: no usable revocation list"),
        ("expired", "ca.crl: revocation list expired at 2021-03-04 05:06:07 UTC: get a new one from the CA"),
    ],
)
def test_unusable_revocation_list_is_reported(
    ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, message: str
) -> None:
    """The message names the file and the reason, on either side."""
    monkeypatch.chdir(tmp_path)
    issued = ca.issue("server")
    if content == "expired":
        ca.revocation_list(expires="20210304050607Z")
    elif content is not None:
        Path("ca.crl").write_text(content)
    files = TlsFiles(issued.cert_file, issued.key_file, None, ca.ca_file, Path("ca.crl"))

    loads: list[Callable[[], ssl.SSLContext]] = [
        lambda: server_context(files, "require"),
        lambda: client_context(files, verify_host=True),
    ]
    for load in loads:
        with pytest.raises(TlsError) as error:
            load()
        assert str(error.value).startswith(message)


def test_validity_of_revocation_lists(ca: Authority, tmp_path: Path) -> None:
    """A file may have several lists, each with the times at which it was issued and expires."""
    lists = tmp_path / "lists.pem"
    lists.write_text("".join(ca.revocation_list(expires=f"{year}0101000000Z").read_text() for year in (2100, 2040)))

    first, second = [datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2100, 2040)]
    issued = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    assert crl_validities(lists) == [(issued, first), (issued, second)]


def test_client_reloads_changed_files(ca: Authority, tmp_path: Path) -> None:
    """Later connections use the current files, which are read only when they change."""
    issued = ca.issue("client")
    tls = ClientTls(TlsFiles(issued.cert_file, issued.key_file, None, ca.ca_file), verify_host=True)
    first = tls.context()
    assert first is tls.context()
    ca.issue("client")
    second = tls.context()
    assert first is not second
    issued.key_file.unlink()
    with pytest.raises(TlsError, match=r"client.key: no such file"):
        tls.context()


def test_client_settings_from_the_environment(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given values take precedence over NAMESRV_ variables; a secret is not shown."""
    for name, value in {
        "TLS": "true",
        "TLS_CA_FILE": "a.pem",
        "TLS_VERIFY_HOST": "no",
        "TLS_KEY_PASSWORD": PASSWORD,
    }.items():
        monkeypatch.setenv(f"NAMESRV_{name}", value)
    settings = TlsClientSettings(tls_ca_file=ca.ca_file)

    assert (settings.tls, settings.tls_ca_file, settings.tls_verify_host) == (True, ca.ca_file, False)
    assert PASSWORD not in f"{settings!r}{settings}"
    assert settings.client_tls is settings.client_tls
    assert TlsClientSettings(tls=False, tls_verify_host=True).client_tls is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tls_ca_file": "a.pem"}, "tls_ca_file is set, but tls is not"),
        ({"tls": True, "tls_key_file": "a.key"}, "tls_key_file is set, but tls_cert_file is not"),
        ({"tls": "perhaps"}, "tls: 'perhaps': "),
    ],
)
def test_inconsistent_client_settings(given: dict[str, Any], message: str) -> None:
    """Files without TLS are an error, because their author expects protection."""
    with pytest.raises(ValueError, match=message):
        TlsClientSettings(**given)
