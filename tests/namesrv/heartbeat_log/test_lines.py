"""Lines of the heartbeat log describe changes, and can be read from the beginning of any file."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.heartbeat_log.lines import EffectLine, EventLine, HeartbeatLines, RoutesPublished
from namesrv.routeinfo.tables.effects import Evicted, Registered
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.rows import TopicRow, grouped_by_row
from namesrv_remoting.bodies.route import BrokerData, QueueData
from namesrv_runtime.line_log.queue import Item

NAMES, TOPICS = "abc", "TUV"
# topic -> names of its brokers; broker name -> its ids
Routes = dict[str, frozenset[str]]
Groups = dict[str, frozenset[int]]
ROUTES = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.sampled_from(NAMES)))
GROUPS = st.fixed_dictionaries({name: st.frozensets(st.integers(0, 2), min_size=1) for name in NAMES})


def new_lines() -> HeartbeatLines:
    """The lines of a new boot."""
    return HeartbeatLines("ns", "0a", {"version": "1"})


def at(item: object) -> Item:
    """An item at some moment."""
    return Item(1_772_351_990.0, 0.0, item)


def row(names: frozenset[str]) -> TopicRow | None:
    """The row of a topic on these brokers, or None without any."""
    return TopicRow(tuple(QueueData(name, 4, 4, 6, 0) for name in sorted(names))) if names else None


def group(name: str, ids: frozenset[int]) -> BrokerData:
    """The group of a broker with these ids."""
    return BrokerData("cluster", name, {number: f"10.0.0.{number}:10911" for number in ids})


def published(revision: int, before: tuple[Routes, Groups], after: tuple[Routes, Groups]) -> RoutesPublished:
    """A change as the tables publish it, with each topic whose row or one of whose groups differs."""
    (routes, groups), (new_routes, new_groups) = before, after
    changed = {name for name in NAMES if groups[name] != new_groups[name]}
    topics = [
        topic
        for topic in TOPICS
        if routes.get(topic) != new_routes.get(topic) or new_routes.get(topic, frozenset()) & changed
    ]
    befores, afters = ([row(each.get(topic, frozenset())) for topic in topics] for each in (routes, new_routes))
    return RoutesPublished(
        revision,
        grouped_by_row(topics, befores, afters) if topics else (),
        {name: group(name, groups[name]) for name in changed},
        {name: group(name, ids) for name, ids in new_groups.items()},
    )


class Reader:
    """The routes that a reader of the log knows who starts at some line."""

    def __init__(self) -> None:
        self.routes: dict[str, dict[str, Any]] = {}

    def read(self, line: dict[str, Any]) -> list[str]:
        """Apply a line and return its topics."""
        if line["event"] == "dropped":
            self.routes.clear()
        for change in line.get("changes", ()):
            for topic in change["topics"]:
                route = {} if change.get("whole") else dict(self.routes[topic])
                for name in change.get("unset", ()):
                    del route[name]
                route.update((broker["name"], broker) for broker in change.get("set", ()))
                self.routes[topic] = route
        return [topic for change in line.get("changes", ()) for topic in change["topics"]]


@given(st.lists(st.tuples(st.sampled_from(["written", "lost", "new file"]), ROUTES, GROUPS)))
def test_routes_can_be_read_from_any_file(steps: list[tuple[str, Routes, Groups]]) -> None:
    """A reader knows the routes from the beginning of a boot or of any file, in spite of lost lines."""
    lines, readers = new_lines(), [Reader()]
    state: tuple[Routes, Groups] = ({}, dict.fromkeys(NAMES, frozenset({0})))
    for revision, (how, routes, groups) in enumerate(steps, 1):
        change = published(revision, state, (routes, groups))
        state = (routes, groups)
        if how == "new file":
            lines.opened(at(change))
            readers.append(Reader())
        if not change.topics:
            continue
        line = json.loads(lines.dropped(1, at(change)) if how == "lost" else lines.line(at(change)))
        for reader in readers:
            for topic in reader.read(line):
                assert {
                    name: {"name": name, "master": 0 in groups[name], "ids": sorted(groups[name])}
                    for name in routes.get(topic, ())
                } == reader.routes[topic]


@pytest.mark.parametrize("name", ["\x9b2J", "\u202etxt", "a\u2028b", "\ud800", "\x1b[2J\x7f", "名前", "\U000e0001"])
def test_names_are_written_as_printable_ascii(name: str) -> None:
    """Any name of a peer is one line of printable ASCII, which decodes to the same name."""
    served = (1_772_351_990.0, 0.0, name, name, 7)
    lines = (
        new_lines().lines((at(EventLine(b"client_gone", {"client": name})), served, served)).splitlines(keepends=True)
    )

    assert all(line.endswith(b"}\n") and line[:-1].decode("ascii").isprintable() for line in lines)
    gone, first, second = map(json.loads, lines)
    assert gone["client"] == name
    assert [first[key] for key in ("event", "client", "topics", "revisions")] == ["served", name, [name], [7]]
    assert second == {**first, "seq": 3}


def test_heartbeat_lines_share_the_sequence_of_other_lines() -> None:
    """Each heartbeat line has the broker's id and topics as last registered, and times with three decimals."""
    key = BrokerAddrInfo("cluster-1", "10.0.0.1:10911")
    live = BrokerLiveInfo("broker-a", 0, 0.0, 120.0, None, 1, None, generation=1)
    again = msgspec.structs.replace(live, generation=2, broker_id=1)
    wall, monotonic = 1_772_351_990.0004, 9_999_999.1234567
    heartbeats = [(wall, monotonic, key, each, 1 / 3) for each in (live, live, again)]
    registered = at(EffectLine(Registered(key, again, "full", topics=5, is_new=False, silent_seconds=0.0), 5))
    evicted = at(EffectLine(Evicted(key, again, "disconnected", 0.0)))
    lines = [
        json.loads(line) for line in new_lines().lines((*heartbeats, registered, heartbeats[2], evicted)).splitlines()
    ]

    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [(line["broker_id"], line["topics"]) for line in lines] == [(0, 0), (0, 0), (1, 0), (1, 5), (1, 5), (1, 5)]
    moments = {tuple(line[name] for name in ("ts_ms", "mono_ms", "silent_ms")) for line in (*lines[:3], lines[4])}
    assert moments == {(1_772_351_990_000, 9_999_999_123.457, 333.333)}
    assert lines[5]["last_seq"] == 5
