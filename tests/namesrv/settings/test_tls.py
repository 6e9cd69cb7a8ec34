"""TLS settings: Apache's properties, refused combinations, and the hidden passphrase."""

from pathlib import Path

import pytest

from namesrv.settings.apache_properties import as_properties
from namesrv.settings.flags import parse
from namesrv.settings.sources import Loaded, SettingsError, config_table, load
from tests.support.certificates import Authority

PASSWORD = "correct horse"


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    """A certificate authority with a certificate for `server`, whose key has a passphrase."""
    authority = Authority(tmp_path)
    authority.issue("server", password=PASSWORD)
    return authority


def properties(tmp_path: Path, *lines: str) -> str:
    """An Apache tls.properties with the server's files and further lines."""
    file = tmp_path / "tls.properties"
    place = {"cert": "server.pem", "key": "server.key", "trustCert": "ca.pem"}
    named = [f"tls.server.{name}Path={tmp_path / path}" for name, path in place.items()]
    file.write_text("\n".join([*named, f"tls.server.keyPassword={PASSWORD}", "tls.server.authClient=true", *lines]))
    return str(file)


def loaded(*argv: str) -> Loaded:
    """The settings of a command line."""
    return load(parse(argv), {})


@pytest.mark.usefixtures("ca")
@pytest.mark.parametrize(
    ("lines", "argv", "mode", "client_auth"),
    [
        ([], [], "permissive", "none"),
        ([], ["--tls-mode", "enforcing"], "enforcing", "none"),
        (["tls.server.mode=enforcing", "tls.server.need.client.auth=require"], [], "enforcing", "require"),
        (["tls.server.mode=disabled", "tls.test.mode.enable=false"], [], "off", "none"),
        (["tls.server.need.client.auth=OPTIONAL"], ["--tls-client-auth", "none"], "permissive", "none"),
    ],
)
def test_apache_tls_properties(tmp_path: Path, lines: list[str], argv: list[str], mode: str, client_auth: str) -> None:
    """Keys have Apache's meaning and its default mode, permissive; flags take precedence."""
    settings = loaded("--tls-properties", properties(tmp_path, *lines), *argv).settings

    assert (settings.tls_mode, settings.tls_client_auth) == (mode, client_auth)
    assert (
        settings.tls_cert_file,
        settings.tls_key_password.get_secret_value(),
    ) == (str(tmp_path / "server.pem"), PASSWORD)


@pytest.mark.usefixtures("ca")
def test_passphrase_is_never_shown(tmp_path: Path) -> None:
    """The passphrase is neither in the output of --print-config nor in the response with the settings."""
    found = loaded("--tls-properties", properties(tmp_path))
    table = config_table(found)

    assert PASSWORD not in f"{table}{as_properties(dict(found.settings))}{found.settings!r}"
    assert [line.startswith("# ") for line in table.splitlines() if "tls_key_password" in line] == [True]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--tls-mode=enforcing"], "TLS: no certificate: set tls-cert-file"),
        (["--http-tls"], "TLS: no certificate: set tls-cert-file"),
        (["--tls-mode=enforcing", "--tls-cert-file=/absent"], "TLS: /absent: no such file or directory"),
        (["--tls-key-password=x"], "unknown flag --tls-key-password"),
    ],
)
def test_incomplete_tls_settings_are_refused(argv: list[str], problem: str) -> None:
    """Missing files are refused at the start; a passphrase flag, which every user could read, does not exist."""
    with pytest.raises(SettingsError) as error:
        loaded(*argv)

    assert any(found.startswith(problem) for found in error.value.problems), error.value.problems


@pytest.mark.parametrize(
    "flags", [["--tls-mode=enforcing", "--tls-client-auth"], ["--http-tls", "--http-tls-client-auth"]]
)
def test_client_certificates_need_a_ca(ca: Authority, flags: list[str]) -> None:
    """Client certificates without a CA file are refused, because any certificate would be accepted."""
    issued = ca.issue("server")
    with pytest.raises(SettingsError, match=r"TLS: client certificates need a CA file: set tls-ca-file"):
        loaded(*flags, "require", f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}")


def test_doubtful_tls_settings_have_a_warning(ca: Authority) -> None:
    """TLS settings without effect, and a key that other users can read, have a warning."""
    issued = ca.issue("server")
    files = [f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}", f"--tls-ca-file={ca.ca_file}"]
    readable = f"{issued.key_file} holds secrets and is readable by every user: run chmod o-rwx {issued.key_file}"

    assert loaded(*files, "--tls-client-auth=require", "--http-tls-client-auth=require").warnings == (
        "tls-cert-file has no effect: tls-mode is off",
        "tls-client-auth require has no effect: tls-mode is off",
        "http-tls-client-auth require has no effect: http-tls is off",
    )
    crl = f"--tls-crl-file={ca.revocation_list()}"
    assert loaded(*files, "--tls-mode=enforcing", crl).warnings == (
        "tls-crl-file has no effect: no client certificates are asked for, see tls-client-auth",
    )
    issued.key_file.chmod(0o604)
    assert loaded(*files, "--tls-mode=enforcing").warnings == (readable,)
    issued.key_file.chmod(0o640)
    [warning] = loaded(*files, "--tls-mode=permissive", "--tls-client-auth=require").warnings
    assert warning.startswith("tls-client-auth require means nothing to peers without TLS")
