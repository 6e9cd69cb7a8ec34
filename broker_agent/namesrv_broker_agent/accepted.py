"""The last registration that one server accepted, which is sent again while the server refuses newer topics."""

from typing import NamedTuple

from namesrv_broker_agent.topics import TopicChange, TopicSnapshot
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig


class Role(NamedTuple):
    """The part of a registration that describes the broker itself, and not its topics."""

    broker_id: int
    # False while the broker drains
    is_writable: bool


class Accepted:
    """The topics, their version and the role of the last registration that the server accepted."""

    def __init__(self, snapshot: TopicSnapshot, role: Role) -> None:
        topics, self.version = snapshot
        self._topics: dict[str, TopicConfig] = {topic.topic_name: topic for topic in topics}
        self._role = role

    def __repr__(self) -> str:
        return f"<Accepted [{len(self._topics)} topics | version {self.version.counter} | id {self._role.broker_id}]>"

    def add(self, change: TopicChange, version: DataVersion, role: Role) -> None:
        """Note that the server has accepted changed topics.

        The table may have changed again since this change was sent, so the accepted topics are not those of the table.
        """
        self._topics.update((topic.topic_name, topic) for topic in change.changed)
        for name in change.deleted:
            self._topics.pop(name, None)
        self.version, self._role = version, role

    def has(self, snapshot: TopicSnapshot, role: Role) -> bool:
        """True if the server has accepted these topics, in this role, and nothing since."""
        return (tuple(snapshot[0]), role) == (tuple(self._topics.values()), self._role)

    def in_place_of(self, refused: TopicSnapshot) -> TopicSnapshot | None:
        """The topics to register in place of refused ones, under the accepted version; None if they are the same.

        These are the broker's current topics without those that the server has never accepted. If nothing is left out,
        a change of a topic was refused: then the result is the topics as the server accepted them.
        """
        wanted = tuple(refused[0])
        current = {topic.topic_name: topic for topic in wanted}
        left = tuple(current[name] for name in self._topics if name in current)
        if left == wanted:
            left = tuple(self._topics.values())
        return None if left == wanted else (left, self.version)
