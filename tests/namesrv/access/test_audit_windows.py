"""Windows of the audit trail: they bound the lines about one network, about one source, and about its brokers."""

from typing import Any

import pytest

from namesrv.access import audit_windows
from namesrv.access.audit_lines import Change, Refusal, RepeatedChange
from namesrv.access.audit_windows import (
    MAX_CHANGES_PER_BROKER,
    MAX_COUNTED_SOURCES,
    MAX_DIFFERENT_PER_ADDRESS,
    MAX_LINES_PER_SOURCE,
    RefusalWindow,
    RegistrationWindow,
    is_registration,
)
from namesrv.routeinfo.effects import Evicted, Registered, WritePermissionChanged
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo

WHO: dict[str, Any] = {"account": "orders", "peer": "10.0.0.1:1", "proxied": None, "certificate": []}


def change(source: str, number: int, request: str | None = "REGISTER_BROKER") -> Change:
    """A change of the broker with this number."""
    live = BrokerLiveInfo(f"broker-{number}", 0, 0.0, 120.0, None, 1, None, 1)
    evicted = Evicted(BrokerAddrInfo("c", f"10.0.0.1:{number}"), live, "unregistered", 0.0)
    return Change(request, WHO, [evicted], source)


def test_repeated_changes_are_counted_by_broker_and_source() -> None:
    """Three changes of a source to a broker have lines; one more line has the last of the others and their count."""
    window = RegistrationWindow()
    changes = [change("orders", 1) for _ in range(MAX_CHANGES_PER_BROKER + 4)]

    admitted = [window.admit(each, wall=100.0 + number) for number, each in enumerate(changes)]

    assert admitted == [True] * 3 + [False] * 4
    assert window.admit(change("bills", 1), wall=108.0)
    assert window.admit(change("orders", 2), wall=108.0)
    (repeated,) = window.end()
    assert repeated == RepeatedChange(changes[-1], 4, 103.0, 106.0)
    assert window.admit(change("orders", 1), wall=110.0)


def test_equal_registrations_are_not_counted() -> None:
    """A registration without visible effect takes no line, and does not hide the last change that a line shows."""
    window = RegistrationWindow()
    changes = [change("orders", 1) for _ in range(MAX_CHANGES_PER_BROKER + 1)]
    key, live = changes[0].changes[0].broker or (None, None)
    assert key is not None
    assert live is not None
    equal = Change("REGISTER_BROKER", WHO, [Registered(key, live, "full", 1, False, 0.0, live)], "orders")  # noqa: FBT003

    admitted = [window.admit(each, wall=100.0) for each in (equal, equal, *changes, equal)]

    assert admitted == [False, False, True, True, True, False, False]
    assert [*window.end()] == [RepeatedChange(changes[-1], 1, 100.0, 100.0)]


def test_lines_of_one_source_are_bounded() -> None:
    """Changes beyond the limit of lines are counted by source; another source keeps its own lines."""
    window = RegistrationWindow()

    admitted = [window.admit(change("noisy", number), wall=1.0) for number in range(MAX_LINES_PER_SOURCE + 5)]

    assert sum(admitted) == MAX_LINES_PER_SOURCE
    assert window.admit(change("quiet", 1), wall=1.0)
    assert [*window.end()] == [{"event": "changes", "count": 5, "by_source": {"noisy": 5}}]
    assert [*window.end()] == []


def test_number_of_named_sources_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of all changes stays exact when more sources exceed the limit than the line can name."""
    monkeypatch.setattr(audit_windows, "MAX_LINES_PER_SOURCE", 2)
    window = RegistrationWindow()
    sources = MAX_COUNTED_SOURCES + 1
    for source in range(sources):
        for number in range(3):
            window.admit(change(f"account-{source}", number), wall=1.0)

    (counted,) = window.end()

    assert isinstance(counted, dict)
    assert (counted["count"], len(counted["by_source"])) == (sources, MAX_COUNTED_SOURCES)


def test_refusals_of_one_network_are_bounded() -> None:
    """A peer has any number of IPv6 addresses in its /64 network: they share one limit of lines, and one count."""
    window, refusal = RefusalWindow(), Refusal("UPDATE_NAMESRV_CONFIG", WHO, "anonymous", "not signed")

    admitted = [
        window.admit(refusal, f"2001:db8::{number:x}", "2001:db8::/64")
        for number in range(MAX_DIFFERENT_PER_ADDRESS + 5)
    ]

    assert sum(admitted) == MAX_DIFFERENT_PER_ADDRESS
    assert window.admit(refusal, "2001:db8:0:1::1", "2001:db8:0:1::/64")
    counts = {"by_reason": {"anonymous": 5}, "by_address": {"2001:db8::/64": 5}}
    assert [*window.end()] == [{"event": "refusals", "count": 5, **counts}]


def test_only_changes_by_brokers_are_registrations() -> None:
    """A removal without a request is the broker's own doing; one by an operator or by a reload is not."""
    wiped = Change(
        "WIPE_WRITE_PERM_OF_BROKER", WHO, [WritePermissionChanged("broker-a", 1, is_removed=True, reason="operator")]
    )
    changes = [change("", 1), change("", 1, None), change("", 1, "SIGHUP"), wiped]

    assert [is_registration(each) for each in changes] == [True, True, False, False]
