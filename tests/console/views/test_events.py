"""Events of all servers and of one topic, equal events and audit lines as one act, and events as sentences."""

from collections.abc import Mapping
from typing import Any

import pytest

from namesrv_console.catalogue import LANGUAGES, catalogue
from namesrv_console.state import Cluster, ServerView
from namesrv_console.views.events import acts, happenings, last_events, newest_first, sentence, topic_history
from namesrv_remoting.bodies.extensions import Event

BROKER: Mapping[str, Any] = {"cluster": "c1", "broker_name": "broker-a", "broker_id": 0}
ONE, TWO = ServerView("s1"), ServerView("s2")


def evicted(ts_ms: int, silent_ms: int, **fields: Any) -> Event:
    """An eviction of a silent broker."""
    return Event(1, "evict", ts_ms, {**BROKER, "reason": "silent", "silent_ms": silent_ms, **fields})


def test_one_act_on_several_servers_is_one_line() -> None:
    """Equal events within 15 s are merged into the newest; events of one server, and of other brokers, are not."""
    again, other = evicted(100_000, 121_000), evicted(90_000, 120_000, broker_id=1)
    found = [(ONE, again), (TWO, evicted(92_000, 124_023)), (ONE, other), (ONE, evicted(60_000, 120_000))]
    found.append((TWO, evicted(40_000, 120_000)))

    assert [(one.event.ts_ms, one.servers) for one in happenings(found)] == [
        (100_000, ["s1", "s2"]),
        (90_000, ["s1"]),
        (60_000, ["s1"]),
        (40_000, ["s2"]),
    ]


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("register", {"kind": "full", "topics": 4}, "c1/broker-a/0 registered with 4 topics"),
        (
            "evict",
            {"reason": "silent", "silent_ms": 124_023},
            "c1/broker-a/0 was evicted after 124.0 s without a heartbeat",
        ),
        ("unregister", {"broker_addr": "10.0.0.1:10911"}, "c1/broker-a/0 asked to leave"),
        ("evict", {"reason": "disconnected", "silent_ms": 1}, "c1/broker-a/0 left: its connection was closed"),
        ("evict", {"broker_name": "dc1/b", "reason": "unregistered"}, "c1/dc1%2Fb/0 unregistered"),
        ("evict", {"reason": "superseded", "silent_ms": 1}, "c1/broker-a/0 was replaced by another broker"),
        ("fenced", {"reason": "silent"}, "a late removal of c1/broker-a/0 was ignored"),
        (
            "takeover_attempted",
            {"by": "10.0.0.9:1", "refused": True},
            "10.0.0.9:1 tried to take the place of c1/broker-a/0",
        ),
        ("write_permission", {"removed": True}, "the write permission of broker-a was removed"),
        ("write_permission", {"removed": False}, "the write permission of broker-a was added back"),
        ("route", {"revision": 7, "topics": ["T", "U"], "count": 2}, "routes changed by broker-a: 2 (T, U)"),
        ("route", {"topics": ["T", "U", "V", "W"], "count": 9}, "routes changed by broker-a: 9 (T, U, V, …)"),
        ("route", {"topics": ["T"], "count": 1, "broker_name": None}, "routes changed by a request: 1 (T)"),
        ("route", {"topics": None, "count": None, "broker_name": None}, "routes changed by a setting"),
    ],
)
def test_event_is_a_sentence_in_each_language(name: str, fields: dict[str, Any], text: str) -> None:
    """The sentence has no raw field, and each language has it."""
    subject: Mapping[str, Any] = {"broker_name": "broker-a"} if name in ("route", "write_permission") else BROKER
    found = sentence(Event(1, name, 0, {**subject, **fields}))

    assert found is not None
    key, values = found
    assert catalogue("en").text(f"event.{key}", **values) == text
    assert all(catalogue(language).text(f"event.{key}", **values) for language in LANGUAGES)


@pytest.mark.parametrize(
    ("name", "fields"),
    [("evict", {**BROKER, "reason": "new"}), ("a_newer_event", BROKER), ("register", {"topics": 3}), ("evict", BROKER)],
)
def test_unknown_event_has_no_sentence(name: str, fields: dict[str, Any]) -> None:
    """An event of a newer server is shown with its fields."""
    assert sentence(Event(1, name, 0, fields)) is None


def test_events_of_servers_with_different_clocks_are_in_their_order() -> None:
    """A server whose clock is an hour ahead reported the first event; both reported the last one, within a second."""
    left: dict[str, Any] = {"cluster": "c1", "broker_name": "a", "broker_id": 0, "reason": "silent"}
    first = Event(1, "register", 3_600_000 + 1_000, {"broker_name": "b"})
    ahead = ServerView("s1", wall_minus_monotonic=3_600.0, events=(first, Event(2, "evict", 3_600_000 + 9_500, left)))
    other = ServerView(
        "s2", wall_minus_monotonic=0.0, events=(Event(1, "fenced", 5_000, left), Event(2, "evict", 9_000, left))
    )

    found = last_events(Cluster(1, (ahead, other)), lambda moment: round(moment * 1000))

    assert [(one.event.event, one.event.ts_ms, one.servers) for one in found] == [
        ("evict", 9_500, ["s1", "s2"]),
        ("fenced", 5_000, ["s2"]),
        ("register", 1_000, ["s1"]),
    ]


