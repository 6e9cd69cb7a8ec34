"""The TLS context of the console's own pages, with the certificate that its files have now."""

import logging
import ssl
from typing import Final

from namesrv_remoting.aio.tls import TlsError, TlsFiles, server_context
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)


def https_context(files: TlsFiles) -> ssl.SSLContext:
    """A TLS context that uses renewed files from the next connection on. Raises TlsError."""
    certificate = _Certificate(files)
    context = server_context(files, "none")
    # OpenSSL calls it at the start of every handshake, also of one without a server name.
    context.sni_callback = lambda connection, *_: certificate.use_for(connection)
    return context


class _Certificate:
    """Certificate and key of the files; those before them while a renewal is incomplete or invalid."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamps = files.stamps()
        # The context of renewed files; None as long as the files are those of the start.
        self._renewed: ssl.SSLContext | None = None

    def use_for(self, connection: ssl.SSLSocket | ssl.SSLObject) -> None:
        if (stamps := self._files.stamps()) != self._stamps:
            self._stamps = stamps
            try:
                self._renewed = server_context(self._files, "none")
            except TlsError as error:
                event(logger, logging.ERROR, "certificate_refused", error=str(error))
        if self._renewed is not None:
            connection.context = self._renewed
