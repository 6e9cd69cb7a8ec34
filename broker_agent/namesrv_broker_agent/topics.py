"""The topics of a broker and their DataVersion, with the state file that keeps both over restarts."""

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import Permission
from namesrv_runtime.durable_file import remove_leftovers, unseal, write_sealed

# Bytes in UTF-8, because RocketMQ's compressed registration counts bytes.
MAX_TOPIC_BYTES: Final = 255
STATE_VERSIONS: Final = range(1 << 63)
_NUMBERS: Final = (
    # 4 read, 2 write, 1 inherit
    ("perm", range(8), "between 0 and 7"),
    ("read_queue_nums", range(1, 65_536), "between 1 and 65535"),
    ("write_queue_nums", range(1, 65_536), "between 1 and 65535"),
    ("topic_sys_flag", range(1 << 31), "a non-negative 32-bit integer"),
)

_FILE_VERSION: Final = 1


class TopicStateError(ValueError):
    """The state file is damaged, or of another version; the message says why."""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The difference that one change made: topics created or updated, names of deleted topics."""

    changed: tuple[TopicConfig, ...] = ()
    deleted: tuple[str, ...] = ()


# topics, and the version of exactly these topics
TopicSnapshot = tuple[Sequence[TopicConfig], DataVersion]


def checked_topic(topic: TopicConfig) -> TopicConfig:
    """Return the topic unchanged. Raises a TypeError for another type, a ValueError that names an invalid field."""
    if not isinstance(topic, TopicConfig):
        raise TypeError(f"{topic!r} is not a TopicConfig")
    name: object = topic.topic_name
    # A lone surrogate is not printable, so every accepted name can be encoded in UTF-8.
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or " " in name
        or not 0 < len(name.encode()) <= MAX_TOPIC_BYTES
    ):
        raise ValueError(
            f"invalid topic name {name!r}: must be 1 to {MAX_TOPIC_BYTES} bytes of printable characters without blanks"
        )
    for member, allowed, description in _NUMBERS:
        number = getattr(topic, member)
        if not _is_one_of(allowed, number):
            raise ValueError(f"topic {name}: {member} {number!r} is not {description}")
    return topic


def _is_one_of(allowed: range, number: object) -> bool:
    # True and 6.0 are members of a range, too, but servers do not accept them as numbers.
    return isinstance(number, int) and not isinstance(number, bool) and number in allowed


class BrokerTopics:
    """The topics of one broker and their DataVersion, kept in a file if one is given.

    Every change counts up the DataVersion, so that one version never stands for two different sets of topics. With a
    file, a change raises OSError if the file cannot be written; then nothing has changed.
    """

    def __init__(
        self,
        topics: Iterable[TopicConfig] = (),
        state_file: Path | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._wall = wall
        self._file = state_file
        # Topics by name and their version, in one value, because one thread may make a change while another one
        # registers. Old topics under a new version would hide the change from Apache's server for ever.
        self._current = (by_name(topics), DataVersion(0, 0, self._now_ms()))
        self._restore()

    @property
    def _topics(self) -> dict[str, TopicConfig]:
        return self._current[0]

    @property
    def data_version(self) -> DataVersion:
        """The version of the current topics."""
        return self._current[1]

    def __repr__(self) -> str:
        return f"<BrokerTopics [{len(self._topics)} topics | version {self.data_version.counter}]>"

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The current topics by name."""
        return dict(self._topics)

    def snapshot(self) -> TopicSnapshot:
        """The current topics, in the order of their creation, and the version of exactly these topics."""
        topics, version = self._current
        return tuple(topics.values()), version

    def create(self, topic: TopicConfig) -> TopicChange:
        """Add a topic. Raises ValueError if the topic exists or is invalid."""
        if checked_topic(topic).topic_name in self._topics:
            raise ValueError(f"topic {topic.topic_name} exists already")
        return self._change((topic,))

    def update(self, topic: TopicConfig) -> TopicChange:
        """Replace a topic. Raises ValueError if the topic does not exist or is invalid."""
        self._known(checked_topic(topic).topic_name)
        return self._change((topic,))

    def delete(self, name: str) -> TopicChange:
        """Remove a topic. Raises ValueError if the topic does not exist."""
        return self._change(deleted=(self._known(name).topic_name,))

    def set_perm(self, name: str, perm: int) -> TopicChange:
        """Change the permission (4 read, 2 write). Raises ValueError for an unknown topic or an invalid permission."""
        number = int(perm) if isinstance(perm, Permission) else perm
        return self.update(msgspec.structs.replace(self._known(name), perm=number))

    def replace_all(self, topics: Iterable[TopicConfig]) -> TopicChange:
        """Replace all topics; return the difference, which may be empty. Raises ValueError."""
        wanted = by_name(topics)
        changed = tuple(topic for name, topic in wanted.items() if self._topics.get(name) != topic)
        deleted = tuple(name for name in self._topics if name not in wanted)
        return self._change(changed, deleted) if changed or deleted else TopicChange()

    def bump(self, state_version: int | None = None) -> None:
        """Count up the version without a change of topics, after a change of the broker's role. Raises ValueError."""
        if state_version is not None and not _is_one_of(STATE_VERSIONS, state_version):
            raise ValueError(f"state_version {state_version!r} is not a non-negative 64-bit integer")
        self._keep(self._topics, state_version)

    def bump_in_memory(self) -> None:
        """Count up the version without writing the file, for a state that no restart keeps: the disk may be full."""
        self._current = (self._topics, self._next_version())

    def _known(self, name: str) -> TopicConfig:
        try:
            return self._topics[name]
        except KeyError:
            raise ValueError(f"topic {name!r} does not exist") from None

    def _change(self, changed: tuple[TopicConfig, ...] = (), deleted: tuple[str, ...] = ()) -> TopicChange:
        topics = self._topics | {topic.topic_name: topic for topic in changed}
        for name in deleted:
            del topics[name]
        self._keep(topics)
        return TopicChange(changed, deleted)

    def _keep(self, topics: dict[str, TopicConfig], state_version: int | None = None) -> None:
        version = self._next_version(state_version)
        # The file is written first: a version that servers have received must survive a restart.
        self._save(topics, version)
        self._current = (topics, version)

    def _next_version(self, state_version: int | None = None) -> DataVersion:
        known = self.data_version
        state_version = known.state_version if state_version is None else state_version
        return DataVersion(known.counter + 1, state_version, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)

    def _save(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        if self._file is not None:
            document = {
                "version": _FILE_VERSION,
                "data_version": [version.counter, version.state_version, version.timestamp],
                "topics": [msgspec.structs.astuple(topic) for topic in topics.values()],
            }
            try:
                write_sealed(self._file, document)
            except OSError as error:
                # Most errors of a write name no file, and some name a temporary one.
                error.filename, error.filename2 = str(self._file), None
                raise

    def _restore(self) -> None:
        """Load the state file of an earlier process; topics given by the caller are added, and take precedence."""
        if self._file is None:
            return
        remove_leftovers(self._file)
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            self._save(self._topics, self.data_version)
            return
        given = self._topics
        restored, version = _decoded(data, self._file)
        self._current = (restored, version)
        differing = tuple(topic for name, topic in given.items() if restored.get(name) != topic)
        if differing:
            self._change(differing)


def check_state_file(path: Path) -> None:
    """Check, without a change, that the file can be used.

    Raises:
        TopicStateError: the file is damaged.
        OSError: the file cannot be read, or its directory cannot be written to.
    """
    if not path.parent.exists():
        # systemd creates the directory (StateDirectory) when the agent starts.
        return
    with suppress(FileNotFoundError):
        _decoded(path.read_bytes(), path)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))


def by_name(topics: Iterable[TopicConfig]) -> dict[str, TopicConfig]:
    """The topics by name, checked. Raises ValueError for an invalid topic or a topic that is listed twice."""
    topics_by_name: dict[str, TopicConfig] = {}
    for topic in topics:
        if checked_topic(topic).topic_name in topics_by_name:
            raise ValueError(f"topic {topic.topic_name} is listed twice")
        topics_by_name[topic.topic_name] = topic
    return topics_by_name


def _decoded(data: bytes, path: Path) -> tuple[dict[str, TopicConfig], DataVersion]:
    try:
        content = unseal(data, _FILE_VERSION)
        topics = by_name(TopicConfig(*fields) for fields in content["topics"])
        return topics, DataVersion(*content["data_version"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        advice = "move it away to start with a new version of the topics"
        raise TopicStateError(f"state file {path} cannot be used: {error}; {advice}") from error
