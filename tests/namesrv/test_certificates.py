"""The certificate in use: expired certificates, and files that change. The fake clock's time is 2023-11-14."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from namesrv.certificates import Certificates
from namesrv.observability.metrics import exposition
from namesrv.observability.pages import readiness
from namesrv.server.reload import Reloader
from namesrv.settings.certificate import Certificate
from namesrv.settings.model import Settings
from namesrv_runtime.threads import NoThreadError
from tests.support.certificates import Authority
from tests.support.fake_clock import FakeClock
from tests.support.in_process import namesrv_in_process
from tests.support.logged import logged, logged_by
from tests.support.threads import without_new_threads

EXPIRED, VALID, LATER = (datetime(year, 1, 1, tzinfo=UTC) for year in (2023, 2030, 2031))
LOGGER = "namesrv.certificates"


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    """The authority of the server's certificate."""
    return Authority(tmp_path)


def settings(ca: Authority, expires: datetime) -> Settings:
    """Settings with a certificate that expires then."""
    return Settings.model_validate({"tls_mode": "permissive", **ca.issue("server", expires=expires).server_settings})


async def look_twice(certificates: Certificates) -> None:
    """See a change of the files, and that they are stable since."""
    await certificates.look()
    await certificates.look()


def test_expired_certificate_is_an_error_at_the_start(ca: Authority, caplog: pytest.LogCaptureFixture) -> None:
    """The server serves peers in plain text, and those that verify no certificate; the log has an error."""
    certificates = Certificates(settings(ca, EXPIRED), FakeClock())

    [(level, name, fields)] = logged_by(caplog, LOGGER)
    assert (level, name) == ("ERROR", "tls_certificate_expired")
    assert fields["days"] < 0
    assert certificates.tls.context is not None


async def test_unusable_certificate_replaces_no_valid_one(ca: Authority, caplog: pytest.LogCaptureFixture) -> None:
    """A running server keeps its valid certificate; the next valid one replaces it for new connections."""
    caplog.set_level(logging.INFO)
    certificates = Certificates(settings(ca, VALID), FakeClock())
    before = certificates.current
    key_file = ca.ca_file.parent / "server.key"

    key_file.write_text("not a key")
    await look_twice(certificates)
    assert (certificates.current, certificates.tls.context) == (before, before.context)
    assert str(certificates.problem) == f"{key_file}: no private key"
    assert [name for _, name, _ in logged_by(caplog, LOGGER)] == ["tls_certificate_refused"]

    ca.issue("server", expires=EXPIRED)
    await look_twice(certificates)
    assert certificates.current is before
    problem = "certificate expired at 2023-01-01 00:00:00 UTC: the certificate before stays in use"
    assert str(certificates.problem).endswith(f"server.pem: {problem}")
    assert [name for _, name, _ in logged_by(caplog, LOGGER)] == ["tls_certificate_refused"]

    ca.issue("server", expires=LATER)
    await look_twice(certificates)
    assert LATER.timestamp() == certificates.current.expires_at
    assert certificates.tls.context not in {None, before.context}
    assert certificates.problem is None
    assert [name for _, name, _ in logged_by(caplog, LOGGER)] == ["tls_certificate_changed"]


