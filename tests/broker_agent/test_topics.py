"""The table refuses what is invalid, and counts every change."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from namesrv_broker_agent.topics import TopicChange, TopicTable
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import Permission

ORDERS = TopicConfig("orders", 8, 8)
BILLS = TopicConfig("bills", 4, 4, 4, 1)
Change = Callable[[], object]

# 2023-11-14 22:13:20 UTC, in seconds
WALL = 1_700_000_000.0


class Wall:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.now = WALL

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


def table_of(*topics: TopicConfig, wall: Callable[[], float] | None = None) -> TopicTable:
    """A table on a clock that stands, without a file."""
    return TopicTable(topics, wall=wall or Wall())


# -- what a topic may be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    [
        TopicConfig("x" * 255),
        TopicConfig("%RETRY%group|1-a_b"),
        TopicConfig("заказы"),
        TopicConfig("T", 1, 1, 0),
        TopicConfig("T", 65_535, 65_535, 7, (1 << 31) - 1),
    ],
)
def test_topic_is_taken(topic: TopicConfig) -> None:
    """Values at their limits."""
    assert (topic,) == table_of(topic).all()


NAMELESS = "must be 1 to 255 bytes of printable characters without blanks"
WRONG_TOPICS: list[tuple[Any, str]] = [
    (TopicConfig(""), f"invalid topic name '': {NAMELESS}"),
    (TopicConfig("a b"), f"invalid topic name 'a b': {NAMELESS}"),
    (TopicConfig("a\tb"), f"invalid topic name 'a\\tb': {NAMELESS}"),
    (TopicConfig("a\0"), f"invalid topic name 'a\\x00': {NAMELESS}"),
    # 256 bytes, although 128 characters
    (TopicConfig("ж" * 128), f"invalid topic name '{'ж' * 128}': {NAMELESS}"),
    (TopicConfig("x" * 256), f"invalid topic name '{'x' * 256}': {NAMELESS}"),
    (TopicConfig("\ud800"), f"invalid topic name '\\ud800': {NAMELESS}"),
    (TopicConfig(5), f"invalid topic name 5: {NAMELESS}"),  # type: ignore[arg-type]  # what is tested
    (TopicConfig("T", perm=-1), "topic T: perm -1 is not between 0 and 7"),
    (TopicConfig("T", perm=8), "topic T: perm 8 is not between 0 and 7"),
    (TopicConfig("T", perm=True), "topic T: perm True is not between 0 and 7"),
    (TopicConfig("T", perm=6.0), "topic T: perm 6.0 is not between 0 and 7"),  # type: ignore[arg-type]  # the same
    (TopicConfig("T", perm="6"), "topic T: perm '6' is not between 0 and 7"),  # type: ignore[arg-type]  # the same
    (TopicConfig("T", 0, 1), "topic T: read_queue_nums 0 is not between 1 and 65535"),
    (TopicConfig("T", 1, 65_536), "topic T: write_queue_nums 65536 is not between 1 and 65535"),
    (TopicConfig("T", 1, -1), "topic T: write_queue_nums -1 is not between 1 and 65535"),
    (TopicConfig("T", 1, 1, 6, -1), "topic T: topic_sys_flag -1 is not a non-negative 32-bit integer"),
    (TopicConfig("T", 1, 1, 6, 1 << 31), "topic T: topic_sys_flag 2147483648 is not a non-negative 32-bit integer"),
]


@pytest.mark.parametrize(("topic", "message"), WRONG_TOPICS, ids=[message[:40] for _, message in WRONG_TOPICS])
def test_wrong_topic_is_refused_by_every_way_in(topic: TopicConfig, message: str) -> None:
    """Given, created or replaced: a ValueError names the topic and the value, and the table is as it was."""
    table = table_of(ORDERS)
    for way_in in (table_of, table.create, lambda it: table.replace_all([BILLS, it])):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            way_in(topic)

    assert (ORDERS,) == table.all()
    assert 0 == table.data_version.counter


def test_update_is_checked_too() -> None:
    """As is a new permission."""
    table = table_of(ORDERS)
    with pytest.raises(ValueError, match=r"^topic orders: perm 9 is not between 0 and 7$"):
        table.update(TopicConfig("orders", 8, 8, 9))
    with pytest.raises(ValueError, match=r"^topic orders: perm 8 is not between 0 and 7$"):
        table.set_perm("orders", Permission.PRIORITY)

    assert (ORDERS,) == table.all()


def test_topic_is_there_only_once() -> None:
    """Given twice, created again, or twice in a replacement, even if it says the same."""
    with pytest.raises(ValueError, match=r"^topic orders is listed twice$"):
        table_of(ORDERS, ORDERS)
    table = table_of(ORDERS)
    with pytest.raises(ValueError, match=r"^topic orders exists already$"):
        table.create(TopicConfig("orders", 1, 1))
    with pytest.raises(ValueError, match=r"^topic bills is listed twice$"):
        table.replace_all([BILLS, BILLS])

    assert (ORDERS,) == table.all()
    assert 0 == table.data_version.counter


def test_topic_that_does_not_exist() -> None:
    """It cannot be changed, and the error names it."""
    table = table_of(ORDERS)
    changes: list[Change] = [
        lambda: table.update(BILLS),
        lambda: table.delete("bills"),
        lambda: table.set_perm("bills", Permission.READ),
    ]
    for change in changes:
        with pytest.raises(ValueError, match=r"^topic 'bills' does not exist$"):
            change()

    assert 0 == table.data_version.counter


# -- changes ---------------------------------------------------------------------------------------------------------


def test_every_change_counts_the_version_up() -> None:
    """By one, at the time of the clock in milliseconds; the state version stays."""
    wall = Wall()
    table = table_of(ORDERS, wall=wall)
    assert DataVersion(0, 0, 1_700_000_000_000) == table.data_version
    changes: list[Change] = [
        lambda: table.create(BILLS),
        lambda: table.update(TopicConfig("orders", 16, 16)),
        lambda: table.set_perm("orders", Permission.READ),
        lambda: table.delete("bills"),
        lambda: table.replace_all([BILLS]),
    ]
    versions = []
    for change in changes:
        wall.now += 1.5
        change()
        versions.append(table.data_version)

    assert [
        DataVersion(1, 0, 1_700_000_001_500),
        DataVersion(2, 0, 1_700_000_003_000),
        DataVersion(3, 0, 1_700_000_004_500),
        DataVersion(4, 0, 1_700_000_006_000),
        DataVersion(5, 0, 1_700_000_007_500),
    ] == versions


def test_change_says_what_it_did() -> None:
    """For those who have to be told: topics that are new or other ones, names that are gone."""
    table = table_of(ORDERS)

    assert TopicChange((BILLS,), ()) == table.create(BILLS)
    assert TopicChange((TopicConfig("bills", 4, 4, 6, 1),), ()) == table.set_perm(
        "bills", Permission.READ | Permission.WRITE
    )
    assert TopicChange((), ("orders",)) == table.delete("orders")
    assert TopicChange((ORDERS,), ("bills",)) == table.replace_all([ORDERS])
    assert {"orders": ORDERS} == table.topics
    assert "orders" in table
    assert "bills" not in table
    assert 1 == len(table)


def test_replacement_by_the_same_is_no_change() -> None:
    """In whatever order."""
    table = table_of(ORDERS, BILLS)

    assert TopicChange() == table.replace_all([BILLS, ORDERS])
    assert 0 == table.data_version.counter


def test_role_counts_as_a_change() -> None:
    """With a state version of its own where there are terms; later changes keep that."""
    table = table_of(ORDERS)

    table.bump()
    assert DataVersion(1, 0, 1_700_000_000_000) == table.data_version
    table.bump(7)
    assert DataVersion(2, 7, 1_700_000_000_000) == table.data_version
    table.delete("orders")
    assert DataVersion(3, 7, 1_700_000_000_000) == table.data_version


@pytest.mark.parametrize("state_version", [-1, 1 << 63, 1.0, True])
def test_state_version_that_cannot_be(state_version: Any) -> None:
    """Refused by name."""
    table = table_of()
    with pytest.raises(ValueError, match=rf"^state_version {state_version} is not a non-negative 64-bit integer$"):
        table.bump(state_version)

    assert 0 == table.data_version.counter


def test_topics_and_their_version_come_together() -> None:
    """One value, whatever is changed afterwards."""
    table = table_of(ORDERS)
    before = table.snapshot()
    table.create(BILLS)

    assert ((ORDERS,), DataVersion(0, 0, 1_700_000_000_000)) == before
    assert ((ORDERS, BILLS), DataVersion(1, 0, 1_700_000_000_000)) == table.snapshot()


def test_what_was_handed_out_does_not_change() -> None:
    """Nor can the table be changed by it."""
    table = table_of(ORDERS)
    handed_out = table.topics
    table.create(BILLS)

    assert {"orders": ORDERS} == handed_out
    assert "<TopicTable [2 topics | version 1]>" == repr(table)
