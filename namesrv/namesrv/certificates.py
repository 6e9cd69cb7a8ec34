"""The certificate in use: loaded at the start, and again when its files change."""

import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from namesrv.net.tls.detector import ServerTls
from namesrv.net.tls.transport import HandshakeThreads
from namesrv.settings.certificate import Certificate
from namesrv.settings.model import Settings
from namesrv_remoting.aio.tls import TlsError
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event
from namesrv_runtime.threads import NoThreadError, in_thread

logger: Final = logging.getLogger(__name__)

# Seconds between two checks of the files; a change counts once the files have been stable for that time.
_LOOK_SECONDS: Final = 2.0
_DAY_SECONDS: Final = 86_400.0
# A certificate with less time left causes a warning.
SOON_DAYS: Final = 14.0
# A revocation list is due for renewal a day before its expiry, or when this share of its lifetime is left, whichever is
# later: CAs replace a list that lasts a day about two hours before its expiry, or earlier.
_CRL_RENEWAL_SECONDS: Final = _DAY_SECONDS
_CRL_RENEWAL_SHARE: Final = 1 / 12


class CrlSeconds(NamedTuple):
    """Seconds until a revocation list expires, and until it is due for renewal; negative afterwards."""

    until_expiry: float
    until_renewal: float


class Certificates:
    """The certificate in use, and the TLS state of the server."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Load the files. Raises TlsError for a file that cannot be used."""
        self._clock = clock
        # TLS for new connections. The HTTP port has threads of its own, so that its handshakes do not wait for those of
        # many brokers and clients.
        self.tls = ServerTls(threads=HandshakeThreads(now=clock.monotonic))
        self.https = ServerTls("enforcing")
        self._settings = settings
        self.current = Certificate(None, None, None, (), ())
        # The reason for not using the current files; None if they are used.
        self.problem: str | None = None
        # Stamps of the files at the last check, and at the last load.
        self._seen: object = None
        self._tried: object = None
        self.use(settings, Certificate.read(settings))

    def use(self, settings: Settings, certificate: Certificate) -> None:
        """Use a certificate for new connections; open connections keep theirs."""
        self._settings, self.current, self.problem = settings, certificate, None
        self._seen = self._tried = certificate.stamps
        self.tls.mode, self.tls.context = settings.tls_mode, certificate.context
        self.https.context = certificate.https_context
        days = self.days_left()
        if days is not None and days < SOON_DAYS:
            level, name = (
                (logging.ERROR, "tls_certificate_expired") if days < 0 else (logging.WARNING, "tls_certificate_expires")
            )
            event(logger, level, name, days=round(days, 1), file=settings.tls_cert_file)

    def check(self, settings: Settings, certificate: Certificate) -> None:
        """Refuse an expired certificate that would replace a valid one. Raises TlsError."""
        now, current, new = self._clock.wall(), self.current.expires_at, certificate.expires_at
        if current is not None and new is not None and new <= now < current:
            when = f"{datetime.fromtimestamp(new, UTC):%Y-%m-%d %H:%M:%S} UTC"
            file = settings.tls_cert_file
            raise TlsError(f"{file}: certificate expired at {when}: the certificate before stays in use")

    def days_left(self) -> float | None:
        """Return the days until the certificate expires, negative afterwards; None without a certificate."""
        expires = self.current.expires_at
        return None if expires is None else (expires - self._clock.wall()) / _DAY_SECONDS

    def crl_seconds(self) -> list[CrlSeconds]:
        """Return the seconds of each revocation list."""
        now = self._clock.wall()
        return [
            CrlSeconds(end - now, end - min(_CRL_RENEWAL_SECONDS, (end - start) * _CRL_RENEWAL_SHARE) - now)
            for start, end in self.current.crl_validities
        ]

    def most_urgent_crl(self) -> CrlSeconds | None:
        """Return the seconds of the list that expires first, among late lists if there are any; None without lists."""
        return min(self.crl_seconds(), key=lambda crl: (crl.until_renewal >= 0, crl.until_expiry), default=None)

    async def run(self) -> None:
        """Check the files until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            if self._settings.needs_certificate:
                # If no thread can start, the next check reads the files.
                with suppress(NoThreadError):
                    await self.look()

    async def look(self) -> None:
        """Load the files if they have changed and are stable since. Raises NoThreadError."""
        settings, current = self._settings, self.current
        before, self._seen = self._seen, await in_thread(settings.tls_files.stamps)
        if self._seen != before or self._seen == self._tried:
            return
        self._tried = self._seen
        try:
            certificate = await in_thread(Certificate.read, settings)
            self.check(settings, certificate)
        except NoThreadError:
            self._tried = None
            raise
        except TlsError as error:
            # The result is dropped if other files were loaded meanwhile.
            if current is self.current:
                self.problem = str(error)
                event(logger, logging.ERROR, "tls_certificate_refused", error=self.problem)
            return
        if current is self.current:
            self.use(settings, certificate)
            event(logger, logging.INFO, "tls_certificate_changed", days=round(self.days_left() or 0.0, 1))
