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
from namesrv_remoting.x509 import next_update, not_after
from namesrv_runtime.settings import CheckedSettings, PathArgument

ClientAuth = Literal["none", "optional", "require"]

_FILES: Final = ("tls_ca_file", "tls_crl_file", "tls_cert_file", "tls_key_file")
_VERIFY_MODES: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}
# what OpenSSL calls it -> what it means to a client
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
# of a file: time, size, inode
_Stamp = tuple[int, int, int] | None


class TlsError(Exception):
    """The files cannot be used; the message says which, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a peer's certificate and key are, and whose certificates it believes; all of them PEM."""

    # the certificate, followed by any intermediate ones
    cert_file: Path | None = None
    # its key; None: in the same file
    key_file: Path | None = None
    key_password: SecretStr | None = None
    # the CAs of the other side; None: those that the system trusts
    ca_file: Path | None = None
    # the revocation lists of those CAs, one of each; None: no certificate is revoked
    crl_file: Path | None = None

    def stamps(self) -> tuple[_Stamp, ...]:
        """What changes when a file does."""
        return tuple(map(_stamp, (self.cert_file, self.key_file, self.ca_file, self.crl_file)))


def _stamp(path: Path | None) -> _Stamp:
    try:
        stat = None if path is None else os.stat(path)  # noqa: PTH116 - called every second
    except OSError:
        return None
    return stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino)


