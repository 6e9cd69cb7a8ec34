"""The server's certificate, as its files are at one moment."""

import ssl
from dataclasses import dataclass

from namesrv.settings.model import Settings
from namesrv_remoting.aio.tls import crls_expire_at, expires_at, server_context


@dataclass(slots=True, frozen=True)
class Certificate:
    """What was read from the files; nothing, where there is no TLS."""

    # of the port for brokers and clients, and of the one for HTTP; None: plain text
    context: ssl.SSLContext | None
    https_context: ssl.SSLContext | None
    # wall clock: when the first certificate of the chain expires
    expires_at: float | None
    # wall clock: when the first revocation list expires
    crls_expire_at: float | None
    # what the files looked like
    stamps: object

    @classmethod
    def read(cls, settings: Settings) -> "Certificate":
        """Read the files that the settings name. Raises TlsError for one that cannot be used."""
        files = settings.tls_files
        # before they are read: a change in between is a change
        stamps = files.stamps()
        context = None if settings.tls_mode == "off" else server_context(files, settings.tls_client_auth)
        https = server_context(files, settings.http_tls_client_auth) if settings.http_tls else None
        expires = None
        if settings.needs_certificate:
            assert files.cert_file is not None  # noqa: S101 - or there would be no context
            expires = expires_at(files.cert_file)
        crls = files.crl_file if settings.wants_client_certificates else None
        crls_expire = None if crls is None else crls_expire_at(crls)
        return cls(context, https, expires, crls_expire, stamps)
