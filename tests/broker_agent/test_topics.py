"""The topic table: validation, versions, and its file."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent.topics import BrokerTopics, TopicChange, TopicStateError
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import Permission
from namesrv_runtime.durable_file import write_sealed

ORDERS = TopicConfig("orders", 8, 8)
BILLS = TopicConfig("bills", 4, 4, 4, 1)
# 2023-11-14 22:13:20 UTC
WALL_MS = 1_700_000_000_000
AT_FIRST = DataVersion(0, 0, WALL_MS)
NAMELESS = "must be 1 to 255 bytes of printable characters without blanks"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the state file."""
    return tmp_path / "topics.json"


def table_of(*topics: TopicConfig, state_file: Path | None = None, seconds: float = 0.0) -> BrokerTopics:
    """A table on a clock that stands still."""
    return BrokerTopics(topics, state_file, lambda: WALL_MS / 1000 + seconds)


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
def test_valid_topic_is_accepted(topic: TopicConfig, path: Path) -> None:
    """Values at their limits are valid, also in the file."""
    assert ((topic,), AT_FIRST) == table_of(topic, state_file=path).snapshot() == table_of(state_file=path).snapshot()


WRONG_TOPICS: list[tuple[Any, str]] = [
    (TopicConfig(""), f"invalid topic name '': {NAMELESS}"),
    (TopicConfig("a\tb"), f"invalid topic name 'a\\tb': {NAMELESS}"),
    # 256 bytes in 128 characters
    (TopicConfig("ж" * 128), f"invalid topic name '{'ж' * 128}': {NAMELESS}"),
    (TopicConfig("\ud800"), f"invalid topic name '\\ud800': {NAMELESS}"),
    (TopicConfig(5), f"invalid topic name 5: {NAMELESS}"),  # type: ignore[arg-type]  # wrong on purpose
    (TopicConfig("T", perm=8), "topic T: perm 8 is not between 0 and 7"),
    (TopicConfig("T", perm=True), "topic T: perm True is not between 0 and 7"),
    (TopicConfig("T", perm=6.0), "topic T: perm 6.0 is not between 0 and 7"),  # type: ignore[arg-type]  # wrong on purpose
    (TopicConfig("T", 0, 1), "topic T: read_queue_nums 0 is not between 1 and 65535"),
    (TopicConfig("T", 1, 65_536), "topic T: write_queue_nums 65536 is not between 1 and 65535"),
    (TopicConfig("T", 1, 1, 6, 1 << 31), "topic T: topic_sys_flag 2147483648 is not a non-negative 32-bit integer"),
    (ORDERS, "topic orders is listed twice"),
]


@pytest.mark.parametrize(("topic", "message"), WRONG_TOPICS, ids=[message[:40] for _, message in WRONG_TOPICS])
def test_invalid_topic_is_refused_by_every_method(topic: TopicConfig, message: str) -> None:
    """Every method raises a ValueError with the topic and the value, and the table stays as it was."""
    table = table_of(ORDERS)
    ways: list[Callable[[], object]] = [lambda: table_of(ORDERS, topic), lambda: table.replace_all([ORDERS, topic])]
    if topic is not ORDERS:
        ways.append(lambda: table.create(topic))
        named = table_of(TopicConfig("T"))
        ways += [lambda: named.update(topic)] if topic.topic_name == "T" else []
    for way in ways:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            way()

    assert table.snapshot() == ((ORDERS,), AT_FIRST)


@pytest.mark.parametrize(
    "way",
    [
        table_of,
        lambda name: table_of().create(name),
        lambda name: table_of().update(name),
        lambda name: table_of().replace_all([name]),
    ],
    ids=["constructor", "create", "update", "replace_all"],
)
def test_name_in_place_of_a_topic_is_refused(way: Callable[[Any], object]) -> None:
    """The error says what the method takes."""
    with pytest.raises(TypeError, match=r"^'orders' is not a TopicConfig$"):
        way("orders")


def test_unknown_and_duplicate_topics_are_refused() -> None:
    """An unknown topic cannot be changed, and an existing one not created, even with equal values."""
    table = table_of(ORDERS)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: table.create(TopicConfig("orders", 1, 1)), "topic orders exists already"),
        (lambda: table.update(BILLS), "topic 'bills' does not exist"),
        (lambda: table.delete("bills"), "topic 'bills' does not exist"),
        (lambda: table.set_perm("bills", Permission.READ), "topic 'bills' does not exist"),
        (lambda: table.set_perm("orders", Permission.PRIORITY), "topic orders: perm 8 is not between 0 and 7"),
        # wrong on purpose
        (lambda: table.set_perm("orders", "RW"), "topic orders: perm 'RW' is not between 0 and 7"),  # type: ignore[arg-type]
    ]
    for change, message in wrong:
        with pytest.raises(ValueError, match=f"^{message}$"):
            change()

    assert table.snapshot() == ((ORDERS,), AT_FIRST)


