"""The content of the next registration with a server: everything, or the changes that were not sent yet."""

from namesrv_broker_agent.topics import TopicChange
from namesrv_remoting.bodies.topic import TopicConfig


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
    def is_complete(self) -> bool:
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
        """The change to send now, None for a full registration.

        The change counts as sent from this moment; after a failure, the caller requires a full registration.
        """
        change = None
        if not self.needs_full:
            changed = tuple(topic for topic in self._topics.values() if topic is not None)
            change = TopicChange(changed, tuple(name for name, topic in self._topics.items() if topic is None))
        self.needs_full = self.asks_master = False
        self._topics.clear()
        return change
