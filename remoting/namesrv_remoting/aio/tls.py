"""TLS contexts from files: certificates, keys and CAs, for servers and clients; TLS 1.2 and 1.3 only."""

import base64
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import SecretStr, model_validator

from namesrv_remoting.aio.claimed_names import watch_handshakes
from namesrv_remoting.x509 import list_validity, not_after
from namesrv_runtime.durable_file import FileStamp, file_stamp
from namesrv_runtime.settings import CheckedSettings, PathArgument

ClientAuth = Literal["none", "optional", "require"]

_FILES: Final = ("tls_ca_file", "tls_crl_file", "tls_cert_file", "tls_key_file")
_VERIFY_MODES: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}
# OpenSSL's name of an error -> its meaning for a client
_CLIENT_FAILURES: Final = {
    "WRONG_VERSION_NUMBER": "the server does not speak TLS: it answered in plain text, "
    "as a port without TLS or an HTTP port does",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server requires a client certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server refuses the TLS handshake (it may require a client certificate)",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not trust the CA of our certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the server speaks neither TLS 1.2 nor TLS 1.3",
}
_PEM_END: Final = "-----END CERTIFICATE-----"
_CRL_BEGIN, _CRL_END = "-----BEGIN X509 CRL-----", "-----END X509 CRL-----"


class TlsError(Exception):
    """A TLS file cannot be used; the message names the file and the problem."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the PEM files of one side: its certificate and key, the CAs that it trusts, and revocation lists."""

    # the certificate, followed by intermediate certificates, if any
    cert_file: Path | None = None
    # the private key; None if it is in `cert_file`
    key_file: Path | None = None
    key_password: SecretStr | None = None
    # the CAs of the other side's certificates; None for the CAs that the system trusts
    ca_file: Path | None = None
    # the revocation lists of these CAs, one for each CA; None if no certificate is revoked
    crl_file: Path | None = None

    def stamps(self) -> tuple[FileStamp | None, ...]:
        """A value that changes when one of the files changes."""
        files = (self.cert_file, self.key_file, self.ca_file, self.crl_file)
        return tuple(None if file is None else file_stamp(file) for file in files)


def server_context(files: TlsFiles, client_auth: ClientAuth) -> ssl.SSLContext:
    """The TLS context of a server; by `client_auth`, clients may or must have a certificate. Raises TlsError."""
    if files.cert_file is None:
        raise TlsError("no certificate: set tls-cert-file")
    if client_auth != "none" and files.ca_file is None:
        # Without a CA file, a client with a certificate of any CA would be admitted.
        raise TlsError("client certificates need a CA file: set tls-ca-file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Session tickets are off. A TLS 1.3 ticket stays unread in the socket of a client that never reads: when the client
    # closes, its kernel sends a reset, which can overtake the client's close_notify. A TLS 1.2 ticket would admit a
    # client whose certificate has expired since.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load(context, files)
    context.verify_mode = _VERIFY_MODES[client_auth]
    if client_auth != "none":
        _load_crls(context, files)
        watch_handshakes(context)
    return context


def client_context(files: TlsFiles, *, verify_host: bool) -> ssl.SSLContext:
    """The TLS context of a client. Raises TlsError.

    The client verifies that a CA issued the server's certificate, and with `verify_host` that the certificate names the
    host or address of the connection.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify_host
    _load(context, files)
    if files.ca_file is None:
        context.load_default_certs()
    _load_crls(context, files)
    return context


def expires_at(cert_file: Path) -> float:
    """The earliest expiry of the certificates in a file, by the wall clock. Raises TlsError without a certificate."""
    text = _text(cert_file)
    try:
        # A key or comments may precede each certificate.
        pems = [pem[pem.rindex("-----BEGIN") :] + _PEM_END for pem in text.split(_PEM_END)[:-1]]
        return min(not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in pems)
    except ValueError as error:
        raise TlsError(f"{cert_file}: no certificate") from error


def crl_validities(crl_file: Path) -> list[tuple[float, float]]:
    """The times at which each revocation list in a file was issued and expires, by the wall clock.

    Raises TlsError without a list.
    """
    lists = _text(crl_file).split(_CRL_BEGIN)[1:]
    if not lists:
        raise TlsError(f"{crl_file}: no revocation list")
    try:
        return [list_validity(base64.b64decode(each[: each.index(_CRL_END)])) for each in lists]
    except ValueError as error:
        raise TlsError(f"{crl_file}: no usable revocation list") from error


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca_file is not None:
        try:
            # The file is read here, since errors of the ssl module do not name the file.
            context.load_verify_locations(cadata=_text(files.ca_file))
        except ssl.SSLError as error:
            raise TlsError(f"{files.ca_file}: no usable certificates ({_words(error)})") from error
        except ValueError as error:
            raise TlsError(f"{files.ca_file}: no certificates") from error
    if files.cert_file is not None:
        key_file = files.key_file or files.cert_file
        _text(files.cert_file)
        _text(key_file)
        password = "" if files.key_password is None else files.key_password.get_secret_value()
        try:
            # The password is never None, because OpenSSL would prompt for it on the terminal.
            context.load_cert_chain(files.cert_file, key_file, password=lambda: password)
        except (OSError, ValueError) as error:
            raise TlsError(
                _why_not_loaded(files.cert_file, key_file, has_password=bool(password), error=error)
            ) from None
    elif files.key_file is not None:
        raise TlsError(f"{files.key_file}: a key without a certificate")


def _load_crls(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Refuse certificates that a revocation list names, and certificates of a CA without a list in the file."""
    path = files.crl_file
    if path is None:
        return
    expires = min(end for _, end in crl_validities(path))
    if expires <= time.time():
        when = datetime.fromtimestamp(expires, UTC)
        raise TlsError(f"{path}: revocation list expired at {when:%Y-%m-%d %H:%M:%S} UTC: get a new one from the CA")
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:
        raise TlsError(f"{path}: no usable revocation list ({_words(error)})") from error
    # Every certificate up to the root is checked, as in nginx, because an intermediate one can be revoked, too.
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="ignore")
    except OSError as error:
        raise TlsError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _why_not_loaded(cert_file: Path, key_file: Path, *, has_password: bool, error: Exception) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return f"{key_file}: not the key of the certificate in {cert_file}"
    if _PEM_END not in _text(cert_file):
        return f"{cert_file}: no certificate"
    text = _text(key_file)
    if "PRIVATE KEY-----" not in text:
        return f"{key_file}: no private key"
    if "ENCRYPTED" in text:
        return f"{key_file}: {'wrong passphrase' if has_password else 'encrypted, but tls_key_password is not set'}"
    return f"{cert_file}, {key_file}: {_words(error)}"


