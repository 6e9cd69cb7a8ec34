"""The topic table keeps its rows, indexes and counts in step: the invariants of `namesrv.routeinfo.topic_table`."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.routeinfo.rows import CHUNK_TOPICS, queues_in, row_with
from namesrv.routeinfo.topic_table import NewMappings, NewRows, PreparedTopics, TopicTable
from namesrv_remoting.bodies.topic import TopicConfig, TopicQueueMappingInfo
from tests.support.route_builders import queue_data
from tests.support.steps import finished

BROKERS, TOPICS = ("a", "b", "c"), ("t1", "t2", "t3", "t4")
MAPPINGS = [TopicQueueMappingInfo(topic="t1", epoch=epoch) for epoch in (1, 2)]
# Queues by topic that one broker registers, the topics that it drops, and its static mappings.
registrations = st.tuples(
    st.sampled_from(BROKERS),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 2), max_size=4),
    st.sets(st.sampled_from(TOPICS)),
    st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(MAPPINGS), max_size=2),
)
# Queues by broker name, for each topic.
Queues = dict[str, dict[str, int]]


def prepared(
    table: TopicTable,
    broker: str,
    queues: dict[str, int],
    dropped: set[str],
    mappings: dict[str, TopicQueueMappingInfo],
) -> PreparedTopics:
    """A registration, planned and prepared."""
    rows: NewRows = {}
    new_mappings: NewMappings = {}
    configs = [TopicConfig(topic, number, number, 6, 0) for topic, number in queues.items()]
    leaving = [topic for topic in table.of_broker.get(broker, ()) if topic in dropped - queues.keys()]
    finished(table.plan_queues(rows, broker, configs, without_perm=0))
    finished(table.change_each(rows, leaving, lambda row: row_with(row, broker, None)))
    finished(table.plan_mappings(rows, new_mappings, broker, mappings))
    finished(table.plan_lost_mappings(new_mappings, broker, mappings))
    return finished(table.prepare(rows, new_mappings, ()))


def contents(table: TopicTable) -> dict[str, Any]:
    """Rows by topic, and everything that follows from them."""
    return {
        "rows": {topic: row.queues for topic, row in table.rows.items()},
        "mappings": table.mappings,
        "of_broker": table.of_broker,
        "counts": (table.route_count, table.queue_count),
    }


def expected(queues: Queues, mappings: dict[str, dict[str, TopicQueueMappingInfo]]) -> dict[str, Any]:
    """The same, computed from scratch."""
    rows = {
        topic: tuple(queue_data(broker, of_topic[broker]) for broker in sorted(of_topic))
        for topic, of_topic in queues.items()
        if of_topic
    }
    of_broker = {
        broker: {topic: None for topic, row in rows.items() if any(queues.broker_name == broker for queues in row)}
        for broker in BROKERS
    }
    return {
        "rows": rows,
        "mappings": {topic: by_broker for topic, by_broker in mappings.items() if by_broker},
        "of_broker": {broker: topics for broker, topics in of_broker.items() if topics},
        "counts": (sum(map(len, rows.values())), sum(map(queues_in, rows.values()))),
    }


@given(st.lists(registrations, max_size=8))
def test_indexes_follow_from_the_rows(steps: list[Any]) -> None:
    """After any registrations the table equals one computed from scratch; a prepared change is not visible yet."""
    table = TopicTable()
    queues: Queues = {topic: {} for topic in TOPICS}
    mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {topic: {} for topic in TOPICS}
    for broker, named, dropped, mapped in steps:
        rows_before, before = dict(table.rows), deepcopy(contents(table))
        change = prepared(table, broker, named, dropped, mapped)
        assert contents(table) == before
        table.apply(change)

        for topic in TOPICS:
            if topic in named:
                queues[topic][broker] = named[topic]
            elif topic in dropped:
                queues[topic].pop(broker, None)
            mappings[topic].pop(broker, None)
            if topic in mapped and broker in queues[topic]:
                mappings[topic][broker] = mapped[topic]
        assert contents(table) == expected(queues, mappings)
        # Exactly the topics of the change have another row.
        changed = {topic for topic in TOPICS if table.rows.get(topic) is not rows_before.get(topic)}
        assert changed == change.row_changes.rows.keys()
        # Topics share a row only without static mappings.
        shared = [row for topic, row in table.rows.items() if topic in table.mappings]
        assert all(sum(row is other for other in table.rows.values()) == 1 for row in shared)
        assert all(own is table.names[topic] for topic in table.rows for own in table.names if own == topic)


def test_lost_mappings_are_sought_among_the_topics_of_their_broker() -> None:
    """A registration costs no step for the static mappings of other brokers, of which there may be a million."""
    table, names = TopicTable(), [f"s{number}" for number in range(2 * CHUNK_TOPICS)]
    mapped = {name: TopicQueueMappingInfo(topic=name) for name in names}
    table.apply(prepared(table, "a", dict.fromkeys(names, 1), set(), mapped))
    lost: NewMappings = {}

    assert list(table.plan_lost_mappings(lost, "b", {})) == []
    assert lost == {}
    finished(table.plan_lost_mappings(lost, "a", {name: mapped[name] for name in names[1:]}))
    assert lost == {("s0", "a"): None}


@pytest.mark.parametrize(("moved", "renewed"), [((), set()), (("a",), {"t1", "t2"}), (("b", "unknown"), {"t3"})])
def test_moved_broker_renews_its_topics(moved: tuple[str, ...], renewed: set[str]) -> None:
    """A moved broker gives its topics new rows with equal queues; topics that shared a row share the new one."""
    table = TopicTable()
    for broker, topics in (("a", {"t1": 1, "t2": 1}), ("b", {"t3": 1})):
        table.apply(prepared(table, broker, topics, set(), {}))
    before = dict(table.rows)

    table.apply(finished(table.prepare({}, {}, moved)))

    assert {topic for topic, row in table.rows.items() if row is not before[topic]} == renewed
    assert [row.queues for row in table.rows.values()] == [row.queues for row in before.values()]
    assert table.rows["t1"] is table.rows["t2"]
    assert repr(table) == "<TopicTable [3 topics | 3 routes | 3 queues]>"
