"""The broker's registration with one server: what the server has accepted, and what it still lacks."""

from namesrv_broker_agent.own_broker import Role
from namesrv_broker_agent.topics import TopicChange, TopicSnapshot
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig


class LinkRegistration:
    """What one server has accepted of the broker, what it was not sent yet, and why it lacks the current topics."""

    def __init__(self) -> None:
        self.unsent = UnsentChanges()
        # the last accepted registration, over any connection
        self._accepted: Accepted | None = None
        # True while the server has a registration of the broker over the current connection
        self.is_current = False
        # the reason that the server has not accepted the broker's current topics; None once it has
        self.problem: str | None = None

    def __repr__(self) -> str:
        return f"<LinkRegistration [{'current' if self.is_current else 'none'} | {len(self.unsent)} pending]>"

    @property
    def version(self) -> DataVersion | None:
        """The version of the topics that the server has, for a heartbeat; None without a registration.

        If the server refuses newer topics, heartbeats keep those that it accepted.
        """
        return self._accepted.version if self.is_current and self._accepted is not None else None

    def begin_again(self) -> None:
        """Require a full registration over a new connection."""
        self.is_current = False
        self.unsent.begin_again()

    def forgotten(self) -> None:
        """Require a full registration, because the server does not know the broker, or asks for all of its topics."""
        self.is_current = False
        self.unsent.needs_full = True

    def accepted(self, change: TopicChange | None, snapshot: TopicSnapshot, role: Role) -> None:
        """Note that the server has accepted the topics of the snapshot, or the change that led to the snapshot."""
        if change is None or self._accepted is None:
            self._accepted = Accepted(snapshot, role)
        else:
            self._accepted.add(change, snapshot[1], role)
        self.is_current, self.problem = True, None

    def replacement_for(self, refused: TopicSnapshot, role: Role) -> TopicSnapshot | None:
        """The accepted topics to register instead of refused ones; None without any, or if they are registered.

        Without this replacement, from the next reconnect on, one refused topic would keep all topics of the broker out
        of the server's table, and no deletion or change of the broker's role would reach the server.
        """
        if self._accepted is None:
            return None
        replacement = self._accepted.replacement_for(refused)
        if replacement is None:
            return None
        is_registered = self.is_current and self._accepted.has(replacement, role)
        return None if is_registered else replacement

    def replacement_accepted(self, snapshot: TopicSnapshot, role: Role) -> None:
        """Note that the server has accepted earlier topics instead of refused ones, so that the problem stays."""
        self._accepted, self.is_current = Accepted(snapshot, role), True


class UnsentChanges:
    """The changes that one server was not sent yet: none, some topics, or everything."""

    def __init__(self) -> None:
        # True if the next registration has to be a full one
        self.needs_full = True
        # True if a slave has to register again to learn its master
        self.asks_master = False
        # topics changed since the last registration that was sent: name -> topic, None for deleted
        self._topics: dict[str, TopicConfig | None] = {}

    def __len__(self) -> int:
        """Number of changed topics."""
        return len(self._topics)

    @property
    def is_due(self) -> bool:
        """True if a registration has to be sent before the next heartbeat."""
        return self.needs_full or self.asks_master or bool(self._topics)

    @property
    def has_sent_all(self) -> bool:
        """True if the server has been sent all topics and settings of the broker."""
        return not (self.needs_full or self._topics)

    def add(self, change: TopicChange) -> None:
        """Add changed topics, unless the full registration that is due contains them anyway.

        For that reason, changes do not pile up while the server is unreachable.
        """
        if not self.needs_full:
            self._topics.update((topic.topic_name, topic) for topic in change.changed)
            self._topics.update(dict.fromkeys(change.deleted))

    def begin_again(self) -> None:
        """Require a full registration over a new connection, and forget the topics that it contains anyway."""
        self.needs_full = True
        self._topics.clear()

    def take(self) -> TopicChange | None:
        """The change to send now, None for a full registration; an empty change only requests the current master.

        The change counts as sent from this moment; after a failure, the caller requires a full registration.
        """
        change = None
        if not self.needs_full:
            changed = tuple(topic for topic in self._topics.values() if topic is not None)
            change = TopicChange(changed, tuple(name for name, topic in self._topics.items() if topic is None))
        self.needs_full = self.asks_master = False
        self._topics.clear()
        return change


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

        The broker may have changed its topics again since this change was sent, so the accepted topics are not always
        those of the broker.
        """
        self._topics.update((topic.topic_name, topic) for topic in change.changed)
        for name in change.deleted:
            self._topics.pop(name, None)
        self.version, self._role = version, role

    def has(self, snapshot: TopicSnapshot, role: Role) -> bool:
        """True if the server has accepted these topics, in this role, and nothing since."""
        return (tuple(snapshot[0]), role) == (tuple(self._topics.values()), self._role)

    def replacement_for(self, refused: TopicSnapshot) -> TopicSnapshot | None:
        """The topics to register instead of refused ones, under the accepted version; None if they are the same.

        These are the broker's current topics without those that the server has never accepted. If nothing is left out,
        a change of a topic was refused: then the result is the topics as the server accepted them.
        """
        refused_topics = tuple(refused[0])
        current = {topic.topic_name: topic for topic in refused_topics}
        without_new_topics = tuple(current[name] for name in self._topics if name in current)
        if without_new_topics != refused_topics:
            return without_new_topics, self.version
        as_accepted = tuple(self._topics.values())
        return None if as_accepted == refused_topics else (as_accepted, self.version)