async def test_reload_without_tls_names_the_setting_that_needs_a_restart(
    tmp_path: Path, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The HTTP port keeps TLS and thus its certificate until a restart, also if all TLS settings are removed."""
    tls: dict[str, Any] = {
        "tls_mode": "permissive",
        "http_tls": True,
        **ca.issue("server", expires=VALID).server_settings,
    }
    async with namesrv_in_process(tmp_path / "data", **tls) as server:
        await server.reloader().reload()

    [refused] = logged(caplog, "reload_refused")
    assert refused["problems"] == ["http-tls stays true until a restart: no certificate: set tls-cert-file"]


async def test_expired_certificate_may_replace_an_expired_one(ca: Authority) -> None:
    """Nothing is lost, and CAs and revocation lists in other files are used."""
    certificates = Certificates(settings(ca, EXPIRED), FakeClock())
    before = certificates.current

    ca.issue("server", expires=EXPIRED)
    await look_twice(certificates)

    assert certificates.current is not before
    assert certificates.problem is None


async def test_reload_with_an_expired_certificate_is_refused(
    ca: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A reload is all or nothing, so that the other settings stay, too; health and metrics show the problem."""
    issued = ca.issue("server", expires=VALID)
    tls: dict[str, Any] = {"tls_mode": "permissive", **issued.server_settings}
    async with namesrv_in_process(tmp_path / "data", **tls) as server:
        certificates = server.namesrv.certificates
        before = certificates.current
        flags = [f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}", "--tls-mode=permissive"]
        reloader: Reloader = server.reloader(*flags, "--max-topics=19")

        ca.issue("server", expires=EXPIRED)
        await reloader.reload()

        assert certificates.current is before
        assert server.namesrv.settings.current.max_topics != 19
        [refused] = logged(caplog, "reload_refused")
        problem = "certificate expired at 2023-01-01"
        assert problem in refused["problems"][0]

        await look_twice(certificates)
        assert problem in str(readiness(server.namesrv))
        metrics = await exposition(server.namesrv, server.controller.server)
        assert b"\nnameserver_tls_certificate_refused 1.0\n" in metrics


HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([], None),
        # a list of a day is late two hours before it expires, and a list of a month a day before
        ([(0.0, DAY)], (DAY, 22 * HOUR)),
        ([(-22 * HOUR, 2 * HOUR)], (2 * HOUR, 0.0)),
        ([(-6 * DAY, 24 * DAY)], (24 * DAY, 23 * DAY)),
        ([(-25 * HOUR, -HOUR)], (-HOUR, -3 * HOUR)),
        # the list that is late is not the one that expires first
        ([(-14 * HOUR, 10 * HOUR), (-29 * DAY, 20 * HOUR)], (20 * HOUR, -4 * HOUR)),
        # among late lists, one that has expired counts more
        ([(-25 * HOUR, -HOUR), (-29 * DAY, 20 * HOUR)], (-HOUR, -3 * HOUR)),
        ([(0.0, float("inf"))], (float("inf"), float("inf"))),
    ],
)
def test_revocation_list_is_late_before_it_expires(
    lists: list[tuple[float, float]], expected: tuple[float, float] | None
) -> None:
    """CAs that issue a list for a day renew it within hours of its expiry, every day."""
    certificates = Certificates(Settings(), FakeClock(wall=0.0))
    certificates.use(Settings(), Certificate(None, None, None, lists, ()))

    assert certificates.most_urgent_crl() == expected


async def test_files_are_read_as_soon_as_there_is_a_thread(ca: Authority) -> None:
    """A server that can start no thread goes on with its certificate, and looks at the files the next time."""
    clock = FakeClock()
    certificates = Certificates(settings(ca, VALID), clock)
    before = certificates.current
    ca.issue("server", expires=LATER)
    looks = asyncio.create_task(certificates.run())
    with without_new_threads():
        await clock.advance(120.0)
        assert (certificates.current is before, looks.done()) == (True, False)
    await look_twice(certificates)

    assert certificates.current is not before
    looks.cancel()


class OneStart(ThreadPoolExecutor):
    """Starts a thread for its first work, and then reaches the limit of threads."""

    has_started = False

    def submit(self, *work: Any, **options: Any) -> Any:
        if self.has_started:
            raise RuntimeError("can't start new thread")
        self.has_started = True
        return super().submit(*work, **options)


async def test_files_that_no_thread_could_read_are_read_later(ca: Authority) -> None:
    """Files that have changed count as loaded only once a thread has read them."""
    certificates = Certificates(settings(ca, VALID), FakeClock())
    before = certificates.current
    ca.issue("server", expires=LATER)
    await certificates.look()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(OneStart())
    with pytest.raises(NoThreadError):
        await certificates.look()
    assert certificates.current is before

    loop.set_default_executor(ThreadPoolExecutor())
    await certificates.look()

    assert LATER.timestamp() == certificates.current.expires_at
