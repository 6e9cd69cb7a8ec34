"""Which topics does this broker have, and how do they change?"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.durable_file import write_atomically

MAX_TOPIC_CHARACTERS: Final = 255
# 4 read, 2 write, 1 inherit
PERMS: Final = range(8)
QUEUE_NUMS: Final = range(1, 65_536)
SYS_FLAGS: Final = range(1 << 31)


class TopicStateError(ValueError):
    """The state file is not one; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What one change did: topics created or updated, names deleted."""

    changed: tuple[TopicConfig, ...] = ()
    deleted: tuple[str, ...] = ()


def checked_topic(topic: TopicConfig) -> TopicConfig:
    """The topic, if a broker can have it.

    Raises:
        ValueError: its name, permission or a number of queues cannot be; the message names it.
    """
    name = topic.topic_name
    if not name or len(name) > MAX_TOPIC_CHARACTERS or not name.isprintable() or " " in name:
        raise ValueError(f"topic name {name!r} is not 1 to {MAX_TOPIC_CHARACTERS} printable characters without blanks")
    if topic.perm not in PERMS:
        raise ValueError(f"topic {name}: perm {topic.perm} is not between 0 and 7")
    for what, number in (("read_queue_nums", topic.read_queue_nums), ("write_queue_nums", topic.write_queue_nums)):
        if number not in QUEUE_NUMS:
            raise ValueError(f"topic {name}: {what} {number} is not between 1 and {QUEUE_NUMS.stop - 1}")
    if topic.topic_sys_flag not in SYS_FLAGS:
        raise ValueError(f"topic {name}: topic_sys_flag {topic.topic_sys_flag} is not a non-negative 32-bit integer")
    return topic


class TopicTable:
    """The topics of one broker and their DataVersion, kept in a file if one is given.

    Every change counts the DataVersion up; nothing is ever sent under a version that stands for something else.
    """

    def __init__(
        self,
        topics: Iterable[TopicConfig] = (),
        state_file: Path | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._wall = wall
        self._file = state_file
        self._topics: dict[str, TopicConfig] = {}
        for topic in topics:
            if topic.topic_name in self._topics:
                raise ValueError(f"topic {topic.topic_name} is given twice")
            self._topics[topic.topic_name] = checked_topic(topic)
        self.data_version = DataVersion(0, 0, self._now_ms())
        self._restore()

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __repr__(self) -> str:
        return f"<TopicTable [{len(self._topics)} topics | version {self.data_version.counter}]>"

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics as they are now."""
        return dict(self._topics)

    def all(self) -> Sequence[TopicConfig]:
        """The topics as they are now, in the order of their creation."""
        return tuple(self._topics.values())

    def create(self, topic: TopicConfig) -> TopicChange:
        """Add a topic. Raises ValueError if it exists or cannot be."""
        if topic.topic_name in self._topics:
            raise ValueError(f"topic {topic.topic_name} exists already")
        return self._change({topic.topic_name: checked_topic(topic)}, ())

    def update(self, topic: TopicConfig) -> TopicChange:
        """Replace a topic. Raises ValueError if it does not exist or cannot be."""
        self._known(topic.topic_name)
        return self._change({topic.topic_name: checked_topic(topic)}, ())

    def delete(self, name: str) -> TopicChange:
        """Remove a topic. Raises ValueError if it does not exist."""
        self._known(name)
        return self._change({}, (name,))

    def set_perm(self, name: str, perm: int) -> TopicChange:
        """Change who may read (4) and write (2). Raises ValueError for an unknown topic or a permission outside 0-7."""
        return self.update(_with_perm(self._known(name), perm))

    def replace_all(self, topics: Iterable[TopicConfig]) -> TopicChange:
        """Make the table this one; what differs, nothing if nothing does. Raises ValueError."""
        wanted: dict[str, TopicConfig] = {}
        for topic in topics:
            if topic.topic_name in wanted:
                raise ValueError(f"topic {topic.topic_name} is given twice")
            wanted[topic.topic_name] = checked_topic(topic)
        changed = {name: topic for name, topic in wanted.items() if self._topics.get(name) != topic}
        deleted = tuple(name for name in self._topics if name not in wanted)
        if not changed and not deleted:
            return TopicChange()
        return self._change(changed, deleted)

    def _known(self, name: str) -> TopicConfig:
        try:
            return self._topics[name]
        except KeyError:
            raise ValueError(f"topic {name!r} does not exist") from None

    def _change(self, changed: Mapping[str, TopicConfig], deleted: Sequence[str]) -> TopicChange:
        topics = {**self._topics, **changed}
        for name in deleted:
            del topics[name]
        version = self.next_version()
        # the file first: what is told to the world must survive a restart
        self._save(topics, version)
        self._topics, self.data_version = topics, version
        return TopicChange(tuple(changed.values()), tuple(deleted))

    def next_version(self, state_version: int | None = None) -> DataVersion:
        """The version after this one."""
        known = self.data_version
        return DataVersion(
            known.counter + 1, known.state_version if state_version is None else state_version, self._now_ms()
        )

    def bump(self, state_version: int | None = None) -> None:
        """Count the version up although no topic changed: the broker's role did."""
        version = self.next_version(state_version)
        self._save(self._topics, version)
        self.data_version = version

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)

    # -- the file -----------------------------------------------------------------------------------------------------

    def _save(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        if self._file is not None:
            write_atomically(self._file, _encoded(topics, version))

    def _restore(self) -> None:
        """Take over what the broker's last life left; topics given by the caller are added to it, and win."""
        if self._file is None:
            return
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            self._save(self._topics, self.data_version)
            return
        topics, version = _decoded(data, self._file)
        given, self._topics, self.data_version = self._topics, topics, version
        differing = {name: topic for name, topic in given.items() if topics.get(name) != topic}
        if differing:
            self._change(differing, ())


def _with_perm(topic: TopicConfig, perm: int) -> TopicConfig:
    return TopicConfig(topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, perm, topic.topic_sys_flag)


def _encoded(topics: Mapping[str, TopicConfig], version: DataVersion) -> bytes:
    content: dict[str, Any] = {
        "version": 1,
        "data_version": [version.counter, version.state_version, version.timestamp],
        "topics": [
            [topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag]
            for topic in topics.values()
        ],
    }
    text = json.dumps(content, separators=(",", ":"))
    return json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}).encode()


def _decoded(data: bytes, path: Path) -> tuple[dict[str, TopicConfig], DataVersion]:
    try:
        envelope = json.loads(data)
        text = envelope["content"]
        if hashlib.sha256(text.encode()).hexdigest() != envelope["sha256"]:
            raise TopicStateError(f"state file {path}: the checksum is wrong")
        content = json.loads(text)
        if content["version"] != 1:
            raise TopicStateError(f"state file {path}: version {content['version']} is not 1")
        topics = [checked_topic(TopicConfig(*fields)) for fields in content["topics"]]
        return {topic.topic_name: topic for topic in topics}, DataVersion(*content["data_version"])
    except TopicStateError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TopicStateError(f"state file {path} is damaged: {error}") from error
