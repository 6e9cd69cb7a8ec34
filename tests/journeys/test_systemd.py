"""A service manager learns what becomes of the server."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import Start
from tests.support.notify_socket import NotifySocket
from tests.support.peer import until


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    """A systemd that the servers of this test are told of, with a watchdog."""
    with NotifySocket(tmp_path / "notify") as found:
        monkeypatch.setenv("NOTIFY_SOCKET", found.address)
        monkeypatch.setenv("WATCHDOG_USEC", "10000000")
        yield found


def test_service_from_start_to_end(systemd: NotifySocket, start: Start) -> None:
    """Ready when it listens, alive every second, reloading and ready again on SIGHUP, stopping at the end."""
    daemon = start("--drain-seconds", "3", "--log-level", "debug")
    assert systemd.receive_with("READY") == {"READY": "1", "STATUS": "ready: no brokers expected"}
    assert systemd.receive_with("WATCHDOG") == {"WATCHDOG": "1"}
    assert systemd.receive_with("WATCHDOG") == {"WATCHDOG": "1"}

    daemon.send_signal(signal.SIGHUP)
    assert int(systemd.receive_with("RELOADING")["MONOTONIC_USEC"]) > 0
    assert systemd.receive_with("READY")["STATUS"] == "ready: no brokers expected"

    assert daemon.stop() == 0
    stopping = systemd.receive_with("STOPPING")
    assert stopping["STATUS"] == "draining"
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) >= 3e6
    assert [line for line in daemon.log if "service_manager" in line["event"]] == []


def test_stopped_loop_feeds_no_watchdog(systemd: NotifySocket, start: Start) -> None:
    """A server that hangs says nothing, and would be restarted."""
    daemon = start()
    systemd.receive_with("WATCHDOG")
    daemon.send_signal(signal.SIGSTOP)
    until(lambda: ") T " in Path(f"/proc/{daemon.pid}/stat").read_text())
    systemd.messages()

    with pytest.raises(TimeoutError):
        systemd.receive(2.5)
    daemon.send_signal(signal.SIGCONT)
    assert systemd.receive_with("WATCHDOG") == {"WATCHDOG": "1"}