def test_every_change_returns_its_delta_and_counts_the_version_up() -> None:
    """A delta contains new and changed topics and deleted names; the version counts by one, with the time in ms."""
    now = [WALL_MS / 1000]
    table = BrokerTopics([ORDERS], wall=lambda: now[0])
    handed_out, before = table.topics, table.snapshot()
    larger = TopicConfig("orders", 16, 16)
    both = Permission.READ | Permission.WRITE
    changes: list[tuple[Callable[[], TopicChange], TopicChange]] = [
        (lambda: table.create(BILLS), TopicChange((BILLS,))),
        (lambda: table.update(larger), TopicChange((larger,))),
        (lambda: table.set_perm("bills", both), TopicChange((TopicConfig("bills", 4, 4, 6, 1),))),
        (lambda: table.delete("bills"), TopicChange((), ("bills",))),
        (lambda: table.replace_all([BILLS, ORDERS]), TopicChange((BILLS, ORDERS))),
        (lambda: table.replace_all([BILLS]), TopicChange((), ("orders",))),
    ]
    for counter, (change, done) in enumerate(changes, start=1):
        now[0] += 1.5
        assert done == change()
        assert table.data_version == DataVersion(counter, 0, WALL_MS + 1500 * counter)
    assert table.replace_all([BILLS]) == TopicChange()
    assert (table.snapshot()[0], table.data_version.counter) == ((BILLS,), 6)
    # returned values are immutable
    assert (handed_out, before) == ({"orders": ORDERS}, ((ORDERS,), AT_FIRST))
    assert repr(table) == "<BrokerTopics [1 topics | version 6]>"


@pytest.mark.parametrize("state_version", [-1, 1 << 63, 1.0, True])
def test_invalid_state_version_is_refused(state_version: Any) -> None:
    """The error names the state version."""
    table = table_of()
    with pytest.raises(ValueError, match=rf"^state_version {state_version} is not a non-negative 64-bit integer$"):
        table.bump(state_version)

    assert table.data_version == AT_FIRST


def test_topics_and_version_survive_a_restart(path: Path) -> None:
    """After a restart the version continues, topics keep their order, and the file is readable by its owner only."""
    first = table_of(ORDERS, state_file=path)
    first.create(BILLS)
    first.bump(3)

    second = table_of(state_file=path, seconds=60.0)

    assert second.snapshot() == ((ORDERS, BILLS), DataVersion(2, 3, WALL_MS))
    second.delete("orders")
    assert table_of(state_file=path).snapshot() == ((BILLS,), DataVersion(3, 3, WALL_MS + 60_000))
    assert path.stat().st_mode & 0o777 == 0o600


def test_given_topics_are_merged_into_the_file(path: Path) -> None:
    """Given topics replace those of the file, the others stay; all differences count as one change."""
    table_of(ORDERS, BILLS, state_file=path)
    assert table_of(BILLS, state_file=path).data_version.counter == 0

    other = table_of(TopicConfig("orders", 1, 1), TopicConfig("new"), state_file=path)

    expected = ((TopicConfig("orders", 1, 1), BILLS, TopicConfig("new")), DataVersion(1, 0, WALL_MS))
    assert expected == other.snapshot() == table_of(state_file=path).snapshot()


def test_damaged_file_is_an_error_and_is_kept(path: Path) -> None:
    """A TopicStateError names the file, which is never overwritten."""
    path.write_bytes(b"topics")
    with pytest.raises(TopicStateError, match=f"^state file {path} cannot be used: "):
        table_of(BILLS, state_file=path)

    assert (path.read_bytes(), list(path.parent.iterdir())) == (b"topics", [path])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 2, "topics": []}, "version 2, this release reads 1;"),
        ({"version": 1, "topics": [["T", 0, 0, 0, 0]]}, "topic T: read_queue_nums 0"),
        ({"version": 1, "topics": [5]}, ""),
    ],
)
def test_unknown_file_content_is_refused(path: Path, document: dict[str, Any], message: str) -> None:
    """A file of a later version and one made by hand with a valid checksum are refused."""
    write_sealed(path, {"data_version": [0, 0, 0], **document})
    with pytest.raises(TopicStateError, match=f"^state file {path} cannot be used: {message}"):
        table_of(state_file=path)
