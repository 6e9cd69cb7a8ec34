"""Notifications to the service manager."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Start
from tests.support.notify_socket import NotifySocket


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    """The socket of a systemd with a watchdog; the test's servers notify it."""
    with NotifySocket(tmp_path / "notify") as found:
        monkeypatch.setenv("NOTIFY_SOCKET", found.address)
        monkeypatch.setenv("WATCHDOG_USEC", "10000000")
        yield found


def test_service_from_start_to_end(systemd: NotifySocket, start: Start) -> None:
    """The server reports ready, a watchdog ping, reloading and ready on SIGHUP, and stopping."""
    daemon = start("--drain-seconds", "3", "--log-level", "debug")
    assert systemd.receive_with("READY") == {"READY": "1", "STATUS": "ready: no brokers expected"}
    assert systemd.receive_with("WATCHDOG") == {"WATCHDOG": "1"}

    daemon.send_signal(signal.SIGHUP)
    assert int(systemd.receive_with("RELOADING")["MONOTONIC_USEC"]) > 0
    assert systemd.receive_with("READY")["STATUS"] == "ready: no brokers expected"

    assert daemon.stop() == 0
    stopping = systemd.receive_with("STOPPING")
    assert stopping["STATUS"] == "draining"
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) >= 3e6
    assert [line for line in daemon.log if "service_manager" in line["event"]] == []
