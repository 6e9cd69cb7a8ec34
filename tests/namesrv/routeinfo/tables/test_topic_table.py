"""Static mappings, and new rows of moved brokers; test_state_machine.py checks the indexes."""

import pytest

from namesrv.routeinfo.tables.rows import CHUNK_TOPICS, row_with
from namesrv.routeinfo.tables.topic_table import NewMappings, NewRows, PreparedTopics, TopicTable
from namesrv_remoting.bodies.topic import TopicConfig, TopicQueueMappingInfo
from tests.support.steps import finished


def prepared(
    table: TopicTable, broker: str, queues: dict[str, int], mappings: dict[str, TopicQueueMappingInfo]
) -> PreparedTopics:
    """A registration, planned and prepared."""
    rows: NewRows = {}
    new_mappings: NewMappings = {}
    configs = [TopicConfig(topic, number, number, 6, 0) for topic, number in queues.items()]
    finished(table.plan_queues(rows, broker, configs, without_perm=0))
    finished(table.plan_mappings(rows, new_mappings, broker, mappings))
    finished(table.plan_lost_mappings(new_mappings, broker, mappings))
    return finished(table.prepare(rows, new_mappings, ()))


def test_lost_mappings_are_sought_among_the_topics_of_their_broker() -> None:
    """A registration costs no step for the static mappings of other brokers, of which there may be a million."""
    table, names = TopicTable(), [f"s{number}" for number in range(2 * CHUNK_TOPICS)]
    mapped = {name: TopicQueueMappingInfo(topic=name) for name in names}
    table.apply(prepared(table, "a", dict.fromkeys(names, 1), mapped))
    lost: NewMappings = {}

    assert list(table.plan_lost_mappings(lost, "b", {})) == []
    assert lost == {}
    finished(table.plan_lost_mappings(lost, "a", {name: mapped[name] for name in names[1:]}))
    assert lost == {("s0", "a"): None}


def test_mapping_goes_with_the_queues_of_its_broker() -> None:
    """A registration that drops a topic together with its mapping leaves the mapping of the other broker."""
    table, mapping = TopicTable(), TopicQueueMappingInfo(topic="t1")
    for broker in ("a", "b"):
        table.apply(prepared(table, broker, {"t1": 1}, {"t1": mapping}))

    table.apply(finished(table.prepare({"t1": row_with(table.rows["t1"], "a", None)}, {("t1", "a"): None}, ())))

    assert table.mappings == {"t1": {"b": mapping}}
    assert table.of_broker == {"b": {"t1": None}}


@pytest.mark.parametrize(("moved", "renewed"), [((), set()), (("a",), {"t1", "t2"}), (("b", "unknown"), {"t3"})])
def test_moved_broker_renews_its_topics(moved: tuple[str, ...], renewed: set[str]) -> None:
    """A moved broker gives its topics new rows with equal queues; topics that shared a row share the new one."""
    table = TopicTable()
    for broker, topics in (("a", {"t1": 1, "t2": 1}), ("b", {"t3": 1})):
        table.apply(prepared(table, broker, topics, {}))
    before = dict(table.rows)

    table.apply(finished(table.prepare({}, {}, moved)))

    assert {topic for topic, row in table.rows.items() if row is not before[topic]} == renewed
    assert [row.queues for row in table.rows.values()] == [row.queues for row in before.values()]
    assert table.rows["t1"] is table.rows["t2"]
    assert repr(table) == "<TopicTable [3 topics | 3 routes | 3 queues]>"
