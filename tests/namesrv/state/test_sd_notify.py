"""Notifications to systemd."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from namesrv.state.sd_notify import ServiceManager
from tests.support.notify_socket import NotifySocket


@pytest.fixture(params=["path", "path with @", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NotifySocket]:
    """A listening systemd."""
    names = {"path": tmp_path / "notify", "path with @": tmp_path / "unit@1", "abstract": None}
    with NotifySocket(names[request.param]) as found:
        yield found


@pytest.fixture
def manager(systemd: NotifySocket) -> Iterator[ServiceManager]:
    """A connection to the service manager."""
    found = ServiceManager.of({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "30000000"})
    yield found
    found.close()


def test_messages_of_a_boot(systemd: NotifySocket, manager: ServiceManager) -> None:
    """The messages are ready, watchdog, status, reloading with its start, ready and stopping with its duration."""
    began = time.monotonic_ns() // 1000
    manager.ready("serving")
    manager.alive()
    manager.status("waiting for\nbrokers")
    manager.reloading()
    manager.ready("serving again")
    manager.stopping("draining", 12.5)

    messages = systemd.messages()
    reloading = messages.pop(3)
    assert began <= int(reloading.pop("MONOTONIC_USEC")) <= time.monotonic_ns() // 1000
    assert reloading == {"RELOADING": "1", "STATUS": "reloading"}
    assert messages == [
        {"READY": "1", "STATUS": "serving"},
        {"WATCHDOG": "1"},
        {"STATUS": "waiting for brokers"},
        {"READY": "1", "STATUS": "serving again"},
        {"STOPPING": "1", "STATUS": "draining", "EXTEND_TIMEOUT_USEC": "12500000"},
    ]


@pytest.mark.parametrize(
    ("watchdog", "is_notified"),
    [
        ({}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}, True),
    ],
)
def test_watchdog_is_notified_only_for_this_process(
    systemd: NotifySocket, watchdog: dict[str, str], *, is_notified: bool
) -> None:
    """The watchdog is not notified without an interval, or if it is meant for another process."""
    manager = ServiceManager.of({"NOTIFY_SOCKET": systemd.address, **watchdog})

    manager.alive()

    assert systemd.messages() == [{"WATCHDOG": "1"}] * is_notified
    manager.close()


def test_without_systemd_nothing_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    """Without NOTIFY_SOCKET nothing is sent or logged."""
    manager = ServiceManager.of({"WATCHDOG_USEC": "1000000"})

    manager.ready("serving")
    manager.alive()
    manager.close()

    assert caplog.records == []
    assert repr(manager) == "<ServiceManager [none | watchdog: no]>"


def test_unsupported_notify_socket_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An address of an unsupported kind is logged and not used."""
    manager = ServiceManager.of({"NOTIFY_SOCKET": "vsock:2:1234"})

    manager.ready("serving")

    assert [record.msg for record in caplog.records] == ["notify_socket_unknown"]


def test_unreachable_systemd_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Failures in a row are logged once; after a success the next failure is logged again."""
    caplog.set_level(logging.INFO)
    path = tmp_path / "notify"
    manager = ServiceManager.of({"NOTIFY_SOCKET": str(path)})
    manager.ready("1")
    manager.status("2")
    assert [record.msg for record in caplog.records] == ["service_manager_unreachable"]

    with NotifySocket(path) as systemd:
        manager.status("3")
        assert systemd.receive() == {"STATUS": "3"}
    manager.status("4")

    assert [record.msg for record in caplog.records] == ["service_manager_unreachable"] * 2
    manager.close()


def test_full_notify_socket_does_not_block(systemd: NotifySocket, manager: ServiceManager) -> None:
    """Messages are dropped when systemd does not read."""
    for _ in range(5000):
        manager.alive()

    assert len(systemd.messages()) < 5000
