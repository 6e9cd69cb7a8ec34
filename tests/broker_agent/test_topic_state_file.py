"""The table survives in its file, and a damaged or full disk harms neither."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent.topics import TopicStateError, TopicTable
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_runtime.durable_file import write_sealed

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


def table_of(
    *topics: TopicConfig, state_file: Path | None = None, wall: Callable[[], float] | None = None
) -> TopicTable:
    """A table on a clock that stands."""
    return TopicTable(topics, state_file, wall or Wall())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, or will be."""
    return tmp_path / "topics.json"


def test_topics_and_version_survive_a_restart(path: Path) -> None:
    """A broker that comes back goes on counting where it was, with its topics in their order."""
    wall = Wall()
    first = table_of(ORDERS, state_file=path, wall=wall)
    first.create(BILLS)
    first.bump(3)
    wall.now += 60.0

    second = table_of(state_file=path, wall=wall)

    assert ((ORDERS, BILLS), DataVersion(2, 3, 1_700_000_000_000)) == second.snapshot()
    second.delete("orders")
    assert ((BILLS,), DataVersion(3, 3, 1_700_000_060_000)) == table_of(state_file=path).snapshot()


def test_first_start_writes_the_file(path: Path) -> None:
    """Before anything is told to anybody; only the owner may read it."""
    table_of(ORDERS, state_file=path)

    assert ((ORDERS,), DataVersion(0, 0, 1_700_000_000_000)) == table_of(state_file=path).snapshot()
    assert 0o600 == path.stat().st_mode & 0o777


def test_given_topics_are_added_and_win(path: Path) -> None:
    """What the caller names is so; what it does not name stays. One change, if anything differs at all."""
    table_of(ORDERS, BILLS, state_file=path)

    same = table_of(BILLS, state_file=path)
    assert 0 == same.data_version.counter
    other = table_of(TopicConfig("orders", 1, 1), TopicConfig("new"), state_file=path)

    assert (TopicConfig("orders", 1, 1), BILLS, TopicConfig("new")) == other.all()
    assert 1 == other.data_version.counter
    assert other.snapshot() == table_of(state_file=path).snapshot()


def test_draining_is_not_kept(path: Path) -> None:
    """It ends with the broker's life, and the disk may be what the broker is drained for."""
    table = table_of(ORDERS, state_file=path)
    path.unlink()
    path.mkdir()

    table.bump_for_this_life()

    assert 1 == table.data_version.counter
    assert (ORDERS,) == table.all()


def test_leftovers_of_a_killed_writer_go(path: Path) -> None:
    """A temporary file of this one, and of no other."""
    (path.parent / ".topics.json.0123456789abcdef.tmp").touch()
    (path.parent / ".others.json.0123456789abcdef.tmp").touch()

    table_of(ORDERS, state_file=path)

    assert [".others.json.0123456789abcdef.tmp", "topics.json"] == sorted(it.name for it in path.parent.iterdir())


@pytest.mark.parametrize(
    "damage", [b"", b"topics", b"{}", b'{"sha256": "%b", "content": "{"}' % (b"0" * 64), b"\0" * 400]
)
def test_damaged_file_is_an_error_and_stays(path: Path, damage: bytes) -> None:
    """It is a TopicStateError that names the file, and nothing is overwritten: somebody may still read it."""
    path.write_bytes(damage)

    with pytest.raises(TopicStateError, match=f"^state file {path} cannot be used: "):
        table_of(BILLS, state_file=path)

    assert damage == path.read_bytes()
    assert [path] == list(path.parent.iterdir())


def test_file_of_an_earlier_release(path: Path) -> None:
    """Its content was a text in the envelope; the next change writes it anew."""
    text = json.dumps({"version": 1, "data_version": [3, 2, 5], "topics": [["orders", 8, 8, 6, 0]]})
    path.write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}))

    table = table_of(state_file=path)
    assert ((ORDERS,), DataVersion(3, 2, 5)) == table.snapshot()
    table.create(BILLS)
    assert path.read_bytes().startswith(b'{"sha256":"')
    assert (ORDERS, BILLS) == table_of(state_file=path).all()


def test_file_of_a_later_version(path: Path) -> None:
    """Ours cannot know what it means."""
    write_sealed(path, {"version": 2, "data_version": [0, 0, 0], "topics": []})

    with pytest.raises(TopicStateError, match=f"^state file {path} cannot be used: version 2, this release reads 1$"):
        table_of(state_file=path)


@pytest.mark.parametrize(
    ("topics", "message"),
    [([["T", 0, 0, 0, 0]], "topic T: read_queue_nums 0"), ([["T"], ["T"]], "topic T is listed twice"), ([5], "")],
)
def test_file_with_topics_that_cannot_be(path: Path, topics: list[Any], message: str) -> None:
    """A file that somebody has made by hand, checksum and all, is checked like every other way in."""
    write_sealed(path, {"version": 1, "data_version": [0, 0, 0], "topics": topics})

    with pytest.raises(TopicStateError, match=f"^state file {path} cannot be used: {message}"):
        table_of(state_file=path)


def test_file_that_cannot_be_written_changes_nothing(path: Path) -> None:
    """The change is refused, the table and its version are as they were, and the next one that can be kept is."""
    table = table_of(ORDERS, state_file=path)
    before = table.snapshot()
    content = path.read_bytes()
    path.unlink()
    path.mkdir()

    changes: list[Change] = [lambda: table.create(BILLS), lambda: table.delete("orders"), lambda: table.bump(1)]
    for change in changes:
        with pytest.raises(IsADirectoryError):
            change()

    assert before == table.snapshot()
    path.rmdir()
    path.write_bytes(content)
    table.create(BILLS)
    assert 1 == table.data_version.counter
    assert [path] == list(path.parent.iterdir())


def test_missing_directory_is_an_error_at_once(tmp_path: Path) -> None:
    """And not with the first change, days later."""
    with pytest.raises(FileNotFoundError, match="gone"):
        table_of(state_file=tmp_path / "gone" / "topics.json")