def server_context(files: TlsFiles, client_auth: ClientAuth) -> ssl.SSLContext:
    """The context of a server; clients present a certificate issued by `ca_file` or not. Raises TlsError."""
    if files.cert_file is None:
        raise TlsError("no certificate: set tls-cert-file")
    if client_auth != "none" and files.ca_file is None:
        # whoever has a certificate from anybody would be let in
        raise TlsError("client certificates need a CA file: set tls-ca-file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # TLS 1.3's would be unread data in the socket of a client that says goodbye and never reads: its close would be a
    # reset, which can overtake the goodbye. TLS 1.2's would let it in with a certificate that has expired since.
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
    """The context of a client, which verifies that a CA issued the server's certificate. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify_host
    _load(context, files)
    if files.ca_file is None:
        context.load_default_certs()
    _load_crls(context, files)
    return context


def expires_at(cert_file: Path) -> float:
    """When the first of the certificates in a file expires, as wall clock time. Raises TlsError if there is none."""
    text = _text(cert_file)
    try:
        # there may be a key, or comments, in front of each
        pems = [pem[pem.rindex("-----BEGIN") :] + _PEM_END for pem in text.split(_PEM_END)[:-1]]
        return min(not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in pems)
    except ValueError as error:
        raise TlsError(f"{cert_file}: no certificate") from error


def crls_expire_at(crl_file: Path) -> float:
    """When the first of the revocation lists in a file expires (wall clock). Raises TlsError if there is none."""
    lists = [each.partition(_CRL_END) for each in _text(crl_file).split(_CRL_BEGIN)[1:]]
    if not lists:
        raise TlsError(f"{crl_file}: no revocation list")
    try:
        return min(next_update(base64.b64decode(text)) for text, end, _ in lists if end)
    except ValueError as error:
        raise TlsError(f"{crl_file}: no usable revocation list") from error


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca_file is not None:
        try:
            # read here: the library does not say which file it is about
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
            # never None: OpenSSL would ask on the terminal
            context.load_cert_chain(files.cert_file, key_file, password=lambda: password)
        except (OSError, ValueError) as error:
            raise TlsError(
                _why_not_loaded(files.cert_file, key_file, has_password=bool(password), error=error)
            ) from None
    elif files.key_file is not None:
        raise TlsError(f"{files.key_file}: a key without a certificate")


def _load_crls(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Have certificates refused that a revocation list names, or whose CA has no list there."""
    path = files.crl_file
    if path is None:
        return
    expires = crls_expire_at(path)
    if expires <= time.time():
        when = datetime.fromtimestamp(expires, UTC)
        raise TlsError(f"{path}: revocation list expired at {when:%Y-%m-%d %H:%M:%S} UTC: get a new one from the CA")
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:
        raise TlsError(f"{path}: no usable revocation list ({_words(error)})") from error
    # of every certificate up to the root, as nginx does: an intermediate one can be revoked, too
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
    """Whom a verified certificate is of: the common name of its subject, then its alternative names."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(dict.fromkeys([*subject, *(str(value) for _, value in certificate.get("subjectAltName", ()))]))


class ClientTls:
    """The context of a process's clients, made anew once a file of it has changed."""

    def __init__(self, files: TlsFiles, *, verify_host: bool) -> None:
        self._files = files
        self._verify_host = verify_host
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[_Stamp, ...] = ()

    def context(self) -> ssl.SSLContext:
        """The context for the next connection; reads files, so not on a loop. Raises TlsError."""
        stamps = self._files.stamps()
        if self._context is None or stamps != self._stamps:
            self._context = client_context(self._files, verify_host=self._verify_host)
            self._stamps = stamps
        return self._context


class TlsClientSettings(CheckedSettings):
    """How clients connect to NameServers; what is not given comes from the environment: NAMESRV_TLS_CA_FILE, …."""

    # connect over TLS
    tls: bool = False
    # the CAs of the servers' certificates, PEM; None: those that the system trusts
    tls_ca_file: PathArgument | None = None
    # the revocation lists of those CAs, PEM; None: no certificate is revoked
    tls_crl_file: PathArgument | None = None
    # a certificate and its key, PEM, for servers that want to know who we are
    tls_cert_file: PathArgument | None = None
    tls_key_file: PathArgument | None = None
    tls_key_password: SecretStr | None = None
    # whether the certificate has to name the host or address that was connected to
    tls_verify_host: bool = True

    @model_validator(mode="before")
    @classmethod
    def _with_tls_environment(cls, given: dict[str, Any]) -> dict[str, Any]:
        if given.get("tls") is False:
            # then those in the environment are not for this one
            return given
        names = {name: f"NAMESRV_{name.upper()}" for name in TlsClientSettings.model_fields}
        found = {name: os.environ[variable] for name, variable in names.items() if os.environ.get(variable)}
        return {**found, **given}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        files = {name: getattr(self, name) for name in _FILES}
        if not self.tls and (useless := [name for name, path in files.items() if path is not None]):
            # whoever gives it believes to be protected
            raise ValueError(f"{useless[0]} is set, but tls is not")
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_key_file is set, but tls_cert_file is not")
        return self

    @cached_property
    def client_tls(self) -> ClientTls | None:
        """What connections are made with; None: plain text."""
        if not self.tls:
            return None
        given = (self.tls_cert_file, self.tls_key_file, self.tls_ca_file, self.tls_crl_file)
        cert, key, ca, crl = (None if file is None else Path(file) for file in given)
        files = TlsFiles(cert, key, self.tls_key_password, ca, crl)
        return ClientTls(files, verify_host=self.tls_verify_host)


def why_not_connected(error: Exception) -> str:
    """Why a TLS connection to a server was not made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | ConnectionAbortedError):
        return "the server closed the connection during the TLS handshake (it may not speak TLS)"
    return why_lost(error)


def why_lost(error: Exception) -> str:
    """Why a connection to a server broke."""
    if isinstance(error, ssl.SSLError):
        return _CLIENT_FAILURES.get(error.reason or "") or f"TLS: {_words(error)}"
    if isinstance(error, OSError) and error.errno:
        # asyncio's own loop says "Connect call failed", and where to; the resolver's numbers are negative
        return (os.strerror(error.errno) if error.errno > 0 else str(error.strerror)).lower()
    return str(error)


def _words(error: Exception) -> str:
    """An SSLError's reason in words, without the library's file and line."""
    reason = getattr(error, "reason", None)
    return str(error) if not reason else str(reason).replace("_", " ").lower()
