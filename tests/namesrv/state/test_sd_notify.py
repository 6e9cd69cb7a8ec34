"""Messages to systemd."""

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
    """What speaks to it."""
    found = ServiceManager.of({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "30000000"})
    yield found
    found.close()


def test_a_whole_life(systemd: NotifySocket, manager: ServiceManager) -> None:
    """Ready, alive, reloading with the moment it began, ready again, stopping with the time it takes."""
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
    ("watchdog", "is_fed"),
    [
        ({}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}, True),
    ],
)
def test_watchdog_is_fed_only_if_there_is_one_for_us(
    systemd: NotifySocket, watchdog: dict[str, str], *, is_fed: bool
) -> None:
    """Not without one, and not one that was meant for our parent."""
    manager = ServiceManager.of({"NOTIFY_SOCKET": systemd.address, **watchdog})

    manager.alive()

    assert [{"WATCHDOG": "1"}] * is_fed == systemd.messages()
    manager.close()


def test_without_systemd_nothing_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    """And nothing is said about it."""
    manager = ServiceManager.of({"WATCHDOG_USEC": "1000000"})

    manager.ready("serving")
    manager.alive()
    manager.close()

    assert caplog.records == []
    assert repr(manager) == "<ServiceManager [none | watchdog: no]>"


def test_address_of_another_kind_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """And not used."""
    manager = ServiceManager.of({"NOTIFY_SOCKET": "vsock:2:1234"})

    manager.ready("serving")

    assert [record.msg for record in caplog.records] == ["notify_socket_unknown"]


def test_systemd_that_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line, however often; when it is back it hears everything again, and is missed again."""
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


def test_systemd_that_does_not_read(systemd: NotifySocket, manager: ServiceManager) -> None:
    """Nobody waits for it, or this would not end."""
    for _ in range(5000):
        manager.alive()

    assert len(systemd.messages()) < 5000
