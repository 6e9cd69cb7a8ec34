"""The event loop's half of the heartbeat log: it notes events and passes them to the writing thread.

The contract is docs/heartbeat-log.md.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from namesrv import version
from namesrv.heartbeat_log.compaction import compaction
from namesrv.heartbeat_log.late_brokers import LateBrokers
from namesrv.heartbeat_log.lines import EffectLine, EventLine, HeartbeatLines, RoutesPublished
from namesrv.heartbeat_log.served_revisions import ServedRevisions
from namesrv.net.request import Connection
from namesrv.routeinfo.tables.effects import Effect, Evicted, Registered, Scanned
from namesrv.routeinfo.tables.liveness import LivenessClock
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.routeinfo.tables.rows import RowChanges
from namesrv.settings.model import Settings
from namesrv.yielding import run_in_steps
from namesrv_remoting.bodies.base import chunked
from namesrv_runtime.clock import Clock
from namesrv_runtime.line_log.files import LineFiles, Retention
from namesrv_runtime.line_log.log import LineLog
from namesrv_runtime.line_log.queue import Item, Light
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Topics per line; for new routes these are the topics that the tables process together.
_TOPICS_PER_LINE: Final = 1000
# Topics of a line, and groups in a copy of all groups, that take as much memory in the queue as a usual line.
_TOPICS_PER_WEIGHT: Final = 8
_GROUPS_PER_WEIGHT: Final = 4
_topics: Final = attrgetter("topics")
# Time for writing the queued lines and for the last compression at the end of the process.
CLOSE_SECONDS: Final = 6.0


class HeartbeatLog:
    """The heartbeat log of one boot of the server."""

    def __init__(  # noqa: PLR0913 - the observed objects are passed by keyword
        self,
        settings: Settings,
        retention: Retention,
        boot_id: str,
        *,
        clock: Clock,
        tables: RouteTables,
        liveness: LivenessClock,
    ) -> None:
        self.late = LateBrokers(tables)
        self._clock = clock
        self._tables = tables
        self._liveness = liveness
        self._served = ServedRevisions(tables.topics.names)
        self._is_closed = False
        # Seconds from the monotonic clock to the wall clock, at the last tick or the last event that was queued as an
        # Item: heartbeats and first responses are light.
        self._wall_offset = 0.0
        self._shape = {
            "scan_interval_ms": round(settings.scan_interval_seconds * 1000),
            "broker_expiry_ms": round(settings.broker_expiry_seconds * 1000),
            "evict_on_disconnect": settings.evict_on_disconnect,
            "version": version(),
        }
        # the queue of the lines, and the threads that write and compress them
        self.lines = LineLog(
            LineFiles(
                settings.heartbeat_log_path or Path(),
                settings.nameserver_name,
                boot_id,
                retention,
            ),
            HeartbeatLines(settings.nameserver_name, boot_id, self._shape),
            report=lambda level, name, fields: event(logger, level, name, **fields),
            on_compressed=compaction(settings.heartbeat_log_compact),
        )

    def start(self) -> None:
        """Start the threads that write and compress. Raises NoThreadError."""
        self.lines.start()
        self._note(self._clock.monotonic(), EventLine(b"start", self._shape))

    async def run(self) -> None:
        """Return when the log is closed, or raise the error that ended a thread."""
        await self.lines.run()

    async def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Write the queued lines, as far as the disk manages within `seconds`; True if all are written."""
        self._note_late_pulls()
        fields = {"version": self._shape["version"], "dropped": self.lines.dropped}
        self._note(self._clock.monotonic(), EventLine(b"stop", fields))
        # Events between now and the end of the process would come after the last line.
        self._is_closed = True
        is_complete = await self.lines.close(seconds)
        if not is_complete:
            event(logger, logging.WARNING, "heartbeat_log_incomplete", lost=self.lines.queued, seconds=seconds)
        return is_complete

    def __call__(self, effect: Effect) -> None:
        """Queue the line of an effect, if it has one."""
        if not effect.line_name:
            return
        if isinstance(effect, Evicted):
            self.late.left(effect.key)
        if isinstance(effect, Scanned):
            self._note_late_pulls()
        topics = None
        if isinstance(effect, Registered):
            topics = len(self._tables.topics.of_broker.get(effect.live.broker_name, ()))
        at = effect.happened_at
        moment = self._clock.monotonic() if at is None else at + self._liveness.late_seconds
        self._note(moment, EffectLine(effect, topics))

    def touched(self, key: BrokerAddrInfo, live: BrokerLiveInfo, silent_seconds: float) -> None:
        """Queue a heartbeat."""
        monotonic = live.last_update + self._liveness.late_seconds
        self._put_light((monotonic + self._wall_offset, monotonic, key, live, silent_seconds))

    def routes_published(self, revision: int, row_changes: RowChanges) -> None:
        """Queue new routes at the moment from which they are served, without a step per topic."""
        # Pulls until now got the routes of the previous revision.
        if self.late.pulls:
            pulls, of = dict(self.late.take(row_changes.rows.keys())), self._tables.revisions.last_change_of
            self._note_pulls(
                [
                    (topic, of(topic, before), pulls[topic])
                    for topics, before, _ in chain.from_iterable(row_changes.chunks if pulls else ())
                    for topic in topics
                    if topic in pulls
                ]
            )
        groups = dict(self._tables.broker_addr_table)
        now = self._clock.monotonic()
        for part in row_changes.chunks:
            published = RoutesPublished(revision, part, row_changes.groups_before, groups)
            topics = sum(map(len, map(_topics, part)))
            self._note(now, published, 1 + topics // _TOPICS_PER_WEIGHT + len(groups) // _GROUPS_PER_WEIGHT)

    async def tick(self) -> None:
        """Update the late brokers and the offset of the wall clock."""
        self._read_wall()
        await run_in_steps(self.late.update(self._liveness.now()))

    def served(self, connection: Connection, topic: str, revision: int) -> None:
        """Note that a connection got the route of a topic at this revision."""
        if connection.is_open and self._served.note(connection, topic, revision):
            # The item is light, like a heartbeat: after a change, the next pull of every client makes one.
            monotonic = self._clock.monotonic()
            self._put_light((monotonic + self._wall_offset, monotonic, client_name(connection), topic, revision))

    def served_many(self, connection: Connection, revisions: Iterable[tuple[str, int]]) -> None:
        """Note that a connection got the routes of topics at these revisions; a topic may have no route."""
        if not connection.is_open:
            # The response does not arrive, and `gone` may have been called already.
            return
        news = self._served.note_many(connection, revisions)
        if news:
            names, numbers = zip(*news, strict=True)
            fields = {"client": client_name(connection), "topics": names, "revisions": numbers}
            self._note(self._clock.monotonic(), EventLine(b"served", fields), _weight(names))

    def gone(self, connection: Connection) -> None:
        """Note that a connection has closed."""
        if self._served.forget(connection):
            self._note(self._clock.monotonic(), EventLine(b"client_gone", {"client": client_name(connection)}))

    def pulled(self, topics: Iterable[str]) -> None:
        """Count pulls of late brokers' topics that the dispatcher answered."""
        late = self.late
        if late.topics:
            late.pulls.update(topic for topic in topics if topic in late.topics)

    def _note_late_pulls(self) -> None:
        self._note_pulls(
            [(topic, self._tables.revisions.last_change(topic), count) for topic, count in self.late.take()]
        )

    def _note_pulls(self, pulls: list[tuple[str, int, int]]) -> None:
        now = self._clock.monotonic()
        for part in chunked(pulls, _TOPICS_PER_LINE):
            topics, revisions, counts = zip(*part, strict=True)
            fields = {"topics": topics, "revisions": revisions, "counts": counts}
            self._note(now, EventLine(b"pulls", fields), _weight(part))

    def _put_light(self, item: Light) -> None:
        if not self._is_closed:
            self.lines.put(item)

    def _note(self, monotonic: float, what: Any, weight: int = 1) -> None:
        if self._is_closed:
            return
        self._read_wall()
        # The wall clock at the moment of the event, which may be a little in the past.
        self.lines.put(Item(monotonic + self._wall_offset, monotonic, what, weight))

    def _read_wall(self) -> None:
        self._wall_offset = self._clock.wall() - self._clock.monotonic()


def _weight(topics: Sequence[object]) -> int:
    return 1 + len(topics) // _TOPICS_PER_WEIGHT


def client_name(connection: Connection) -> str:
    """Return the name of a connection in the log."""
    return f"{connection.peer.address}#{connection.id}"
