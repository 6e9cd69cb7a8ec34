"""The server's certificate, as its files were at one moment."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from namesrv.settings.model import Settings
from namesrv_remoting.aio.tls import crl_validities, expires_at, server_context


@dataclass(slots=True, frozen=True)
class Certificate:
    """The content of the certificate files; empty without TLS."""

    # TLS contexts of the port for brokers and clients, and of the HTTP port; None for plain text.
    context: ssl.SSLContext | None
    https_context: ssl.SSLContext | None
    # Wall clock time at which the first certificate of the chain expires.
    expires_at: float | None
    # Wall clock times at which each revocation list was issued and expires.
    crl_validities: Sequence[tuple[float, float]]
    # Stamps of the files when they were read.
    stamps: object

    @classmethod
    def read(cls, settings: Settings) -> "Certificate":
        """Read the files that the settings name. Raises TlsError for a file that cannot be used."""
        files = settings.tls_files
        # The stamps are taken before the files are read: a change in between counts as a later change.
        stamps = files.stamps()
        context = None if settings.tls_mode == "off" else server_context(files, settings.tls_client_auth)
        https = server_context(files, settings.http_tls_client_auth) if settings.http_tls else None
        expires = None
        if settings.needs_certificate:
            assert files.cert_file is not None  # noqa: S101 - the context is created from a file
            expires = expires_at(files.cert_file)
        crl_file = files.crl_file if settings.wants_client_certificates else None
        validities = [] if crl_file is None else crl_validities(crl_file)
        return cls(context, https, expires, validities, stamps)
