"""Pacing of large lists by address."""

import pytest

from namesrv.processors.topic_lists import LargeLists
from namesrv_remoting.errors import SystemBusyError
from tests.support.fake_clock import FakeClock

MIB = 1024 * 1024


def test_an_address_gets_so_many_large_lists_and_then_so_many_per_second() -> None:
    """Small ones do not count, and other addresses are given theirs."""
    clock = FakeClock(monotonic=100.0)
    lists = LargeLists(clock)
    for _ in range(4):
        lists.give("10.0.0.1", 16 * MIB)
    with pytest.raises(SystemBusyError, match=r"^too many large lists for 10\.0\.0\.1, try again in 1\.0 s$"):
        lists.give("10.0.0.1", 16 * MIB)
    lists.give("10.0.0.1", 1000)
    lists.give("10.0.0.2", 16 * MIB)

    clock.stall(1.0)

    lists.give("10.0.0.1", 16 * MIB)
    with pytest.raises(SystemBusyError):
        lists.give("10.0.0.1", 16 * MIB)


def test_addresses_are_forgotten_when_they_have_waited() -> None:
    """However many ask, only those that got much lately are kept."""
    clock = FakeClock(monotonic=100.0)
    lists = LargeLists(clock)
    for number in range(5_000):
        lists.give(f"address-{number}", 16 * MIB)
        clock.stall(0.01)

    assert len(lists._given) <= 1_000
