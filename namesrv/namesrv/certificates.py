"""The certificate in use: read at the start, and again when its files change."""

import asyncio
import logging
from typing import Final

from namesrv.net.tls import ServerTls
from namesrv.settings.certificate import Certificate
from namesrv.settings.model import Settings
from namesrv_remoting.aio.tls import TlsError
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# how often the files are looked at; a change counts once they have stayed the same for so long
_LOOK_SECONDS: Final = 2.0
_DAY_SECONDS: Final = 86_400.0
# from here on its age is worth a warning
_SOON_DAYS: Final = 14.0


class Certificates:
    """The certificate in use, and how the server deals with TLS."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Read the files. Raises TlsError for one that cannot be used."""
        self._clock = clock
        # how new connections are met; those to the HTTP port do not wait behind a crowd at the other one
        self.tls = ServerTls()
        self.https = ServerTls("enforcing")
        self._settings = settings
        self.current = Certificate(None, None, None, None, ())
        # why the files as they are now are not used; None: they are
        self.problem: str | None = None
        # as they were at the last look, and when they were read last
        self._seen: object = None
        self._tried: object = None
        self.use(settings, Certificate.read(settings))

    def use(self, settings: Settings, certificate: Certificate) -> None:
        """Meet new connections with this; open ones stay as they are."""
        self._settings, self.current, self.problem = settings, certificate, None
        self._seen = self._tried = certificate.stamps
        self.tls.mode, self.tls.context = settings.tls_mode, certificate.context
        self.https.context = certificate.https_context
        days = self.days_left()
        if days is not None and days < _SOON_DAYS:
            event(logger, logging.WARNING, "tls_certificate_expires", days=round(days, 1), file=settings.tls_cert_file)

    def days_left(self) -> float | None:
        """Days until the certificate expires, negative afterwards; None without one."""
        expires = self.current.expires_at
        return None if expires is None else (expires - self._clock.wall()) / _DAY_SECONDS

    def crl_seconds_left(self) -> float | None:
        """Seconds until the first revocation list expires, negative afterwards; None without one."""
        expires = self.current.crls_expire_at
        return None if expires is None else expires - self._clock.wall()

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            if self._settings.needs_certificate:
                await self.look()

    async def look(self) -> None:
        """Take the files over if they have changed, and have stopped changing."""
        settings, current = self._settings, self.current
        before, self._seen = self._seen, await asyncio.to_thread(settings.tls_files.stamps)
        if self._seen != before or self._seen == self._tried:
            return
        self._tried = self._seen
        try:
            certificate = await asyncio.to_thread(Certificate.read, settings)
        except TlsError as error:
            # not if others were loaded meanwhile
            if current is self.current:
                self.problem = str(error)
                event(logger, logging.ERROR, "tls_certificate_refused", error=self.problem)
            return
        if current is self.current:
            self.use(settings, certificate)
            event(logger, logging.INFO, "tls_certificate_changed", days=round(self.days_left() or 0.0, 1))