def certificate_names(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in a verified certificate: the common name of its subject, then its alternative names."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(dict.fromkeys([*subject, *(str(value) for _, value in certificate.get("subjectAltName", ()))]))


class ClientTls:
    """The TLS context of all clients of a process; it is created again after one of its files has changed."""

    def __init__(self, files: TlsFiles, *, verify_host: bool) -> None:
        self._files = files
        self._verify_host = verify_host
        # The last context, and the stamps of its files. Both are one value, because several threads may load the files.
        self._loaded: tuple[tuple[FileStamp | None, ...], ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """The context for the next connection; it reads files, so call it outside the event loop. Raises TlsError."""
        loaded, stamps = self._loaded, self._files.stamps()
        if loaded is None or stamps != loaded[0]:
            self._loaded = loaded = (stamps, client_context(self._files, verify_host=self._verify_host))
        return loaded[1]


class TlsClientSettings(CheckedSettings):
    """TLS settings of clients of NameServers; missing settings come from the environment: NAMESRV_TLS_CA_FILE, …."""

    # True to connect over TLS
    tls: bool = False
    # the CAs of the servers' certificates, PEM; None for the CAs that the system trusts
    tls_ca_file: PathArgument | None = None
    # the revocation lists of these CAs, PEM; None if no certificate is revoked
    tls_crl_file: PathArgument | None = None
    # the client's certificate and key, PEM, for servers that request one
    tls_cert_file: PathArgument | None = None
    tls_key_file: PathArgument | None = None
    tls_key_password: SecretStr | None = None
    # True if the server's certificate has to name the host or address of the connection
    tls_verify_host: bool = True

    @model_validator(mode="before")
    @classmethod
    def _with_tls_environment(cls, given: dict[str, Any]) -> dict[str, Any]:
        if given.get("tls") is False:
            # With TLS explicitly off, the TLS settings in the environment do not apply.
            return given
        names = {name: f"NAMESRV_{name.upper()}" for name in TlsClientSettings.model_fields}
        from_environment = {name: os.environ[variable] for name, variable in names.items() if os.environ.get(variable)}
        return {**from_environment, **given}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        files = {name: getattr(self, name) for name in _FILES}
        if not self.tls and (useless := [name for name, path in files.items() if path is not None]):
            # A user who sets a TLS file expects an encrypted connection, so plain text is refused.
            raise ValueError(f"{useless[0]} is set, but tls is not")
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_key_file is set, but tls_cert_file is not")
        return self

    @cached_property
    def client_tls(self) -> ClientTls | None:
        """The TLS context for connections; None for plain text."""
        if not self.tls:
            return None
        given = (self.tls_cert_file, self.tls_key_file, self.tls_ca_file, self.tls_crl_file)
        cert, key, ca, crl = (None if file is None else Path(file) for file in given)
        files = TlsFiles(cert, key, self.tls_key_password, ca, crl)
        return ClientTls(files, verify_host=self.tls_verify_host)


def why_not_connected(error: Exception) -> str:
    """The reason why a TLS connection to a server failed, for an error message."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | ConnectionAbortedError):
        return "the server closed the connection during the TLS handshake (it may not speak TLS)"
    return why_lost(error)


def why_lost(error: Exception) -> str:
    """The reason why a connection to a server was lost, for an error message."""
    if isinstance(error, ssl.SSLError):
        return _CLIENT_FAILURES.get(error.reason or "") or f"TLS: {_words(error)}"
    if isinstance(error, OSError) and error.errno:
        # The system's message replaces that of asyncio ("Connect call failed" with the address). Error numbers of the
        # resolver are negative, and have no message of the system.
        return (os.strerror(error.errno) if error.errno > 0 else str(error.strerror)).lower()
    return str(error)


def is_tls_failure(error: BaseException | None) -> bool:
    """True for an error of TLS itself; a connection that ended during a handshake says nothing about TLS."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return False
    return isinstance(error, ssl.SSLError | TlsError)


def _words(error: Exception) -> str:
    """The reason of an SSLError in lower case, without file and line of the OpenSSL source."""
    reason = getattr(error, "reason", None)
    return str(error) if not reason else str(reason).replace("_", " ").lower()
