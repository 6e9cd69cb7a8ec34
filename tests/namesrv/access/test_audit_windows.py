"""Windows of the audit trail: they bound the lines about one network, about one source, and about its brokers."""

from typing import Any

import pytest

from namesrv.access import audit_windows
from namesrv.access.audit_lines import Change, Refusal, RepeatedChange
from namesrv.access.audit_windows import (
    MAX_CHANGES_PER_BROKER,
    MAX_COUNTED_ADDRESSES,
    MAX_COUNTED_SOURCES,
    MAX_DIFFERENT,
    MAX_DIFFERENT_PER_ADDRESS,
    MAX_LINES_PER_SOURCE,
    RefusalWindow,
    RegistrationWindow,
    is_registration,
)
from namesrv.routeinfo.tables.effects import Evicted, Registered, WritePermissionChanged
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo

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


REFUSAL = Refusal("UPDATE_NAMESRV_CONFIG", WHO, "anonymous", "not signed")


@pytest.mark.parametrize(
    "changed",
    [
        {"request": "GET_KV_CONFIG"},
        {"sender": WHO | {"account": "bills"}},
        {"reason": "mismatch"},
        {"remark": "another remark"},
        {"is_observed": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_refusals_of_different_kinds_have_lines_of_their_own(changed: dict[str, Any]) -> None:
    """One reason has many causes, and a peer may claim many identities: only equal refusals are counted."""
    window = RefusalWindow()

    refusals = (REFUSAL, REFUSAL._replace(**changed), REFUSAL)

    assert [window.admit(each, "10.0.0.1", "10.0.0.1") for each in refusals] == [True, True, False]


def test_refusals_of_many_addresses_are_counted() -> None:
    """The first hundred kinds of refusal have a line each, and a line for repetitions; one line counts the rest."""
    window = RefusalWindow()
    addresses = [f"10.0.0.{number}" for number in range(MAX_DIFFERENT + MAX_COUNTED_ADDRESSES + 10)]

    first, second = [[window.admit(REFUSAL, address, address) for address in addresses] for _ in range(2)]

    assert first == [True] * MAX_DIFFERENT + [False] * (MAX_COUNTED_ADDRESSES + 10)
    assert not any(second)
    *repeated, others = window.end()
    assert repeated == [REFUSAL._replace(times=1, is_repeated=True)] * MAX_DIFFERENT
    count, counted = 2 * (MAX_COUNTED_ADDRESSES + 10), addresses[MAX_DIFFERENT : MAX_DIFFERENT + MAX_COUNTED_ADDRESSES]
    counts = {"by_reason": {"anonymous": count}, "by_address": dict.fromkeys(counted, 2)}
    assert others == {"event": "refusals", "count": count, **counts}
    # the next window
    assert window.admit(REFUSAL, addresses[-1], addresses[-1])


def test_refusals_of_one_network_are_bounded() -> None:
    """A peer has any number of IPv6 addresses in its /64 network: they share one limit of lines, and one count."""
    window = RefusalWindow()

    admitted = [
        window.admit(REFUSAL, f"2001:db8::{number:x}", "2001:db8::/64")
        for number in range(MAX_DIFFERENT_PER_ADDRESS + 5)
    ]

    assert sum(admitted) == MAX_DIFFERENT_PER_ADDRESS
    # the lines of another network stay
    assert window.admit(REFUSAL, "2001:db8:0:1::1", "2001:db8:0:1::/64")
    counts = {"by_reason": {"anonymous": 5}, "by_address": {"2001:db8::/64": 5}}
    assert [*window.end()] == [{"event": "refusals", "count": 5, **counts}]


def test_only_changes_by_brokers_are_registrations() -> None:
    """A removal without a request is the broker's own doing; one by an operator or by a reload is not."""
    wiped = Change(
        "WIPE_WRITE_PERM_OF_BROKER", WHO, [WritePermissionChanged("broker-a", 1, is_removed=True, reason="operator")]
    )
    changes = [change("", 1), change("", 1, None), change("", 1, "SIGHUP"), wiped]

    assert [is_registration(each) for each in changes] == [True, True, False, False]
