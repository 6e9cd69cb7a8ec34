"""The topics of a broker and their DataVersion, with the file that keeps them over restarts."""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import Permission
from namesrv_runtime.durable_file import enveloped, remove_leftovers, unseal, write_sealed

# In UTF-8: RocketMQ's compressed registration counts bytes.
MAX_TOPIC_BYTES: Final = 255
# 4 read, 2 write, 1 inherit
PERMS: Final = range(8)
QUEUE_NUMS: Final = range(1, 65_536)
SYS_FLAGS: Final = range(1 << 31)
STATE_VERSIONS: Final = range(1 << 63)

_FILE_VERSION: Final = 1
# of state files until 0.1.0: the content is a text
_OLD_ENVELOPE: Final = re.compile(rb'\{"sha256": "([0-9a-f]{64})", "content": (".*")\}', re.DOTALL)


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
    name: object = topic.topic_name
    # a lone surrogate is not printable, so that every name has its UTF-8
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or " " in name
        or not 0 < len(name.encode()) <= MAX_TOPIC_BYTES
    ):
        raise ValueError(
            f"invalid topic name {name!r}: must be 1 to {MAX_TOPIC_BYTES} bytes of printable characters without blanks"
        )
    if not _is_one_of(PERMS, topic.perm):
        raise ValueError(f"topic {name}: perm {topic.perm!r} is not between 0 and 7")
    for what, number in (("read_queue_nums", topic.read_queue_nums), ("write_queue_nums", topic.write_queue_nums)):
        if not _is_one_of(QUEUE_NUMS, number):
            raise ValueError(f"topic {name}: {what} {number!r} is not between 1 and {QUEUE_NUMS.stop - 1}")
    if not _is_one_of(SYS_FLAGS, topic.topic_sys_flag):
        raise ValueError(f"topic {name}: topic_sys_flag {topic.topic_sys_flag!r} is not a non-negative 32-bit integer")
    return topic


def _is_one_of(allowed: range, number: object) -> bool:
    # True and 6.0 are in a range, too, and no server reads them as numbers of a topic
    return isinstance(number, int) and not isinstance(number, bool) and number in allowed


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
        # Topics by name and their version: one value, because a change may be made in another thread than the one that
        # registers. Old topics under a new version would hide the change from Apache's server for ever.
        self._held = (_by_name(topics), DataVersion(0, 0, self._now_ms()))
        self._restore()

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    @property
    def _topics(self) -> dict[str, TopicConfig]:
        return self._held[0]

    @property
    def data_version(self) -> DataVersion:
        """The version of the topics as they are now."""
        return self._held[1]

    def __repr__(self) -> str:
        return f"<TopicTable [{len(self._topics)} topics | version {self.data_version.counter}]>"

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics as they are now."""
        return dict(self._topics)

    def all(self) -> Sequence[TopicConfig]:
        """The topics as they are now, in the order of their creation."""
        return tuple(self._topics.values())

    def snapshot(self) -> tuple[Sequence[TopicConfig], DataVersion]:
        """The topics as they are now, in the order of their creation, and the version that stands for just these."""
        topics, version = self._held
        return tuple(topics.values()), version

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

    def set_perm(self, name: str, perm: Permission) -> TopicChange:
        """Change who may read (4) and write (2). Raises ValueError for an unknown topic or a permission outside 0-7."""
        return self.update(_with_perm(self._known(name), perm))

    def replace_all(self, topics: Iterable[TopicConfig]) -> TopicChange:
        """Make the table this one; what differs, nothing if nothing does. Raises ValueError."""
        wanted = _by_name(topics)
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
        self._held = (topics, version)
        return TopicChange(tuple(changed.values()), tuple(deleted))

    def next_version(self, state_version: int | None = None) -> DataVersion:
        """The version after this one."""
        known = self.data_version
        return DataVersion(
            known.counter + 1, known.state_version if state_version is None else state_version, self._now_ms()
        )

    def bump(self, state_version: int | None = None) -> None:
        """Count the version up although no topic changed: the broker's role did. Raises ValueError."""
        if state_version is not None and not _is_one_of(STATE_VERSIONS, state_version):
            raise ValueError(f"state_version {state_version!r} is not a non-negative 64-bit integer")
        version = self.next_version(state_version)
        self._save(self._topics, version)
        self._held = (self._topics, version)

    def bump_for_this_life(self) -> None:
        """The same for what no restart survives, and so without the file: it may be full when a broker is to go."""
        self._held = (self._topics, self.next_version())

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)

    # -- the file -----------------------------------------------------------------------------------------------------

    def _save(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        if self._file is not None:
            write_sealed(self._file, _document(topics, version))

    def _restore(self) -> None:
        """Take over what the broker's last life left; topics given by the caller are added to it, and win."""
        if self._file is None:
            return
        remove_leftovers(self._file)
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            self._save(self._topics, self.data_version)
            return
        topics, version = _decoded(data, self._file)
        given, self._held = self._topics, (topics, version)
        differing = {name: topic for name, topic in given.items() if topics.get(name) != topic}
        if differing:
            self._change(differing, ())


def _by_name(topics: Iterable[TopicConfig]) -> dict[str, TopicConfig]:
    found: dict[str, TopicConfig] = {}
    for topic in topics:
        if checked_topic(topic).topic_name in found:
            raise ValueError(f"topic {topic.topic_name} is listed twice")
        found[topic.topic_name] = topic
    return found


def _with_perm(topic: TopicConfig, perm: Permission) -> TopicConfig:
    return TopicConfig(topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, int(perm), topic.topic_sys_flag)


def _document(topics: Mapping[str, TopicConfig], version: DataVersion) -> dict[str, Any]:
    return {
        "version": _FILE_VERSION,
        "data_version": [version.counter, version.state_version, version.timestamp],
        "topics": [
            [topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag]
            for topic in topics.values()
        ],
    }


def _decoded(data: bytes, path: Path) -> tuple[dict[str, TopicConfig], DataVersion]:
    try:
        old = _OLD_ENVELOPE.fullmatch(data)
        if old is not None:
            data = enveloped(old[1], json.loads(old[2]).encode())
        content = unseal(data, _FILE_VERSION)
        topics = _by_name(TopicConfig(*fields) for fields in content["topics"])
        return topics, DataVersion(*content["data_version"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TopicStateError(f"state file {path} cannot be used: {error}") from error
