"""The topic table: the row of each topic, with the indexes and counts that follow from the rows.

Nearly all topics of a broker share a row (`rows.py`), and a change may touch a hundred thousand topics. So the table
has methods for the last three phases of a change (`registration.py` shows all phases), and only `apply` modifies rows
and indexes; `renew` is a small change of its own, in one step.

    plan       plan_queues, change_each             NewRows: the new row of each topic, computed once per shared row
               plan_mappings, plan_lost_mappings    NewMappings: the new static mappings of topics
      |
    prepare                                         PreparedTopics: the rows, indexes and counts after the change
      |
    apply                                           whole dictionaries go into whole dictionaries: no Python code runs
                                                    per topic

Plan and prepare yield about every millisecond; a change that is prepared must be the next one to be applied. The
invariants of the table, beside those of its rows:

1. No row is empty. A broker's topics in `of_broker` are the topics with a row that has queues on the broker.
2. A topic with static mappings has a row of its own, since the responses cached for rows contain mappings; and it has a
   mapping only for brokers on which it has queues.
3. All keys and members are the table's own strings, one for each topic.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import attrgetter, is_
from typing import Final, TypeAlias, cast

from namesrv.routeinfo.tables.rows import (
    CHUNK_TOPICS,
    IndexChange,
    NextRows,
    RowChange,
    RowChanges,
    TopicRow,
    grouped_by_row,
    index_change,
    place_in,
    queues_of,
    renewed_rows,
    rows_with_queues,
)
from namesrv_remoting.bodies.base import Steps, chunked
from namesrv_remoting.bodies.topic import TopicConfig, TopicQueueMappingInfo, logical_queues

# Names of removed topics up to this number are left, since clearing them away is not worth it.
SPARE_NAMES: Final = 10_000

_topic_name: Final = attrgetter("topic_name")
# The numbers of a topic, see `TopicNumbers`.
_numbers: Final = attrgetter("read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag")

# Topic -> its new row, None to drop the topic.
NewRows: TypeAlias = dict[str, TopicRow | None]
# (topic, broker name) -> mapping, None to drop the mapping.
NewMappings: TypeAlias = dict[tuple[str, str], TopicQueueMappingInfo | None]


@dataclass(slots=True)
class PreparedTopics:
    """A change in the form in which the table applies it."""

    row_changes: RowChanges
    # Topic -> its row, for topics that have a row after the change.
    rows: NewRows = field(default_factory=dict)
    # Broker name -> topics that the broker gains, as keys, and topics that it loses.
    joined: dict[str, dict[str, None]] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    # Differences of the table's counts.
    queue_count: int = 0
    route_count: int = 0
    mapped_count: int = 0
    # Topic -> all its mappings by broker name.
    mappings: dict[str, dict[str, TopicQueueMappingInfo]] = field(default_factory=dict)


class TopicTable:
    """Topics, their shared rows and static mappings, and the topics of each broker name."""

    def __init__(self) -> None:
        # Topic -> its row.
        self.rows: dict[str, TopicRow] = {}
        # Topic -> broker name -> static-topic mapping; never an empty dictionary.
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        # Broker name -> the topics that have a queue on it, as keys. Topics that were registered together lie together
        # in memory, as do their entries in every dictionary: in the order of a set, each access would wait for memory.
        self.of_broker: dict[str, dict[str, None]] = {}
        # Topic -> the table's own string, also for some topics that have no row any more.
        self.names: dict[str, str] = {}
        # Numbers of routes (a topic on a broker name is one) and of queues in all rows.
        self.route_count = 0
        self.queue_count = 0
        # Number of logical queues in all mappings.
        self.mapped_count = 0

    def __repr__(self) -> str:
        return f"<TopicTable [{len(self.rows)} topics | {self.route_count} routes | {self.queue_count} queues]>"

    def names_of(self, topics: Sequence[str]) -> list[str]:
        """Return the table's own strings of topics that are about to change."""
        return [*map(self.names.setdefault, topics, topics)]

    # -- plan ---------------------------------------------------------------------------------------------------------

    def change_each(
        self, new_rows: NewRows, topics: Iterable[str], change: Callable[[TopicRow], TopicRow | None]
    ) -> Steps[None]:
        """Enter the changed row of each of these topics into `new_rows`; a row with equal queues stays."""

        def stays_if_equal(row: TopicRow | None, _: None) -> TopicRow | None:
            after = change(cast("TopicRow", row))
            return row if queues_of(after) == queues_of(row) else after

        next_rows = NextRows(stays_if_equal)
        for names in chunked(topics, CHUNK_TOPICS):
            rows = [*map(self.rows.__getitem__, names)]
            for members, row, _ in grouped_by_row(names, rows, rows):
                after = next_rows.after(row, None)
                if after is not row:
                    new_rows.update(dict.fromkeys(members, after))
            if len(names) == CHUNK_TOPICS:
                yield

    def plan_queues(
        self, new_rows: NewRows, broker_name: str, configs: Collection[TopicConfig], *, without_perm: int
    ) -> Steps[None]:
        """Enter the rows of topics that a broker registers: the registered queues count, with any DataVersion.

        Java keeps a known topic unchanged while the DataVersion equals the stored one. If the registration of a changed
        topic is lost there, the next changed topic brings the newest DataVersion, and every full registration that
        follows looks unchanged.
        """
        next_rows = rows_with_queues(broker_name, without_perm=without_perm)
        for chunk in chunked(configs, CHUNK_TOPICS):
            topics = self.names_of([*map(_topic_name, chunk)])
            befores, registered = [*map(self.rows.get, topics)], [*map(_numbers, chunk)]
            first, numbers = befores[0], registered[0]
            if registered.count(numbers) == len(registered) and all(map(is_, befores, repeat(first))):
                # Nearly always all topics are equal; then no Python code runs per topic.
                after = next_rows.after(first, numbers)
                if after is not first:
                    new_rows.update(zip(topics, repeat(after)))
                elif new_rows:
                    _enter_each(new_rows, topics, befores, befores)
            else:
                _enter_each(new_rows, topics, befores, [*map(next_rows.after, befores, registered)])
            next_rows.forget_many()
            if len(chunk) == CHUNK_TOPICS:
                yield

    def plan_mappings(
        self,
        new_rows: NewRows,
        new_mappings: NewMappings,
        broker_name: str,
        mappings: Mapping[str, TopicQueueMappingInfo],
    ) -> Steps[None]:
        """Enter the static mappings that a broker registers, for topics that have queues on the broker."""
        for number, (topic, mapping) in enumerate(mappings.items(), start=1):
            row = new_rows.get(topic, self.rows.get(topic))
            if place_in(queues_of(row), broker_name)[1]:
                new_mappings[topic, broker_name] = mapping
            if number % CHUNK_TOPICS == 0:
                yield

    def plan_lost_mappings(
        self, new_mappings: NewMappings, broker_name: str, mappings: Mapping[str, TopicQueueMappingInfo]
    ) -> Steps[None]:
        """Drop the static mappings of a broker that are not among those that the broker registers."""
        topics: Collection[str] = self.of_broker.get(broker_name, {})
        # The search visits the fewer topics: those of the broker, or those with mappings, of which there may be none.
        if len(self.mappings) < len(topics):
            topics = self.mappings
        for number, topic in enumerate(topics, start=1):
            if topic not in mappings and broker_name in self.mappings.get(topic, ()):
                new_mappings[topic, broker_name] = None
            if number % CHUNK_TOPICS == 0:
                yield

    # -- prepare ------------------------------------------------------------------------------------------------------

    def prepare(self, new_rows: NewRows, new_mappings: NewMappings, moved: Iterable[str]) -> Steps[PreparedTopics]:
        """Prepare new rows and mappings, and the renewal of all routes with a broker name in `moved`."""
        yield from self._forget_names(new_rows)
        yield from self._give_own_rows(new_rows, new_mappings)
        prepared = PreparedTopics(RowChanges(new_rows))
        yield from self._prepare_indexes(prepared)
        for number, ((topic, broker_name), mapping) in enumerate(new_mappings.items(), start=1):
            self._prepare_mapping(prepared, topic, broker_name, mapping)
            if number % CHUNK_TOPICS == 0:
                yield
        yield from self._prepare_renewal(prepared.row_changes, moved)
        yield from self._prepare_rows(prepared)
        return prepared

    def _forget_names(self, new_rows: Collection[str]) -> Steps[None]:
        """Drop the names of topics that have no row and get none, once there are many."""
        if len(self.names) > len(self.rows) + len(new_rows) + SPARE_NAMES:
            for number, topic in enumerate(list(self.names), start=1):
                if topic not in self.rows and topic not in new_rows:
                    del self.names[topic]
                if number % CHUNK_TOPICS == 0:
                    yield

    def _give_own_rows(self, new_rows: NewRows, new_mappings: NewMappings) -> Steps[None]:
        """Give topics whose static mappings change rows of their own."""
        for number, ((topic, broker_name), mapping) in enumerate(new_mappings.items(), start=1):
            if self.mappings.get(topic, {}).get(broker_name) != mapping:
                row = new_rows[topic] if topic in new_rows else self.rows.get(topic)
                if row is not None:
                    new_rows[self.names.setdefault(topic, topic)] = TopicRow(row.queues)
            if number % CHUNK_TOPICS == 0:
                yield

    def _prepare_indexes(self, prepared: PreparedTopics) -> Steps[None]:
        row_changes = prepared.row_changes
        for names in chunked(row_changes.rows, CHUNK_TOPICS):
            befores = [*map(self.rows.get, names)]
            chunk = grouped_by_row(names, befores, [*map(row_changes.rows.__getitem__, names)])
            row_changes.note(chunk)
            for topics, before, after in chunk:
                self._prepare_index_change(prepared, topics, index_change(before, after))
            if len(names) == CHUNK_TOPICS:
                yield

    def _prepare_index_change(self, prepared: PreparedTopics, topics: Sequence[str], change: IndexChange) -> None:
        """Prepare the same change of the indexes for some topics; no Python code runs per topic."""
        prepared.queue_count += change.more_queues * len(topics)
        prepared.route_count += (len(change.joined) - len(change.left)) * len(topics)
        for broker_name in change.joined:
            prepared.joined.setdefault(broker_name, {}).update(dict.fromkeys(topics))
        for broker_name in change.left:
            prepared.left.setdefault(broker_name, []).extend(topics)
            for topic in topics if self.mappings else ():
                if topic in self.mappings:
                    self._prepare_mapping(prepared, topic, broker_name, None)

    def _prepare_mapping(
        self, prepared: PreparedTopics, topic: str, broker_name: str, mapping: TopicQueueMappingInfo | None
    ) -> None:
        by_broker = prepared.mappings.get(topic)
        if by_broker is None:
            by_broker = prepared.mappings[topic] = dict(self.mappings.get(topic, {}))
        prepared.mapped_count += logical_queues(mapping) - logical_queues(by_broker.get(broker_name))
        if mapping is None:
            by_broker.pop(broker_name, None)
        else:
            by_broker[broker_name] = mapping

    def _prepare_renewal(self, row_changes: RowChanges, moved: Iterable[str]) -> Steps[None]:
        """Renew the rows of topics on these brokers whose queues stay: their routes change all the same."""
        topics = chain.from_iterable(self.of_broker.get(name, ()) for name in moved)
        renewal = renewed_rows()
        for chunk in chunked(topics, CHUNK_TOPICS):
            touched = [topic for topic in dict.fromkeys(chunk) if topic not in row_changes.rows]
            if touched:
                row_changes.add(self._renewed(touched, renewal))
            if len(chunk) == CHUNK_TOPICS:
                yield

    def _renewed(self, topics: Sequence[str], renewal: NextRows[None]) -> Sequence[RowChange]:
        """Return the changes to new rows for topics whose queues stay the same."""
        rows = [*map(self.rows.get, topics)]
        return [
            RowChange(members, before, renewal.after(before, None))
            for members, before, _ in grouped_by_row(topics, rows, rows)
        ]

    def _prepare_rows(self, prepared: PreparedTopics) -> Steps[None]:
        """Select the topics that have a row after the change: nearly always all topics of the change, or no topic."""
        rows, gone = prepared.row_changes.rows, prepared.row_changes.gone
        prepared.rows = rows if not gone else {} if len(gone) == len(rows) else rows.copy()
        if prepared.rows and gone:
            for chunk in chunked(gone, CHUNK_TOPICS):
                deque(map(prepared.rows.pop, chunk), maxlen=0)
                yield

    # -- apply --------------------------------------------------------------------------------------------------------

    def apply(self, prepared: PreparedTopics) -> None:
        """Apply a change in one step, of which no other task sees a part."""
        self.queue_count += prepared.queue_count
        self.route_count += prepared.route_count
        self.mapped_count += prepared.mapped_count
        # Only built-in functions run per topic in this method, since it must not yield.
        self.rows.update(cast("Mapping[str, TopicRow]", prepared.rows))
        deque(map(self.rows.pop, prepared.row_changes.gone, repeat(None)), maxlen=0)
        for broker_name, topics in prepared.joined.items():
            known = self.of_broker.setdefault(broker_name, topics)
            if known is not topics:
                known.update(topics)
        for broker_name, leaving in prepared.left.items():
            remaining = self.of_broker[broker_name]
            if len(remaining) == len(leaving):
                del self.of_broker[broker_name]
            else:
                deque(map(remaining.pop, leaving), maxlen=0)
        for topic, by_broker in prepared.mappings.items():
            if by_broker:
                self.mappings[topic] = by_broker
            else:
                self.mappings.pop(topic, None)

    def renew(self, topics: Iterable[str]) -> RowChanges:
        """Give topics new rows with equal queues, in one step: their routes change for reasons outside the tables.

        Names without a route are ignored.
        """
        row_changes, renewal = RowChanges(), renewed_rows()
        for chunk in chunked([topic for topic in dict.fromkeys(topics) if topic in self.rows], CHUNK_TOPICS):
            row_changes.add(self._renewed(chunk, renewal))
        self.rows.update((topic, row) for topic, row in row_changes.rows.items() if row is not None)
        return row_changes


def _enter_each(
    new_rows: NewRows,
    topics: Sequence[str],
    befores: Sequence[TopicRow | None],
    afters: Sequence[TopicRow | None],
) -> None:
    for topic, before, after in zip(topics, befores, afters, strict=True):
        if after is not before:
            new_rows[topic] = after
        elif topic in new_rows:
            # A body may name a topic twice: the last entry counts, as in Java.
            del new_rows[topic]