def test_event_without_a_time_is_not_the_newest() -> None:
    """Such an event keeps its place among those of its server: between its neighbours, or at the last known time."""
    timed = ServerView("s1", events=(Event(1, "register", 2_000, {}), Event(2, "evict", 4_000, {})))
    partly = ServerView("s2", events=(Event(1, "register", 3_000, {}), Event(2, "evict", None, {})))
    untimed = ServerView("s3", events=(Event(1, "register", None, {}),))

    found = newest_first(Cluster(1, (untimed, partly, timed)), lambda moment: round(moment * 1000))

    assert [(view.name, event.seq) for view, event in found] == [("s1", 2), ("s2", 2), ("s2", 1), ("s1", 1), ("s3", 1)]


def test_events_of_a_server_stay_in_their_order() -> None:
    """One server's clock was set back by an hour; the other one restarted, and numbers its events anew."""
    set_back = ServerView(
        "s1",
        events=(
            Event(1, "evict", 3_601_000, {"broker_name": "a"}),
            Event(2, "register", 3_602_000, {"broker_name": "a"}),
            Event(3, "evict", 5_000, {"broker_name": "b"}),
        ),
    )
    restarted = ServerView(
        "s2",
        events=(
            Event(9, "evict", 4_000, {"broker_name": "c"}),
            Event(1, "register", 4_000, {"broker_name": "c"}),
            Event(2, "register", 6_000, {"broker_name": "d"}),
        ),
    )
    cluster = Cluster(1, (set_back, restarted))

    last = [(one.servers, one.event.event) for one in last_events(cluster, round)]
    topic = [([one.server], one.event.event) for one in topic_history(cluster, "t", {"a", "b", "c", "d"}, round)]

    expected = [("s2", "register"), ("s1", "evict"), ("s1", "register"), ("s1", "evict")]
    expected += [("s2", "register"), ("s2", "evict")]
    assert last == topic == [([server], name) for server, name in expected]


def test_topic_history_has_certain_and_possible_changes() -> None:
    """A large change names only its first topics, so that it is uncertain for further ones."""
    events = (
        Event(1, "register", 10, {"broker_name": "a", "kind": "full"}),
        Event(2, "route", 20, {"topics": ["t"], "count": 1}),
        Event(3, "route", 30, {"topics": ["u"], "count": 1}),
        Event(4, "route", 40, {"topics": ["u"], "count": 9}),
        Event(5, "route", 50, {"topics": None, "count": None}),
        Event(6, "evict", 60, {"broker_name": "b"}),
    )

    found = topic_history(Cluster(1, (ServerView("s1", events=events),)), "t", {"a"}, round)

    assert [(one.event.seq, one.is_uncertain) for one in found] == [(5, True), (4, True), (2, False), (1, False)]


def test_topic_history_has_the_brokers_that_have_left() -> None:
    """A broker that changed the route on any server counts, also once no server has it."""
    left = (
        Event(1, "route", 10, {"topics": ["t"], "count": 1, "broker_name": "gone"}),
        Event(2, "evict", 20, {"broker_name": "gone"}),
        Event(3, "route", 30, {"topics": ["u"], "count": 9, "broker_name": "perhaps"}),
        Event(4, "evict", 40, {"broker_name": "perhaps"}),
    )
    other = (Event(1, "evict", 15, {"broker_name": "gone"}),)

    found = topic_history(
        Cluster(1, (ServerView("s1", events=left), ServerView("s2", events=other))), "t", set(), round
    )

    assert [(one.server, one.event.seq) for one in found] == [("s1", 3), ("s1", 2), ("s2", 1), ("s1", 1)]


def line(ts_ms: int, nameserver: str, **fields: Any) -> dict[str, Any]:
    """A line about a KV value."""
    change = {"what": "kv", "namespace": "n", "key": "k", "before": None, "after": "v"}
    about = {"event": "change", "account": "olga", "peer": f"10.0.0.1:{ts_ms % 997}", "request": "PUT_KV_CONFIG"}
    return {"ts_ms": ts_ms, "nameserver": nameserver, **about, "changes": [change], **fields}


def test_equal_lines_of_several_servers_are_one_act() -> None:
    """Within 15 s, by one account from one address; the port, which differs, does not count."""
    lines = [
        line(100_000, "ns1"),
        line(99_900, "ns2"),
        line(99_800, "ns3", account="ben"),
        line(99_700, "ns3", peer="10.0.0.2:1"),
        line(85_000, "ns3"),
        line(84_999, "ns4"),
        line(84_000, "ns1"),
        # A repeated change is another act.
        line(83_000, "ns1"),
    ]

    assert [(act.event["ts_ms"], act.servers) for act in acts(lines)] == [
        (100_000, ["ns1", "ns2", "ns3"]),
        (99_800, ["ns3"]),
        (99_700, ["ns3"]),
        (84_999, ["ns4", "ns1"]),
        (83_000, ["ns1"]),
    ]
